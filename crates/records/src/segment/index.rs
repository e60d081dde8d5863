//! The index of a segment: where columns of cells lie, and what leaves span.

use std::ops::Range;
use std::sync::Arc;

use tidefall_ground::cache::Weight;
use tidefall_ground::frames::{FrameReader, FrameWriter, HEADER_BYTES};
use tidefall_types::{Error, Result, TableId};

use super::Description;
use crate::leaves::{Leaves, Spans};
use crate::packed::Layout;

/// Rows of a segment at most: places of rows and of columns of cells have 32 bits.
pub(super) const ROWS_MAX: u64 = 1 << 25;

/// What is known of a segment without its rows.
#[derive(Debug)]
pub struct Index {
    pub(super) table: TableId,
    /// Its columns.
    pub layout: Arc<Layout>,
    /// Its leaves.
    pub leaves: Leaves,
    /// Where each column of each cell begins, cell by cell, and where the last one ends.
    starts: Vec<u64>,
    /// The bytes of its metrics.
    metrics: Range<u64>,
}

impl Index {
    /// The bytes of a column of a cell.
    pub fn column(&self, cell: usize, place: usize) -> Range<u64> {
        let at = self.part(cell, place) as usize;
        self.starts[at]..self.starts[at + 1]
    }

    /// The bytes of its metrics.
    pub fn metrics(&self) -> Range<u64> {
        self.metrics.clone()
    }

    /// The number of a column of a cell among all.
    pub(super) fn part(&self, cell: usize, place: usize) -> u32 {
        (cell * self.layout.columns.len() + place) as u32
    }

    /// Puts all but the table and the metrics into a frame.
    pub(super) fn encode(
        frame: &mut FrameWriter,
        description: &Description,
        lengths: Vec<i64>,
        spans: &[Spans],
    ) -> Result<()> {
        let json = serde_json::to_vec(description)
            .map_err(|error| Error::invalid(format!("a segment's description: {error}")))?;
        frame.put_bytes(&json)?;
        frame.put_i64s(lengths)?;
        for Spans { first, last } in spans {
            frame.put_i64s(first.clone())?;
            frame.put_i64s(last.clone())?;
        }
        Ok(())
    }

    /// The index of a segment of a table, which begins at `offset`.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged.
    pub fn decode(table: TableId, frame: &[u8], offset: u64) -> Result<Self> {
        let mut frame = FrameReader::new(frame)?;
        let description: Description = serde_json::from_slice(frame.take_bytes()?)
            .map_err(|error| Error::corrupt(format!("its description: {error}")))?;
        let Description { layout, rows, data_end } = description;
        layout.check()?;
        if !(1..=ROWS_MAX).contains(&rows) {
            return Err(Error::corrupt(format!("it cannot have {rows} rows")));
        }
        let lengths = frame.take_i64s()?;
        let spans = |_: &usize| Ok(Spans { first: frame.take_i64s()?, last: frame.take_i64s()? });
        let spans = layout.dimensions.iter().map(spans).collect::<Result<Vec<_>>>()?;
        let leaves = Leaves::from_spans(rows as usize, spans)
            .ok_or_else(|| Error::corrupt("its leaves do not fit its rows"))?;
        if lengths.len() != leaves.cells() * layout.columns.len() {
            return Err(Error::corrupt("its cells have another number of columns"));
        }
        let mut starts = vec![HEADER_BYTES as u64];
        for length in lengths {
            let start = *starts.last().unwrap_or(&0);
            let end = u64::try_from(length).ok().and_then(|length| start.checked_add(length));
            starts.push(
                end.ok_or_else(|| Error::corrupt("a column of a cell has no possible length"))?,
            );
        }
        if starts.last() != Some(&data_end) || data_end > offset {
            return Err(Error::corrupt("its cells do not end where they should"));
        }
        Ok(Self { table, layout: Arc::new(layout), leaves, starts, metrics: data_end..offset })
    }
}

impl Weight for Index {
    fn weight_bytes(&self) -> usize {
        let spans = self.leaves.len() * self.layout.dimensions.len() * 2;
        (self.starts.len() + spans) * size_of::<u64>() + size_of::<Self>()
    }
}
