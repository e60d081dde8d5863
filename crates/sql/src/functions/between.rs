//! `BETWEEN` of what is random, or has parts. DataFusion makes two comparisons of it: it would draw a random number for each, and take
//! NULL parts for the least.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::and_kleene;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Between, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, not,
};
use datafusion::physical_expr_common::datum::apply_cmp;

use super::nested_order::{compare_nested, is_nested};

/// `BETWEEN` as a call of the function, if it has to be.
pub(crate) fn amend(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::Between(Between { expr, negated, low, high })
            if expr.is_volatile() || is_nested(&expr, schema) =>
        {
            let function = ScalarUDF::from(IsBetween::new());
            let within = function.call(vec![*expr, *low, *high]);
            Transformed::yes(if negated { not(within) } else { within })
        }
        other => Transformed::no(other),
    }
}

/// Whether the first of three values lies between the others, or is one of them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IsBetween {
    signature: Signature,
}

impl IsBetween {
    fn new() -> Self {
        Self { signature: Signature::any(3, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for IsBetween {
    fn name(&self) -> &str {
        "is_between"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, low, high] = &args.args[..] else {
            return internal_err!("BETWEEN has three values");
        };
        let rows = args.number_rows;
        let compare = |op, bound| match value.data_type().is_nested() {
            true => compare_nested(op, value, bound, rows),
            false => Ok(apply_cmp(op, value, bound)?.to_array(rows)?.as_boolean().clone()),
        };
        let within = and_kleene(&compare(Operator::GtEq, low)?, &compare(Operator::LtEq, high)?)?;
        Ok(ColumnarValue::Array(Arc::new(within)))
    }
}
