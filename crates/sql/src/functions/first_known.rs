//! `coalesce` and `nvl` of what is random. DataFusion makes a CASE of them, which would draw once to see whether there is a value, and again
//! for the value.

use std::sync::Arc;

use datafusion::arrow::compute::is_not_null;
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// A call as one of the function, if it has to be.
pub(crate) fn amend(expr: Expr) -> Transformed<Expr> {
    let is_drawn_twice = |call: &ScalarFunction| {
        let mut asked = call.args.iter().take(call.args.len().saturating_sub(1));
        matches!(call.name(), "coalesce" | "nvl") && asked.any(Expr::is_volatile)
    };
    match expr {
        Expr::ScalarFunction(call) if is_drawn_twice(&call) => {
            Transformed::yes(ScalarUDF::from(FirstKnown::new()).call(call.args))
        }
        other => Transformed::no(other),
    }
}

/// The first of some values, which have one type, that is not NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FirstKnown {
    signature: Signature,
}

impl FirstKnown {
    fn new() -> Self {
        Self { signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for FirstKnown {
    fn name(&self) -> &str {
        "first_known"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let may_be_null = args.arg_fields.iter().all(|field| field.is_nullable());
        let data_type = args.arg_fields[0].data_type().clone();
        Ok(Arc::new(Field::new(self.name(), data_type, may_be_null)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let mut values = args.args.into_iter().rev();
        let Some(last) = values.next() else { return internal_err!("coalesce has values") };
        let mut known = last.into_array(rows)?;
        for value in values {
            let value = value.into_array(rows)?;
            known = zip(&is_not_null(&value)?, &value, &known)?;
        }
        Ok(ColumnarValue::Array(known))
    }
}
