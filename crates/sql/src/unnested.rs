//! Keys of groups and numbers of rows below `unnest`.
//!
//! A row for each element of a list repeats what stands beside the list. DataFusion goes on to take for unique what was so below, as
//! the keys of groups and `row_number()` are, and leaves out what needs to know better: keys of sorts behind a unique one, a DISTINCT,
//! keys of groups, joins. Here the columns below `unnest` come out of a function that nobody looks into, and are not known to be unique.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, FunctionalDependencies};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::{
    TableFactor, TableSample, TableSampleKind, TableSampleModifier,
};

use crate::tree::{Tree, transform_up_with_subqueries};

/// Puts the function between `unnest` and what may have unique columns.
#[derive(Debug)]
pub(crate) struct RepeatedKeys;

impl AnalyzerRule for RepeatedKeys {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let function = Arc::new(ScalarUDF::from(Repeated::new()));
        let repeated = transform_up_with_subqueries(plan, &mut |plan| {
            let LogicalPlan::Unnest(unnest) = &plan else { return Ok(Transformed::no(plan)) };
            if !may_be_unique(&unnest.input)? {
                return Ok(Transformed::no(plan));
            }
            let columns = unnest.input.schema().iter().map(|(qualifier, field)| {
                let column = Expr::Column(Column::from((qualifier, field)));
                function.call(vec![column]).alias_qualified(qualifier.cloned(), field.name())
            });
            let columns = Projection::try_new(columns.collect(), Arc::clone(&unnest.input))?;
            let anew =
                plan.with_new_exprs(plan.expressions(), vec![LogicalPlan::Projection(columns)]);
            anew.map(Transformed::yes)
        });
        let repeated = repeated?;
        if !repeated.transformed {
            return Ok(repeated.data);
        }
        // What stands above has been told of unique columns before.
        let plan = transform_up_with_subqueries(repeated.data, &mut |plan| {
            plan.recompute_schema().map(Transformed::yes)
        });
        plan.map(|plan| plan.data)
    }

    fn name(&self) -> &str {
        "tidefall_repeated_keys"
    }
}

/// Whether something below may make columns unique.
fn may_be_unique(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        Ok(matches!(
            node,
            LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) | LogicalPlan::Window(_)
        ))
    })
}

/// A function that answers with what it is given.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Repeated {
    signature: Signature,
}

impl Repeated {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Repeated {
    fn name(&self) -> &str {
        "repeated"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args[0].clone())
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        Ok(inputs[0].sort_properties)
    }

    fn preserves_lex_ordering(&self, _: &[ExprProperties]) -> Result<bool> {
        Ok(true)
    }
}

/// Subqueries and tables of `WITH` over `unnest`, whose columns nobody takes for determined by others: a `GROUP BY` takes what is
/// determined by its keys for further keys as it is planned, before any rule.
#[derive(Debug)]
pub(crate) struct UnnestedRelations;

impl RelationPlanner for UnnestedRelations {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (alias, sample) = match &mut relation {
            TableFactor::Derived { alias, sample, .. }
            | TableFactor::Table { alias, sample, .. } => (alias, sample),
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        // Statements with a sample have been refused (`clauses.rs`): it says that this one comes from here.
        if sample.replace(passed()).is_some() {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let alias = alias.take();
        let mut plan = context.plan(relation)?;
        if plan.exists(|node| Ok(matches!(node, LogicalPlan::Unnest(_)) && determines(node)))? {
            plan = independent(plan)?;
        }
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// The mark of a relation that DataFusion is to plan.
fn passed() -> TableSampleKind {
    TableSampleKind::AfterTableAlias(Box::new(TableSample {
        modifier: TableSampleModifier::Sample,
        name: None,
        quantity: None,
        seed: None,
        bucket: None,
        offset: None,
    }))
}

/// A plan in which `unnest` leaves no column known to determine others. What is so above it stays so.
fn independent(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up(|plan| match plan {
        LogicalPlan::Unnest(mut unnest) => {
            let schema = unnest.schema.as_ref().clone();
            let schema = schema.with_functional_dependencies(FunctionalDependencies::empty())?;
            unnest.schema = Arc::new(schema);
            Ok(Transformed::yes(LogicalPlan::Unnest(unnest)))
        }
        other if determines(&other) => other.recompute_schema().map(Transformed::yes),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}

/// Whether some columns are known to determine others.
fn determines(plan: &LogicalPlan) -> bool {
    !plan.schema().functional_dependencies().is_empty()
}
