//! What becomes known of the wanted rows while they are read.
//!
//! A sort that keeps a few rows, or a join that has seen one of its sides, says which rows it still wants in filters
//! that change as it goes on (dynamic filters of DataFusion). Here such filters become a box of times and values, by
//! which stretches of time and blocks are left out. The box is never smaller than what a filter says: who made the
//! filter looks at the rows once more. What a filter says of tags alone is asked of each sensor before it is read.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNullExpr, Literal};
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr_common::physical_expr::{
    snapshot_generation, snapshot_physical_expr,
};
use tidefall_storage::{Comparison, LateCondition, ValueCondition};
use tidefall_types::{ColumnKind, FieldId, TableSchema, TagId, TimeRange};

use crate::pushdown::{End, end_of};

/// A range in which no time lies.
const NEVER: TimeRange = TimeRange::new(0, -1);

/// Filters that change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Which of their states was looked at last.
    seen: Option<u64>,
}

/// The columns of what filters look at, and their table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) kinds: &'a [ColumnKind],
    pub(crate) schema: &'a TableSchema,
}

impl Columns<'_> {
    fn kind(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<ColumnKind> {
        let column = expr.downcast_ref::<Column>()?;
        self.kinds.get(column.index()).copied()
    }

    fn is_number(&self, field: FieldId) -> bool {
        self.schema.fields[field.index()].ty.is_numeric()
    }

    /// Whether a filter looks at something by which rows can be left out.
    pub(crate) fn can_tell(&self, filter: &Arc<dyn PhysicalExpr>) -> bool {
        collect_columns(filter).iter().any(|column| match self.kinds.get(column.index()) {
            Some(ColumnKind::Time) => true,
            Some(ColumnKind::Field(field)) => self.is_number(*field),
            Some(ColumnKind::Tag(_)) => true,
            _ => false,
        })
    }

    /// The places and the tags that a filter looks at, if it looks at tags alone.
    fn tags_of(&self, filter: &Arc<dyn PhysicalExpr>) -> Option<Vec<(usize, TagId)>> {
        let tags = collect_columns(filter).into_iter().map(|column| {
            match self.kinds.get(column.index()) {
                Some(ColumnKind::Tag(tag)) => Some((column.index(), *tag)),
                _ => None,
            }
        });
        tags.collect::<Option<Vec<_>>>().filter(|tags| !tags.is_empty())
    }
}

impl Live {
    pub(crate) fn new(filters: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self { filters, seen: None }
    }

    /// The box around the rows that are wanted now, if it may have changed since it was asked for last.
    pub(crate) fn news(&mut self, columns: Columns<'_>) -> Option<Around> {
        if self.filters.is_empty() {
            return None;
        }
        let generations = self.filters.iter().map(snapshot_generation);
        let now = generations.fold(0, u64::wrapping_add);
        if self.seen.replace(now) == Some(now) {
            return None;
        }
        let boxes = self.filters.iter().filter_map(|filter| {
            let filter = snapshot_physical_expr(Arc::clone(filter)).ok()?;
            Around::of(&filter, columns)
        });
        Some(boxes.fold(Around::everything(), Around::and))
    }

    /// Takes those from `sensors` of which no rows are wanted, by what is said now of their tags alone. `values_of` has
    /// the values of a tag for some sensors, of the type that the column of the tag has in `arrow`.
    pub(crate) fn retain_wanted(
        &self,
        sensors: &mut Vec<u32>,
        columns: Columns<'_>,
        arrow: &SchemaRef,
        values_of: impl Fn(TagId, &[u32]) -> Result<ArrayRef>,
    ) {
        for filter in &self.filters {
            let Ok(filter) = snapshot_physical_expr(Arc::clone(filter)) else { continue };
            for condition in split_conjunction(&filter) {
                let Some(tags) = columns.tags_of(condition) else { continue };
                // One that fails says nothing here; who made it will see it fail where it matters.
                let is_wanted = holds(condition, &tags, arrow, |tag| values_of(tag, sensors));
                let Ok(is_wanted) = is_wanted else { continue };
                let mut rows = is_wanted.iter();
                sensors.retain(|_| rows.next().flatten() == Some(true));
            }
        }
    }
}

