//! Long values that a query repeats: joins, `unnest` and scalar subqueries copy a list or a text into each row.
//!
//! DataFusion counts rows, and eight thousand rows that repeat a list of a megabyte are more memory than there is. How
//! long values are that a query computes shows only when they come. So:
//!
//! - A join is given the rows of its build side once all of them are there, and gathers batches of as many rows as their
//!   length allows (`held.rs`). It repeats a build row once for each row of a probe batch: these are cut, too (`cut.rs`).
//! - Rows of the probe side come while the join runs already. Where they may be long, it gathers few rows from the
//!   beginning; so do the nodes above that gather rows.
//! - `unnest` and whatever puts a scalar subquery into rows are given batches of as many rows as they may make more of.
//!
//! What is too long even so is an error.

mod cut;
mod held;
mod widths;

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use self::cut::{Cut, CutExec};
use self::held::{HeldExec, SizedExec};
use crate::bounds::with_config;
use crate::functions::bounded::grows_beyond;
use crate::tree::Tree;

pub(crate) use self::widths::Widths;

/// Bytes that the repeated values of a batch should have.
pub(crate) const BATCH_BYTES: u64 = 16 << 20;

/// Bytes that the repeated values of a batch have at most.
const BATCH_BYTES_MAX: u64 = 256 << 20;

/// Rows of batches that are gathered where nobody knows how long rows will be.
const ROWS_FEW: usize = 32;

/// Keeps what is repeated within bounds.
#[derive(Debug)]
pub(crate) struct BoundedRepeats;

