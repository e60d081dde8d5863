//! From a batch as it was sent to rows of the table.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow_buffer::ScalarBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use hashbrown::HashMap;
use tidefall_types::{
    Error, FieldColumn, FieldType, NO_TAG, Result, RowError, Series, TableSchema, TagColumn,
    WriteBatch, one_form,
};

use crate::catalog::SensorDictionary;
use crate::rows::{SensorRows, arrow_error, pick_latest};

/// Rows of a table that are ready to be written.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) sensor: ScalarBuffer<u32>,
    pub(crate) time: ScalarBuffer<i64>,
    /// By field id.
    pub(crate) fields: Vec<Option<ArrayRef>>,
}

/// Brings the fields of a batch into the types and the order of the schema, floats into their one form. Rows whose value does
/// not fit are added to `bad`; a row may be named more than once.
pub(crate) fn coerce(
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
        let ty = schema.fields[position].ty;
        if column.values.null_count() == column.values.len() {
            continue;
        }
        let values = match column.values.data_type() {
            same if *same == ty.arrow() => Arc::clone(&column.values),
            _ => convert(schema, &column.name, ty, &column.values, bad)?,
        };
        fields[position] = Some(one_form(&values).unwrap_or(values));
    }
    Ok(fields)
}

pub(crate) fn unknown_column(schema: &TableSchema, name: &str) -> Error {
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

/// Whether values of one type may be stored in a field of another, value by value where they fit.
fn may_convert(from: FieldType, to: FieldType) -> bool {
    match (from, to) {
        (FieldType::Text, FieldType::Text) => true,
        (FieldType::F32 | FieldType::F64, FieldType::F32 | FieldType::F64) => true,
        // Timestamps became such numbers before there were fields for them.
        (FieldType::Timestamp, FieldType::I64) => true,
        (from, to) => from.is_numeric() && to.is_numeric() && !is_float(from),
    }
}

const fn is_float(ty: FieldType) -> bool {
    matches!(ty, FieldType::F32 | FieldType::F64)
}

fn convert(
    schema: &TableSchema,
    name: &str,
    to: FieldType,
    values: &ArrayRef,
    bad: &mut Vec<RowError>,
) -> Result<ArrayRef> {
    let from = FieldType::from_arrow(values.data_type()).ok_or_else(|| {
        Error::invalid(format!(
            "table {}, field {name:?}: values of type {} cannot be stored",
            schema.name,
            values.data_type()
        ))
    })?;
    let options = CastOptions { safe: true, ..CastOptions::default() };
    if !may_convert(from, to) {
        let error = conflict(schema, name, to, from);
        let rows = (0..values.len()).filter(|&row| values.is_valid(row));
        bad.extend(rows.map(|row| RowError { row, error: error.clone() }));
        return Ok(arrow_array::new_null_array(&to.arrow(), values.len()));
    }
    let converted = cast_with_options(values, &to.arrow(), &options).map_err(arrow_error)?;
    let fits = fits(values, &converted, from, to)?;
    for row in (0..values.len()).filter(|&row| values.is_valid(row) && !fits.value(row)) {
        let error = Error::invalid(format!(
            "table {}, field {name:?}: the value does not fit into {}",
            schema.name,
            to.sql_name()
        ));
        bad.push(RowError { row, error });
    }
    Ok(converted)
}

pub(crate) fn conflict(schema: &TableSchema, name: &str, to: FieldType, from: FieldType) -> Error {
    let advice = match is_float(from) && to.is_numeric() {
        true => "; write whole numbers, or make another table in which it is DOUBLE",
        false => "",
    };
    Error::conflict(format!(
        "table {}: field {name:?} is of type {}, this row has a {} for it{advice}",
        schema.name,
        to.sql_name(),
        from.sql_name()
    ))
}

/// Which values kept their meaning: an integer must be the same number again, a float may lose
/// precision when the field is narrower but not become infinite.
fn fits(
    values: &ArrayRef,
    converted: &ArrayRef,
    from: FieldType,
    to: FieldType,
) -> Result<BooleanArray> {
    if from == FieldType::Text {
        return Ok(BooleanArray::from(vec![true; values.len()]));
    }
    let back = |array: &ArrayRef, to: FieldType| {
        cast_with_options(array, &to.arrow(), &CastOptions { safe: true, ..CastOptions::default() })
            .map_err(arrow_error)
    };
    if is_float(from) {
        let (old, new) = (back(values, FieldType::F64)?, back(converted, FieldType::F64)?);
        let (old, new) = (old.as_primitive::<Float64Type>(), new.as_primitive::<Float64Type>());
        let same = |row: usize| new.value(row).is_finite() || !old.value(row).is_finite();
        return Ok((0..values.len()).map(|row| Some(same(row))).collect());
    }
    if from == FieldType::U64 || to == FieldType::U64 {
        let (old, new) = (back(values, FieldType::U64)?, back(converted, FieldType::U64)?);
        let (old, new) = (old.as_primitive::<UInt64Type>(), new.as_primitive::<UInt64Type>());
        let same =
            |row: usize| old.is_valid(row) && new.is_valid(row) && old.value(row) == new.value(row);
        return Ok((0..values.len()).map(|row| Some(same(row))).collect());
    }
    let (old, new) = (back(values, FieldType::I64)?, back(converted, FieldType::I64)?);
    let (old, new) = (old.as_primitive::<Int64Type>(), new.as_primitive::<Int64Type>());
    let same = |row: usize| new.is_valid(row) && old.value(row) == new.value(row);
    Ok((0..values.len()).map(|row| Some(same(row))).collect())
}

/// A series ordered by time, of equal times the latest row, with the fields of the schema in their
/// order.
pub(crate) fn order_series(
    schema: &TableSchema,
    names: &[String],
    series: &Series,
) -> Result<SensorRows> {
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
        return Err(first.error.context(format_args!("row {} of a series", first.row)));
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
pub(crate) fn without_rows(batch: &WriteBatch, bad: &[RowError]) -> Result<WriteBatch> {
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
            keys: keep.values().iter().map(|row| tag.keys[*row as usize]).collect(),
        })
        .collect();
    let time = keep.values().iter().map(|row| batch.time[*row as usize]).collect();
    Ok(WriteBatch { time, tags, fields })
}

