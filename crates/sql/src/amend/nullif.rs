//! `nullif` whose values are compared as they are where they stand beside each other. DataFusion brings both to one type, and answers in that.
//!
//! As a `CASE` it would have its first value twice: what is drawn would be two numbers, and what is computed within each other as many
//! as there are ways down to it. So it is a function that has the comparison within it.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::nullif;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::execution::context::ExecutionProps;
use datafusion::functions::core::nullif::NullIfFunc;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, binary_expr, col,
};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_plan::PhysicalExpr;

use super::{after_coercion, comparison};
use crate::tree::Tree;

/// The names of the two values in their comparison.
const NAMES: [&str; 2] = ["value", "other"];

/// A `nullif` as a call of the function, if it has to be.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(values) = values_of(&expr) else { return Ok(Transformed::no(expr)) };
    let [value, other] = values;
    let types = [value.get_type(schema)?, other.get_type(schema)?];
    let are_unlike = types.iter().all(DataType::is_numeric) && types[0] != types[1];
    let is_same = binary_expr(value.clone(), Operator::Eq, other.clone());
    if !are_unlike && !comparison(is_same, schema)?.transformed {
        return Ok(Transformed::no(expr));
    }
    let function = NullIf::new(values);
    if function.comparison(&schema_of(&types)).is_err() {
        // Its own error tells what it was given.
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(ScalarUDF::from(function).call(values.to_vec())))
}

/// What DataFusion's `nullif` compares.
fn values_of(expr: &Expr) -> Option<&[Expr; 2]> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.inner().is::<NullIfFunc>() => {
            <&[Expr; 2]>::try_from(&args[..]).ok()
        }
        _ => None,
    }
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

/// The two values as columns.
fn schema_of(types: &[DataType]) -> Arc<Schema> {
    let field = |(name, ty): (&&str, &DataType)| Field::new(*name, ty.clone(), true);
    Arc::new(Schema::new(NAMES.iter().zip(types).map(field).collect::<Vec<_>>()))
}

/// The first of two values, or NULL where they are the same.
#[derive(Debug)]
struct NullIf {
    /// Their comparison, as columns of [`NAMES`] where they are not constants: those are compared as they are written.
    is_same: Expr,
    /// The same, once somebody has wanted it, for values of these types. What they are is known when all of a plan is coerced.
    planned: Mutex<Option<Planned>>,
    signature: Signature,
}

/// A comparison of values of some types.
#[derive(Debug)]
struct Planned {
    of: Arc<Schema>,
    is_same: Arc<dyn PhysicalExpr>,
}

impl NullIf {
    fn new([value, other]: &[Expr; 2]) -> Self {
        let placed = |part: &Expr, name| if is_written(part) { part.clone() } else { col(name) };
        let [value, other] = [placed(value, NAMES[0]), placed(other, NAMES[1])];
        Self {
            is_same: binary_expr(value, Operator::Eq, other),
            planned: Mutex::default(),
            signature: Signature::any(2, Volatility::Immutable),
        }
    }

    fn comparison(&self, schema: &Arc<Schema>) -> Result<Arc<dyn PhysicalExpr>> {
        let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = planned.as_ref().filter(|known| known.of == *schema) {
            return Ok(Arc::clone(&known.is_same));
        }
        let of_values = DFSchema::try_from(Arc::clone(schema))?;
        let is_same = comparison(self.is_same.clone(), &of_values)?.data;
        let coerced = is_same.rewrite(&mut TypeCoercionRewriter::new(&of_values))?.data;
        let is_same = create_physical_expr(
            &after_coercion(coerced, &of_values)?.data,
            &of_values,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )?;
        *planned = Some(Planned { of: Arc::clone(schema), is_same: Arc::clone(&is_same) });
        Ok(is_same)
    }
}

impl PartialEq for NullIf {
    fn eq(&self, other: &Self) -> bool {
        self.is_same == other.is_same
    }
}

impl Eq for NullIf {}

impl Hash for NullIf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.is_same.hash(state);
    }
}

impl ScalarUDFImpl for NullIf {
    fn name(&self) -> &str {
        "nullif"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [value, _] => Ok(value.clone()),
            _ => internal_err!("nullif has two values"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_scalars = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if are_scalars { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let [value, other] = &columns[..] else { return internal_err!("nullif has two values") };
        let value = Arc::clone(value);
        let schema = schema_of(&[value.data_type().clone(), other.data_type().clone()]);
        let is_same = self.comparison(&schema)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let found = nullif(&value, is_same.evaluate(&batch)?.into_array(rows)?.as_boolean())?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
}
