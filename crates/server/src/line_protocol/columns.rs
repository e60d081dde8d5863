//! The open batch of a table: columns that grow line by line.

use std::sync::Arc;

use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer,
};
use hashbrown::HashMap;
use tidefall_types::{Error, FieldColumn, NO_TAG, Result, TagColumn, WriteBatch};

use super::TableBatch;
use super::scan::{self, Stop, Value};
use super::series::{Dictionary, SeriesIndex};

/// A batch may hold this many cells without a value for each cell with one, plus
/// [`EMPTY_CELLS_FREE`], before it is closed.
const EMPTY_CELLS_PER_VALUE: usize = 4;
const EMPTY_CELLS_FREE: usize = 1_024;

/// A dictionary with more values than this for each row of a batch, plus [`DICTIONARY_FREE`], is
/// cut down to the values that the rows use.
const DICTIONARY_VALUES_PER_ROW: usize = 2;
const DICTIONARY_FREE: usize = 64;

/// The place of no field.
const NONE: u32 = u32::MAX;

/// Why a line could not be added to the open batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The line is wrong.
    Bad(&'static str),
    /// The line may be right, but needs a new batch.
    Misfit,
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        Self::Bad(stop.0)
    }
}

/// The rows of one table that are not yet in a [`WriteBatch`].
#[derive(Debug)]
pub(super) struct Columns<'a> {
    /// Which batch of the body this is; marks the series that have been admitted to it.
    generation: u32,
    time: Vec<i64>,
    series: Vec<u32>,
    lines: Vec<u32>,
    fields: Vec<Field<'a>>,
    by_name: HashMap<String, u32>,
    /// The tags, by number, of all admitted series.
    tags: TagSet,
    /// The field that began the last line.
    first: u32,
    /// The fields that the current line has set so far.
    touched: Vec<u32>,
    /// Cells with a value, tags included.
    values: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn new(generation: u32) -> Self {
        Self {
            generation,
            time: Vec::new(),
            series: Vec::new(),
            lines: Vec::new(),
            fields: Vec::new(),
            by_name: HashMap::new(),
            tags: TagSet::default(),
            first: NONE,
            touched: Vec::new(),
            values: 0,
        }
    }

    /// Lets a series have rows in this batch: no field of the batch may be called like one of its
    /// tags.
    #[inline]
    pub(super) fn admit(
        &mut self,
        series: u32,
        index: &mut SeriesIndex<'a>,
    ) -> std::result::Result<(), Fault> {
        if index.mark(series, self.generation) {
            return Ok(());
        }
        let clash = |name: &[u8]| {
            std::str::from_utf8(name).is_ok_and(|name| self.by_name.contains_key(name))
        };
        if index.tag_names_of(series).any(clash) {
            index.unmark(series);
            return Err(Fault::Misfit);
        }
        for tag in index.tags_of(series) {
            self.tags.insert(tag.tag);
        }
        Ok(())
    }

    /// The field at the start of `rest` when it is the one that came next in an earlier line, and
    /// the length of its name.
    #[inline]
    pub(super) fn guess(&self, rest: &[u8]) -> Option<(u32, usize)> {
        let guess = match self.touched.last() {
            Some(&previous) => self.fields[previous as usize].next,
            None => self.first,
        };
        let name = self.fields.get(guess as usize)?.raw_name;
        (rest.get(name.len()) == Some(&b'=') && rest.starts_with(name))
            .then_some((guess, name.len()))
    }

    /// The field called `raw_name`, which is taken as it stands in the body; a new one if need be.
    pub(super) fn find(
        &mut self,
        raw_name: &'a [u8],
        series: u32,
        index: &SeriesIndex<'a>,
    ) -> std::result::Result<u32, Fault> {
        let name = scan::unescape(raw_name, b",= ");
        let name = std::str::from_utf8(&name).map_err(|_| Fault::Bad("invalid UTF-8"))?;
        let field = match self.by_name.get(name) {
            Some(&field) => field,
            None if name.as_bytes() == scan::TIME_NAME => {
                return Err(Fault::Bad(
                    "\"time\" is the name of the time: give the field another name",
                ));
            }
            None => {
                if index.tag_names_of(series).any(|tag| tag == name.as_bytes()) {
                    return Err(Fault::Bad("a name is both a tag and a field"));
                }
                if index.tag_number(series, name.as_bytes()).is_some_and(|t| self.tags.contains(t))
                {
                    return Err(Fault::Misfit);
                }
                let field = self.fields.len() as u32;
                self.by_name.insert(name.to_owned(), field);
                self.fields.push(Field {
                    raw_name,
                    name: name.to_owned(),
                    data: None,
                    validity: NullBufferBuilder::new(0),
                    next: NONE,
                });
                field
            }
        };
        match self.touched.last() {
            Some(&previous) => self.fields[previous as usize].next = field,
            None => self.first = field,
        }
        Ok(field)
    }

    /// Sets a field in the row that the current line makes.
    #[inline]
    pub(super) fn push(&mut self, field: u32, value: Value<'_>) -> std::result::Result<(), Fault> {
        let row = self.time.len();
        let column = &mut self.fields[field as usize];
        if column.validity.len() > row {
            return Err(Fault::Bad("duplicate fields"));
        }
        column.pad(row);
        column.data.get_or_insert_with(|| Data::of(value, row)).push(value)?;
        column.validity.append_non_null();
        self.touched.push(field);
        Ok(())
    }

    /// Forgets what the current line has set.
    pub(super) fn take_back(&mut self) {
        let rows = self.time.len();
        for field in self.touched.drain(..) {
            let column = &mut self.fields[field as usize];
            column.validity.truncate(rows);
            if let Some(data) = &mut column.data {
                data.truncate(rows);
            }
        }
    }

    /// Completes the row that the current line makes.
    #[inline]
    pub(super) fn push_row(&mut self, time_ns: i64, origin: RowOrigin, tag_count: usize) {
        self.time.push(time_ns);
        self.series.push(origin.series);
        self.lines.push(origin.line);
        self.values += self.touched.len() + tag_count;
        self.touched.clear();
    }

    pub(super) fn empty_cells(&self) -> usize {
        (self.time.len() * (self.fields.len() + self.tags.count)).saturating_sub(self.values)
    }

    /// Whether the batch consists of nulls to such a degree that it should be closed.
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        self.empty_cells() > EMPTY_CELLS_PER_VALUE * self.values + EMPTY_CELLS_FREE
    }

    /// The batch; none when there is no row. Columns without any value are left out.
    ///
    /// # Errors
    /// `Invalid` when text is not UTF-8, which is a fault of this module.
    pub(super) fn finish(
        self,
        table: usize,
        index: &SeriesIndex<'a>,
    ) -> Result<Option<TableBatch>> {
        let rows = self.time.len();
        if rows == 0 {
            return Ok(None);
        }
        let mut fields = Vec::with_capacity(self.fields.len());
        for field in self.fields {
            if let Some((name, values)) = field.finish(rows)? {
                fields.push(FieldColumn { name, values });
            }
        }
        let table = index.table(table);
        let mut tags = Vec::with_capacity(self.tags.count);
        for (tag, keys) in gather_tags(&self.series, &self.tags, index) {
            let name = String::from_utf8_lossy(table.tag_names.get(tag)).into_owned();
            let (values, keys) = dictionary_array(&table.tag_values[tag as usize], keys)?;
            tags.push(TagColumn { name, values, keys: keys.into() });
        }
        let batch = WriteBatch { time: self.time.into(), tags, fields };
        Ok(Some(TableBatch { table: table.name.clone(), batch, lines: self.lines }))
    }
}

