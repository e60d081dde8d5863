//! Reads of one sensor, without SQL.

use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{Db, DbOptions, TableSnapshot, TagFilter, Unknown};
use tidefall_types::{FieldId, NS_PER_DAY, Result, TimeRange};

use crate::Args;
use crate::report::{Report, fresh};
use crate::workload::{TABLE, Workload, sensor_name, start_of};

/// Reads of which the median is taken.
const READS: usize = 101;

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = fresh(&args.work, "read")?;
    let options = DbOptions { memory_bytes: args.memory << 20, ..DbOptions::default() };
    let db = Db::open(&folder, options)?;
    db.load(TABLE, &Workload::new(args.sensors)?.frame(args.days), Unknown::Create)?;
    let snapshot = db.snapshot(TABLE)?;
    read(args, &snapshot, "read one sensor, one day", 1)?;
    read(args, &snapshot, "read one sensor, all days", args.days)?;
    db.close()
}

fn read(args: &Args, snapshot: &TableSnapshot, bench: &str, days: u32) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(7);
    let mut micros = Vec::with_capacity(READS);
    let mut rows = 0;
    for _ in 0..READS {
        let value = sensor_name(rng.random_range(0..args.sensors));
        let filter = TagFilter::Eq { tag: "sensor".into(), value };
        let first = start_of(rng.random_range(0..=args.days - days));
        let range = TimeRange::new(first, first + i64::from(days) * NS_PER_DAY - 1);
        let start = Instant::now();
        let sensor = snapshot.resolve(&filter)?.min().unwrap_or_default();
        rows = snapshot.read_sensor(sensor, &range, &[FieldId(0)])?.time.len();
        micros.push(start.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    let p90 = micros[READS * 9 / 10];
    Report {
        bench,
        settings: format!("{rows} values from long columns, warm"),
        unit: "us",
        runs: vec![micros[READS / 10], micros[READS / 2], p90],
        more: vec![("values", rows as f64)],
    }
    .print();
    Ok(())
}
