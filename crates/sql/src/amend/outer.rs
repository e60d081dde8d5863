//! The types of the columns around a subquery at which it looks. DataFusion keeps them within the subquery.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{Expr, Join, LogicalPlan};

use crate::tree::{Tree, apply_expressions, map_expressions};

/// The columns around each of the subqueries that are walked through.
#[derive(Debug, Default)]
pub(super) struct Outer {
    /// The innermost last; none of what looks at nothing.
    around: Vec<Option<DFSchemaRef>>,
    /// The columns of the node that was walked through last: those of the left input of a join, when its right one begins.
    last: Option<DFSchemaRef>,
    /// The plans of `LATERAL` to which the walk has not come.
    laterals: Vec<*const LogicalPlan>,
}

impl Outer {
    /// Comes to a subquery that looks at some columns.
    pub(super) fn enter(&mut self, columns: DFSchemaRef) {
        self.around.push(Some(columns));
    }

    /// Leaves the subquery to which it came last.
    pub(super) fn leave(&mut self) {
        self.around.pop();
    }

    /// Leaves a node behind that has some columns.
    pub(super) fn passed(&mut self, columns: &DFSchemaRef) {
        self.last = Some(Arc::clone(columns));
    }

    /// Comes to a join, of which the right input may look at the left one.
    pub(super) fn expect_lateral(&mut self, join: &Join) {
        let mut right = &*join.right;
        loop {
            right = match right {
                LogicalPlan::Subquery(inner) => {
                    self.laterals.push(Arc::as_ptr(&inner.subquery));
                    return;
                }
                LogicalPlan::SubqueryAlias(named) => &named.input,
                LogicalPlan::Projection(projection) => &projection.input,
                _ => return,
            };
        }
    }

    /// Comes to a subquery among the tables.
    pub(super) fn enter_lateral(&mut self, inner: &Subquery) {
        let plan = Arc::as_ptr(&inner.subquery);
        let expected = self.laterals.iter().rposition(|lateral| *lateral == plan);
        let columns = expected.and_then(|at| {
            self.laterals.swap_remove(at);
            self.last.take()
        });
        self.around.push(columns);
    }

    /// The columns around a node, in its expressions, with the types that they have now.
    pub(super) fn renew(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if self.around.iter().all(Option::is_none) || !self.is_stale(&node)? {
            return Ok(Transformed::no(node));
        }
        map_expressions(node, &mut |expr| {
            expr.transform_up(|part| match self.renewed(&part) {
                Some(renewed) => Ok(Transformed::yes(renewed)),
                None => Ok(Transformed::no(part)),
            })
        })
    }

    fn is_stale(&self, node: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        apply_expressions(node, &mut |expr| {
            found = found || expr.exists(|part| Ok(self.renewed(part).is_some()))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    }

    /// A column around the query whose type is another now.
    fn renewed(&self, expr: &Expr) -> Option<Expr> {
        let Expr::OuterReferenceColumn(field, column) = expr else { return None };
        let (columns, at) = self.find(column)?;
        let now = columns.field(at);
        let is_other = now.data_type() != field.data_type();
        is_other.then(|| Expr::OuterReferenceColumn(Arc::clone(now), column.clone()))
    }

    /// The nearest columns among which one is.
    fn find(&self, column: &Column) -> Option<(&DFSchemaRef, usize)> {
        let known = self.around.iter().rev().flatten();
        known.filter_map(|columns| Some((columns, columns.maybe_index_of_column(column)?))).next()
    }
}
