//! Which parts of an expression are compared with each other.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InSubquery, SetComparison};
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};

use super::columns::project;

/// Puts something else in the place of an expression over the columns of a schema.
pub(super) type Amend<'a> = &'a dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>;

/// The types of what is compared with each other in an expression; of none in others.
pub(super) fn types(expr: &Expr, schema: &DFSchema) -> Vec<DataType> {
    let (parts, subquery) = parts(expr);
    let mut types: Vec<DataType> =
        parts.into_iter().filter_map(|part| part.get_type(schema).ok()).collect();
    if let Some([field]) = subquery.map(|subquery| &**subquery.subquery.schema().fields()) {
        types.push(field.data_type().clone());
    }
    types
}

/// What is compared with each other in an expression, and with what a subquery finds.
pub(super) fn parts(expr: &Expr) -> (Vec<&Expr>, Option<&Subquery>) {
    match expr {
        Expr::BinaryExpr(binary) if compares(binary.op) => {
            (vec![&binary.left, &binary.right], None)
        }
        Expr::Between(between) => (vec![&between.expr, &between.low, &between.high], None),
        Expr::InList(list) => ([&*list.expr].into_iter().chain(&list.list).collect(), None),
        Expr::InSubquery(among) => (vec![&among.expr], Some(&among.subquery)),
        Expr::SetComparison(among) => (vec![&among.expr], Some(&among.subquery)),
        Expr::Case(case) => match &case.expr {
            Some(base) => {
                let values = case.when_then_expr.iter().map(|(value, _)| &**value);
                ([&**base].into_iter().chain(values).collect(), None)
            }
            None => (Vec::new(), None),
        },
        _ => (Vec::new(), None),
    }
}

/// Whether an operator compares its sides.
const fn compares(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// Puts something else in the place of each part whose type [`types`] has.
pub(super) fn map(expr: Expr, schema: &DFSchema, amend: Amend<'_>) -> Result<Transformed<Expr>> {
    let in_place = |part: &mut Expr| -> Result<()> {
        *part = amend(std::mem::take(part), schema)?.data;
        Ok(())
    };
    let mut expr = expr;
    match &mut expr {
        Expr::BinaryExpr(binary) => {
            in_place(&mut binary.left)?;
            in_place(&mut binary.right)?;
        }
        Expr::Between(between) => {
            in_place(&mut between.expr)?;
            in_place(&mut between.low)?;
            in_place(&mut between.high)?;
        }
        Expr::InList(list) => {
            in_place(&mut list.expr)?;
            list.list.iter_mut().try_for_each(in_place)?;
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            in_place(expr)?;
            let input = Arc::clone(&subquery.subquery);
            let (input, _) = project(input, |_, column, schema| amend(column, schema))?;
            subquery.subquery = input;
        }
        Expr::Case(case) => {
            if let Some(base) = &mut case.expr {
                in_place(base)?;
                for (value, _) in &mut case.when_then_expr {
                    in_place(value)?;
                }
            }
        }
        _ => return Ok(Transformed::no(expr)),
    }
    // What is below has been looked at already, and what is put there needs no look.
    Ok(Transformed::new(expr, true, TreeNodeRecursion::Continue))
}
