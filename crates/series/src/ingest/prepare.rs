//! From a batch as it was sent to rows of the table.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow_buffer::ScalarBuffer;
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use hashbrown::HashMap;
use tidefall_ground::texts::{VALUE_BYTES_MAX, text_bytes};
use tidefall_types::{
    Error, Field, FieldColumn, FieldType, NO_TAG, Result, RowError, Series, TableSchema, TagColumn,
    WriteBatch, one_form,
};

use crate::catalog::SensorDictionary;
use crate::kv::order_of;
use crate::rows::{SensorRows, arrow_error, compact, compact_times, pick_latest, size_bytes};

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
        let ty = schema.fields[position].ty;
        if column.values.null_count() == column.values.len() {
            continue;
        }
        let values = match column.values.data_type() {
            same if *same == ty.arrow() => Arc::clone(&column.values),
            _ => convert(schema, &column.name, ty, &column.values, bad)?,
        };
        check_lengths(schema, &column.name, &values, bad);
        fields[position] = Some(one_form(&values).unwrap_or(values));
    }
    Ok(fields)
}

/// Texts must not be longer than what can be logged, and read again, as one.
fn check_lengths(schema: &TableSchema, name: &str, values: &ArrayRef, bad: &mut Vec<RowError>) {
    if text_bytes(values, 0..values.len()) <= VALUE_BYTES_MAX {
        return;
    }
    for row in 0..values.len() {
        let bytes = text_bytes(values, row..row + 1);
        if bytes > VALUE_BYTES_MAX {
            let error = Error::limit(format!(
                "table {}, field {name:?}: a text of {bytes} bytes; up to {VALUE_BYTES_MAX} can be stored",
                schema.name
            ));
            bad.push(RowError { row, error });
        }
    }
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

/// Whether values of one type may be stored in a field of another, value by value where they fit.
fn may_convert(from: FieldType, to: FieldType) -> bool {
    match (from, to) {
        (FieldType::Text, FieldType::Text) => true,
        // Timestamps became such numbers before there were fields for them.
        (FieldType::Timestamp, FieldType::I64) => true,
        (from, to) => from.is_numeric() && to.is_numeric(),
    }
}

/// Up to here, 2^53, a float tells every whole number from the next one. Beyond it may be one that was rounded.
const WHOLE_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

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
    if !may_convert(from, to) {
        let error = conflict(schema, name, to, from);
        let rows = (0..values.len()).filter(|&row| values.is_valid(row));
        bad.extend(rows.map(|row| RowError { row, error: error.clone() }));
        return Ok(arrow_array::new_null_array(&to.arrow(), values.len()));
    }
    let (converted, fits) = in_type(values, from, to)?;
    for row in (0..values.len()).filter(|&row| values.is_valid(row) && !fits.value(row)) {
        let value = array_value_to_string(values, row).map_err(arrow_error)?;
        bad.push(RowError { row, error: misfit(schema, name, (from, to), &value) });
    }
    Ok(converted)
}

/// Values in another type, and which of them fit.
fn in_type(values: &ArrayRef, from: FieldType, to: FieldType) -> Result<(ArrayRef, BooleanArray)> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let converted = cast_with_options(values, &to.arrow(), &options).map_err(arrow_error)?;
    let fits = fits(values, &converted, from, to)?;
    Ok((converted, fits))
}

/// Whether all values may be stored in a field of another type; none if no value of theirs can be.
pub fn all_fit(values: &ArrayRef, from: FieldType, to: FieldType) -> Result<Option<bool>> {
    if !may_convert(from, to) {
        return Ok(None);
    }
    let (_, fits) = in_type(values, from, to)?;
    Ok(Some((0..values.len()).all(|row| values.is_null(row) || fits.value(row))))
}

/// The values of a field in another type.
///
/// # Errors
/// `Conflict` for the first one that is not the same there.
pub fn recast(
    schema: &TableSchema,
    field: &Field,
    to: FieldType,
    values: &ArrayRef,
) -> Result<ArrayRef> {
    let (name, from) = (&field.name, field.ty);
    let cannot = |what: &str| {
        Error::conflict(format!(
            "table {}: field {name:?} cannot become {}: it is {}, and holds {what} (what is deleted or replaced counts until it \
             is cascaded)",
            schema.name,
            to.sql_name(),
            from.sql_name()
        ))
    };
    if values.null_count() == values.len() {
        return Ok(arrow_array::new_null_array(&to.arrow(), values.len()));
    }
    if !may_convert(from, to) || from == FieldType::Timestamp {
        return Err(cannot("values"));
    }
    let (converted, fits) = in_type(values, from, to)?;
    let exact = match is_float(from) && is_float(to) {
        // They may be near to each other only.
        true => are_same_floats(values, &converted)?,
        false => fits,
    };
    let misfit = (0..values.len()).find(|&row| values.is_valid(row) && !exact.value(row));
    match misfit {
        None => Ok(one_form(&converted).unwrap_or(converted)),
        Some(row) => {
            let value = array_value_to_string(values, row).map_err(arrow_error)?;
            Err(cannot(&format!("{value}, which is not the same there")))
        }
    }
}

