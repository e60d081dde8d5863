//! Makes as-of joins of marked ones, and moves conditions below them.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Extension, Join, LogicalPlan, LogicalPlanBuilder, Operator,
};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use tidefall_types::{Error, sql_type_name};

use super::Nearest;
use super::node::AsOfNode;
use super::syntax::MARK;
use crate::error::to_datafusion;
use crate::tree::{Tree, transform_up_with_subqueries};

fn invalid(why: String) -> DataFusionError {
    to_datafusion(Error::invalid(why))
}

/// Turns left joins with a mark into as-of joins.
#[derive(Debug)]
pub(crate) struct AsOfJoins;

impl AnalyzerRule for AsOfJoins {
    fn name(&self) -> &str {
        "tidefall_asof_joins"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let found = transform_up_with_subqueries(plan, &mut |node| match node {
            LogicalPlan::Join(join) if mark_of(&join).is_some() => {
                let node = Arc::new(asof_join(join)?);
                Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(found.data)
    }
}

/// The condition that the mark of a join surrounds.
fn mark_of(join: &Join) -> Option<&Expr> {
    split_conjunction(join.filter.as_ref()?).into_iter().find_map(marked)
}

fn marked(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == MARK => args.first(),
        _ => None,
    }
}

fn asof_join(join: Join) -> Result<AsOfNode> {
    let (left, right) = (Arc::unwrap_or_clone(join.left), Arc::unwrap_or_clone(join.right));
    let sides = Sides { left: left.schema(), right: right.schema() };
    let mut keys = Vec::new();
    for (one, other) in join.on {
        keys.push(sides.pair(one, other, "ON")?.0);
    }
    let mut time = None;
    for expr in join.filter.map(split_conjunction_owned).unwrap_or_default() {
        let (expr, is_time) = match marked(&expr) {
            Some(condition) => (condition.clone(), true),
            None => (expr, false),
        };
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_time => {
                let (pair, is_swapped) = sides.pair(*left, *right, "MATCH_CONDITION")?;
                let op = if is_swapped { op.swap() } else { Some(op) };
                time = op.and_then(Nearest::of).map(|nearest| (pair, nearest));
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if !is_time => {
                keys.push(sides.pair(*left, *right, "ON")?.0);
            }
            // A join without keys.
            Expr::Literal(value, _) if value == true.into() => {}
            _ if !is_time => {
                return Err(invalid(format!(
                    "ASOF JOIN takes equalities of both sides in ON, not {expr}"
                )));
            }
            _ => time = None,
        }
    }
    let Some((time, nearest)) = time else {
        return Err(invalid(
            "MATCH_CONDITION of an ASOF JOIN wants one of >=, >, <= and < between a time of each \
             side"
                .to_owned(),
        ));
    };
    AsOfNode::new(left, right, keys, time, nearest)
}

/// The columns of both sides of a join.
struct Sides<'a> {
    left: &'a DFSchema,
    right: &'a DFSchema,
}

impl Sides<'_> {
    /// The expression over the left and the one over the right side, of the same type, and whether they
    /// stood the other way round.
    fn pair(&self, one: Expr, other: Expr, place: &str) -> Result<((Expr, Expr), bool)> {
        let (left, right, is_swapped) = if is_over(&one, self.left) && is_over(&other, self.right) {
            (one, other, false)
        } else if is_over(&other, self.left) && is_over(&one, self.right) {
            (other, one, true)
        } else {
            return Err(invalid(format!(
                "{place} of an ASOF JOIN wants columns of both sides, not {one} and {other}"
            )));
        };
        let types = (left.get_type(self.left)?, right.get_type(self.right)?);
        let Some(ty) = comparison_coercion(&types.0, &types.1) else {
            return Err(invalid(format!(
                "{left} ({}) cannot be compared with {right} ({})",
                sql_type_name(&types.0),
                sql_type_name(&types.1)
            )));
        };
        Ok(((left.cast_to(&ty, self.left)?, right.cast_to(&ty, self.right)?), is_swapped))
    }
}

fn is_over(expr: &Expr, schema: &DFSchema) -> bool {
    let columns = expr.column_refs();
    !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
}

/// Moves conditions on the left side of an as-of join below it, and to its right side those that hold
/// there, too: on keys, and on time where it only leaves out what is never nearest.
#[derive(Debug)]
pub(crate) struct AsOfFilters;

impl OptimizerRule for AsOfFilters {
    fn name(&self) -> &str {
        "tidefall_asof_filters"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = &plan else { return Ok(Transformed::no(plan)) };
        let LogicalPlan::Extension(extension) = &*filter.input else {
            return Ok(Transformed::no(plan));
        };
        let Some(node) = extension.node.as_any().downcast_ref::<AsOfNode>() else {
            return Ok(Transformed::no(plan));
        };
        let may_move = |expr: &Expr| is_over(expr, node.left.schema()) && !expr.is_volatile();
        let (below, above): (Vec<Expr>, Vec<Expr>) =
            split_conjunction_owned(filter.predicate.clone()).into_iter().partition(may_move);
        if below.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let on_right = below.iter().filter_map(|expr| on_right(node, expr).transpose());
        let on_right = on_right.collect::<Result<Vec<Expr>>>()?;
        let node = AsOfNode::new(
            filtered(node.left.clone(), below)?,
            filtered(node.right.clone(), on_right)?,
            node.keys.clone(),
            node.time.clone(),
            node.nearest,
        )?;
        let join = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        filtered(join, above).map(Transformed::yes)
    }
}

fn filtered(plan: LogicalPlan, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    match conjunction(conditions) {
        Some(predicate) => LogicalPlanBuilder::from(plan).filter(predicate)?.build(),
        None => Ok(plan),
    }
}

/// The condition on the right side that follows from one on the left.
fn on_right(node: &AsOfNode, condition: &Expr) -> Result<Option<Expr>> {
    let columns = condition.column_refs();
    let key = |column: &Column| {
        let pairs = node.keys.iter().filter_map(|(left, right)| match (left, right) {
            (Expr::Column(left), Expr::Column(right)) => Some((left, right)),
            _ => None,
        });
        pairs.into_iter().find(|(left, _)| *left == column).map(|(_, right)| right.clone())
    };
    if columns.iter().all(|column| key(column).is_some()) {
        return replaced(condition, key).map(Some);
    }
    let (Expr::Column(left), Expr::Column(right)) = &node.time else { return Ok(None) };
    let bounds = match condition {
        Expr::BinaryExpr(BinaryExpr { left: one, op, right: other }) => match (&**one, &**other) {
            (Expr::Column(column), Expr::Literal(..)) if column == left => Some(*op),
            (Expr::Literal(..), Expr::Column(column)) if column == left => op.swap(),
            _ => None,
        },
        _ => None,
    };
    let is_bound = match bounds {
        Some(Operator::Lt | Operator::LtEq) => node.nearest.is_before,
        Some(Operator::Gt | Operator::GtEq) => !node.nearest.is_before,
        _ => false,
    };
    match is_bound {
        true => replaced(condition, |column| (column == left).then(|| right.clone())).map(Some),
        false => Ok(None),
    }
}

fn replaced(condition: &Expr, other: impl Fn(&Column) -> Option<Column>) -> Result<Expr> {
    let replaced = condition.clone().transform_up(|expr| {
        Ok::<_, DataFusionError>(match &expr {
            Expr::Column(column) => match other(column) {
                Some(column) => Transformed::yes(Expr::Column(column)),
                None => Transformed::no(expr),
            },
            _ => Transformed::no(expr),
        })
    })?;
    Ok(replaced.data)
}
