//! Times with a zone beside times without one.
//!
//! A time without a zone is one in UTC everywhere in Tidefall. DataFusion takes it as one on the clocks of the other
//! side's zone, which is that of the session for `now()`.
//!
//! `to_timestamp` and its kin answer in the zone of the session, and take numbers and texts without a zone for what clocks
//! show there. Here they are moments in UTC, too, and only shown in that zone.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::functions::datetime::to_timestamp::{
    ToTimestampFunc, ToTimestampMicrosFunc, ToTimestampMillisFunc, ToTimestampNanosFunc,
    ToTimestampSecondsFunc,
};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, ScalarUDF, cast};

use super::casts::is_utc;

/// `to_timestamp` and its kin in UTC, shown in the zone of the session.
pub(super) fn to_timestamp(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
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
        Ok(DataType::Timestamp(unit, Some(zone))) => {
            let moment = in_utc.call(call.args.clone());
            let moment = cast(moment, DataType::Timestamp(unit, Some(Arc::from("+00:00"))));
            Transformed::yes(cast(moment, DataType::Timestamp(unit, Some(zone))))
        }
        _ => Transformed::no(expr),
    })
}

/// What a comparison or a difference of times of both kinds looks at, all without a zone.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let parts: Vec<&Expr> = match &expr {
        Expr::BinaryExpr(binary) if compares(binary.op) => vec![&binary.left, &binary.right],
        Expr::Between(between) => vec![&between.expr, &between.low, &between.high],
        Expr::InList(list) => [&*list.expr].into_iter().chain(&list.list).collect(),
        _ => return Ok(Transformed::no(expr)),
    };
    let mut has_plain = false;
    for part in parts {
        has_plain |= matches!(part.get_type(schema), Ok(DataType::Timestamp(_, None)));
    }
    match has_plain {
        true => expr.map_children(|part| without_zone(part, schema)),
        false => Ok(Transformed::no(expr)),
    }
}

fn compares(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
            | Operator::Minus
    )
}

/// The same moment without its zone. DataFusion is right where that is UTC.
fn without_zone(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr.get_type(schema) {
        Ok(DataType::Timestamp(unit, Some(zone))) if !is_utc(&zone) => {
            let in_utc = cast(expr, DataType::Timestamp(unit, Some(Arc::from("+00:00"))));
            Transformed::yes(cast(in_utc, DataType::Timestamp(unit, None)))
        }
        _ => Transformed::no(expr),
    })
}
