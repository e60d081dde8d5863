//! What is made of a sorted subquery keeps its order where the plan alone would lose it.
//!
//! - Lists and texts that are collected in groups: the rows are sorted by the groups first. Then one group is made after the other,
//!   and none of them goes to the disk, from where groups come back in any order.
//! - `DISTINCT ON`, `first_value` and `last_value` of groups, which keep one row of each, are told the order instead. So are aggregates
//!   in grouping sets, and those of correlated subqueries, which become groups later.
//! - Conditions with subqueries become joins, behind which there is no order, and so do values of subqueries: the rows are sorted
//!   behind them.
//!
//! An aggregate of all rows takes them as they come (`chosen.rs`).
//!
//! An order that is written in the aggregate is treated like one of a subquery: DataFusion would keep each value with its keys, and could
//! put none of them on the disk.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{AggregateFunction, Sort as SortKey};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, Filter, Limit, LogicalPlan, Projection, Sort,
    SubqueryAlias, Unnest, Window,
};
use datafusion::optimizer::AnalyzerRule;

use super::ORDERED;
use super::calls::{calls_of, with_calls};
use super::repeated::{keep_first, once};
use crate::correlated::has_subquery;
use crate::tree::{Tree, transform_up_with_subqueries};

/// Those of [`ORDERED`] that keep one row.
const OF_ONE_ROW: [&str; 2] = ["first_value", "last_value"];

/// The beginning of the names of numbers that stand for an order.
const NUMBER: &str = "__number_";

/// Whether a window gives rows nothing but a number that stands for their order: it may number fewer of them as well.
pub(crate) fn only_numbers(window: &Window) -> bool {
    matches!(&window.window_expr[..], [Expr::Alias(number)] if number.name.starts_with(NUMBER))
}

/// Keeps the orders of subqueries, and of aggregates, where groups and joins are made of them.
#[derive(Debug)]
pub(crate) struct SubqueryOrders;

impl AnalyzerRule for SubqueryOrders {
    fn name(&self) -> &str {
        "tidefall_subquery_orders"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        transform_up_with_subqueries(plan, &mut |node| match node {
            LogicalPlan::Aggregate(aggregate) => ordered(aggregate),
            LogicalPlan::Distinct(Distinct::On(first)) => first_in_order(once(first)),
            LogicalPlan::Filter(filter) => sorted_behind_filter(filter),
            LogicalPlan::Projection(projection) => sorted_behind_projection(projection),
            node => Ok(Transformed::no(node)),
        })
        .map(|ordered| ordered.data)
    }
}

/// Aggregates that get their rows in the order that they want, or are told it.
fn ordered(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let calls = calls_of(&aggregate.aggr_expr)?;
    let collects_much =
        calls.iter().any(|call| is_ordered(call) && !OF_ONE_ROW.contains(&call.func.name()));
    let is_correlated = !aggregate.input.all_out_ref_exprs().is_empty();
    let is_told = is_correlated
        || !collects_much
        || aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_)));
    let has_untold = calls.iter().any(is_untold);
    let is_of_all = aggregate.group_expr.is_empty();
    let mut written =
        calls.iter().map(|call| &call.params.order_by).filter(|keys| !keys.is_empty());
    let first = written.next();
    // Several orders cannot stand side by side: each aggregate is told its own.
    let is_told = is_told || (has_untold && first.is_some());
    let sorted = if has_untold {
        let wants_keys = is_correlated || !is_of_all || first.is_some();
        if wants_keys { Ordered::of(&aggregate.input, Wanted::Keys)? } else { None }
    } else {
        let of_all = first.filter(|order| !is_told && written.all(|other| other == *order));
        let rows = || aggregate.input.as_ref().clone();
        of_all.map(|order| Ordered { rows: rows(), keys: order.clone() })
    };
    let Some(Ordered { rows, keys }) = sorted else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let rows = Arc::new(rows);
    if is_told {
        let told = with_calls(aggregate.aggr_expr, |call| {
            if is_untold(call) {
                call.params.order_by.clone_from(&keys);
            }
        })?;
        let aggregate = Aggregate::try_new(rows, aggregate.group_expr, told)?;
        return Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)));
    }
    let aggr_expr = with_calls(aggregate.aggr_expr, |call| {
        if is_ordered(call) {
            call.params.order_by.clear();
        }
    })?;
    let Aggregate { group_expr, schema, .. } = aggregate;
    sorted_by_groups(rows, keys, (group_expr, aggr_expr), &schema).map(Transformed::yes)
}

