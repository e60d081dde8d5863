//! Where block metrics can answer, the plan asks them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, LogicalPlan, TableScan, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::groups::bare_tag;
use super::node::MetricsNode;
use super::question::Question;
use super::spec::{Group, Measure};
use crate::pushdown::Conditions;
use crate::settings::Settings;
use crate::table::Table;

/// Replaces aggregates over a table by questions for its metrics.
#[derive(Debug)]
pub(crate) struct MetricsRule;

impl OptimizerRule for MetricsRule {
    fn name(&self) -> &str {
        "tidefall_metrics"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let wanted =
            config.options().extensions.get::<Settings>().is_none_or(|settings| settings.metrics);
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        if !wanted {
            return Ok(Transformed::no(plan));
        }
        let question = match counting(aggregate) {
            Some(question) => Some(question),
            None => question(aggregate)?,
        };
        match question {
            Some(question) => {
                let node = MetricsNode::new(question, Arc::clone(&aggregate.schema));
                let extension = Extension { node: Arc::new(node) };
                Ok(Transformed::yes(LogicalPlan::Extension(extension)))
            }
            None => Ok(Transformed::no(plan)),
        }
    }
}

/// The question that has the same answer as `aggregate`, if metrics can answer it.
fn question(aggregate: &Aggregate) -> Result<Option<Question>> {
    let Some((scan, meaning)) = scan_below(&aggregate.input)? else { return Ok(None) };
    let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
    let Some(table) = provider.downcast_ref::<Table>() else { return Ok(None) };
    let view = table.view();
    let schema = view.schema();
    let conditions = Conditions::of(&scan.filters, schema);
    if !conditions.exact || !conditions.values.is_empty() || scan.fetch.is_some() {
        return Ok(None);
    }
    let mut groups = Vec::with_capacity(aggregate.group_expr.len());
    for expr in &aggregate.group_expr {
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
    let mut measures = Vec::with_capacity(aggregate.aggr_expr.len());
    for expr in &aggregate.aggr_expr {
        match Measure::of(&replace_columns(expr, &meaning)?, schema) {
            Some(measure) => measures.push(measure),
            None => return Ok(None),
        }
    }
    Ok(Some(Question { view: Arc::clone(view), conditions, groups, measures, counted: None }))
}

/// The question that has the same answer as `aggregate`, if that counts the values of a tag among the groups below it, as
/// `count(DISTINCT tag)` does once DataFusion has taken it apart.
fn counting(aggregate: &Aggregate) -> Option<Question> {
    let LogicalPlan::Extension(Extension { node }) = aggregate.input.as_ref() else { return None };
    let below: &MetricsNode = node.as_any().downcast_ref()?;
    let columns = below.schema();
    let question = below.question();
    let place = |expr: &Expr| match expr {
        Expr::Column(column) => columns.maybe_index_of_column(column),
        _ => None,
    };
    let places: Vec<usize> = aggregate.group_expr.iter().map(place).collect::<Option<_>>()?;
    let mut counted = aggregate.aggr_expr.iter().map(|expr| place(counted(expr)?));
    let tag_place = counted.next()??;
    let mut others: Vec<usize> = places.iter().copied().chain([tag_place]).collect();
    others.sort_unstable();
    let is_whole = question.measures.is_empty()
        && question.counted.is_none()
        && others.iter().copied().eq(0..question.groups.len())
        && question.groups.iter().all(|group| matches!(group, Group::Tags(_)))
        && counted.all(|place| place == Some(tag_place));
    let Some(Group::Tags(expr)) = question.groups.get(tag_place) else { return None };
    let tag = bare_tag(expr, &question.view).filter(|_| is_whole)?;
    let groups = places.iter().map(|place| question.groups[*place].clone()).collect();
    Some(Question { groups, counted: Some(tag), ..question.clone() })
}

/// What an expression counts, if it does nothing else.
fn counted(expr: &Expr) -> Option<&Expr> {
    let call = match expr {
        Expr::Alias(alias) => return counted(&alias.expr),
        Expr::AggregateFunction(call) if call.func.name() == "count" => call,
        _ => return None,
    };
    let params = &call.params;
    let is_plain = !params.distinct
        && params.filter.is_none()
        && params.order_by.is_empty()
        && params.null_treatment.is_none();
    params.args.first().filter(|_| is_plain && params.args.len() == 1)
}

/// What each column of a plan is in terms of the columns of the scan below it.
pub(super) type Meaning = HashMap<Column, Expr>;

/// The scan below projections and renamings, if nothing else lies between.
pub(super) fn scan_below(plan: &LogicalPlan) -> Result<Option<(&TableScan, Meaning)>> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let columns = scan.projected_schema.columns();
            let meaning =
                columns.into_iter().map(|column| (column.clone(), Expr::Column(column))).collect();
            Ok(Some((scan, meaning)))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((scan, below)) = scan_below(&alias.input)? else { return Ok(None) };
            let inner = alias.input.schema().columns();
            let mut meaning = Meaning::new();
            for (outer, inner) in alias.schema.columns().into_iter().zip(inner) {
                let Some(expr) = below.get(&inner) else { return Ok(None) };
                meaning.insert(outer, expr.clone());
            }
            Ok(Some((scan, meaning)))
        }
        LogicalPlan::Projection(projection) => {
            let Some((scan, below)) = scan_below(&projection.input)? else { return Ok(None) };
            let mut meaning = Meaning::new();
            for (outer, expr) in projection.schema.columns().into_iter().zip(&projection.expr) {
                if expr.is_volatile() {
                    return Ok(None);
                }
                meaning.insert(outer, replace_columns(&expr.clone().unalias(), &below)?);
            }
            Ok(Some((scan, meaning)))
        }
        _ => Ok(None),
    }
}

pub(super) fn replace_columns(expr: &Expr, meaning: &Meaning) -> Result<Expr> {
    let replaced = expr.clone().transform(|node| match &node {
        Expr::Column(column) => match meaning.get(column) {
            Some(expr) => Ok(Transformed::yes(expr.clone())),
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(replaced.data)
}
