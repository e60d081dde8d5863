//! What expressions become when the optimizer puts the meaning of columns in the place of their names.
//!
//! It does so where a condition moves below a projection, all the way down at once: thirty subqueries, each of which adds
//! a column of the one below to itself, are an expression with a billion parts. So the parts of each column are counted
//! from the bottom of a plan to its top, with those of the columns that it names. Types and texts whose size comes from a
//! number or is repeated in each row are looked at here, too.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use tidefall_types::Error;

use crate::amend::schema_below;
use crate::error::to_datafusion;
use crate::functions::EXTREMES;
use crate::tree::{Tree, apply_expressions, apply_with_subqueries};

/// Parts that one column, or all conditions together, may have beyond those that are written in the statement: some tens
/// of megabytes.
const PARTS_ADDED_MAX: u64 = 100_000;

/// The elements or bytes of a type of fixed size at most: a null takes as many as a value.
const FIXED_SIZE_MAX: i32 = 1 << 16;

/// Bytes of constants at most that a batch repeats in its rows.
const REPEATED_BYTES_MAX: usize = 256 << 20;

/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;

/// Refuses plans whose expressions would become too large.
#[derive(Debug)]
pub(crate) struct CheckExpansion;

impl AnalyzerRule for CheckExpansion {
    fn name(&self) -> &str {
        "tidefall_check_expansion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Parts::default().of_plan(&plan)?;
        Ok(plan)
    }
}

/// Counts the parts of expressions from the bottom of a plan to its top.
#[derive(Debug, Default)]
struct Parts {
    /// Those that the statement has.
    written: u64,
    /// Those that conditions become.
    conditions: u64,
}

