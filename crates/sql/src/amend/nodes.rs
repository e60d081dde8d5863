//! What nodes of a plan compare without saying so: keys of sorts and joins, and rows of which each is wanted once. Rows of sets and of
//! `VALUES` have the types that all of them have in common.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, JoinConstraint, JoinType, NullEquality, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Cast, Distinct, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder,
    Projection, Union, Values, cast,
};

use super::columns::project;
use super::{numbers, spans, zones};
use crate::tree::Tree;

/// A node before the types of its expressions are coerced.
pub(super) fn amend(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(mut sort) => {
            let mut is_amended = false;
            for key in &mut sort.expr {
                is_amended |= spans::by_length(&mut key.expr, sort.input.schema())?;
            }
            Ok(transformed(LogicalPlan::Sort(sort), is_amended))
        }
        LogicalPlan::Aggregate(aggregate) => groups(aggregate),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let (input, is_amended) = in_one_form(input)?;
            Ok(transformed(LogicalPlan::Distinct(Distinct::All(input)), is_amended))
        }
        LogicalPlan::Distinct(Distinct::On(mut distinct)) => {
            let schema = Arc::clone(distinct.input.schema());
            let mut is_amended = false;
            let sorts = distinct.sort_expr.iter_mut().flatten().map(|sort| &mut sort.expr);
            for key in distinct.on_expr.iter_mut().chain(sorts) {
                is_amended |= spans::by_length(key, &schema)?;
            }
            Ok(transformed(LogicalPlan::Distinct(Distinct::On(distinct)), is_amended))
        }
        LogicalPlan::Join(join) => keys(join),
        LogicalPlan::Union(union) => sets(union),
        LogicalPlan::Values(values) => written_rows(values),
        plan => Ok(Transformed::no(plan)),
    }
}

fn transformed(plan: LogicalPlan, is_amended: bool) -> Transformed<LogicalPlan> {
    if is_amended { Transformed::yes(plan) } else { Transformed::no(plan) }
}

/// The keys of a join, which are compared with each other.
fn keys(join: Join) -> Result<Transformed<LogicalPlan>> {
    let (mut join, mut is_amended) = difference(join)?;
    let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
    for (left, right) in &mut join.on {
        if zones::mixes(&[left.get_type(left_schema)?, right.get_type(right_schema)?]) {
            *left = zones::without_zone(std::mem::take(left), left_schema)?.data;
            *right = zones::without_zone(std::mem::take(right), right_schema)?.data;
            is_amended = true;
        }
        let types = [left.get_type(left_schema)?, right.get_type(right_schema)?];
        if let Some(float) = numbers::beside_float(&types) {
            *left = numbers::as_float(std::mem::take(left), left_schema, &float)?.data;
            *right = numbers::as_float(std::mem::take(right), right_schema, &float)?.data;
            is_amended = true;
        }
        let types = [left.get_type(left_schema)?, right.get_type(right_schema)?];
        if types.iter().any(spans::is_interval) {
            is_amended |= spans::span_by_length(left, left_schema)?;
            is_amended |= spans::span_by_length(right, right_schema)?;
        }
    }
    if is_amended {
        // Those of `USING` are columns.
        join.join_constraint = JoinConstraint::On;
    }
    Ok(transformed(LogicalPlan::Join(join), is_amended))
}

/// `EXCEPT` and `INTERSECT`, which are joins of the left side: its numbers are of the type that both sides have in common before it
/// has each row once. Says whether it is one with others.
fn difference(mut join: Join) -> Result<(Join, bool)> {
    let is_set = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.on.len() == join.left.schema().fields().len();
    let LogicalPlan::Distinct(Distinct::All(input)) = &*join.left else { return Ok((join, false)) };
    if !is_set {
        return Ok((join, false));
    }
    let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
    let types = join.on.iter().map(|(left, right)| {
        Ok(numbers::common(&[left.get_type(left_schema)?, right.get_type(right_schema)?]))
    });
    let types = types.collect::<Result<Vec<_>>>()?;
    let (input, is_amended) =
        project(Arc::clone(input), |column, expr, schema| match &types[column] {
            Some(to) => numbers::in_type(expr, schema, to),
            None => Ok(Transformed::no(expr)),
        })?;
    if !is_amended {
        return Ok((join, false));
    }
    join.left = Arc::new(LogicalPlan::Distinct(Distinct::All(input)));
    match LogicalPlan::Join(join).recompute_schema()? {
        LogicalPlan::Join(join) => Ok((join, true)),
        _ => internal_err!("a join is one with another schema, too"),
    }
}

