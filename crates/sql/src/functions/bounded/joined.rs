//! `||` of texts as a function, so that it can be bounded like `concat`. Other than there, NULL beside a text is NULL.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self, Column};

use super::Bounded;
use super::growth::Growth;

static JOIN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let join = Join { signature: Signature::any(2, Volatility::Immutable) };
    let plain = Arc::new(ScalarUDF::new_from_impl(join));
    Arc::new(ScalarUDF::new_from_impl(Bounded(plain, Growth::Join)))
});

/// The call that stands for `||` between two texts.
pub(super) fn call(operation: BinaryExpr) -> Expr {
    let args = vec![*operation.left, *operation.right];
    Expr::ScalarFunction(ScalarFunction { func: Arc::clone(&JOIN), args })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Join {
    signature: Signature,
}

impl ScalarUDFImpl for Join {
    fn name(&self) -> &str {
        "||"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [left, right] = types else { return exec_err!("|| stands between two texts") };
        BinaryTypeCoercer::new(left, &Operator::StringConcat, right).get_result_type()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    /// Leaves it to the operator.
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        let columns = args.args.into_iter().map(|arg| arg.into_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let fields: Vec<Field> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| Field::new(at.to_string(), column.data_type().clone(), true))
            .collect();
        let sides = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let side = |at: usize| Arc::new(Column::new(&at.to_string(), at)) as Arc<dyn PhysicalExpr>;
        let join = expressions::BinaryExpr::new(side(0), Operator::StringConcat, side(1));
        join.evaluate(&sides)
    }
}