impl Parts {
    /// The parts of each column of a plan.
    fn of_plan(&mut self, plan: &LogicalPlan) -> Result<Vec<u64>> {
        let inputs = plan.inputs();
        let mut below = Vec::with_capacity(inputs.len());
        for input in &inputs {
            below.push(self.of_plan(input)?);
        }
        apply_expressions(plan, &mut |expr| {
            self.written = self.written.saturating_add(parts_of_expr(expr, &|_| 1)?);
            self.check_expr(expr, plan)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        let columns = plan.schema().fields().len();
        let of = |expr: &Expr| match (inputs.first(), below.first()) {
            (Some(input), Some(parts)) => expanded(expr, input.schema(), parts),
            _ => Ok(1),
        };
        let parts = match plan {
            LogicalPlan::Projection(projection) => {
                projection.expr.iter().map(of).collect::<Result<_>>()?
            }
            LogicalPlan::Aggregate(aggregate) => {
                let mut parts = aggregate.group_expr.iter().map(of).collect::<Result<Vec<_>>>()?;
                parts.resize(columns, 1);
                parts
            }
            LogicalPlan::Filter(filter) => {
                self.conditions = self.conditions.saturating_add(of(&filter.predicate)?);
                below.pop().unwrap_or_default()
            }
            LogicalPlan::Join(join) => {
                if let Some(filter) = &join.filter {
                    let more = expanded(filter, &schema_below(plan)?, &below.concat())?;
                    self.conditions = self.conditions.saturating_add(more);
                }
                beside(below, columns)
            }
            LogicalPlan::Window(_) => {
                let mut parts = below.pop().unwrap_or_default();
                parts.resize(columns, 1);
                parts
            }
            _ => beside(below, columns),
        };
        let most = parts.iter().copied().max().unwrap_or(0).max(self.conditions);
        match most.saturating_sub(self.written) > PARTS_ADDED_MAX {
            true => Err(to_datafusion(Error::limit(format!(
                "an expression has {PARTS_ADDED_MAX} parts more than are written when the columns of subqueries are \
                 written out in it; name them less often, or keep what is used often in a table"
            )))),
            false => Ok(parts),
        }
    }

    /// Checks the types of an expression of `plan`, and the plans within it.
    fn check_expr(&mut self, expr: &Expr, plan: &LogicalPlan) -> Result<()> {
        expr.apply(|part| {
            match part {
                Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
                    check_type(field.data_type())?;
                }
                // Its type is in its second argument.
                Expr::ScalarFunction(call) if call.func.name().ends_with("_cast") => {
                    check_type(&part.get_type(&schema_below(plan)?)?)?;
                }
                Expr::ScalarSubquery(query) => {
                    self.of_plan(&query.subquery)?;
                }
                Expr::InSubquery(query) => {
                    self.of_plan(&query.subquery.subquery)?;
                }
                Expr::Exists(query) => {
                    self.of_plan(&query.subquery.subquery)?;
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }
}

/// The columns of inputs that stand beside or over one another.
fn beside(below: Vec<Vec<u64>>, columns: usize) -> Vec<u64> {
    let sum: usize = below.iter().map(Vec::len).sum();
    match below.iter().find(|parts| parts.len() == columns) {
        _ if sum == columns => below.concat(),
        Some(first) => {
            let mut most = first.clone();
            for parts in below.iter().filter(|parts| parts.len() == columns) {
                most.iter_mut().zip(parts).for_each(|(most, parts)| *most = (*most).max(*parts));
            }
            most
        }
        None => vec![below.iter().flatten().copied().max().unwrap_or(1); columns],
    }
}

/// The parts of an expression when its columns are written out.
fn expanded(expr: &Expr, schema: &DFSchema, below: &[u64]) -> Result<u64> {
    if below.iter().all(|parts| *parts == 1) {
        return parts_of_expr(expr, &|_| 1);
    }
    parts_of_expr(expr, &|column| {
        let at = schema.maybe_index_of_column(column);
        at.and_then(|at| below.get(at).copied()).unwrap_or(1)
    })
}

fn parts_of_expr(expr: &Expr, of_column: &dyn Fn(&Column) -> u64) -> Result<u64> {
    let mut parts = 0_u64;
    expr.apply(|part| {
        let own = match part {
            Expr::Column(column) => of_column(column),
            Expr::Alias(_) => 0,
            // It is a literal when it comes to the optimizer.
            Expr::Cast(cast) if matches!(*cast.expr, Expr::Literal(..)) => 0,
            _ => 1,
        };
        parts = parts.saturating_add(own);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(parts)
}

/// Refuses types of which each value is large.
fn check_type(data_type: &DataType) -> Result<()> {
    let size = match data_type {
        DataType::FixedSizeBinary(size) | DataType::FixedSizeList(_, size) => *size,
        _ => 0,
    };
    if size > FIXED_SIZE_MAX {
        return Err(to_datafusion(Error::limit(format!(
            "a type has {size} elements in each value, more than {FIXED_SIZE_MAX}; leave the number out"
        ))));
    }
    match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => check_type(field.data_type()),
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| check_type(field.data_type()))
        }
        DataType::Dictionary(_, values) => check_type(values),
        _ => Ok(()),
    }
}

/// Refuses an optimised plan that repeats large constants in its rows.
///
/// # Errors
/// `Limit`.
pub(crate) fn check_repeats(plan: &LogicalPlan) -> Result<()> {
    apply_with_subqueries(plan, &mut |node| {
        // Conditions compare constants without repeating them, but for those that are an answer, and `VALUES` are made one by one.
        let repeats = matches!(
            node,
            LogicalPlan::Projection(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::Sort(_)
        );
        let mut bytes = 0_usize;
        apply_expressions(node, &mut |expr| {
            bytes = bytes.saturating_add(match repeats {
                true => constant_bytes(expr)?,
                false => chosen_bytes(expr)?,
            });
            Ok(TreeNodeRecursion::Continue)
        })?;
        check_rows(bytes, node)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn check_rows(bytes: usize, node: &LogicalPlan) -> Result<()> {
    if bytes.saturating_mul(BATCH_ROWS) <= REPEATED_BYTES_MAX {
        return Ok(());
    }
    let rows = node.inputs().first().and_then(|input| input.max_rows());
    let rows = rows.unwrap_or(BATCH_ROWS).min(BATCH_ROWS);
    match bytes.saturating_mul(rows) > REPEATED_BYTES_MAX {
        true => Err(to_datafusion(Error::limit(format!(
            "constants of {bytes} bytes would be repeated in each of {rows} rows, more than {REPEATED_BYTES_MAX} bytes \
             in all; shorten them, or keep them in a table"
        )))),
        false => Ok(()),
    }
}

/// Bytes of the constants of which a part of an expression may have one in each row.
fn chosen_bytes(expr: &Expr) -> Result<usize> {
    let mut bytes = 0_usize;
    expr.apply(|part| {
        if let Expr::ScalarFunction(call) = part
            && EXTREMES.contains(&call.name())
        {
            bytes = bytes.saturating_add(constant_bytes(part)?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

/// Bytes of the constants of an expression that are more than a number.
fn constant_bytes(expr: &Expr) -> Result<usize> {
    let mut bytes = 0_usize;
    expr.apply(|part| {
        if let Expr::Literal(value, _) = part {
            let own = value.size().saturating_sub(size_of::<ScalarValue>());
            bytes = bytes.saturating_add(own);
        }
        // Lists are looked up, and not repeated.
        Ok(match part {
            Expr::InList(_) => TreeNodeRecursion::Jump,
            _ => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(bytes)
}