/// Whether a condition on some tags holds, for each of the rows that `values_of` gives.
fn holds(
    condition: &Arc<dyn PhysicalExpr>,
    tags: &[(usize, TagId)],
    arrow: &SchemaRef,
    values_of: impl Fn(TagId) -> Result<ArrayRef>,
) -> Result<BooleanArray> {
    let places: Vec<usize> = tags.iter().map(|(place, _)| *place).collect();
    let arrow = Arc::new(arrow.project(&places)?);
    let values = tags.iter().map(|(_, tag)| values_of(*tag)).collect::<Result<Vec<_>>>()?;
    let rows = RecordBatch::try_new(Arc::clone(&arrow), values)?;
    let condition = reassign_expr_columns(Arc::clone(condition), &arrow)?;
    let holds = condition.evaluate(&rows)?.into_array(rows.num_rows())?;
    match holds.as_boolean_opt() {
        Some(holds) => Ok(holds.clone()),
        None => datafusion::common::internal_err!("a filter that is {}", holds.data_type()),
    }
}

/// A box around wanted rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Around {
    time: TimeRange,
    fields: Vec<(FieldId, Span)>,
}

/// The values of a field that lie between two ends, and perhaps rows without a value.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    low: End,
    high: End,
    or_null: bool,
}

impl Span {
    const VALUES: Self = Self {
        low: End { value: f64::NEG_INFINITY, is_in: true },
        high: End { value: f64::INFINITY, is_in: true },
        or_null: false,
    };
    const NULLS: Self = Self {
        low: End { value: f64::INFINITY, is_in: false },
        high: End { value: f64::NEG_INFINITY, is_in: false },
        or_null: true,
    };

    fn has_values(&self) -> bool {
        self.low.value < self.high.value
            || (self.low.value == self.high.value && self.low.is_in && self.high.is_in)
    }

    fn is_empty(&self) -> bool {
        !self.or_null && !self.has_values()
    }

    fn and(self, other: Self) -> Self {
        let (low, high) = (self.low.higher(other.low), self.high.lower(other.high));
        Self { low, high, or_null: self.or_null && other.or_null }
    }

    fn or(self, other: Self) -> Self {
        let or_null = self.or_null || other.or_null;
        match (self.has_values(), other.has_values()) {
            (false, _) => Self { or_null, ..other },
            (_, false) => Self { or_null, ..self },
            (true, true) => {
                // The end further out, and in if one of two that are the same is.
                let low = match self.low.value == other.low.value {
                    true => End { is_in: self.low.is_in || other.low.is_in, ..self.low },
                    false => {
                        if self.low.value < other.low.value {
                            self.low
                        } else {
                            other.low
                        }
                    }
                };
                let high = match self.high.value == other.high.value {
                    true => End { is_in: self.high.is_in || other.high.is_in, ..self.high },
                    false => {
                        if self.high.value > other.high.value {
                            self.high
                        } else {
                            other.high
                        }
                    }
                };
                Self { low, high, or_null }
            }
        }
    }

    fn conditions(self, field: FieldId) -> impl Iterator<Item = LateCondition> {
        let late = move |op, end: End| LateCondition {
            condition: ValueCondition { field, op, value: end.value },
            or_null: self.or_null,
        };
        let low = match self.low.is_in {
            true => late(Comparison::GtEq, self.low),
            false => late(Comparison::Gt, self.low),
        };
        let high = match self.high.is_in {
            true => late(Comparison::LtEq, self.high),
            false => late(Comparison::Lt, self.high),
        };
        let is_bound = |late: &LateCondition, open_end: f64| {
            late.condition.value != open_end
                || matches!(late.condition.op, Comparison::Gt | Comparison::Lt)
        };
        let low = Some(low).filter(|low| is_bound(low, f64::NEG_INFINITY));
        low.into_iter().chain(Some(high).filter(|high| is_bound(high, f64::INFINITY)))
    }
}

impl Around {
    /// The box that holds every row.
    pub(crate) fn everything() -> Self {
        Self { time: TimeRange::ALL, fields: Vec::new() }
    }

    fn nothing() -> Self {
        Self { time: NEVER, ..Self::everything() }
    }

    fn of_field(field: FieldId, span: Span) -> Self {
        Self { fields: vec![(field, span)], ..Self::everything() }
    }

    /// The times in it.
    pub(crate) fn time(&self) -> TimeRange {
        if self.is_empty() { NEVER } else { self.time }
    }

