//! Bulk loads. All data is in memory before the clock starts; it stops when everything is durable.

use std::path::Path;
use std::time::Instant;

use tidefall_storage::{Ack, CascadeRequest, Db, DbOptions, Target, Unknown, WriteOptions};
use tidefall_types::{Result, SeriesBatch, WriteBatch};

use crate::Args;
use tidefall_bench::report::{Report, fresh};
use tidefall_bench::workload::{MINUTES_PER_DAY, SEED, TABLE, Workload};

pub(crate) fn rows(args: &Args) -> Result<()> {
    let workload = Workload::new(args.sensors, SEED)?;
    let arrivals: Vec<WriteBatch> = (0..args.days).flat_map(|day| workload.arrivals(day)).collect();
    let mut durable = Vec::new();
    let moved = measure(args, "load from Arrow, sorted", |db| {
        let start = Instant::now();
        load_arrivals(db, &arrivals)?;
        durable.push(rows_of(args) / start.elapsed().as_secs_f64());
        db.cascade(&CascadeRequest { table: None, target: Target::Long }).map(drop)
    })?;
    moved.print();
    Report {
        bench: "load from Arrow, durable".into(),
        settings: format!("{} MiB", args.memory),
        unit: "rows/s",
        runs: durable.split_off(1),
        more: Vec::new(),
    }
    .print();
    Ok(())
}

pub(crate) fn columns(args: &Args) -> Result<()> {
    let frame = Workload::new(args.sensors, SEED)?.frame(args.days);
    measure(args, "load from a wide frame", |db| {
        db.load(TABLE, &frame, Unknown::Create).map(drop)
    })?
    .print();
    measure(args, "load from columns, a symbol a sensor", |db| {
        for sensor in 0..frame.series.len() {
            db.load(TABLE, &one_of(&frame, sensor), Unknown::Create)?;
        }
        Ok(())
    })?
    .print();
    Ok(())
}

fn rows_of(args: &Args) -> f64 {
    f64::from(args.sensors * args.days) * MINUTES_PER_DAY as f64
}

fn load_arrivals(db: &Db, arrivals: &[WriteBatch]) -> Result<()> {
    let options =
        WriteOptions { ack: Ack::Memory, unknown: Unknown::Create, ..WriteOptions::default() };
    for batch in arrivals {
        db.write(TABLE, batch, &options)?;
    }
    db.flush().map(drop)
}

fn one_of(frame: &SeriesBatch, sensor: usize) -> SeriesBatch {
    let mut tags = frame.tags.clone();
    tags.iter_mut().for_each(|tag| tag.keys = tag.keys.slice(sensor, 1));
    SeriesBatch { tags, fields: frame.fields.clone(), series: vec![frame.series[sensor].clone()] }
}

/// Times an action on a fresh database, from opening to closing it.
fn measure(args: &Args, bench: &str, mut action: impl FnMut(&Db) -> Result<()>) -> Result<Report> {
    let rows = rows_of(args);
    let mut rates = Vec::new();
    let mut bytes = 0;
    for _ in 0..=args.runs {
        let folder = fresh(&args.work, "load")?;
        let start = Instant::now();
        bytes = timed(&folder, args, &mut action)?;
        rates.push(rows / start.elapsed().as_secs_f64());
    }
    Ok(Report {
        bench: bench.into(),
        settings: format!("{} MiB, fsync, in long columns at the end", args.memory),
        unit: "rows/s",
        runs: rates.split_off(1),
        more: vec![("rows", rows), ("bytes_per_reading", bytes as f64 / rows)],
    })
}

fn timed(folder: &Path, args: &Args, action: impl FnOnce(&Db) -> Result<()>) -> Result<u64> {
    let options = DbOptions { memory_bytes: args.memory << 20, ..DbOptions::default() };
    let db = Db::open(folder, options)?;
    action(&db)?;
    let tables = db.inspect()?;
    let bytes = tables.iter().flat_map(|table| &table.models).map(|model| model.bytes).sum();
    db.close()?;
    Ok(bytes)
}
