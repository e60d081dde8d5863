//! The join in the logical plan, and its way into the physical one.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::Session;
use datafusion::common::{DFSchemaRef, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    Expr, JoinType, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
    build_join_schema,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::cast;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use tidefall_types::sql_type_name;

use super::Nearest;
use super::exec::AsOfExec;

/// Each row of `left` with the row of `right` that has equal keys and is nearest in time on one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AsOfNode {
    pub(super) left: LogicalPlan,
    pub(super) right: LogicalPlan,
    /// Expressions over the left and the right side, of the same type.
    pub(super) keys: Vec<(Expr, Expr)>,
    pub(super) time: (Expr, Expr),
    pub(super) nearest: Nearest,
    schema: DFSchemaRef,
}

impl AsOfNode {
    pub(super) fn new(
        left: LogicalPlan,
        right: LogicalPlan,
        keys: Vec<(Expr, Expr)>,
        time: (Expr, Expr),
        nearest: Nearest,
    ) -> Result<Self> {
        let schema = build_join_schema(left.schema(), right.schema(), &JoinType::Left)?;
        Ok(Self { left, right, keys, time, nearest, schema: Arc::new(schema) })
    }
}

impl PartialOrd for AsOfNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for AsOfNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.left.hash(state);
        self.right.hash(state);
        self.keys.hash(state);
        self.time.hash(state);
        self.nearest.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for AsOfNode {
    fn name(&self) -> &str {
        "AsOfJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let pairs = self.keys.iter().chain([&self.time]);
        pairs.flat_map(|(left, right)| [left.clone(), right.clone()]).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsOfJoin: {} {} {}", self.time.0, self.nearest.operator(), self.time.1)?;
        self.keys.iter().try_for_each(|(left, right)| write!(f, ", {left} = {right}"))
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        let mut pairs = Vec::with_capacity(self.keys.len() + 1);
        let mut exprs = exprs.into_iter();
        while let (Some(left), Some(right)) = (exprs.next(), exprs.next()) {
            pairs.push((left, right));
        }
        let (Some(time), Some(right), Some(left)) = (pairs.pop(), inputs.pop(), inputs.pop())
        else {
            return plan_err!("an as-of join with another number of expressions or inputs");
        };
        Self::new(left, right, pairs, time, self.nearest)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let left_columns = self.left.schema().fields().len();
        let (left, right): (Vec<usize>, Vec<usize>) =
            output_columns.iter().partition(|column| **column < left_columns);
        Some(vec![left, right.into_iter().map(|column| column - left_columns).collect()])
    }
}

/// Plans the join.
pub(crate) struct AsOfPlanner;

#[async_trait]
impl ExtensionPlanner for AsOfPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<AsOfNode>() else { return Ok(None) };
        let [left, right] = physical_inputs else {
            return plan_err!("an as-of join with another number of inputs");
        };
        let physical = |(on_left, on_right): &(Expr, Expr)| {
            let (of_left, of_right) = (node.left.schema(), node.right.schema());
            let on_left = planner.create_physical_expr(on_left, of_left, session, planning_ctx)?;
            let on_right =
                planner.create_physical_expr(on_right, of_right, session, planning_ctx)?;
            of_one_type((on_left, &left.schema()), (on_right, &right.schema()))
        };
        let keys = node.keys.iter().map(physical).collect::<Result<_>>()?;
        let time = physical(&node.time)?;
        let inputs = [Arc::clone(left), Arc::clone(right)];
        Ok(Some(Arc::new(AsOfExec::try_new(inputs, keys, time, node.nearest)?)))
    }
}

/// What is compared of both sides, of one type: that of a column may have changed since the join was made, as where a `UNION` brings
/// its parts to one.
fn of_one_type(
    (on_left, left): (Arc<dyn PhysicalExpr>, &Schema),
    (on_right, right): (Arc<dyn PhysicalExpr>, &Schema),
) -> Result<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)> {
    let types = (on_left.data_type(left)?, on_right.data_type(right)?);
    match comparison_coercion(&types.0, &types.1) {
        _ if types.0 == types.1 => Ok((on_left, on_right)),
        Some(ty) => Ok((cast(on_left, left, ty.clone())?, cast(on_right, right, ty)?)),
        None => plan_err!(
            "{} cannot be compared with {} in an ASOF JOIN",
            sql_type_name(&types.0),
            sql_type_name(&types.1)
        ),
    }
}
