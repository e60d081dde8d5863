//! The benchmark of the cascade in the papers on PL-NagareDB, which README names: ingest by parallel shippers, the speed of
//! each step, bytes per reading, and the twelve queries on each model.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{Float64Array, StringArray};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{
    Ack, AggregateRequest, Bin, CascadeRequest, Db, DbOptions, Extreme, Keep, Model, ReadStats,
    TableReport, TableSnapshot, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    Error, FieldColumn, FieldId, ManualClock, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, Result,
    Series, SeriesBatch, TagColumn, TimeRange, WriteBatch,
};

use crate::report::{Report, fresh};
use crate::workload::{MINUTES_PER_DAY, SEED, TABLE, Workload, start_of};

/// What to measure.
#[derive(Debug, Clone)]
pub struct CascadeOptions {
    /// Sensors, with a reading a minute.
    pub sensors: u32,
    /// Days in long columns.
    pub days: u32,
    /// The memory budget of the database in MiB; readings that are to leave memory have as much as they
    /// need to stay there until then.
    pub memory_mib: usize,
    /// How long each number of shippers ships.
    pub seconds: f64,
    /// Scratch folder; it is emptied.
    pub work: PathBuf,
}

/// Shippers that send at once: those of the first paper, then those of the second.
const SHIPPERS: [usize; 7] = [1, 2, 3, 4, 5, 10, 100];
/// Instances of each query, and runs of each instance.
const INSTANCES: u64 = 10;
const RUNS: usize = 5;
/// Days that leave memory, about as many as the short columns hold.
const MOVED_DAYS: u32 = 30;
/// Of the budget, for each reading that is to stay in memory: it takes 25 bytes there, and all of them less
/// than a seventh of the budget.
const BUDGET_OF_READING: f64 = 25.0 * 7.0;
const VALUE: FieldId = FieldId(0);

/// Measures everything, and hands over each result as it comes.
///
/// # Errors
/// Those of the database, and `Io` when the scratch folder cannot be used.
pub fn run(options: &CascadeOptions, report: &mut dyn FnMut(Report)) -> Result<()> {
    if options.sensors == 0 || options.days == 0 {
        return Err(Error::invalid("there must be at least one sensor and one day"));
    }
    let workload = Workload::new(options.sensors, SEED)?;
    for is_single in [true, false] {
        for shippers in SHIPPERS.into_iter().filter(|count| *count <= options.sensors as usize) {
            report(ship(options, shippers, is_single)?);
        }
    }
    for threads in [1, tidefall_storage::cores()] {
        move_all(options, &workload, threads, report)?;
    }
    for (model, days) in [
        ("key-value", 1),
        ("short", MOVED_DAYS.min(options.days)),
        ("long", options.days),
        ("mixed", options.days),
    ] {
        query_model(options, &workload, model, days, report)?;
    }
    Ok(())
}

/// A new database, for which it is the end of so many days of the workload: ages count from there.
fn open(options: &CascadeOptions, threads: usize, days: u32) -> Result<Db> {
    let memory_bytes = options.memory_mib << 20;
    let folder = fresh(&options.work, "cascade")?;
    let clock = Arc::new(ManualClock::new(start_of(days)));
    Db::open(folder, DbOptions { memory_bytes, threads, clock, ..DbOptions::default() })
}

