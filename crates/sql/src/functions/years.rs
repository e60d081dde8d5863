//! `date_part` of DataFusion, which makes a range of times of a condition on a year, and none at all of a year that
//! begins or ends beyond what 64 bits of nanoseconds hold: here of the years in between alone. Parts of spans of time are
//! those of `span_parts.rs`, decades and longer those of `decades.rs`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use super::decades::Era;
use super::forward::forward_identity;
use super::span_parts::part_of;

/// The name of the function.
pub(super) const NAME: &str = "date_part";

/// Years that begin and end within the range of times, in all zones.
const WHOLE_YEARS: RangeInclusive<i32> = 1678..=2260;

/// The function, around that of DataFusion.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Years(pub(super) Arc<ScalarUDF>);

/// Puts the function here in the place of DataFusion's, which `extract(... FROM ...)` calls by itself.
pub(crate) fn with_whole_years(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args })
            if func.name() == NAME && !func.inner().is::<Years>() =>
        {
            Transformed::yes(ScalarUDF::new_from_impl(Years(func)).call(args))
        }
        other => Transformed::no(other),
    }
}

impl ScalarUDFImpl for Years {
    forward_identity!();

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [part, spans] = &args.args[..]
            && let Some(found) = part_of(part, spans)?
        {
            return Ok(found);
        }
        if let Some(era) = args.args.first().and_then(Era::of_argument) {
            args.args[0] = ColumnarValue::Scalar(ScalarValue::from("year"));
            return era.numbers(&self.0.invoke_with_args(args)?);
        }
        self.0.invoke_with_args(args)
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        context: &SimplifyContext,
    ) -> Result<PreimageResult> {
        match literal {
            Expr::Literal(ScalarValue::Int32(Some(year)), _) if WHOLE_YEARS.contains(year) => {
                self.0.inner().preimage(args, literal, context)
            }
            _ => Ok(PreimageResult::None),
        }
    }
}