/// The tags of a batch in the order of the schema; none where the batch lacks one.
fn tags_in_order<'a>(schema: &TableSchema, batch: &'a WriteBatch) -> Vec<Option<&'a TagColumn>> {
    let find = |name: &String| batch.tags.iter().find(|tag| tag.name == *name);
    schema.tags.iter().map(find).collect()
}

/// Distinct combinations of tag keys that are looked up in a plain table rather than in a hash
/// map; above, the table would not fit into a core's cache.
const DENSE_COMBINATIONS_MAX: u64 = 1 << 16;

/// The sensor of each row. `find` is asked once for each distinct combination of tag values; when
/// it knows none, the answer is the row at which that happened.
pub(crate) fn sensors_of_rows(
    schema: &TableSchema,
    batch: &WriteBatch,
    mut find: impl FnMut(&[Option<&str>]) -> Result<Option<u32>>,
) -> Result<Option<Vec<u32>>> {
    let tags = tags_in_order(schema, batch);
    let present: Vec<&TagColumn> = tags.iter().flatten().copied().collect();
    let mut combinations: u64 = 1;
    for tag in &present {
        combinations = combinations.saturating_mul(tag.values.len() as u64 + 1);
    }
    let mut find_row = |row: usize| {
        let values: Vec<Option<&str>> =
            tags.iter().map(|tag| tag.and_then(|tag| tag_value(tag, tag.keys[row]))).collect();
        find(&values)
    };
    let code_of = |row: usize| {
        present.iter().fold(0_u64, |code, tag| {
            let key = tag.keys[row];
            let slot = if key == NO_TAG { 0 } else { u64::from(key) + 1 };
            code.wrapping_mul(tag.values.len() as u64 + 1).wrapping_add(slot)
        })
    };
    let mut sensors = Vec::with_capacity(batch.rows());
    if combinations <= DENSE_COMBINATIONS_MAX {
        let mut known = vec![u32::MAX; combinations as usize];
        for row in 0..batch.rows() {
            let slot = &mut known[code_of(row) as usize];
            if *slot == u32::MAX {
                match find_row(row)? {
                    Some(sensor) => *slot = sensor,
                    None => return Ok(None),
                }
            }
            sensors.push(*slot);
        }
        return Ok(Some(sensors));
    }
    let mut known: HashMap<u64, u32> = HashMap::new();
    for row in 0..batch.rows() {
        // Codes that wrapped around may collide, so such combinations are looked up anew.
        let code = (combinations < u64::MAX).then(|| code_of(row));
        let sensor = match code.and_then(|code| known.get(&code)) {
            Some(sensor) => *sensor,
            None => match find_row(row)? {
                Some(sensor) => sensor,
                None => return Ok(None),
            },
        };
        if let Some(code) = code {
            known.insert(code, sensor);
        }
        sensors.push(sensor);
    }
    Ok(Some(sensors))
}

pub(crate) fn tag_value(tag: &TagColumn, key: u32) -> Option<&str> {
    let key = key as usize;
    (key < tag.values.len() && tag.values.is_valid(key)).then(|| tag.values.value(key))
}

impl SensorDictionary {
    /// The sensor with these tag values, if it is known.
    pub(crate) fn find(&self, values: &[Option<&str>]) -> Option<u32> {
        let mut keys = Vec::with_capacity(values.len());
        for (tag, value) in values.iter().enumerate() {
            keys.push(match value {
                Some(value) => self.key(tag, value)?,
                None => NO_TAG,
            });
        }
        self.sensor(&keys)
    }

    /// The sensor with these tag values, added if it is new.
    pub(crate) fn find_or_add(&mut self, values: &[Option<&str>]) -> Result<u32> {
        let mut keys = Vec::with_capacity(values.len());
        for (tag, value) in values.iter().enumerate() {
            keys.push(match value {
                Some(value) => self.intern_key(tag, value)?,
                None => NO_TAG,
            });
        }
        self.intern(&keys)
    }
}