/// Where a row comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowOrigin {
    pub series: u32,
    pub line: u32,
}

#[derive(Debug)]
struct Field<'a> {
    raw_name: &'a [u8],
    name: String,
    data: Option<Data>,
    /// Validity of the rows up to the last one that sets this field; `data` is as long.
    validity: NullBufferBuilder,
    /// The field that followed this one in the last line that had both.
    next: u32,
}

impl Field<'_> {
    /// Fills up with nulls to `rows`.
    #[inline]
    fn pad(&mut self, rows: usize) {
        let missing = rows.saturating_sub(self.validity.len());
        if missing > 0 {
            self.validity.append_n_nulls(missing);
            if let Some(data) = &mut self.data {
                data.pad(rows);
            }
        }
    }

    fn finish(mut self, rows: usize) -> Result<Option<(String, ArrayRef)>> {
        self.pad(rows);
        let nulls = self.validity.finish();
        let all_null = nulls.as_ref().is_some_and(|nulls| nulls.null_count() == rows);
        match self.data {
            Some(data) if !all_null => Ok(Some((self.name, data.finish(nulls)?))),
            _ => Ok(None),
        }
    }
}

#[derive(Debug)]
enum Data {
    F64(Vec<f64>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    Bool(Vec<bool>),
    /// Where each text ends in `bytes`.
    Text {
        bytes: Vec<u8>,
        ends: Vec<i32>,
    },
}

impl Data {
    /// A column of the type of `value` that starts with `rows` nulls.
    fn of(value: Value<'_>, rows: usize) -> Self {
        let mut data = match value {
            Value::F64(_) => Self::F64(Vec::new()),
            Value::I64(_) => Self::I64(Vec::new()),
            Value::U64(_) => Self::U64(Vec::new()),
            Value::Bool(_) => Self::Bool(Vec::new()),
            Value::Text { .. } => Self::Text { bytes: Vec::new(), ends: Vec::new() },
        };
        data.pad(rows);
        data
    }

