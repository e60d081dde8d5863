//! Plan nodes that give the rows of their one input on as they are.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::common::{Statistics, plan_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};

/// A node that gives rows on; [`passes_rows_on`] makes an [`ExecutionPlan`] of it, through which filters, statistics and
/// the number of rows pass.
pub(crate) trait PassesRows: Debug + Send + Sync + Sized + 'static {
    /// What plans show of it.
    const NAME: &'static str;

    /// Where its rows come from.
    fn input(&self) -> &Arc<dyn ExecutionPlan>;

    /// The same for the rows of another input.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self;

    /// The rows of a partition.
    fn run(&self, partition: usize, context: Arc<TaskContext>)
    -> Result<SendableRecordBatchStream>;

    /// What is told of the order and the partitions of the rows.
    fn told(&self) -> &Arc<PlanProperties> {
        self.input().properties()
    }

    /// Whether the order of the rows is the input's for whoever looks for sorts to leave out.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Whether nothing is told of the values in the rows.
    fn hides_values(&self) -> bool {
        false
    }

    /// The order in which its rows must come, in one partition.
    fn needed_order(&self) -> Option<&LexOrdering> {
        None
    }

    /// The same for the rows of the one that there must be.
    fn over_one(&self, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<Self> {
        match <[_; 1]>::try_from(inputs) {
            Ok([input]) => Ok(self.over(input)),
            Err(inputs) => plan_err!("{} has one input, not {}", Self::NAME, inputs.len()),
        }
    }

    /// What is told of the values and the number of the rows.
    fn statistics(&self, inputs: &[Arc<Statistics>]) -> Arc<Statistics> {
        match inputs {
            [input] if !self.hides_values() => Arc::clone(input),
            inputs => {
                let unknown = Statistics::new_unknown(&self.input().schema());
                let num_rows = match inputs {
                    [input] => input.num_rows,
                    _ => unknown.num_rows,
                };
                Arc::new(Statistics { num_rows, ..unknown })
            }
        }
    }
}

/// Makes a plan node of one that [`PassesRows`].
macro_rules! passes_rows_on {
    ($node:ty) => {
        const _: () = {
            use std::fmt;
            use std::sync::Arc;

            use datafusion::common::Statistics;
            use datafusion::common::config::ConfigOptions;
            use datafusion::common::tree_node::TreeNodeRecursion;
            use datafusion::error::Result;
            use datafusion::execution::{SendableRecordBatchStream, TaskContext};
            use datafusion::physical_expr::{Distribution, OrderingRequirements, PhysicalExpr};
            use datafusion::physical_plan::execution_plan::{
                CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
            };
            use datafusion::physical_plan::filter_pushdown::{
                FilterDescription, FilterPushdownPhase,
            };
            use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
            use datafusion::physical_plan::{
                DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements,
                PlanProperties,
            };

            use $crate::passing::PassesRows;

            impl DisplayAs for $node {
                fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(Self::NAME)
                }
            }

            impl ExecutionPlan for $node {
                fn name(&self) -> &str {
                    Self::NAME
                }

                fn properties(&self) -> &Arc<PlanProperties> {
                    self.told()
                }

                fn maintains_input_order(&self) -> Vec<bool> {
                    vec![self.keeps_order()]
                }

                fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
                    vec![self.needed_order().cloned().map(OrderingRequirements::from)]
                }

                fn input_distribution_requirements(&self) -> InputDistributionRequirements {
                    InputDistributionRequirements::new(vec![match self.needed_order() {
                        Some(_) => Distribution::SinglePartition,
                        None => Distribution::UnspecifiedDistribution,
                    }])
                }

                fn benefits_from_input_partitioning(&self) -> Vec<bool> {
                    vec![false]
                }

                fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
                    vec![self.input()]
                }

                fn apply_expressions(
                    &self,
                    _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
                ) -> Result<TreeNodeRecursion> {
                    Ok(TreeNodeRecursion::Continue)
                }

                fn replace_children(
                    self: Arc<Self>,
                    children: Vec<Arc<dyn ExecutionPlan>>,
                    _: ReplaceChildrenOptions,
                ) -> Result<Arc<dyn ExecutionPlan>> {
                    Ok(Arc::new(self.over_one(children)?))
                }

                fn with_new_children(
                    self: Arc<Self>,
                    children: Vec<Arc<dyn ExecutionPlan>>,
                ) -> Result<Arc<dyn ExecutionPlan>> {
                    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                    self.replace_children(children, anew)
                }

                fn execute(
                    &self,
                    partition: usize,
                    context: Arc<TaskContext>,
                ) -> Result<SendableRecordBatchStream> {
                    self.run(partition, context)
                }

                fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
                    vec![ChildStats::At(partition)]
                }

                fn statistics_from_inputs(
                    &self,
                    inputs: &[Arc<Statistics>],
                    _: &StatisticsArgs,
                ) -> Result<Arc<Statistics>> {
                    Ok(self.statistics(inputs))
                }

                fn cardinality_effect(&self) -> CardinalityEffect {
                    CardinalityEffect::Equal
                }

                fn supports_limit_pushdown(&self) -> bool {
                    true
                }

                fn gather_filters_for_pushdown(
                    &self,
                    _: FilterPushdownPhase,
                    filters: Vec<Arc<dyn PhysicalExpr>>,
                    _: &ConfigOptions,
                ) -> Result<FilterDescription> {
                    FilterDescription::from_children(filters, &self.children())
                }
            }
        };
    };
}
pub(crate) use passes_rows_on;
