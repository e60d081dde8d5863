//! `INSERT`: planned with the types that its values have. DataFusion would cast them to those of the columns, and cut off
//! what does not fit.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as DfResult;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    Cast, Expr, LogicalPlan, LogicalPlanBuilder, Projection, ScalarUDF, Values, cast,
};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    self, Insert, ObjectName, SetExpr, SqliteOnConflict, Statement, TableObject,
};
use tidefall_storage::Db;
use tidefall_types::{Error, Result};

use super::{again, table_name};
use crate::ast::plain;
use crate::catalog::provider;
use crate::error::{from_datafusion, to_datafusion};
use crate::fit::{Fit, Slot, fit};
use crate::names::named;
use crate::snapshots::snapshot_of_any;
use crate::steps::statement_to_plan;
use crate::tree::Tree;
use crate::view::slots_of;

/// Plans a statement.
///
/// # Errors
/// `NotFound` for a missing table or column, `Unsupported` for clauses that Tidefall does not have, `Invalid` for a value
/// that does not fit into its column.
pub(crate) async fn plan_insert(
    db: &Db,
    state: &SessionState,
    mut insert: Insert,
) -> Result<LogicalPlan> {
    check_clauses(&insert)?;
    let TableObject::TableName(name) = &insert.table else {
        return Err(Error::unsupported("INSERT goes into a table, by its name"));
    };
    let name = table_name(name)?;
    let snapshot = snapshot_of_any(db, &name)?;
    let slots = slots_of(snapshot.schema());
    let table = provider(db, snapshot);
    let Some(mut source) = insert.source.take() else {
        return Err(Error::invalid("INSERT wants VALUES or a SELECT"));
    };
    let is_whole = source.with.is_none()
        && source.order_by.is_none()
        && source.limit_clause.is_none()
        && source.fetch.is_none();
    let planned = match source.body.as_mut() {
        SetExpr::Values(values) if is_whole => {
            for cell in values.rows.iter_mut().flat_map(|row| &mut row.content) {
                keep_cast(cell)?;
            }
            insert.source = Some(source);
            let statement = again(Statement::Insert(insert));
            let plan = statement_to_plan(state, statement).await.map_err(from_datafusion)?;
            plan.transform_down(|node| fit_values(node, &slots)).map(|plan| plan.data)
        }
        _ => {
            let query = again(Statement::Query(source));
            plan_query(state, (&name, table), &slots, &insert.columns, query).await
        }
    };
    planned.map_err(|error| from_datafusion(error).context(format_args!("table {name}")))
}

fn check_clauses(insert: &Insert) -> Result<()> {
    let replaces = matches!(insert.or, None | Some(SqliteOnConflict::Replace));
    let clause = if insert.overwrite || !replaces {
        "OVERWRITE or OR: a later row of the same tags and time replaces the earlier one anyway"
    } else if insert.on.is_some() || insert.ignore {
        "ON CONFLICT or IGNORE: a later row of the same tags and time replaces the earlier one"
    } else if insert.returning.is_some() || insert.output.is_some() {
        "RETURNING: SELECT the rows afterwards"
    } else if insert.format_clause.is_some() || insert.settings.is_some() {
        "FORMAT or SETTINGS: /write and imports take other formats"
    } else if insert.partitioned.is_some()
        || insert.table_alias.is_some()
        || insert.insert_alias.is_some()
        || !insert.after_columns.is_empty()
        || !insert.assignments.is_empty()
        || insert.multi_table_insert_type.is_some()
    {
        "anything but a table, its columns and VALUES or a SELECT"
    } else {
        return Ok(());
    };
    Err(Error::unsupported(format!("INSERT takes no {clause}")))
}

/// Tells a cast that was written from those that are planned.
fn keep_cast(cell: &mut ast::Expr) -> Result<()> {
    match cell {
        ast::Expr::Subquery(_) => {
            return Err(Error::unsupported("VALUES takes no query; write INSERT INTO ... SELECT"));
        }
        ast::Expr::Cast { .. } => {
            *cell = named(std::mem::replace(cell, ast::Expr::Value(ast::Value::Null.into())));
        }
        _ => {}
    }
    Ok(())
}

