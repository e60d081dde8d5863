//! Sustained load: writers that send as fast as they are taken, for minutes, beside a reader who asks all the while.
//!
//! What is looked for are not averages but what changes with time: whether the last minute takes as much as the first, the
//! longest wait of a write, and how run files, bytes on the disk and the times of queries grow.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{Float64Array, StringArray};
use arrow_buffer::ScalarBuffer;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{
    Ack, AggregateRequest, Db, DbOptions, Model, ReadStats, Unknown, WriteOptions,
};
use tidefall_types::{
    Error, FieldColumn, FieldId, NS_PER_DAY, NS_PER_MINUTE, NS_PER_SECOND, Result, TagColumn,
    TimeRange, WriteBatch,
};

use crate::report::{Report, fresh};
use crate::workload::{SEED, TABLE, sensor_name};

/// What to measure.
#[derive(Debug, Clone)]
pub struct SustainedOptions {
    /// Sensors; each writer has an equal share of them.
    pub sensors: u32,
    /// Writers that send at once.
    pub writers: u32,
    /// The part of rows that is late, by up to a week.
    pub late: f64,
    /// When a write is acknowledged.
    pub ack: Ack,
    /// How long they write.
    pub seconds: u64,
    /// The memory budget of the database in MiB.
    pub memory_mib: usize,
    /// Scratch folder; it is emptied.
    pub work: PathBuf,
    /// Where a line of figures is written for each second, as CSV.
    pub timeline: Option<PathBuf>,
}

/// Rows of one write.
const PIECE_ROWS: usize = 100_000;
/// Readings that all sensors make together in a second of the day that they tell of.
const RATE: i64 = 100_000;
/// Pieces' worth of values, which are written again and again.
const VALUES: usize = 16 * PIECE_ROWS + 7;
/// The first and the last of so many seconds are compared.
const SPAN_SECONDS: usize = 60;
const VALUE: FieldId = FieldId(0);

/// Measures it, and hands over each figure.
///
/// # Errors
/// Those of the database; `Corrupt` when a query does not count what was written.
pub fn run(options: &SustainedOptions, report: &mut dyn FnMut(Report)) -> Result<()> {
    if options.writers == 0 || options.sensors < options.writers {
        return Err(Error::invalid("there must be a writer, and at least one sensor for each"));
    }
    if !(0.0..=1.0).contains(&options.late) {
        return Err(Error::invalid("the part of late rows must lie between 0 and 1"));
    }
    let folder = fresh(&options.work, "sustained")?;
    let memory_bytes = options.memory_mib << 20;
    let db = Db::open(&folder, DbOptions { memory_bytes, ..DbOptions::default() })?;
    let load = Load::new(options, db.options().clock.now_ns());
    let start = Instant::now();
    let seconds = std::thread::scope(|scope| {
        let (db, load) = (&db, &load);
        let writing: Vec<_> = (0..options.writers)
            .map(|writer| scope.spawn(move || load.write(db, options, writer)))
            .collect();
        let seen = load.watch(db, &folder, options, start);
        load.is_over.store(true, Ordering::Relaxed);
        for writer in writing {
            writer.join().map_err(|_| Error::closed("a writer panicked"))??;
        }
        seen
    })?;
    db.close()?;
    Summary { options, seconds: &seconds }.report(report);
    Ok(())
}

/// What writers and the watcher share.
struct Load {
    /// Midnight: the time of the first readings.
    start_ns: i64,
    /// From one reading of a sensor to its next.
    step_ns: i64,
    values: Vec<f64>,
    is_over: AtomicBool,
    /// Rows that were handed over, and rows that were acknowledged.
    sent: AtomicU64,
    acknowledged: AtomicU64,
    /// How many steps each writer has come.
    steps: Vec<AtomicU64>,
    /// The milliseconds that each write since the last look has waited.
    waits: Mutex<Vec<f64>>,
}

