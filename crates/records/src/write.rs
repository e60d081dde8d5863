//! Segments of the rows of several places.

use std::sync::Arc;

use tidefall_codec::Profile;
use tidefall_ground::manifest::records::{RECORDS, SegmentEntry};
use tidefall_ground::parallel::ordered;
use tidefall_ground::written::Written;
use tidefall_store::names;
use tidefall_types::{ObjectId, Result, Seq, TableId};

use crate::context::Context;
use crate::merge::{AtOnce, Visible, merge};
use crate::order::CELL_ROWS;
use crate::packed::{Layout, Packed};
use crate::read::Place;
use crate::segment::{SegmentWriter, encode_cell};

/// Rows after which a segment ends: its index, which is read as a whole, has some hundred kilobytes then. Tests, which run with assertions, have fewer.
pub(crate) const SEGMENT_ROWS_MAX: usize =
    if cfg!(debug_assertions) { 4 * CELL_ROWS } else { 512 * CELL_ROWS };
/// Bytes that are put into order at once at most, whatever the memory is: a column of texts has no room for 2^31.
const AT_ONCE_MAX: usize = 256 << 20;
/// Of the memory budget: rows that are put into order at once. Twice as much is held while they are.
const AT_ONCE_SHARE: f64 = 0.04;

/// What is written: to which table, packed how, up to which write and which delete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) table: TableId,
    pub(crate) profile: Profile,
    pub(crate) last_seq: Seq,
    pub(crate) last_delete: Seq,
}

/// Writes the rows of some places that are not hidden to segments, with these columns.
///
/// # Errors
/// Those of storage; `written` knows what there is of them then.
pub(crate) fn write_segments(
    context: &Context,
    output: Output,
    layout: &Arc<Layout>,
    places: &[Visible],
    written: &Written,
) -> Result<Vec<SegmentEntry>> {
    let mut segments = Segments::new(context, output, layout, written);
    match places {
        // It is in order.
        [(Place::Memory(packed), hidden)]
            if hidden.is_empty()
                && packed.layout() == layout
                && packed.rows() <= SEGMENT_ROWS_MAX =>
        {
            segments.append(packed)?;
        }
        _ => merge(layout, places, at_once(context, layout), |packed| segments.append(&packed))?,
    }
    segments.finish()
}

/// What is put into order at once.
pub(crate) fn at_once(context: &Context, layout: &Layout) -> AtOnce {
    let row_bytes: usize = layout.columns.iter().map(|(_, ty)| ty.width_bytes()).sum();
    let text_bytes = context.ground.memory.share(AT_ONCE_SHARE).min(AT_ONCE_MAX);
    AtOnce { rows: (text_bytes / row_bytes.max(1)).min(SEGMENT_ROWS_MAX), text_bytes }
}

/// Segments that are written one behind the other.
pub(crate) struct Segments<'a> {
    context: &'a Context,
    output: Output,
    layout: &'a Layout,
    written: &'a Written,
    open: Option<(ObjectId, SegmentWriter)>,
    entries: Vec<SegmentEntry>,
}

impl<'a> Segments<'a> {
    pub(crate) fn new(
        context: &'a Context,
        output: Output,
        layout: &'a Layout,
        written: &'a Written,
    ) -> Self {
        Self { context, output, layout, written, open: None, entries: Vec::new() }
    }

    /// Appends packed rows. Where they do not fill their last cell, the segment ends.
    pub(crate) fn append(&mut self, packed: &Packed) -> Result<()> {
        let ground = &self.context.ground;
        let (_, writer) = match &mut self.open {
            Some(open) => open,
            None => {
                let id = ground.next_object_id();
                let name = names::object(id, ground.writer(), RECORDS);
                self.written.note(name.clone());
                let Output { table, profile, .. } = self.output;
                let writer =
                    SegmentWriter::new(ground.io.writer(&name)?, table, self.layout, profile)?;
                self.open.insert((id, writer))
            }
        };
        let cells: Vec<usize> = (0..packed.leaves().cells()).collect();
        let encode = |cell: &usize| encode_cell(packed, *cell, self.output.profile);
        ordered(ground.threads(), &cells, encode, |cell| writer.append(cell))?;
        writer.note(packed)?;
        let is_full = writer.rows() >= SEGMENT_ROWS_MAX || writer.rows() % CELL_ROWS > 0;
        if is_full { self.end() } else { Ok(()) }
    }

    /// What was written.
    pub(crate) fn finish(mut self) -> Result<Vec<SegmentEntry>> {
        self.end()?;
        Ok(self.entries)
    }

    fn end(&mut self) -> Result<()> {
        let Some((id, writer)) = self.open.take() else { return Ok(()) };
        let summary = writer.finish()?;
        let sides = summary.bounds.sides().iter().map(|side| (side.first, side.last));
        self.entries.push(SegmentEntry {
            id,
            writer: self.context.ground.writer(),
            since_ns: self.context.ground.now_ns(),
            last_seq: self.output.last_seq,
            last_delete: self.output.last_delete,
            rows: summary.rows,
            bytes: summary.bytes,
            bounds: sides.collect(),
        });
        Ok(())
    }
}