    #[inline]
    fn push(&mut self, value: Value<'_>) -> std::result::Result<(), Fault> {
        match (self, value) {
            (Self::F64(values), Value::F64(value)) => values.push(value),
            (Self::I64(values), Value::I64(value)) => values.push(value),
            (Self::U64(values), Value::U64(value)) => values.push(value),
            (Self::Bool(values), Value::Bool(value)) => values.push(value),
            (Self::Text { bytes, ends }, Value::Text { raw, escaped, .. }) => {
                if std::str::from_utf8(raw).is_err() {
                    return Err(Fault::Bad("invalid UTF-8"));
                }
                if escaped {
                    bytes.extend_from_slice(&scan::unescape(raw, b"\"\\"));
                } else {
                    bytes.extend_from_slice(raw);
                }
                ends.push(bytes.len() as i32);
            }
            _ => return Err(Fault::Misfit),
        }
        Ok(())
    }

    fn pad(&mut self, rows: usize) {
        match self {
            Self::F64(values) => values.resize(rows, 0.0),
            Self::I64(values) => values.resize(rows, 0),
            Self::U64(values) => values.resize(rows, 0),
            Self::Bool(values) => values.resize(rows, false),
            Self::Text { bytes, ends } => ends.resize(rows, bytes.len() as i32),
        }
    }

    fn truncate(&mut self, rows: usize) {
        match self {
            Self::F64(values) => values.truncate(rows),
            Self::I64(values) => values.truncate(rows),
            Self::U64(values) => values.truncate(rows),
            Self::Bool(values) => values.truncate(rows),
            Self::Text { bytes, ends } => {
                ends.truncate(rows);
                bytes.truncate(ends.last().map_or(0, |&end| end as usize));
            }
        }
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        Ok(match self {
            Self::F64(values) => primitive::<Float64Type>(values, nulls),
            Self::I64(values) => primitive::<Int64Type>(values, nulls),
            Self::U64(values) => primitive::<UInt64Type>(values, nulls),
            Self::Bool(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
            Self::Text { bytes, ends } => Arc::new(text_array(bytes, ends, nulls)?),
        })
    }
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef
where
    T::Native: ArrowNativeType,
{
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}

fn text_array(bytes: Vec<u8>, ends: Vec<i32>, nulls: Option<NullBuffer>) -> Result<StringArray> {
    let mut offsets = ends;
    offsets.insert(0, 0);
    StringArray::try_new(OffsetBuffer::new(offsets.into()), Buffer::from_vec(bytes), nulls)
        .map_err(|error| Error::invalid(format!("text of a line: {error}")))
}

/// Numbers of tags, as bits.
#[derive(Debug, Default)]
struct TagSet {
    words: Vec<u64>,
    count: usize,
}

impl TagSet {
    fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| (word >> (number % 64)) & 1 == 1)
    }

    fn insert(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.count += usize::from(!self.contains(number));
        self.words[word] |= 1 << (number % 64);
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.words.len() as u32 * 64).filter(|&number| self.contains(number))
    }
}

/// The key of every row for each tag in `tags`; tags that no row has are left out.
fn gather_tags(series: &[u32], tags: &TagSet, index: &SeriesIndex<'_>) -> Vec<(u32, Vec<u32>)> {
    let numbers: Vec<u32> = tags.iter().collect();
    let mut column_of_tag = vec![0_u32; numbers.last().map_or(0, |&last| last as usize + 1)];
    for (column, &number) in numbers.iter().enumerate() {
        column_of_tag[number as usize] = column as u32;
    }
    let mut columns: Vec<(u32, Vec<u32>)> =
        numbers.iter().map(|&number| (number, vec![NO_TAG; series.len()])).collect();
    for (row, &series) in series.iter().enumerate() {
        for tag in index.tags_of(series) {
            columns[column_of_tag[tag.tag as usize] as usize].1[row] = tag.value;
        }
    }
    columns.retain(|(_, keys)| keys.iter().any(|&key| key != NO_TAG));
    columns
}

/// The values that `keys` use, and the keys that point to them there.
fn dictionary_array(
    dictionary: &Dictionary,
    mut keys: Vec<u32>,
) -> Result<(StringArray, Vec<u32>)> {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    let mut copy = |number: u32| {
        bytes.extend_from_slice(dictionary.get(number));
        ends.push(bytes.len() as i32);
    };
    if dictionary.len() <= DICTIONARY_VALUES_PER_ROW * keys.len() + DICTIONARY_FREE {
        (0..dictionary.len() as u32).for_each(copy);
    } else {
        let mut used: HashMap<u32, u32> = HashMap::new();
        for key in keys.iter_mut().filter(|key| **key != NO_TAG) {
            let next = used.len() as u32;
            *key = *used.entry(*key).or_insert_with_key(|&number| {
                copy(number);
                next
            });
        }
    }
    Ok((text_array(bytes, ends, None)?, keys))
}