/// An aggregate over rows that are sorted by its groups, and then by `keys`. Groups that are computed are made columns first, so
/// that they are computed once, and known to be in order.
fn sorted_by_groups(
    rows: Arc<LogicalPlan>,
    keys: Vec<SortKey>,
    (mut group_expr, aggr_expr): (Vec<Expr>, Vec<Expr>),
    schema: &DFSchema,
) -> Result<LogicalPlan> {
    // The schema has one column for groups that are the same.
    keep_first(&mut group_expr, Expr::clone);
    let is_column = |group: &Expr| matches!(group, Expr::Column(_));
    let mut columns: Vec<Expr> = rows.schema().iter().map(Column::from).map(Expr::Column).collect();
    let mut groups = Vec::with_capacity(group_expr.len());
    for group in &group_expr {
        if is_column(group) {
            groups.push(group.clone());
            continue;
        }
        let name = format!("__group_{}", columns.len());
        columns.push(group.clone().unalias().alias(name.clone()));
        groups.push(Expr::Column(Column::from_name(name)));
    }
    let rows = match group_expr.iter().all(is_column) {
        true => rows,
        false => Arc::new(LogicalPlan::Projection(Projection::try_new(columns, rows)?)),
    };
    let first = groups.iter().map(|group| group.clone().sort(true, false));
    let sort = Sort { expr: first.chain(keys).collect(), input: rows, fetch: None };
    let aggregate = Aggregate::try_new(Arc::new(LogicalPlan::Sort(sort)), groups, aggr_expr)?;
    if group_expr.iter().all(is_column) {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let made: Vec<Column> = aggregate.schema.iter().map(Column::from).collect();
    let shown = made.into_iter().zip(schema.iter()).map(|(made, (qualifier, field))| {
        let is_same = made.relation.as_ref() == qualifier && made.name == *field.name();
        match is_same {
            true => Expr::Column(made),
            false => Expr::Column(made).alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    let shown = shown.collect();
    let aggregate = Arc::new(LogicalPlan::Aggregate(aggregate));
    Ok(LogicalPlan::Projection(Projection::try_new(shown, aggregate)?))
}

/// A condition with a subquery on sorted rows, which are sorted behind it.
fn sorted_behind_filter(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let ordered = match has_subquery(&filter.predicate)? {
        true => Ordered::of(&filter.input, Wanted::Keys)?,
        false => None,
    };
    let Some(Ordered { rows, keys }) = ordered else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    };
    let columns = filter.input.schema().iter().map(|column| Expr::Column(Column::from(column)));
    let columns = columns.collect();
    let kept = LogicalPlan::Filter(Filter::try_new(filter.predicate, Arc::new(rows))?);
    let sorted = LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(kept), fetch: None });
    let shown = Projection::try_new(columns, Arc::new(sorted))?;
    Ok(Transformed::yes(LogicalPlan::Projection(shown)))
}

/// Values of subqueries beside sorted rows, which are sorted behind them.
fn sorted_behind_projection(projection: Projection) -> Result<Transformed<LogicalPlan>> {
    let mut has_any = false;
    for shown in &projection.expr {
        has_any |= has_subquery(shown)?;
    }
    let ordered = if has_any { Ordered::of(&projection.input, Wanted::Keys)? } else { None };
    let Some(ordered) = ordered else {
        return Ok(Transformed::no(LogicalPlan::Projection(projection)));
    };
    let Ordered { rows, keys } = ordered.projected(&projection)?;
    let columns = projection.schema.iter().map(|column| Expr::Column(Column::from(column)));
    let sorted = LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(rows), fetch: None });
    let shown = Projection::try_new(columns.collect(), Arc::new(sorted))?;
    Ok(Transformed::yes(LogicalPlan::Projection(shown)))
}

