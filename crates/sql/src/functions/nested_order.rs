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
        let [left, right] = &args.args[..] else {
            return internal_err!("two values are compared");
        };
        let compared = compare_nested(self.op, left, right, args.number_rows)?;
        Ok(ColumnarValue::Array(Arc::new(compared)))
    }
}

/// A value for each row, or one for all of them, which is not repeated.
struct Side {
    values: ArrayRef,
    nulls: Option<NullBuffer>,
    is_constant: bool,
}

impl Side {
    fn of(value: &ColumnarValue) -> Result<Self> {
        let values = value.to_array(1)?;
        let (nulls, is_constant) =
            (values.logical_nulls(), matches!(value, ColumnarValue::Scalar(_)));
        Ok(Self { values, nulls, is_constant })
    }

    /// Where the value of a row is.
    const fn place(&self, row: usize) -> usize {
        if self.is_constant { 0 } else { row }
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(self.place(row)))
    }
}

/// How values that have parts stand to others, in so many rows; where one is NULL as a whole, that is not known.
pub(super) fn compare_nested(
    op: Operator,
    left: &ColumnarValue,
    right: &ColumnarValue,
    rows: usize,
) -> Result<BooleanArray> {
    let (left, right) = (Side::of(left)?, Side::of(right)?);
    let order = make_comparator(&left.values, &right.values, ASCENDING)?;
    let holds = |row| is(op, order(left.place(row), right.place(row)));
    let is_known = |row| !left.is_null(row) && !right.is_null(row);
    let holds = BooleanBuffer::collect_bool(rows, holds);
    let known = NullBuffer::new(BooleanBuffer::collect_bool(rows, is_known));
    Ok(BooleanArray::new(holds, Some(known)))
}

fn is(op: Operator, order: Ordering) -> bool {
    match op {
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        _ => order.is_ge(),
    }
}

/// The names of the greatest and of the least of values with parts.
pub(crate) const EXTREMES: [&str; 2] = ["greatest_of_parts", "least_of_parts"];

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
        EXTREMES[usize::from(self.wanted == Ordering::Less)]
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let sides = args.args.iter().map(Side::of).collect::<Result<Vec<_>>>()?;
        let converter = converter_of(args.return_type())?;
        let rows = |side: &Side| Ok(converter.convert_columns(&[Arc::clone(&side.values)])?);
        let rows = sides.iter().map(rows).collect::<Result<Vec<_>>>()?;
        // Which of the arguments is the extreme.
        let extreme = |row| {
            let value = |at: usize| rows[at].row(sides[at].place(row));
            let mut best = 0;
            for at in (1..sides.len()).filter(|at| !sides[*at].is_null(row)) {
                let order = value(at).cmp(&value(best));
                if sides[best].is_null(row) || order == self.wanted {
                    best = at;
                }
            }
            (best, sides[best].place(row))
        };
        let places: Vec<_> = (0..args.number_rows).map(extreme).collect();
        let values: Vec<&dyn Array> = sides.iter().map(|side| side.values.as_ref()).collect();
        Ok(ColumnarValue::Array(interleave(&values, &places)?))
    }
}
