//! Long texts: whatever is written, moved and read is bounded by bytes, and nothing is lost or mixed up by that.
//! In tests, which run with assertions, the bounds are a 64th of what they are in earnest: a text may pass each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, StringArray};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::{
    Ack, AggregateRequest, Bin, CascadeRequest, Db, Existing, MEMORY_BYTES_MIN, ReadStats,
    ScanRequest, TableSnapshot, TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    ErrorKind, FieldColumn, FieldId, ManualClock, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, Series,
    SeriesBatch, TagId, TimeRange, WriteBatch,
};

use crate::asking::open;
use crate::history::START_NS;
use crate::{checked, rounds, sensor_tag};

const TABLE: &str = "notes";
const SENSORS: u32 = 3;
/// Bytes of texts in a chunk and in a batch, unless one text alone is longer.
const BOUND_BYTES: usize = 16 << 10;
const TEXT_BYTES_MAX: usize = 50_000;

/// A short text, a long one and a number.
type Values = (Option<String>, Option<String>, Option<i64>);
type Rows = BTreeMap<(u32, i64), Values>;

struct World {
    disk: MemDisk,
    clock: Arc<ManualClock>,
    db: Db,
    rng: SmallRng,
    rows: Rows,
    /// The usual length of long texts.
    usual: usize,
}

/// Rows in the order in which they are written; a sensor may have a time twice.
type Batch = Vec<((u32, i64), Values)>;

fn columns(batch: &[((u32, i64), Values)]) -> Vec<FieldColumn> {
    let column = |name: &str, values: ArrayRef| FieldColumn { name: name.into(), values };
    let rows = || batch.iter().map(|(_, values)| values);
    vec![
        column("short", Arc::new(StringArray::from_iter(rows().map(|row| row.0.as_deref())))),
        column("long", Arc::new(StringArray::from_iter(rows().map(|row| row.1.as_deref())))),
        column("count", Arc::new(Int64Array::from_iter(rows().map(|row| row.2)))),
    ]
}

fn write_batch(batch: &[((u32, i64), Values)]) -> WriteBatch {
    let time = batch.iter().map(|((_, time), _)| *time).collect();
    let tags = vec![sensor_tag(SENSORS, batch.iter().map(|((sensor, _), _)| *sensor).collect())];
    WriteBatch { time, tags, fields: columns(batch) }
}

