//! Rows in memory become segments.

use std::sync::Arc;

use tidefall_codec::Profile;
use tidefall_ground::manifest::records::Edit::AddSegment;
use tidefall_ground::manifest::{Edit, Flushed};
use tidefall_ground::options::CascadeReport;
use tidefall_types::Result;

use crate::context::Context;
use crate::install::install;
use crate::merge::Visible;
use crate::read::Place;
use crate::region::Region;
use crate::retention::Old;
use crate::table::{Chunk, Table};
use crate::version::Version;
use crate::write::{Output, write_segments};

/// Writes all rows of a table that are in memory to segments. Whoever calls holds the turn of flushes.
///
/// # Errors
/// Those of the disk; the rows stay in memory then.
pub fn flush(context: &Context, table: &Table) -> Result<CascadeReport> {
    let (chunks, version) = {
        let mut live = table.live();
        let version = table.version();
        live.seal(&version)?;
        (live.take_leaving(), version)
    };
    if chunks.is_empty() {
        return Ok(CascadeReport::default());
    }
    let flushed = flush_chunks(context, table, &chunks, &version);
    if flushed.is_err() {
        table.live().stay();
    }
    flushed
}

fn flush_chunks(
    context: &Context,
    table: &Table,
    chunks: &[Arc<Chunk>],
    version: &Version,
) -> Result<CascadeReport> {
    let upto = chunks.iter().map(|chunk| chunk.last_seq).max().unwrap_or_default();
    let last_delete = version.deletes.last_seq();
    let old = Old::of(&version.schema, context.ground.now_ns());
    let kept = |chunk: &Arc<Chunk>| {
        let (place, hidden) = visible(chunk, version);
        (place, Old::with(hidden, old.as_ref()))
    };
    let places: Vec<Visible> = chunks.iter().map(kept).collect();
    let output = Output { table: table.id, profile: Profile::Fast, last_seq: upto, last_delete };
    let written = context.ground.written();
    let entries = write_segments(context, output, &version.layout, &places, &written)?;
    let came: u64 = chunks.iter().map(|chunk| chunk.packed.rows() as u64).sum();
    let report = report_of(&entries, came);
    let freed_bytes = chunks.iter().map(|chunk| chunk.size_bytes).sum();
    let mut edits: Vec<Edit> =
        entries.into_iter().map(|entry| AddSegment(table.id, entry).into()).collect();
    edits.push(Edit::Flushed(table.id, Flushed::all(upto)));
    install(context, table, written, edits, |live| live.leave())?;
    context.ground.worked.flushed(freed_bytes, report.bytes);
    Ok(report)
}

/// A chunk, and what later deletes hide in it.
pub(crate) fn visible(chunk: &Chunk, version: &Version) -> Visible {
    let bounds: Region = chunk.packed.leaves().bounds();
    let hidden = version.deletes.hiding(chunk.last_seq, &bounds);
    (Place::Memory(Arc::clone(&chunk.packed)), hidden)
}

/// What a step has done that has written these segments of so many rows.
pub(crate) fn report_of(
    entries: &[tidefall_ground::manifest::records::SegmentEntry],
    came: u64,
) -> CascadeReport {
    let rows = entries.iter().map(|entry| entry.rows).sum();
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    CascadeReport { steps: 1, rows, bytes, rows_dropped: came - rows }
}
