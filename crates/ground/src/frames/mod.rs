//! Frames: how index and metrics stand in a segment.
//!
//! ```text
//! frame  = part* table
//! part   = bytes, or a column: pages of the codec crate, each at most MAX_PAGE_ROWS values
//! table  = length of each part (u32 each), number of parts (u32), crc32c of the table so far (u32)
//! ```
//!
//! A frame is read as a whole. Column parts carry the checksums of their pages, byte parts one of
//! their own, and the table protects the lengths.

mod column;
mod header;
mod tail;

pub use column::Column;
pub use header::{Content, HEADER_BYTES, decode_header, encode_header};
pub use tail::{TAIL_BYTES, decode_tail, encode_tail};

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, StringArray};
use tidefall_codec::{
    Codec, ColumnBuilder, MAX_PAGE_ROWS, Profile, check_page, decode_rows_into, encode_page,
};
use tidefall_types::{Error, FieldType, Result};

use crate::texts::{CHUNK_TEXT_BYTES, first_within, text_bytes};

/// Builds a frame.
#[derive(Debug)]
pub struct FrameWriter {
    profile: Profile,
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl FrameWriter {
    /// An empty frame.
    pub fn new(profile: Profile) -> Self {
        Self { profile, bytes: Vec::new(), lengths: Vec::new() }
    }

    /// Puts a part of bytes.
    ///
    /// # Errors
    /// `Limit` when it is too long.
    pub fn put_bytes(&mut self, part: &[u8]) -> Result<()> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(part);
        self.bytes.extend_from_slice(&crc32c::crc32c(part).to_le_bytes());
        self.close_part(start)
    }

    /// As [`FrameWriter::put_column`].
    ///
    /// # Errors
    /// As there.
    pub fn put_i64s(&mut self, column: Vec<i64>) -> Result<()> {
        self.put_column(&Int64Array::from(column))
    }

    /// Puts a column, page by page.
    ///
    /// # Errors
    /// `Limit` when it is too long.
    pub fn put_column(&mut self, column: &dyn Array) -> Result<()> {
        let start = self.bytes.len();
        put_pages(column, self.profile, &mut self.bytes)?;
        self.close_part(start)
    }

    /// Puts a column of texts page by page: of all of them there may be more than a column in memory can hold.
    ///
    /// # Errors
    /// As [`FrameWriter::put_column`].
    pub fn put_texts<'a>(&mut self, texts: impl Iterator<Item = &'a str>) -> Result<()> {
        let start = self.bytes.len();
        let mut page = StringBuilder::new();
        let (mut rows, mut bytes) = (0, 0);
        for text in texts {
            if rows == MAX_PAGE_ROWS || (rows > 0 && bytes + text.len() > CHUNK_TEXT_BYTES) {
                put_page(&page.finish(), self.profile, &mut self.bytes)?;
                (rows, bytes) = (0, 0);
            }
            page.append_value(text);
            rows += 1;
            bytes += text.len();
        }
        if rows > 0 {
            put_page(&page.finish(), self.profile, &mut self.bytes)?;
        }
        self.close_part(start)
    }

    /// The bytes of the frame.
    ///
    /// # Errors
    /// `Limit` when it has too many parts.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        let start = self.bytes.len();
        for length in &self.lengths {
            self.bytes.extend_from_slice(&length.to_le_bytes());
        }
        self.bytes.extend_from_slice(&length_u32(self.lengths.len())?.to_le_bytes());
        let crc = crc32c::crc32c(&self.bytes[start..]);
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        Ok(self.bytes)
    }

    fn close_part(&mut self, start: usize) -> Result<()> {
        self.lengths.push(length_u32(self.bytes.len() - start)?);
        Ok(())
    }
}