/// Fits the cells of `VALUES` into their columns one by one, as each may have a type of its own.
fn fit_values(node: LogicalPlan, slots: &[Slot]) -> DfResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = node else { return Ok(Transformed::no(node)) };
    let LogicalPlan::Values(values) = projection.input.as_ref() else {
        return Ok(Transformed::no(LogicalPlan::Projection(projection)));
    };
    let names = values.schema.columns();
    let slot_of = |column: &Column| {
        let at = projection.expr.iter().position(|expr| expr.column_refs().contains(column))?;
        slots.get(at)
    };
    let slots: Vec<Option<&Slot>> = names.iter().map(slot_of).collect();
    let mut rows = values.values.clone();
    for (row, cells) in rows.iter_mut().enumerate() {
        for (cell, slot) in cells.iter_mut().zip(&slots) {
            if let Some(slot) = slot {
                let given = std::mem::replace(cell, Expr::Literal(ScalarValue::Null, None));
                *cell = fit_cell(given, slot, row + 1)?;
            }
        }
    }
    // A NULL in the place of the time is named where the rows are written.
    let field = |at: usize| {
        let (table, field) = values.schema.qualified_field(at);
        (table.cloned(), Arc::new(field.as_ref().clone().with_nullable(true)))
    };
    let fields = (0..names.len()).map(field).collect();
    let schema = DFSchema::new_with_metadata(fields, HashMap::new())?;
    let values = Values { schema: Arc::new(schema), values: rows };
    let input = Arc::new(LogicalPlan::Values(values));
    let fitted = Projection::try_new(projection.expr, input)?;
    Ok(Transformed::yes(LogicalPlan::Projection(fitted)))
}

fn fit_cell(cell: Expr, slot: &Slot, row: usize) -> DfResult<Expr> {
    let given = match cell {
        Expr::Cast(Cast { expr: given, .. }) => given,
        literal @ Expr::Literal(..) => Box::new(literal),
        other => return Ok(other),
    };
    if let Expr::Literal(value, metadata) = *given {
        let fitted = fit(&value.to_array()?, slot, row).map_err(to_datafusion)?;
        return Ok(Expr::Literal(ScalarValue::try_from_array(&fitted, 0)?, metadata));
    }
    Ok(ScalarUDF::new_from_impl(Fit { slot: slot.clone(), row }).call(vec![*given]))
}

/// The rows of a query with the columns of the table; what does not fit is found as they come.
async fn plan_query(
    state: &SessionState,
    (name, table): (&str, Arc<dyn TableProvider>),
    slots: &[Slot],
    columns: &[ObjectName],
    query: DfStatement,
) -> DfResult<LogicalPlan> {
    let targets = targets(columns, slots).map_err(to_datafusion)?;
    let query = statement_to_plan(state, query).await?;
    let given = query.schema().columns();
    if given.len() != targets.len() {
        return Err(to_datafusion(Error::invalid(format!(
            "INSERT has {} columns, and its SELECT {}",
            targets.len(),
            given.len()
        ))));
    }
    let exprs = slots.iter().enumerate().map(|(at, slot)| {
        let expr = match targets.iter().position(|target| *target == at) {
            Some(place) => Expr::Column(given[place].clone()),
            None => cast(Expr::Literal(ScalarValue::Null, None), slot.data_type.clone()),
        };
        expr.alias(&slot.column)
    });
    let input = LogicalPlanBuilder::from(query).project(exprs)?.build()?;
    let target = provider_as_source(table);
    LogicalPlanBuilder::insert_into(input, TableReference::bare(name), target, InsertOp::Append)?
        .build()
}

/// The positions of the named columns in the table; all of them when none is named.
fn targets(columns: &[ObjectName], slots: &[Slot]) -> Result<Vec<usize>> {
    if columns.is_empty() {
        return Ok((0..slots.len()).collect());
    }
    let mut targets = Vec::with_capacity(columns.len());
    for column in columns {
        let name = match column.0.as_slice() {
            [part] => part.as_ident().map(plain),
            _ => None,
        };
        let at = slots.iter().position(|slot| Some(&slot.column) == name.as_ref());
        let at = at.ok_or_else(|| {
            let all = slots.iter().map(|slot| slot.column.as_str()).collect::<Vec<_>>().join(", ");
            Error::not_found(format!("there is no column {column}; there are {all}"))
        })?;
        if targets.contains(&at) {
            return Err(Error::invalid(format!("column {column} is named twice")));
        }
        targets.push(at);
    }
    Ok(targets)
}
