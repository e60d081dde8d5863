//! `<`, `<=`, `>`, `>=`, `greatest` and `least` of lists and structs: part by part, NULL being the greatest part, as `ORDER BY` has
//! them. DataFusion takes NULL for the least here, and for the greatest there.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, make_comparator};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::{SortOptions, interleave};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

/// As `ORDER BY` has values with parts: a part that is NULL is the greatest.
const ASCENDING: SortOptions = SortOptions { descending: false, nulls_first: false };

/// Whether values of a type have parts that can be ordered.
pub(super) fn has_ordered_parts(data_type: &DataType) -> bool {
    data_type.is_nested() && RowConverter::supports_fields(&[field_of(data_type)])
}

/// Makes rows of values with parts that stand to each other as these.
pub(super) fn converter_of(data_type: &DataType) -> Result<RowConverter> {
    Ok(RowConverter::new(vec![field_of(data_type)])?)
}

fn field_of(data_type: &DataType) -> SortField {
    SortField::new_with_options(data_type.clone(), ASCENDING)
}

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
                && call.args.first().is_some_and(|first| is_ordered(first, schema)) =>
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

fn is_ordered(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| has_ordered_parts(&data_type))
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
        let sides = all_rows(&args)?;
        let [left, right] = &sides[..] else {
            return internal_err!("two values are compared");
        };
        Ok(ColumnarValue::Array(Arc::new(compare_nested(self.op, left, right)?)))
    }
}

/// The arguments of a function, with a value for each row.
pub(super) fn all_rows(args: &ScalarFunctionArgs) -> Result<Vec<ArrayRef>> {
    args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect()
}

/// How values that have parts stand to others, row by row; where one is NULL as a whole, that is not known.
pub(super) fn compare_nested(
    op: Operator,
    left: &ArrayRef,
    right: &ArrayRef,
) -> Result<BooleanArray> {
    let order = make_comparator(left, right, ASCENDING)?;
    let holds = BooleanBuffer::collect_bool(left.len(), |row| is(op, order(row, row)));
    let nulls = NullBuffer::union(left.logical_nulls().as_ref(), right.logical_nulls().as_ref());
    Ok(BooleanArray::new(holds, nulls))
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
        let values = all_rows(&args)?;
        let converter = converter_of(args.return_type())?;
        let rows =
            values.iter().map(|column| Ok(converter.convert_columns(&[Arc::clone(column)])?));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let nulls: Vec<_> = values.iter().map(|column| column.logical_nulls()).collect();
        let is_there = |at: usize, row| nulls[at].as_ref().is_none_or(|nulls| nulls.is_valid(row));
        // Which of the arguments is the extreme.
        let extreme = |row| {
            let mut best = 0;
            for at in (1..values.len()).filter(|at| is_there(*at, row)) {
                let order = rows[at].row(row).cmp(&rows[best].row(row));
                if !is_there(best, row) || order == self.wanted {
                    best = at;
                }
            }
            (best, row)
        };
        let places: Vec<_> = (0..args.number_rows).map(extreme).collect();
        let values: Vec<&dyn Array> = values.iter().map(|values| values.as_ref()).collect();
        Ok(ColumnarValue::Array(interleave(&values, &places)?))
    }
}
