//! The small side of a join: which groups the rows belong to that equal a key.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{EmitTo, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, InListExpr, lit};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use futures::StreamExt;

use super::keys::{Column, Keys, Kind, NONE};
use super::question::{Question, with_nulls};

/// What the place of a row takes at most while places are made.
const BYTES_OF_A_PLACE: usize = 24;

/// What is known of the small side when it has been read.
#[derive(Debug)]
pub(super) struct Small {
    pub(super) keys: Keys,
    pub(super) places: Places,
    /// What the number of a key that the small side has not stands for, if rows with such keys count.
    pub(super) other: Option<u32>,
    /// The columns of its groups.
    pub(super) groups: Vec<ArrayRef>,
    pub(super) group_count: usize,
    /// Whether no row has a key.
    pub(super) is_empty: bool,
    _charged: MemoryReservation,
}

/// What the number of a key stands for.
#[derive(Debug)]
pub(super) enum Places {
    /// The group of the one row with the key.
    Groups,
    /// A stretch of `groups`, which ends where the next one starts.
    Lists { starts: Vec<usize>, groups: Vec<u32> },
}

impl Small {
    /// Reads the small side. What it keeps is charged.
    pub(super) async fn read(
        question: Arc<Question>,
        mut rows: SendableRecordBatchStream,
        charged: MemoryReservation,
    ) -> Result<Self> {
        let mut keys = Keys::new(&question.kinds);
        let mut groups = Groups::new(&question)?;
        let schema = rows.schema();
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let of_keys = question.keys.iter().map(|(small, _)| evaluated(small, &batch));
            let key_numbers = keys.learn(&of_keys.collect::<Result<Vec<_>>>()?)?;
            let group_numbers = groups.learn(&question, &batch)?;
            let known = key_numbers.into_iter().zip(group_numbers).filter(|(key, _)| *key != NONE);
            pairs.extend(known);
            charged.try_resize(keys.bytes() + groups.bytes() + pairs.capacity() * 8)?;
        }
        let other = match question.keeps_all {
            true => groups.learn(&question, &nulls(&schema)?)?.first().copied(),
            false => None,
        };
        // What is made of all of this stands beside it for a moment.
        charged.try_grow(groups.bytes() + keys.bytes() + pairs.len() * BYTES_OF_A_PLACE)?;
        let (places, numbers) = Places::of(&pairs, keys.len(), other);
        drop(pairs);
        let other = other.map(|group| match &places {
            Places::Groups => group,
            Places::Lists { starts, .. } => starts.len().saturating_sub(2) as u32,
        });
        let is_empty = keys.len() == 0;
        if let Some(numbers) = numbers {
            keys.renumber(&numbers);
        }
        keys.pack();
        let (groups, group_count) = groups.finish()?;
        let group_bytes: usize = groups.iter().map(|group| group.get_array_memory_size()).sum();
        charged.try_resize(keys.bytes() + places.bytes() + group_bytes)?;
        Ok(Self { keys, places, other, groups, group_count, is_empty, _charged: charged })
    }

    /// What rows of the big side meet that have a partner, as far as it is said in short.
    pub(super) fn condition(
        &self,
        question: &Question,
        big: &Schema,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        if self.is_empty {
            return Ok(lit(false));
        }
        let mut all: Option<Arc<dyn PhysicalExpr>> = None;
        let columns = self.keys.columns().iter().zip(&question.kinds);
        for ((column, kind), (_, key)) in columns.zip(&question.keys) {
            let Some(one) = condition_of(column, kind, key, big)? else { continue };
            all = Some(match all {
                Some(all) => Arc::new(BinaryExpr::new(all, Operator::And, one)),
                None => one,
            });
        }
        Ok(all.unwrap_or_else(|| lit(true)))
    }
}

