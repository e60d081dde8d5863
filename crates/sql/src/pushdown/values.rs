//! Conditions on values, by which blocks are ruled out.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, Operator};
use tidefall_storage::{Comparison, ValueCondition};
use tidefall_types::{ColumnKind, FieldId, FieldType, TableSchema};

use super::column_kind;

/// From here on not every integer is an `f64`.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// An end of a stretch of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct End {
    pub(crate) value: f64,
    /// Whether the end itself lies in the stretch.
    pub(crate) is_in: bool,
}

impl End {
    /// The one of two lower ends that leaves out more.
    pub(crate) fn higher(self, other: Self) -> Self {
        match self.value == other.value {
            true => Self { is_in: self.is_in && other.is_in, ..self },
            false if self.value > other.value => self,
            false => other,
        }
    }

    /// The one of two upper ends that leaves out more.
    pub(crate) fn lower(self, other: Self) -> Self {
        match self.value == other.value {
            true => Self { is_in: self.is_in && other.is_in, ..self },
            false if self.value < other.value => self,
            false => other,
        }
    }
}

/// The end at `literal` of the numbers that `op` holds for, as block metrics can check it.
pub(crate) fn end_of(op: Operator, literal: &ScalarValue) -> Option<End> {
    let value = number(literal)?;
    // SQL orders all numbers, so that -0.0 < 0.0; and large integers round to the same f64. In
    // both cases a strict comparison of the f64 could rule out a row that the query wants.
    let strict_is_safe = value != 0.0 && value.abs() < EXACT_MAX;
    let is_strict = matches!(op, Operator::Lt | Operator::Gt);
    Some(End { value, is_in: !(is_strict && strict_is_safe) })
}

/// The condition `column op literal` as block metrics can check it. It may hold for more rows
/// than the original, never for fewer.
pub(super) fn condition(
    column: &Expr,
    op: Operator,
    literal: &ScalarValue,
    schema: &TableSchema,
) -> Option<ValueCondition> {
    let field = numeric_field(column, schema)?;
    let end = end_of(op, literal)?;
    let op = match op {
        Operator::Lt if !end.is_in => Comparison::Lt,
        Operator::Gt if !end.is_in => Comparison::Gt,
        Operator::Lt | Operator::LtEq => Comparison::LtEq,
        Operator::Gt | Operator::GtEq => Comparison::GtEq,
        Operator::Eq => Comparison::Eq,
        _ => return None,
    };
    Some(ValueCondition { field, op, value: end.value })
}

/// The field of numbers or timestamps that `expr` is, also under a cast that keeps the order of its values.
fn numeric_field(expr: &Expr, schema: &TableSchema) -> Option<FieldId> {
    match expr {
        Expr::Column(_) => match column_kind(expr, schema)? {
            ColumnKind::Field(id) if schema.fields[id.index()].ty.is_numeric() => Some(id),
            ColumnKind::Field(id) if schema.fields[id.index()].ty == FieldType::Timestamp => {
                Some(id)
            }
            _ => None,
        },
        Expr::Cast(cast) => {
            let id = numeric_field(&cast.expr, schema)?;
            let ty = schema.fields[id.index()].ty;
            if !ty.is_numeric() {
                return None;
            }
            let from = ty.arrow();
            let to = cast.field.data_type();
            let widens = matches!(to, DataType::Float64) || (from.is_integer() && to.is_integer());
            widens.then_some(id)
        }
        _ => None,
    }
}

fn number(literal: &ScalarValue) -> Option<f64> {
    let value = match literal {
        ScalarValue::Int8(value) => f64::from((*value)?),
        ScalarValue::Int16(value) => f64::from((*value)?),
        ScalarValue::Int32(value) => f64::from((*value)?),
        ScalarValue::Int64(value) => (*value)? as f64,
        ScalarValue::UInt8(value) => f64::from((*value)?),
        ScalarValue::UInt16(value) => f64::from((*value)?),
        ScalarValue::UInt32(value) => f64::from((*value)?),
        ScalarValue::UInt64(value) => (*value)? as f64,
        ScalarValue::Float32(value) => f64::from((*value)?),
        ScalarValue::Float64(value) => (*value)?,
        ScalarValue::TimestampNanosecond(value, None) => (*value)? as f64,
        _ => return None,
    };
    // A comparison with NaN has its own order, which metrics do not follow.
    (!value.is_nan()).then_some(value)
}
