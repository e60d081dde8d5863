//! What a damaged object keeps from moving: itself. Other days, months and run files of its table go on, and which write is
//! the later one stays what it was.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::store::{Disk, DiskEntry};
use tidefall_storage::{
    CascadeRequest, Db, DbOptions, Model, TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    Clock, ErrorKind, FieldColumn, FieldId, ManualClock, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE,
    TimeRange, WriteBatch,
};

use crate::asking::{open, options};
use crate::hooks::{Does, HookDisk};
use crate::{checked, rounds, sensor_tag};

const TABLE: &str = "plant";
const SENSORS: u32 = 3;
/// 2024-01-25.
const NOW_NS: i64 = 19_747 * NS_PER_DAY;

/// The latest value of each sensor at each time.
type Rows = BTreeMap<(u32, i64), i64>;

struct World {
    disk: MemDisk,
    clock: Arc<ManualClock>,
    db: Option<Db>,
    rows: Rows,
    next: i64,
    /// What a damaged file was before.
    whole: Option<(String, Vec<u8>)>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            disk: MemDisk::new(),
            clock: Arc::new(ManualClock::new(NOW_NS)),
            db: None,
            rows: Rows::new(),
            next: 0,
            whole: None,
        };
        world.reopen();
        world
    }

    fn reopen(&mut self) {
        if let Some(db) = self.db.take() {
            db.close().unwrap();
        }
        self.db = Some(open(self.disk.clone(), &self.clock).unwrap());
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    /// Writes a new value of each sensor at each of some times, and has it become an object of its own. Returns the name.
    fn object(&mut self, times: &[i64]) -> String {
        let before = self.objects();
        let (mut time, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for at in times {
            for sensor in 0..SENSORS {
                self.next += 1;
                self.rows.insert((sensor, *at), self.next);
                time.push(*at);
                keys.push(sensor);
                values.push(self.next);
            }
        }
        let values = Arc::new(Int64Array::from(values)) as ArrayRef;
        let fields = vec![FieldColumn { name: "value".into(), values }];
        let batch = WriteBatch { time: time.into(), tags: vec![sensor_tag(SENSORS, keys)], fields };
        let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
        self.db().write(TABLE, &batch, &options).unwrap();
        self.db().flush().unwrap();
        self.objects().into_iter().find(|name| !before.contains(name)).unwrap()
    }

    /// The files of objects with readings.
    fn objects(&self) -> Vec<String> {
        let name = |entry| match entry {
            DiskEntry::File { name, .. } => Some(name),
            DiskEntry::Dir(_) => None,
        };
        let names = self.disk.list("objects").unwrap().into_iter().filter_map(name);
        names.filter(|name| !name.ends_with(".sensors") && !name.ends_with(".tmp")).collect()
    }

    /// Flips a byte of an object, by default in the first page of the first sensor.
    fn damage(&mut self, name: &str, byte: Option<usize>) {
        let whole = self.disk.contents(name).unwrap();
        let mut bytes = whole.clone();
        bytes[byte.unwrap_or(24 + 8)] ^= 4;
        self.disk.place(name, &bytes);
        self.whole = Some((name.to_owned(), whole));
        self.reopen();
    }

    fn mend(&mut self) {
        let (name, bytes) = self.whole.take().unwrap();
        if self.disk.contents(&name).is_some() {
            self.disk.place(&name, &bytes);
        }
        self.reopen();
    }

    /// Objects of a model.
    fn count(&self, model: Model) -> u64 {
        let tables = self.db().inspect().unwrap();
        tables[0].models.iter().find(|found| found.model == model).unwrap().objects
    }

    /// Moves readings, which ends with the error of the damaged object.
    fn cascade_fails(&self, target: Target, name: &str) {
        let error = self.db().cascade(&CascadeRequest { table: None, target }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains(name), "{error}");
    }

    /// Checks the readings of a sensor within a stretch of time.
    fn check(&self, sensor: u32, time: TimeRange) {
        let snapshot = self.db().snapshot(TABLE).unwrap();
        let filter = TagFilter::Eq { tag: "sensor".into(), value: format!("s{sensor}") };
        let number = snapshot.resolve(&filter).unwrap().min().unwrap();
        let series = snapshot.read_sensor(number, &time, &[FieldId(0)]).unwrap();
        let values = series.fields[0].as_primitive::<Int64Type>().values();
        let found: Vec<(i64, i64)> =
            series.time.iter().copied().zip(values.iter().copied()).collect();
        let of_sensor = self.rows.range((sensor, time.first_ns)..=(sensor, time.last_ns));
        assert_eq!(found, of_sensor.map(|((_, at), value)| (*at, *value)).collect::<Vec<_>>());
    }

    fn check_all(&self) {
        (0..SENSORS).for_each(|sensor| self.check(sensor, TimeRange::ALL));
        assert_eq!(self.db().verify().unwrap().damages, []);
    }
}

/// A reading each hour of a day.
fn hours(day: i64) -> Vec<i64> {
    (0..24).map(|hour| NOW_NS + day * NS_PER_DAY + hour * NS_PER_HOUR).collect()
}

/// A day that could not be read kept the parts of all others of its table apart, and all months from moving.
#[test]
fn a_damaged_day_keeps_no_other_day_and_no_month() {
    let mut world = World::new();
    let damaged = world.object(&hours(-15));
    world.object(&hours(-15));
    world.object(&hours(-13));
    world.object(&hours(-13));
    world.damage(&damaged, None);
    assert_eq!(world.count(Model::Short), 4);
    for _ in 0..3 {
        world.cascade_fails(Target::ByAge, &damaged);
        assert_eq!(world.count(Model::Short), 3, "the other day is still in parts");
    }
    // In a month of its own.
    world.clock.set(NOW_NS + 30 * NS_PER_DAY);
    world.object(&hours(20));
    assert_eq!(world.count(Model::Short), 4);
    world.clock.set(NOW_NS + 100 * NS_PER_DAY);
    for target in [Target::ByAge, Target::Long] {
        world.cascade_fails(target, &damaged);
        assert_eq!(world.count(Model::Short), 1, "all but the damaged part moves");
    }
    let day = TimeRange::new(NOW_NS - 15 * NS_PER_DAY, NOW_NS - 14 * NS_PER_DAY - 1);
    world.check(0, TimeRange::new(day.last_ns + 1, i64::MAX));
    (1..SENSORS).for_each(|sensor| world.check(sensor, TimeRange::ALL));
    world.mend();
    world.check_all();
    world.db().cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    assert_eq!((world.count(Model::Short), world.count(Model::Long)), (0, 1));
    world.check_all();
}

/// The upkeep looks every minute, and does not read for nothing what cannot be read.
#[test]
fn the_upkeep_leaves_what_is_damaged_alone() {
    const PAUSE: Duration = Duration::from_millis(5);
    let mut world = World::new();
    let damaged = world.object(&hours(-15));
    (0..3).for_each(|number| drop(world.object(&hours([-15, -13, -13][number]))));
    world.damage(&damaged, None);
    world.db.take().unwrap().close().unwrap();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let hooked = HookDisk::new(world.disk.clone(), move |does, name| {
        let is_read = does == Does::Read && name == damaged;
        counted.fetch_add(usize::from(is_read), Ordering::SeqCst);
    });
    let options = DbOptions { cascade_pause: PAUSE, ..options(&world.clock) };
    world.db = Some(Db::open_on(Arc::new(hooked), options).unwrap());
    let is_one = || world.count(Model::Short) == 3;
    let tries = (0..2_000).take_while(|_| !is_one()).map(|_| sleep(PAUSE)).count();
    assert!(tries < 2_000, "the other day is still in parts");
    let before = reads.load(Ordering::SeqCst);
    sleep(40 * PAUSE);
    assert!(before > 0 && reads.load(Ordering::SeqCst) == before, "it is read again and again");
}

/// Every flush left one more run file, as none could be laid together with the one that could not be read.
#[test]
fn run_files_behind_a_damaged_one_do_not_pile_up() {
    const FLUSHES: i64 = 60;
    let mut world = World::new();
    let times = |number: i64| {
        let minutes = (0..30).map(move |minute| (number * 7 + minute) % 600);
        minutes.map(|minute| NOW_NS + minute * NS_PER_MINUTE).collect::<Vec<_>>()
    };
    (0..5).for_each(|number| drop(world.object(&times(number))));
    let damaged = world.object(&times(5));
    world.damage(&damaged, None);
    for number in 6..FLUSHES {
        world.object(&times(number));
        // Whether they are few enough to be left alone, or move without the damaged one.
        let _ = world.db().cascade(&CascadeRequest { table: None, target: Target::ByAge });
    }
    let files = world.count(Model::Kv);
    assert!(files < 20, "{files} run files");
    (1..SENSORS).for_each(|sensor| world.check(sensor, TimeRange::ALL));
    world.clock.set(NOW_NS + 5 * NS_PER_DAY);
    for _ in 0..2 {
        world.cascade_fails(Target::ByAge, &damaged);
        assert_eq!(world.count(Model::Kv), 1, "all but the damaged one move");
    }
    (1..SENSORS).for_each(|sensor| world.check(sensor, TimeRange::ALL));
    world.mend();
    world.db().cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    assert_eq!((world.count(Model::Kv), world.count(Model::Short)), (0, 1));
    world.check_all();
}

/// One that was put back is taken when that is asked for, and at the latest when the database is opened again.
#[test]
fn an_object_that_was_put_back_moves() {
    let mut world = World::new();
    let damaged = world.object(&hours(-15));
    world.object(&hours(-15));
    world.damage(&damaged, None);
    world.cascade_fails(Target::ByAge, &damaged);
    let (name, whole) = world.whole.take().unwrap();
    // In place, as the open file is known.
    let file = world.disk.open_write(&name).unwrap();
    file.write_at(0, &whole).unwrap();
    world.db().cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    assert_eq!(world.count(Model::Short), 1);
    world.check_all();
}

/// Whatever could not be read for some time: when it can, all values are those that were written last.
#[test]
fn what_moves_around_damage_changes_no_value() {
    let errors = Cell::new(0);
    for seed in 0..rounds(60) {
        let check = || errors.set(errors.get() + move_around_damage(seed));
        checked(check, || format!("seed {seed}"));
    }
    println!("{} cascades ended with an error", errors.get());
    assert!(errors.get() > 0, "nothing was hit");
}

/// Returns how many cascades met the damage.
fn move_around_damage(seed: u64) -> usize {
    let mut errors = 0;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut world = World::new();
    let mut objects = Vec::new();
    let mut step = |world: &mut World, objects: &mut Vec<String>, may_fail: bool| {
        let first_day = rng.random_range(-70..1);
        // Days of one object and another are often the same.
        let days: Vec<i64> =
            (0..rng.random_range(1..4)).map(|day| (first_day + day) / 3 * 3).collect();
        let mut times: Vec<i64> = days.iter().flat_map(|day| hours(*day)).collect();
        times.retain(|_| rng.random_bool(0.5));
        if !times.is_empty() {
            objects.push(world.object(&times));
        }
        if rng.random_bool(0.3) {
            let target = [Target::ByAge, Target::ByAge, Target::Short, Target::Long];
            let target = target[rng.random_range(0..4)];
            let done = world.db().cascade(&CascadeRequest { table: None, target });
            assert!(may_fail || done.is_ok(), "{done:?}");
            errors += usize::from(done.is_err());
        }
        if rng.random_bool(0.1) {
            world.clock.set(world.clock.now_ns() + rng.random_range(1..20) * NS_PER_DAY);
        }
        rng.random::<u32>() as usize
    };
    for _ in 0..8 {
        step(&mut world, &mut objects, false);
    }
    let place = step(&mut world, &mut objects, false);
    // Nothing is laid together after an opening, and no object goes.
    world.reopen();
    let live = world.objects();
    let hit = live[place % live.len()].clone();
    let length = world.disk.contents(&hit).unwrap().len();
    world.damage(&hit, Some(24 + place / 64 % (length - 24)));
    for _ in 0..12 {
        step(&mut world, &mut objects, true);
    }
    world.mend();
    world.check_all();
    world.db().cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    assert_eq!(world.count(Model::Long), 1);
    world.check_all();
    errors
}
