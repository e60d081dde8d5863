//! What a table holds, for people.

use tidefall_ground::report::{SegmentsReport, TableReport};

use crate::table::Table;

/// What a table holds: counts from memory and the manifest.
pub fn report(table: &Table) -> TableReport {
    let live = table.live();
    let version = table.version();
    let mut segments = SegmentsReport::default();
    for segment in version.segments.iter() {
        segments.objects += 1;
        segments.rows += segment.entry.rows;
        segments.bytes += segment.entry.bytes;
    }
    TableReport {
        name: version.schema.name.clone(),
        sensors: 0,
        fields: version.schema.fields.len(),
        rows_in_memory: live.rows() as u64,
        bytes_in_memory: live.size_bytes() as u64,
        deletes: version.deletes.len(),
        models: Vec::new(),
        segments: Some(segments),
    }
}
