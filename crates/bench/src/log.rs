//! How fast a database comes back after a crash.

use std::process::Command;
use std::time::Instant;

use tidefall_storage::{Ack, Db, DbOptions, Unknown, WriteOptions};
use tidefall_types::{Error, Result};

use crate::Args;
use tidefall_bench::report::{Report, fresh};
use tidefall_bench::workload::{SEED, TABLE, Workload};

/// Days that are in the log: they must fit into the memory of the key-value model.
const DAYS: u32 = 3;

/// Kills a process whose log is full, then times the opening of its database.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut rates = Vec::new();
    for _ in 0..=args.runs {
        let folder = fresh(&args.work, "log")?;
        let program = std::env::current_exe().map_err(|error| Error::io("this program", &error))?;
        let status = Command::new(program)
            .args(["fill-log", "--sensors", &args.sensors.to_string()])
            .args(["--memory", &args.memory.to_string(), "--work"])
            .arg(&folder)
            .status()
            .map_err(|error| Error::io("starting the process that dies", &error))?;
        if status.success() {
            return Err(Error::invalid("the process that fills the log did not die"));
        }
        let start = Instant::now();
        let db = Db::open(&folder, options(args))?;
        let seconds = start.elapsed().as_secs_f64();
        let rows: u64 = db.inspect()?.iter().map(|table| table.rows_in_memory).sum();
        rates.push(rows as f64 / seconds);
        db.close()?;
    }
    let rows = f64::from(args.sensors * DAYS) * 1_440.0;
    Report {
        bench: "recovery from the log".into(),
        settings: format!("{rows} rows in the log, kill -9, open"),
        unit: "rows/s",
        runs: rates.split_off(1),
        more: vec![("rows", rows)],
    }
    .print();
    Ok(())
}

/// Writes durable rows and dies.
pub(crate) fn fill(args: &Args) -> Result<()> {
    let db = Db::open(&args.work, options(args))?;
    let workload = Workload::new(args.sensors, SEED)?;
    let write = WriteOptions { ack: Ack::Durable, unknown: Unknown::Create, ..Default::default() };
    for batch in (0..DAYS).flat_map(|day| workload.arrivals(day)) {
        db.write(TABLE, &batch, &write)?;
    }
    std::process::abort()
}

fn options(args: &Args) -> DbOptions {
    DbOptions { memory_bytes: args.memory << 20, ..DbOptions::default() }
}