fn series_batch(batch: &Batch) -> SeriesBatch {
    let mut by_sensor: BTreeMap<u32, Batch> = BTreeMap::new();
    for row in batch {
        by_sensor.entry(row.0.0).or_default().push(row.clone());
    }
    let series = by_sensor.values().map(|rows| Series {
        time: rows.iter().map(|((_, time), _)| *time).collect(),
        fields: columns(rows).into_iter().map(|column| column.values).collect(),
    });
    SeriesBatch {
        tags: vec![sensor_tag(SENSORS, by_sensor.keys().copied().collect())],
        fields: columns(&[]).into_iter().map(|column| column.name).collect(),
        series: series.collect(),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(START_NS)));
        let db = open(disk.clone(), &clock).unwrap();
        let mut rng = SmallRng::seed_from_u64(seed);
        let usual = [40, 1_000, 8_000, TEXT_BYTES_MAX][rng.random_range(0..4)];
        Self { disk, clock, db, rng, rows: Rows::new(), usual }
    }

    fn text(&mut self, length: usize) -> Option<String> {
        if self.rng.random_bool(0.1) {
            return None;
        }
        let length = match self.rng.random_range(0..20) {
            0 => 0,
            1 => self.rng.random_range(0..TEXT_BYTES_MAX),
            _ => self.rng.random_range(0..=length),
        };
        let unit = ["ab", "é", "{\"code\": 7}", "x"][self.rng.random_range(0..4)];
        let mut text = match self.rng.random_bool(0.5) {
            true => unit.repeat(length / unit.len()),
            // Hardly packed.
            false => (0..length).map(|_| self.rng.random_range('0'..'z')).collect(),
        };
        text.push_str(&self.rng.random_range(0..100).to_string());
        Some(text)
    }

    fn time(&mut self) -> i64 {
        let back = match self.rng.random_range(0..10) {
            0..5 => self.rng.random_range(0..2 * 24 * 60),
            5..9 => self.rng.random_range(0..70 * 24 * 60),
            _ => self.rng.random_range(0..900 * 24 * 60),
        };
        START_NS - back * NS_PER_MINUTE
    }

    fn batch(&mut self) -> Batch {
        // About a megabyte at most, which is many times any bound.
        let rows = self.rng.random_range(1..=(1_000_000 / self.usual).clamp(5, 400));
        let first = self.time();
        let step = [1, NS_PER_MINUTE, NS_PER_HOUR][self.rng.random_range(0..3)];
        let is_regular = self.rng.random_bool(0.7);
        (0..rows as i64)
            .map(|row| {
                let time = if is_regular { first + row / 2 * step } else { self.time() };
                let sensor = self.rng.random_range(0..SENSORS);
                let usual = self.usual;
                let values = (self.text(9), self.text(usual), Some(row).filter(|row| row % 7 > 0));
                ((sensor, time), values)
            })
            .collect()
    }

    fn put(&mut self, batch: &Batch) {
        for (key, values) in batch {
            let row = self.rows.entry(*key).or_default();
            row.0 = values.0.clone().or(row.0.take());
            row.1 = values.1.clone().or(row.1.take());
            row.2 = values.2.or(row.2);
        }
    }

    fn step(&mut self) -> String {
        match self.rng.random_range(0..20) {
            0..8 => {
                let batch = self.batch();
                let ack = if self.rng.random_bool(0.6) { Ack::Memory } else { Ack::Durable };
                let existing =
                    if self.rng.random_bool(0.5) { Existing::Count } else { Existing::Replace };
                let unknown = Unknown::Create;
                let options = WriteOptions { ack, unknown, existing, ..WriteOptions::default() };
                let before = self.rows.len();
                let report = self.db.write(TABLE, &write_batch(&batch), &options).unwrap();
                self.put(&batch);
                let replaced = batch.len() - (self.rows.len() - before);
                assert_eq!(report.rows, batch.len());
                assert!(report.replaced.is_none_or(|found| found == replaced as u64));
                format!("{ack:?} write of {} rows", batch.len())
            }
            8..11 => {
                let batch = self.batch();
                self.db.load(TABLE, &series_batch(&batch), Unknown::Create).unwrap();
                self.put(&batch);
                format!("load of {} rows", batch.len())
            }
            11..13 if !self.db.tables().is_empty() => {
                let start = self.time();
                let range = TimeRange::new(start, start + self.rng.random_range(0..3 * NS_PER_DAY));
                self.db.delete(TABLE, &TagFilter::All, range).unwrap();
                self.rows.retain(|(_, time), _| !range.contains(*time));
                format!("delete of {range}")
            }
            13 | 14 => {
                self.db.flush().unwrap();
                "flush".into()
            }
            19 => {
                self.db.close().unwrap();
                self.db = open(self.disk.clone(), &self.clock).unwrap();
                "reopen".into()
            }
            _ => {
                let target =
                    [Target::ByAge, Target::Short, Target::Long][self.rng.random_range(0..3)];
                self.db.cascade(&CascadeRequest { table: None, target }).unwrap();
                format!("cascade {target:?}")
            }
        }
    }

    fn check(&self) {
        if self.db.tables().is_empty() {
            return assert!(self.rows.is_empty());
        }
        let snapshot = self.db.snapshot(TABLE).unwrap();
        let found = scan(&snapshot);
        let same = found.len() == self.rows.len();
        let differs = found.iter().zip(&self.rows).find(|(one, other)| one != other);
        let differs = differs.map(|(found, wanted)| (found.0, wanted.0));
        assert!(same && differs.is_none(), "{} of {}, {differs:?}", found.len(), self.rows.len());
        check_counts(&snapshot, &self.rows);
    }
}

fn sensors_of(snapshot: &TableSnapshot) -> (Vec<u32>, Vec<u32>) {
    let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
    let (names, keys) = snapshot.tag_keys(TagId(0));
    let name = |sensor: &u32| names.value(keys[*sensor as usize] as usize)[1..].parse().unwrap();
    let numbers = sensors.iter().map(name).collect();
    (sensors, numbers)
}

/// All rows; no batch has many long texts.
fn scan(snapshot: &TableSnapshot) -> Rows {
    let (sensors, numbers) = sensors_of(snapshot);
    let number: BTreeMap<u32, u32> = sensors.iter().copied().zip(numbers).collect();
    let fields = vec![FieldId(0), FieldId(1), FieldId(2)];
    let time = TimeRange::ALL;
    let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
    let mut rows = Rows::new();
    for batch in snapshot.scan(&request).unwrap() {
        let batch = batch.unwrap();
        let (short, long) =
            (batch.fields[0].as_string::<i32>(), batch.fields[1].as_string::<i32>());
        let texts = |row: usize| {
            let texts = [short, long].map(|texts| texts.is_valid(row).then(|| texts.value(row)));
            texts.map(|text| text.map(str::to_owned))
        };
        let bytes = |rows: std::ops::Range<usize>| {
            rows.flat_map(texts).flatten().map(|text| text.len()).sum::<usize>()
        };
        let last = batch.rows() - 1;
        assert!(bytes(0..last) <= BOUND_BYTES, "a batch of {} bytes", bytes(0..last + 1));
        let counts = batch.fields[2].as_primitive::<Int64Type>();
        for row in 0..batch.rows() {
            let [short, long] = texts(row);
            let count = counts.is_valid(row).then(|| counts.value(row));
            let key = (number[&batch.sensors[row]], batch.time[row]);
            assert!(rows.insert(key, (short, long, count)).is_none(), "{key:?} came twice");
        }
    }
    rows
}