/// Which floats are the same as their converted ones.
fn are_same_floats(values: &ArrayRef, converted: &ArrayRef) -> Result<BooleanArray> {
    let wide = |array: &ArrayRef| {
        let wide = cast_with_options(array, &FieldType::F64.arrow(), &CastOptions::default());
        wide.map_err(arrow_error)
    };
    let (old, new) = (wide(values)?, wide(converted)?);
    let pairs = old.as_primitive::<Float64Type>().iter().zip(new.as_primitive::<Float64Type>());
    let is_same = |(old, new): (Option<f64>, Option<f64>)| match (old, new) {
        (Some(old), Some(new)) => old == new || (old.is_nan() && new.is_nan()),
        (old, new) => old.is_none() && new.is_none(),
    };
    Ok(pairs.map(|pair| Some(is_same(pair))).collect())
}

/// The error of a value of one type that is not to be had in another.
fn misfit(
    schema: &TableSchema,
    name: &str,
    (from, to): (FieldType, FieldType),
    value: &str,
) -> Error {
    let (field, ty) = (format!("table {}, field {name:?}", schema.name), to.sql_name());
    if !is_float(from) || is_float(to) {
        return Error::invalid(format!("{field}: {value} does not fit into {ty}"));
    }
    let is_rounded = value.parse::<f64>().is_ok_and(|value| value.abs() > WHOLE_MAX);
    let why = match is_rounded {
        true => {
            "floats beyond 2^53 leave whole numbers out; send integers, in pandas of the type Int64, which may be \
                 missing, too"
        }
        false => "ALTER TABLE ... ALTER COLUMN ... TYPE DOUBLE makes it a field that can",
    };
    Error::conflict(format!("{field} is of type {ty}, which cannot hold {value}: {why}"))
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

/// Which values kept their meaning: an integer must be the same number again, and a float that becomes one be that
/// number without doubt; a float may lose precision when the field is narrower but not become infinite.
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
        let is_whole = |row: usize| {
            let (old, new) = (old.value(row), new.is_valid(row).then(|| new.value(row)));
            new == Some(old) && old.abs() <= WHOLE_MAX
        };
        let is_near = |row: usize| new.value(row).is_finite() || !old.value(row).is_finite();
        let same = |row: usize| if is_float(to) { is_near(row) } else { is_whole(row) };
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

/// The longest value of a tag: a quarter of what names a series in InfluxDB, so that a page of them is far below what
/// the codec takes.
pub const TAG_BYTES_MAX: usize = 16 << 10;
/// The most that all tag values of a sensor may have together, as in InfluxDB.
pub const TAGS_BYTES_MAX: usize = 64 << 10;

/// Adds to `bad` the rows of new sensors whose tags are too long. Sensors that are there already stay, from when there was
/// no limit.
pub fn refuse_long_tags(
    schema: &TableSchema,
    batch: &WriteBatch,
    sensors: &SensorDictionary,
    bad: &mut Vec<RowError>,
) {
    let longest: Vec<usize> = batch.tags.iter().map(longest_value).collect();
    let is_short = longest.iter().all(|bytes| *bytes <= TAG_BYTES_MAX);
    if is_short && longest.iter().sum::<usize>() <= TAGS_BYTES_MAX {
        return;
    }
    let tags = tags_in_order(schema, batch);
    for row in 0..batch.rows() {
        let values: Vec<Option<&str>> =
            tags.iter().map(|tag| tag.and_then(|tag| tag_value(tag, tag.keys[row]))).collect();
        if let Some(error) = too_long(schema, &values)
            && sensors.find(&values).is_none()
        {
            bad.push(RowError { row, error });
        }
    }
}

fn longest_value(tag: &TagColumn) -> usize {
    tag.values.offsets().lengths().max().unwrap_or(0)
}

/// Why a sensor cannot have these tags, if they are too long.
fn too_long(schema: &TableSchema, values: &[Option<&str>]) -> Option<Error> {
    let lengths = || values.iter().map(|value| value.map_or(0, str::len));
    let named = schema.tags.iter().zip(values);
    let long = named.clone().find(|(_, value)| value.is_some_and(|v| v.len() > TAG_BYTES_MAX));
    if let Some((tag, Some(value))) = long {
        return Some(Error::invalid(format!(
            "table {}, tag {tag:?}: a value of {} bytes, which begins {:?}, is too long: a tag may have up to \
             {TAG_BYTES_MAX} bytes; store long texts in a field",
            schema.name,
            value.len(),
            value.chars().take(SHOWN_CHARS).collect::<String>()
        )));
    }
    let all: usize = lengths().sum();
    (all > TAGS_BYTES_MAX).then(|| {
        let longest = named.max_by_key(|(_, value)| value.map_or(0, str::len));
        let longest = longest.map_or(String::new(), |(tag, value)| {
            format!(", of which {tag:?} has {}", value.map_or(0, str::len))
        });
        Error::invalid(format!(
            "table {}: the tags of a sensor have {all} bytes together{longest}; they may have up to \
             {TAGS_BYTES_MAX}; store long texts in a field",
            schema.name
        ))
    })
}

/// So much of a long value tells which one it is.
const SHOWN_CHARS: usize = 30;

/// Distinct combinations of tag keys that are looked up in a plain table rather than in a hash
/// map; above, the table would not fit into a core's cache.
const DENSE_COMBINATIONS_MAX: u64 = 1 << 16;

/// The sensor of each row. `find` is asked once for each distinct combination of tag values; when
/// it knows none, the answer is the row at which that happened.
///
/// # Errors
/// Those of `find`.
pub fn sensors_of_rows(
    schema: &TableSchema,
    batch: &WriteBatch,
    mut find: impl FnMut(&[Option<&str>]) -> Result<Option<u32>>,
) -> Result<Option<Vec<u32>>> {
    let tags = tags_in_order(schema, batch);
    let present: Vec<&TagColumn> = tags.iter().flatten().copied().collect();
    let mut find_row = |row: usize| {
        let values: Vec<Option<&str>> =
            tags.iter().map(|tag| tag.and_then(|tag| tag_value(tag, tag.keys[row]))).collect();
        find(&values)
    };
    let Combinations { codes, bound } = Combinations::of(&present, batch.rows());
    let mut sensors = Vec::with_capacity(codes.len());
    if bound <= DENSE_COMBINATIONS_MAX {
        let mut known = vec![u32::MAX; bound as usize];
        for (row, code) in codes.into_iter().enumerate() {
            let slot = &mut known[code as usize];
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
    for (row, code) in codes.into_iter().enumerate() {
        let sensor = match known.get(&code) {
            Some(sensor) => *sensor,
            None => match find_row(row)? {
                Some(sensor) => *known.entry(code).insert(sensor).get(),
                None => return Ok(None),
            },
        };
        sensors.push(sensor);
    }
    Ok(Some(sensors))
}

/// A number for each row that says which tag keys it has.
struct Combinations {
    codes: Vec<u64>,
    /// All codes are below.
    bound: u64,
}

impl Combinations {
    /// The keys of a row as the digits of a number, tag by tag. Before that would no longer fit, the codes so far are
    /// numbered in the order in which they come, so that there are never more than rows.
    fn of(tags: &[&TagColumn], rows: usize) -> Self {
        let mut all = Self { codes: vec![0; rows], bound: 1 };
        for tag in tags {
            let slots = tag.values.len() as u64 + 1;
            if all.bound.checked_mul(slots).is_none() {
                all.number();
            }
            all.bound = all.bound.saturating_mul(slots);
            for (code, &key) in all.codes.iter_mut().zip(tag.keys.iter()) {
                let slot = if key == NO_TAG { 0 } else { u64::from(key) + 1 };
                *code = *code * slots + slot;
            }
        }
        all
    }

    fn number(&mut self) {
        let mut numbers: HashMap<u64, u64> = HashMap::new();
        for code in &mut self.codes {
            let next = numbers.len() as u64;
            *code = *numbers.entry(*code).or_insert(next);
        }
        self.bound = numbers.len() as u64;
    }
}

/// The value of a tag under a key; nothing for [`tidefall_types::NO_TAG`].
pub fn tag_value(tag: &TagColumn, key: u32) -> Option<&str> {
    let key = key as usize;
    (key < tag.values.len() && tag.values.is_valid(key)).then(|| tag.values.value(key))
}

impl SensorDictionary {
    /// The sensor with these tag values, if it is known.
    pub fn find(&self, values: &[Option<&str>]) -> Option<u32> {
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
    ///
    /// # Errors
    /// `Limit` when the table has too many sensors, or a tag too many values.
    pub fn find_or_add(&mut self, values: &[Option<&str>]) -> Result<u32> {
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

#[cfg(test)]
mod tests;