/// The first row of each group, as far as it says in the order of the subquery.
fn first_in_order(first: DistinctOn) -> Result<Transformed<LogicalPlan>> {
    let Some(Ordered { rows, keys }) = Ordered::of(&first.input, Wanted::Keys)? else {
        return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::On(first))));
    };
    let DistinctOn { on_expr, select_expr, sort_expr, .. } = first;
    let ascending = |expr: &Expr| expr.clone().sort(true, false);
    let said = sort_expr.unwrap_or_else(|| on_expr.iter().map(ascending).collect());
    let order = said.into_iter().chain(keys).collect();
    let first = DistinctOn::try_new(on_expr, select_expr, Some(order), Arc::new(rows))?;
    Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(first))))
}

/// Whether the answer of an aggregate depends on the order of its rows.
fn is_ordered(call: &AggregateFunction) -> bool {
    ORDERED.contains(&call.func.name()) && !call.params.distinct
}

/// Whether it does, and does not say it.
fn is_untold(call: &AggregateFunction) -> bool {
    is_ordered(call) && call.params.order_by.is_empty()
}

/// What is wanted of sorted rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Their keys; they are sorted again, or not at all.
    Keys,
    /// That they are sorted, too.
    Order,
}

/// Rows that come out of a sort, and its keys, all of which they show.
struct Ordered {
    rows: LogicalPlan,
    keys: Vec<SortKey>,
}

impl Ordered {
    fn of(plan: &LogicalPlan, wanted: Wanted) -> Result<Option<Self>> {
        if let LogicalPlan::Sort(Sort { expr, input, fetch }) = plan {
            let rows = match (wanted, fetch) {
                (Wanted::Keys, None) => input.as_ref().clone(),
                _ => plan.clone(),
            };
            return Ok(Some(Self { rows, keys: expr.clone() }));
        }
        // Windows and limits look at the order themselves, and behind what is unnested keys may be gone.
        let (input, wanted) = match plan {
            LogicalPlan::Filter(Filter { input, .. })
            | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
            | LogicalPlan::Projection(Projection { input, .. }) => (input, wanted),
            LogicalPlan::Unnest(Unnest { input, .. })
            | LogicalPlan::Window(Window { input, .. })
            | LogicalPlan::Limit(Limit { input, .. }) => (input, Wanted::Order),
            _ => return Ok(None),
        };
        let Some(Self { rows, keys }) = Self::of(input, wanted)? else { return Ok(None) };
        // A number would keep a correlated subquery from becoming a join.
        let is_free = rows.all_out_ref_exprs().is_empty();
        let ordered = match plan {
            LogicalPlan::SubqueryAlias(alias) => Self { rows, keys }.named(alias)?,
            LogicalPlan::Projection(projection) => Self { rows, keys }.projected(projection)?,
            LogicalPlan::Window(_) if is_free => {
                let Self { rows, keys } = Self::numbered(rows)?;
                Self { rows: plan.with_new_exprs(plan.expressions(), vec![rows])?, keys }
            }
            // Behind it, as the elements of a list have an order, too.
            LogicalPlan::Unnest(_) if is_free => {
                Self::numbered(plan.with_new_exprs(plan.expressions(), vec![rows])?)?
            }
            plan => Self { rows: plan.with_new_exprs(plan.expressions(), vec![rows])?, keys },
        };
        Ok(Some(ordered))
    }

    /// Rows in the order in which they come, also those that the keys of their sort do not tell apart.
    fn numbered(rows: LogicalPlan) -> Result<Self> {
        let name = format!("{NUMBER}{}", rows.schema().fields().len());
        let number = row_number().alias(name.clone());
        let numbered = Window::try_new(vec![number], Arc::new(rows))?;
        let key = Expr::Column(Column::from_name(name)).sort(true, false);
        Ok(Self { rows: LogicalPlan::Window(numbered), keys: vec![key] })
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