/// Every shipper has a share of the sensors. It ships the readings of each minute one by one, or all of its
/// sensors at once, and waits until they are durable before it ships the next.
fn ship(options: &CascadeOptions, shippers: usize, is_single: bool) -> Result<Report> {
    let db = open(options, tidefall_storage::cores(), 1)?;
    let names: Vec<String> = (0..options.sensors).map(crate::workload::sensor_name).collect();
    let is_over = AtomicBool::new(false);
    let share = names.len().div_ceil(shippers);
    let (mut shipped, mut waits) = (0, Vec::new());
    let start = Instant::now();
    std::thread::scope(|scope| {
        let ship = |names| ship_until(&db, names, is_single, &is_over);
        let running: Vec<_> =
            names.chunks(share).map(|names| scope.spawn(move || ship(names))).collect();
        std::thread::sleep(Duration::from_secs_f64(options.seconds));
        is_over.store(true, Ordering::Relaxed);
        for shipper in running {
            let done = shipper.join().map_err(|_| Error::closed("a shipper panicked"))??;
            shipped += done.0;
            waits.extend(done.1);
        }
        Ok::<_, Error>(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    db.close()?;
    waits.sort_by(f64::total_cmp);
    let what = if is_single { "one reading a write" } else { "a minute of its sensors a write" };
    Ok(Report {
        bench: format!("ingest by {shippers} shippers, {what}"),
        settings: format!("{} sensors, fsync before acknowledging", options.sensors),
        unit: "readings/s",
        runs: vec![shipped as f64 / seconds],
        more: vec![
            ("median_wait_ms", waits.get(waits.len() / 2).copied().unwrap_or(0.0)),
            ("p99_wait_ms", waits.get(waits.len() * 99 / 100).copied().unwrap_or(0.0)),
        ],
    })
}

/// Ships until it is over; returns how many readings, and the milliseconds of each write.
fn ship_until(
    db: &Db,
    names: &[String],
    is_single: bool,
    is_over: &AtomicBool,
) -> Result<(u64, Vec<f64>)> {
    let durable =
        WriteOptions { ack: Ack::Durable, unknown: Unknown::Create, ..Default::default() };
    let mut rng = StdRng::seed_from_u64(names.len() as u64);
    let batch_sensors = if is_single { 1 } else { names.len() };
    let (mut shipped, mut waits) = (0, Vec::new());
    for minute in 0.. {
        let time_ns = start_of(0) + minute * NS_PER_MINUTE;
        for names in names.chunks(batch_sensors) {
            if is_over.load(Ordering::Relaxed) {
                return Ok((shipped, waits));
            }
            let values = names.iter().map(|_| rng.random_range(200_000..400_000));
            let batch = WriteBatch {
                time: vec![time_ns; names.len()].into(),
                tags: vec![TagColumn {
                    name: "sensor".into(),
                    values: StringArray::from_iter_values(names),
                    keys: (0..names.len() as u32).collect(),
                }],
                fields: vec![FieldColumn {
                    name: "value".into(),
                    values: Arc::new(Float64Array::from_iter_values(
                        values.map(|value| f64::from(value) / 1e3),
                    )),
                }],
            };
            let start = Instant::now();
            shipped += db.write(TABLE, &batch, &durable)?.rows as u64;
            waits.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok((shipped, waits))
}

/// Moves readings from memory to short columns and from there to long ones.
fn move_all(
    options: &CascadeOptions,
    workload: &Workload,
    threads: usize,
    report: &mut dyn FnMut(Report),
) -> Result<()> {
    let (mut to_short, mut to_long) = (Vec::new(), Vec::new());
    let rows = f64::from(options.sensors * MOVED_DAYS) * MINUTES_PER_DAY as f64;
    let memory_mib = options.memory_mib.max(needed_mib(rows));
    let options = &CascadeOptions { memory_mib, ..options.clone() };
    for run in 0..=RUNS {
        let db = open(options, threads, MOVED_DAYS)?;
        arrive(&db, workload, 0..MOVED_DAYS)?;
        for (target, rates) in [(Target::Short, &mut to_short), (Target::Long, &mut to_long)] {
            let start = Instant::now();
            let moved = db.cascade(&CascadeRequest { table: None, target })?.rows as f64;
            if moved != rows {
                return Err(Error::invalid(format!("{moved} readings moved instead of {rows}")));
            }
            if run > 0 {
                rates.push(rows / start.elapsed().as_secs_f64() / threads as f64);
            }
        }
        db.close()?;
    }
    for (step, runs) in
        [("key-value to short columns", to_short), ("short to long columns", to_long)]
    {
        report(Report {
            bench: format!("cascade, {step}, {threads} threads"),
            settings: format!(
                "{} sensors, {MOVED_DAYS} days, {memory_mib} MiB, fsync",
                options.sensors
            ),
            unit: "readings/s per thread",
            runs,
            more: vec![("readings", rows)],
        });
    }
    Ok(())
}

/// The budget with which so many readings stay in memory until they are moved.
fn needed_mib(rows: f64) -> usize {
    ((rows * BUDGET_OF_READING) as usize >> 20) + 1
}

fn arrive(db: &Db, workload: &Workload, days: std::ops::Range<u32>) -> Result<()> {
    let memory = WriteOptions { ack: Ack::Memory, unknown: Unknown::Create, ..Default::default() };
    for day in days {
        for batch in workload.arrivals(day) {
            db.write(TABLE, &batch, &memory)?;
        }
    }
    Ok(())
}

/// Fills a database so that its readings lie in one model, or all three, and asks it all that it can answer.
fn query_model(
    options: &CascadeOptions,
    workload: &Workload,
    model: &'static str,
    days: u32,
    report: &mut dyn FnMut(Report),
) -> Result<()> {
    let db = open(options, tidefall_storage::cores(), days)?;
    let cascade = |target| db.cascade(&CascadeRequest { table: None, target });
    match model {
        "long" => {
            db.load(TABLE, &workload.frame(days), Unknown::Create)?;
            cascade(Target::Long)?;
        }
        "short" => {
            arrive(&db, workload, 0..days)?;
            cascade(Target::Short)?;
        }
        "mixed" => {
            let (month, day) = (days.saturating_sub(MOVED_DAYS), days - 1);
            db.load(TABLE, &first_days(workload.frame(days), month), Unknown::Create)?;
            arrive(&db, workload, month..day)?;
            cascade(Target::Short)?;
            arrive(&db, workload, day..days)?;
        }
        _ => arrive(&db, workload, 0..days)?,
    }
    let tables = db.inspect()?;
    let table = tables.first().ok_or_else(|| Error::not_found("nothing was written"))?;
    let place = where_rows_are(table);
    let objects = table.models.iter().map(|found| (found.rows, found.bytes));
    let in_memory = (table.rows_in_memory, table.bytes_in_memory);
    let (rows, bytes) =
        objects.chain([in_memory]).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    report(Report {
        bench: format!("bytes per reading, {model}"),
        settings: format!("{rows} readings, {place}"),
        unit: "bytes",
        runs: vec![bytes as f64 / rows as f64],
        more: Vec::new(),
    });
    let asker = Asker { snapshot: db.snapshot(TABLE)?, workload, sensors: options.sensors, days };
    for query in 1..=12 {
        let needed = asker.days_of(query);
        if needed > days || (needed > MOVED_DAYS && days <= MOVED_DAYS) {
            continue;
        }
        let mut millis = Vec::new();
        for instance in 0..INSTANCES {
            millis.push(asker.time(query, instance)?);
        }
        report(Report {
            bench: format!("Q{query}, {model}"),
            settings: format!("{} sensors, {days} days, {place}, warm", options.sensors),
            unit: "ms",
            runs: millis,
            more: Vec::new(),
        });
    }
    db.close()
}

fn first_days(mut frame: SeriesBatch, days: u32) -> SeriesBatch {
    let rows = days as usize * MINUTES_PER_DAY;
    for Series { time, fields } in &mut frame.series {
        *time = time.slice(0, rows);
        fields.iter_mut().for_each(|field| *field = field.slice(0, rows));
    }
    frame
}

/// In which models how much of the table is.
fn where_rows_are(table: &TableReport) -> String {
    let objects = table.models.iter().map(|found| match found.model {
        Model::Kv => ("run files", found.rows),
        Model::Short => ("short columns", found.rows),
        Model::Long => ("long columns", found.rows),
    });
    let places = [("memory", table.rows_in_memory)].into_iter().chain(objects);
    let total = places.clone().map(|(_, rows)| rows).sum::<u64>() as f64;
    let shares = places.filter(|(_, rows)| *rows > 0);
    let shares =
        shares.map(|(name, rows)| format!("{:.1} % in {name}", rows as f64 * 100.0 / total));
    shares.collect::<Vec<_>>().join(", ")
}

/// The twelve queries.
struct Asker<'a> {
    snapshot: TableSnapshot,
    workload: &'a Workload,
    sensors: u32,
    days: u32,
}

impl Asker<'_> {
    fn days_of(&self, query: u32) -> u32 {
        match query {
            1 | 4 | 8 | 11 => 1,
            2 | 5 => MOVED_DAYS,
            _ => self.days.max(MOVED_DAYS + 1),
        }
    }

    /// The milliseconds of one instance, the median of some runs after a first.
    fn time(&self, query: u32, instance: u64) -> Result<f64> {
        let mut rng = StdRng::seed_from_u64(u64::from(query) * 1000 + instance);
        let days = self.days_of(query).min(self.days);
        let first_ns = start_of(rng.random_range(0..=self.days - days));
        let time = TimeRange::new(first_ns, first_ns + i64::from(days) * NS_PER_DAY - 1);
        let wanted = match query {
            4..=7 => 10,
            10 => 20,
            8 => self.sensors,
            _ => 1,
        };
        let wanted = wanted.min(self.sensors);
        let first = rng.random_range(0..=self.sensors - wanted);
        let sensors: Vec<u32> = match query {
            7 => (0..wanted).map(|place| place * (self.sensors / wanted)).collect(),
            _ => (first..first + wanted).collect(),
        };
        let mut millis = Vec::with_capacity(RUNS);
        for _ in 0..=RUNS {
            let start = Instant::now();
            self.ask(query, &sensors, &time)?;
            millis.push(start.elapsed().as_secs_f64() * 1e3);
        }
        millis.remove(0);
        millis.sort_by(f64::total_cmp);
        Ok(millis[RUNS / 2])
    }

    fn ask(&self, query: u32, sensors: &[u32], time: &TimeRange) -> Result<()> {
        let snapshot = &self.snapshot;
        let found = match query {
            8 => snapshot.at(sensors, time.first_ns + 700 * NS_PER_MINUTE, VALUE)?.time.len(),
            9 | 10 => {
                let request = AggregateRequest {
                    sensors: sensors.to_vec().into(),
                    groups: (0..sensors.len() as u32).collect(),
                    group_count: sensors.len() as u32,
                    time: *time,
                    bin: Some(Bin { width_ns: NS_PER_HOUR, origin_ns: 0 }),
                    fields: vec![VALUE],
                    deviations: false,
                    extremes: true,
                    ends: true,
                };
                snapshot.aggregate(&request, &ReadStats::default().into())?.rows.len()
            }
            11 => snapshot.extremes::<f64>(sensors, time, VALUE, Extreme::Lowest)?.len(),
            12 => {
                let (mu, sigma) = self.workload.normal_of(sensors[0]);
                let keep = Keep::Outside(mu - 2.0 * sigma, mu + 2.0 * sigma);
                snapshot.read_frame_where::<f64>(sensors, time, VALUE, &keep)?.time.len()
            }
            _ => snapshot.read_frame::<f64>(sensors, time, VALUE)?.time.len(),
        };
        match found {
            0 => Err(Error::not_found(format!("Q{query} found nothing; this is a bug"))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were flushed before, as the memory that rows have of the budget had become less.
    #[test]
    fn readings_stay_in_memory_until_they_are_moved() -> Result<()> {
        let work = tempfile::tempdir().map_err(|error| Error::io("a folder", &error))?;
        let sensors = 10;
        let rows = f64::from(sensors * MOVED_DAYS) * MINUTES_PER_DAY as f64;
        let (memory_mib, work) = (needed_mib(rows), work.path().to_owned());
        let options = CascadeOptions { sensors, days: MOVED_DAYS, memory_mib, seconds: 0.0, work };
        let db = open(&options, 1, MOVED_DAYS)?;
        arrive(&db, &Workload::new(sensors, SEED)?, 0..MOVED_DAYS)?;
        let tables = db.inspect()?;
        assert_eq!(tables[0].rows_in_memory as f64, rows);
        assert!(tables[0].bytes_in_memory as f64 > rows * 24.0, "they nearly fill it");
        Ok(())
    }
}
