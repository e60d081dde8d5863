//! `tidefall inspect`

use tidefall_storage::{SegmentsReport, TableReport};

use crate::args::{DbArgs, Missing};
use crate::output::{Outcome, say};
use crate::size::{show_bytes, show_count, show_number_of};

/// What there is of a table of records.
fn show_records(table: &TableReport, segments: SegmentsReport) -> Outcome {
    say!("{}: records, {} columns, {} deletes pending", table.name, table.fields, table.deletes)?;
    let line = |model: &str, objects: String, rows: u64, bytes: u64| {
        let per_row = if rows == 0 { 0.0 } else { bytes as f64 / rows as f64 };
        say!(
            "  {model:<8} {objects:>7} {:>16} {:>12} {per_row:>10.2}",
            show_count(rows),
            show_bytes(bytes)
        )
    };
    say!("  {:<8} {:>7} {:>16} {:>12} {:>10}", "", "objects", "rows", "bytes", "bytes/row")?;
    line("memory", String::new(), table.rows_in_memory, table.bytes_in_memory)?;
    line("segments", show_count(segments.objects), segments.rows, segments.bytes)?;
    Ok(())
}

pub(crate) fn run(args: DbArgs) -> Outcome {
    let db = args.open_shared(Missing::Refuse)?;
    for table in db.inspect()? {
        if let Some(segments) = table.segments {
            show_records(&table, segments)?;
            continue;
        }
        say!(
            "{}: {} sensors, {} fields, {} deletes pending",
            table.name,
            show_count(u64::from(table.sensors)),
            table.fields,
            table.deletes
        )?;
        say!(
            "  {:<7} {:>8} {:>16} {:>12} {:>10}  time",
            "model",
            "objects",
            "rows",
            "bytes",
            "bytes/row"
        )?;
        say!(
            "  {:<7} {:>8} {:>16} {:>12}",
            "memory",
            "",
            show_count(table.rows_in_memory),
            show_bytes(table.bytes_in_memory)
        )?;
        for model in &table.models {
            let per_row = match model.rows {
                0 => String::new(),
                rows => format!("{:.2}", model.bytes as f64 / rows as f64),
            };
            say!(
                "  {:<7} {:>8} {:>16} {:>12} {:>10}  {}",
                model.model.name(),
                show_count(model.objects),
                show_count(model.rows),
                show_bytes(model.bytes),
                per_row,
                model.time.map_or_else(String::new, |time| time.to_string())
            )?;
        }
    }
    let work = db.work();
    if work.objects_to_compact > 0 {
        say!("to be laid together: {}", show_number_of(work.objects_to_compact, "object"))?;
    }
    if work.replaced_objects > 0 {
        say!(
            "replaced and still on the disk: {}",
            show_number_of(work.replaced_objects, "object")
        )?;
    }
    if let Some(behind) = work.behind {
        say!("the oldest step has been due for {} s", show_count(behind.as_secs()))?;
    }
    if let Some(amplification) = work.amplification() {
        say!("each byte was written {amplification:.1} times since it was opened")?;
    }
    if work.delayed_writes > 0 {
        let (writes, seconds) = (work.delayed_writes, work.delayed.as_secs_f64());
        say!("{} waited {seconds:.1} s together", show_number_of(writes, "write"))?;
    }
    Ok(db.close()?)
}
