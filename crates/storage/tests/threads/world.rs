//! A small database, and what its users do.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, StringArray};
use tidefall_simulation::MemDisk;
use tidefall_storage::{
    Ack, AggregateRequest, CascadeRequest, Db, DbOptions, Existing, ScanRequest, TableSnapshot,
    TagFilter, Target, Unknown, Work, WriteOptions,
};
use tidefall_sync::shuttle::rand::{Rng, thread_rng};
use tidefall_sync::thread;
use tidefall_types::{
    Clock, Error, ErrorKind, FieldColumn, FieldId, ManualClock, NS_PER_DAY, NS_PER_MINUTE, Result,
    Series, SeriesBatch, TagColumn, TimeRange, WriteBatch,
};

use crate::history::{Change, FIELDS, History, Key, Outcome, Row, Rows, Whom};

const TABLE: &str = "plant";
/// 2024-01-25.
const NOW_NS: i64 = 19_747 * NS_PER_DAY;
const SENSORS: u32 = 3;
/// Rows of a write that fills memory.
const MANY: i64 = 40;

/// What somebody does.
#[derive(Debug, Clone, Copy)]
pub enum Does {
    /// Writes a few rows.
    Write,
    /// Writes many rows.
    WriteMany,
    /// Writes a few rows unless one of them is there.
    WriteNew,
    /// Writes a field that may be new.
    AddField,
    /// Loads whole columns.
    Load,
    /// Loads whole columns unless a reading is there.
    LoadNew,
    Delete,
    /// Takes a snapshot, and reads it twice.
    Read,
    /// Takes a snapshot, does the next thing, and reads it then.
    ReadAgain,
    Flush,
    FreeMemory,
    Cascade(Target),
    /// Lets some days pass.
    Wait,
    Close,
    /// Refreshes a database that is open only for reading, and reads it.
    Follow,
}

/// Which requests may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuses {
    /// None.
    Nothing,
    /// Those that come when the database closes.
    WhenClosed,
}

/// How a database is opened, and what comes.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub memory_bytes: usize,
    /// Between two looks of the upkeep.
    pub pause: Duration,
    /// How all writes are acknowledged, if all alike.
    pub ack: Option<Ack>,
    /// Times that rows have.
    pub times: usize,
    pub refuses: Refuses,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 20,
            pause: Duration::MAX,
            ack: None,
            times: 5,
            refuses: Refuses::Nothing,
        }
    }
}

