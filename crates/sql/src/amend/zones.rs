//! Times with a zone beside times without one.
//!
//! A time without a zone is one in UTC everywhere in Tidefall. DataFusion takes it as one on the clocks of the other
//! side's zone, which is that of the session for `now()`, also where it looks for what both have in common: in `CASE`,
//! `coalesce`, lists, sets (`nodes.rs`).
//!
//! `to_timestamp` and its kin answer in the zone of the session, and take numbers and texts without a zone for what clocks
//! show there. Here they are moments in UTC, too, and only shown in that zone.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions::datetime::to_timestamp::{
    ToTimestampFunc, ToTimestampMicrosFunc, ToTimestampMillisFunc, ToTimestampNanosFunc,
    ToTimestampSecondsFunc,
};
use datafusion::logical_expr::{Case, Expr, ExprSchemable, Operator, ScalarUDF, cast, lit};

use super::compared;
use crate::tree::Tree;
use crate::types::{is_text, is_utc};

/// `to_timestamp` and its kin in UTC, shown in the zone of the session.
pub(super) fn to_timestamp(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let of_text = of_text(expr, schema)?;
    let of_float = of_text.transform_data(|expr| of_float(expr, schema))?;
    of_float.transform_data(|expr| in_zone(expr, schema))
}

/// `to_timestamp` of a text alone as a cast, which reads all forms of times (`texts.rs`).
fn of_text(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
    let is_one = call.func.name().starts_with("to_timestamp");
    let [text] = &call.args[..] else { return Ok(Transformed::no(expr)) };
    if !is_one || !is_text(&text.get_type(schema)?) {
        return Ok(Transformed::no(expr));
    }
    let shown = expr.get_type(schema)?;
    let instant = cast(text.clone(), DataType::Timestamp(TimeUnit::Nanosecond, None));
    let instant = match shown {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => instant,
        DataType::Timestamp(unit, _) => cast(instant, DataType::Timestamp(unit, None)),
        _ => return Ok(Transformed::no(expr)),
    };
    Ok(Transformed::yes(in_type(instant, shown)))
}

/// `to_timestamp` of seconds with a fraction. DataFusion has the last time for all that is beyond it.
fn of_float(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match &expr {
        Expr::ScalarFunction(call)
            if let ("to_timestamp", [seconds]) = (call.func.name(), &call.args[..])
                && seconds.get_type(schema)?.is_floating() =>
        {
            let nanos = cast(seconds.clone(), DataType::Float64) * lit(1e9);
            let function = ScalarUDF::new_from_impl(ToTimestampNanosFunc::default());
            let instant = function.call(vec![cast(nanos, DataType::Int64)]);
            Ok(Transformed::yes(in_type(instant, expr.get_type(schema)?)))
        }
        _ => Ok(Transformed::no(expr)),
    }
}

fn in_zone(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
    let in_utc = match call.func.name() {
        "to_timestamp" => ScalarUDF::new_from_impl(ToTimestampFunc::default()),
        "to_timestamp_seconds" => ScalarUDF::new_from_impl(ToTimestampSecondsFunc::default()),
        "to_timestamp_millis" => ScalarUDF::new_from_impl(ToTimestampMillisFunc::default()),
        "to_timestamp_micros" => ScalarUDF::new_from_impl(ToTimestampMicrosFunc::default()),
        "to_timestamp_nanos" => ScalarUDF::new_from_impl(ToTimestampNanosFunc::default()),
        _ => return Ok(Transformed::no(expr)),
    };
    Ok(match expr.get_type(schema) {
        Ok(shown @ DataType::Timestamp(_, Some(_))) => {
            Transformed::yes(in_type(in_utc.call(call.args.clone()), shown))
        }
        _ => Transformed::no(expr),
    })
}

/// A moment in UTC in the zone in which it is shown, if there is one.
fn in_type(instant: Expr, shown: DataType) -> Expr {
    match shown {
        DataType::Timestamp(unit, Some(zone)) => {
            let instant = cast(instant, DataType::Timestamp(unit, Some(Arc::from("+00:00"))));
            cast(instant, DataType::Timestamp(unit, Some(zone)))
        }
        _ => instant,
    }
}

/// Functions that give one of their arguments, or a list of them.
pub(super) const CHOICES: [&str; 7] =
    ["coalesce", "greatest", "ifnull", "least", "make_array", "nvl", "nvl2"];

/// What a comparison or a difference of times of both kinds looks at, and what is chosen among them, all without a zone.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(ref binary) if binary.op == Operator::Minus => {
            let types = types_of([&*binary.left, &*binary.right].into_iter(), schema);
            match mixes(&types) {
                true => expr.map_children(|part| without_zone(part, schema)),
                false => Ok(Transformed::no(expr)),
            }
        }
        Expr::ScalarFunction(ref call) if CHOICES.contains(&call.func.name()) => {
            match mixes(&types_of(call.args.iter(), schema)) {
                true => expr.map_children(|part| without_zone(part, schema)),
                false => Ok(Transformed::no(expr)),
            }
        }
        Expr::Case(case) => {
            let chosen = branches(case, schema)?;
            chosen.transform_data(|case| compare(Expr::Case(case), schema))
        }
        expr => compare(expr, schema),
    }
}

fn compare(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match mixes(&compared::types(&expr, schema)) {
        true => compared::map(expr, schema, &without_zone),
        false => Ok(Transformed::no(expr)),
    }
}

/// What a `CASE` answers.
fn branches(mut case: Case, schema: &DFSchema) -> Result<Transformed<Case>> {
    let answers = case.when_then_expr.iter().map(|(_, then)| &**then);
    let types = types_of(answers.chain(case.else_expr.as_deref()), schema);
    if !mixes(&types) {
        return Ok(Transformed::no(case));
    }
    let answers = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
    for answer in answers.chain(case.else_expr.as_deref_mut()) {
        *answer = without_zone(std::mem::take(answer), schema)?.data;
    }
    Ok(Transformed::yes(case))
}

fn types_of<'a>(parts: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> Vec<DataType> {
    parts.filter_map(|part| part.get_type(schema).ok()).collect()
}

/// Whether there are times without a zone, or dates, beside others that DataFusion takes for something else than they are.
pub(super) fn mixes(types: &[DataType]) -> bool {
    let is_plain = |of: &DataType| {
        matches!(of, DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64)
    };
    let has_zone =
        |of: &DataType| matches!(of, DataType::Timestamp(_, Some(zone)) if !is_utc(zone));
    types.iter().any(is_plain) && types.iter().any(has_zone)
}

/// The same moment without its zone. DataFusion is right where that is UTC.
pub(super) fn without_zone(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr.get_type(schema) {
        Ok(DataType::Timestamp(unit, Some(zone))) if !is_utc(&zone) => {
            let in_utc = cast(expr, DataType::Timestamp(unit, Some(Arc::from("+00:00"))));
            Transformed::yes(cast(in_utc, DataType::Timestamp(unit, None)))
        }
        _ => Transformed::no(expr),
    })
}
