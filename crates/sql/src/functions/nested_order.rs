//! `<`, `<=`, `>`, `>=`, `greatest` and `least` of lists and structs: part by part, NULL being the greatest part, as `ORDER BY` has
//! them. DataFusion takes NULL for the least here, and for the greatest there.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray, make_comparator};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::{SortOptions, interleave};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

const ASCENDING: SortOptions = SortOptions { descending: false, nulls_first: false };

/// A comparison of lists or structs as a call of the function.
pub(crate) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_order(op) && are_nested(&left, &right, schema)? =>
        {
            Ok(Transformed::yes(compared(*left, op, *right)))
        }
        Expr::ScalarFunction(call)
            if let Some(wanted) = wanted_by(call.name())
                && call.args.first().is_some_and(|first| is_nested(first, schema)) =>
        {
            let extreme = ScalarUDF::from(NestedExtreme::new(wanted));
            Ok(Transformed::yes(extreme.call(call.args)))
        }
        other => Ok(Transformed::no(other)),
    }
}

const fn is_order(op: Operator) -> bool {
    matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

/// How the answer of a function stands to its other arguments.
fn wanted_by(function: &str) -> Option<Ordering> {
    match function {
        "greatest" => Some(Ordering::Greater),
        "least" => Some(Ordering::Less),
        _ => None,
    }
}

pub(super) fn is_nested(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_nested())
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
        let [left, right] = &args.args[..] else {
            return internal_err!("two values are compared");
        };
        compare_nested(self.op, left, right)
    }
}

/// How two values that have parts stand to each other; where one is NULL as a whole, that is not known.
pub(super) fn compare_nested(
    op: Operator,
    left: &ColumnarValue,
    right: &ColumnarValue,
) -> Result<ColumnarValue> {
    let sides = ColumnarValue::values_to_arrays(&[left.clone(), right.clone()])?;
    let [left, right] = [&sides[0], &sides[1]];
    let order = make_comparator(left, right, ASCENDING)?;
    let holds = BooleanBuffer::collect_bool(left.len(), |row| is(op, order(row, row)));
    let nulls = NullBuffer::union(left.logical_nulls().as_ref(), right.logical_nulls().as_ref());
    Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(holds, nulls))))
}

fn is(op: Operator, order: Ordering) -> bool {
    match op {
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        _ => order.is_ge(),
    }
}

/// The greatest or the least of some values that are not NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NestedExtreme {
    wanted: Ordering,
    signature: Signature,
}

impl NestedExtreme {
    fn new(wanted: Ordering) -> Self {
        Self { wanted, signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for NestedExtreme {
    fn name(&self) -> &str {
        if self.wanted == Ordering::Greater { "greatest_of_parts" } else { "least_of_parts" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = ColumnarValue::values_to_arrays(&args.args)?;
        let rows = values.first().map_or(0, |first| first.len());
        // Which of the arguments is the extreme so far.
        let mut chosen = vec![0; rows];
        for (at, value) in values.iter().enumerate().skip(1) {
            let there = value.logical_nulls();
            for (before, earlier) in values[..at].iter().enumerate() {
                let order = make_comparator(value, earlier, ASCENDING)?;
                let earlier_there = earlier.logical_nulls();
                let is_there = |nulls: &Option<NullBuffer>, row| {
                    nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
                };
                for row in (0..rows).filter(|row| is_there(&there, *row)) {
                    if chosen[row] == before
                        && (!is_there(&earlier_there, row) || order(row, row) == self.wanted)
                    {
                        chosen[row] = at;
                    }
                }
            }
        }
        let values: Vec<&dyn Array> = values.iter().map(|values| values.as_ref()).collect();
        let places: Vec<_> = chosen.into_iter().zip(0..).collect();
        Ok(ColumnarValue::Array(interleave(&values, &places)?))
    }
}
