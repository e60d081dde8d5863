//! The most memory that an import and its cascade take.

use std::time::Instant;

use tidefall_storage::{Ack, CascadeRequest, Db, DbOptions, Target, Unknown, WriteOptions};
use tidefall_types::{Error, Result};

use crate::Args;
use tidefall_bench::report::{Report, fresh};
use tidefall_bench::workload::{MINUTES_PER_DAY, SEED, TABLE, Workload};

/// Imports day after day and moves all of it to long columns.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = fresh(&args.work, "memory")?;
    let options = DbOptions { memory_bytes: args.memory << 20, ..DbOptions::default() };
    let workload = Workload::new(args.sensors, SEED)?;
    drop(workload.arrivals(0).next());
    let before = peak_mib()?;
    let start = Instant::now();
    let db = Db::open(&folder, options)?;
    let write = WriteOptions { ack: Ack::Memory, unknown: Unknown::Create, ..Default::default() };
    for day in 0..args.days {
        for batch in workload.arrivals(day) {
            db.write(TABLE, &batch, &write)?;
        }
    }
    db.flush()?;
    let imported = peak_mib()?;
    db.cascade(&CascadeRequest { table: None, target: Target::Long })?;
    db.close()?;
    let rows = f64::from(args.sensors * args.days) * MINUTES_PER_DAY as f64;
    Report {
        bench: "peak memory of an import and its cascade".into(),
        settings: format!("budget {} MiB, {rows} rows", args.memory),
        unit: "MiB",
        runs: vec![peak_mib()?],
        more: vec![
            ("rows", rows),
            ("of_the_workload_mib", before),
            ("after_import_mib", imported),
            ("rows_per_s", rows / start.elapsed().as_secs_f64()),
        ],
    }
    .print();
    Ok(())
}

/// The most memory that this process had so far.
fn peak_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| Error::io("/proc/self/status", &error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    Ok(kib.ok_or_else(|| Error::unsupported("the kernel does not tell the peak memory"))? / 1024.0)
}
