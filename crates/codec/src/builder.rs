//! From pages to a column.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use tidefall_types::{Error, FieldType, Result};

use crate::bytes::corrupt;
use crate::numeric::{self, Nesting};
use crate::page::{Page, open_checked};
use crate::text;
use crate::validity::{self, spread};
use crate::value::{Number, PageValue};

/// Decodes one whole page into a new array of the type `ty`.
///
/// # Errors
/// `Corrupt` when the page is damaged, or holds values of another type.
pub fn decode_page(bytes: &[u8], ty: FieldType) -> Result<ArrayRef> {
    let rows = open_of_type(bytes, ty)?.info.rows;
    let mut builder = ColumnBuilder::new(ty, rows);
    builder.append_page(bytes)?;
    Ok(builder.finish())
}

/// Decodes one whole page of numbers into `out`, which has one place for each row, and returns how
/// many of them are null. Those become [`Number::NULL`]: NaN for floats, 0 for integers.
///
/// # Errors
/// `Corrupt` when the page is damaged, or holds values of another type; `Invalid` when it has
/// another number of rows than `out`. Then `out` may hold anything.
pub fn decode_into<T: PageValue>(bytes: &[u8], out: &mut [T]) -> Result<usize> {
    let page = open_of_type(bytes, T::TYPE)?;
    if page.info.rows != out.len() {
        return Err(Error::invalid(format!(
            "a page of {} rows into {} places",
            page.info.rows,
            out.len()
        )));
    }
    let nulls = page.info.nulls;
    decode_numbers(page, out).map(|_| nulls)
}

/// As [`decode_into`], for the rows from `first` on for which `out` has places. Of most pages only the
/// vectors are decoded in which these rows lie.
///
/// # Errors
/// As [`decode_into`]; `Invalid` when the page does not have all these rows.
pub fn decode_rows_into<T: PageValue>(bytes: &[u8], first: usize, out: &mut [T]) -> Result<usize> {
    let page = open_of_type(bytes, T::TYPE)?;
    let info = page.info;
    let rows = first..first.saturating_add(out.len());
    if rows.end > info.rows {
        return Err(rows_missing(&rows, info.rows));
    }
    if rows.len() == info.rows {
        return decode_numbers(page, out).map(|_| info.nulls);
    }
    if info.nulls == 0 {
        return decode_some_numbers(page, first, out).map(|()| 0);
    }
    let mut all = vec![T::NULL; info.rows];
    let nulls = decode_numbers(page, &mut all)?;
    out.copy_from_slice(&all[rows.clone()]);
    Ok(nulls.map_or(0, |nulls| nulls.slice(rows.start, rows.len()).null_count()))
}

fn rows_missing(rows: &Range<usize>, held: usize) -> Error {
    Error::invalid(format!("rows {rows:?} of a page of {held} rows"))
}

fn open_of_type(bytes: &[u8], ty: FieldType) -> Result<Page<'_>> {
    let page = open_checked(bytes)?;
    if page.info.ty == ty {
        return Ok(page);
    }
    Err(corrupt(format_args!("values of type {:?} where {ty:?} belongs", page.info.ty)))
}

/// Decodes the values of `page` into `out`, which has one place for each row, and returns which of
/// them are valid.
fn decode_numbers<T: Number>(mut page: Page<'_>, out: &mut [T]) -> Result<Option<NullBuffer>> {
    let info = page.info;
    let nulls = validity::decode(page.form, info.rows, info.nulls, &mut page.payload)?;
    let (present, _) = out.split_at_mut(info.rows - info.nulls);
    numeric::decode(info.codec, page.payload.rest(), present, Nesting::Page)?;
    if let Some(nulls) = &nulls {
        spread(out, nulls, T::NULL);
    }
    Ok(nulls)
}

/// Decodes the values of `page`, which has no nulls, from the row `first` on.
fn decode_some_numbers<T: Number>(mut page: Page<'_>, first: usize, out: &mut [T]) -> Result<()> {
    let info = page.info;
    validity::decode(page.form, info.rows, info.nulls, &mut page.payload)?;
    numeric::decode_some(info.codec, page.payload.rest(), info.rows, first, out)
}

/// Collects pages and arrays of one type into one contiguous column. Numbers are decoded straight
/// into the place where they stay.
#[derive(Debug)]
pub struct ColumnBuilder {
    values: Values,
    nulls: NullBufferBuilder,
}

