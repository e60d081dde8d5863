//! `EXISTS` and `IN (subquery)` as values.
//!
//! DataFusion makes joins of those in `WHERE`, where it compares all rows of the subquery with all rows around it that are
//! equal, and takes what is unknown within `OR` (`NOT IN` of rows with a NULL) for known. In `SELECT`, `CASE` and
//! `FILTER` it cannot run them.
//!
//! Here a condition that stands alone becomes a join that keeps rows, and every other one the mark of a join below its
//! node, with each value of the subquery once. `x IN (...)` is true with a partner; without one it is NULL if `x` is NULL
//! and the subquery has a row, or if the subquery has a NULL.

mod join;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator,
    Subquery, TryCast, lit, not, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use crate::correlated::{node_has, refuse, too_many_parts};
use crate::tree::{Tree, apply_with_subqueries, map_expressions, transform_up_with_subqueries};
use join::{has_any_row, joined};

/// The name of the values in a subquery of `NOT IN`.
const AMONG: &str = "__among";

/// Makes joins of subqueries that are asked for rows, when the types of everything are known.
#[derive(Debug)]
pub(crate) struct Marks;

impl AnalyzerRule for Marks {
    fn name(&self) -> &str {
        "tidefall_marks"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !asks_for_rows(&plan)? {
            return Ok(plan);
        }
        let mut made = Made::default();
        let marked = transform_up_with_subqueries(plan, &mut |node| {
            // Values may be NULL now where they could not be before.
            Ok(Transformed::yes(mark_node(node, &mut made)?.recompute_schema()?))
        })?;
        Ok(marked.data)
    }
}

