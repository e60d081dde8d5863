//! Conditions on lists are simplified to what means the same where values are NULL.
//!
//! DataFusion makes one list of two that stand beside each other, and where nothing is left in it true or false: `n NOT IN (1, 2)
//! OR n NOT IN (3, 4)` is true then, also where `n` is NULL, of which nothing is known. It takes NULL, and columns, in a list for
//! values like others. Here it gets to see one of such lists, the others are hidden meanwhile. Those of which one list can be
//! made, `n IN (1, 2) OR n IN (3)`, it sees, and lists of values in a condition that keeps rows, where what is unknown is as
//! good as false.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::amend::any_one;
use crate::instead::named_as_inner;
use crate::tree::{Tree, apply_expressions, map_expressions};

/// DataFusion's rule, which does not get to see lists that it would combine wrongly.
#[derive(Debug)]
struct Simplify(SimplifyExpressions);

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// Puts it in the place of DataFusion's rule.
pub(crate) fn instead_of(rule: Rule) -> Rule {
    let simplify = SimplifyExpressions::new();
    if rule.name() == simplify.name() { Arc::new(Simplify(simplify)) } else { rule }
}

impl OptimizerRule for Simplify {
    named_as_inner!();

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !has_lists(&plan)? {
            return self.0.rewrite(plan, config);
        }
        let is_condition = matches!(plan, LogicalPlan::Filter(_));
        let names = NamePreserver::new(&plan);
        let mut hide_in = |expr: Expr| {
            let name = names.save(&expr);
            Ok(Transformed::yes(name.restore(hide(expr, is_condition)?)))
        };
        let hidden = map_expressions(plan, &mut |expr| match expr {
            // Its parts have names, and it has none.
            Expr::GroupingSet(_) => expr.map_children(&mut hide_in),
            expr => hide_in(expr),
        })?;
        let simple = self.0.rewrite(hidden.data, config)?;
        let shown = map_expressions(simple.data, &mut |expr| Ok(Transformed::yes(show(expr)?)))?;
        Ok(Transformed::new_transformed(shown.data, simple.transformed))
    }
}

/// Whether an expression of a node has conditions that might be combined.
fn has_lists(plan: &LogicalPlan) -> Result<bool> {
    let mut lists = 0;
    apply_expressions(plan, &mut |expr| {
        expr.apply(|part| {
            lists += usize::from(match part {
                Expr::InList(_) => true,
                Expr::BinaryExpr(part) => part.op == Operator::Eq,
                _ => false,
            });
            Ok(if lists > 1 { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(lists > 1)
}

/// The expression with lists hidden that would be combined wrongly. What is unknown may become false in a condition that
/// keeps rows.
pub(crate) fn hide(mut expr: Expr, is_condition: bool) -> Result<Expr> {
    let op = match &expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => *op,
        _ => return Ok(expr.map_children(|child| Ok(Transformed::yes(hide(child, false)?)))?.data),
    };
    let is_condition = is_condition && op == Operator::And;
    // What is seen of the lists of a value: whether one list may be made of all of them, and whether all are plain.
    let mut seen: HashMap<Expr, (bool, bool)> = HashMap::new();
    // The tree stays as it is: one of very many parts is not deep.
    for_each_part(&mut expr, op, &mut |part| {
        *part = hide(std::mem::take(part), is_condition)?;
        let Some(list) = List::of(part) else { return Ok(()) };
        let mine = (list.joined_by == op, list.is_plain);
        let all = match seen.get(&list.value) {
            Some(others) => (mine.0 && others.0, mine.1 && others.1),
            None => mine,
        };
        let may_be_seen = all.0 || is_condition && all.1 || !seen.contains_key(&list.value);
        match may_be_seen {
            true => drop(seen.insert(list.value, all)),
            false => *part = HIDDEN.call(vec![std::mem::take(part)]),
        }
        Ok(())
    })?;
    Ok(expr)
}

/// Does something with each part of a chain of ANDs or of ORs.
fn for_each_part(
    expr: &mut Expr,
    op: Operator,
    change: &mut impl FnMut(&mut Expr) -> Result<()>,
) -> Result<()> {
    match expr {
        Expr::BinaryExpr(chain) if chain.op == op => {
            for_each_part(&mut chain.left, op, change)?;
            for_each_part(&mut chain.right, op, change)
        }
        part => change(part),
    }
}

/// The expression with nothing hidden.
pub(crate) fn show(expr: Expr) -> Result<Expr> {
    let shown = expr.transform_up(|part| {
        Ok(match part {
            Expr::ScalarFunction(mut call) if call.func.inner().is::<Hidden>() => {
                Transformed::yes(call.args.swap_remove(0))
            }
            part => Transformed::no(part),
        })
    })?;
    Ok(shown.data)
}

/// A condition that is one on a list, or becomes one.
struct List {
    value: Expr,
    /// What makes one list of several of its kind.
    joined_by: Operator,
    /// Whether all that is listed are values, and none of them is NULL.
    is_plain: bool,
}

impl List {
    fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::InList(InList { expr, list, negated }) => Some(Self {
                value: expr.as_ref().clone(),
                joined_by: if *negated { Operator::And } else { Operator::Or },
                is_plain: list.iter().all(is_value),
            }),
            Expr::Not(inner) => {
                let list = Self::of(inner)?;
                let joined_by = match list.joined_by {
                    Operator::And => Operator::Or,
                    _ => Operator::And,
                };
                Some(Self { joined_by, ..list })
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::Eq | Operator::NotEq => {
                    let (value, one) =
                        if right.any_column_refs() { (right, left) } else { (left, right) };
                    let joined_by = if *op == Operator::Eq { Operator::Or } else { Operator::And };
                    is_literal(one).then(|| Self {
                        value: value.as_ref().clone(),
                        joined_by,
                        is_plain: is_value(one),
                    })
                }
                Operator::And | Operator::Or => {
                    let (left_is, right_is) = (left.any_column_refs(), right.any_column_refs());
                    match (left_is, right_is) {
                        // What has no columns may turn out to say nothing.
                        (true, false) => Self::of(left),
                        (false, true) => Self::of(right),
                        _ => {
                            let (left, right) = (Self::of(left)?, Self::of(right)?);
                            let is_one = left.value == right.value
                                && left.joined_by == *op
                                && right.joined_by == *op;
                            let is_plain = left.is_plain && right.is_plain;
                            is_one.then_some(Self { is_plain, ..left })
                        }
                    }
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

fn is_value(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if !value.is_null())
}

static HIDDEN: LazyLock<ScalarUDF> = LazyLock::new(|| ScalarUDF::new_from_impl(Hidden));

/// A condition that is not looked into.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Hidden;

impl ScalarUDFImpl for Hidden {
    fn name(&self) -> &str {
        "hidden"
    }

    fn signature(&self) -> &Signature {
        any_one()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
