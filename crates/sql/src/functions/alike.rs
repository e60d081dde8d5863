//! `coalesce`, `greatest` and `least` of DataFusion, which do not know what a time and a text have in common: here the text
//! is a time, as in a comparison.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use super::forward::forward_identity;
use crate::amend::is_text;

/// The names of the functions.
pub(super) const NAMES: [&str; 3] = ["coalesce", "greatest", "least"];

/// A function whose arguments become of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Alike(pub(super) Arc<ScalarUDF>);

impl ScalarUDFImpl for Alike {
    forward_identity!();

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let time = types.iter().find(|data_type| matches!(data_type, DataType::Timestamp(..)));
        match time {
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
        self.0.invoke_with_args(args)
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
