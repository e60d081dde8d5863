//! The steps from a statement to its plan.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::execution::context::{SessionContext, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use futures::future::BoxFuture;

/// The logical plan of a statement, before analysis.
///
/// # Errors
/// As [`SessionState::statement_to_plan`].
pub fn statement_to_plan(
    state: &SessionState,
    statement: Statement,
) -> BoxFuture<'_, Result<LogicalPlan>> {
    Box::pin(state.statement_to_plan(statement))
}

/// The physical plan of a logical one, which is analyzed and optimized.
///
/// # Errors
/// As [`SessionState::create_physical_plan`].
pub fn create_physical_plan<'a>(
    state: &'a SessionState,
    plan: &'a LogicalPlan,
) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
    Box::pin(state.create_physical_plan(plan))
}

/// Does what a plan says that gives no rows, such as `SET`.
///
/// # Errors
/// As [`SessionContext::execute_logical_plan`].
pub fn execute_logical_plan(
    context: &SessionContext,
    plan: LogicalPlan,
) -> BoxFuture<'_, Result<DataFrame>> {
    Box::pin(context.execute_logical_plan(plan))
}
