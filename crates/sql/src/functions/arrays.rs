//! `make_array` of DataFusion, which refuses texts beside times. Here such texts are times, as where both are compared.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use super::forward::forward_identity;
use crate::types::is_text;

/// The name of the function.
pub(super) const NAME: &str = "make_array";

/// The function, around DataFusion's.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct MakeArray(pub(super) Arc<ScalarUDF>);

impl ScalarUDFImpl for MakeArray {
    forward_identity!();

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_time = |of: &&DataType| matches!(of, DataType::Timestamp(..));
        let is_date = |of: &&DataType| matches!(of, DataType::Date32);
        match types.iter().find(is_time).or(types.iter().find(is_date)) {
            Some(time) if types.iter().any(is_text) => {
                let times = types.iter().map(|of| if is_text(of) { time } else { of });
                let times: Vec<DataType> = times.cloned().collect();
                self.0.coerce_types(&times)
            }
            _ => self.0.coerce_types(types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.0.invoke_with_args(args)
    }
}
