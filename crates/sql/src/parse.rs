//! Texts as statements.

use std::collections::VecDeque;

use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{Expr, Statement as SqlStatement};
use datafusion::sql::sqlparser::parser::Parser;
use tidefall_types::Result;

use crate::depth::check_depth;
use crate::dialect::{self, TidefallDialect};
use crate::error::from_datafusion;

static DIALECT: TidefallDialect = TidefallDialect;

/// A parser that stands before the first statement of a text.
pub(crate) fn parser(sql: &str) -> Result<DFParser<'static>> {
    check_depth(sql, &DIALECT)?;
    DFParserBuilder::new(sql).with_dialect(&DIALECT).build().map_err(from_datafusion)
}

/// All statements of a text.
pub(crate) fn parse(sql: &str) -> Result<VecDeque<Statement>> {
    let mut parser = parser(sql)?;
    dialect::begin(sql);
    parser.parse_statements().map_err(from_datafusion)
}

/// A text that is one expression.
pub(crate) fn parse_expression(sql: &str) -> Result<Expr> {
    dialect::begin(sql);
    let parser = Parser::new(&DIALECT).try_with_sql(sql);
    let parsed = parser.and_then(|mut parser| parser.parse_expr());
    parsed.map_err(|error| from_datafusion(error.into()))
}

/// The statements of a text that is SQL without words of DataFusion; none if it cannot be read.
pub(crate) fn parse_plain(sql: &str) -> Vec<SqlStatement> {
    let plain = |statement| match statement {
        Statement::Statement(statement) => Some(*statement),
        Statement::Explain(explain) => match *explain.statement {
            Statement::Statement(statement) => Some(*statement),
            _ => None,
        },
        _ => None,
    };
    parse(sql).unwrap_or_default().into_iter().filter_map(plain).collect()
}
