//! Reads without SQL: one sensor, some side by side, all at one time.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{Ack, Db, DbOptions, TableSnapshot, TagFilter, Unknown, WriteOptions};
use tidefall_types::{FieldId, NS_PER_DAY, NS_PER_MINUTE, Result, TimeRange};

use crate::Args;
use tidefall_bench::report::{Report, fresh};
use tidefall_bench::workload::{MINUTES_PER_DAY, SEED, TABLE, Workload, sensor_name, start_of};

/// Reads of which the median is taken.
const READS: usize = 101;
const VALUE: FieldId = FieldId(0);

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = fresh(&args.work, "read")?;
    let options = DbOptions { memory_bytes: args.memory << 20, ..DbOptions::default() };
    let db = Db::open(&folder, options.clone())?;
    let workload = Workload::new(args.sensors, SEED)?;
    db.load(TABLE, &workload.frame(args.days), Unknown::Create)?;
    let snapshot = db.snapshot(TABLE)?;
    read_one(args, &snapshot, "read one sensor, one day", 1)?;
    read_one(args, &snapshot, "read one sensor, all days", args.days)?;
    read_frame(args, &snapshot, "read a frame of 10 sensors, one day", 1)?;
    read_frame(args, &snapshot, "read a frame of 10 sensors, all days", args.days)?;
    read_points(args, &snapshot, "long columns")?;
    db.close()?;

    let db = Db::open(fresh(&args.work, "read")?, options)?;
    let write = WriteOptions { ack: Ack::Memory, unknown: Unknown::Create, ..Default::default() };
    for batch in workload.arrivals(0) {
        db.write(TABLE, &batch, &write)?;
    }
    read_points(args, &db.snapshot(TABLE)?, "the key-value model, a day in memory")?;
    db.close()
}

fn read_one(args: &Args, snapshot: &TableSnapshot, bench: &str, days: u32) -> Result<()> {
    time(bench, "long columns", |rng| {
        let value = sensor_name(rng.random_range(0..args.sensors));
        let filter = TagFilter::Eq { tag: "sensor".into(), value };
        let range = days_from(rng.random_range(0..=args.days - days), days);
        let start = Instant::now();
        let sensor = snapshot.resolve(&filter)?.min().unwrap_or_default();
        let values = snapshot.read_sensor(sensor, &range, &[VALUE])?.time.len();
        Ok((start.elapsed(), values))
    })
}

fn read_frame(args: &Args, snapshot: &TableSnapshot, bench: &str, days: u32) -> Result<()> {
    const WIDTH: u32 = 10;
    time(bench, "long columns", |rng| {
        let first = rng.random_range(0..=args.sensors - WIDTH);
        let sensors: Vec<u32> = (first..first + WIDTH).collect();
        let range = days_from(rng.random_range(0..=args.days - days), days);
        let start = Instant::now();
        let values = snapshot.read_frame::<f64>(&sensors, &range, VALUE)?.values.len();
        Ok((start.elapsed(), values))
    })
}

fn read_points(args: &Args, snapshot: &TableSnapshot, place: &str) -> Result<()> {
    let sensors: Vec<u32> = (0..args.sensors).collect();
    time("read all sensors at one minute", place, |rng| {
        let minute = start_of(0) + rng.random_range(0..MINUTES_PER_DAY as i64) * NS_PER_MINUTE;
        let start = Instant::now();
        let values = snapshot.at(&sensors, minute, VALUE)?.sensors.len();
        Ok((start.elapsed(), values))
    })?;
    time("read the latest value of all sensors", place, |_| {
        let start = Instant::now();
        let values = snapshot.latest(&sensors, VALUE)?.sensors.len();
        Ok((start.elapsed(), values))
    })
}

fn days_from(day: u32, days: u32) -> TimeRange {
    let first = start_of(day);
    TimeRange::new(first, first + i64::from(days) * NS_PER_DAY - 1)
}

/// Times some reads, each of which says how long it took and how many values it read.
fn time(
    bench: &str,
    place: &str,
    read: impl Fn(&mut StdRng) -> Result<(Duration, usize)>,
) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(7);
    let mut micros = Vec::with_capacity(READS);
    let mut values = 0;
    for _ in 0..READS {
        let (took, found) = read(&mut rng)?;
        values = found;
        micros.push(took.as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    Report {
        bench: bench.into(),
        settings: format!("{values} values from {place}, warm"),
        unit: "us",
        runs: vec![micros[READS / 10], micros[READS / 2], micros[READS * 9 / 10]],
        more: vec![("values", values as f64)],
    }
    .print();
    Ok(())
}
