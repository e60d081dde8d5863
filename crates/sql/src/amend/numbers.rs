//! Numbers of several types beside each other.
//!
//! A decimal beside a float is a float, as in DuckDB. DataFusion makes decimals of both, of 15 digits before their point and 15
//! behind it, which NaN, an infinity and large floats do not fit.
//!
//! What one of several numbers is chosen of, and the columns of sets (`nodes.rs`), are of the type that all of them have in
//! common from here on. DataFusion says before the types are coerced that they are of the first one's, and so of all that is
//! compared with them.
//!
//! Whole numbers beside one that their type does not reach are compared with the last one of it, which scans look at.
//!
//! What is written with a point and more digits than floats hold is a decimal from the beginning (`../long_numbers.rs`), and becomes a float
//! again beside what is neither whole nor a decimal that has room for it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Operator, binary_expr, cast,
};

use tidefall_types::{Error, sql_type_name};

use super::{chosen, compared};
use crate::error::to_datafusion;
use crate::long_numbers::WHOLE_DIGITS;

/// The type of whole numbers beyond 64 bits.
const LONG: DataType = DataType::Decimal128(38, 0);

/// A comparison of decimals with floats as one of floats, and what one of several numbers is chosen of in one type.
pub(super) fn amend(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_amended = false;
    let parts = match expr {
        // What stands for rows that are not there is of the type of those that are.
        Expr::WindowFunction(ref call) => {
            check_otherwise(call, schema)?;
            Vec::new()
        }
        _ => chosen::parts(&mut expr),
    };
    let types: Vec<DataType> = parts.iter().filter_map(|part| part.get_type(schema).ok()).collect();
    if let Some(to) = common(&types).filter(|_| types.len() == parts.len()) {
        for part in parts {
            *part = in_type(std::mem::take(part), schema, &to)?.data;
        }
        is_amended = true;
    }
    let reached = within_reach(expr, schema)?;
    is_amended |= reached.transformed;
    let written = as_written(reached.data, schema)?;
    is_amended |= written.transformed;
    let expr = written.data;
    match beside_float(&compared::types(&expr, schema)) {
        Some(float) => compared::map(expr, schema, &|part, schema| as_float(part, schema, &float)),
        None if is_amended => Ok(Transformed::yes(expr)),
        None => Ok(Transformed::no(expr)),
    }
}

/// What is written with a point as floats, if it is compared with others than whole numbers and decimals, or such as leave it no room.
fn as_written(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (parts, _) = compared::parts(&expr);
    let has_point = parts.into_iter().any(|part| with_point(part).is_some());
    if !has_point || fit_decimals(&compared::types(&expr, schema)) {
        return Ok(Transformed::no(expr));
    }
    compared::map(expr, schema, &|part, _| {
        Ok(match with_point(&part) {
            Some(float) => Transformed::yes(Expr::Literal(float, None)),
            None => Transformed::no(part),
        })
    })
}

/// Whether one type of decimals holds whole numbers and decimals of these types.
fn fit_decimals(types: &[DataType]) -> bool {
    let digits = types.iter().map(|of| match *of {
        DataType::Null => Some((0, 0)),
        DataType::Decimal128(all, behind) => {
            Some((i16::from(all) - i16::from(behind), behind.into()))
        }
        ref of if of.is_integer() => Some((WHOLE_DIGITS as i16, 0)),
        _ => None,
    });
    let all = digits.reduce(|one, other| {
        one.zip(other).map(|(one, other)| (one.0.max(other.0), one.1.max(other.1)))
    });
    all.flatten().is_some_and(|(before, behind)| before + behind <= DECIMAL128_MAX_PRECISION.into())
}

