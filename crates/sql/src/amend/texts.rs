//! Times as people write them.
//!
//! DataFusion wants seconds in every time; `time >= '2024-01-01 12:00'` is how people write it,
//! and how every other way into Tidefall reads it.

use std::borrow::Cow;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};
use tidefall_types::{Result as TidefallResult, format_time, parse_zoned_time};

use super::casts::{Target, any_one, cast_of, return_field};
use crate::error::to_datafusion;
use crate::types::is_text;

/// A cast of text to a time that reads all its forms.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some((inner, target)) = cast_of(&expr) else { return Ok(Transformed::no(expr)) };
    if !matches!(target.to, DataType::Timestamp(..)) || !is_text(&inner.get_type(schema)?) {
        return Ok(Transformed::no(expr));
    }
    let read = ReadTime(target);
    // What is no time should fail whether there are rows or not.
    if let Expr::Literal(text, metadata) = inner {
        return Ok(Transformed::yes(Expr::Literal(read.of_scalar(text)?, metadata.clone())));
    }
    Ok(Transformed::yes(ScalarUDF::new_from_impl(read).call(vec![inner.clone()])))
}

/// Reads texts as times.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadTime(Target);

impl ScalarUDFImpl for ReadTime {
    fn name(&self) -> &str {
        "read_time"
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
        Ok(match &args.args[0] {
            ColumnarValue::Array(texts) => ColumnarValue::Array(self.read(texts)?),
            ColumnarValue::Scalar(text) => ColumnarValue::Scalar(self.of_scalar(text)?),
        })
    }
}

impl ReadTime {
    fn of_scalar(&self, text: &ScalarValue) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.read(&text.to_array()?)?, 0)
    }

    /// Texts in the form that Arrow reads, then cast by Arrow.
    fn read(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        let texts = cast(texts, &DataType::Utf8)?;
        let form = |text| match time_form(text) {
            Err(_) if self.0.is_try => Ok(Cow::Borrowed(text)),
            form => form,
        };
        let forms = texts.as_string::<i32>().iter().map(|text| text.map(form).transpose());
        let forms: StringArray = forms.collect::<TidefallResult<_>>().map_err(to_datafusion)?;
        let options = CastOptions { safe: self.0.is_try, ..CastOptions::default() };
        Ok(cast_with_options(&forms, &self.0.to, &options)?)
    }
}

/// A time in the form that Arrow reads; without a zone where the text names none.
///
/// # Errors
/// `Invalid` for a text that is no time.
pub(crate) fn time_form(text: &str) -> TidefallResult<Cow<'_, str>> {
    match parse_zoned_time(text) {
        Ok((time_ns, has_zone)) => {
            let mut form = format_time(time_ns);
            if !has_zone {
                form.pop();
            }
            Ok(form.into())
        }
        // Arrow knows names of zones.
        Err(error) => match string_to_timestamp_nanos(text) {
            Ok(_) => Ok(text.into()),
            Err(_) => Err(error),
        },
    }
}
