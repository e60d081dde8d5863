//! Damaged logs and lost objects: a repair says what is lost, keeps all else and the damaged files, and may be cut
//! off at any step.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::store::{Disk, DiskEntry};
use tidefall_storage::{Ack, Db, Repair, RepairReport, Target};
use tidefall_types::{ErrorKind, ManualClock, NS_PER_DAY, Result, TimeRange};

use crate::asking::{ask, open, options, read};
use crate::history::{Op, Rows, START_NS};
use crate::image::files;

const PLANT: &str = "plant";
/// Bytes of the header of a log file.
const HEADER: usize = 40;
const WRITES: i64 = 30;

/// A write or delete, and where its frame lies.
struct Entry {
    file: String,
    bytes: Range<usize>,
    sensor: u8,
    /// None of a delete of all rows of the sensor.
    time: Option<i64>,
}

/// A closed database whose rows are in several files of the log.
struct Written {
    disk: MemDisk,
    clock: Arc<ManualClock>,
    entries: Vec<Entry>,
}

fn row(sensor: u8, time: i64) -> Rows {
    Rows::from([((sensor, time), (Some(f64::from(sensor)), Some(time)))])
}

fn log_sizes(disk: &MemDisk) -> BTreeMap<String, usize> {
    let logs = files(disk).into_iter().filter(|(name, _)| name.starts_with("wal/"));
    logs.map(|(name, bytes)| (name, bytes.len())).collect()
}

impl Written {
    fn new() -> Self {
        let mut rng = SmallRng::seed_from_u64(7);
        let clock = Arc::new(ManualClock::new(START_NS));
        let mut written = Self { disk: MemDisk::new(), clock, entries: Vec::new() };
        let mut db = written.open().unwrap();
        for number in 0..WRITES {
            if number % 7 == 6 {
                db.close().unwrap();
                db = written.open().unwrap();
            }
            // New ones all the time, and old ones between them.
            let sensor = rng.random_range(0..=number as u8 / 2);
            let time = START_NS + number;
            let op = Op::Write(PLANT, row(sensor, time), Ack::Durable);
            written.put(&db, &op, sensor, Some(time));
        }
        let sensor = written.entries[WRITES as usize - 1].sensor;
        let delete = Op::Delete(PLANT, Some(sensor), TimeRange::ALL);
        written.put(&db, &delete, sensor, None);
        written.put(&db, &Op::Write(PLANT, row(sensor, 1), Ack::Durable), sensor, Some(1));
        db.close().unwrap();
        assert!(log_sizes(&written.disk).len() > 3);
        written
    }

    fn open(&self) -> Result<Db> {
        open(self.disk.clone(), &self.clock)
    }

    fn put(&mut self, db: &Db, op: &Op, sensor: u8, time: Option<i64>) {
        let before = log_sizes(&self.disk);
        ask(db, op).unwrap().unwrap();
        let size_before = |file: &String| before.get(file).copied().unwrap_or(HEADER);
        let (file, bytes) = log_sizes(&self.disk)
            .into_iter()
            .map(|(file, size)| (size_before(&file)..size, file))
            .find_map(|(bytes, file)| (!bytes.is_empty()).then_some((file, bytes)))
            .unwrap();
        self.entries.push(Entry { file, bytes, sensor, time });
    }

    /// The rows that are left when frames are lost: those in other frames, of sensors that those name.
    fn without(&self, is_lost: impl Fn(&Entry) -> bool) -> Vec<(u8, i64)> {
        let mut rows: Vec<(u8, i64)> = Vec::new();
        for entry in self.entries.iter().filter(|entry| !is_lost(entry)) {
            // A sensor is named by its first record.
            let named = self.entries.iter().find(|other| other.sensor == entry.sensor);
            match entry.time {
                None => rows.retain(|(sensor, _)| *sensor != entry.sensor),
                Some(time) if !is_lost(named.unwrap()) => rows.push((entry.sensor, time)),
                Some(_) => {}
            }
        }
        rows.sort_unstable();
        rows
    }

    fn with_file(&self, name: &str, bytes: Option<&[u8]>) -> Self {
        let disk = MemDisk::new();
        for (other, bytes) in files(&self.disk).iter().filter(|(other, _)| *other != name) {
            disk.place(other, bytes);
        }
        if let Some(bytes) = bytes {
            disk.place(name, bytes);
        }
        let clock = Arc::clone(&self.clock);
        Self { disk, clock, entries: Vec::new() }
    }

    fn repair(&self, how: Repair) -> Result<RepairReport> {
        Db::repair_on(Arc::new(self.disk.clone()), options(&self.clock), how)
    }

    fn rows(&self) -> Vec<(u8, i64)> {
        read(&self.open().unwrap(), PLANT).unwrap().into_keys().collect()
    }

