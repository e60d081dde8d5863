//! From a batch as it was sent to rows of the table.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::ScalarBuffer;
use tidefall_ground::convert::fitted;
use tidefall_ground::kept::{compact, size_bytes};
use tidefall_types::{
    Error, FieldColumn, Result, RowError, Series, TableSchema, TagColumn, WriteBatch,
};

use crate::kv::order_of;
use crate::rows::{SensorRows, compact_times, pick_latest, values_at};

/// Rows of a table that are ready to be written.
#[derive(Debug)]
pub struct Prepared {
    /// The sensor of each row.
    pub sensor: ScalarBuffer<u32>,
    /// The time of each row.
    pub time: ScalarBuffer<i64>,
    /// By field id.
    pub fields: Vec<Option<ArrayRef>>,
    /// The rows by sensor and time, if somebody has ordered them.
    pub(crate) order: Option<Vec<u32>>,
}

/// Rows that are ordered by whoever writes them: fewer are laid together with others first.
const ORDERED_ROWS_MIN: usize = 4096;

impl Prepared {
    /// Rows that nobody has ordered.
    pub const fn new(
        sensor: ScalarBuffer<u32>,
        time: ScalarBuffer<i64>,
        fields: Vec<Option<ArrayRef>>,
    ) -> Self {
        Self { sensor, time, fields, order: None }
    }

    /// Orders the rows, if they are many: readers need that, and several threads write.
    pub fn put_in_order(&mut self) {
        if self.time.len() >= ORDERED_ROWS_MIN {
            self.order = Some(order_of(&self.sensor, &self.time));
        }
    }

    /// The memory that they take.
    pub(crate) fn size_bytes(&self) -> usize {
        let columns = self.fields.iter().flatten();
        let values: usize = columns.map(|column| size_bytes(column)).sum();
        size_of_val(&self.sensor[..]) + size_of_val(&self.time[..]) + values
    }

    /// All sensors of the rows are below.
    pub fn upto(&self) -> u32 {
        self.sensor.iter().max().map_or(0, |sensor| sensor + 1)
    }

    /// Some of the rows, without the memory of the others.
    pub fn part(&self, rows: Range<usize>) -> Result<Self> {
        let fields = self.fields.iter().map(|field| {
            let part = field.as_ref().map(|field| field.slice(rows.start, rows.len()));
            part.map(compact).transpose()
        });
        let time = compact_times(self.time.slice(rows.start, rows.len()));
        let sensor = self.sensor.slice(rows.start, rows.len());
        Ok(Self::new(sensor, time, fields.collect::<Result<_>>()?))
    }
}

/// Brings the fields of a batch into the types and the order of the schema, floats into their one form. Rows whose value does
/// not fit are added to `bad`; a row may be named more than once.
///
/// # Errors
/// `NotFound` for a field that the table does not have, `Conflict` where it has a tag of that name, `Invalid` for values of a type that no field has.
pub fn coerce(
    schema: &TableSchema,
    batch: &WriteBatch,
    bad: &mut Vec<RowError>,
) -> Result<Vec<Option<ArrayRef>>> {
    let mut fields = vec![None; schema.fields.len()];
    for column in &batch.fields {
        let position = schema
            .fields
            .iter()
            .position(|field| field.name == column.name)
            .ok_or_else(|| unknown_column(schema, &column.name))?;
        fields[position] = fitted(schema, &schema.fields[position], &column.values, bad)?;
    }
    Ok(fields)
}

/// The error for a column that a table does not have.
pub fn unknown_column(schema: &TableSchema, name: &str) -> Error {
    if schema.tags.iter().any(|tag| tag == name) {
        return Error::conflict(format!(
            "table {}: {name:?} is a tag there, and a field here",
            schema.name
        ));
    }
    Error::not_found(format!(
        "table {} has no column {name:?}; it has {}",
        schema.name,
        schema.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    ))
}

/// A series ordered by time, of equal times the latest row, with the fields of the schema in their
/// order.
///
/// # Errors
/// As [`coerce`]; for a value that does not fit its error, with the row.
pub fn order_series(schema: &TableSchema, names: &[String], series: &Series) -> Result<SensorRows> {
    let fields = names.iter().zip(&series.fields);
    let batch = WriteBatch {
        time: series.time.clone(),
        tags: Vec::new(),
        fields: fields
            .map(|(name, values)| FieldColumn { name: name.clone(), values: Arc::clone(values) })
            .collect(),
    };
    let mut bad = Vec::new();
    let fields = coerce(schema, &batch, &mut bad)?;
    if let Some(first) = bad.into_iter().min_by_key(|error| error.row) {
        let number = first.number();
        return Err(first.error.context(format_args!("row {number} of a series")));
    }
    let times = batch.time;
    if times.windows(2).all(|pair| pair[0] < pair[1]) {
        return Ok(SensorRows { times, fields });
    }
    let mut keys: Vec<(i64, u32)> =
        times.iter().enumerate().map(|(row, time)| (*time, row as u32)).collect();
    keys.sort_unstable();
    pick_latest(&keys, &fields)
}

/// The batch without some rows.
pub fn without_rows(batch: &WriteBatch, bad: &[RowError]) -> Result<WriteBatch> {
    let mut is_bad = vec![false; batch.rows()];
    for error in bad {
        is_bad[error.row] = true;
    }
    let keep: UInt32Array = (0..batch.rows() as u32).filter(|row| !is_bad[*row as usize]).collect();
    let fields = batch
        .fields
        .iter()
        .map(|field| {
            let values = crate::rows::gather(&field.values, &keep)?;
            Ok(FieldColumn { name: field.name.clone(), values })
        })
        .collect::<Result<_>>()?;
    let tags = batch
        .tags
        .iter()
        .map(|tag| TagColumn {
            name: tag.name.clone(),
            values: tag.values.clone(),
            keys: values_at(&tag.keys, &keep),
        })
        .collect();
    Ok(WriteBatch { time: values_at(&batch.time, &keep), tags, fields })
}
