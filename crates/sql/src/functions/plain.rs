//! Functions of tags that answer with numbers, such as `length`.
//!
//! DataFusion makes dictionaries of numbers of them, as tags are dictionaries of texts, and then neither computes with these
//! nor finds the rows of a window by them. Here they answer with numbers.

use std::sync::Arc;

use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use super::forward::forward_names;
use crate::types::is_text;

/// The names of the functions.
pub(super) const NAMES: [&str; 4] = ["ascii", "bit_length", "character_length", "octet_length"];

/// A function that answers with no dictionary but one of texts.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Plain(pub(super) Arc<ScalarUDF>);

/// The type of the values, if they are in a dictionary and no texts.
fn plain(data_type: DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) if !is_text(&values) => *values,
        other => other,
    }
}

impl ScalarUDFImpl for Plain {
    forward_names!();

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.return_type(types).map(plain)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.0.return_field_from_args(args)?;
        let data_type = plain(field.data_type().clone());
        Ok(Arc::new(field.as_ref().clone().with_data_type(data_type)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match self.0.invoke_with_args(args)? {
            ColumnarValue::Array(values) => {
                let to = plain(values.data_type().clone());
                ColumnarValue::Array(cast(&values, &to)?)
            }
            ColumnarValue::Scalar(ScalarValue::Dictionary(_, value)) => {
                ColumnarValue::Scalar(*value)
            }
            scalar => scalar,
        })
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.0.simplify(args, context)
    }
}