/// What was seen in a second.
#[derive(Debug, Clone, Default)]
struct Second {
    at: f64,
    rows_per_s: f64,
    waits: Vec<f64>,
    run_files: usize,
    objects: usize,
    live_mib: f64,
    disk_mib: f64,
    resident_mib: f64,
    count_max_ms: f64,
    last_minutes_ms: f64,
}

impl Load {
    fn new(options: &SustainedOptions, now_ns: i64) -> Self {
        let mut rng = SmallRng::seed_from_u64(SEED);
        let value = |_| f64::from(rng.random_range(200_000..400_000)) / 1e3;
        Self {
            start_ns: now_ns.div_euclid(NS_PER_DAY) * NS_PER_DAY,
            step_ns: i64::from(options.sensors) * NS_PER_SECOND / RATE,
            values: (0..VALUES).map(value).collect(),
            is_over: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            steps: (0..options.writers).map(|_| AtomicU64::new(0)).collect(),
            waits: Mutex::default(),
        }
    }

    /// Writes the readings of a share of the sensors, step by step, until it is over.
    fn write(&self, db: &Db, options: &SustainedOptions, writer: u32) -> Result<()> {
        let share = options.sensors / options.writers;
        let names = (0..share).map(|sensor| sensor_name(writer * share + sensor));
        let names = StringArray::from_iter_values(names);
        let share = share as usize;
        let steps = (PIECE_ROWS / share).max(1);
        let rows = steps * share;
        let keys: ScalarBuffer<u32> = (0..rows).map(|row| (row % share) as u32).collect();
        let write =
            WriteOptions { ack: options.ack, unknown: Unknown::Create, ..Default::default() };
        let mut rng = SmallRng::seed_from_u64(SEED + 1 + u64::from(writer));
        let week = 7 * NS_PER_DAY / self.step_ns;
        for first in (0_u64..).step_by(steps) {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let mut time: Vec<i64> = Vec::with_capacity(rows);
            for step in 0..steps as i64 {
                let at_ns = self.start_ns + (first as i64 + step) * self.step_ns;
                time.extend(std::iter::repeat_n(at_ns, share));
            }
            for _ in 0..(rows as f64 * options.late) as usize {
                let row = rng.random_range(0..rows);
                // Between two of its sensor's other readings: it is not sent again.
                let back_ns = rng.random_range(1..self.step_ns.max(2));
                time[row] -= rng.random_range(0..week) * self.step_ns + back_ns;
            }
            let offset = rng.random_range(0..VALUES - rows);
            let values = self.values[offset..offset + rows].to_vec();
            let batch = WriteBatch {
                time: time.into(),
                tags: vec![TagColumn {
                    name: "sensor".into(),
                    values: names.clone(),
                    keys: keys.clone(),
                }],
                fields: vec![FieldColumn {
                    name: "value".into(),
                    values: Arc::new(Float64Array::from(values)),
                }],
            };
            self.sent.fetch_add(rows as u64, Ordering::Relaxed);
            let start = Instant::now();
            db.write(TABLE, &batch, &write)?;
            let waited = start.elapsed().as_secs_f64() * 1e3;
            self.acknowledged.fetch_add(rows as u64, Ordering::Relaxed);
            self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(waited);
            self.steps[writer as usize].store(first + steps as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Looks at the database once a second.
    fn watch(
        &self,
        db: &Db,
        folder: &Path,
        options: &SustainedOptions,
        start: Instant,
    ) -> Result<Vec<Second>> {
        let mut timeline = Timeline::create(options.timeline.as_deref())?;
        let mut seconds = Vec::with_capacity(options.seconds as usize);
        let mut rng = SmallRng::seed_from_u64(SEED);
        let (mut before, mut before_at) = (0, 0.0);
        for second in 1..=options.seconds {
            let next = start + Duration::from_secs(second);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let at = start.elapsed().as_secs_f64();
            let written = self.acknowledged.load(Ordering::Relaxed);
            if written == 0 {
                continue;
            }
            let mut seen = Second {
                at,
                rows_per_s: (written - before) as f64 / (at - before_at),
                waits: std::mem::take(
                    &mut *self.waits.lock().unwrap_or_else(PoisonError::into_inner),
                ),
                resident_mib: resident_mib()?,
                disk_mib: bytes_in(folder) as f64 / f64::from(1 << 20),
                ..Second::default()
            };
            (before, before_at) = (written, at);
            for table in db.inspect()? {
                for model in table.models {
                    seen.objects += model.objects as usize;
                    seen.live_mib += model.bytes as f64 / f64::from(1 << 20);
                    if model.model == Model::Kv {
                        seen.run_files = model.objects as usize;
                    }
                }
            }
            seen.count_max_ms = self.count_max(db, options)?;
            if let Some(last_ns) = self.last_ns() {
                let sensor = rng.random_range(0..options.sensors);
                seen.last_minutes_ms = self.last_minutes(db, sensor, last_ns)?;
            }
            timeline.line(&seen)?;
            seconds.push(seen);
        }
        Ok(seconds)
    }

    /// The milliseconds of the count and the greatest value of everything.
    fn count_max(&self, db: &Db, options: &SustainedOptions) -> Result<f64> {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        let start = Instant::now();
        let snapshot = db.snapshot(TABLE)?;
        let sensors: Vec<u32> = (0..snapshot.sensor_count()).collect();
        let request = AggregateRequest {
            sensors: sensors.into(),
            groups: Vec::new(),
            group_count: 1,
            time: TimeRange::ALL,
            bin: None,
            fields: vec![VALUE],
            deviations: false,
            extremes: true,
            ends: false,
        };
        let found = snapshot.aggregate(&request, &ReadStats::default().into())?;
        let millis = start.elapsed().as_secs_f64() * 1e3;
        let sent = self.sent.load(Ordering::Relaxed);
        let counted: u64 = found.rows.iter().sum();
        // Two late rows of a sensor may have the same time.
        let least = if options.late > 0.0 { acknowledged / 100 * 99 } else { acknowledged };
        if counted < least || counted > sent {
            return Err(Error::corrupt(format!(
                "{counted} rows were counted; {acknowledged} to {sent} were there"
            )));
        }
        Ok(millis)
    }

    /// A time up to which all writers have come, once there is one.
    fn last_ns(&self) -> Option<i64> {
        let steps = self.steps.iter().map(|steps| steps.load(Ordering::Relaxed)).min()?;
        (steps > 0).then(|| self.start_ns + steps as i64 * self.step_ns)
    }

    /// The milliseconds of the five minutes of one sensor before that.
    fn last_minutes(&self, db: &Db, sensor: u32, last_ns: i64) -> Result<f64> {
        let time = TimeRange::new(last_ns - 5 * NS_PER_MINUTE, last_ns);
        let start = Instant::now();
        let frame = db.snapshot(TABLE)?.read_frame::<f64>(&[sensor], &time, VALUE)?;
        let millis = start.elapsed().as_secs_f64() * 1e3;
        if frame.time.is_empty() {
            return Err(Error::corrupt(format!("sensor {sensor} has no reading of late")));
        }
        Ok(millis)
    }
}

/// The figures of each second on their way to a file.
struct Timeline(Option<std::fs::File>);

impl Timeline {
    fn create(path: Option<&Path>) -> Result<Self> {
        let created = path.map(std::fs::File::create).transpose();
        let mut timeline =
            Self(created.map_err(|error| Error::io("creating the timeline", &error))?);
        timeline.write(
            "second,rows_per_s,wait_p50_ms,wait_p99_ms,wait_max_ms,run_files,objects,live_mib,disk_mib,resident_mib,\
             count_max_ms,last_minutes_ms",
        )?;
        Ok(timeline)
    }

    fn line(&mut self, seen: &Second) -> Result<()> {
        let waits = sorted(seen.waits.iter().copied());
        self.write(&format!(
            "{:.1},{:.0},{:.2},{:.2},{:.2},{},{},{:.1},{:.1},{:.1},{:.2},{:.3}",
            seen.at,
            seen.rows_per_s,
            quantile(&waits, 0.5),
            quantile(&waits, 0.99),
            quantile(&waits, 1.0),
            seen.run_files,
            seen.objects,
            seen.live_mib,
            seen.disk_mib,
            seen.resident_mib,
            seen.count_max_ms,
            seen.last_minutes_ms,
        ))
    }

    fn write(&mut self, line: &str) -> Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        writeln!(file, "{line}").map_err(|error| Error::io("writing the timeline", &error))
    }
}

/// What all seconds come to.
struct Summary<'a> {
    options: &'a SustainedOptions,
    seconds: &'a [Second],
}

impl Summary<'_> {
    fn report(&self, report: &mut dyn FnMut(Report)) {
        let waits = sorted(self.seconds.iter().flat_map(|second| second.waits.iter().copied()));
        let rate = |seconds: &[Second]| {
            seconds.iter().map(|second| second.rows_per_s).sum::<f64>() / seconds.len() as f64
        };
        let span = SPAN_SECONDS.min(self.seconds.len() / 2).max(1);
        let first = rate(&self.seconds[..span.min(self.seconds.len())]);
        let last = rate(&self.seconds[self.seconds.len().saturating_sub(span)..]);
        let most = |what: fn(&Second) -> f64| self.seconds.iter().map(what).fold(0.0, f64::max);
        let median =
            |what: fn(&Second) -> f64| quantile(&sorted(self.seconds.iter().map(what)), 0.5);
        let mut say = |bench: &str, unit, figure, more| {
            report(Report {
                bench: format!("sustained load, {bench}"),
                settings: self.settings(),
                unit,
                runs: vec![figure],
                more,
            });
        };
        let rates = vec![("first_span", first), ("last_span", last), ("ratio", last / first)];
        say("readings taken", "readings/s", rate(self.seconds), rates);
        let quantiles = vec![("p99", quantile(&waits, 0.99)), ("most", quantile(&waits, 1.0))];
        say("wait of a write", "ms", quantile(&waits, 0.5), quantiles);
        let most_of = |figure| vec![("most", figure)];
        say(
            "count and max of everything",
            "ms",
            median(|second| second.count_max_ms),
            most_of(most(|second| second.count_max_ms)),
        );
        say(
            "last five minutes of a sensor",
            "ms",
            median(|second| second.last_minutes_ms),
            most_of(most(|second| second.last_minutes_ms)),
        );
        say("run files", "files", most(|second| second.run_files as f64), Vec::new());
        say("objects", "files", most(|second| second.objects as f64), Vec::new());
        let disk = most(|second| second.disk_mib / second.live_mib.max(1.0));
        let size = vec![("most_mib", most(|second| second.disk_mib))];
        say("bytes on the disk by bytes of live objects", "times", disk, size);
        say("resident memory", "MiB", most(|second| second.resident_mib), Vec::new());
    }

    fn settings(&self) -> String {
        let SustainedOptions { sensors, writers, late, ack, memory_mib, .. } = self.options;
        let ack = match ack {
            Ack::Memory => "acknowledged from memory",
            Ack::Durable => "fsync before acknowledging",
        };
        let late = match late {
            0.0 => "in order".to_owned(),
            late => format!("{:.1} % late", late * 1e2),
        };
        let seconds = self.options.seconds;
        format!(
            "{sensors} sensors, {writers} writers, {late}, {seconds} s, {memory_mib} MiB, {ack}"
        )
    }
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(0.0)
}

/// The bytes of all files in a folder; those that go meanwhile are passed over.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// The memory that this process has now.
fn resident_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| Error::io("/proc/self/status", &error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    Ok(kib.ok_or_else(|| Error::unsupported("the kernel does not tell the memory"))? / 1024.0)
}