/// A database, and what is known of it.
pub struct World {
    plan: Plan,
    disk: MemDisk,
    clock: Arc<ManualClock>,
    db: Db,
    /// A lock of the standard library: nobody gets a turn while it is held, or for it.
    history: Mutex<History>,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(NOW_NS)));
        let db = Db::open_on(Arc::new(disk.clone()), options(&plan, &clock)).unwrap();
        Self { plan, disk, clock, db, history: Mutex::default() }
    }

    /// Lets there be so many objects of a few rows.
    pub fn with_run_files(self, count: usize) -> Self {
        for _ in 0..count {
            self.do_once(Does::Write);
            self.do_once(Does::Flush);
        }
        self
    }

    /// Lets each thread do so many of some things, all at once, and then looks whether all is as it should be, also when the database is opened again. Returns what
    /// the database did by itself.
    pub fn run(self, threads: &[(&[Does], usize)]) -> Work {
        thread::scope(|scope| {
            for &(does, times) in threads {
                let world = &self;
                scope.spawn(move || world.act(does, times));
            }
        });
        let rows = self.read(Whom::Writer, &self.db);
        self.db.close().unwrap();
        assert_eq!(self.rows_of(self.db.snapshot(TABLE)), rows, "after the close");
        let opened = Db::open_on(Arc::new(self.disk.clone()), options(&self.plan, &self.clock));
        let opened = opened.unwrap();
        assert_eq!(self.read(Whom::Writer, &opened), rows, "opened again");
        assert_eq!(opened.verify().unwrap().damages, []);
        opened.close().unwrap();
        self.history().check_refusals(&rows);
        self.db.work()
    }

    fn act(&self, does: &[Does], times: usize) {
        let follower = match does {
            [Does::Follow] => Some(self.follow()),
            _ => None,
        };
        let mut kept: Option<(TableSnapshot, Rows)> = None;
        for _ in 0..times {
            let does = does[thread_rng().gen_range(0..does.len())];
            if let Some((snapshot, rows)) = kept.take() {
                assert_eq!(rows_of(&snapshot), rows, "a snapshot has changed");
            }
            match does {
                Does::ReadAgain => kept = self.snapshot(),
                Does::Follow => drop(self.read(Whom::Follower, follower.as_ref().unwrap())),
                does => self.do_once(does),
            }
        }
        if let Some((snapshot, rows)) = kept {
            assert_eq!(rows_of(&snapshot), rows, "a snapshot has changed");
        }
    }

    fn do_once(&self, does: Does) {
        match does {
            Does::Write => self.write(&self.some_keys(), &[0], false),
            Does::WriteNew => self.write(&self.some_keys(), &[0], true),
            Does::WriteMany => {
                let sensor = thread_rng().gen_range(0..SENSORS);
                let first = thread_rng().gen_range(0..MANY);
                let times = (first..first + MANY).map(|row| NOW_NS - row * NS_PER_MINUTE);
                self.write(&times.map(|at| (sensor, at)).collect::<Vec<_>>(), &[0], false);
            }
            Does::AddField => {
                let field = thread_rng().gen_range(1..FIELDS.len());
                let fields = if thread_rng().gen_bool(0.5) { vec![field] } else { vec![0, field] };
                self.write(&self.some_keys(), &fields, false);
            }
            Does::Load => self.load(false),
            Does::LoadNew => self.load(true),
            Does::Delete => self.delete(),
            Does::Read => drop(self.read(Whom::Writer, &self.db)),
            Does::Flush => self.expect(self.db.flush().map(drop)),
            Does::FreeMemory => self.expect(self.db.free_memory().map(drop)),
            Does::Cascade(target) => {
                self.expect(self.db.cascade(&CascadeRequest { table: None, target }).map(drop));
            }
            Does::Wait => {
                let days = [1, 30, 400][thread_rng().gen_range(0..3)];
                self.clock.set(self.clock.now_ns() + days * NS_PER_DAY);
            }
            Does::Close => self.db.close().unwrap(),
            Does::ReadAgain | Does::Follow => unreachable!("these keep something"),
        }
    }

    // ---- changes ----

    fn some_keys(&self) -> Vec<Key> {
        let mut rng = thread_rng();
        let count = rng.gen_range(1..4);
        let times = times(self.plan.times);
        let key = |_| (rng.gen_range(0..SENSORS), times[rng.gen_range(0..times.len())]);
        let keys: BTreeSet<Key> = (0..count).map(key).collect();
        keys.into_iter().collect()
    }

    fn write(&self, keys: &[Key], fields: &[usize], is_new: bool) {
        let ack = self.plan.ack.unwrap_or(match thread_rng().gen_bool(0.5) {
            true => Ack::Memory,
            false => Ack::Durable,
        });
        let existing = existing(is_new);
        let options =
            WriteOptions { ack, unknown: Unknown::Create, existing, ..WriteOptions::default() };
        self.change(
            || Change::Write { keys: keys.to_vec(), fields: fields.to_vec(), is_new },
            |number| {
                let batch = WriteBatch {
                    time: keys.iter().map(|(_, at)| *at).collect::<Vec<_>>().into(),
                    tags: vec![sensor_tag(keys.iter().map(|(sensor, _)| *sensor).collect())],
                    fields: fields
                        .iter()
                        .map(|field| FieldColumn {
                            name: FIELDS[*field].into(),
                            values: values(number, keys.len()),
                        })
                        .collect(),
                };
                self.db.write(TABLE, &batch, &options).map(drop)
            },
        );
    }

    fn load(&self, is_new: bool) {
        let keys = self.some_keys();
        let options = WriteOptions {
            unknown: Unknown::Create,
            existing: existing(is_new),
            ..WriteOptions::default()
        };
        self.change(
            || Change::Write { keys: keys.clone(), fields: vec![0], is_new },
            |number| {
                let sensors: BTreeSet<u32> = keys.iter().map(|(sensor, _)| *sensor).collect();
                let series = sensors.iter().map(|sensor| {
                    let times = keys.iter().filter(|key| key.0 == *sensor).map(|(_, at)| *at);
                    let time: Vec<i64> = times.collect();
                    Series { fields: vec![values(number, time.len())], time: time.into() }
                });
                let series = series.collect();
                let tags = vec![sensor_tag(sensors.into_iter().collect())];
                let batch = SeriesBatch { tags, fields: vec![FIELDS[0].into()], series };
                self.db.load_with(TABLE, &batch, &options).map(drop)
            },
        );
    }

    fn delete(&self) {
        let sensor = thread_rng().gen_bool(0.5).then(|| thread_rng().gen_range(0..SENSORS));
        let at = times(self.plan.times)[thread_rng().gen_range(0..self.plan.times)];
        let times = at..at + NS_PER_DAY;
        let filter = match sensor {
            None => TagFilter::All,
            Some(sensor) => TagFilter::Eq { tag: "sensor".into(), value: name(sensor) },
        };
        self.change(
            || Change::Delete { sensor, times: times.clone() },
            |_| match self.db.delete(TABLE, &filter, TimeRange::new(times.start, times.end - 1)) {
                // There is nothing as yet.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                deleted => deleted,
            },
        );
    }

    /// Asks for a change, and takes note of it.
    fn change(&self, change: impl FnOnce() -> Change, ask: impl FnOnce(usize) -> Result<()>) {
        let change = change();
        let is_new = matches!(change, Change::Write { is_new: true, .. });
        let number = self.history().begin(|_| change);
        let outcome = match ask(number) {
            Ok(()) => Outcome::Done,
            Err(error) if is_new && error.kind() == ErrorKind::Conflict => Outcome::Refused,
            Err(error) => {
                self.expect(Err(error));
                Outcome::Open
            }
        };
        self.history().end(number, outcome);
    }

    /// Stops at an error that must not be.
    fn expect(&self, outcome: Result<()>) {
        let may_be = |error: &Error| {
            self.plan.refuses == Refuses::WhenClosed && error.kind() == ErrorKind::Closed
        };
        if let Err(error) = outcome {
            assert!(may_be(&error), "{error}\n{:#?}", self.history());
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }

    // ---- reads ----

    fn follow(&self) -> Db {
        let plan = options(&self.plan, &self.clock);
        Db::open_read_only_on(Arc::new(self.disk.clone()), plan).unwrap()
    }

    /// What is there now, which must be what was asked for.
    fn read(&self, whom: Whom, db: &Db) -> Rows {
        let begun = self.history().tick();
        if whom == Whom::Follower {
            db.refresh().unwrap();
        }
        let snapshot = db.snapshot(TABLE);
        let ended = self.history().tick();
        let rows = self.rows_of(snapshot);
        self.history().check(whom, (begun, ended), &rows);
        rows
    }

    /// A snapshot, if there is a table, and what it shows.
    fn snapshot(&self) -> Option<(TableSnapshot, Rows)> {
        let begun = self.history().tick();
        let snapshot = self.db.snapshot(TABLE);
        let ended = self.history().tick();
        let rows = self.rows_of(snapshot.clone());
        self.history().check(Whom::Writer, (begun, ended), &rows);
        snapshot.ok().map(|snapshot| (snapshot, rows))
    }

    fn rows_of(&self, snapshot: Result<TableSnapshot>) -> Rows {
        match snapshot {
            Ok(snapshot) => rows_of(&snapshot),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                Rows::new()
            }
        }
    }
}

