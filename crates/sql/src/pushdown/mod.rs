//! What a `WHERE` asks of the storage: which sensors, which times, which values.
//!
//! 1. Every condition is turned into [`Bounds`]: a tag filter, a time range and value conditions
//!    that together hold for at least the rows for which the condition is true.
//! 2. Bounds are *exact* when they hold for no other row. DataFusion then forgets the condition;
//!    otherwise it filters once more what the scan delivers.
//! 3. A condition that only looks at tags is always exact: what the catalogue cannot answer
//!    is evaluated once per sensor instead of once per row.

mod bounds;
mod selection;
mod steps;
mod tags;
mod values;

use std::hash::{Hash, Hasher};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{BinaryExpr, Expr};
use tidefall_storage::{TagFilter, ValueCondition};
use tidefall_types::{ColumnKind, TableSchema, TimeRange};

use bounds::Bounds;

use crate::tree::Tree;
pub(crate) use selection::{evaluate, select_among, select_sensors, sensors_in_order};
pub(crate) use steps::Step;
pub(crate) use values::{End, end_of};

/// What all conditions of a query ask of one table together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conditions {
    /// The sensors, as far as the catalogue finds them.
    pub(crate) tags: TagFilter,
    /// More conditions on tags, to be evaluated once per sensor.
    pub(crate) tag_exprs: Vec<Expr>,
    /// The times.
    pub(crate) time: TimeRange,
    /// Conditions on values, which only rule out blocks.
    pub(crate) values: Vec<ValueCondition>,
    /// Whether rows outside of the conditions are all left out by the above.
    pub(crate) exact: bool,
}

/// No condition compares with NaN, so that all of them are equal to themselves.
impl Eq for Conditions {}

impl Hash for Conditions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tags.hash(state);
        self.tag_exprs.hash(state);
        self.time.hash(state);
    }
}

impl Conditions {
    /// The conditions that all of `filters` make on a table.
    pub(crate) fn of<'a>(
        filters: impl IntoIterator<Item = &'a Expr>,
        schema: &TableSchema,
    ) -> Self {
        let mut all = Bounds::everything();
        let mut tag_exprs = Vec::new();
        for filter in filters {
            match Bounds::of(filter, schema) {
                Some(bounds) if bounds.exact || !looks_at_tags_only(filter, schema) => {
                    all = all.and(bounds);
                }
                _ if looks_at_tags_only(filter, schema) => tag_exprs.push(filter.clone()),
                _ => all.exact = false,
            }
        }
        let Bounds { tags, time, values, exact } = all;
        Self { tags, tag_exprs, time, values, exact }
    }

    /// Whether `filter` alone is answered exactly, in part, or not at all.
    pub(crate) fn support(filter: &Expr, schema: &TableSchema) -> Support {
        if looks_at_tags_only(filter, schema) {
            return Support::Exact;
        }
        match Bounds::of(filter, schema) {
            Some(bounds) if bounds.exact => Support::Exact,
            Some(_) => Support::Part,
            None => Support::None,
        }
    }
}

/// How far the storage answers a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    /// It delivers the rows for which the condition is true and no others.
    Exact,
    /// It delivers all rows for which the condition is true, and perhaps others.
    Part,
    /// It knows nothing about it.
    None,
}

/// The parts of a chain `a OR b OR c`, or of one with `AND`, from left to right. Machines write
/// chains of hundreds of parts, each nested in the next: walking them must take neither stack nor
/// time that grows faster than they do.
fn chain(expr: &BinaryExpr) -> Vec<&Expr> {
    let mut parts = Vec::new();
    let mut waiting = vec![expr.right.as_ref(), expr.left.as_ref()];
    while let Some(next) = waiting.pop() {
        match next {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == expr.op => {
                waiting.extend([right.as_ref(), left.as_ref()]);
            }
            part => parts.push(part),
        }
    }
    parts
}

/// The kind of the column that an expression is, if it is one.
pub(crate) fn column_kind(expr: &Expr, schema: &TableSchema) -> Option<ColumnKind> {
    match expr {
        Expr::Column(column) => schema.column(&column.name).map(|column| column.kind),
        _ => None,
    }
}

/// Whether the value of `expr` is the same for all rows of a sensor and comes from its tags.
pub(crate) fn looks_at_tags_only(expr: &Expr, schema: &TableSchema) -> bool {
    let columns = expr.column_refs();
    let tags_only = columns.iter().all(|column| {
        let kind = schema.column(&column.name).map(|column| column.kind);
        matches!(kind, Some(ColumnKind::Tag(_)))
    });
    !columns.is_empty() && tags_only && !expr.is_volatile() && is_self_contained(expr)
}

/// Whether an expression needs nothing but a row: no subquery, no aggregate, no parameter.
fn is_self_contained(expr: &Expr) -> bool {
    let mut contained = true;
    let visited = expr.apply(|node| {
        contained &= !matches!(
            node,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::Placeholder(_)
        );
        Ok(if contained { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    visited.is_ok() && contained
}

#[cfg(test)]
mod tests;
