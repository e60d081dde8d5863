//! Casts that stay on their column.
//!
//! DataFusion makes `column = constant` of `CAST(column AS type) = constant`, which is another condition where
//! the cast moves times to another zone, where it rounds, or where it gives NULL for what does not fit. Such a cast
//! becomes a function, as DataFusion does not look into functions.
//!
//! It also takes casts between times for such that keep their order, also that of a time to the time of day.
//!
//! A cast to times with fewer digits cuts these off towards 1970, so that earlier times become later ones, and the second
//! around it is twice as long as others. They are cut off towards the past before.
//!
//! A decimal becomes the float next to it.
//!
//! Neither does a cast of a tag look at values that none of its rows has: all rows share the dictionary of the table,
//! also with sensors that are filtered out, or deleted.

use std::sync::{Arc, LazyLock};

use arrow_select::dictionary::garbage_collect_any_dictionary;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::CastOptions;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TryCast, Volatility,
};
use tidefall_types::{Error, nearest_floats};

use crate::error::to_datafusion;
use crate::functions::{is_truncated, truncated};
use crate::types::{is_text, is_utc, unit_ns};

/// What a cast casts to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) to: DataType,
    /// Whether what does not fit becomes NULL.
    pub(super) is_try: bool,
}

/// The expression below a cast, and what it is cast to.
pub(super) fn cast_of(expr: &Expr) -> Option<(&Expr, Target)> {
    let (inner, field, is_try) = match expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, true),
        _ => return None,
    };
    Some((inner, Target { to: field.data_type().clone(), is_try }))
}

/// The signature of a function of one argument of any type.
pub(crate) fn any_one() -> &'static Signature {
    static ANY: LazyLock<Signature> = LazyLock::new(|| Signature::any(1, Volatility::Immutable));
    &ANY
}

/// The field of what a cast makes.
pub(super) fn return_field(target: &Target, args: &ReturnFieldArgs<'_>) -> FieldRef {
    let nullable = target.is_try || args.arg_fields.iter().any(|field| field.is_nullable());
    Arc::new(Field::new("cast", target.to.clone(), nullable))
}

/// A function that is a cast by another name, as the cast that it stands for.
pub(super) fn plain(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
    let is_time =
        |inner: &Expr| inner.get_type(schema).map(|of| matches!(of, DataType::Timestamp(..)));
    let cast = match (call.func.name(), call.args.as_slice()) {
        ("arrow_cast", [inner, _]) => Cast::new(Box::new(inner.clone()), expr.get_type(schema)?),
        ("arrow_try_cast", [inner, _]) => {
            let cast = TryCast::new(Box::new(inner.clone()), expr.get_type(schema)?);
            return Ok(Transformed::yes(Expr::TryCast(cast)));
        }
        ("to_timestamp_seconds" | "to_timestamp_millis" | "to_timestamp_micros", [inner])
            if is_time(inner)? =>
        {
            Cast::new(Box::new(inner.clone()), expr.get_type(schema)?)
        }
        ("to_unixtime", [inner]) if is_time(inner)? => {
            let seconds = with_fewer_digits(inner.clone(), TimeUnit::Second, schema)?;
            Cast::new(Box::new(seconds), DataType::Int64)
        }
        _ => return Ok(Transformed::no(expr)),
    };
    Ok(Transformed::yes(Expr::Cast(cast)))
}

/// A time as one in a unit.
fn with_fewer_digits(time: Expr, unit: TimeUnit, schema: &DFSchema) -> Result<Expr> {
    let DataType::Timestamp(_, zone) = time.get_type(schema)? else { return Ok(time) };
    let whole = truncated(name_of(unit), time);
    Ok(Expr::Cast(Cast::new(Box::new(whole), DataType::Timestamp(unit, zone))))
}

const fn name_of(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "second",
        TimeUnit::Millisecond => "millisecond",
        TimeUnit::Microsecond | TimeUnit::Nanosecond => "microsecond",
    }
}

