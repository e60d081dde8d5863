//! The joins that mark rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder, Subquery, lit};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use super::{Made, Maker, has_predicate, looks_at_only};
use crate::correlated::{PARTNERS, refuse};
use crate::tree::Tree;

/// Whether a subquery that looks at nothing else has a row.
pub(super) fn has_any_row(subquery: Subquery) -> Result<Expr> {
    let plan = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery))
        .limit(0, Some(1))?
        .project([lit(1_i64).alias("row")])?
        .aggregate(Vec::<Expr>::new(), [count(Expr::Column(Column::new_unqualified("row")))])?;
    let counted = Expr::Column(plan.schema().columns().swap_remove(0));
    let plan = plan.project([counted.gt(lit(0_i64)).alias("exists")])?.build()?;
    Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery }))
}

/// An input joined with a subquery: by what the subquery says of it, and by a value that is equal to its column.
pub(super) fn joined(
    input: &LogicalPlan,
    subquery: &Subquery,
    value: Option<&Expr>,
    join_type: JoinType,
    alias: &str,
) -> Result<LogicalPlan> {
    let first = subquery.subquery.head_output_expr()?;
    let equal = value.zip(first).map(|(value, first)| value.clone().eq(first));
    let mut pull_up = PullUpCorrelatedExpr::new()
        .with_in_predicate_opt(equal)
        .with_exists_sub_query(value.is_none());
    let plan = subquery.subquery.as_ref().clone().rewrite(&mut pull_up).data()?;
    if !pull_up.can_pull_up
        || pull_up.pull_up_having_expr.is_some()
        || plan.contains_outer_reference()
    {
        return refuse("outside of its WHERE", PARTNERS);
    }
    let inner: BTreeSet<Column> =
        pull_up.correlated_subquery_cols_map.into_values().flatten().collect();
    let mut shown = Shown { plan: &plan, alias, columns: Vec::new() };
    let mut conditions = Vec::new();
    if let Some(value) = value {
        conditions.push(value.clone().eq(shown.at(0)));
    }
    for condition in pull_up.join_filters {
        conditions.push(shown.of_condition(condition, &inner)?);
    }
    let mut columns = shown.columns_shown();
    if columns.is_empty() {
        columns.push(lit(1_i64).alias("c"));
    }
    let right = LogicalPlanBuilder::from(plan).project(columns)?.distinct()?;
    let right = right.alias(alias)?.build()?;
    let condition = conjunction(conditions).unwrap_or_else(|| lit(true));
    LogicalPlanBuilder::from(input.clone()).join_on(right, join_type, [condition])?.build()
}

/// The columns of a subquery that a join looks at.
struct Shown<'a> {
    plan: &'a LogicalPlan,
    alias: &'a str,
    columns: Vec<usize>,
}

impl Shown<'_> {
    /// A column of the subquery, by its new name.
    fn at(&mut self, index: usize) -> Expr {
        if !self.columns.contains(&index) {
            self.columns.push(index);
        }
        Expr::Column(Column::new(Some(self.alias), name_of(index)))
    }

    /// A condition with the columns of the subquery by their new names.
    fn of_condition(&mut self, condition: Expr, inner: &BTreeSet<Column>) -> Result<Expr> {
        let renamed = condition.transform_up(|part| match &part {
            Expr::Column(column) if inner.contains(column) => {
                let schema = self.plan.schema();
                let index = match schema.maybe_index_of_column(column) {
                    Some(index) => index,
                    None => schema.index_of_column(&Column::new_unqualified(&column.name))?,
                };
                Ok(Transformed::yes(self.at(index)))
            }
            _ => Ok(Transformed::no(part)),
        })?;
        Ok(renamed.data)
    }

    fn columns_shown(&self) -> Vec<Expr> {
        let schema = self.plan.schema();
        let column = |index: &usize| {
            Expr::Column(schema.qualified_field(*index).into()).alias(name_of(*index))
        };
        self.columns.iter().map(column).collect()
    }
}

fn name_of(index: usize) -> String {
    format!("c{index}")
}

/// Marks of the condition of a join, each on the side at which it looks.
pub(super) fn mark_sides(join: Join, made: &mut Made) -> Result<LogicalPlan> {
    let columns = join.schema.columns();
    let conditions = join.filter.clone().map(split_conjunction_owned).unwrap_or_default();
    let mut left = Maker::new(Arc::clone(&join.left), made);
    let mut kept = Vec::new();
    let mut others = Vec::new();
    for condition in conditions {
        match has_predicate(&condition) && looks_at_only(&condition, join.left.schema()) {
            true => kept.push(left.value(condition, true)?),
            false => others.push(condition),
        }
    }
    let (left, mut is_marked) = (left.input, left.is_marked);
    let mut right = Maker::new(Arc::clone(&join.right), made);
    for condition in others {
        match has_predicate(&condition) {
            true if looks_at_only(&condition, join.right.schema()) => {
                kept.push(right.value(condition, true)?);
            }
            true => {
                return refuse(
                    "on both sides of a join in its ON",
                    "write the condition in WHERE, or join with a subquery in FROM",
                );
            }
            false => kept.push(condition),
        }
    }
    is_marked |= right.is_marked;
    let right = right.input;
    let filter = conjunction(kept);
    let marked = Join::try_new(
        left,
        right,
        join.on,
        filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let plan = LogicalPlanBuilder::from(LogicalPlan::Join(marked));
    match is_marked {
        true => plan.project(columns.into_iter().map(Expr::Column))?.build(),
        false => plan.build(),
    }
}
