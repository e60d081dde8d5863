//! What a statement says in words that DataFusion does not know is put into its own before it is planned.

use std::ops::ControlFlow;

use datafusion::execution::context::SessionState;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::VisitorMut;
use tidefall_types::{Error, Result};

use crate::asof::AsOfSyntax;
use crate::ast::sql_statement_mut;
use crate::calls::Calls;
use crate::clauses::Clauses;
use crate::constants::Constants;
use crate::functions::{InnerNames, ShortForms};
use crate::intervals::Intervals;
use crate::layers::NamedArguments;
use crate::long_numbers::LongNumbers;
use crate::named_windows::NamedWindows;
use crate::names::{ColumnNames, UniqueNames};
use crate::quantified::Quantified;
use crate::records::NamedDimensions;
use crate::tuples::TuplesAmong;
use crate::using::OuterUsing;
use crate::walk::{Walked, walk_mut};
use crate::with_names::WithNames;

/// Rewrites a statement, or the one that it explains.
///
/// # Errors
/// `Invalid` for words that are used in a way that they do not have, `Unsupported` for clauses that would be
/// passed over.
pub(crate) fn rewrite(statement: &mut DfStatement, state: &SessionState) -> Result<()> {
    let Some(statement) = sql_statement_mut(statement) else { return Ok(()) };
    visit(statement, WithNames::default())?;
    visit(statement, ColumnNames)?;
    visit(statement, Intervals)?;
    visit(statement, NamedWindows)?;
    visit(statement, Clauses::default())?;
    visit(statement, Quantified)?;
    visit(statement, NamedDimensions)?;
    // Comes before tuples, whose parts it names: these are put into subqueries, where others have the same name.
    visit(statement, OuterUsing::default())?;
    visit(statement, TuplesAmong(state))?;
    visit(statement, LongNumbers)?;
    visit(statement, NamedArguments)?;
    visit(statement, ShortForms)?;
    visit(statement, Calls(state))?;
    visit(statement, InnerNames::new(state))?;
    visit(statement, AsOfSyntax)?;
    visit(statement, Constants)?;
    visit(statement, UniqueNames)
}

fn visit(statement: &mut impl Walked, mut visitor: impl VisitorMut<Break = Error>) -> Result<()> {
    match walk_mut(statement, &mut visitor) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}
