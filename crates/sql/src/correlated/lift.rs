//! Takes the conditions on a row of the query around a subquery up to its top.
//!
//! A condition that parts the rows, such as `inner.sensor = outer.sensor`, passes groups and windows when these are
//! parted in the same way: each row of the query around it then sees those that it would have without the others. Any
//! condition passes what looks at one row at a time. An aggregate without groups has a row also where there is
//! nothing; DataFusion knows about that where only projections are above it, so the conditions stay right below it.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, Join, Limit, LogicalPlan, Projection, SubqueryAlias, lit,
};

use super::condition::{Condition, Lifted, Names, Parts, columns, taken, with_more};
use super::refusals::{GROUPS, JOIN, refuse};
use super::{is_correlated, window};
use crate::tree::Tree;

/// Where a subquery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Exists,
    In,
    Scalar,
    Lateral,
}

/// A subquery whose conditions on a row of the query around it stand where DataFusion takes them rightly; `None` where
/// they do so already.
///
/// # Errors
/// `Unsupported` where they cannot be taken up.
pub(super) fn lifted(
    kind: Kind,
    plan: &LogicalPlan,
    names: &mut Names,
) -> Result<Option<LogicalPlan>> {
    if !is_correlated(plan) {
        return Ok(None);
    }
    let mut lift = Lift { kind, names, must: false, is_stuck: false, looked: Vec::new() };
    let top = lift.plan(plan, true)?;
    let has_one_name = |(at, column): (usize, &Column)| {
        lift.looked[..at].iter().all(|other| other.name != column.name || other == column)
    };
    lift.must |= !lift.looked.iter().enumerate().all(has_one_name);
    match (lift.must, lift.is_stuck) {
        (false, _) => return Ok(None),
        (true, true) => return refuse("in an expression that is not a condition", JOIN),
        (true, false) => {}
    }
    if top.has_one_row && matches!(kind, Kind::Exists | Kind::In) {
        return refuse("in an aggregate without GROUP BY", JOIN);
    }
    let is_first = kind == Kind::Scalar && !top.conditions.is_empty();
    if is_first && !top.conditions.iter().all(Condition::is_equal) {
        return refuse("by something else than = below LIMIT", GROUPS);
    }
    let is_first = is_first && plan.max_rows().is_some_and(|rows| rows <= 1);
    let filtered = filter(top.plan, top.conditions.into_iter().map(|condition| condition.expr))?;
    let restored = match is_first {
        true => first(plan, filtered)?,
        false => Projection::try_new(columns(plan), Arc::new(filtered))?,
    };
    Ok(Some(LogicalPlan::Projection(restored)))
}

/// The value of the only row, in a form that DataFusion takes for a single one.
fn first(like: &LogicalPlan, plan: LogicalPlan) -> Result<Projection> {
    let (qualifier, field) = like.schema().qualified_field(0);
    let value = Expr::Column(Column::from((qualifier, field)));
    let first = first_value_udaf().call(vec![value]);
    let aggregate = Aggregate::try_new(Arc::new(plan), vec![], vec![first])?;
    let (by, found) = aggregate.schema.qualified_field(0);
    let value = Expr::Column(Column::from((by, found)));
    let value = value.alias_qualified(qualifier.cloned(), field.name());
    Projection::try_new(vec![value], Arc::new(LogicalPlan::Aggregate(aggregate)))
}

struct Lift<'a> {
    kind: Kind,
    names: &'a mut Names,
    /// Whether DataFusion would be wrong with the plan as it is.
    must: bool,
    /// Whether some condition stayed.
    is_stuck: bool,
    /// The columns at which conditions look.
    looked: Vec<Column>,
}

fn filter(plan: LogicalPlan, parts: impl IntoIterator<Item = Expr>) -> Result<LogicalPlan> {
    Ok(match conjunction(parts) {
        Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?),
        None => plan,
    })
}

fn rows(plan: LogicalPlan, conditions: Vec<Condition>) -> Lifted {
    Lifted { plan, conditions, has_one_row: false }
}