/// Sets whose columns are times of both kinds, or numbers of several types.
fn sets(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    union.inputs = union.inputs.into_iter().map(with_own_types).collect::<Result<_>>()?;
    let types = |column: usize| -> Vec<DataType> {
        let fields = union.inputs.iter().map(|input| input.schema().fields().get(column));
        fields.flatten().map(|field| field.data_type().clone()).collect()
    };
    let types: Vec<Vec<DataType>> = (0..union.schema.fields().len()).map(types).collect();
    let with_zones: Vec<bool> = types.iter().map(|types| zones::mixes(types)).collect();
    let numbers = types.iter().map(|of| numbers::common(of).or_else(|| numbers::beside_null(of)));
    let numbers: Vec<Option<DataType>> = numbers.collect();
    let has_other_types = union
        .schema
        .fields()
        .iter()
        .zip(&types)
        .any(|(field, of)| of.first() != Some(field.data_type()));
    if !has_other_types && !with_zones.contains(&true) && numbers.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = union.inputs.into_iter().map(|input| {
        let plain = |column: usize, expr: Expr, schema: &DFSchema| match &numbers[column] {
            Some(to) => numbers::in_type(expr, schema, to),
            None if with_zones[column] => zones::without_zone(expr, schema),
            None => Ok(Transformed::no(expr)),
        };
        project(input, plain).map(|(input, _)| input)
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

/// A side of `UNION BY NAME` with the types of its columns: DataFusion says of them all that they are those of the first side.
fn with_own_types(input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    Ok(match &*input {
        LogicalPlan::Projection(side) => {
            let side = Projection::try_new(side.expr.clone(), Arc::clone(&side.input))?;
            Arc::new(LogicalPlan::Projection(side))
        }
        _ => input,
    })
}

/// Rows of `VALUES` with decimals beside floats, of which DataFusion makes decimals. The casts to these are its own: those that are
/// written have a name (`../names.rs`).
fn written_rows(mut values: Values) -> Result<Transformed<LogicalPlan>> {
    let no_columns = DFSchema::empty();
    let mut is_amended = false;
    for (at, field) in values.schema.fields().iter().enumerate() {
        if !field.data_type().is_decimal() {
            continue;
        }
        let given = |cell: &Expr| match cell {
            Expr::Cast(Cast { expr, .. }) => (**expr).clone(),
            cell => cell.clone(),
        };
        let types = values.values.iter().map(|row| given(&row[at]).get_type(&no_columns));
        let types = types.collect::<Result<Vec<_>>>()?;
        let Some(float) = numbers::beside_float(&types) else { continue };
        for row in &mut values.values {
            row[at] = cast(given(&row[at]), float.clone());
        }
        is_amended = true;
    }
    if !is_amended {
        return Ok(Transformed::no(LogicalPlan::Values(values)));
    }
    Ok(Transformed::yes(LogicalPlanBuilder::values(values.values)?.build()?))
}

fn groups(mut aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(aggregate.input.schema());
    let names = NamePreserver::new_for_projection();
    let amend = |mut expr: Expr| {
        let name = names.save(&expr);
        Ok(match spans::in_one_form(&mut expr, &schema)? {
            true => Transformed::yes(name.restore(expr)),
            false => Transformed::no(expr),
        })
    };
    let mut is_amended = false;
    for group in &mut aggregate.group_expr {
        let amended = match std::mem::take(group) {
            set @ Expr::GroupingSet(_) => set.map_children(amend)?,
            expr => amend(expr)?,
        };
        is_amended |= amended.transformed;
        *group = amended.data;
    }
    Ok(transformed(LogicalPlan::Aggregate(aggregate), is_amended))
}

/// Rows of which each is wanted once, with their intervals in the form of those that are as long.
fn in_one_form(input: Arc<LogicalPlan>) -> Result<(Arc<LogicalPlan>, bool)> {
    project(input, |_, mut column, schema| {
        Ok(match spans::in_one_form(&mut column, schema)? {
            true => Transformed::yes(column),
            false => Transformed::no(column),
        })
    })
}
