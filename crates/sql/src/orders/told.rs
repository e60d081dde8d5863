//! Aggregates with groups, and `DISTINCT ON`, are told the order of the subquery from which they collect, and the sort there goes.
//!
//! Groups for which there is no memory go to the disk and come back in any order, so that it would not do to keep the sort. An
//! aggregate of all rows holds them, and takes them as they come (`chosen.rs`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, Sort as SortKey};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, Filter, LogicalPlan, Projection, Sort, SubqueryAlias,
};
use datafusion::optimizer::AnalyzerRule;

/// Aggregates whose answers depend on the order of the rows, if they are not told one.
const ORDERED: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];

/// Puts orders of subqueries into the aggregates above them.
#[derive(Debug)]
pub(crate) struct SubqueryOrders;

impl AnalyzerRule for SubqueryOrders {
    fn name(&self) -> &str {
        "tidefall_subquery_orders"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) => ordered(aggregate),
            LogicalPlan::Distinct(Distinct::On(first)) => first_in_order(first),
            node => Ok(Transformed::no(node)),
        })
        .map(|ordered| ordered.data)
    }
}

/// Aggregates that are told the order of their rows, which are no longer sorted.
fn ordered(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let has = |is: fn(&AggregateFunction) -> bool| {
        let is = |part: &Expr| matches!(part, Expr::AggregateFunction(call) if is(call));
        aggregate.aggr_expr.iter().any(|expr| expr.exists(|part| Ok(is(part))).unwrap_or(false))
    };
    if aggregate.group_expr.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    // Several orders cannot stand side by side.
    if has(is_untold) && has(|call| !call.params.order_by.is_empty()) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Some(unsorted) = Unsorted::of(&aggregate.input)? else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let names = NamePreserver::new_for_projection();
    let told = aggregate.aggr_expr.into_iter().map(|expr| {
        let name = names.save(&expr);
        let told = expr.transform_up(|part| Ok(tell(part, &unsorted.keys)))?;
        Ok(if told.transformed { name.restore(told.data) } else { told.data })
    });
    let told = told.collect::<Result<_>>()?;
    let aggregate = Aggregate::try_new(Arc::new(unsorted.rows), aggregate.group_expr, told)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// The first row of each group, as far as it says in the order of the subquery.
fn first_in_order(first: DistinctOn) -> Result<Transformed<LogicalPlan>> {
    let Some(Unsorted { rows, keys }) = Unsorted::of(&first.input)? else {
        return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::On(first))));
    };
    let DistinctOn { on_expr, select_expr, sort_expr, .. } = first;
    let ascending = |expr: &Expr| expr.clone().sort(true, false);
    let said = sort_expr.unwrap_or_else(|| on_expr.iter().map(ascending).collect());
    let order = said.into_iter().chain(keys).collect();
    let first = DistinctOn::try_new(on_expr, select_expr, Some(order), Arc::new(rows))?;
    Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(first))))
}

/// Whether an aggregate depends on an order that it does not say.
fn is_untold(call: &AggregateFunction) -> bool {
    let AggregateFunctionParams { order_by, distinct, .. } = &call.params;
    ORDERED.contains(&call.func.name()) && order_by.is_empty() && !distinct
}

fn tell(mut expr: Expr, keys: &[SortKey]) -> Transformed<Expr> {
    match &mut expr {
        Expr::AggregateFunction(call) if is_untold(call) => {
            call.params.order_by = keys.to_vec();
            Transformed::yes(expr)
        }
        _ => Transformed::no(expr),
    }
}

/// Rows, if need be without the sort from which they came, and its keys.
struct Unsorted {
    rows: LogicalPlan,
    keys: Vec<SortKey>,
}

impl Unsorted {
    fn of(plan: &LogicalPlan) -> Result<Option<Self>> {
        Ok(match plan {
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => {
                Some(Self { rows: input.as_ref().clone(), keys: expr.clone() })
            }
            LogicalPlan::Filter(filter) => match Self::of(&filter.input)? {
                Some(Self { rows, keys }) => {
                    let filter = Filter::try_new(filter.predicate.clone(), Arc::new(rows))?;
                    Some(Self { rows: LogicalPlan::Filter(filter), keys })
                }
                None => None,
            },
            // The window may count on the order, too: its rows stay sorted.
            LogicalPlan::Window(window) => {
                Self::of(&window.input)?.map(|Self { keys, .. }| Self { rows: plan.clone(), keys })
            }
            LogicalPlan::SubqueryAlias(alias) => match Self::of(&alias.input)? {
                Some(unsorted) => Some(unsorted.named(alias)?),
                None => None,
            },
            LogicalPlan::Projection(projection) => match Self::of(&projection.input)? {
                Some(unsorted) => Some(unsorted.projected(projection)?),
                None => None,
            },
            _ => None,
        })
    }

    fn named(self, alias: &SubqueryAlias) -> Result<Self> {
        let named = SubqueryAlias::try_new(Arc::new(self.rows), alias.alias.clone())?;
        let rename = |part: Expr| {
            Ok(match part {
                Expr::Column(column) => {
                    let column = Column::new(Some(alias.alias.clone()), column.name);
                    Transformed::yes(Expr::Column(column))
                }
                part => Transformed::no(part),
            })
        };
        let keys = self
            .keys
            .into_iter()
            .map(|key| Ok(SortKey { expr: key.expr.transform_up(rename)?.data, ..key }));
        let keys = keys.collect::<Result<_>>()?;
        Ok(Self { rows: LogicalPlan::SubqueryAlias(named), keys })
    }

    /// The same behind a projection, which shows the keys as well.
    fn projected(self, projection: &Projection) -> Result<Self> {
        let mut shown = projection.expr.clone();
        let fields = projection.schema.iter().map(Column::from);
        let mut names: Vec<Column> = fields.collect();
        let mut keys = Vec::new();
        for key in self.keys {
            let same = |shown: &Expr| shown.clone().unalias() == key.expr;
            let at = shown.iter().position(same).unwrap_or_else(|| {
                let name = format!("__order_{}", shown.len());
                shown.push(key.expr.clone().alias(name.clone()));
                names.push(Column::from_name(name));
                shown.len() - 1
            });
            keys.push(SortKey { expr: Expr::Column(names[at].clone()), ..key });
        }
        let projection = Projection::try_new(shown, Arc::new(self.rows))?;
        Ok(Self { rows: LogicalPlan::Projection(projection), keys })
    }
}
