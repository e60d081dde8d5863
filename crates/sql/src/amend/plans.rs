//! A walk through a plan that amends its nodes, the lower ones first.
//!
//! What is above a column whose type is another now has other types, too:
//!
//! 1. The inputs of a node come first.
//! 2. The columns around it at which it looks get the types that they have now.
//! 3. The subqueries in its expressions come next, as they look at its inputs. A `LATERAL` is the right input of a join, and looks at
//!    the left one, which comes before it.
//! 4. Then the node gets its own types, and is amended.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{RecursiveQuery, Subquery};
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::outer::Outer;
use super::recursions::{anew, has_same_types, with_step};
use super::{Stage, schema_below};
use crate::correlated::{is_subquery, node_has};
use crate::tree::{Tree, apply_expressions, map_expressions, map_subqueries};

/// Amends a plan.
pub(super) fn amended(plan: LogicalPlan, stage: Stage) -> Result<LogicalPlan> {
    let mut walk = Walk::new(stage);
    Ok(plan.rewrite(&mut walk)?.data)
}

/// What is known of a plan on the way through it.
struct Walk {
    stage: Stage,
    /// Whether the type of a column is another now.
    has_other_types: bool,
    outer: Outer,
    /// The recursive terms of the queries that are walked through, as they were.
    recursive: Vec<Arc<LogicalPlan>>,
}

impl Walk {
    fn new(stage: Stage) -> Self {
        Self { stage, has_other_types: false, outer: Outer::default(), recursive: Vec::new() }
    }

    /// The subqueries in the expressions of a node.
    fn subqueries(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if !node_has(&node, is_subquery)? {
            return Ok(Transformed::no(node));
        }
        self.outer.enter(Arc::new(schema_below(&node)?));
        let walked = map_subqueries(node, &mut |inner| match inner {
            LogicalPlan::Subquery(Subquery { subquery, outer_ref_columns, spans }) => {
                let plan = Arc::unwrap_or_clone(subquery).rewrite(self)?;
                let subquery = Subquery { subquery: Arc::new(plan.data), outer_ref_columns, spans };
                let inner = LogicalPlan::Subquery(subquery);
                let inner = Transformed::new_transformed(inner, plan.transformed);
                inner.transform_data(|inner| self.outer.renew(inner))
            }
            other => Ok(Transformed::no(other)),
        });
        self.outer.leave();
        walked
    }

    /// A recursive query whose terms are amended, with its step as it was before that: over rows of other types the step is amended anew.
    fn recursion(
        &mut self,
        query: RecursiveQuery,
        written: Option<Arc<LogicalPlan>>,
    ) -> Result<Transformed<LogicalPlan>> {
        let has_other_rows = !has_same_types(&query.schema, query.static_term.schema());
        let step = match written.filter(|_| has_other_rows) {
            Some(written) => {
                let step = anew(written, &query)?;
                self.has_other_types = true;
                Arc::new(step.rewrite(self)?.data)
            }
            None => Arc::clone(&query.recursive_term),
        };
        with_step(query, step)
    }

    /// The types of a node, where others have changed.
    fn types(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        Ok(match self.has_other_types {
            true => Transformed::yes(node.recompute_schema()?),
            false => Transformed::no(node),
        })
    }
}

impl TreeNodeRewriter for Walk {
    type Node = LogicalPlan;

    fn f_down(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match &node {
            LogicalPlan::Join(join) => self.outer.expect_lateral(join),
            LogicalPlan::Subquery(inner) => self.outer.enter_lateral(inner),
            LogicalPlan::RecursiveQuery(query) => {
                self.recursive.push(Arc::clone(&query.recursive_term));
            }
            _ => {}
        }
        Ok(Transformed::no(node))
    }

    fn f_up(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let before = Arc::clone(node.schema());
        let node = self.outer.renew(node)?;
        self.has_other_types |= node.transformed;
        let node = match node.data {
            LogicalPlan::RecursiveQuery(query) => {
                let written = self.recursive.pop();
                self.recursion(query, written.filter(|_| self.stage == Stage::Before))?
            }
            LogicalPlan::Subquery(inner) => {
                self.outer.leave();
                Transformed::new_transformed(LogicalPlan::Subquery(inner), node.transformed)
            }
            other => {
                let node = Transformed::new_transformed(other, node.transformed);
                let node = node.transform_data(|node| self.subqueries(node))?;
                node.transform_data(|node| self.types(node))?
            }
        };
        let node = node.transform_data(|node| self.stage.amend_node(node))?;
        let node = node.transform_data(|node| amend_expressions(node, self.stage))?;
        self.has_other_types |= !has_same_types(&before, node.data.schema());
        self.outer.passed(node.data.schema());
        Ok(Transformed { tnr: TreeNodeRecursion::Continue, ..node })
    }
}

/// Amends the expressions of one node.
fn amend_expressions(node: LogicalPlan, stage: Stage) -> Result<Transformed<LogicalPlan>> {
    if !has_more_than_columns(&node)? {
        return Ok(Transformed::no(node));
    }
    let schema = schema_below(&node)?;
    let names = NamePreserver::new(&node);
    let named = |expr: Expr| {
        let name = names.save(&expr);
        Ok(stage.amend(expr, &schema)?.update_data(|expr| name.restore(expr)))
    };
    let amended = map_expressions(node, &mut |expr| match expr {
        // Its parts have names, and it has none.
        Expr::GroupingSet(_) => expr.map_children(named),
        // Its arguments are looked for among those.
        Expr::AggregateFunction(ref call) if call.func.name() == "grouping" => {
            expr.map_children(named)
        }
        expr => named(expr),
    })?;
    match amended.transformed {
        true => amended.map_data(LogicalPlan::recompute_schema),
        false => Ok(amended),
    }
}

/// Whether there is something to be looked at: layers have projections of ten thousand columns.
fn has_more_than_columns(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    apply_expressions(plan, &mut |expr| {
        let inner = if let Expr::Alias(alias) = expr { &alias.expr } else { expr };
        found |= !matches!(inner, Expr::Column(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
