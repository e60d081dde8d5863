//! Where block metrics can answer, the plan asks them.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::ask::question;
use super::groups::bare_tag;
use super::merge::MergeNode;
use super::node::MetricsNode;
use super::question::Question;
use super::spec::Group;
use crate::settings::Settings;

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
            None => question(&aggregate.input, &aggregate.group_expr, &aggregate.aggr_expr)?,
        };
        let node = match question {
            Some(question) => {
                let node = MetricsNode::new(question, Arc::clone(&aggregate.schema));
                Extension { node: Arc::new(node) }
            }
            None => match MergeNode::of(aggregate)? {
                Some(node) => Extension { node: Arc::new(node) },
                None => return Ok(Transformed::no(plan)),
            },
        };
        Ok(Transformed::yes(LogicalPlan::Extension(node)))
    }
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
    Some(Question { groups, counted: Some(tag), ..(**question).clone() })
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
