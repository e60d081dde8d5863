//! The plan node that makes an as-of join.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::plan_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, Partitioning,
    PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};

use super::Nearest;
use super::merge::Merge;

/// Expressions over the left and the right side.
type Pair = (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>);

/// How both sides are ordered; as tables deliver their rows.
const ORDER: SortOptions = SortOptions { descending: false, nulls_first: false };

/// Joins each row of the left side with the nearest of the right one.
#[derive(Debug, Clone)]
pub(crate) struct AsOfExec {
    inputs: [Arc<dyn ExecutionPlan>; 2],
    keys: Vec<Pair>,
    time: Pair,
    nearest: Nearest,
    properties: Arc<PlanProperties>,
}

impl AsOfExec {
    pub(super) fn try_new(
        inputs: [Arc<dyn ExecutionPlan>; 2],
        keys: Vec<Pair>,
        time: Pair,
        nearest: Nearest,
    ) -> Result<Self> {
        let schema = join_schema(&inputs[0].schema(), &inputs[1].schema());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self { inputs, keys, time, nearest, properties: Arc::new(properties) })
    }

    fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.keys.iter().chain([&self.time])
    }

    fn ordering(
        &self,
        side: impl Fn(&Pair) -> Arc<dyn PhysicalExpr>,
    ) -> Option<OrderingRequirements> {
        let exprs = self.pairs().map(|pair| PhysicalSortExpr::new(side(pair), ORDER));
        LexOrdering::new(exprs).map(OrderingRequirements::from)
    }
}

/// All columns of the left side, then those of the right one, which may be null.
fn join_schema(left: &Schema, right: &Schema) -> SchemaRef {
    let right = right.fields().iter().map(|field| Field::clone(field).with_nullable(true));
    let fields = left.fields().iter().map(|field| Field::clone(field)).chain(right);
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

impl DisplayAs for AsOfExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsOfJoin: {} {} {}", self.time.0, self.nearest.operator(), self.time.1)?;
        self.keys.iter().try_for_each(|(left, right)| write!(f, ", {left} = {right}"))
    }
}

impl ExecutionPlan for AsOfExec {
    fn name(&self) -> &str {
        "AsOfJoin"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition; 2])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let left = self.ordering(|pair| Arc::clone(&pair.0));
        vec![left, self.ordering(|pair| Arc::clone(&pair.1))]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expr in self.pairs().flat_map(|(left, right)| [left, right]) {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok(inputs) = children.try_into() else {
            return plan_err!("an as-of join has two inputs");
        };
        let (keys, time) = (self.keys.clone(), self.time.clone());
        Ok(Arc::new(Self::try_new(inputs, keys, time, self.nearest)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let [left, right] = &self.inputs;
        let (left, right) =
            (left.execute(partition, Arc::clone(&context))?, right.execute(partition, context)?);
        let side = |get: fn(&Pair) -> &Arc<dyn PhysicalExpr>| {
            self.pairs().map(|pair| Arc::clone(get(pair))).collect::<Vec<_>>()
        };
        let exprs = (side(|pair| &pair.0), side(|pair| &pair.1));
        let merge = Merge::try_new((left, right), exprs, self.nearest, self.schema(), ORDER)?;
        let batches = futures::stream::try_unfold(merge, async |mut merge| {
            Ok(merge.next_batch().await?.map(|batch| (batch, merge)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
