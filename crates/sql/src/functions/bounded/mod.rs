//! `repeat`, `lpad` and `rpad` of DataFusion, which make as much text as they are told to, outside of the memory
//! that queries have: here with a limit.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};
use tidefall_types::Error;

use super::forward::forward_identity;
use crate::error::to_datafusion;

/// The names of the functions that are bounded.
pub(super) const NAMES: [&str; 3] = ["repeat", "lpad", "rpad"];

/// Bytes of text that one call may make for a batch of rows.
const TEXT_BYTES_MAX: i64 = 64 << 20;

/// Bytes of a character at most.
const CHARACTER_BYTES_MAX: i64 = 4;

/// A function whose second argument says how much text it makes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Bounded(pub(super) Arc<ScalarUDF>);

impl Bounded {
    /// The bytes of text that a call makes at most.
    fn text_bytes(&self, args: &[ColumnarValue]) -> Result<i64> {
        let columns = ColumnarValue::values_to_arrays(args)?;
        let [text, amount, ..] = columns.as_slice() else { return Ok(0) };
        let amounts = cast(amount, &DataType::Int64)?;
        let amounts = amounts.as_primitive::<Int64Type>();
        let lengths = cast(&length(text)?, &DataType::Int64)?;
        let lengths = lengths.as_primitive::<Int64Type>();
        let is_repeat = self.name() == "repeat";
        let rows =
            (0..amounts.len()).filter(|row| amounts.is_valid(*row) && lengths.is_valid(*row));
        let bytes = rows.map(|row| {
            let amount = amounts.value(row).max(0);
            let unit = if is_repeat { lengths.value(row) } else { CHARACTER_BYTES_MAX };
            amount.saturating_mul(unit)
        });
        Ok(bytes.fold(0, i64::saturating_add))
    }
}

impl ScalarUDFImpl for Bounded {
    forward_identity!();

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let bytes = self.text_bytes(&args.args)?;
        if bytes > TEXT_BYTES_MAX {
            return Err(to_datafusion(Error::limit(format!(
                "{} would make up to {bytes} bytes of text at once, more than {TEXT_BYTES_MAX}",
                self.name()
            ))));
        }
        self.0.invoke_with_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(types)
    }
}
