//! Functions of DataFusion that can make more than they are given, outside of the memory that queries have: here with a
//! limit.
//!
//! 1. How many bytes a call makes of each row at most is computed from its arguments (`growth.rs`), before it is made.
//! 2. What fits is made at once, and charged to the memory of queries while it is.
//! 3. Of the rest, as many rows as surely fit are made at a time, as most bounds are far above what is made; a row that
//!    may not fit alone, or more in all than fits, is an error.

mod growth;
mod joined;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};
use tidefall_types::Error;

use super::forward::forward_identity;
use crate::error::to_datafusion;
use crate::planning::Limits;
use crate::tree::Tree;
use growth::Growth;
pub(crate) use growth::check_direction;

/// Bytes that one call may make for a batch of rows.
const MADE_BYTES_MAX: i64 = 64 << 20;

/// Bytes that a call may make even if all memory of queries is in use: about what a batch takes anyway.
const FREE_BYTES: i64 = 1 << 20;

/// Every function that can make more than it is given or take more than a glance at it, and how much that is.
const GROWING: [(&str, Growth); 33] = [
    ("repeat", Growth::Repeat),
    ("array_repeat", Growth::Repeat),
    ("lpad", Growth::Pad),
    ("rpad", Growth::Pad),
    ("replace", Growth::Replace),
    ("regexp_replace", Growth::ReplaceRegex),
    ("concat", Growth::Join),
    ("concat_ws", Growth::JoinWith),
    ("overlay", Growth::Join),
    ("make_array", Growth::Join),
    ("array_append", Growth::Join),
    ("array_prepend", Growth::Join),
    ("array_concat", Growth::Join),
    ("array_union", Growth::Join),
    ("map", Growth::Join),
    ("named_struct", Growth::Join),
    ("struct", Growth::Join),
    ("array_replace", Growth::ReplaceElements),
    ("array_replace_n", Growth::ReplaceElements),
    ("array_replace_all", Growth::ReplaceElements),
    ("array_to_string", Growth::JoinElements),
    ("arrays_zip", Growth::Zip),
    ("array_resize", Growth::Resize),
    ("range", Growth::Series),
    ("generate_series", Growth::Series),
    ("to_char", Growth::Format),
    ("levenshtein", Growth::Compare),
    ("strpos", Growth::Search),
    ("btrim", Growth::Trim),
    ("ltrim", Growth::Trim),
    ("rtrim", Growth::Trim),
    ("array_has_all", Growth::CompareElements),
    ("array_has_any", Growth::CompareElements),
];

/// The names of the functions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    GROWING.iter().map(|(name, _)| *name)
}

/// Whether a function can make a text that is many times as long as those it is given.
pub(crate) fn grows_beyond(name: &str) -> bool {
    GROWING.iter().any(|(growing, growth)| {
        let is_many_times = matches!(
            growth,
            Growth::Repeat
                | Growth::Pad
                | Growth::Replace
                | Growth::ReplaceRegex
                | Growth::JoinElements
        );
        *growing == name && is_many_times
    })
}

/// The bounded form of a function, if it needs one.
pub(crate) fn bounded(function: &Arc<ScalarUDF>) -> Option<ScalarUDF> {
    let growth = GROWING.iter().find(|(name, _)| *name == function.name())?.1;
    let is_bounded = function.inner().is::<Bounded>();
    (!is_bounded).then(|| ScalarUDF::new_from_impl(Bounded(Arc::clone(function), growth)))
}

/// Bounds a call that the planner made of something else, such as `||` between lists, and `||` between texts.
pub(crate) fn amend(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(call) => match bounded(&call.func) {
            Some(func) => Transformed::yes(Expr::ScalarFunction(ScalarFunction {
                func: Arc::new(func),
                args: call.args,
            })),
            None => Transformed::no(Expr::ScalarFunction(call)),
        },
        Expr::BinaryExpr(operation) if operation.op == Operator::StringConcat => {
            Transformed::yes(joined::call(operation))
        }
        other => Transformed::no(other),
    }
}

/// A function with a limit.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Bounded(Arc<ScalarUDF>, Growth);

impl Bounded {
    fn too_much(&self, amount: i64, limit: i64) -> datafusion::error::DataFusionError {
        to_datafusion(Error::limit(format!(
            "{} would make up to {amount} {} at once, more than {limit}",
            self.name(),
            self.1.unit()
        )))
    }