/// Appends a column, page by page, each with its length in front: texts have more pages where they are long.
///
/// # Errors
/// `Limit` when it is too long.
pub fn put_pages(column: &dyn Array, profile: Profile, out: &mut Vec<u8>) -> Result<()> {
    let mut first = 0;
    while first < column.len() {
        let rows_max = MAX_PAGE_ROWS.min(column.len() - first);
        let bytes = |rows| text_bytes(column, first..first + rows);
        let rows = first_within(rows_max, CHUNK_TEXT_BYTES, bytes);
        put_page(&*column.slice(first, rows), profile, out)?;
        first += rows;
    }
    Ok(())
}

fn put_page(page: &dyn Array, profile: Profile, out: &mut Vec<u8>) -> Result<()> {
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    encode_page(page, profile, out)?;
    let length = length_u32(out.len() - length_at - 4)?;
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// The column of which [`put_pages`] has made these bytes.
///
/// # Errors
/// `Corrupt` when they are damaged, or have values of another type.
pub fn take_pages(mut pages: &[u8], ty: FieldType) -> Result<ArrayRef> {
    let mut column = ColumnBuilder::new(ty, 0);
    while !pages.is_empty() {
        column.append_page(split_page(&mut pages)?)?;
    }
    Ok(column.finish())
}

fn length_u32(length: usize) -> Result<u32> {
    u32::try_from(length).map_err(|_| Error::limit("a part of an index is over 4 GiB"))
}

/// Takes a frame apart, part by part in the order of writing.
#[derive(Debug)]
pub struct FrameReader<'a> {
    parts: &'a [u8],
    lengths: std::vec::IntoIter<usize>,
}

impl<'a> FrameReader<'a> {
    /// A reader of a whole frame.
    ///
    /// # Errors
    /// `Corrupt` when its table of parts is damaged.
    pub fn new(frame: &'a [u8]) -> Result<Self> {
        let short = || Error::corrupt("a frame is cut short");
        let (rest, crc) = split_u32(frame).ok_or_else(short)?;
        let (rest_without_count, count) = split_u32(rest).ok_or_else(short)?;
        let table_bytes = (count as usize).checked_mul(4).ok_or_else(short)?;
        let parts_end = rest_without_count.len().checked_sub(table_bytes).ok_or_else(short)?;
        let (parts, table) = rest_without_count.split_at(parts_end);
        if crc32c::crc32c(&rest[parts_end..]) != crc {
            return Err(Error::corrupt("the checksum of a frame's table is wrong"));
        }
        let lengths: Vec<usize> = table
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
            .collect();
        if lengths.iter().sum::<usize>() != parts.len() {
            return Err(Error::corrupt("the parts of a frame do not fill it"));
        }
        Ok(Self { parts, lengths: lengths.into_iter() })
    }