    /// What its values meet.
    pub(crate) fn conditions(&self) -> Vec<LateCondition> {
        self.fields.iter().flat_map(|(field, span)| span.conditions(*field)).collect()
    }

    fn is_empty(&self) -> bool {
        self.time.is_empty() || self.fields.iter().any(|(_, span)| span.is_empty())
    }

    /// The box around the rows for which `expr` is true; nothing when it could be any row as far as we can tell.
    fn of(expr: &Arc<dyn PhysicalExpr>, columns: Columns<'_>) -> Option<Self> {
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            return match literal.value() {
                ScalarValue::Boolean(Some(true)) => Some(Self::everything()),
                ScalarValue::Boolean(_) => Some(Self::nothing()),
                _ => None,
            };
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            return match columns.kind(is_null.arg())? {
                ColumnKind::Time => Some(Self::nothing()),
                ColumnKind::Field(field) if columns.is_number(field) => {
                    Some(Self::of_field(field, Span::NULLS))
                }
                _ => None,
            };
        }
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        let sides = [binary.left(), binary.right()];
        match (*binary.op(), sides.map(|side| Self::of_side(side, *binary.op(), columns))) {
            (Operator::And, [Some(left), Some(right)]) => Some(left.and(right)),
            (Operator::And, [left, right]) => left.or(right),
            (Operator::Or, [left, right]) => Some(left?.or(right?)),
            (op, _) => Self::of_comparison(sides[0], op, sides[1], columns)
                .or_else(|| Self::of_comparison(sides[1], op.swap()?, sides[0], columns)),
        }
    }

    /// The box of one side of a chain.
    fn of_side(side: &Arc<dyn PhysicalExpr>, op: Operator, columns: Columns<'_>) -> Option<Self> {
        match op {
            Operator::And | Operator::Or => Self::of(side, columns),
            _ => None,
        }
    }

    fn of_comparison(
        column: &Arc<dyn PhysicalExpr>,
        op: Operator,
        literal: &Arc<dyn PhysicalExpr>,
        columns: Columns<'_>,
    ) -> Option<Self> {
        let literal = literal.downcast_ref::<Literal>()?.value();
        match columns.kind(column)? {
            ColumnKind::Time => {
                let ScalarValue::TimestampNanosecond(Some(ns), _) = literal else { return None };
                let time = match op {
                    Operator::Eq => Some(TimeRange::new(*ns, *ns)),
                    Operator::GtEq => Some(TimeRange::new(*ns, i64::MAX)),
                    Operator::LtEq => Some(TimeRange::new(i64::MIN, *ns)),
                    Operator::Gt => ns.checked_add(1).map(|ns| TimeRange::new(ns, i64::MAX)),
                    Operator::Lt => ns.checked_sub(1).map(|ns| TimeRange::new(i64::MIN, ns)),
                    _ => return None,
                };
                Some(Self { time: time.unwrap_or(NEVER), ..Self::everything() })
            }
            ColumnKind::Field(field) if columns.is_number(field) => {
                let span = match op {
                    Operator::Eq => {
                        let end = end_of(Operator::GtEq, literal)?;
                        Span { low: end, high: end, ..Span::VALUES }
                    }
                    Operator::Gt | Operator::GtEq => {
                        Span { low: end_of(op, literal)?, ..Span::VALUES }
                    }
                    Operator::Lt | Operator::LtEq => {
                        Span { high: end_of(op, literal)?, ..Span::VALUES }
                    }
                    _ => return None,
                };
                Some(Self::of_field(field, span))
            }
            _ => None,
        }
    }

    /// The box of what is in both.
    fn and(mut self, other: Self) -> Self {
        for (field, span) in other.fields {
            match self.fields.iter_mut().find(|(known, _)| *known == field) {
                Some((_, known)) => *known = known.and(span),
                None => self.fields.push((field, span)),
            }
        }
        Self { time: self.time.intersect(&other.time), ..self }
    }

    /// The box around both.
    fn or(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let both = self.fields.iter().filter_map(|(field, span)| {
            let (_, more) = other.fields.iter().find(|(known, _)| known == field)?;
            Some((*field, span.or(*more)))
        });
        Self { fields: both.collect(), time: self.time.union(&other.time) }
    }
}

#[cfg(test)]
mod tests;