/// Refuses what would be cut for whole numbers or decimals when it stands for a row that is not there.
fn check_otherwise(call: &WindowFunction, schema: &DFSchema) -> Result<()> {
    let name = call.fun.name();
    let [value, _, otherwise] = &call.params.args[..] else { return Ok(()) };
    let otherwise = &match otherwise {
        Expr::Literal(number, _) => number.clone(),
        Expr::Negative(inner) => match &**inner {
            Expr::Literal(number, _) => number.arithmetic_negate()?,
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let (is_shift, of) = (["lag", "lead"].contains(&name), otherwise.data_type());
    if !is_shift || otherwise.is_null() || !of.is_numeric() || of.is_integer() {
        return Ok(());
    }
    let ty = value.get_type(schema)?;
    let is_same = || Ok::<_, DataFusionError>(otherwise.cast_to(&ty)?.cast_to(&of)? == *otherwise);
    let may_cut = ty.is_integer() || ty.is_decimal();
    if !may_cut || is_same().unwrap_or(false) {
        return Ok(());
    }
    Err(to_datafusion(Error::invalid(format!(
        "{name}: {otherwise} stands for a row that is not there, and the others are {}; write {name}(value::DOUBLE, 1, {otherwise})",
        sql_type_name(&ty)
    ))))
}

/// A comparison of whole numbers with one beyond their type as one with the first or the last number of it.
fn within_reach(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (value, op, number) = match (written(left), op.swap(), written(right)) {
                (None, _, Some(number)) => (left, *op, number),
                (Some(number), Some(op), None) => (right, op, number),
                _ => return Ok(Transformed::no(expr)),
            };
            let Some(reach) = Reach::of(&value.get_type(schema)?) else {
                return Ok(Transformed::no(expr));
            };
            let Some((op, last)) = reach.beside(op, number) else {
                return Ok(Transformed::no(expr));
            };
            let last = Expr::Literal(last, None);
            Ok(Transformed::yes(binary_expr(std::mem::take(value), op, last)))
        }
        Expr::Between(between) => {
            let (low, high) = (written(&between.low), written(&between.high));
            let reach = match low.or(high) {
                Some(_) => Reach::of(&between.expr.get_type(schema)?),
                None => None,
            };
            let Some(reach) = reach else { return Ok(Transformed::no(expr)) };
            let is_lower = low.is_some_and(|low| low < reach.numbers.0);
            let is_higher = high.is_some_and(|high| high > reach.numbers.1);
            if is_lower {
                *between.low = Expr::Literal(reach.first, None);
            }
            if is_higher {
                *between.high = Expr::Literal(reach.last, None);
            }
            Ok(Transformed::new_transformed(expr, is_lower || is_higher))
        }
        _ => Ok(Transformed::no(expr)),
    }
}

/// A whole number that is written out, also one beyond 64 bits.
fn written(expr: &Expr) -> Option<i128> {
    match expr {
        Expr::Literal(number, _) if number.data_type().is_integer() => whole(number),
        _ => written_decimal(expr)?.parse().ok(),
    }
}

/// The float nearest to a number with a point and more digits than floats hold, which is no cast to a decimal that somebody has written.
pub(super) fn with_point(expr: &Expr) -> Option<ScalarValue> {
    let digits = written_decimal(expr).filter(|digits| digits.contains('.'))?;
    let Expr::Cast(Cast { field, .. }) = expr else { return None };
    let DataType::Decimal128(all, behind) = *field.data_type() else { return None };
    let is_own = usize::from(all) == WHOLE_DIGITS + usize::try_from(behind).ok()?
        && digits.bytes().filter(u8::is_ascii_digit).count() > f64::DIGITS as usize;
    is_own.then_some(ScalarValue::Float64(Some(digits.parse().ok()?)))
}

/// The digits of a decimal that is written out (`../long_numbers.rs`), all of which it holds.
fn written_decimal(expr: &Expr) -> Option<&str> {
    let Expr::Cast(Cast { expr, field }) = expr else { return None };
    let (Expr::Literal(text, _), DataType::Decimal128(all, behind)) = (&**expr, field.data_type())
    else {
        return None;
    };
    let digits = text.try_as_str().flatten()?;
    let plain = digits.strip_prefix('-').unwrap_or(digits);
    let (before, after) = plain.split_once('.').unwrap_or((plain, ""));
    let fits = after.len() == usize::try_from(*behind).ok()?
        && before.len() + after.len() <= usize::from(*all);
    (fits && [before, after].iter().all(|part| part.bytes().all(|of| of.is_ascii_digit())))
        .then_some(digits)
}

fn whole(number: &ScalarValue) -> Option<i128> {
    match number.cast_to(&LONG) {
        Ok(ScalarValue::Decimal128(number, ..)) => number,
        _ => None,
    }
}

/// The first and the last number of a type.
struct Reach {
    first: ScalarValue,
    last: ScalarValue,
    numbers: (i128, i128),
}

impl Reach {
    /// Those of whole numbers.
    fn of(data_type: &DataType) -> Option<Self> {
        if !data_type.is_integer() {
            return None;
        }
        let (first, last) = (ScalarValue::min(data_type)?, ScalarValue::max(data_type)?);
        let numbers = (whole(&first)?, whole(&last)?);
        Some(Self { first, last, numbers })
    }

