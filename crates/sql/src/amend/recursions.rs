//! `WITH RECURSIVE` whose first rows have other types now.
//!
//! DataFusion casts the rows that come in each step to the types of the first ones, and shows these types to the step. Where the first
//! rows have others, the step is planned anew: without these casts, over the types that there are.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion::logical_expr::logical_plan::RecursiveQuery;
use datafusion::logical_expr::{
    Cast, Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableScan,
};

use tidefall_types::Error;

use crate::error::to_datafusion;
use crate::tree::transform_up_with_subqueries;

/// Whether the columns of both have the same types.
pub(super) fn has_same_types(one: &DFSchemaRef, other: &DFSchemaRef) -> bool {
    let (one, other): (&DFSchema, &DFSchema) = (one, other);
    let (one, other) = (one.fields(), other.fields());
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| one.data_type() == other.data_type())
}

/// A recursive query with another step.
pub(super) fn with_step(
    query: RecursiveQuery,
    step: Arc<LogicalPlan>,
) -> Result<Transformed<LogicalPlan>> {
    let RecursiveQuery { name, static_term, recursive_term: _, is_distinct, schema } = query;
    let first = static_term.schema();
    if has_same_types(&schema, first) && has_same_types(step.schema(), first) {
        let query = RecursiveQuery { name, static_term, recursive_term: step, is_distinct, schema };
        return Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)));
    }
    let step = coerce_plan_expr_for_schema(Arc::unwrap_or_clone(step), first)?;
    let query = RecursiveQuery::try_new(name, static_term, Arc::new(step), is_distinct)?;
    Ok(Transformed::yes(LogicalPlan::RecursiveQuery(query)))
}

/// A step as it was written, over rows of other types than it was planned for.
pub(super) fn anew(written: Arc<LogicalPlan>, query: &RecursiveQuery) -> Result<LogicalPlan> {
    let (name, now) = (&*query.name, query.static_term.schema());
    let step = without_casts(Arc::unwrap_or_clone(written), &query.schema, now)?;
    let table = work_table(name, now);
    let step = transform_up_with_subqueries(step, &mut |node| match node {
        LogicalPlan::TableScan(scan) if reads(&scan, name) => {
            let source = provider_as_source(Arc::clone(&table) as _);
            let scan = LogicalPlanBuilder::scan(scan.table_name, source, None)?.build()?;
            Ok(Transformed::yes(scan))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(step.data)
}

/// The rows of a step without the casts to the types of the first rows. Those that are written have a name (`names.rs`).
fn without_casts(
    step: LogicalPlan,
    before: &DFSchemaRef,
    now: &DFSchemaRef,
) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(Projection { expr, input, .. }) = step else { return Ok(step) };
    let types = before.fields().iter().zip(now.fields());
    let exprs = expr.into_iter().zip(types).map(|(expr, (before, now))| {
        let (expr, name) = match expr {
            Expr::Alias(alias) => (*alias.expr, Some((alias.relation, alias.name))),
            expr => (expr, None),
        };
        let expr = match expr {
            Expr::Cast(Cast { expr, field: to }) if to.data_type() == before.data_type() => *expr,
            // There the cast is within, and no other than one that is written.
            Expr::ScalarSubquery(_) if before.data_type() != now.data_type() => {
                return Err(to_datafusion(Error::unsupported(
                    "a subquery in WITH RECURSIVE is the value of a column whose first rows have several types; cast it to the one \
                     that is meant, as in (SELECT ...)::DOUBLE",
                )));
            }
            expr => expr,
        };
        Ok(match name {
            Some((relation, name)) => expr.alias_qualified(relation, name),
            None => expr,
        })
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, input)?))
}

/// What a step reads: the rows of the one before, of which each value may be NULL.
fn work_table(name: &str, types: &DFSchema) -> Arc<CteWorkTable> {
    let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    let fields: Vec<Field> = types.fields().iter().map(nullable).collect();
    Arc::new(CteWorkTable::new(name, Arc::new(Schema::new(fields))))
}

fn reads(scan: &TableScan, name: &str) -> bool {
    source_as_provider(&scan.source).is_ok_and(|provider| {
        provider.downcast_ref::<CteWorkTable>().is_some_and(|table| table.name() == name)
    })
}