/// The values so far. The bytes of a number column are those of its native type.
#[derive(Debug)]
enum Values {
    I8(Numbers<i8>),
    I16(Numbers<i16>),
    I32(Numbers<i32>),
    I64(Numbers<i64>),
    U8(Numbers<u8>),
    U16(Numbers<u16>),
    U32(Numbers<u32>),
    U64(Numbers<u64>),
    F32(Numbers<f32>),
    F64(Numbers<f64>),
    Bool(BooleanBufferBuilder),
    Text(Texts),
    Timestamp(Numbers<i64>),
}

/// A buffer whose whole length is initialised and whose first `len` values count. Asking for zeroed memory
/// costs nothing for a large buffer, because the system hands out zeroed pages anyway; so no part of it
/// is written before it is decoded.
#[derive(Debug)]
struct Numbers<T> {
    values: Vec<T>,
    len: usize,
}

impl<T: Number> Numbers<T> {
    fn new(capacity: usize) -> Self {
        Self { values: vec![T::default(); capacity], len: 0 }
    }

    /// The next `count` slots. They count only once `len` is behind them.
    fn slots(&mut self, count: usize) -> &mut [T] {
        let end = self.len + count;
        if end > self.values.len() {
            self.values.resize(end.max(self.values.len() * 2), T::default());
        }
        &mut self.values[self.len..end]
    }

    fn append_page(&mut self, page: Page<'_>, rows: Range<usize>) -> Result<Option<NullBuffer>> {
        let count = page.info.rows;
        if rows.len() < count && page.info.nulls == 0 {
            decode_some_numbers(page, rows.start, self.slots(rows.len()))?;
            self.len += rows.len();
            return Ok(None);
        }
        let nulls = decode_numbers(page, self.slots(count))?;
        if rows.len() < count {
            let start = self.len;
            self.values.copy_within(start + rows.start..start + rows.end, start);
        }
        self.len += rows.len();
        Ok(nulls)
    }

    fn append_slice(&mut self, values: &[T]) {
        self.slots(values.len()).copy_from_slice(values);
        self.len += values.len();
    }

    fn append_nulls(&mut self, count: usize) {
        self.slots(count).fill(T::NULL);
        self.len += count;
    }

    fn finish(self, nulls: Option<NullBuffer>) -> ArrayRef {
        self.finish_as::<T::Arrow>(nulls)
    }

    fn finish_as<A: ArrowPrimitiveType<Native = T>>(
        mut self,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        self.values.truncate(self.len);
        if self.values.capacity() - self.len > self.len / 4 {
            self.values.shrink_to_fit();
        }
        Arc::new(PrimitiveArray::<A>::new(ScalarBuffer::from(self.values), nulls))
    }
}

