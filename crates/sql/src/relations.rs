//! Functions in the place of a table, such as `generate_series(1, 9)` and `rows('plant')`.
//!
//! DataFusion gives all calls of such a function one name and takes scans of the same name for the same scan, so that
//! of two subqueries over different calls the second would get the answer of the first. Here the arguments belong to the
//! name.

use datafusion::common::{DFSchema, ScalarValue, TableReference, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{FunctionArg, FunctionArgExpr, TableFactor};

use crate::amend::after_coercion;
use crate::functions::bounded::check_direction;

/// Plans calls of functions in the place of a table.
#[derive(Debug)]
pub(crate) struct NamedCalls;

impl RelationPlanner for NamedCalls {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (name, args, alias) = match relation {
            TableFactor::Table { name, args: Some(args), alias, .. } => (name, args.args, alias),
            TableFactor::Function { name, args, alias, .. } => (name, args, alias),
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        let function = context.object_name_to_table_reference(name)?.table().to_owned();
        let texts: Vec<String> = args.iter().map(ToString::to_string).collect();
        let mut exprs = Vec::with_capacity(args.len());
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                    let schema = DFSchema::empty();
                    let expr = context.sql_expr_to_logical_expr(expr, &schema)?;
                    let expr = after_coercion(expr, &schema)?.data;
                    check_step(&expr)?;
                    exprs.push(expr);
                }
                other => return plan_err!("{function} has no argument {other}"),
            }
        }
        let source = context.context_provider().get_table_function_source(&function, exprs)?;
        let name = TableReference::bare(format!("{function}({})", texts.join(", ")));
        let plan = LogicalPlanBuilder::scan(name, source, None)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// A series whose step goes forward and back may never end.
fn check_step(expr: &Expr) -> Result<()> {
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(step)), _) => {
            check_direction([step.months.into(), step.days.into(), step.nanoseconds])
        }
        _ => Ok(()),
    }
}