/// Counts by day and sensor, from block metrics where they are.
fn check_counts(snapshot: &TableSnapshot, rows: &Rows) {
    let (sensors, numbers) = sensors_of(snapshot);
    let bin = Bin { width_ns: NS_PER_DAY, origin_ns: 0 };
    let request = AggregateRequest {
        groups: (0..sensors.len() as u32).collect(),
        group_count: sensors.len() as u32,
        sensors: sensors.into(),
        time: TimeRange::ALL,
        bin: Some(bin),
        fields: vec![FieldId(1), FieldId(2)],
        deviations: true,
        extremes: true,
        ends: true,
    };
    let found = snapshot.aggregate(&request, &Arc::new(ReadStats::default())).unwrap();
    let mut counts: BTreeMap<(u32, i64), (u64, u64, u64)> = BTreeMap::new();
    for ((sensor, time), values) in rows {
        let group = numbers.iter().position(|number| number == sensor).unwrap() as u32;
        let line = counts.entry((group, bin.start_of(*time))).or_default();
        line.0 += 1;
        line.1 += u64::from(values.1.is_some());
        line.2 += u64::from(values.2.is_some());
    }
    let keys = found.group.iter().copied().zip(found.bin_start_ns.iter().copied());
    let lines = found.rows.iter().zip(&found.fields[0].count).zip(&found.fields[1].count);
    let lines = lines.map(|((rows, long), count)| (*rows, *long, *count));
    let found: BTreeMap<(u32, i64), (u64, u64, u64)> = keys.zip(lines).collect();
    assert_eq!(found, counts);
}

#[test]
fn histories_of_long_texts_match_the_model() {
    for seed in 0..rounds(24) {
        let mut world = World::new(seed);
        for step in 0..18 {
            let what = world.step();
            checked(|| world.check(), || format!("seed {seed}, step {step}: {what}"));
        }
        assert_eq!(world.db.verify().unwrap().damages, Vec::new(), "seed {seed}");
    }
}

fn notes(texts: impl Iterator<Item = String>) -> WriteBatch {
    let values: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let time = (0..values.len() as i64).map(|row| START_NS + row).collect();
    let fields = vec![FieldColumn { name: "note".into(), values }];
    WriteBatch { time, tags: Vec::new(), fields }
}

/// What could not be brought back from the log at once is refused, with its size and what may be; the rows are taken
/// from memory, part by part.
#[test]
fn a_write_with_too_many_bytes_of_texts_says_so() {
    let clock = Arc::new(ManualClock::new(START_NS));
    let db = open(MemDisk::new(), &clock).unwrap();
    // They are packed to a thousandth.
    let batch = notes((0..400).map(|row| format!("{row}").repeat(1 << 16)));
    let bytes: usize = (0..400).map(|row| format!("{row}").len() << 16).sum();
    assert!(bytes > MEMORY_BYTES_MIN * 36 / 100);
    let with = |ack| WriteOptions { ack, unknown: Unknown::Create, ..WriteOptions::default() };
    let error = db.write(TABLE, &batch, &with(Ack::Durable)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    let message = error.message();
    assert!(message.contains(&bytes.to_string()) && message.contains("parts"), "{message}");
    assert_eq!(db.write(TABLE, &batch, &with(Ack::Memory)).unwrap().rows, 400);
    assert!(db.stats().kv_bytes < bytes as u64 + (1 << 20));
    db.flush().unwrap();
    assert_eq!(db.inspect().unwrap()[0].models.iter().map(|model| model.rows).sum::<u64>(), 400);
    assert_eq!(db.verify().unwrap().damages, Vec::new());

    // A single text of more than the log takes is no text for a field.
    let batch = notes(["x".repeat((32 << 20) + 1), "short".into()].into_iter());
    let error = db.write(TABLE, &batch, &with(Ack::Memory)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    let message = error.message();
    assert!(message.contains("33554433") && message.contains("33554432"), "{message}");
}
