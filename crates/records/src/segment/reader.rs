//! Reads segments: index, metrics and columns of cells, through caches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use tidefall_ground::cache::{Cache, Weight};
use tidefall_ground::frames::{
    Content, FrameReader, HEADER_BYTES, TAIL_BYTES, decode_header, decode_tail, take_pages,
};
use tidefall_store::{ObjectIo, check_size, of_needed_object};
use tidefall_types::{Error, ObjectId, Result, TableId};

use super::index::Index;
use crate::metrics::Metrics;

/// Bytes read from the end of a segment in the hope that the index is among them.
const INDEX_GUESS_BYTES: u64 = 64 << 10;

/// The caches that all segments of a database share.
#[derive(Debug)]
pub struct Caches {
    indexes: Cache<Index>,
    metrics: Cache<OfLeaves>,
    columns: Cache<OfCell>,
}

impl Caches {
    /// Caches that together keep to `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self {
            indexes: Cache::new(bytes / 8),
            metrics: Cache::new(bytes / 8),
            columns: Cache::new(bytes / 4 * 3),
        }
    }

    /// Forgets objects that nobody reads any more.
    pub fn forget(&self, is_gone: impl Fn(ObjectId) -> bool + Copy) {
        self.indexes.forget(is_gone);
        self.metrics.forget(is_gone);
        self.columns.forget(is_gone);
    }
}

/// The metrics of a segment, column by column.
#[derive(Debug)]
struct OfLeaves(Vec<Metrics>);

impl Weight for OfLeaves {
    fn weight_bytes(&self) -> usize {
        self.0.iter().map(|metrics| metrics.size_bytes() + size_of::<Metrics>()).sum()
    }
}

/// A column of a cell.
#[derive(Debug)]
struct OfCell(ArrayRef);

impl Weight for OfCell {
    fn weight_bytes(&self) -> usize {
        self.0.get_array_memory_size()
    }
}

/// A segment that can be read. Cheap to clone; nothing is read before it is asked for.
#[derive(Debug, Clone)]
pub struct Segment {
    io: Arc<dyn ObjectIo>,
    caches: Arc<Caches>,
    id: ObjectId,
    name: Arc<str>,
    bytes: u64,
}

impl Segment {
    /// A segment of so many bytes under a name.
    pub fn new(
        io: Arc<dyn ObjectIo>,
        caches: Arc<Caches>,
        id: ObjectId,
        name: Arc<str>,
        bytes: u64,
    ) -> Self {
        Self { io, caches, id, name, bytes }
    }

    /// The name of its object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    ///
    /// # Errors
    /// `NotFound`, `Io` and `Corrupt` from storage.
    pub fn index(&self) -> Result<Arc<Index>> {
        self.caches.indexes.get(self.id, 0, || self.read_index())
    }

    /// Runs something on the metrics of its columns, in the order of the layout.
    ///
    /// # Errors
    /// As [`Segment::index`].
    pub fn with_metrics<T>(&self, index: &Index, run: impl FnOnce(&[Metrics]) -> T) -> Result<T> {
        let metrics =
            self.caches.metrics.get(self.id, 0, || self.read_metrics(index).map(OfLeaves))?;
        Ok(run(&metrics.0))
    }

    /// A column of a cell.
    ///
    /// # Errors
    /// As [`Segment::index`].
    pub fn column(&self, index: &Index, cell: usize, place: usize) -> Result<ArrayRef> {
        let read = || self.read_column(index, cell, place).map(OfCell);
        let column = self.caches.columns.get(self.id, index.part(cell, place), read)?;
        Ok(Arc::clone(&column.0))
    }

    /// As [`Segment::column`], past the cache.
    pub(super) fn read_column(&self, index: &Index, cell: usize, place: usize) -> Result<ArrayRef> {
        let range = index.column(cell, place);
        let start = range.start;
        let rows = index.leaves.cell_rows(cell);
        let is_dimension = index.layout.dimensions.contains(&place);
        let column = self.read(range).and_then(|pages| {
            let column = take_pages(&pages, index.layout.columns[place].1)?;
            if column.len() != rows {
                return Err(Error::corrupt(format!("it has {} rows, not {rows}", column.len())));
            }
            match is_dimension && column.null_count() > 0 {
                false => Ok(column),
                true => Err(Error::corrupt("a dimension has a null")),
            }
        });
        column.map_err(|error| self.locate(start, error))
    }

    /// As [`Segment::with_metrics`], past the cache.
    pub(super) fn read_metrics(&self, index: &Index) -> Result<Vec<Metrics>> {
        let Range { start, end } = index.metrics();
        let frame = self.read(start..end).map_err(|error| self.locate(start, error))?;
        let decode = || -> Result<Vec<Metrics>> {
            let mut frame = FrameReader::new(&frame)?;
            let columns = index.layout.columns.iter();
            columns.map(|(_, ty)| Metrics::decode(*ty, &index.leaves, &mut frame)).collect()
        };
        decode().map_err(|error| self.locate(start, error))
    }

    /// Checks that the object has as many bytes as the manifest says.
    ///
    /// # Errors
    /// As [`tidefall_store::check_size`].
    pub fn check_size(&self) -> Result<()> {
        check_size(&*self.io, &self.name, self.bytes)
    }

    /// `error` with the name of this segment and the offset in front.
    pub(super) fn locate(&self, offset: u64, error: Error) -> Error {
        error.context(format_args!("{} at byte {offset}", self.name))
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        if range.start > range.end || range.end > self.bytes {
            return Err(Error::corrupt("it reaches over the end of the segment"));
        }
        let read = self.io.read_range(&self.name, range);
        read.map_err(|error| of_needed_object(&self.name, error))
    }

    fn read_index(&self) -> Result<Index> {
        let end_offset = self.bytes.saturating_sub(INDEX_GUESS_BYTES);
        let end = self.read(end_offset..self.bytes)?;
        let damaged = |why: &str| self.locate(self.bytes, Error::corrupt(why));
        let (rest, tail) = end
            .split_last_chunk::<TAIL_BYTES>()
            .ok_or_else(|| damaged("the segment is too short to be one"))?;
        // A small object has been read as a whole.
        let table = match end.first_chunk().filter(|_| end_offset == 0) {
            Some(header) => self.decode_header(header)?,
            None => {
                let mut header = [0; HEADER_BYTES];
                let read = self.io.read_into(&self.name, 0, &mut header);
                read.map_err(|error| of_needed_object(&self.name, error))?;
                self.decode_header(&header)?
            }
        };
        let (offset, bytes) =
            decode_tail(Content::Records, tail).ok_or_else(|| damaged("its tail is damaged"))?;
        if offset.checked_add(bytes) != self.bytes.checked_sub(TAIL_BYTES as u64) {
            return Err(damaged("its tail does not fit its length"));
        }
        let decoded = match offset.checked_sub(end_offset) {
            Some(start) => Index::decode(table, &rest[start as usize..], offset),
            None => Index::decode(table, &self.read(offset..offset + bytes)?, offset),
        };
        decoded.map_err(|error| self.locate(offset, error))
    }

    fn decode_header(&self, header: &[u8; HEADER_BYTES]) -> Result<TableId> {
        decode_header(Content::Records, header).map_err(|error| error.context(&self.name))
    }
}
