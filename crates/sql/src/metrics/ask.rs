//! Which question has the answer of an aggregate.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};

use super::question::Question;
use super::spec::{Group, Measure};
use crate::pushdown::Conditions;
use crate::table::Table;
use crate::tree::Tree;

/// The question that has the same answer as an aggregate over `input`, if metrics can answer it.
pub(super) fn question(
    input: &LogicalPlan,
    group_exprs: &[Expr],
    aggregate_exprs: &[Expr],
) -> Result<Option<Question>> {
    let Some((scan, meaning)) = scan_below(input)? else { return Ok(None) };
    let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
    let Some(table) = provider.downcast_ref::<Table>() else { return Ok(None) };
    let view = table.view();
    let schema = view.schema();
    let conditions = Conditions::of(&scan.filters, schema);
    if !conditions.exact || !conditions.values.is_empty() || scan.fetch.is_some() {
        return Ok(None);
    }
    let mut groups = Vec::with_capacity(group_exprs.len());
    for expr in group_exprs {
        // ROLLUP and its like: several groupings in one.
        if matches!(expr, Expr::GroupingSet(_)) {
            return Ok(None);
        }
        match Group::of(&replace_columns(expr, &meaning)?, schema) {
            Some(group) => groups.push(group),
            None => return Ok(None),
        }
    }
    let bins = groups.iter().filter(|group| matches!(group, Group::Bin(_))).count();
    if bins > 1 {
        return Ok(None);
    }
    let mut measures = Vec::with_capacity(aggregate_exprs.len());
    for expr in aggregate_exprs {
        match Measure::of(&replace_columns(expr, &meaning)?, schema) {
            Some(measure) => measures.push(measure),
            None => return Ok(None),
        }
    }
    Ok(Some(Question { view: Arc::clone(view), conditions, groups, measures, counted: None }))
}

/// What each column of a plan is in terms of the columns of what lies below it.
pub(crate) type Meaning = HashMap<Column, Expr>;

/// The scan below projections and renamings, if nothing else lies between.
pub(crate) fn scan_below(plan: &LogicalPlan) -> Result<Option<(&TableScan, Meaning)>> {
    Ok(match leaf_below(plan)? {
        Some((LogicalPlan::TableScan(scan), meaning)) => Some((scan, meaning)),
        _ => None,
    })
}

/// What lies below projections and renamings that give the same values whenever they are computed.
pub(super) fn leaf_below(plan: &LogicalPlan) -> Result<Option<(&LogicalPlan, Meaning)>> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((leaf, below)) = leaf_below(&alias.input)? else { return Ok(None) };
            let inner = alias.input.schema().columns();
            let mut meaning = Meaning::new();
            for (outer, inner) in alias.schema.columns().into_iter().zip(inner) {
                let Some(expr) = below.get(&inner) else { return Ok(None) };
                meaning.insert(outer, expr.clone());
            }
            Ok(Some((leaf, meaning)))
        }
        LogicalPlan::Projection(projection) => {
            let Some((leaf, below)) = leaf_below(&projection.input)? else { return Ok(None) };
            let mut meaning = Meaning::new();
            for (outer, expr) in projection.schema.columns().into_iter().zip(&projection.expr) {
                if expr.is_volatile() {
                    return Ok(None);
                }
                meaning.insert(outer, replace_columns(&expr.clone().unalias(), &below)?);
            }
            Ok(Some((leaf, meaning)))
        }
        leaf => {
            let columns = leaf.schema().columns();
            let itself = |column: Column| (column.clone(), Expr::Column(column));
            Ok(Some((leaf, columns.into_iter().map(itself).collect())))
        }
    }
}

pub(crate) fn replace_columns(expr: &Expr, meaning: &Meaning) -> Result<Expr> {
    let replaced = expr.clone().transform_up(|node| match &node {
        Expr::Column(column) => match meaning.get(column) {
            Some(expr) => Ok(Transformed::yes(expr.clone())),
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(replaced.data)
}
