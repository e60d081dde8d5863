//! `<`, `<=`, `>` and `>=` of lists and structs: part by part, NULL being the greatest part, as `ORDER BY` has them. DataFusion takes
//! NULL for the least here, and for the greatest there.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, make_comparator};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Between, BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, not,
};

/// A comparison of lists or structs as a call of the function.
pub(crate) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_order(op) && are_nested(&left, &right, schema)? =>
        {
            Ok(Transformed::yes(compared(*left, op, *right)))
        }
        Expr::Between(Between { expr, negated, low, high })
            if are_nested(&expr, &low, schema)? && are_nested(&expr, &high, schema)? =>
        {
            let from = compared((*expr).clone(), Operator::GtEq, *low);
            let within = from.and(compared(*expr, Operator::LtEq, *high));
            Ok(Transformed::yes(if negated { not(within) } else { within }))
        }
        other => Ok(Transformed::no(other)),
    }
}

const fn is_order(op: Operator) -> bool {
    matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

fn are_nested(left: &Expr, right: &Expr, schema: &DFSchema) -> Result<bool> {
    let (left, right) = (left.get_type(schema)?, right.get_type(schema)?);
    Ok(left.is_nested() && left.equals_datatype(&right))
}

fn compared(left: Expr, op: Operator, right: Expr) -> Expr {
    ScalarUDF::new_from_impl(NestedOrder::new(op)).call(vec![left, right])
}

/// Whether the first of two values stands so to the second.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NestedOrder {
    op: Operator,
    signature: Signature,
}

impl NestedOrder {
    fn new(op: Operator) -> Self {
        Self { op, signature: Signature::any(2, Volatility::Immutable) }
    }

    fn holds(&self, order: Ordering) -> bool {
        match self.op {
            Operator::Lt => order.is_lt(),
            Operator::LtEq => order.is_le(),
            Operator::Gt => order.is_gt(),
            _ => order.is_ge(),
        }
    }
}

impl ScalarUDFImpl for NestedOrder {
    fn name(&self) -> &str {
        match self.op {
            Operator::Lt => "is_before",
            Operator::LtEq => "is_not_behind",
            Operator::Gt => "is_behind",
            _ => "is_not_before",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let sides: Vec<ArrayRef> = ColumnarValue::values_to_arrays(&args.args)?;
        let [left, right] = &sides[..] else {
            return internal_err!("two values are compared");
        };
        let ascending = SortOptions { descending: false, nulls_first: false };
        let order = make_comparator(left, right, ascending)?;
        let rows = 0..left.len();
        let holds = BooleanBuffer::collect_bool(rows.len(), |row| self.holds(order(row, row)));
        let nulls =
            NullBuffer::union(left.logical_nulls().as_ref(), right.logical_nulls().as_ref());
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(holds, nulls))))
    }
}
