//! A fault on purpose, for tests of what becomes of one: only where debug assertions are.

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// `panic_where(condition)` panics at the first row for which its condition is true, and is false for all others.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct PanicWhere(Signature);

impl PanicWhere {
    pub(super) fn new() -> Self {
        Self(Signature::exact(vec![DataType::Boolean], Volatility::Volatile))
    }
}

impl ScalarUDFImpl for PanicWhere {
    fn name(&self) -> &str {
        "panic_where"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let conditions = args.args[0].to_array(args.number_rows)?;
        assert_eq!(conditions.as_boolean().true_count(), 0, "panic_where() was told to panic");
        Ok(args.args[0].clone())
    }
}
