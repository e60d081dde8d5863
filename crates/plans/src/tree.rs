//! Walks through expressions and plans.
//!
//! DataFusion's walks are compiled for each closure that they call: some forty functions each time. So each walk is
//! compiled once for each kind of node, and calls whichever closure it is given.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

/// The walks of a kind of node, by the names of [`TreeNode`]; a file that uses these has no use for that.
pub trait Tree: Compiled {
    /// Looks at all nodes, each before those below it.
    ///
    /// # Errors
    /// Those of `look`.
    fn apply<'n>(
        &'n self,
        mut look: impl FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.applied(&mut look)
    }

    /// Whether something is true of any node.
    ///
    /// # Errors
    /// Those of `is_one`.
    fn exists(&self, mut is_one: impl FnMut(&Self) -> Result<bool>) -> Result<bool> {
        let mut found = false;
        self.applied(&mut |node| {
            found = is_one(node)?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    }

    /// Changes all nodes, each behind those below it.
    ///
    /// # Errors
    /// Those of `change`.
    fn transform_up(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transformed_up(&mut change)
    }

    /// Changes all nodes, each before those below it.
    ///
    /// # Errors
    /// Those of `change`.
    fn transform_down(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transformed_down(&mut change)
    }

    /// Changes the nodes just below this one.
    ///
    /// # Errors
    /// Those of `change`.
    fn map_children(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.children_mapped(&mut change)
    }

    /// Takes a rewriter to all nodes.
    ///
    /// # Errors
    /// Those of the rewriter.
    fn rewrite(
        self,
        rewriter: &mut impl TreeNodeRewriter<Node = Self>,
    ) -> Result<Transformed<Self>> {
        self.rewritten(rewriter)
    }
}

impl<N: Compiled> Tree for N {}

/// A closure that changes a node.
pub type Change<'a, N> = dyn FnMut(N) -> Result<Transformed<N>> + 'a;

/// A closure that looks at a node.
pub type Look<'a, 'n, N> = dyn FnMut(&'n N) -> Result<TreeNodeRecursion> + 'a;

/// The walks of [`Tree`] as they are compiled.
#[expect(missing_docs, reason = "each is that of `Tree` of nearly the same name")]
pub trait Compiled: Sized {
    fn applied<'n>(&'n self, look: &mut Look<'_, 'n, Self>) -> Result<TreeNodeRecursion>;
    fn transformed_up(self, change: &mut Change<'_, Self>) -> Result<Transformed<Self>>;
    fn transformed_down(self, change: &mut Change<'_, Self>) -> Result<Transformed<Self>>;
    fn children_mapped(self, change: &mut Change<'_, Self>) -> Result<Transformed<Self>>;
    fn rewritten(self, rewriter: &mut dyn BothWays<Self>) -> Result<Transformed<Self>>;
}

macro_rules! compiled {
    ($($node:ty),*) => {$(
        impl Compiled for $node {
            fn applied<'n>(&'n self, look: &mut Look<'_, 'n, Self>) -> Result<TreeNodeRecursion> {
                TreeNode::apply(self, look)
            }

            fn transformed_up(self, change: &mut Change<'_, Self>) -> Result<Transformed<Self>> {
                TreeNode::transform_up(self, change)
            }

            fn transformed_down(self, change: &mut Change<'_, Self>) -> Result<Transformed<Self>> {
                TreeNode::transform_down(self, change)
            }

            fn children_mapped(self, change: &mut Change<'_, Self>) -> Result<Transformed<Self>> {
                TreeNode::map_children(self, change)
            }

            fn rewritten(
                self,
                rewriter: &mut dyn BothWays<Self>,
            ) -> Result<Transformed<Self>> {
                TreeNode::rewrite(self, &mut Rewriter(rewriter))
            }
        }
    )*};
}
compiled!(Expr, LogicalPlan, Arc<dyn PhysicalExpr>, Arc<dyn ExecutionPlan>);

/// A rewriter that can be called as `dyn`.
#[expect(missing_docs, reason = "they are those of `TreeNodeRewriter`")]
pub trait BothWays<N> {
    fn down(&mut self, node: N) -> Result<Transformed<N>>;
    fn up(&mut self, node: N) -> Result<Transformed<N>>;
}

impl<N, R: TreeNodeRewriter<Node = N>> BothWays<N> for R {
    fn down(&mut self, node: N) -> Result<Transformed<N>> {
        self.f_down(node)
    }

    fn up(&mut self, node: N) -> Result<Transformed<N>> {
        self.f_up(node)
    }
}

struct Rewriter<'a, N>(&'a mut dyn BothWays<N>);

impl<N: TreeNode> TreeNodeRewriter for Rewriter<'_, N> {
    type Node = N;

    fn f_down(&mut self, node: N) -> Result<Transformed<N>> {
        self.0.down(node)
    }

    fn f_up(&mut self, node: N) -> Result<Transformed<N>> {
        self.0.up(node)
    }
}

/// Looks at the expressions of a node, not at what is below them.
///
/// # Errors
/// Those of `look`.
pub fn apply_expressions(
    node: &LogicalPlan,
    look: &mut dyn FnMut(&Expr) -> Result<TreeNodeRecursion>,
) -> Result<TreeNodeRecursion> {
    node.apply_expressions(look)
}

/// Changes the expressions of a node, not what is below them.
///
/// # Errors
/// Those of `change`.
pub fn map_expressions(
    node: LogicalPlan,
    change: &mut Change<'_, Expr>,
) -> Result<Transformed<LogicalPlan>> {
    node.map_expressions(change)
}

/// Changes the plans of the subqueries of a node's expressions.
///
/// # Errors
/// Those of `change`.
pub fn map_subqueries(
    node: LogicalPlan,
    change: &mut Change<'_, LogicalPlan>,
) -> Result<Transformed<LogicalPlan>> {
    node.map_subqueries(change)
}

/// Looks at all nodes, also those of subqueries, each before those below it.
///
/// # Errors
/// Those of `look`.
pub fn apply_with_subqueries(
    plan: &LogicalPlan,
    look: &mut dyn FnMut(&LogicalPlan) -> Result<TreeNodeRecursion>,
) -> Result<TreeNodeRecursion> {
    plan.apply_with_subqueries(look)
}

/// Changes all nodes, also those of subqueries, each behind those below it.
///
/// # Errors
/// Those of `change`.
pub fn transform_up_with_subqueries(
    plan: LogicalPlan,
    change: &mut Change<'_, LogicalPlan>,
) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(change)
}