    /// Repairs this damaged database, of which these rows should remain. Returns whether that was needed.
    fn check(&self, wanted: &[(u8, i64)], what: &str) -> bool {
        let before = files(&self.disk);
        let look = self.repair(Repair::Look).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(files(&self.disk) == before && look.kept_in.is_none(), "{what}: a look changes");
        let copy = self.with_file("", None);
        let error = match copy.open().map(drop) {
            Ok(()) => {
                assert_eq!((look.losses, copy.rows()), (Vec::new(), wanted.to_vec()), "{what}");
                return false;
            }
            Err(error) => error,
        };
        assert!(error.message().contains("tidefall repair"), "{what}: {error}");
        assert!(!look.losses.is_empty(), "{what}: nothing is lost, but {error}");
        let mended = self.repair(Repair::Mend).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(mended.losses, look.losses, "{what}");
        for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with("wal/")) {
            let kept = self.disk.contents(&format!("damaged/1/{name}"));
            assert!(kept.as_ref() == Some(bytes), "{what}: {name} was not kept");
        }
        self.check_mended(wanted, what);
        true
    }

    fn check_mended(&self, wanted: &[(u8, i64)], what: &str) {
        assert_eq!(self.rows(), wanted, "{what}");
        assert_eq!(self.repair(Repair::Look).unwrap().losses, [], "{what}");
        // New sensors and rows take no numbers of lost ones.
        let db = self.open().unwrap();
        for sensor in [200, 201] {
            let write = Op::Write(PLANT, row(sensor, 5), Ack::Durable);
            ask(&db, &write).unwrap().unwrap();
        }
        let disk = self.disk.crash(1);
        drop(db);
        let killed = Self { disk, clock: Arc::clone(&self.clock), entries: Vec::new() };
        let wanted = [wanted, &[(200, 5), (201, 5)]].concat();
        assert_eq!(killed.rows(), wanted, "{what}");
        let db = killed.open().unwrap();
        ask(&db, &Op::Cascade(Target::Long)).unwrap().unwrap();
        assert_eq!(db.verify().unwrap().damages, []);
        drop(db);
        assert_eq!(killed.rows(), wanted, "{what}");
    }
}

#[test]
fn of_a_damaged_log_everything_is_kept_that_is_not_hit() {
    let written = Written::new();
    let mut mended = 0;
    for (name, bytes) in files(&written.disk).iter().filter(|(name, _)| name.starts_with("wal/")) {
        for at in (0..bytes.len()).step_by(13) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x41;
            let is_hit =
                |entry: &Entry| entry.file == *name && (at < HEADER || entry.bytes.contains(&at));
            let damaged = written.with_file(name, Some(&flipped));
            let what = format!("{name} is changed at {at}");
            mended += u64::from(damaged.check(&written.without(is_hit), &what));

            let is_cut =
                |entry: &Entry| entry.file == *name && (at < HEADER || entry.bytes.end > at);
            let damaged = written.with_file(name, Some(&bytes[..at]));
            let what = format!("{name} is cut at {at}");
            mended += u64::from(damaged.check(&written.without(is_cut), &what));
        }
        let is_gone = |entry: &Entry| entry.file == *name;
        let damaged = written.with_file(name, None);
        assert!(damaged.check(&written.without(is_gone), &format!("{name} is gone")));
    }
    println!("{mended} logs mended");
    assert!(mended > 100, "only {mended} logs were mended");
}

/// A log with damage in the middle, and the rows that remain.
fn damaged() -> (Written, Vec<(u8, i64)>) {
    let written = Written::new();
    let hit = &written.entries[10];
    let mut bytes = written.disk.contents(&hit.file).unwrap();
    bytes[hit.bytes.start + 3] ^= 1;
    let damaged = written.with_file(&hit.file, Some(&bytes));
    let is_hit = |entry: &Entry| entry.file == hit.file && entry.bytes == hit.bytes;
    (damaged, written.without(is_hit))
}

#[test]
fn a_loss_is_named_with_file_bytes_and_records() {
    let (damaged, _) = damaged();
    let report = damaged.repair(Repair::Look).unwrap();
    let first = &report.losses[0];
    assert!(first.place.starts_with("wal/") && first.place.contains(", bytes "), "{first}");
    for part in ["there is no frame", "behind record", "before record"] {
        assert!(first.what.contains(part), "{first}");
    }
    assert!(report.records > 20 && report.rows > 20, "{report:?}");
}

