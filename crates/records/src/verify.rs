//! Reads all of a table and checks it.

use tidefall_ground::options::VerifyReport;

use crate::segment;
use crate::table::Table;

/// Reads all that the manifest names of a table. Damage is listed in the report.
pub fn verify(table: &Table, report: &mut VerifyReport) {
    if let Some(damage) = &table.damage {
        report.damages.push(damage.clone());
        return;
    }
    for live in table.version().segments.iter() {
        report.objects += 1;
        segment::verify(table.id, live.entry.rows, &live.segment, report);
    }
}