/// A function in the place of a cast that must stay on its column.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some((inner, target)) = cast_of(&expr) else { return Ok(Transformed::no(expr)) };
    let from = inner.get_type(schema)?;
    let cut = match (&from, &target.to) {
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _))
            if unit_ns(*from) < unit_ns(*to) && !is_truncated(name_of(*to), inner) =>
        {
            Some(truncated(name_of(*to), inner.clone()))
        }
        _ => None,
    };
    if must_stay(&from, &target) {
        let inner = cut.unwrap_or_else(|| inner.clone());
        let kept = ScalarUDF::new_from_impl(KeptCast(target));
        return Ok(Transformed::yes(kept.call(vec![inner])));
    }
    let Some(cut) = cut else { return Ok(Transformed::no(expr)) };
    let inner = Box::new(cut);
    Ok(Transformed::yes(match target.is_try {
        true => Expr::TryCast(TryCast::new(inner, target.to)),
        false => Expr::Cast(Cast::new(inner, target.to)),
    }))
}

/// Whether a comparison of what is cast differs from one of what is not.
fn must_stay(from: &DataType, target: &Target) -> bool {
    match (from, &target.to) {
        (DataType::Timestamp(from_unit, from_zone), DataType::Timestamp(to_unit, to_zone)) => {
            let moves = from_zone.is_none() && to_zone.as_ref().is_some_and(|zone| !is_utc(zone));
            // A constant between two seconds is none of `from` then.
            moves || unit_ns(*from_unit) > unit_ns(*to_unit)
        }
        // Each day begins anew.
        (DataType::Timestamp(..), DataType::Time32(_) | DataType::Time64(_)) => true,
        (DataType::Dictionary(..), to) => !is_text(to),
        // What does not fit is NULL only where it is cast.
        _ if target.is_try => true,
        (from, _) => from.is_decimal(),
    }
}

/// What Arrow says of a time that clocks of a zone show never or twice.
const NO_SUCH_TIME: &str = "Cannot cast timezone to different timezone";

/// A cast as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct KeptCast(Target);

impl ScalarUDFImpl for KeptCast {
    fn name(&self) -> &str {
        "kept_cast"
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        let inner = args.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Ok(format!("CAST({inner} AS {})", self.0.to))
    }

    fn signature(&self) -> &Signature {
        any_one()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.0.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(return_field(&self.0, &args))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Target { to, is_try } = &self.0;
        let options = CastOptions { safe: *is_try, ..CastOptions::default() };
        let given = match &args.args[0] {
            ColumnarValue::Array(values) => match values.as_any_dictionary_opt() {
                Some(dictionary) => {
                    ColumnarValue::Array(garbage_collect_any_dictionary(dictionary)?)
                }
                None => args.args[0].clone(),
            },
            scalar => scalar.clone(),
        };
        if let Some(floats) = floats_of_decimals(&given, to)? {
            return Ok(floats);
        }
        let found = given.cast_to(to, Some(&options));
        match (found, to) {
            (Err(error), DataType::Timestamp(_, Some(zone)))
                if error.to_string().contains(NO_SUCH_TIME) =>
            {
                Err(to_datafusion(Error::invalid(format!(
                    "AT TIME ZONE '{zone}' takes a time without a zone as one on the clocks of that zone, and one \
                     of these times is not there or is there twice, as clocks go forward and back; what the clocks \
                     there show at a time in UTC is to_local_time(time AT TIME ZONE 'UTC' AT TIME ZONE '{zone}')"
                ))))
            }
            (found, _) => found,
        }
    }
}

/// Decimals as the floats next to them, if that is the cast.
fn floats_of_decimals(given: &ColumnarValue, to: &DataType) -> Result<Option<ColumnarValue>> {
    match given {
        ColumnarValue::Array(values) => Ok(nearest_floats(values, to).map(ColumnarValue::Array)),
        ColumnarValue::Scalar(value) => {
            let float = nearest_floats(&value.to_array()?, to);
            let float = float.map(|float| ScalarValue::try_from_array(&float, 0)).transpose()?;
            Ok(float.map(ColumnarValue::Scalar))
        }
    }
}

/// Digits behind the point with which the least decimal is no zero as any float.
const SCALE_OF_FLOATS: i8 = 38;

/// Whether an expression makes a float of a decimal: there is one zero, and no NaN.
pub(crate) fn is_of_decimal(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let Some((inner, to)) = kept(expr) else { return Ok(false) };
    Ok(to.is_floating()
        && match inner.get_type(schema)? {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => scale <= SCALE_OF_FLOATS,
            _ => false,
        })
}

/// What is cast, and to what, if `expr` is a cast that stays on its column.
pub(crate) fn kept(expr: &Expr) -> Option<(&Expr, &DataType)> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
    let KeptCast(target) = func.inner().downcast_ref()?;
    Some((args.first()?, &target.to))
}
