//! `coalesce`, `greatest` and `least` of DataFusion, which do not know what a time and a text have in common: here the text
//! is a time, as in a comparison. The greatest of intervals is the longest.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use super::forward::forward_identity;
use crate::amend::length_ns;
use crate::types::is_text;

/// The names of the functions.
pub(super) const NAMES: [&str; 3] = ["coalesce", "greatest", "least"];

/// A function whose arguments become of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Alike(pub(super) Arc<ScalarUDF>);

impl ScalarUDFImpl for Alike {
    forward_identity!();

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_time = |data_type: &&DataType| matches!(data_type, DataType::Timestamp(..));
        let is_date =
            |data_type: &&DataType| matches!(data_type, DataType::Date32 | DataType::Date64);
        match types.iter().find(is_time).or(types.iter().find(is_date)) {
            Some(time) if types.iter().any(is_text) => {
                let as_time = |data_type: &DataType| match is_text(data_type) {
                    true => time.clone(),
                    false => data_type.clone(),
                };
                self.0.coerce_types(&types.iter().map(as_time).collect::<Vec<_>>())
            }
            _ => self.0.coerce_types(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let wanted = match self.0.name() {
            "greatest" => Ordering::Greater,
            "least" => Ordering::Less,
            _ => return self.0.invoke_with_args(args),
        };
        match args.return_field.data_type() {
            DataType::Interval(IntervalUnit::MonthDayNano) => extreme_span(&args, wanted),
            _ => self.0.invoke_with_args(args),
        }
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.0.simplify(args, context)
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.0.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.0.short_circuits()
    }
}

/// The interval whose length stands to those of the others as wanted.
fn extreme_span(args: &ScalarFunctionArgs, wanted: Ordering) -> Result<ColumnarValue> {
    let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let arrays = ColumnarValue::values_to_arrays(&args.args)?;
    let spans: Vec<_> =
        arrays.iter().map(|spans| spans.as_primitive::<IntervalMonthDayNanoType>()).collect();
    let rows = spans.first().map_or(0, |spans| spans.len());
    let extreme_of = |row: usize| {
        let known = spans.iter().filter(|spans| spans.is_valid(row)).map(|spans| spans.value(row));
        known.reduce(|best, span| match length_ns(span).cmp(&length_ns(best)) == wanted {
            true => span,
            false => best,
        })
    };
    let extremes: IntervalMonthDayNanoArray = (0..rows).map(extreme_of).collect();
    Ok(match is_scalar {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&extremes, 0)?),
        false => ColumnarValue::Array(Arc::new(extremes)),
    })
}