fn condition_of(
    column: &Column,
    kind: &Kind,
    key: &Arc<dyn PhysicalExpr>,
    big: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    match (column, kind) {
        (Column::Texts(texts), _) if texts.may_be_named() => {
            let texts = Arc::new(texts.to_array());
            let named = InListExpr::try_new_from_array(Arc::clone(key), texts, false, big);
            Ok(named.ok().map(|named| Arc::new(named) as _))
        }
        // Their order is not that of the numbers by which they are known here.
        (_, Kind::Integer(DataType::UInt64)) => Ok(None),
        (Column::Integers(integers), Kind::Integer(data_type)) => {
            let Some((least, greatest)) = integers.ends() else { return Ok(None) };
            let ends = Int64Array::from(vec![least, greatest]);
            let Ok(ends) = cast(&ends, data_type) else { return Ok(None) };
            let compared = |op, at| -> Result<Arc<dyn PhysicalExpr>> {
                let end = lit(ScalarValue::try_from_array(&ends, at)?);
                Ok(Arc::new(BinaryExpr::new(Arc::clone(key), op, end)))
            };
            let (low, high) = (compared(Operator::GtEq, 0)?, compared(Operator::LtEq, 1)?);
            Ok(Some(Arc::new(BinaryExpr::new(low, Operator::And, high))))
        }
        _ => Ok(None),
    }
}

impl Places {
    /// What the numbers of keys stand for, of pairs of keys and groups, with a list of the one group `other` behind the
    /// others; and the group of each key, if all have one.
    fn of(pairs: &[(u32, u32)], keys: usize, other: Option<u32>) -> (Self, Option<Vec<u32>>) {
        let mut starts = vec![0_usize; keys + 1];
        for (key, _) in pairs {
            starts[*key as usize + 1] += 1;
        }
        if starts.iter().skip(1).all(|count| *count == 1) {
            let mut numbers = vec![NONE; keys];
            for (key, group) in pairs {
                numbers[*key as usize] = *group;
            }
            return (Self::Groups, Some(numbers));
        }
        for key in 0..keys {
            starts[key + 1] += starts[key];
        }
        let mut next = starts.clone();
        let mut groups = vec![0; pairs.len()];
        for (key, group) in pairs {
            let next = &mut next[*key as usize];
            groups[*next] = *group;
            *next += 1;
        }
        groups.extend(other);
        starts.push(groups.len());
        (Self::Lists { starts, groups }, None)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Groups => 0,
            Self::Lists { starts, groups } => {
                starts.capacity() * size_of::<usize>() + groups.capacity() * size_of::<u32>()
            }
        }
    }
}

/// The groups of the small side. Where nothing is grouped by its columns there is one.
struct Groups {
    values: Option<Box<dyn GroupValues>>,
    numbers: Vec<usize>,
}

impl Groups {
    fn new(question: &Question) -> Result<Self> {
        let places: Vec<usize> = question.small_groups().map(|(place, _)| place).collect();
        let values = match places.is_empty() {
            true => None,
            false => {
                let schema = Arc::new(question.group_schema.project(&places)?);
                Some(new_group_values(schema, &GroupOrdering::None)?)
            }
        };
        Ok(Self { values, numbers: Vec::new() })
    }

    fn learn(&mut self, question: &Question, batch: &RecordBatch) -> Result<Vec<u32>> {
        let Some(values) = &mut self.values else { return Ok(vec![0; batch.num_rows()]) };
        let columns = question.small_groups().map(|(_, group)| evaluated(group, batch));
        values.intern(&columns.collect::<Result<Vec<_>>>()?, &mut self.numbers)?;
        Ok(self.numbers.iter().map(|number| *number as u32).collect())
    }

    fn bytes(&self) -> usize {
        self.values.as_ref().map_or(0, |values| values.size())
    }

    fn finish(self) -> Result<(Vec<ArrayRef>, usize)> {
        let Some(mut values) = self.values else { return Ok((Vec::new(), 1)) };
        // There is nothing that could be told of no row, not even nothing.
        if values.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let count = values.len();
        Ok((values.emit(EmitTo::All)?, count))
    }
}

/// A row in which all columns are NULL.
pub(super) fn nulls(schema: &Schema) -> Result<RecordBatch> {
    let schema = with_nulls(schema);
    let fields = schema.fields().iter();
    let columns = fields.map(|field| new_null_array(field.data_type(), 1)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    Ok(RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?)
}

pub(super) fn evaluated(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}