    /// What is true of the same numbers of the type as a comparison with one beyond it.
    fn beside(self, op: Operator, number: i128) -> Option<(Operator, ScalarValue)> {
        use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        if number > self.numbers.1 {
            match op {
                Lt | LtEq | NotEq => Some((LtEq, self.last)),
                Gt | GtEq | Eq => Some((Gt, self.last)),
                _ => None,
            }
        } else if number < self.numbers.0 {
            match op {
                Gt | GtEq | NotEq => Some((GtEq, self.first)),
                Lt | LtEq | Eq => Some((Lt, self.first)),
                _ => None,
            }
        } else {
            None
        }
    }
}

/// A number in a type.
pub(super) fn in_type(expr: Expr, schema: &DFSchema, to: &DataType) -> Result<Transformed<Expr>> {
    Ok(match expr.get_type(schema)? == *to {
        true => Transformed::no(expr),
        false => Transformed::yes(cast(expr, to.clone())),
    })
}

/// A number of another type as a float.
pub(super) fn as_float(
    expr: Expr,
    schema: &DFSchema,
    float: &DataType,
) -> Result<Transformed<Expr>> {
    let of = expr.get_type(schema)?;
    Ok(match of.is_numeric() && !of.is_floating() {
        true => Transformed::yes(cast(expr, float.clone())),
        false => Transformed::no(expr),
    })
}

/// What all numbers become beside floats, if DataFusion would make decimals of them: where one of them is one, or whole numbers of
/// 64 bits are beside such without a sign.
pub(super) fn beside_float(types: &[DataType]) -> Option<DataType> {
    let widest =
        types.iter().filter(|of| of.is_floating()).max_by_key(|of| of.primitive_width())?;
    let has = |is: fn(&DataType) -> bool| types.iter().any(is);
    let are_decimals = has(DataType::is_decimal)
        || (has(DataType::is_signed_integer) && has(|of| *of == DataType::UInt64));
    are_decimals.then(|| widest.clone())
}

/// The type of numbers beside NULL, which has none.
pub(super) fn beside_null(types: &[DataType]) -> Option<DataType> {
    let mut known = types.iter().filter(|of| !of.is_null());
    let first = known.next().filter(|first| first.is_numeric())?;
    (known.all(|of| of == first) && types.contains(&DataType::Null)).then(|| first.clone())
}

/// Whether both are numbers, or lists or structs that differ in nothing but these.
fn are_alike(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::List(one), DataType::List(other)) => {
            are_alike(one.data_type(), other.data_type())
        }
        (DataType::Struct(one), DataType::Struct(other)) => {
            let mut both = one.iter().zip(other);
            one.len() == other.len()
                && both.all(|(one, other)| {
                    one.name() == other.name() && are_alike(one.data_type(), other.data_type())
                })
        }
        _ => {
            one == other
                || one.is_null()
                || other.is_null()
                || (one.is_numeric() && other.is_numeric())
        }
    }
}

/// The type that numbers of several types have in common, or lists and structs of such.
pub(super) fn common(types: &[DataType]) -> Option<DataType> {
    let known = || types.iter().filter(|of| !of.is_null());
    let first = known().next()?;
    if !known().all(|of| are_alike(first, of)) || known().all(|of| of == first) {
        return None;
    }
    match first {
        DataType::List(field) => {
            let parts = known().filter_map(|of| match of {
                DataType::List(field) => Some(field.data_type().clone()),
                _ => None,
            });
            Some(DataType::List(Arc::new(of_parts(field, &parts.collect::<Vec<_>>()))))
        }
        DataType::Struct(fields) => {
            let parts = |place: usize| {
                known().filter_map(move |of| match of {
                    DataType::Struct(fields) => Some(fields[place].data_type().clone()),
                    _ => None,
                })
            };
            let fields = fields.iter().enumerate();
            let fields = fields.map(|(at, field)| of_parts(field, &parts(at).collect::<Vec<_>>()));
            Some(DataType::Struct(fields.collect()))
        }
        _ => match beside_float(types) {
            Some(float) => Some(float),
            None => known().try_fold(first.clone(), |all, of| type_union_coercion(&all, of)),
        },
    }
}

/// A part of lists or structs in which it has these types.
fn of_parts(field: &Field, types: &[DataType]) -> Field {
    let known = || types.iter().find(|of| !of.is_null());
    let ty = common(types).or_else(|| known().cloned()).unwrap_or(DataType::Null);
    field.clone().with_data_type(ty).with_nullable(true)
}
