//! Columns of text into columns of values, a whole block at a time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use tidefall_types::{Error, FieldType, NO_TAG, TagColumn};

use super::records::Records;
use super::scalar::{self, NullTexts, Numerals, quoted};
use super::time::TimeParser;

/// Records of a block that cannot be taken, with the first reason found for each.
#[derive(Debug, Default)]
pub(super) struct BadRecords(Vec<(usize, Error)>);

impl BadRecords {
    pub fn push(&mut self, record: usize, reason: Error) {
        self.0.push((record, reason));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The records in order, each once.
    pub fn into_sorted(mut self) -> Vec<(usize, Error)> {
        // Stable, so that the leftmost fault of a record comes first and is the one kept.
        self.0.sort_by_key(|(record, _)| *record);
        self.0.dedup_by_key(|(record, _)| *record);
        self.0
    }
}

/// One column of a block and the name it has in messages.
#[derive(Clone, Copy)]
pub(super) struct TextColumn<'a> {
    pub records: Records<'a>,
    pub column: usize,
    pub name: &'a str,
    pub nulls: &'a NullTexts,
    pub numerals: Numerals,
}

impl<'a> TextColumn<'a> {
    /// Reads the column as a field. A value that cannot be read is null and makes its record bad.
    /// `times` tells how times are written, other than in ISO 8601.
    pub fn parse_field(
        self,
        ty: FieldType,
        times: Option<&TimeParser>,
        bad: &mut BadRecords,
    ) -> ArrayRef {
        fn narrow<T: TryFrom<i64>>(value: Option<i64>) -> Option<T> {
            T::try_from(value?).ok()
        }
        let numerals = self.numerals;
        let whole = |text: &[u8]| numerals.read(text, scalar::parse_i64);
        let values = Values { column: self, ty, bad };
        match ty {
            FieldType::I8 => values.primitive::<Int8Type>(|t| narrow(whole(t))),
            FieldType::I16 => values.primitive::<Int16Type>(|t| narrow(whole(t))),
            FieldType::I32 => values.primitive::<Int32Type>(|t| narrow(whole(t))),
            FieldType::I64 => values.primitive::<Int64Type>(whole),
            FieldType::U8 => values.primitive::<UInt8Type>(|t| narrow(whole(t))),
            FieldType::U16 => values.primitive::<UInt16Type>(|t| narrow(whole(t))),
            FieldType::U32 => values.primitive::<UInt32Type>(|t| narrow(whole(t))),
            FieldType::U64 => {
                values.primitive::<UInt64Type>(|t| numerals.read(t, scalar::parse_u64))
            }
            FieldType::F32 => {
                values.primitive::<Float32Type>(|t| numerals.read(t, scalar::parse_f32))
            }
            FieldType::F64 => {
                values.primitive::<Float64Type>(|t| numerals.read(t, scalar::parse_f64))
            }
            FieldType::Bool => values.boolean(),
            FieldType::Text => values.text(),
            FieldType::Timestamp => {
                // It remembers the last date.
                let parser = RefCell::new(times.cloned().unwrap_or_default());
                values.primitive::<TimestampNanosecondType>(|t| {
                    let is_missing = t.is_empty();
                    (!is_missing).then(|| parser.borrow_mut().parse(t).ok()).flatten()
                })
            }
        }
    }

    /// Reads the column as a tag.
    pub fn parse_tag(self, bad: &mut BadRecords) -> TagColumn {
        let mut interner = Interner::new(self.nulls);
        let mut keys = Vec::with_capacity(self.records.len());
        for (record, text) in self.records.column(self.column).enumerate() {
            let key = match self.is_empty_text(record, text) {
                true => interner.empty_key(),
                false => interner.key(text),
            };
            keys.push(key);
            if key == NO_TAG && !self.nulls.contains(text) && !text.is_empty() {
                bad.push(record, not_utf8(self.name, text));
            }
        }
        TagColumn { name: self.name.to_owned(), values: interner.values(), keys: keys.into() }
    }