#[test]
fn power_loss_at_any_step_of_a_repair_loses_no_more() {
    let (damaged, wanted) = damaged();
    for step in 0.. {
        let copy = damaged.with_file("", None);
        copy.disk.lose_power_after(step);
        let is_done = copy.repair(Repair::Mend).is_ok();
        for seed in 0..8 {
            let disk = copy.disk.crash(seed);
            let found = Written { disk, clock: Arc::clone(&copy.clock), entries: Vec::new() };
            let what = format!("step {step}, seed {seed}");
            if found.with_file("", None).open().is_err() {
                found.repair(Repair::Mend).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            found.check_mended(&wanted, &what);
        }
        if is_done {
            assert!(step > 15, "only {step} steps");
            break;
        }
    }
}

#[test]
fn a_repair_that_finds_the_disk_full_or_failing_may_be_tried_again() {
    for fault in [Fault::DiskFull, Fault::WriteError, Fault::SyncError, Fault::NameError] {
        for skip in 0.. {
            let (damaged, wanted) = damaged();
            let faulty = FaultDisk::new(Arc::new(damaged.disk.clone()), skip);
            faulty.arm(fault, skip, Times::Once);
            let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
            let outcome = Db::repair_on(disk, options(&damaged.clock), Repair::Mend);
            if faulty.fired() == 0 {
                break;
            }
            if let Err(error) = outcome {
                let kinds = [ErrorKind::Full, ErrorKind::Io];
                assert!(kinds.contains(&error.kind()), "{fault:?}: {error}");
                if damaged.with_file("", None).open().is_err() {
                    damaged.repair(Repair::Mend).unwrap();
                }
            }
            damaged.check_mended(&wanted, &format!("{fault:?} at {skip}"));
        }
    }
}

#[test]
fn a_whole_database_needs_no_repair() {
    let written = Written::new();
    let before = files(&written.disk);
    let report = written.repair(Repair::Mend).unwrap();
    assert_eq!((report.losses, report.kept_in), (Vec::new(), None));
    assert!(files(&written.disk) == before);
    assert!(written.disk.list("damaged").unwrap().is_empty());
}

#[test]
fn objects_that_are_gone_are_given_up_and_others_kept() {
    let mut written = Written { entries: Vec::new(), ..Written::new() };
    written.disk = MemDisk::new();
    let db = written.open().unwrap();
    let old = START_NS - 400 * NS_PER_DAY;
    for (sensor, time) in [(1, old), (2, old), (1, START_NS)] {
        ask(&db, &Op::Write(PLANT, row(sensor, time), Ack::Durable)).unwrap().unwrap();
    }
    ask(&db, &Op::Cascade(Target::ByAge)).unwrap().unwrap();
    db.close().unwrap();
    let long = files(&written.disk).into_keys().find(|name| name.ends_with(".long")).unwrap();
    let whole = written.disk.contents(&long).unwrap();
    for bytes in [None, Some(&whole[..whole.len() - 1])] {
        let damaged = written.with_file(&long, bytes);
        assert!(read(&damaged.open().unwrap(), PLANT).is_err());
        let report = damaged.repair(Repair::Mend).unwrap();
        let [loss] = &report.losses[..] else { panic!("{report:?}") };
        assert_eq!(loss.place, long);
        assert!(loss.what.contains("2 rows of table plant, of times in 2023-02"), "{loss}");
        assert_eq!(damaged.rows(), [(1, START_NS)]);
        let kept = damaged.disk.contents(&format!("damaged/1/{long}"));
        assert_eq!(kept.as_deref(), bytes);
    }
    let entries = written.disk.list("damaged").unwrap();
    assert!(!entries.iter().any(|entry| matches!(entry, DiskEntry::Dir(_))), "{entries:?}");
}

#[test]
fn a_damaged_manifest_is_named_and_nothing_is_changed() {
    let written = Written::new();
    let last =
        |end: &str| files(&written.disk).into_keys().rfind(|name| name.ends_with(end)).unwrap();
    let (delta, checkpoint) = (last(".delta"), last(".checkpoint"));
    let damaged = written.with_file(&delta, Some(b"gone"));
    damaged.disk.place(&checkpoint, b"gone");
    let before = files(&damaged.disk);
    let error = damaged.repair(Repair::Mend).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("manifest/") && error.message().contains("copy"), "{error}");
    assert!(files(&damaged.disk) == before);
}

/// A copy that lost the manifest, or all of it but the directory: what the manifest named is nothing to be swept away.
#[test]
fn a_database_without_its_manifest_is_not_a_new_one() {
    let written = Written::new();
    for objects_too in [false, true] {
        let disk = MemDisk::new();
        for (name, bytes) in files(&written.disk) {
            if !name.starts_with("manifest/") && (!name.starts_with("objects/") || objects_too) {
                disk.place(&name, &bytes);
            }
        }
        let before = files(&disk);
        let lost = Written { disk, clock: Arc::clone(&written.clock), entries: Vec::new() };
        let errors = [
            lost.open().map(|_| ()).unwrap_err(),
            Db::open_read_only_on(Arc::new(lost.disk.clone()), options(&lost.clock))
                .map(|_| ())
                .unwrap_err(),
            lost.repair(Repair::Mend).map(|_| ()).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.message().contains("restore"), "{error}");
        }
        assert!(files(&lost.disk) == before);
    }
}
