//! Values of correlated subqueries where DataFusion does not take them: in the order of rows, in windows, groups and
//! aggregates, and in the conditions of joins. They are computed below, as columns, by a projection.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, Projection};

use super::condition::{Names, columns, with_more};
use super::{is_correlated, node_has, outer_columns, refuse};
use crate::tree::{Tree, map_expressions};

/// A node without such values in its expressions.
///
/// # Errors
/// `Unsupported` where one looks at columns that the rows below do not have.
pub(super) fn lowered(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    if takes_values(&node) || !node_has(&node, is_value)? {
        return Ok(Transformed::no(node));
    }
    let shown = columns(&node);
    let schemas: Vec<_> = node.inputs().iter().map(|input| Arc::clone(input.schema())).collect();
    let mut computed: Vec<Vec<Expr>> = vec![Vec::new(); schemas.len()];
    let preserver = NamePreserver::new(&node);
    let node = map_expressions(node, &mut |expr| {
        let name = preserver.save(&expr);
        let expr = expr.transform_down(|part| {
            if !is_value(&part) {
                return Ok(Transformed::no(part));
            }
            let sides = schemas.iter().map(|schema| looks_at(&part, schema));
            let sides = sides.collect::<Result<Vec<_>>>()?;
            let Some(side) = sides.into_iter().position(|is_it| is_it) else {
                return refuse(PLACE, SHOW);
            };
            let column = names.next();
            computed[side].push(part.alias(&column));
            let column = Expr::Column(Column::new_unqualified(column));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        Ok(expr.update_data(|expr| name.restore(expr)))
    })?;
    let inputs = node.data.inputs().into_iter().cloned().zip(computed);
    let inputs = inputs.map(|(input, more)| with_more(input, more));
    let mut inputs = inputs.collect::<Result<Vec<_>>>()?;
    let plan = match node.data {
        LogicalPlan::Join(join) => {
            let right = inputs.pop().map_or_else(|| Arc::clone(&join.right), Arc::new);
            let left = inputs.pop().map_or_else(|| Arc::clone(&join.left), Arc::new);
            LogicalPlan::Join(Join { left, right, ..join }).recompute_schema()?
        }
        other => other.with_new_exprs(other.expressions(), inputs)?,
    };
    let plan = Projection::try_new(shown, Arc::new(plan))?;
    Ok(Transformed::yes(LogicalPlan::Projection(plan)))
}

const PLACE: &str = "that this place does not have";

const SHOW: &str = "name it in SELECT, in a query of its own: SELECT ... FROM (SELECT *, (SELECT ...) AS v FROM ...) ORDER BY v";

/// Whether DataFusion takes such values in the expressions of a node.
pub(super) const fn takes_values(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Filter(_))
}

/// Whether an expression is the value of a correlated subquery.
fn is_value(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(inner) if is_correlated(&inner.subquery))
}

/// Whether all columns at which a subquery looks are there.
fn looks_at(value: &Expr, schema: &DFSchema) -> Result<bool> {
    let Expr::ScalarSubquery(inner) = value else { return Ok(false) };
    let columns = outer_columns(&inner.subquery)?;
    Ok(columns.iter().all(|column| schema.is_column_from_schema(column)))
}
