//! What plan nodes have in common that give the rows of their one input on as they are.

/// What such a node tells of its rows.
pub(crate) trait PassesRows {
    /// Whether nothing is told of the values in them.
    fn hides_values(&self) -> bool {
        false
    }
}

/// The methods of `ExecutionPlan` by which filters, statistics and the number of rows pass through a node whose input
/// is in its field `input`.
macro_rules! passes_rows_on {
    () => {
        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(
                &std::sync::Arc<dyn datafusion::physical_expr::PhysicalExpr>,
            ) -> datafusion::error::Result<
                datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> datafusion::error::Result<datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn ExecutionPlan>>,
        ) -> datafusion::error::Result<std::sync::Arc<dyn ExecutionPlan>> {
            use datafusion::physical_plan::execution_plan as plan;
            let anew = plan::ReplaceChildrenOptions::new(plan::ChildrenPropertiesMode::Recompute);
            self.replace_children(children, anew)
        }

        fn child_stats_requests(
            &self,
            partition: Option<usize>,
        ) -> Vec<datafusion::physical_plan::statistics::ChildStats> {
            vec![datafusion::physical_plan::statistics::ChildStats::At(partition)]
        }

        fn statistics_from_inputs(
            &self,
            inputs: &[std::sync::Arc<datafusion::common::Statistics>],
            _: &datafusion::physical_plan::statistics::StatisticsArgs,
        ) -> datafusion::error::Result<std::sync::Arc<datafusion::common::Statistics>> {
            use datafusion::common::Statistics;
            match inputs {
                [input] if $crate::passing::PassesRows::hides_values(self) => {
                    let unknown = Statistics::new_unknown(&self.schema());
                    Ok(std::sync::Arc::new(Statistics { num_rows: input.num_rows, ..unknown }))
                }
                [input] => Ok(std::sync::Arc::clone(input)),
                _ => Ok(std::sync::Arc::new(Statistics::new_unknown(&self.schema()))),
            }
        }

        fn cardinality_effect(&self) -> datafusion::physical_plan::execution_plan::CardinalityEffect {
            datafusion::physical_plan::execution_plan::CardinalityEffect::Equal
        }

        fn gather_filters_for_pushdown(
            &self,
            _: datafusion::physical_plan::filter_pushdown::FilterPushdownPhase,
            filters: Vec<std::sync::Arc<dyn datafusion::physical_expr::PhysicalExpr>>,
            _: &datafusion::common::config::ConfigOptions,
        ) -> datafusion::error::Result<
            datafusion::physical_plan::filter_pushdown::FilterDescription,
        > {
            use datafusion::physical_plan::filter_pushdown::FilterDescription;
            FilterDescription::from_children(filters, &self.children())
        }
    };
}
pub(crate) use passes_rows_on;