    /// Whether a text is there and has no letters.
    #[inline]
    fn is_empty_text(&self, record: usize, text: &[u8]) -> bool {
        let is_text = |record| self.records.is_quoted_empty(record, self.column);
        text.is_empty() && !self.nulls.quoted_empty && is_text(record)
    }
}

fn not_utf8(name: &str, text: &[u8]) -> Error {
    let at = std::str::from_utf8(text).map_or_else(|error| error.valid_up_to(), |_| text.len());
    Error::invalid(format!(
        "column {name:?}: {} is not UTF-8 from its byte {} on; convert the file to UTF-8",
        quoted(text),
        at + 1
    ))
}

struct Values<'a, 'b> {
    column: TextColumn<'a>,
    ty: FieldType,
    bad: &'b mut BadRecords,
}

impl Values<'_, '_> {
    fn primitive<T: ArrowPrimitiveType>(
        mut self,
        parse: impl Fn(&[u8]) -> Option<T::Native>,
    ) -> ArrayRef {
        let TextColumn { records, column, nulls, .. } = self.column;
        let mut values = Vec::with_capacity(records.len());
        let mut validity = NullBufferBuilder::new(records.len());
        for (record, text) in records.column(column).enumerate() {
            let hidden = nulls.has_number && nulls.contains(text);
            let value = match parse(text) {
                Some(value) if !hidden => Some(value),
                _ => self.unusual(record, text, &parse),
            };
            validity.append(value.is_some());
            values.push(value.unwrap_or_default());
        }
        Arc::new(PrimitiveArray::<T>::new(values.into(), validity.finish()))
    }

    fn boolean(mut self) -> ArrayRef {
        let TextColumn { records, column, .. } = self.column;
        let mut values = BooleanBufferBuilder::new(records.len());
        let mut validity = NullBufferBuilder::new(records.len());
        for (record, text) in records.column(column).enumerate() {
            let value = self.unusual(record, text, scalar::parse_bool);
            validity.append(value.is_some());
            values.append(value.unwrap_or_default());
        }
        Arc::new(BooleanArray::new(values.finish(), validity.finish()))
    }

    /// A value that is missing, has blanks around it, or is wrong.
    fn unusual<T>(
        &mut self,
        record: usize,
        text: &[u8],
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let trimmed = text.trim_ascii();
        if self.column.nulls.contains(text) || self.column.nulls.contains(trimmed) {
            return None;
        }
        let value = parse(trimmed);
        if value.is_none() {
            self.bad.push(record, self.wrong(text));
        }
        value
    }

    #[cold]
    fn wrong(&self, text: &[u8]) -> Error {
        let name = self.column.name;
        let is_number = self.column.numerals.read(text.trim_ascii(), scalar::parse_f64).is_some();
        let is_plain = self.column.numerals == Numerals::PLAIN;
        let is_float = matches!(self.ty, FieldType::F32 | FieldType::F64);
        let is_digits =
            || self.column.numerals.read(text.trim_ascii(), scalar::is_number).is_some();
        let expected = match is_float && is_digits() {
            true => "a number within the range of its type",
            false => scalar::expected(self.ty),
        };
        let hint = match self.ty {
            FieldType::Bool | FieldType::Text | FieldType::Timestamp => String::new(),
            _ if is_number => format!("; a DOUBLE takes it, by --type {name}=DOUBLE"),
            _ if is_plain => scalar::marks_hint(text).to_owned(),
            _ => String::new(),
        };
        Error::invalid(format!(
            "column {name:?}: {} is not {}, and the column is {}; correct it, or name the text as \
             a missing value{hint}",
            quoted(text),
            expected,
            self.ty.sql_name()
        ))
    }

