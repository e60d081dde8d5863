//! `nullif` whose values are compared as they are where they stand beside each other. DataFusion brings both to one type, and answers in that.
//!
//! As a `CASE` it would have its first value twice: what is drawn would be two numbers, and what is computed within each other as many
//! as there are ways down to it. So it is a function that has the comparison within it.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{cast, nullif};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, binary_expr, col,
};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use datafusion::physical_expr::create_physical_expr;

use super::{after_coercion, compared, comparison};

/// The names of the two values in their comparison.
const NAMES: [&str; 2] = ["value", "other"];

/// A `nullif` as a call of the function, if it has to be.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some([value, other]) = compared::of_nullif(&expr) else {
        return Ok(Transformed::no(expr));
    };
    let types = [value.get_type(schema)?, other.get_type(schema)?];
    let are_unlike = types.iter().all(DataType::is_numeric) && types[0] != types[1];
    let is_same = |[value, other]: [Expr; 2], schema: &DFSchema| {
        comparison(binary_expr(value, Operator::Eq, other), schema)
    };
    if !are_unlike && !is_same([value.clone(), other.clone()], schema)?.transformed {
        return Ok(Transformed::no(expr));
    }
    let fields: Vec<Field> =
        NAMES.iter().zip(&types).map(|(name, ty)| Field::new(*name, ty.clone(), true)).collect();
    let of_values = DFSchema::try_from(Schema::new(fields))?;
    // What is written out is compared as it is written.
    let placed = |part: &Expr, name| if is_written(part) { part.clone() } else { col(name) };
    let is_same = is_same([placed(value, NAMES[0]), placed(other, NAMES[1])], &of_values)?.data;
    let Ok(coerced) = is_same.rewrite(&mut TypeCoercionRewriter::new(&of_values)) else {
        // Its own error tells what it was given.
        return Ok(Transformed::no(expr));
    };
    let is_same = after_coercion(coerced.data, &of_values)?.data;
    let signature = Signature::exact(types.to_vec(), Volatility::Immutable);
    let function = ScalarUDF::from(NullIf { is_same, types, signature });
    Ok(Transformed::yes(function.call(vec![value.clone(), other.clone()])))
}

/// Whether an expression is a constant as somebody has written it.
fn is_written(expr: &Expr) -> bool {
    let is_other = expr.exists(|part| {
        let is_plain = matches!(
            part,
            Expr::Literal(..) | Expr::Negative(_) | Expr::Cast(_) | Expr::TryCast(_)
        );
        Ok(!is_plain)
    });
    is_other.is_ok_and(|is_other| !is_other)
}

/// The first of two values, or NULL where they are the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NullIf {
    /// Their comparison, as columns of [`NAMES`].
    is_same: Expr,
    types: [DataType; 2],
    signature: Signature,
}

impl ScalarUDFImpl for NullIf {
    fn name(&self) -> &str {
        "nullif"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_scalars = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if are_scalars { 1 } else { args.number_rows };
        let column = |(arg, ty): (&ColumnarValue, &DataType)| Ok(cast(&arg.to_array(rows)?, ty)?);
        let columns = args.args.iter().zip(&self.types).map(column).collect::<Result<Vec<_>>>()?;
        let [value, _] = &columns[..] else { return internal_err!("nullif has two values") };
        let value = Arc::clone(value);
        let fields = NAMES.iter().zip(&self.types);
        let fields = fields.map(|(name, ty)| Field::new(*name, ty.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let of_values = DFSchema::try_from(Arc::clone(&schema))?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let is_same = create_physical_expr(
            &self.is_same,
            &of_values,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )?;
        let is_same = is_same.evaluate(&batch)?.into_array(rows)?;
        let found = nullif(&value, is_same.as_boolean())?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
}
