//! A small database, and what its users do.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, StringArray};
use tidefall_simulation::MemDisk;
use tidefall_storage::store::{LocalIo, ReadAhead};
use tidefall_storage::{
    Ack, BadRows, CascadeRequest, Db, DbOptions, Existing, FieldTypes, IfExists, Rewriting,
    TableSnapshot, TagFilter, Target, Unknown, Work, WriteOptions,
};
use tidefall_sync::shuttle::rand::{Rng, thread_rng};
use tidefall_sync::thread;
use tidefall_types::{
    Clock, Error, ErrorKind, FieldColumn, FieldType, ManualClock, NS_PER_DAY, NS_PER_MINUTE,
    Result, Series, SeriesBatch, TableId, TableSchema, TagColumn, TimeRange, WriteBatch,
};

use crate::history::{Change, FIELDS, History, Key, NARROW, Outcome, Shown, Span, Whom};

const TABLE: &str = "plant";
/// 2024-01-25.
const NOW_NS: i64 = 19_747 * NS_PER_DAY;
const SENSORS: u32 = 3;
/// Rows of a write that fills memory.
const MANY: i64 = 40;
/// Types that a field may get, of which one does not hold large values.
const TYPES: [FieldType; 4] = [FieldType::I64, FieldType::F64, FieldType::U64, NARROW];
/// How rows are written that make whatever they lack.
const WRITE: WriteOptions = WriteOptions {
    ack: Ack::Durable,
    bad_rows: BadRows::Reject,
    unknown: Unknown::Create,
    existing: Existing::Replace,
    field_types: FieldTypes::Keep,
};
/// How rows are that must not replace any.
const REFUSE: WriteOptions = WriteOptions { existing: Existing::Refuse, ..WRITE };
/// How rows are that need a wider type.
const WIDEN: WriteOptions = WriteOptions { field_types: FieldTypes::Widen, ..WRITE };
/// Announced reads that go on at once.
const PARALLEL: usize = 2;

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
    /// Writes large values to a field that may be narrow.
    WriteLarge,
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
    /// Drops the table.
    Drop,
    /// Gives a field another type.
    Retype,
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
    /// How long the table keeps readings, if not for ever.
    pub keep_ns: Option<i64>,
    /// Whether objects lie elsewhere, where what is announced is read ahead.
    pub is_apart: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 20,
            pause: Duration::MAX,
            ack: None,
            times: 5,
            refuses: Refuses::Nothing,
            keep_ns: None,
            is_apart: false,
        }
    }
}