fn options(plan: &Plan, clock: &Arc<ManualClock>) -> DbOptions {
    let clock: Arc<ManualClock> = Arc::clone(clock);
    let (memory_bytes, cascade_pause) = (plan.memory_bytes, plan.pause);
    DbOptions { memory_bytes, threads: 2, cascade_pause, clock, ..DbOptions::default() }
}

/// Some of today, of another day, and of other months.
fn times(count: usize) -> Vec<i64> {
    let back = [0, 1, 3 * 24 * 60, 50 * 24 * 60, 50 * 24 * 60 + 1];
    back[..count].iter().map(|minutes| NOW_NS - minutes * NS_PER_MINUTE).collect()
}

fn existing(is_new: bool) -> Existing {
    if is_new { Existing::Refuse } else { Existing::Replace }
}

fn name(sensor: u32) -> String {
    format!("s{sensor}")
}

fn sensor_tag(keys: Vec<u32>) -> TagColumn {
    let values = StringArray::from_iter_values((0..SENSORS).map(name));
    TagColumn { name: "sensor".into(), values, keys: keys.into() }
}

fn values(number: usize, rows: usize) -> ArrayRef {
    Arc::new(Int64Array::from(vec![number as i64; rows]))
}

/// All rows, each once; they are as many, and as large, as metrics say.
fn rows_of(snapshot: &TableSnapshot) -> Rows {
    let schema = snapshot.schema();
    let sensors: Vec<u32> = (0..snapshot.sensor_count()).collect();
    let fields = (0..schema.fields.len() as u16).map(FieldId).collect();
    let request = ScanRequest {
        sensors: sensors.clone(),
        time: TimeRange::ALL,
        fields,
        conditions: Vec::new(),
        limit: None,
    };
    let mut rows = Rows::new();
    if schema.tags.is_empty() {
        return rows;
    }
    let (names, keys) = snapshot.tag_keys(tidefall_types::TagId(0));
    for batch in snapshot.scan(&request).unwrap() {
        let batch = batch.unwrap();
        for place in 0..batch.time.len() {
            let name = names.value(keys[batch.sensors[place] as usize] as usize);
            let sensor = name[1..].parse().unwrap();
            let mut row = Row::default();
            for (field, column) in schema.fields.iter().zip(&batch.fields) {
                let field = FIELDS.iter().position(|name| *name == field.name).unwrap();
                let column = column.as_primitive::<Int64Type>();
                row[field] = column.is_valid(place).then(|| column.value(place));
            }
            let before = rows.insert((sensor, batch.time[place]), row);
            assert_eq!(before, None, "a row is there twice");
        }
    }
    check_metrics(snapshot, &sensors, &rows);
    rows
}

fn check_metrics(snapshot: &TableSnapshot, sensors: &[u32], rows: &Rows) {
    let fields = &snapshot.schema().fields;
    let Some(field) = fields.iter().position(|field| field.name == FIELDS[0]) else { return };
    let request = AggregateRequest {
        sensors: sensors.to_vec().into(),
        groups: Vec::new(),
        group_count: 1,
        time: TimeRange::ALL,
        bin: None,
        fields: vec![FieldId(field as u16)],
        deviations: false,
        extremes: true,
        ends: false,
    };
    let found = snapshot.aggregate(&request, &Default::default()).unwrap();
    assert_eq!(found.rows.iter().sum::<u64>(), rows.len() as u64, "rows by metrics");
    let sum: i64 = found.fields[0].sum.as_primitive::<Int64Type>().iter().flatten().sum();
    assert_eq!(sum, rows.values().filter_map(|row| row[0]).sum::<i64>(), "sum by metrics");
}