    /// Makes as many rows at a time as surely fit.
    fn in_pieces(
        &self,
        args: &ScalarFunctionArgs,
        bounds: &[i64],
        limit: i64,
    ) -> Result<ColumnarValue> {
        let arrays = args.args.iter().filter_map(|arg| match arg {
            ColumnarValue::Array(array) => Some(memory_bytes(array)),
            ColumnarValue::Scalar(_) => None,
        });
        let given = arrays.fold(0, i64::saturating_add);
        let most = limit.saturating_add(given);
        let reservation = reservation(self.name(), &args.config_options);
        let (mut pieces, mut made, mut start) = (Vec::new(), 0_i64, 0);
        while start < bounds.len() {
            let mut end = start + 1;
            let mut sum = bounds[start];
            while end < bounds.len() && sum.saturating_add(bounds[end]) <= limit {
                sum += bounds[end];
                end += 1;
            }
            let rows = end - start;
            let part = ScalarFunctionArgs {
                args: args.args.iter().map(|arg| slice(arg, start, rows)).collect(),
                arg_fields: args.arg_fields.clone(),
                number_rows: rows,
                return_field: Arc::clone(&args.return_field),
                config_options: Arc::clone(&args.config_options),
            };
            let piece = self.0.invoke_with_args(part)?.into_array(rows)?;
            let bytes = memory_bytes(&piece);
            made = made.saturating_add(bytes);
            if made > most {
                return Err(self.too_much(made, most));
            }
            if let Some(reservation) = &reservation {
                reservation.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX))?;
            }
            pieces.push(piece);
            start = end;
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&pieces)?))
    }
}

fn slice(arg: &ColumnarValue, start: usize, rows: usize) -> ColumnarValue {
    match arg {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(start, rows)),
        ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.clone()),
    }
}

fn memory_bytes(array: &ArrayRef) -> i64 {
    let bytes = array.to_data().get_slice_memory_size();
    i64::try_from(bytes.unwrap_or_else(|_| array.get_array_memory_size())).unwrap_or(i64::MAX)
}

/// What is charged to the memory of queries for a call.
fn reservation(name: &str, options: &ConfigOptions) -> Option<MemoryReservation> {
    let limits = Limits::of(options)?;
    Some(MemoryConsumer::new(name).register(&limits.memory))
}

/// Bytes that a call may make now.
fn limit(options: &ConfigOptions) -> i64 {
    let Some(limits) = Limits::of(options) else { return MADE_BYTES_MAX };
    match limits.memory.memory_limit() {
        MemoryLimit::Finite(bytes) => {
            let free = bytes.saturating_sub(limits.memory.reserved());
            i64::try_from(free).unwrap_or(i64::MAX).clamp(FREE_BYTES, MADE_BYTES_MAX)
        }
        MemoryLimit::Infinite | MemoryLimit::Unknown => MADE_BYTES_MAX,
    }
}

impl ScalarUDFImpl for Bounded {
    forward_identity!();

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        let bounds = self.1.bounds(&args.args, rows)?;
        let total = bounds.iter().copied().fold(0, i64::saturating_add);
        if self.1.is_counted_in_steps() {
            return match total > growth::STEPS_MAX {
                true => Err(self.too_much(total, growth::STEPS_MAX)),
                false => self.0.invoke_with_args(args),
            };
        }
        let limit = limit(&args.config_options);
        if total <= limit {
            let reservation =
                reservation(self.name(), &args.config_options).filter(|_| total > FREE_BYTES);
            if let Some(reservation) = &reservation {
                reservation.try_grow(usize::try_from(total).unwrap_or(usize::MAX))?;
            }
            return self.0.invoke_with_args(args);
        }
        match bounds.iter().copied().max() {
            Some(most) if most <= limit && !is_one => self.in_pieces(&args, &bounds, limit),
            _ => Err(self.too_much(total, limit)),
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.0.schema_name(args)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(types)
    }

    /// What it becomes may be called by the function of DataFusion.
    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.0.simplify(args, context)? {
            ExprSimplifyResult::Simplified(expr) => {
                let expr = expr.transform_up(|part| Ok(amend(part)))?;
                ExprSimplifyResult::Simplified(expr.data)
            }
            original @ ExprSimplifyResult::Original(_) => original,
        })
    }

    fn short_circuits(&self) -> bool {
        self.0.short_circuits()
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.0.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.0.preserves_lex_ordering(inputs)
    }
}
