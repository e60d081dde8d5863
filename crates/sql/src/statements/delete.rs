//! `DELETE`: a range of time of some sensors, or the records in some boxes.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::catalog::TableProvider;
use datafusion::common::DFSchemaRef;
use datafusion::datasource::source_as_provider;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlan};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Delete, Expr, FromTable, Statement, TableFactor, TableWithJoins,
};
use tidefall_storage::{AggregateRequest, Db, ReadStats};
use tidefall_types::{Error, Result};

use super::ready;
use crate::amend;
use crate::ast::plain;
use crate::blocking::blocking;
use crate::error::from_datafusion;
use crate::pushdown::{Conditions, select_sensors};
use crate::query_stream::QueryStream;
use crate::records::{BOXES_MAX, RecordsTable};
use crate::simplify;
use crate::steps::statement_to_plan;
use crate::table::Table;
use crate::view::View;
use crate::walk::visit_expressions_mut;

/// Deletes the rows that a statement names and answers with their count as it was when the
/// statement began.
///
/// # Errors
/// `Unsupported` when the condition is about more than tags and a range of time.
pub(crate) async fn delete(
    db: &Db,
    state: &SessionState,
    mut statement: DfStatement,
) -> Result<QueryStream> {
    drop_alias(&mut statement);
    let written = condition_of(&statement);
    let plan = statement_to_plan(state, statement).await.map_err(from_datafusion)?;
    let LogicalPlan::Dml(dml) = &plan else {
        return Err(Error::unsupported("this form of DELETE is not supported"));
    };
    let provider = source_as_provider(&dml.target).map_err(from_datafusion)?;
    let filters = match dml.input.as_ref() {
        LogicalPlan::TableScan(_) => Vec::new(),
        LogicalPlan::Filter(filter) => {
            let schema = filter.input.schema();
            let simple = simplified(state, filter.predicate.clone(), schema)?;
            split_conjunction(&simple).into_iter().cloned().collect()
        }
        _ => return Err(Error::unsupported("DELETE with LIMIT is not supported")),
    };
    let deleted = if let Some(table) = provider.downcast_ref::<Table>() {
        delete_readings(db, table.view(), &filters, &written).await?
    } else if provider.downcast_ref::<RecordsTable>().is_some() {
        delete_records(db, provider, filters, &written).await?
    } else {
        return Err(Error::unsupported(format!("{} is not a table", dml.table_name)));
    };
    let count: ArrayRef = Arc::new(UInt64Array::from(vec![deleted]));
    ready(RecordBatch::try_from_iter([("count", count)]))
}

/// The condition in words of SQL.
fn condition_of(statement: &DfStatement) -> String {
    if let DfStatement::Statement(statement) = statement
        && let Statement::Delete(Delete { selection: Some(selection), .. }) = &**statement
    {
        return selection.to_string();
    }
    String::new()
}

/// Takes the other name of the table, which DataFusion passes over, away from it and its columns.
fn drop_alias(statement: &mut DfStatement) {
    let DfStatement::Statement(statement) = statement else { return };
    let Statement::Delete(Delete { from, selection: Some(selection), .. }) = &mut **statement
    else {
        return;
    };
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = from;
    let [TableWithJoins { relation: TableFactor::Table { alias, .. }, .. }] = tables.as_mut_slice()
    else {
        return;
    };
    let Some(alias) = alias.take() else { return };
    let _ = visit_expressions_mut(selection, |expr| {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [table, column] = parts.as_slice()
            && plain(table) == plain(&alias.name)
        {
            *expr = Expr::Identifier(column.clone());
        }
        ControlFlow::<()>::Continue(())
    });
}

/// Deletes the readings of some sensors within a range of time.
async fn delete_readings(
    db: &Db,
    view: &Arc<View>,
    filters: &[DfExpr],
    written: &str,
) -> Result<u64> {
    let conditions = Conditions::of(filters, view.schema());
    if !conditions.exact || !conditions.tag_exprs.is_empty() {
        return Err(Error::unsupported(format!(
            "DELETE takes conditions on tags (=, IN, LIKE, ~, IS NULL) and one range of time, \
             joined by AND; table {} keeps no other rows apart: {written}",
            view.schema().name,
        )));
    }
    let (db, view) = (db.clone(), Arc::clone(view));
    blocking(move || {
        let rows = count_rows(&view, &conditions)?;
        if rows > 0 {
            db.delete(&view.schema().name, &conditions.tags, conditions.time)?;
        }
        Ok(rows)
    })
    .await
}

/// Deletes the records in boxes.
async fn delete_records(
    db: &Db,
    provider: Arc<dyn TableProvider>,
    filters: Vec<DfExpr>,
    written: &str,
) -> Result<u64> {
    let (db, written) = (db.clone(), written.to_owned());
    blocking(move || {
        let Some(table) = provider.downcast_ref::<RecordsTable>() else { return Ok(0) };
        let name = &table.table_schema().name;
        let regions = table.exact_boxes(&filters).ok_or_else(|| {
            Error::unsupported(format!(
                "DELETE takes comparisons of dimensions with values (=, <>, <, >, BETWEEN, IN), joined by AND and OR, that make \
                 {BOXES_MAX} boxes at most; table {name} keeps no other rows apart: {written}"
            ))
        })?;
        let rows = table.count(&regions)?;
        if rows > 0 {
            db.delete_records(name, &regions)?;
        }
        Ok(rows)
    })
    .await
}

/// Brings a condition into the form that the optimizer gives to those of queries: literals in the
/// types of their columns, constants folded.
fn simplified(state: &SessionState, condition: DfExpr, schema: &DFSchemaRef) -> Result<DfExpr> {
    let condition = amend::before_coercion(condition, schema).map_err(from_datafusion)?.data;
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(schema))
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let coerced = simplifier.coerce(condition, schema).map_err(from_datafusion)?;
    let amended = amend::after_coercion(coerced, schema).map_err(from_datafusion)?.data;
    let hidden = simplify::hide(amended, true).map_err(from_datafusion)?;
    let simple = simplifier.simplify(hidden).map_err(from_datafusion)?;
    simplify::show(simple).map_err(from_datafusion)
}

fn count_rows(view: &View, conditions: &Conditions) -> Result<u64> {
    let sensors = select_sensors(view, conditions).map_err(from_datafusion)?;
    let request = AggregateRequest {
        groups: Vec::new(),
        sensors: sensors.into(),
        group_count: 1,
        time: conditions.time,
        bin: None,
        fields: Vec::new(),
        deviations: false,
        extremes: false,
        ends: false,
    };
    let result = view.snapshot().aggregate(&request, &Arc::new(ReadStats::default()))?;
    Ok(result.rows.iter().sum())
}