/// Whether any part of a plan has such a subquery.
fn asks_for_rows(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    apply_with_subqueries(plan, &mut |node| {
        found = node_has(node, is_predicate)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn is_predicate(expr: &Expr) -> bool {
    matches!(expr, Expr::Exists(_) | Expr::InSubquery(_))
}

fn has_predicate(expr: &Expr) -> bool {
    expr.exists(|part| Ok(is_predicate(part))).unwrap_or(false)
}

fn mark_node(node: LogicalPlan, made: &mut Made) -> Result<LogicalPlan> {
    let has_any = node_has(&node, is_predicate)?;
    match node {
        node if !has_any => Ok(node),
        LogicalPlan::Filter(filter) => mark_filter(filter, made),
        LogicalPlan::Join(join) => join::mark_sides(join, made),
        node => match node.inputs().as_slice() {
            [input] => mark_values(Arc::new((*input).clone()), node, made),
            _ => Ok(node),
        },
    }
}

/// Joins of conditions that stand alone, and marks of others.
fn mark_filter(filter: Filter, made: &mut Made) -> Result<LogicalPlan> {
    let columns = filter.input.schema().columns();
    let mut maker = Maker::new(filter.input, made);
    let (mut left_alone, mut others) = (Vec::new(), Vec::new());
    for condition in split_conjunction_owned(filter.predicate) {
        match Condition::of(condition) {
            Condition::Join { subquery, value, join_type } => {
                maker.join(&subquery, value.as_ref(), join_type)?;
            }
            Condition::NotAmong { value, subquery } => {
                let values = subquery.subquery.schema().columns().into_iter();
                // A name of its own, as the value may have no table before it.
                let values = values.map(|column| Expr::Column(column).alias(AMONG));
                let distinct = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
                let distinct = distinct.project(values)?.distinct()?.build()?;
                let subquery = Subquery { subquery: Arc::new(distinct), ..subquery };
                left_alone.push(Expr::InSubquery(InSubquery::new(Box::new(value), subquery, true)));
            }
            Condition::Other(condition) => others.push(maker.value(condition, true)?),
        }
    }
    let is_marked = maker.is_marked;
    let mut plan = LogicalPlanBuilder::from(maker.input);
    if let Some(condition) = conjunction(others) {
        plan = plan.filter(condition)?;
    }
    if is_marked {
        plan = plan.project(columns.into_iter().map(Expr::Column))?;
    }
    match conjunction(left_alone) {
        Some(condition) => plan.filter(condition)?.build(),
        None => plan.build(),
    }
}

/// What becomes of a condition.
enum Condition {
    /// It keeps rows with a partner in a subquery, or without one.
    Join {
        subquery: Subquery,
        value: Option<Expr>,
        join_type: JoinType,
    },
    /// A column `NOT IN` a subquery that looks at nothing else, which DataFusion knows how to join.
    NotAmong {
        value: Expr,
        subquery: Subquery,
    },
    Other(Expr),
}

impl Condition {
    fn of(condition: Expr) -> Self {
        let (inner, is_inverted) = match &condition {
            Expr::Not(inner) => (&**inner, true),
            inner => (inner, false),
        };
        let (subquery, value, negated) = match inner {
            Expr::Exists(exists) => (&exists.subquery, None, exists.negated != is_inverted),
            Expr::InSubquery(call) => {
                (&call.subquery, Some(call.expr.as_ref()), call.negated != is_inverted)
            }
            _ => return Self::Other(condition),
        };
        let is_correlated = !subquery.outer_ref_columns.is_empty();
        let join_type = match (value, negated, is_correlated) {
            (Some(value), ..) if has_predicate(value) => return Self::Other(condition),
            (Some(value), true, false) if is_column(value) => {
                return Self::NotAmong { value: value.clone(), subquery: subquery.clone() };
            }
            (Some(_), true, _) | (None, _, false) => return Self::Other(condition),
            (_, false, _) => JoinType::LeftSemi,
            (None, true, true) => JoinType::LeftAnti,
        };
        Self::Join { subquery: subquery.clone(), value: value.cloned(), join_type }
    }
}

/// Whether a value is a column, in whatever type. Of one that might turn out to be constant DataFusion makes a condition within the
/// subquery, and forgets the NULL among its values.
fn is_column(value: &Expr) -> bool {
    match value {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => is_column(expr),
        _ => false,
    }
}

/// Marks of values that a node computes.
fn mark_values(input: Arc<LogicalPlan>, node: LogicalPlan, made: &mut Made) -> Result<LogicalPlan> {
    let shows_input = matches!(node, LogicalPlan::Window(_) | LogicalPlan::Sort(_));
    let columns = node.schema().columns();
    let names = NamePreserver::new(&node);
    let mut maker = Maker::new(input, made);
    let computed = map_expressions(node, &mut |expr| {
        let name = names.save(&expr);
        Ok(Transformed::yes(name.restore(maker.value(expr, false)?)))
    })?;
    let exprs = computed.data.expressions();
    let (input, is_marked) = (Arc::unwrap_or_clone(maker.input), maker.is_marked);
    let plan = computed.data.with_new_exprs(exprs, vec![input])?;
    match is_marked && shows_input {
        true => {
            LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()
        }
        false => Ok(plan),
    }
}

/// Subqueries are asked up to three times where NULL may come of them, and those within them, too.
const COPIED_MAX: usize = 20_000;

/// What has been made of a plan so far.
#[derive(Debug, Default)]
struct Made {
    joins: usize,
    /// Nodes of subqueries that are asked once more.
    copied: usize,
}

impl Made {
    fn copy(&mut self, plan: &LogicalPlan) -> Result<()> {
        apply_with_subqueries(plan, &mut |_| {
            self.copied += 1;
            Ok(match self.copied > COPIED_MAX {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        match self.copied > COPIED_MAX {
            true => Err(too_many_parts(COPIED_MAX)),
            false => Ok(()),
        }
    }
}

/// Puts joins below a node, and their marks into its expressions.
struct Maker<'a> {
    input: Arc<LogicalPlan>,
    made: &'a mut Made,
    is_marked: bool,
}

impl<'a> Maker<'a> {
    fn new(input: Arc<LogicalPlan>, made: &'a mut Made) -> Self {
        Self { input, made, is_marked: false }
    }

    /// An expression of the marks; where only truth is asked for, what is unknown may be false.
    fn value(&mut self, expr: Expr, only_truth: bool) -> Result<Expr> {
        if !has_predicate(&expr) {
            return Ok(expr);
        }
        match expr {
            Expr::Exists(Exists { subquery, negated }) => {
                let exists = self.exists(subquery)?;
                Ok(if negated { not(exists) } else { exists })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let value = self.value(*expr, false)?;
                match negated {
                    true => Ok(not(self.is_among(value, subquery, false)?)),
                    false => self.is_among(value, subquery, only_truth),
                }
            }
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: op @ (Operator::And | Operator::Or),
                right,
            }) => {
                let left = Box::new(self.value(*left, only_truth)?);
                let right = Box::new(self.value(*right, only_truth)?);
                Ok(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::IsTrue(inner) => Ok(Expr::IsTrue(Box::new(self.value(*inner, true)?))),
            Expr::IsNotTrue(inner) => Ok(Expr::IsNotTrue(Box::new(self.value(*inner, true)?))),
            Expr::Case(mut case) => {
                let is_searched = case.expr.is_none();
                for (condition, _) in &mut case.when_then_expr {
                    let inner = std::mem::take(&mut **condition);
                    **condition = self.value(inner, is_searched)?;
                }
                self.values_within(Expr::Case(case))
            }
            Expr::AggregateFunction(mut call) => {
                if let Some(filter) = call.params.filter.take() {
                    call.params.filter = Some(Box::new(self.value(*filter, true)?));
                }
                self.values_within(Expr::AggregateFunction(call))
            }
            other => self.values_within(other),
        }
    }

    fn values_within(&mut self, expr: Expr) -> Result<Expr> {
        let parts = expr.map_children(|part| Ok(Transformed::yes(self.value(part, false)?)))?;
        Ok(parts.data)
    }

    fn exists(&mut self, subquery: Subquery) -> Result<Expr> {
        match subquery.outer_ref_columns.is_empty() {
            true => has_any_row(subquery),
            false => self.mark(&subquery, None),
        }
    }

    fn is_among(&mut self, value: Expr, subquery: Subquery, only_truth: bool) -> Result<Expr> {
        check_value(&value)?;
        let found = self.mark(&subquery, Some(&value))?;
        let (qualifier, column) = subquery.subquery.schema().qualified_field(0);
        let may_value = value.nullable(self.input.schema())?;
        if only_truth || !(may_value || column.is_nullable()) {
            return Ok(found);
        }
        let column = Expr::Column((qualifier, column).into());
        self.made.copy(&subquery.subquery)?;
        let unknown = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
        let unknown = unknown.filter(column.is_null())?.build()?;
        let unknown = Subquery { subquery: Arc::new(unknown), ..subquery.clone() };
        let mut is_unknown = self.exists(unknown)?;
        if may_value {
            is_unknown = value.is_null().and(self.exists(subquery)?).or(is_unknown);
        }
        let null = Expr::Literal(ScalarValue::Boolean(None), None);
        when(found, lit(true)).when(is_unknown, null).otherwise(lit(false))
    }

    /// Keeps the rows of the input for which a subquery has a row, or those for which it has none.
    fn join(
        &mut self,
        subquery: &Subquery,
        value: Option<&Expr>,
        join_type: JoinType,
    ) -> Result<String> {
        self.made.joins += 1;
        let alias = format!("__mark_{}", self.made.joins);
        self.input = Arc::new(joined(&self.input, subquery, value, join_type, &alias)?);
        Ok(alias)
    }

    /// Whether a subquery has a row for a row of the input, one that is equal to a value if there is one.
    fn mark(&mut self, subquery: &Subquery, value: Option<&Expr>) -> Result<Expr> {
        self.is_marked = true;
        let alias = self.join(subquery, value, JoinType::LeftMark)?;
        Ok(Expr::Column(Column::new(Some(alias), "mark")))
    }
}

/// A value is put into the condition of a join, where DataFusion knows of no query around it.
fn check_value(value: &Expr) -> Result<()> {
    let looks_around = |part: &Expr| match part {
        Expr::ScalarSubquery(inner) => !inner.outer_ref_columns.is_empty(),
        part => matches!(part, Expr::OuterReferenceColumn(..)),
    };
    match value.exists(|part| Ok(looks_around(part)))? {
        true => refuse(
            "in a value that is looked for by IN",
            "name the value in a subquery in FROM, and look for that name",
        ),
        false => Ok(()),
    }
}

/// Whether all columns of an expression are among those of a schema.
fn looks_at_only(expr: &Expr, schema: &DFSchema) -> bool {
    let mut is_only = true;
    let mut look = |column: &Column| is_only &= schema.has_column(column);
    let walked = expr.apply(|part| {
        match part {
            Expr::Column(column) => look(column),
            Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. }) => {
                for outer in &subquery.outer_ref_columns {
                    if let Expr::OuterReferenceColumn(_, column) = outer {
                        look(column);
                    }
                }
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok() && is_only
}
