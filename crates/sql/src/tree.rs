//! Walks through expressions and plans.
//!
//! DataFusion's walks are compiled anew for each closure that they call: some forty functions each time, and most of what this crate would be.
//! So each walk is compiled once for each kind of node, and calls whichever closure it is given.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The walks of [`TreeNode`], by the same names; a file that uses these has no use for that.
pub(crate) trait Tree: TreeNode {
    /// Looks at all nodes, each before those below it.
    fn apply<'n>(
        &'n self,
        mut look: impl FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let look: &mut dyn FnMut(&'n Self) -> Result<TreeNodeRecursion> = &mut look;
        TreeNode::apply(self, look)
    }

    /// Whether something is true of any node.
    fn exists(&self, mut is_one: impl FnMut(&Self) -> Result<bool>) -> Result<bool> {
        let is_one: &mut dyn FnMut(&Self) -> Result<bool> = &mut is_one;
        TreeNode::exists(self, is_one)
    }

    /// Changes all nodes, each behind those below it.
    fn transform_up(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        let change: &mut dyn FnMut(Self) -> Result<Transformed<Self>> = &mut change;
        TreeNode::transform_up(self, change)
    }

    /// Changes all nodes, each before those below it.
    fn transform_down(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        let change: &mut dyn FnMut(Self) -> Result<Transformed<Self>> = &mut change;
        TreeNode::transform_down(self, change)
    }

    /// Changes the nodes just below this one.
    fn map_children(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        let change: &mut dyn FnMut(Self) -> Result<Transformed<Self>> = &mut change;
        TreeNode::map_children(self, change)
    }

    /// Takes a rewriter to all nodes; it is compiled for each kind of rewriter.
    fn rewrite<R: TreeNodeRewriter<Node = Self>>(
        self,
        rewriter: &mut R,
    ) -> Result<Transformed<Self>> {
        TreeNode::rewrite(self, rewriter)
    }
}

impl<N: TreeNode> Tree for N {}

/// Looks at the expressions of a node, not at what is below them.
pub(crate) fn apply_expressions(
    node: &LogicalPlan,
    mut look: impl FnMut(&Expr) -> Result<TreeNodeRecursion>,
) -> Result<TreeNodeRecursion> {
    let look: &mut dyn FnMut(&Expr) -> Result<TreeNodeRecursion> = &mut look;
    node.apply_expressions(look)
}

/// Changes the expressions of a node, not what is below them.
pub(crate) fn map_expressions(
    node: LogicalPlan,
    mut change: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let change: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>> = &mut change;
    node.map_expressions(change)
}

/// Looks at all nodes, also those of subqueries, each before those below it.
pub(crate) fn apply_with_subqueries(
    plan: &LogicalPlan,
    mut look: impl FnMut(&LogicalPlan) -> Result<TreeNodeRecursion>,
) -> Result<TreeNodeRecursion> {
    let look: &mut dyn FnMut(&LogicalPlan) -> Result<TreeNodeRecursion> = &mut look;
    plan.apply_with_subqueries(look)
}

/// Changes all nodes, also those of subqueries, each behind those below it.
pub(crate) fn transform_up_with_subqueries(
    plan: LogicalPlan,
    mut change: impl FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    let change: &mut dyn FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>> = &mut change;
    plan.transform_up_with_subqueries(change)
}