#[derive(Debug)]
struct Texts {
    /// Where each text ends, with a 0 in front.
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Texts {
    /// Appends texts of these lengths, of which `bytes` are the contents.
    fn append(&mut self, lengths: &[i32], bytes: &[u8]) -> Result<()> {
        if self.bytes.len() + bytes.len() > i32::MAX as usize {
            return Err(Error::limit("a text column of more than 2 GiB; read fewer rows at once"));
        }
        self.note(lengths);
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes note of where texts of these lengths end.
    fn note(&mut self, lengths: &[i32]) {
        let mut end = self.offsets.last().copied().unwrap_or_default();
        self.offsets.extend(lengths.iter().map(|length| {
            end += length;
            end
        }));
    }

    fn append_page(
        &mut self,
        mut page: Page<'_>,
        rows: Range<usize>,
    ) -> Result<Option<NullBuffer>> {
        let info = page.info;
        let nulls = validity::decode(page.form, info.rows, info.nulls, &mut page.payload)?;
        let mut text = text::decode(info.codec, page.payload.rest(), info.rows - info.nulls)?;
        if let Some(nulls) = &nulls {
            text.lengths.resize(info.rows, 0);
            spread(&mut text.lengths, nulls, 0);
        }
        if self.bytes.is_empty() && rows.len() == info.rows {
            // They stay where they are.
            self.bytes = std::mem::take(&mut text.bytes);
            self.note(&text.lengths);
            return Ok(nulls);
        }
        let sum = |lengths: &[i32]| lengths.iter().map(|&length| length as usize).sum::<usize>();
        let start = sum(&text.lengths[..rows.start]);
        let lengths = &text.lengths[rows];
        self.append(lengths, &text.bytes[start..start + sum(lengths)])?;
        Ok(nulls)
    }
}

macro_rules! each_number {
    ($values:expr, $numbers:ident => $number:expr, $bits:ident => $bool:expr,
     $texts:ident => $text:expr) => {
        match $values {
            Values::I8($numbers) => $number,
            Values::I16($numbers) => $number,
            Values::I32($numbers) => $number,
            Values::I64($numbers) => $number,
            Values::U8($numbers) => $number,
            Values::U16($numbers) => $number,
            Values::U32($numbers) => $number,
            Values::U64($numbers) => $number,
            Values::F32($numbers) => $number,
            Values::F64($numbers) => $number,
            Values::Timestamp($numbers) => $number,
            Values::Bool($bits) => $bool,
            Values::Text($texts) => $text,
        }
    };
}

impl ColumnBuilder {
    /// A builder for a column of `ty` with room for `capacity` rows; more may come.
    pub fn new(ty: FieldType, capacity: usize) -> Self {
        let values = match ty {
            FieldType::I8 => Values::I8(Numbers::new(capacity)),
            FieldType::I16 => Values::I16(Numbers::new(capacity)),
            FieldType::I32 => Values::I32(Numbers::new(capacity)),
            FieldType::I64 => Values::I64(Numbers::new(capacity)),
            FieldType::U8 => Values::U8(Numbers::new(capacity)),
            FieldType::U16 => Values::U16(Numbers::new(capacity)),
            FieldType::U32 => Values::U32(Numbers::new(capacity)),
            FieldType::U64 => Values::U64(Numbers::new(capacity)),
            FieldType::F32 => Values::F32(Numbers::new(capacity)),
            FieldType::F64 => Values::F64(Numbers::new(capacity)),
            FieldType::Bool => Values::Bool(BooleanBufferBuilder::new(capacity)),
            FieldType::Text => {
                let mut offsets = Vec::with_capacity(capacity + 1);
                offsets.push(0);
                Values::Text(Texts { offsets, bytes: Vec::new() })
            }
            FieldType::Timestamp => Values::Timestamp(Numbers::new(capacity)),
        };
        Self { values, nulls: NullBufferBuilder::new(capacity) }
    }

    /// The type of the column.
    pub fn ty(&self) -> FieldType {
        match &self.values {
            Values::I8(_) => FieldType::I8,
            Values::I16(_) => FieldType::I16,
            Values::I32(_) => FieldType::I32,
            Values::I64(_) => FieldType::I64,
            Values::U8(_) => FieldType::U8,
            Values::U16(_) => FieldType::U16,
            Values::U32(_) => FieldType::U32,
            Values::U64(_) => FieldType::U64,
            Values::F32(_) => FieldType::F32,
            Values::F64(_) => FieldType::F64,
            Values::Bool(_) => FieldType::Bool,
            Values::Text(_) => FieldType::Text,
            Values::Timestamp(_) => FieldType::Timestamp,
        }
    }

    /// The number of rows so far.
    pub fn len(&self) -> usize {
        each_number!(&self.values, numbers => numbers.len, bits => bits.len(),
            texts => texts.offsets.len() - 1)
    }

    /// Whether there is no row yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends all rows of one whole page, and returns how many there are.
    ///
    /// # Errors
    /// `Corrupt` when the page is damaged, or holds values of another type; `Limit` when the
    /// column has more than 2 GiB of text. Then no row was added.
    pub fn append_page(&mut self, bytes: &[u8]) -> Result<usize> {
        let page = open_of_type(bytes, self.ty())?;
        let rows = page.info.rows;
        self.append_opened(page, 0..rows)?;
        Ok(rows)
    }

    /// Appends some rows of one whole page.
    ///
    /// # Errors
    /// As [`ColumnBuilder::append_page`], and `Invalid` when the page does not have these rows.
    pub fn append_page_rows(&mut self, bytes: &[u8], rows: Range<usize>) -> Result<()> {
        let page = open_of_type(bytes, self.ty())?;
        if rows.start > rows.end || rows.end > page.info.rows {
            return Err(rows_missing(&rows, page.info.rows));
        }
        self.append_opened(page, rows)
    }

    fn append_opened(&mut self, page: Page<'_>, rows: Range<usize>) -> Result<()> {
        let nulls = each_number!(&mut self.values,
            numbers => numbers.append_page(page, rows.clone()),
            bits => append_bits(bits, page, rows.clone()),
            texts => texts.append_page(page, rows.clone()))?;
        match nulls {
            Some(nulls) => self.nulls.append_buffer(&nulls.slice(rows.start, rows.len())),
            None => self.nulls.append_n_non_nulls(rows.len()),
        }
        Ok(())
    }

    /// Appends all rows of an array.
    ///
    /// # Errors
    /// `Invalid` when it has another type, `Limit` when the column has more than 2 GiB of text.
    pub fn append_array(&mut self, array: &dyn Array) -> Result<()> {
        if *array.data_type() != self.ty().arrow() {
            return Err(Error::invalid(format!(
                "an array of type {} in a column of type {}",
                array.data_type(),
                self.ty().arrow()
            )));
        }
        match &mut self.values {
            Values::Bool(bits) => bits.append_buffer(array.as_boolean().values()),
            Values::Text(texts) => append_strings(texts, array.as_string())?,
            Values::I8(numbers) => append_numbers(numbers, array),
            Values::I16(numbers) => append_numbers(numbers, array),
            Values::I32(numbers) => append_numbers(numbers, array),
            Values::I64(numbers) => append_numbers(numbers, array),
            Values::U8(numbers) => append_numbers(numbers, array),
            Values::U16(numbers) => append_numbers(numbers, array),
            Values::U32(numbers) => append_numbers(numbers, array),
            Values::U64(numbers) => append_numbers(numbers, array),
            Values::F32(numbers) => append_numbers(numbers, array),
            Values::F64(numbers) => append_numbers(numbers, array),
            Values::Timestamp(numbers) => {
                numbers.append_slice(array.as_primitive::<TimestampNanosecondType>().values());
            }
        }
        match array.nulls() {
            Some(nulls) => self.nulls.append_buffer(nulls),
            None => self.nulls.append_n_non_nulls(array.len()),
        }
        Ok(())
    }

    /// Appends `count` rows without a value.
    pub fn append_nulls(&mut self, count: usize) {
        each_number!(&mut self.values,
        numbers => numbers.append_nulls(count),
        bits => bits.append_n(count, false),
        texts => {
            let end = texts.bytes.len() as i32;
            texts.offsets.extend(std::iter::repeat_n(end, count));
        });
        self.nulls.append_n_nulls(count);
    }

    /// The column.
    pub fn finish(mut self) -> ArrayRef {
        let nulls = self.nulls.finish();
        if let Values::Timestamp(times) = self.values {
            return times.finish_as::<TimestampNanosecondType>(nulls);
        }
        each_number!(self.values,
            numbers => numbers.finish(nulls),
            bits => finish_bits(bits, nulls),
            texts => finish_texts(texts, nulls))
    }
}

fn append_bits(
    bits: &mut BooleanBufferBuilder,
    page: Page<'_>,
    rows: Range<usize>,
) -> Result<Option<NullBuffer>> {
    let mut bytes = vec![0_u8; page.info.rows];
    let nulls = decode_numbers(page, &mut bytes)?;
    for &byte in &bytes[rows] {
        bits.append(byte != 0);
    }
    Ok(nulls)
}

fn append_numbers<T: Number>(numbers: &mut Numbers<T>, array: &dyn Array) {
    numbers.append_slice(array.as_primitive::<T::Arrow>().values());
}

fn append_strings(texts: &mut Texts, strings: &StringArray) -> Result<()> {
    let offsets = strings.value_offsets();
    let lengths: Vec<i32> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let start = offsets.first().copied().unwrap_or(0) as usize;
    let end = offsets.last().copied().unwrap_or(0) as usize;
    texts.append(&lengths, &strings.value_data()[start..end])
}

fn finish_bits(mut bits: BooleanBufferBuilder, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(BooleanArray::new(bits.finish(), nulls))
}

fn finish_texts(texts: Texts, nulls: Option<NullBuffer>) -> ArrayRef {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(texts.offsets));
    // Every page was checked to hold whole UTF-8 texts, and every array is checked by Arrow; this checks
    // once more rather than trusting that.
    Arc::new(StringArray::new(offsets, Buffer::from_vec(texts.bytes), nulls))
}
