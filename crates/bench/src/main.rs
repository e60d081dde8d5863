//! Measures the engine without SQL and without a parser: the papers' sensor workload from columns
//! in the order of arrival, durable and fallen to long columns; then reads of single sensors.
//!
//! `tidefall-bench DIR [days] [memory MiB]` prints one JSON object a line, like the drivers of the
//! other databases in `peers/`.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Float64Array, StringArray};
use arrow_buffer::ScalarBuffer;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};
use tidefall_storage::{
    Ack, CascadeRequest, Db, DbOptions, TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    Error, FieldColumn, FieldId, NS_PER_DAY, NS_PER_MINUTE, Result, TagColumn, TimeRange,
    WriteBatch,
};

const SENSORS: u32 = 500;
const START_NS: i64 = 10_957 * NS_PER_DAY;
const TABLE: &str = "plant";
/// Reads of which the median is taken.
const READS: usize = 51;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let number = |position: usize, default: i64| {
        args.get(position).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let dir = args.get(1).ok_or_else(|| Error::invalid("name a directory for the database"))?;
    let (days, memory) = (number(2, 30), number(3, 512));
    load(Path::new(dir), days, (memory as usize) << 20)?;
    read(Path::new(dir), days)
}

fn load(dir: &Path, days: i64, memory_bytes: usize) -> Result<()> {
    let db = Db::open(dir, DbOptions { memory_bytes, ..DbOptions::default() })?;
    let options =
        WriteOptions { ack: Ack::Memory, unknown: Unknown::Create, ..WriteOptions::default() };
    // One day is drawn once and written for each day, so that drawing is not what is measured;
    // each day is shifted by another number of thousandths, so that no two days are the same.
    let day = draw_day()?;
    let mut seconds = 0.0;
    for number in 0..days {
        for batch in shifted(&day, number) {
            let start = Instant::now();
            db.write(TABLE, &batch, &options)?;
            seconds += start.elapsed().as_secs_f64();
        }
    }
    let start = Instant::now();
    db.flush()?;
    let durable = seconds + start.elapsed().as_secs_f64();
    db.cascade(&CascadeRequest { table: None, target: Target::Long })?;
    let fallen = seconds + start.elapsed().as_secs_f64();
    let rows = (days * i64::from(SENSORS) * 1_440) as f64;
    let bytes: u64 =
        db.inspect()?.iter().flat_map(|table| &table.models).map(|model| model.bytes).sum();
    println!(
        "{{\"bench\":\"load\",\"rows\":{rows},\"durable_rows_per_s\":{:.0},\"long_rows_per_s\":{:.0},\
         \"bytes_per_row\":{:.3}}}",
        rows / durable,
        rows / fallen,
        bytes as f64 / rows
    );
    db.close()
}

fn read(dir: &Path, days: i64) -> Result<()> {
    let db = Db::open(dir, DbOptions::default())?;
    let snapshot = db.snapshot(TABLE)?;
    let mut rng = StdRng::seed_from_u64(7);
    for (name, length) in [("day", 1), ("all", days)] {
        let mut micros = Vec::with_capacity(READS);
        let mut rows = 0;
        for _ in 0..READS {
            let sensor = format!("s{:03}", rng.random_range(0..SENSORS));
            let filter = TagFilter::Eq { tag: "sensor".into(), value: sensor };
            let first = START_NS + rng.random_range(0..=days - length) * NS_PER_DAY;
            let range = TimeRange::new(first, first + length * NS_PER_DAY - 1);
            let start = Instant::now();
            let sensor = snapshot.resolve(&filter)?.min().unwrap_or_default();
            rows = snapshot.read_sensor(sensor, &range, &[FieldId(0)])?.time.len();
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
        micros.sort_by(f64::total_cmp);
        println!(
            "{{\"bench\":\"read one sensor, {name}\",\"rows\":{rows},\"median_us\":{:.0},\
             \"p10_us\":{:.0},\"p90_us\":{:.0}}}",
            micros[READS / 2],
            micros[READS / 10],
            micros[READS * 9 / 10]
        );
    }
    db.close()
}

fn draw_day() -> Result<Vec<f64>> {
    let mut rng = StdRng::seed_from_u64(42);
    let sensors = (0..SENSORS)
        .map(|_| Normal::new(rng.random_range(200.0..400.0), rng.random_range(50.0..70.0)))
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|error| Error::invalid(error.to_string()))?;
    let minutes = 0..1_440;
    Ok(minutes
        .flat_map(|_| {
            sensors
                .iter()
                .map(|s| (Distribution::<f64>::sample(s, &mut rng) * 1e3).round())
                .collect::<Vec<_>>()
        })
        .collect())
}

fn shifted(day: &[f64], number: i64) -> Vec<WriteBatch> {
    const MINUTES: usize = 120;
    let names = StringArray::from_iter_values((0..SENSORS).map(|sensor| format!("s{sensor:03}")));
    let rows = MINUTES * SENSORS as usize;
    let keys: ScalarBuffer<u32> = (0..rows as u32).map(|row| row % SENSORS).collect();
    day.chunks(rows)
        .enumerate()
        .map(|(part, values)| {
            let first = START_NS + number * NS_PER_DAY;
            let first = first + (part * MINUTES) as i64 * NS_PER_MINUTE;
            let time = (0..rows as i64).map(|r| first + r / i64::from(SENSORS) * NS_PER_MINUTE);
            let values = values.iter().map(|value| (value + (number * 7_919 % 1_000) as f64) / 1e3);
            let values: ArrayRef = Arc::new(Float64Array::from_iter_values(values));
            WriteBatch {
                time: time.collect(),
                tags: vec![TagColumn {
                    name: "sensor".into(),
                    values: names.clone(),
                    keys: keys.clone(),
                }],
                fields: vec![FieldColumn { name: "value".into(), values }],
            }
        })
        .collect()
}