impl PhysicalOptimizerRule for BoundedRepeats {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let bounded = plan.transform_up(|node| {
            with_short_scalars(node)?.transform_data(|node| {
                Ok(match node.name() {
                    "HashJoinExec" | "NestedLoopJoinExec" | "CrossJoinExec" => bounded_join(node)?,
                    "UnnestExec" => bounded_unnest(node)?,
                    "FilterExec" | "RepartitionExec" | "SortPreservingMergeExec" => {
                        bounded_gathering(node)?
                    }
                    _ => Transformed::no(node),
                })
            })
        });
        bounded.map(|bounded| bounded.data)
    }

    fn name(&self) -> &str {
        "tidefall_bounded_repeats"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn children(node: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    node.children().into_iter().cloned().collect()
}

fn with_children(
    node: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    node.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

fn cut(input: Arc<dyn ExecutionPlan>, cut: Cut) -> Arc<dyn ExecutionPlan> {
    Arc::new(CutExec::new(input, cut))
}

/// A join that gathers as many rows as are not too long.
fn bounded_join(join: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Ok([build, probe]) = <[_; 2]>::try_from(children(&join)) else {
        return Ok(Transformed::no(join));
    };
    // It takes the columns of the probe side as they are.
    let is_cross = join.name() == "CrossJoinExec";
    let is_repeated = !is_cross && may_be_long(&probe)?;
    if !is_repeated && !has_lengths(&build.schema()) {
        return Ok(Transformed::no(join));
    }
    let build = Arc::new(HeldExec::new(build));
    let probe = cut(probe, Cut::Probe { is_repeated });
    let input = with_children(join, vec![build, probe])?;
    Ok(Transformed::yes(Arc::new(SizedExec::new(input, rows_if(is_repeated))) as _))
}

fn rows_if(is_few: bool) -> usize {
    if is_few { ROWS_FEW } else { usize::MAX }
}

fn bounded_unnest(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(unnest) = node.downcast_ref::<UnnestExec>() else { return Ok(Transformed::no(node)) };
    let lists = unnest.list_column_indices();
    let mut lists: Vec<(usize, usize)> =
        lists.iter().map(|list| (list.index_in_input_schema, list.depth)).collect();
    lists.sort_unstable();
    let is_list = |at| lists.iter().any(|(list, _)| *list == at);
    let schema = unnest.input().schema();
    let fields = schema.fields().iter().enumerate();
    let others = fields.filter(|(at, field)| !is_list(*at) && has_length(field.data_type()));
    let others: Vec<usize> = others.map(|(at, _)| at).collect();
    if lists.is_empty() || others.is_empty() {
        return Ok(Transformed::no(node));
    }
    let input = cut(Arc::clone(unnest.input()), Cut::Unnest { lists, others });
    Ok(Transformed::yes(with_children(node, vec![input])?))
}

/// What gathers rows of a batch, above something that repeats long values.
fn bounded_gathering(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Ok([input]) = <[_; 1]>::try_from(children(&node)) else { return Ok(Transformed::no(node)) };
    let is_repeated = input.exists(|below| {
        Ok(below.is::<SizedExec>() || below.is::<CutExec>() || below.name() == "AsOfJoin")
    })?;
    if !is_repeated || !may_be_long(&input)? {
        return Ok(Transformed::no(node));
    }
    let node = with_children(node, vec![cut(input, Cut::Gathered)])?;
    let few: Arc<dyn ExecutionPlan> = match node.downcast_ref::<FilterExec>() {
        Some(filter) => Arc::new(filter.with_batch_size(ROWS_FEW.min(filter.batch_size()))?),
        None => Arc::new(SizedExec::new(node, ROWS_FEW)),
    };
    Ok(Transformed::yes(few))
}

/// A node that puts scalar subqueries with long values into few rows at a time.
fn with_short_scalars(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let mut scalars: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    node.apply_expressions(&mut |expr| {
        expr.apply(|part| {
            if part.is::<ScalarSubqueryExpr>()
                && has_length(part.return_field(&Schema::empty())?.data_type())
            {
                scalars.push(Arc::clone(part));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    let children = children(&node);
    if scalars.is_empty() || children.len() != 1 {
        return Ok(Transformed::no(node));
    }
    let children = children.into_iter().map(|input| cut(input, Cut::Scalars(scalars.clone())));
    let children = children.collect();
    with_children(node, children).map(Transformed::yes)
}

/// Whether the values of a type may be of any length. Dictionaries are repeated by their keys.
fn has_length(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView => true,
        other => other.is_nested(),
    }
}

fn has_lengths(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| has_length(field.data_type()))
}

/// Whether rows of a plan may be long although batches have fewer rows where stored values are: lists, and texts of
/// functions that make long ones.
fn may_be_long(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let schema = plan.schema();
    if !has_lengths(&schema) {
        return Ok(false);
    }
    let is_long = |data_type: &DataType| {
        data_type.is_nested() || matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary)
    };
    if schema.fields().iter().any(|field| is_long(field.data_type())) {
        return Ok(true);
    }
    plan.exists(|node| {
        let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(false) };
        let makes = |expr: &Arc<dyn PhysicalExpr>| {
            expr.exists(|part| {
                let call = part.downcast_ref::<ScalarFunctionExpr>();
                Ok(call.is_some_and(|call| {
                    has_length(call.return_type()) && grows_beyond(call.fun().name())
                }))
            })
        };
        for shown in projection.expr() {
            if makes(&shown.expr)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// The rows that a batch has where nothing is long.
struct UsualRows(usize);

fn usual_rows(context: &TaskContext) -> usize {
    let config = context.session_config();
    config.get_extension::<UsualRows>().map_or(config.batch_size(), |usual| usual.0)
}

/// A context with batches of so many rows.
fn with_rows(context: &Arc<TaskContext>, rows: usize) -> Arc<TaskContext> {
    let config = context.session_config();
    if config.batch_size() == rows {
        return Arc::clone(context);
    }
    let usual = Arc::new(UsualRows(usual_rows(context)));
    with_config(context, config.clone().with_batch_size(rows).with_extension(usual))
}

/// Rows of a batch, if each has so many bytes.
fn rows_of(row_bytes: u64) -> usize {
    usize::try_from(BATCH_BYTES / row_bytes.max(1)).unwrap_or(usize::MAX).max(1)
}

/// How many partitions a join reads its build side in.
fn is_in_parts(build: &Arc<dyn ExecutionPlan>) -> bool {
    build.output_partitioning().partition_count() > 1
}