/// A database, and what is known of it.
pub struct World {
    plan: Plan,
    disk: MemDisk,
    /// Where objects lie that lie elsewhere.
    objects: MemDisk,
    clock: Arc<ManualClock>,
    db: Db,
    /// A lock of the standard library: nobody gets a turn while it is held, or for it.
    history: Mutex<History>,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let (disk, objects) = (MemDisk::new(), MemDisk::new());
        let clock = Arc::new(ManualClock::new(NOW_NS));
        let db = open(&plan, &disk, &objects, &clock).unwrap();
        if plan.keep_ns.is_some() {
            let mut schema = TableSchema::new(TableId::default(), TABLE, "time");
            schema.options.retention_ns = plan.keep_ns;
            db.create_table(&schema, IfExists::Fail).unwrap();
        }
        Self { plan, disk, objects, clock, db, history: Mutex::default() }
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
        self.check_age();
        let shown = self.read(Whom::Writer, &self.db);
        self.db.close().unwrap();
        assert_eq!(shown_by(self.db.snapshot(TABLE)), shown, "after the close");
        if self.plan.is_apart {
            self.check_other_log(&shown);
        }
        let opened = open(&self.plan, &self.disk, &self.objects, &self.clock).unwrap();
        assert_eq!(self.read(Whom::Writer, &opened), shown, "opened again");
        assert_eq!(opened.verify().unwrap().damages, []);
        if self.plan.is_apart {
            opened.flush().unwrap();
        }
        opened.close().unwrap();
        if self.plan.is_apart {
            assert!(self.check_other_log(&shown), "nothing is in the log alone");
        }
        self.history().check_refusals(&shown.rows);
        self.history().check_types();
        self.history().check_missing();
        self.db.work()
    }

    /// Looks whether readings go that are too old, but for a month. Nobody else does anything any more.
    fn check_age(&self) {
        let Some(keep_ns) = self.plan.keep_ns else { return };
        self.do_once(Does::Flush);
        self.do_once(Does::Cascade(Target::ByAge));
        let oldest = self.read(Whom::Writer, &self.db).rows.into_keys().map(|(_, at)| at).min();
        let limit_ns = self.clock.now_ns() - keep_ns - 31 * NS_PER_DAY;
        assert!(oldest.is_none_or(|at| at >= limit_ns), "{oldest:?} is before {limit_ns}");
    }

    /// Looks what becomes of a copy of what lies elsewhere when it is opened with an empty log: it is all there, or that is refused. Returns which.
    fn check_other_log(&self, shown: &Shown) -> bool {
        let objects = self.objects.crash(0);
        match open(&self.plan, &MemDisk::new(), &objects, &self.clock) {
            Ok(other) => {
                assert_eq!(shown_by(other.snapshot(TABLE)), *shown, "with another log");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                false
            }
        }
    }

    fn act(&self, does: &[Does], times: usize) {
        let follower = match does {
            [Does::Follow] => Some(self.follow()),
            _ => None,
        };
        let mut kept: Option<(TableSnapshot, Shown)> = None;
        for _ in 0..times {
            let does = does[thread_rng().gen_range(0..does.len())];
            if let Some((snapshot, shown)) = kept.take() {
                assert_eq!(Shown::of(&snapshot), shown, "a snapshot has changed");
            }
            match does {
                Does::ReadAgain => kept = self.snapshot(Whom::Writer, &self.db),
                Does::Follow => drop(self.read(Whom::Follower, follower.as_ref().unwrap())),
                does => self.do_once(does),
            }
        }
        if let Some((snapshot, shown)) = kept {
            assert_eq!(Shown::of(&snapshot), shown, "a snapshot has changed");
        }
    }

    fn do_once(&self, does: Does) {
        match does {
            Does::Write => self.write(&self.some_keys(), &[0], WRITE),
            Does::WriteNew => self.write(&self.some_keys(), &[0], REFUSE),
            Does::WriteLarge => {
                let field = thread_rng().gen_range(0..FIELDS.len());
                self.write(&self.some_keys(), &[field], WIDEN);
            }
            Does::WriteMany => {
                let sensor = thread_rng().gen_range(0..SENSORS);
                let first = thread_rng().gen_range(0..MANY);
                let times = (first..first + MANY).map(|row| NOW_NS - row * NS_PER_MINUTE);
                self.write(&times.map(|at| (sensor, at)).collect::<Vec<_>>(), &[0], WRITE);
            }
            Does::AddField => {
                let field = thread_rng().gen_range(1..FIELDS.len());
                let fields = if thread_rng().gen_bool(0.5) { vec![field] } else { vec![0, field] };
                self.write(&self.some_keys(), &fields, WRITE);
            }
            Does::Load => self.load(false),
            Does::LoadNew => self.load(true),
            Does::Delete => self.delete(),
            Does::Drop => self.change(|| Change::Drop, |_| self.db.drop_table(TABLE)),
            Does::Retype => self.retype(),
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

    fn write(&self, keys: &[Key], fields: &[usize], how: WriteOptions) {
        let ack = self.plan.ack.unwrap_or(match thread_rng().gen_bool(0.5) {
            true => Ack::Memory,
            false => Ack::Durable,
        });
        let options = WriteOptions { ack, ..how };
        let is_new = how.existing == Existing::Refuse;
        let is_large = how.field_types == FieldTypes::Widen;
        let change =
            Change::Write { keys: keys.to_vec(), fields: fields.to_vec(), is_new, is_large };
        let written = change.clone();
        self.change(
            || change,
            |number| {
                let batch = WriteBatch {
                    time: keys.iter().map(|(_, at)| *at).collect::<Vec<_>>().into(),
                    tags: vec![sensor_tag(keys.iter().map(|(sensor, _)| *sensor).collect())],
                    fields: fields
                        .iter()
                        .map(|field| FieldColumn {
                            name: FIELDS[*field].into(),
                            values: values(written.value(number), keys.len()),
                        })
                        .collect(),
                };
                self.db.write(TABLE, &batch, &options).map(drop)
            },
        );
    }

    fn load(&self, is_new: bool) {
        let keys = self.some_keys();
        let options = if is_new { REFUSE } else { WRITE };
        self.change(
            || Change::Write { keys: keys.clone(), fields: vec![0], is_new, is_large: false },
            |number| {
                let sensors: BTreeSet<u32> = keys.iter().map(|(sensor, _)| *sensor).collect();
                let series = sensors.iter().map(|sensor| {
                    let times = keys.iter().filter(|key| key.0 == *sensor).map(|(_, at)| *at);
                    let time: Vec<i64> = times.collect();
                    Series { fields: vec![values(number as i64, time.len())], time: time.into() }
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

    fn retype(&self) {
        let field = thread_rng().gen_range(0..FIELDS.len());
        let to = TYPES[thread_rng().gen_range(0..TYPES.len())];
        let types = [(FIELDS[field].to_owned(), to)];
        self.change(
            || Change::Retype { field, to },
            |_| self.db.retype(TABLE, &types, Rewriting::All),
        );
    }

    /// Asks for a change, and takes note of it.
    fn change(&self, change: impl FnOnce() -> Change, ask: impl FnOnce(usize) -> Result<()>) {
        let change = change();
        let refused_as = match &change {
            Change::Write { is_new: true, .. } | Change::Retype { to: NARROW, .. } => {
                Some(ErrorKind::Conflict)
            }
            // The field has become narrow since the write has found it wide.
            Change::Write { is_large: true, .. } => Some(ErrorKind::Invalid),
            _ => None,
        };
        let number = self.history().begin(|_| change);
        let outcome = match ask(number) {
            Ok(()) => Outcome::Done,
            Err(error) if refused_as == Some(error.kind()) => Outcome::Refused,
            Err(error) if error.kind() == ErrorKind::NotFound => Outcome::Missing,
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
    fn read(&self, whom: Whom, db: &Db) -> Shown {
        self.snapshot(whom, db).map(|(_, shown)| shown).unwrap_or_default()
    }

    /// A snapshot, if there is a table, and what it shows.
    fn snapshot(&self, whom: Whom, db: &Db) -> Option<(TableSnapshot, Shown)> {
        let begun = self.history().tick();
        if whom == Whom::Follower {
            db.refresh().unwrap();
        }
        let snapshot = db.snapshot(TABLE);
        let limit_ns = self.plan.keep_ns.map(|keep_ns| self.clock.now_ns() - keep_ns);
        let ended = self.history().tick();
        let shown = shown_by(snapshot.clone());
        let span = Span { begun, ended, limit_ns: limit_ns.unwrap_or(i64::MIN) };
        self.history().check(whom, span, &shown);
        snapshot.ok().map(|snapshot| (snapshot, shown))
    }
}

/// What a snapshot shows: nothing if there is no table.
fn shown_by(snapshot: Result<TableSnapshot>) -> Shown {
    match snapshot {
        Ok(snapshot) => Shown::of(&snapshot),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            Shown::default()
        }
    }
}

/// Opens a database, with its objects elsewhere if the plan says so.
fn open(plan: &Plan, disk: &MemDisk, objects: &MemDisk, clock: &Arc<ManualClock>) -> Result<Db> {
    let (disk, options) = (Arc::new(disk.clone()), options(plan, clock));
    if !plan.is_apart {
        return Db::open_on(disk, options);
    }
    let store = LocalIo::open(Arc::new(objects.clone()), &["manifest", "objects", "reached"])?;
    Db::open_apart(disk, Arc::new(ReadAhead::new(Arc::new(store), PARALLEL, 1 << 20)), options)
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

fn name(sensor: u32) -> String {
    format!("s{sensor}")
}

fn sensor_tag(keys: Vec<u32>) -> TagColumn {
    let values = StringArray::from_iter_values((0..SENSORS).map(name));
    TagColumn { name: "sensor".into(), values, keys: keys.into() }
}

fn values(value: i64, rows: usize) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value; rows]))
}