    /// The next part, of bytes.
    ///
    /// # Errors
    /// `Corrupt` when there is none, or it is damaged.
    pub fn take_bytes(&mut self) -> Result<&'a [u8]> {
        let part = self.take_part()?;
        let (bytes, crc) =
            split_u32(part).ok_or_else(|| Error::corrupt("a part of a frame is cut short"))?;
        if crc32c::crc32c(bytes) != crc {
            return Err(Error::corrupt("the checksum of a part of a frame is wrong"));
        }
        Ok(bytes)
    }

    /// The next part, a column of integers without nulls.
    ///
    /// # Errors
    /// As [`FrameReader::take_bytes`].
    pub fn take_i64s(&mut self) -> Result<Vec<i64>> {
        let column = self.take_column(FieldType::I64)?;
        let column = column.as_primitive::<Int64Type>();
        if column.null_count() > 0 {
            return Err(Error::corrupt("a column of a frame has unexpected nulls"));
        }
        Ok(column.values().to_vec())
    }

    /// As [`FrameReader::take_i64s`]; a page in which all values are the same is not laid out.
    ///
    /// # Errors
    /// As [`FrameReader::take_bytes`].
    pub fn take_i64_column(&mut self) -> Result<Column<i64>> {
        let constant = self.parts.get(..*self.lengths.as_slice().first().unwrap_or(&0));
        let constant = constant.map_or(Ok(None), constant_of)?;
        match constant {
            Some(column) => self.pass_over(1).map(|()| column),
            None => self.take_i64s().map(Column::from),
        }
    }

    /// Leaves out the next parts.
    ///
    /// # Errors
    /// As [`FrameReader::take_bytes`].
    pub fn pass_over(&mut self, parts: usize) -> Result<()> {
        (0..parts).try_for_each(|_| self.take_part().map(drop))
    }

    /// The next part, a column of this type.
    ///
    /// # Errors
    /// As [`FrameReader::take_bytes`].
    pub fn take_column(&mut self, ty: FieldType) -> Result<ArrayRef> {
        take_pages(self.take_part()?, ty)
    }

    /// The next part, a column of texts, to be read page by page.
    ///
    /// # Errors
    /// As [`FrameReader::take_bytes`].
    pub fn take_texts(&mut self) -> Result<TextPages<'a>> {
        let rest = self.take_part()?;
        Ok(TextPages { rest, page: StringArray::new_null(0), row: 0 })
    }

    /// The number of parts that were not taken yet.
    pub fn parts_left(&self) -> usize {
        self.lengths.len()
    }

    /// The first page of the next part, which is a column.
    pub fn peek_page(&self) -> Option<&'a [u8]> {
        let part = self.parts.get(..*self.lengths.as_slice().first()?)?;
        part.get(4..)
    }

    fn take_part(&mut self) -> Result<&'a [u8]> {
        let length =
            self.lengths.next().ok_or_else(|| Error::corrupt("a frame has too few parts"))?;
        let (part, rest) = self.parts.split_at(length);
        self.parts = rest;
        Ok(part)
    }
}

/// A column of texts, of which one page at a time is decoded.
#[derive(Debug)]
pub struct TextPages<'a> {
    rest: &'a [u8],
    page: StringArray,
    row: usize,
}

impl TextPages<'_> {
    /// The next text, if it is not null.
    ///
    /// # Errors
    /// `Corrupt` when there is none, or its page is damaged.
    pub fn next_text(&mut self) -> Result<Option<&str>> {
        while self.row == self.page.len() {
            if self.rest.is_empty() {
                return Err(Error::corrupt("a column of a frame has too few texts"));
            }
            let mut column = ColumnBuilder::new(FieldType::Text, 0);
            column.append_page(split_page(&mut self.rest)?)?;
            self.page = column.finish().as_string::<i32>().clone();
            self.row = 0;
        }
        let row = self.row;
        self.row += 1;
        Ok(self.page.is_valid(row).then(|| self.page.value(row)))
    }

    /// Whether there is no text left.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.row == self.page.len()
    }
}

/// The column of a part that is one page in which all values are the same.
fn constant_of(mut part: &[u8]) -> Result<Option<Column<i64>>> {
    if part.is_empty() {
        return Ok(None);
    }
    let page = split_page(&mut part)?;
    let info = check_page(page)?;
    if !part.is_empty() || info.codec != Codec::Constant || info.nulls > 0 || info.rows == 0 {
        return Ok(None);
    }
    let mut value = [0_i64];
    decode_rows_into(page, 0, &mut value)?;
    Ok(Some(Column::constant(value[0], info.rows)))
}

/// Splits the first page off.
fn split_page<'a>(pages: &mut &'a [u8]) -> Result<&'a [u8]> {
    let split = pages.split_at_checked(4).and_then(|(length, tail)| {
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        tail.split_at_checked(length)
    });
    let (page, rest) = split.ok_or_else(|| Error::corrupt("a column of a frame is cut short"))?;
    *pages = rest;
    Ok(page)
}

/// Splits the last four bytes off as a number.
fn split_u32(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let (head, tail) = bytes.split_last_chunk::<4>()?;
    Some((head, u32::from_le_bytes(*tail)))
}
