//! Keys of sorts, windows and aggregates that are computed become columns of their own.
//!
//! DataFusion asks of each key in which range its values lie, to find out whether rows are in its order already. Most
//! functions, and `CASE`, do not know and answer with a range of NULLs, on which whatever stands around them fails. It then
//! takes rows that it has just sorted by the key for not sorted by it, and refuses the plan.
//!
//! Keys of which it can tell stay as they are, above all columns, and bins of time, in whose order tables are read.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Cast, Expr, LogicalPlan, Operator, Projection, Sort, TryCast, Window,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Functions of a time that keep its order.
const KEEP_ORDER: [&str; 3] = ["date_bin", "date_trunc", "time_bucket"];

/// Puts what a key computes into a projection below.
#[derive(Debug)]
pub(crate) struct KeysAsColumns;

impl OptimizerRule for KeysAsColumns {
    fn name(&self) -> &str {
        "tidefall_keys_as_columns"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Sort(sort) => of_sort(sort),
            LogicalPlan::Window(window) => of_window(window),
            LogicalPlan::Aggregate(aggregate) => of_aggregate(aggregate),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

fn of_sort(mut sort: Sort) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::default();
    sort.expr.iter_mut().for_each(|key| keys.name(&mut key.expr));
    if keys.0.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    }
    let schema = Arc::clone(sort.input.schema());
    sort.input = keys.below(sort.input)?;
    only(&schema, LogicalPlan::Sort(sort))
}

fn of_window(mut window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::default();
    window.window_expr.iter_mut().for_each(|call| keys.name_those_of(call));
    if keys.0.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let plan = Window::try_new(window.window_expr, keys.below(window.input)?)?;
    only(&window.schema, LogicalPlan::Window(plan))
}

fn of_aggregate(mut aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::default();
    aggregate.aggr_expr.iter_mut().for_each(|call| keys.name_those_of(call));
    if keys.0.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
    let input = keys.below(input)?;
    let aggregate = Aggregate::try_new_with_schema(input, group_expr, aggr_expr, schema)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// The columns of a schema and no others.
fn only(schema: &DFSchema, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let columns = schema.iter().map(|field| Expr::Column(Column::from(field))).collect();
    let plan = Projection::try_new(columns, Arc::new(plan))?;
    Ok(Transformed::yes(LogicalPlan::Projection(plan)))
}

/// What is computed for keys.
#[derive(Default)]
struct Keys(Vec<Expr>);

impl Keys {
    /// Puts the name of its column in the place of a key that is computed.
    fn name(&mut self, key: &mut Expr) {
        if is_known(key) || keeps_order(key) {
            return;
        }
        let expr = std::mem::take(key).unalias();
        let at = self.0.iter().position(|other| *other == expr).unwrap_or_else(|| {
            self.0.push(expr);
            self.0.len() - 1
        });
        *key = Expr::Column(Column::from_name(name(at)));
    }

    /// The same for all keys of an aggregate or a window function, which keeps its name.
    fn name_those_of(&mut self, call: &mut Expr) {
        let saved = NamePreserver::new_for_projection().save(call);
        let mut inner = &mut *call;
        while let Expr::Alias(alias) = inner {
            inner = &mut alias.expr;
        }
        match inner {
            Expr::WindowFunction(window) => {
                let params = &mut window.params;
                params.partition_by.iter_mut().for_each(|key| self.name(key));
                params.order_by.iter_mut().for_each(|key| self.name(&mut key.expr));
            }
            Expr::AggregateFunction(aggregate) => {
                let order_by = &mut aggregate.params.order_by;
                order_by.iter_mut().for_each(|key| self.name(&mut key.expr));
            }
            _ => {}
        }
        *call = saved.restore(std::mem::take(call));
    }

    /// The rows of a plan with the keys.
    fn below(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let columns = input.schema().iter().map(|field| Expr::Column(Column::from(field)));
        let keys = self.0.into_iter().enumerate().map(|(at, key)| key.alias(name(at)));
        let columns = columns.chain(keys).collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
    }
}

/// The name of the column of a key.
fn name(at: usize) -> String {
    format!("__key_{at}")
}

/// Whether DataFusion can tell of a key whether rows are ordered by it.
fn is_known(key: &Expr) -> bool {
    match key {
        Expr::Column(_) | Expr::Literal(..) => true,
        Expr::Alias(alias) => is_known(&alias.expr),
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => is_known(expr),
        Expr::Negative(inner) => is_known(inner),
        Expr::BinaryExpr(binary) => {
            matches!(binary.op, Operator::Plus | Operator::Minus)
                && is_known(&binary.left)
                && is_known(&binary.right)
        }
        _ => false,
    }
}

/// Whether a key is a bin of what is known.
fn keeps_order(key: &Expr) -> bool {
    match key {
        Expr::Alias(alias) => keeps_order(&alias.expr),
        Expr::Cast(Cast { expr, .. }) => keeps_order(expr),
        Expr::ScalarFunction(call) => {
            KEEP_ORDER.contains(&call.func.name())
                && call.args.iter().all(|arg| is_known(arg) || keeps_order(arg))
        }
        _ => false,
    }
}
