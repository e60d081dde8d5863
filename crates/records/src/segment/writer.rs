//! Writes a segment in one pass.

use tidefall_codec::Profile;
use tidefall_ground::frames::{Content, FrameWriter, encode_header, encode_tail, put_pages};
use tidefall_store::ObjectWriter;
use tidefall_types::{Error, Result, TableId};

use super::Description;
use super::index::{Index, ROWS_MAX};
use crate::leaves::Leaves;
use crate::metrics::Metrics;
use crate::order::CELL_ROWS;
use crate::packed::{Layout, Packed};
use crate::region::Region;

/// A cell of packed rows, encoded.
#[derive(Debug)]
pub struct Cell {
    bytes: Vec<u8>,
    lengths: Vec<i64>,
}

/// Encodes a cell of packed rows.
///
/// # Errors
/// `Limit` when a column of it is too long.
pub fn encode_cell(packed: &Packed, cell: usize, profile: Profile) -> Result<Cell> {
    let (first, rows) = (cell * CELL_ROWS, packed.leaves().cell_rows(cell));
    let mut encoded = Cell { bytes: Vec::new(), lengths: Vec::new() };
    for column in packed.columns() {
        let start = encoded.bytes.len();
        put_pages(&*column.slice(first, rows), profile, &mut encoded.bytes)?;
        encoded.lengths.push((encoded.bytes.len() - start) as i64);
    }
    Ok(encoded)
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its rows.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The box that all of its rows are in.
    pub bounds: Region,
}

/// A segment on its way to storage. Dropped before [`SegmentWriter::finish`], it leaves nothing.
#[derive(Debug)]
pub struct SegmentWriter {
    out: Box<dyn ObjectWriter>,
    offset: u64,
    profile: Profile,
    layout: Layout,
    lengths: Vec<i64>,
    /// The leaves and metrics of what was appended.
    leaves: Option<Leaves>,
    metrics: Vec<Metrics>,
}

impl SegmentWriter {
    /// Begins a segment of a table with rows of this layout.
    ///
    /// # Errors
    /// `Io` and `Full` from the store.
    pub fn new(
        mut out: Box<dyn ObjectWriter>,
        table: TableId,
        layout: &Layout,
        profile: Profile,
    ) -> Result<Self> {
        let header = encode_header(Content::Records, table);
        out.append(&header)?;
        Ok(Self {
            out,
            offset: header.len() as u64,
            profile,
            layout: layout.clone(),
            lengths: Vec::new(),
            leaves: None,
            metrics: Vec::new(),
        })
    }

    /// Appends a cell.
    ///
    /// # Errors
    /// `Io` and `Full` from the store; there is no segment then.
    pub fn append(&mut self, cell: Cell) -> Result<()> {
        self.out.append(&cell.bytes)?;
        self.offset += cell.bytes.len() as u64;
        self.lengths.extend(cell.lengths);
        Ok(())
    }

    /// Takes note of packed rows, all of whose cells have been appended. Those before must fill their last cell.
    ///
    /// # Errors
    /// `Limit` for too many rows; there is no segment then.
    pub fn note(&mut self, packed: &Packed) -> Result<()> {
        debug_assert_eq!(*packed.layout().as_ref(), self.layout, "rows of another layout");
        match &mut self.leaves {
            None => {
                self.leaves = Some(packed.leaves().clone());
                self.metrics = packed.metrics().to_vec();
            }
            Some(leaves) => {
                leaves.extend(packed.leaves());
                self.metrics
                    .iter_mut()
                    .zip(packed.metrics())
                    .for_each(|(all, more)| all.extend(more));
            }
        }
        let rows = self.rows() as u64;
        match rows <= ROWS_MAX {
            true => Ok(()),
            false => {
                Err(Error::limit(format!("a segment has {ROWS_MAX} rows at most, not {rows}")))
            }
        }
    }

    /// The rows up to now.
    pub fn rows(&self) -> usize {
        self.leaves.as_ref().map_or(0, Leaves::all_rows)
    }

    /// Writes metrics and index; the segment is durable and readable on return.
    ///
    /// # Errors
    /// `Io` and `Full` from the store, `Limit` for a frame that is too long, `Invalid` without any row; there is no segment then.
    pub fn finish(mut self) -> Result<SegmentSummary> {
        let leaves = self.leaves.take().filter(|leaves| !leaves.is_empty());
        let leaves = leaves.ok_or_else(|| Error::invalid("a segment without rows was written"))?;
        let profile = match self.profile {
            Profile::Fast => Profile::Fast,
            Profile::Medium | Profile::Dense => Profile::Medium,
        };
        let mut frame = FrameWriter::new(profile);
        self.metrics.iter().try_for_each(|metrics| metrics.encode(&mut frame))?;
        let metrics = frame.finish()?;
        let mut frame = FrameWriter::new(profile);
        let rows = leaves.all_rows() as u64;
        let description = Description { layout: self.layout, rows, data_end: self.offset };
        Index::encode(&mut frame, &description, self.lengths, leaves.spans())?;
        let index = frame.finish()?;
        let offset = self.offset + metrics.len() as u64;
        let tail = encode_tail(Content::Records, offset, index.len())?;
        self.out.append(&metrics)?;
        self.out.append(&index)?;
        self.out.append(&tail)?;
        let bytes = self.out.bytes_written();
        self.out.finish()?;
        Ok(SegmentSummary { rows, bytes, bounds: leaves.bounds() })
    }
}
