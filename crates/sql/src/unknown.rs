//! A node that tells less of its rows than its input does.

use std::sync::Arc;

use datafusion::common::Constraints;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalSortExpr,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, PlanProperties};

use crate::arrange::ASCENDING;
use crate::passing::{PassesRows, passes_rows_on};

/// What is no longer known of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forget {
    /// Nothing; but what comes above is sorted there, and not below. It goes when sorts are settled.
    Nothing,
    /// That something is constant in them, which is told as their order instead.
    Constants,
    /// What a filter, from which they come, has made of its condition.
    Condition,
    /// That no two of them have the same values of some columns.
    Unique,
    /// Their order.
    Order,
    /// All their orders but this one, as far as they have it.
    OtherOrders(LexOrdering),
    /// Their order, and what is constant or equal in them.
    Values,
    /// All of that, and which of them are in which partition.
    Everything,
}

/// The rows of its input, of which less is known.
#[derive(Debug)]
pub(crate) struct Unknown {
    input: Arc<dyn ExecutionPlan>,
    forget: Forget,
    properties: Arc<PlanProperties>,
}

impl Unknown {
    /// The rows of which nothing is forgotten.
    pub(crate) fn of_nothing(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        (self.forget == Forget::Nothing).then_some(&self.input)
    }

    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, forget: Forget) -> Self {
        let partitioning = match (&forget, input.output_partitioning()) {
            (Forget::Everything, known) => {
                Partitioning::UnknownPartitioning(known.partition_count())
            }
            (_, known) => known.clone(),
        };
        let known = input.equivalence_properties();
        let equivalence = match &forget {
            Forget::Nothing => known.clone(),
            Forget::Constants => EquivalenceProperties::new_with_orderings(
                input.schema(),
                orders_with_constants(known),
            ),
            Forget::Condition => match input.children()[..] {
                [before] if before.schema() == input.schema() => {
                    before.equivalence_properties().clone()
                }
                _ => EquivalenceProperties::new(input.schema()),
            },
            Forget::Unique => known.clone().with_constraints(Constraints::default()),
            Forget::Order => {
                let mut equivalence = known.clone();
                equivalence.clear_orderings();
                equivalence
            }
            Forget::OtherOrders(order) => {
                let mut equivalence = known.clone();
                equivalence.clear_orderings();
                // What comes from another input may not have it any more.
                let kept = known.extract_common_sort_prefix(order.clone());
                equivalence.add_orderings(kept.map(|(kept, _)| kept));
                equivalence
            }
            Forget::Values | Forget::Everything => EquivalenceProperties::new(input.schema()),
        };
        let properties = PlanProperties::new(
            equivalence,
            partitioning,
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, forget, properties: Arc::new(properties) }
    }
}

/// The orders of rows in which some expressions are constant: by each of these alone, upwards and downwards, and those known.
/// Whatever else is lost of the rows, an order by one column stays as long as that column.
fn orders_with_constants(known: &EquivalenceProperties) -> Vec<Vec<PhysicalSortExpr>> {
    let constants = known.constants().into_iter();
    let alone = constants.flat_map(|constant| {
        [ASCENDING, !ASCENDING]
            .map(|way| vec![PhysicalSortExpr::new(Arc::clone(&constant.expr), way)])
    });
    // What is constant stands nowhere else: DataFusion sees no order at all where two have the same columns in another sequence.
    let others = known.oeq_class().iter().map(|order| {
        let changes = |key: &&PhysicalSortExpr| known.is_expr_constant(&key.expr).is_none();
        order.iter().filter(changes).cloned().collect()
    });
    others.chain(alone).filter(|order: &Vec<_>| !order.is_empty()).collect()
}

passes_rows_on!(Unknown);

impl PassesRows for Unknown {
    const NAME: &'static str = "Unknown";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input, self.forget.clone())
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn told(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn hides_values(&self) -> bool {
        self.forget == Forget::Condition
    }
}
