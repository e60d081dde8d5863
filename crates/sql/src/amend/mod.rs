//! Expressions that mean something else in DataFusion than here, put right before anything is optimised.
//!
//! Types are known when they are, so that what type coercion has put into a plan is amended, too:
//!
//! - `texts.rs`: texts become times in all the forms in which people write them, wherever they are cast to one.
//! - `casts.rs`: DataFusion takes casts off a column that it compares with a constant, also casts that change what
//!   is compared, such as one to another time zone. Those it does not get to see.
//! - `floats.rs`: what computes a float may make a NaN with a sign or a -0.0, which then compare, sort and hash as
//!   values of their own. Floats get their one form where that can be seen.
//! - `aggregates.rs`: tags are ordered and counted as texts.
//! - `../functions/between.rs`: `BETWEEN` draws what is random once, and compares lists and structs as they are ordered.
//! - `../functions/listed.rs`: what each row has of its own in an `IN` list is no constant.
//! - `../functions/nested_order.rs`: lists and structs are compared as they are ordered.
//! - `../functions/years.rs`: the year of a time is not compared with one that ends beyond the range of times.
//! - `subqueries.rs`: a subquery without a row is NULL, whatever its column is.
//! - `zones.rs`: a time without a zone is one in UTC also where it is compared with one that has a zone. This comes
//!   before the types are coerced.
//! - `numbers.rs`: decimals beside floats are floats. This comes before, too.
//! - `apart.rs`: whole numbers are compared with whole numbers, whatever floats stand beside them. This comes before, too.
//! - `nullif.rs`: `nullif` compares its values so, and answers with the first as it is. This comes before, too.
//! - `spans.rs`: intervals and differences of times are compared by their lengths. This comes before, too.
//! - `booleans.rs`: texts beside booleans are cast. This comes before, too.
//! - `chosen.rs`: texts that are written beside times are times, where one of both is chosen. This comes before, too.
//! - `similar.rs`: `SIMILAR TO` is about the whole text. This comes before, too.
//! - `forms.rs`: forms of times in which no part of the time is named are refused.
//! - `frames.rs`: windows by what has no ranges are windows by what is ordered alike.
//! - `offsets.rs`: windows with offsets below zero, or that begin behind their end, are refused.
//!
//! `plans.rs` walks through plans, in which what is above a column whose type is another now has other types, too: `outer.rs` renews
//! those of the columns around subqueries, and `recursions.rs` those of `WITH RECURSIVE`.
//!
//! `compared.rs` tells which parts of an expression are compared with each other, `chosen.rs` of which of them one is its answer, and
//! `nodes.rs` what nodes of a plan compare by themselves. `columns.rs` puts something else in the place of their columns.

mod aggregates;
mod apart;
mod booleans;
mod casts;
mod chosen;
mod columns;
mod compared;
mod floats;
mod forms;
mod frames;
mod nodes;
mod nullif;
mod numbers;
mod offsets;
mod outer;
mod plans;
mod recursions;
mod similar;
mod spans;
mod subqueries;
mod texts;
mod zones;

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::{
    amend_window, between, bounded, first_known, listed, nested_order, with_whole_years,
};
use crate::names::unnamed;
use crate::tree::Tree;

pub(crate) use casts::{any_one, is_of_decimal, kept};
pub(crate) use spans::length_ns;
pub(crate) use texts::time_form;

/// Amends the expressions of a plan before their types are coerced.
#[derive(Debug)]
pub(crate) struct AmendBefore;

/// Amends the expressions of a plan after their types are coerced.
#[derive(Debug)]
pub(crate) struct AmendAfter;

impl AnalyzerRule for AmendBefore {
    fn name(&self) -> &str {
        "tidefall_amend_before_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plans::amended(plan, Stage::Before)
    }
}

impl AnalyzerRule for AmendAfter {
    fn name(&self) -> &str {
        "tidefall_amend_after_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        aggregates::check_orders(&plan)?;
        plans::amended(plan, Stage::After)
    }
}

/// When a plan is amended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before its types are coerced.
    Before,
    After,
}

impl Stage {
    fn amend(self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        match self {
            Self::Before => before_coercion(expr, schema),
            Self::After => after_coercion(expr, schema),
        }
    }

    fn amend_node(self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match self {
            Self::Before => nodes::amend(node),
            Self::After => Ok(Transformed::no(node)),
        }
    }
}

/// Amends an expression before its types are coerced.
pub(crate) fn before_coercion(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|node| match unnamed(node) {
        Ok(cast) => Ok(Transformed::yes(cast)),
        Err(node) => {
            forms::check(&node, schema)?;
            let timestamp = zones::to_timestamp(node, schema)?;
            let plain = timestamp.transform_data(|node| nullif::amend(node, schema))?;
            let plain = plain.transform_data(|node| comparison(node, schema))?;
            let plain = plain.transform_data(|node| chosen::amend(node, schema))?;
            let plain = plain.transform_data(similar::amend)?;
            let plain = plain.transform_data(|node| frames::amend(node, schema))?;
            plain.transform_data(subqueries::amend)
        }
    })
}

/// A comparison of times, of spans, of decimals and floats, or of booleans and texts, and what is chosen of such.
fn comparison(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let each = |part| comparison(part, schema).map(|part| part.data);
    let whole = apart::with_whole_numbers(expr, schema)?;
    let apart = match apart::divided(&whole.data, schema, each)? {
        // Its answers are looked at, too.
        Some(case @ Expr::Case(_)) => Transformed::yes(case),
        Some(divided) => return Ok(Transformed::yes(divided)),
        None => whole,
    };
    let plain = apart.transform_data(|expr| zones::amend(expr, schema))?;
    let plain = plain.transform_data(|expr| numbers::amend(expr, schema))?;
    let plain = plain.transform_data(|expr| spans::amend(expr, schema))?;
    plain.transform_data(|expr| booleans::amend(expr, schema))
}

/// Amends an expression whose types are coerced.
pub(crate) fn after_coercion(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let amended = expr.transform_up(|node| {
        if let Expr::WindowFunction(window) = &node {
            offsets::check(&window.params.window_frame)?;
        }
        let plain = with_whole_years(node).transform_data(|node| casts::plain(node, schema))?;
        let read = plain.transform_data(|node| texts::amend(node, schema))?;
        let kept = read.transform_data(|node| casts::amend(node, schema))?;
        let kept = kept.transform_data(|node| Ok(bounded::amend(node)))?;
        let kept = kept.transform_data(|node| Ok(amend_window(node)))?;
        let kept = kept.transform_data(|node| aggregates::amend(node, schema))?;
        // Before what becomes more than one call, of which only the outer one would be looked at.
        let kept = kept.transform_data(|node| floats::amend(node, schema))?;
        let kept = kept.transform_data(|node| Ok(between(node, schema)))?;
        let kept = kept.transform_data(listed)?;
        let kept = kept.transform_data(|node| Ok(first_known(node)))?;
        kept.transform_data(|node| nested_order(node, schema))
    })?;
    amended.transform_data(|expr| floats::amend_whole(expr, schema))
}

/// The columns that the expressions of a node look at.
pub(crate) fn schema_below(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        let source = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &source)?);
    }
    Ok(schema)
}
