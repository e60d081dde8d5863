//! Statements that were prepared, to be run once or often.
//!
//! What protocols ask for before there is a value: whether a text can be read, which parameters it has, and the columns of its
//! answer. The plan is made when it is run: which sensors and which times it reads depends on the values, and on what the tables have then.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement;
use tidefall_types::{Result, sql_type_name};

use crate::parameters::{Parameter, count, put_in, put_texts_in};
use crate::parse::parse;
use crate::tree::{Tree, apply_expressions, apply_with_subqueries};

/// Statements as they were parsed.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub(crate) sql: Arc<str>,
    statements: VecDeque<Statement>,
}

/// What prepared statements take and answer.
#[derive(Debug, Clone)]
pub struct Description {
    /// The type of each parameter, where its place tells; elsewhere it is that of its value.
    pub parameters: Vec<Option<DataType>>,
    /// The columns of the answer of the last statement, where all other parameters are taken for texts. Nothing where this is
    /// not known before it is run: of statements that define or show tables, of those that need a value to be planned, and of those about tables
    /// that statements before them make.
    pub columns: Option<SchemaRef>,
}

impl Prepared {
    pub(crate) fn parse(sql: &str) -> Result<Self> {
        let statements = parse(sql)?;
        Ok(Self { sql: sql.into(), statements })
    }

    /// The statements with values in the places of their parameters.
    pub(crate) fn with(mut self, values: &[Parameter]) -> Result<VecDeque<Statement>> {
        put_in(&mut self.statements, values)?;
        Ok(self.statements)
    }

    /// The statements, all of whose parameters have numbers.
    pub(crate) fn numbered(&self) -> Result<VecDeque<Statement>> {
        let mut statements = self.statements.clone();
        put_texts_in(&mut statements, |number| format!("${}", number + 1))?;
        Ok(statements)
    }

    /// The statements with a NULL of each type in the places of their parameters.
    pub(crate) fn with_nulls(&self, types: &[Option<DataType>]) -> Result<VecDeque<Statement>> {
        let mut statements = self.statements.clone();
        put_texts_in(&mut statements, |number| {
            let name = types[number].as_ref().map_or_else(|| "TEXT".to_owned(), sql_type_name);
            format!("CAST(NULL AS {name})")
        })?;
        Ok(statements)
    }

    pub(crate) fn parameter_count(&self) -> Result<usize> {
        count(&mut self.statements.clone())
    }
}

/// The types of parameters, as far as their places tell.
#[derive(Debug, Default)]
pub(crate) struct Types {
    /// None where places tell different ones.
    found: HashMap<String, Option<DataType>>,
}

impl Types {
    /// Takes note of what the places in a plan tell; some tell nothing.
    pub(crate) fn add(&mut self, plan: &LogicalPlan) -> DfResult<()> {
        let told = apply_with_subqueries(plan, &mut |node| {
            apply_expressions(node, &mut |expr| {
                expr.apply(|part| {
                    if let Expr::Placeholder(Placeholder { id, field: Some(field) }) = part {
                        self.note(id, field.data_type());
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        });
        told.map(|_| ())
    }

    fn note(&mut self, name: &str, told: &DataType) {
        match self.found.get_mut(name) {
            Some(known) if known.as_ref() != Some(told) => *known = None,
            Some(_) => {}
            None => {
                self.found.insert(name.to_owned(), Some(told.clone()));
            }
        }
    }

    /// The types of the parameters `$1` to `$count`.
    pub(crate) fn of(&self, count: usize) -> Vec<Option<DataType>> {
        (1..=count).map(|number| self.found.get(&format!("${number}")).cloned().flatten()).collect()
    }
}
