//! Plan nodes that stay as DataFusion has them, but are run in another way.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;

/// A node that is planned as another one; [`runs_otherwise`] makes an [`ExecutionPlan`] of it.
pub(crate) trait RunsOtherwise: Debug + Send + Sync + Sized + 'static {
    /// What plans call it.
    const NAME: &'static str;

    /// What it is planned as.
    type Inner: ExecutionPlan + ?Sized;

    /// The node that it is planned as.
    fn inner(&self) -> &Arc<Self::Inner>;

    /// The same for another node of this kind, which has other inputs.
    fn over(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan>;

    /// The rows of a partition.
    fn run(&self, partition: usize, context: Arc<TaskContext>)
    -> Result<SendableRecordBatchStream>;

    /// The first rows, so many, are all that it gives.
    fn kept(&self) -> Option<usize> {
        self.inner().fetch()
    }

    /// What was measured while it ran.
    fn measured(&self) -> Option<MetricsSet> {
        None
    }
}

/// Makes a plan node of one that [`RunsOtherwise`].
macro_rules! runs_otherwise {
    ($node:ty) => {
        const _: () = {
            use std::sync::Arc;

            use datafusion::common::Statistics;
            use datafusion::common::config::ConfigOptions;
            use datafusion::common::tree_node::TreeNodeRecursion;
            use datafusion::error::Result;
            use datafusion::execution::{SendableRecordBatchStream, TaskContext};
            use datafusion::physical_expr::PhysicalExpr;
            use datafusion::physical_plan::execution_plan::{
                CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
            };
            use datafusion::physical_plan::filter_pushdown::{
                FilterDescription, FilterPushdownPhase,
            };
            use datafusion::physical_plan::metrics::MetricsSet;
            use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
            use datafusion::physical_plan::{ExecutionPlan, PlanProperties};

            use $crate::otherwise::RunsOtherwise;

            impl ExecutionPlan for $node {
                fn name(&self) -> &str {
                    Self::NAME
                }

                fn properties(&self) -> &Arc<PlanProperties> {
                    self.inner().properties()
                }

                fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
                    self.inner().children()
                }

                fn maintains_input_order(&self) -> Vec<bool> {
                    self.inner().maintains_input_order()
                }

                fn benefits_from_input_partitioning(&self) -> Vec<bool> {
                    self.inner().benefits_from_input_partitioning()
                }

                fn apply_expressions(
                    &self,
                    f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
                ) -> Result<TreeNodeRecursion> {
                    self.inner().apply_expressions(f)
                }

                fn gather_filters_for_pushdown(
                    &self,
                    phase: FilterPushdownPhase,
                    filters: Vec<Arc<dyn PhysicalExpr>>,
                    config: &ConfigOptions,
                ) -> Result<FilterDescription> {
                    if self.kept().is_some() {
                        // Which rows are the first ones depends on all of them.
                        return Ok(FilterDescription::all_unsupported(&filters, &self.children()));
                    }
                    self.inner().gather_filters_for_pushdown(phase, filters, config)
                }

                fn replace_children(
                    self: Arc<Self>,
                    children: Vec<Arc<dyn ExecutionPlan>>,
                    options: ReplaceChildrenOptions,
                ) -> Result<Arc<dyn ExecutionPlan>> {
                    let inner = Arc::clone(self.inner()).replace_children(children, options)?;
                    Ok(self.over(inner))
                }

                fn with_new_children(
                    self: Arc<Self>,
                    children: Vec<Arc<dyn ExecutionPlan>>,
                ) -> Result<Arc<dyn ExecutionPlan>> {
                    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                    self.replace_children(children, anew)
                }

                fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
                    self.inner().child_stats_requests(partition)
                }

                fn statistics_from_inputs(
                    &self,
                    inputs: &[Arc<Statistics>],
                    args: &StatisticsArgs,
                ) -> Result<Arc<Statistics>> {
                    self.inner().statistics_from_inputs(inputs, args)
                }

                fn fetch(&self) -> Option<usize> {
                    self.kept()
                }

                fn cardinality_effect(&self) -> CardinalityEffect {
                    match self.kept() {
                        Some(_) => CardinalityEffect::LowerEqual,
                        None => CardinalityEffect::Equal,
                    }
                }

                fn execute(
                    &self,
                    partition: usize,
                    context: Arc<TaskContext>,
                ) -> Result<SendableRecordBatchStream> {
                    self.run(partition, context)
                }

                fn metrics(&self) -> Option<MetricsSet> {
                    self.measured()
                }
            }
        };
    };
}
pub(crate) use runs_otherwise;