impl Lift<'_> {
    /// `is_top` where nothing but whether there is a row is asked of what is above.
    fn plan(&mut self, plan: &LogicalPlan, is_top: bool) -> Result<Lifted> {
        if matches!(plan, LogicalPlan::Subquery(_)) || !is_correlated(plan) {
            return Ok(rows(plan.clone(), Vec::new()));
        }
        match plan {
            LogicalPlan::Filter(node) => self.filter(node),
            LogicalPlan::Join(node) => self.join(node),
            LogicalPlan::Projection(node) => self.projection(plan, node, is_top),
            LogicalPlan::Aggregate(node) => self.aggregate(plan, node),
            LogicalPlan::SubqueryAlias(node) => self.alias(node, is_top),
            LogicalPlan::Distinct(node) => self.distinct(plan, node, is_top),
            LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_) => {
                self.ordered(plan, is_top)
            }
            other => self.other(other),
        }
    }

    fn filter(&mut self, node: &Filter) -> Result<Lifted> {
        let below = self.plan(&node.input, false)?;
        if below.has_one_row {
            return refuse(
                "in an aggregate without GROUP BY below HAVING or another condition",
                "write CASE WHEN in SELECT, and the condition in the query around it",
            );
        }
        self.take(below, split_conjunction_owned(node.predicate.clone()))
    }

    /// Takes those out of some conditions that look at the query around them.
    fn take(&mut self, below: Lifted, parts: Vec<Expr>) -> Result<Lifted> {
        let (outer, own): (Vec<Expr>, Vec<Expr>) =
            parts.into_iter().partition(Expr::contains_outer);
        let Lifted { plan, mut conditions, has_one_row } = below;
        let plan = filter(plan, own)?;
        let mut computed = Vec::new();
        for expr in outer {
            for column in expr.column_refs() {
                if !self.looked.contains(column) {
                    self.looked.push(column.clone());
                }
            }
            let condition = taken(expr.clone(), plan.schema(), self.names, &mut computed)?;
            self.is_stuck |= condition.is_none();
            conditions.push(condition.unwrap_or(Condition { expr, keys: vec![], parts: None }));
        }
        Ok(Lifted { plan: with_more(plan, computed)?, conditions, has_one_row })
    }

    fn join(&mut self, node: &Join) -> Result<Lifted> {
        let (left, right) = (self.plan(&node.left, false)?, self.plan(&node.right, false)?);
        if left.has_one_row || right.has_one_row {
            return refuse("in an aggregate without GROUP BY beside a join", JOIN);
        }
        let on = node.filter.clone().map(split_conjunction_owned).unwrap_or_default();
        let (outer, own): (Vec<Expr>, Vec<Expr>) = on.into_iter().partition(Expr::contains_outer);
        let passes = match node.join_type {
            JoinType::Inner => (true, true, true),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (true, false, false)
            }
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                (false, true, false)
            }
            JoinType::Full => (false, false, false),
        };
        let is_there = |passes: bool, conditions: usize| !passes && conditions > 0;
        if is_there(passes.0, left.conditions.len())
            || is_there(passes.1, right.conditions.len())
            || is_there(passes.2, outer.len())
        {
            return refuse(
                "on the side of an outer join or EXCEPT that only says whether there is a partner",
                "write NOT EXISTS for rows without a partner, or join with the query around it",
            );
        }
        self.must |= left.conditions.len() + right.conditions.len() + outer.len() > 0;
        self.is_stuck |= node.on.iter().any(|(a, b)| a.contains_outer() || b.contains_outer());
        let mut conditions = left.conditions;
        conditions.extend(right.conditions);
        let join = Join {
            left: Arc::new(left.plan),
            right: Arc::new(right.plan),
            filter: conjunction(own),
            ..node.clone()
        };
        let plan = LogicalPlan::Join(join).recompute_schema()?;
        self.take(Lifted { plan, conditions, has_one_row: false }, outer)
    }

    fn projection(
        &mut self,
        plan: &LogicalPlan,
        node: &Projection,
        is_top: bool,
    ) -> Result<Lifted> {
        let mut below = self.plan(&node.input, is_top)?;
        self.is_stuck |= node.expr.iter().any(Expr::contains_outer);
        let is_constant = |expr: &Expr| !expr.any_column_refs() && !is_null(expr);
        if below.has_one_row && node.expr.iter().any(is_constant) {
            return refuse(
                "with a constant beside an aggregate without GROUP BY",
                "write the constant in the query around it",
            );
        }
        self.look(plan);
        let mut exprs = node.expr.clone();
        exprs.extend(below.conditions.iter().flat_map(Condition::columns));
        below.plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(below.plan))?);
        Ok(below)
    }

    /// Looks for columns that DataFusion would take for those of a condition.
    fn look(&mut self, plan: &LogicalPlan) {
        let schema = plan.schema();
        self.must |= self.looked.iter().any(|looked| {
            schema.columns().iter().any(|column| column.name == looked.name && column != looked)
        });
    }

    fn alias(&mut self, node: &SubqueryAlias, is_top: bool) -> Result<Lifted> {
        let below = self.plan(&node.input, is_top)?;
        self.must |= !below.conditions.is_empty() || below.has_one_row;
        if below.has_one_row {
            // DataFusion has a column of its own in such an aggregate, which passes nothing but projections.
            let names = columns(&below.plan).into_iter().map(|column| {
                let name = column.qualified_name().1;
                column.alias_qualified(Some(node.alias.clone()), name)
            });
            let plan = Projection::try_new(names.collect(), Arc::new(below.plan))?;
            let (plan, conditions) = (LogicalPlan::Projection(plan), below.conditions);
            return Ok(Lifted { plan, conditions, has_one_row: true });
        }
        let alias = SubqueryAlias::try_new(Arc::new(below.plan), node.alias.clone())?;
        let named = below.conditions.into_iter().map(|condition| condition.named(&alias));
        let conditions = named.collect::<Result<_>>()?;
        let plan = LogicalPlan::SubqueryAlias(alias);
        Ok(rows(plan, conditions))
    }

    fn aggregate(&mut self, plan: &LogicalPlan, node: &Aggregate) -> Result<Lifted> {
        let below = self.plan(&node.input, false)?;
        self.is_stuck |= node.group_expr.iter().any(Expr::contains_outer);
        let calls = node.aggr_expr.iter().map(|call| self.own(call, &below));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        if below.has_one_row {
            return refuse("in an aggregate without GROUP BY within another aggregate", JOIN);
        }
        if node.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
            return refuse("below ROLLUP, CUBE or GROUPING SETS", JOIN);
        }
        let parts: Vec<_> = below.conditions.iter().map(|condition| condition.parts).collect();
        if node.group_expr.is_empty() {
            if !below.conditions.iter().all(Condition::is_equal) {
                return refuse("by something else than = below an aggregate", GROUPS);
            }
            self.must |= parts.contains(&Some(Parts::Value));
            let conditions = below.conditions.into_iter().map(|condition| condition.expr);
            let input = Arc::new(filter(below.plan, conditions)?);
            let aggregate = Aggregate::try_new(input, node.group_expr.clone(), calls)?;
            let plan = LogicalPlan::Aggregate(aggregate);
            return Ok(Lifted { plan, conditions: Vec::new(), has_one_row: true });
        }
        self.check_groups(&parts, node.aggr_expr.is_empty())?;
        self.look(plan);
        let mut groups = node.group_expr.clone();
        groups.extend(below.conditions.iter().flat_map(Condition::columns));
        let aggregate = Aggregate::try_new(Arc::new(below.plan), groups, calls)?;
        Ok(rows(LogicalPlan::Aggregate(aggregate), below.conditions))
    }

    /// An aggregate in which columns of the subquery stand for those of the query around it that conditions say are equal.
    fn own(&mut self, call: &Expr, below: &Lifted) -> Result<Expr> {
        if !call.contains_outer() {
            return Ok(call.clone());
        }
        let name = NamePreserver::new_for_projection().save(call);
        let own = call.clone().transform_up(|node| {
            let stand_in = below.conditions.iter().find_map(|one| one.stand_in(&node));
            Ok(stand_in.map_or(Transformed::no(node), Transformed::yes))
        })?;
        self.must = true;
        self.is_stuck |= own.data.contains_outer();
        Ok(name.restore(own.data))
    }

    /// Groups may be parted, and rows that are the same may come more than once where only whether there are any counts.
    fn check_groups(&mut self, parts: &[Option<Parts>], is_distinct: bool) -> Result<()> {
        let is_free = is_distinct && matches!(self.kind, Kind::Exists | Kind::In);
        if !is_free && parts.contains(&None) {
            return refuse("by something else than = below GROUP BY or DISTINCT", GROUPS);
        }
        self.must |= !is_free && parts.iter().any(|parts| *parts != Some(Parts::Column));
        Ok(())
    }

    fn distinct(&mut self, plan: &LogicalPlan, node: &Distinct, is_top: bool) -> Result<Lifted> {
        let below = self.plan(node.input(), is_top)?;
        if below.has_one_row {
            self.must = true;
            return Ok(below);
        }
        let parts: Vec<_> = below.conditions.iter().map(|condition| condition.parts).collect();
        self.check_groups(&parts, matches!(node, Distinct::All(_)))?;
        self.look(plan);
        match node {
            Distinct::All(_) => {
                let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(below.plan)));
                Ok(rows(plan, below.conditions))
            }
            // DataFusion makes an aggregate of it.
            Distinct::On(_) => {
                self.is_stuck = true;
                Ok(rows(plan.clone(), below.conditions))
            }
        }
    }

    /// What depends on the order of rows.
    fn ordered(&mut self, plan: &LogicalPlan, is_top: bool) -> Result<Lifted> {
        self.must = true;
        self.is_stuck |= plan.contains_outer_reference();
        let (input, keeps_top) = match plan {
            LogicalPlan::Limit(node) => {
                // A condition on which rows are left comes after all that computes their columns.
                let below = match node.input.as_ref() {
                    LogicalPlan::Projection(projection) => &projection.input,
                    _ => &node.input,
                };
                let is_sorted = matches!(below.as_ref(), LogicalPlan::Sort(_));
                (if is_sorted { below } else { &node.input }, is_top)
            }
            LogicalPlan::Window(node) => (&node.input, false),
            LogicalPlan::Sort(node) => (&node.input, is_top),
            _ => return self.other(plan),
        };
        let exists = self.kind == Kind::Exists && is_top;
        let below = self.plan(input, keeps_top)?;
        let (has_one_row, parts) = (below.has_one_row, &below.conditions);
        let parted = parts.iter().all(|condition| condition.parts.is_some());
        match plan {
            // There is nothing to be ordered in one row, and the query around it has an order of its own.
            LogicalPlan::Sort(_) => Ok(below),
            LogicalPlan::Limit(node) if exists && window::takes_a_row(node)? => {
                self.limited(node, below)
            }
            LogicalPlan::Limit(node) if has_one_row && window::takes_a_row(node)? => Ok(below),
            _ if has_one_row => {
                refuse("in an aggregate without GROUP BY below a window function or OFFSET", JOIN)
            }
            LogicalPlan::Limit(_) if !parted => refuse(
                "by something else than = below LIMIT or OFFSET",
                "compare a column with = in that condition, or use ASOF JOIN for the nearest row",
            ),
            LogicalPlan::Limit(node) => {
                let sorted = match input.as_ref() {
                    LogicalPlan::Sort(sort) => sort.expr.clone(),
                    _ => Vec::new(),
                };
                let plan = window::numbered(node, sorted, &below, self.names)?;
                let Some(plan) = plan else { return refuse("below this LIMIT or OFFSET", JOIN) };
                self.limited(node, Lifted { plan, ..below })
            }
            _ if !parted => refuse(
                "by something else than = below a window function",
                "compare a column with = in that condition, or join with a subquery that has the window function",
            ),
            _ => Ok(Lifted { plan: window::parted(plan, &below)?, ..below }),
        }
    }

    /// What stands above the rows that were limited: the projection between the limit and the order.
    fn limited(&mut self, node: &Limit, below: Lifted) -> Result<Lifted> {
        match node.input.as_ref() {
            LogicalPlan::Projection(projection)
                if matches!(projection.input.as_ref(), LogicalPlan::Sort(_)) =>
            {
                self.is_stuck |= projection.expr.iter().any(Expr::contains_outer);
                let mut exprs = projection.expr.clone();
                exprs.extend(below.conditions.iter().flat_map(Condition::columns));
                let plan = Projection::try_new(exprs, Arc::new(below.plan))?;
                Ok(rows(LogicalPlan::Projection(plan), below.conditions))
            }
            _ => Ok(below),
        }
    }

    /// Everything else: what unnests lists keeps the columns beside them.
    fn other(&mut self, plan: &LogicalPlan) -> Result<Lifted> {
        let inputs = plan.inputs();
        if inputs.is_empty() {
            self.is_stuck = true;
            let stuck = Condition { expr: lit(true), keys: vec![], parts: None };
            return Ok(rows(plan.clone(), vec![stuck]));
        }
        let (LogicalPlan::Unnest(_), [input]) = (plan, inputs.as_slice()) else {
            let what = match plan {
                LogicalPlan::Union(_) => "below UNION",
                LogicalPlan::Extension(_) => "below ASOF JOIN",
                _ => "in this place",
            };
            return refuse(
                what,
                "write a condition with a subquery for each of its parts, or a join",
            );
        };
        let below = self.plan(input, false)?;
        if below.has_one_row {
            return refuse("in an aggregate without GROUP BY below unnest", JOIN);
        }
        self.must |= !below.conditions.is_empty();
        let plan = plan.with_new_exprs(plan.expressions(), vec![below.plan])?;
        Ok(rows(plan, below.conditions))
    }
}

fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Alias(alias) => is_null(&alias.expr),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}
