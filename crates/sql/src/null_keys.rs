//! Joins whose keys are the same where both are NULL: `ON a.host IS NOT DISTINCT FROM b.host`.
//!
//! DataFusion has such keys in joins in which NULL is equal to NULL for all keys. It then adds keys of other conditions to
//! these joins, `WHERE a.n = b.n`, and keys of other joins, as if NULL were equal to NULL there, too. Here such a join takes no
//! keys but its own, and they become keys last, when all conditions are where they belong.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, Operator};
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::instead::named_as_inner;
use crate::tree::apply_with_subqueries;

/// Makes keys of what is equal, and of nothing else.
#[derive(Debug)]
pub(crate) struct EqualKeys(ExtractEquijoinPredicate);

/// Makes keys of what is not distinct where there are no others.
#[derive(Debug, Default)]
pub(crate) struct SameKeys(ExtractEquijoinPredicate);

/// DataFusion's rule, which orders joins anew, but where NULL is equal to NULL in one of them.
#[derive(Debug)]
pub(crate) struct OrderJoins(EliminateCrossJoin);

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// Puts them in the place of DataFusion's rules.
pub(crate) fn instead_of(rule: Rule) -> Rule {
    let (keys, order) = (ExtractEquijoinPredicate::new(), EliminateCrossJoin::new());
    match rule.name() {
        name if name == keys.name() => Arc::new(EqualKeys(keys)),
        name if name == order.name() => Arc::new(OrderJoins(order)),
        _ => rule,
    }
}

/// Whether a node is a join in which NULL is equal to NULL.
fn takes_null(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Join(Join { null_equality: NullEquality::NullEqualsNull, .. }))
}

/// Whether a join asks for what is not distinct.
fn asks_for_null(node: &LogicalPlan) -> bool {
    let LogicalPlan::Join(Join { filter: Some(filter), .. }) = node else { return false };
    split_conjunction(filter).into_iter().any(
        |part| matches!(part, Expr::BinaryExpr(part) if part.op == Operator::IsNotDistinctFrom),
    )
}

impl OptimizerRule for EqualKeys {
    named_as_inner!();

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if takes_null(&plan) {
            return Ok(Transformed::no(plan));
        }
        if !asks_for_null(&plan) {
            return self.0.rewrite(plan, config);
        }
        let rewritten = self.0.rewrite(plan.clone(), config)?;
        Ok(if takes_null(&rewritten.data) { Transformed::no(plan) } else { rewritten })
    }
}

impl OptimizerRule for SameKeys {
    fn name(&self) -> &str {
        "tidefall_same_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match !takes_null(&plan) && asks_for_null(&plan) {
            true => self.0.rewrite(plan, config),
            false => Ok(Transformed::no(plan)),
        }
    }
}

impl OptimizerRule for OrderJoins {
    named_as_inner!();

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let mut found = false;
        apply_with_subqueries(&plan, &mut |node| {
            let is_inner = |join: &Join| join.join_type == JoinType::Inner;
            found |= takes_null(node) && matches!(node, LogicalPlan::Join(join) if is_inner(join));
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        match found {
            true => Ok(Transformed::no(plan)),
            false => self.0.rewrite(plan, config),
        }
    }
}
