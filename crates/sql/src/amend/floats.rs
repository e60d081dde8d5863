//! One NaN and one zero among what is computed.
//!
//! Tables hold floats in their one form (`tidefall_types::one_form`), and aggregates answer with it
//! (`functions/amended/`). In between, what computes a float may make another form of it. It is put right where that
//! can be seen: at the end of an expression, and before a comparison, a grouping, a function. Arithmetic upon
//! arithmetic cannot see it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};
use tidefall_types::{OneForm, one_form};

use super::casts::{any_one, cast_of, is_of_decimal};
use crate::tree::Tree;

/// Functions that give one of their arguments, or what has no other form.
const FAITHFUL: [&str; 8] =
    ["coalesce", "nvl", "ifnull", "nullif", "greatest", "least", "abs", "exp"];

/// Aggregates that are the same for all forms of a value.
const BLIND: [&str; 9] =
    ["count", "sum", "avg", "stddev", "stddev_pop", "var", "var_pop", "increase", "rate"];

/// Brings the parts of an expression that it can tell apart into their one form.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Literal(value, metadata) => Ok(match literal(&value) {
            Some(value) => Transformed::yes(Expr::Literal(value, metadata)),
            None => Transformed::no(Expr::Literal(value, metadata)),
        }),
        Expr::Alias(_) => Ok(Transformed::no(expr)),
        expr if is_blind(&expr) => Ok(Transformed::no(expr)),
        expr => expr.map_children(|part| amend_whole(part, schema)),
    }
}

/// Brings what an expression computes into its one form.
pub(super) fn amend_whole(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let Expr::Alias(mut alias) = expr {
        let inner = amend_whole(*alias.expr, schema)?;
        alias.expr = Box::new(inner.data);
        return Ok(Transformed::new(Expr::Alias(alias), inner.transformed, inner.tnr));
    }
    if !may_make_other_forms(&expr, schema)? {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(ScalarUDF::new_from_impl(InOneForm).call(vec![expr])))
}

fn literal(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::Float64(Some(float)) if float.is_doubtful() => {
            Some(ScalarValue::Float64(Some(float.one_form())))
        }
        ScalarValue::Float32(Some(float)) if float.is_doubtful() => {
            Some(ScalarValue::Float32(Some(float.one_form())))
        }
        _ => None,
    }
}

/// Whether an expression is the same for all forms of its parts, but perhaps for the form of what it makes.
fn is_blind(expr: &Expr) -> bool {
    match expr {
        // What is divided by zero shows the sign of zero.
        Expr::BinaryExpr(binary) => is_arithmetic(binary.op) && binary.op != Operator::Divide,
        Expr::Negative(_) | Expr::IsNull(_) | Expr::IsNotNull(_) => true,
        Expr::AggregateFunction(call) => BLIND.contains(&call.func.name()) && !call.params.distinct,
        Expr::ScalarFunction(ScalarFunction { func, .. }) => func.inner().is::<InOneForm>(),
        expr => cast_of(expr).is_some_and(|(_, target)| is_float(&target.to)),
    }
}

fn is_arithmetic(op: Operator) -> bool {
    matches!(
        op,
        Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
    )
}

fn may_make_other_forms(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let is_maker = match expr {
        Expr::BinaryExpr(binary) => is_arithmetic(binary.op),
        Expr::Negative(_) => true,
        Expr::ScalarFunction(ScalarFunction { func, .. }) => {
            !func.inner().is::<InOneForm>()
                && !FAITHFUL.contains(&func.name())
                && !is_of_decimal(expr, schema)?
        }
        expr => match cast_of(expr) {
            // A tiny number becomes 0 in a narrower type and keeps its sign; texts may be anything.
            Some((inner, target)) if is_float(&target.to) => {
                let from = inner.get_type(schema)?;
                !(from.is_integer() || from == DataType::Float32 || from == DataType::Boolean)
                    || may_make_other_forms(inner, schema)?
            }
            _ => false,
        },
    };
    Ok(is_maker && is_float(&expr.get_type(schema)?))
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Brings floats into their one form.
#[derive(Debug, PartialEq, Eq, Hash)]
struct InOneForm;

impl ScalarUDFImpl for InOneForm {
    fn name(&self) -> &str {
        "in_one_form"
    }

    fn signature(&self) -> &Signature {
        any_one()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[0] {
            ColumnarValue::Array(values) => {
                ColumnarValue::Array(one_form(values).unwrap_or_else(|| Arc::clone(values)))
            }
            ColumnarValue::Scalar(value) => {
                ColumnarValue::Scalar(literal(value).unwrap_or_else(|| value.clone()))
            }
        })
    }
}