    fn text(self) -> ArrayRef {
        let texts = self.column;
        let TextColumn { records, column, name, nulls, .. } = texts;
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(records.len() + 1);
        ends.push(0_i32);
        let mut validity = NullBufferBuilder::new(records.len());
        for (record, text) in records.column(column).enumerate() {
            let null = nulls.contains(text) && !texts.is_empty_text(record, text);
            let wrong = !text.is_ascii() && std::str::from_utf8(text).is_err();
            if wrong && !null {
                self.bad.push(record, not_utf8(name, text));
            }
            if !null && !wrong {
                bytes.extend_from_slice(text);
            }
            validity.append(!null && !wrong);
            // A block is far smaller than what 31 bits count.
            ends.push(bytes.len() as i32);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let nulls = validity.finish();
        match StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls) {
            Ok(array) => Arc::new(array),
            // Each text was checked above, and offsets only grow.
            Err(error) => unreachable!("checked text makes a column: {error}"),
        }
    }
}

/// Numbers the distinct texts of a tag by first appearance.
///
/// Files are mostly grouped by sensor, or go round all sensors for each time in the same order.
/// So the last text, and the one that was new after it, are tried before the hash table.
struct Interner<'a> {
    nulls: &'a NullTexts,
    slots: HashMap<&'a [u8], u32, BuildHasherDefault<TextHasher>>,
    /// The distinct texts, with the key that each has.
    texts: Vec<(&'a [u8], u32)>,
    last: usize,
    /// The key of the empty text.
    empty: Option<u32>,
    offsets: Vec<i32>,
    bytes: String,
}

impl<'a> Interner<'a> {
    fn new(nulls: &'a NullTexts) -> Self {
        Self {
            nulls,
            slots: HashMap::default(),
            texts: Vec::new(),
            last: 0,
            empty: None,
            offsets: vec![0],
            bytes: String::new(),
        }
    }

    /// The key of a text; [`NO_TAG`] when it is empty, stands for a missing value, or is not
    /// UTF-8.
    #[inline]
    fn key(&mut self, text: &'a [u8]) -> u32 {
        if let Some((known, key)) = self.texts.get(self.last)
            && *known == text
        {
            return *key;
        }
        let next = if self.last + 1 < self.texts.len() { self.last + 1 } else { 0 };
        if let Some((known, key)) = self.texts.get(next)
            && *known == text
        {
            self.last = next;
            return *key;
        }
        self.key_by_hash(text)
    }

    /// The key of the empty text, which is not that of nothing.
    fn empty_key(&mut self) -> u32 {
        *self.empty.get_or_insert_with(|| {
            self.offsets.push(self.bytes.len() as i32);
            self.offsets.len() as u32 - 2
        })
    }

    fn key_by_hash(&mut self, text: &'a [u8]) -> u32 {
        let slot = *self.slots.entry(text).or_insert_with(|| {
            let key = match std::str::from_utf8(text) {
                Ok(valid) if !valid.is_empty() && !self.nulls.contains(text) => {
                    self.bytes.push_str(valid);
                    self.offsets.push(self.bytes.len() as i32);
                    self.offsets.len() as u32 - 2
                }
                _ => NO_TAG,
            };
            self.texts.push((text, key));
            self.texts.len() as u32 - 1
        });
        self.last = slot as usize;
        self.texts[self.last].1
    }

    fn values(self) -> StringArray {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        match StringArray::try_new(offsets, Buffer::from_vec(self.bytes.into_bytes()), None) {
            Ok(array) => array,
            // Whole strings were appended.
            Err(error) => unreachable!("strings make a column: {error}"),
        }
    }
}

/// A multiplicative hash for short texts. A table lives for one block, so that texts made to
/// collide cost little.
#[derive(Default)]
struct TextHasher(u64);

impl TextHasher {
    fn mix(&mut self, word: u64) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for TextHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        self.mix(u64::from_le_bytes(word));
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64 ^ 0xff51_afd7_ed55_8ccd);
    }
}
