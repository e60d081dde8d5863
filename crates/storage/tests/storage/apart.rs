//! Which log goes with objects that lie elsewhere: no log that is needed is left out in silence, and none is read behind what others have written.

use std::sync::{Arc, Mutex};

use tidefall_simulation::{Fault, FaultDisk, MemDisk, RemoteIo, Times};
use tidefall_storage::store::{Disk, DiskEntry, LocalIo, ObjectIo};
use tidefall_storage::{Db, DbOptions, MissingLog, Repair, Unknown, WriteOptions};
use tidefall_types::{Error, ErrorKind, ManualClock, NS_PER_DAY, Result, WriteBatch};

use crate::hooks::{Does, HookDisk};
use crate::sensor_tag;
use crate::small::{self, batch_of};

const TABLE: &str = "plant";
const NOW_NS: i64 = 19_700 * NS_PER_DAY;

fn options(missing_log: MissingLog) -> DbOptions {
    let clock = Arc::new(ManualClock::new(NOW_NS));
    DbOptions { clock, threads: 1, missing_log, ..DbOptions::default() }
}

fn objects_on(disk: impl Disk + 'static) -> Result<Arc<dyn ObjectIo>> {
    Ok(Arc::new(LocalIo::open(Arc::new(disk), &["manifest", "objects", "reached"])?))
}

fn try_open(log: &MemDisk, objects: impl Disk + 'static, missing_log: MissingLog) -> Result<Db> {
    Db::open_apart(Arc::new(log.clone()), objects_on(objects)?, options(missing_log))
}

fn open(log: &MemDisk, objects: &MemDisk) -> Db {
    try_open(log, objects.clone(), MissingLog::Refuse).unwrap()
}

fn refused(log: &MemDisk, objects: &MemDisk, missing_log: MissingLog) -> Error {
    let error = try_open(log, objects.clone(), missing_log).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    error
}

fn give_up(log: &MemDisk, objects: &MemDisk) -> Db {
    try_open(log, objects.clone(), MissingLog::GiveUp).unwrap()
}

/// What is found when the process was killed.
fn killed(db: Db, log: &MemDisk, objects: &MemDisk) -> (MemDisk, MemDisk) {
    let found = (log.crash(1), objects.crash(1));
    drop(db);
    found
}

fn rows(db: &Db) -> Vec<(i64, i64)> {
    small::read(db, TABLE)
}

fn write(db: &Db, rows: &[(i64, i64)]) {
    small::write(db, TABLE, rows);
}

/// A database with some rows in its objects, and others in its log alone.
fn begun(in_objects: &[(i64, i64)], in_log: &[(i64, i64)]) -> (Db, MemDisk, MemDisk) {
    let (log, objects) = (MemDisk::new(), MemDisk::new());
    let db = open(&log, &objects);
    if !in_objects.is_empty() {
        write(&db, in_objects);
        db.flush().unwrap();
    }
    if !in_log.is_empty() {
        write(&db, in_log);
    }
    (db, log, objects)
}

/// The same, behind the kill of its process.
fn left(in_objects: &[(i64, i64)], in_log: &[(i64, i64)]) -> (MemDisk, MemDisk) {
    let (db, log, objects) = begun(in_objects, in_log);
    killed(db, &log, &objects)
}

fn names_in(disk: &MemDisk, dir: &str) -> Vec<String> {
    let names = disk.list(dir).unwrap().into_iter().filter_map(|entry| match entry {
        DiskEntry::File { name, .. } => Some(name),
        DiskEntry::Dir(_) => None,
    });
    names.collect()
}

/// The numbers that a log has.
fn ids(log: &MemDisk) -> Vec<String> {
    let mut names = names_in(log, "wal");
    names.retain(|name| name.ends_with(".id"));
    names
}

/// The number of another log was in the manifest before that had been read, and the log with the rows was refused from then on.
#[test]
fn a_log_that_is_needed_is_not_burnt_by_another() {
    let (db, log, objects) = begun(&[], &[(1, 1), (2, 2)]);
    db.close().unwrap();
    let other = MemDisk::new();
    let error = refused(&other, &objects, MissingLog::Refuse);
    assert!(error.message().contains("missing_log") && error.message().contains(".id"), "{error}");
    refused(&other, &objects, MissingLog::Refuse);
    assert_eq!(rows(&open(&log, &objects)), [(1, 1), (2, 2)]);
}

#[test]
fn a_store_that_fails_a_read_of_an_open_leaves_the_log_before() {
    let mut failures = 0;
    for skip in 0.. {
        let (db, log, objects) = begun(&[(1, 1)], &[(2, 2)]);
        db.close().unwrap();
        let failing = FaultDisk::new(Arc::new(objects.clone()), 1);
        failing.arm(Fault::ReadError, skip, Times::Once);
        let opened = try_open(&MemDisk::new(), failing.clone(), MissingLog::GiveUp);
        let has_failed = failing.fired() > 0;
        failing.disarm();
        if !has_failed {
            assert_eq!(rows(&opened.unwrap()), [(1, 1)]);
            break;
        }
        // A table whose sensors cannot be read now is shown as damaged.
        if opened.is_err() {
            failures += 1;
            assert_eq!(rows(&open(&log, &objects)), [(1, 1), (2, 2)], "read {skip}");
        }
    }
    assert!(failures > 1, "{failures}");
}

/// The log disk is not there, or it was another one by mistake: rows were gone without a word.
#[test]
fn an_empty_log_does_not_stand_for_one_that_may_be_needed() {
    for flushes in [false, true] {
        let in_log: &[(i64, i64)] = if flushes { &[] } else { &[(2, 2)] };
        let (log, objects) = left(&[(1, 1)], in_log);
        let other = MemDisk::new();
        refused(&other, &objects, MissingLog::Refuse);
        let expected: &[(i64, i64)] = if flushes { &[(1, 1)] } else { &[(1, 1), (2, 2)] };
        let db = open(&log, &objects);
        assert_eq!(rows(&db), expected);
        let (log, objects) = killed(db, &log, &objects);
        // Its disk is lost.
        let db = give_up(&other, &objects);
        assert_eq!(rows(&db), [(1, 1)]);
        write(&db, &[(3, 3)]);
        let (other, objects) = killed(db, &other, &objects);
        // It is found again.
        refused(&log, &objects, MissingLog::Refuse);
        if !flushes {
            refused(&log, &objects, MissingLog::GiveUp);
        }
        assert_eq!(rows(&open(&other, &objects)), [(1, 1), (3, 3)]);
    }
}

#[test]
fn a_log_of_which_nothing_is_needed_gives_way() {
    let (logs, objects) = ([MemDisk::new(), MemDisk::new()], MemDisk::new());
    let mut expected = Vec::new();
    for round in 0..6 {
        let db = open(&logs[round % 2], &objects);
        let row = (round as i64, 10);
        write(&db, &[row]);
        expected.push(row);
        assert_eq!(rows(&db), expected);
        db.flush().unwrap();
        db.close().unwrap();
    }
    // Nor does it give way once it was opened again.
    let db = open(&logs[1], &objects);
    let (_, objects) = killed(db, &logs[1], &objects);
    refused(&logs[0], &objects, MissingLog::Refuse);
}

/// Files that a crash had left were there still, and looked like those of a writer that was overtaken.
#[test]
fn a_log_that_gives_way_has_no_records() {
    let (db, log, objects) = begun(&[], &[(1, 1)]);
    // Killed behind the commit of a flush, before the log was cut.
    let uncut = log.crash(1);
    db.flush().unwrap();
    let (_, objects) = killed(db, &log, &objects);
    open(&uncut, &objects).close().unwrap();
    let other = MemDisk::new();
    open(&other, &objects).close().unwrap();
    assert_eq!(rows(&open(&uncut, &objects)), [(1, 1)]);
}

/// A row of a sensor of its own.
fn row_of(sensor: u32) -> WriteBatch {
    WriteBatch { tags: vec![sensor_tag(100, vec![sensor])], ..batch_of(&[(i64::from(sensor), 1)]) }
}

fn write_sensor(db: &Db, sensor: u32) {
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write(TABLE, &row_of(sensor), &options).unwrap();
}

/// Both had the number of the log that was copied: the records of one were read under the sensors of the other.
#[test]
fn copies_of_a_log_part_ways_when_they_are_opened() {
    let (log, objects) = (MemDisk::new(), MemDisk::new());
    let first = open(&log, &objects);
    write_sensor(&first, 1);
    first.flush().unwrap();
    let copy = log.crash(1);
    write_sensor(&first, 2);
    let second = open(&copy, &objects);
    write_sensor(&second, 3);
    second.flush().unwrap();
    drop((first, second));
    refused(&log, &objects, MissingLog::Refuse);
    let second = open(&copy, &objects);
    assert_eq!(rows(&second), [(1, 1), (3, 1)]);
    assert_eq!(ids(&copy).len(), 1);
}

#[test]
fn power_that_is_lost_while_a_log_is_opened_takes_it_nothing() {
    let (log, objects) = left(&[(1, 1)], &[(2, 2)]);
    let mut are_done = [false; 2];
    for steps in 0.. {
        for seed in 0..6 {
            for place in 0..2 {
                let disks = [log.crash(seed), objects.crash(seed)];
                disks[place].lose_power_after(steps);
                let opened = try_open(&disks[0], disks[1].clone(), MissingLog::Refuse);
                are_done[place] = opened.is_ok();
                let found = disks.each_ref().map(|disk| disk.crash(seed));
                drop(opened);
                // Also if that is cut short.
                found[0].lose_power_after(2);
                drop(try_open(&found[0], found[1].clone(), MissingLog::Refuse));
                found[0].go_on();
                let again = try_open(&found[0], found[1].clone(), MissingLog::Refuse)
                    .unwrap_or_else(|error| panic!("place {place}, {steps} steps: {error}"));
                assert_eq!(rows(&again), [(1, 1), (2, 2)], "place {place}, {steps} steps");
                assert_eq!(ids(&found[0]).len(), 1);
            }
        }
        if are_done == [true; 2] {
            assert!(steps > 4, "{steps}");
            return;
        }
    }
}

#[test]
fn files_of_a_log_that_were_moved_without_its_number_can_be_given_it() {
    let (log, objects) = left(&[], &[(1, 1)]);
    let moved = MemDisk::new();
    for name in names_in(&log, "wal").iter().filter(|name| name.ends_with(".log")) {
        moved.place(name, &log.contents(name).unwrap());
    }
    for missing_log in [MissingLog::Refuse, MissingLog::GiveUp] {
        let error = refused(&moved, &objects, missing_log);
        assert!(error.message().contains(&ids(&log)[0]), "{error}");
        assert!(error.message().contains("missing_log"), "{error}");
    }
    moved.place(&ids(&log)[0], &[]);
    assert_eq!(rows(&open(&moved, &objects)), [(1, 1)]);
}

#[test]
fn a_database_in_one_place_is_not_opened_with_another_log() {
    let disk = MemDisk::new();
    let together =
        |disk: &MemDisk, missing_log| Db::open_on(Arc::new(disk.clone()), options(missing_log));
    let db = together(&disk, MissingLog::Refuse).unwrap();
    write(&db, &[(1, 1)]);
    db.flush().unwrap();
    write(&db, &[(2, 2)]);
    let (disk, _) = killed(db, &disk, &disk);
    let other = MemDisk::new();
    refused(&other, &disk, MissingLog::Refuse);
    Db::repair_on(Arc::new(disk.clone()), options(MissingLog::Refuse), Repair::Mend).unwrap();
    refused(&other, &disk, MissingLog::Refuse);
    let db = together(&disk, MissingLog::Refuse).unwrap();
    assert_eq!(rows(&db), [(1, 1), (2, 2)]);
    let (disk, _) = killed(db, &disk, &disk);
    let db = give_up(&other, &disk);
    assert_eq!(rows(&db), [(1, 1)]);
    write(&db, &[(3, 3)]);
    let (other, disk) = killed(db, &other, &disk);
    let ways = [
        together(&disk, MissingLog::Refuse).map(drop),
        together(&disk, MissingLog::GiveUp).map(drop),
        Db::open_read_only_on(Arc::new(disk.clone()), options(MissingLog::Refuse)).map(drop),
        Db::repair_on(Arc::new(disk.clone()), options(MissingLog::Refuse), Repair::Look).map(drop),
    ];
    for (number, refused) in ways.into_iter().enumerate() {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{number}: {error}");
    }
    assert_eq!(rows(&open(&other, &disk)), [(1, 1), (3, 3)]);
}

/// A log that comes to its objects goes with them again, and nowhere else.
#[test]
fn a_log_that_lay_apart_may_come_to_its_objects() {
    let (log, objects) = left(&[], &[(1, 1)]);
    for name in names_in(&log, "wal") {
        objects.place(&name, &log.contents(&name).unwrap());
    }
    let read_only = Db::open_read_only_on(Arc::new(objects.clone()), options(MissingLog::Refuse));
    assert_eq!(rows(&read_only.unwrap()), [(1, 1)]);
    let together = Db::open_on(Arc::new(objects.clone()), options(MissingLog::Refuse)).unwrap();
    write(&together, &[(2, 2)]);
    let (_, objects) = killed(together, &log, &objects);
    refused(&log, &objects, MissingLog::Refuse);
    let together = Db::open_on(Arc::new(objects.clone()), options(MissingLog::Refuse)).unwrap();
    assert_eq!(rows(&together), [(1, 1), (2, 2)]);
    assert_eq!(ids(&objects), [""; 0]);
}

#[test]
fn a_full_log_disk_keeps_nobody_from_opening() {
    let (log, objects) = left(&[], &[(1, 1)]);
    let full = FaultDisk::new(Arc::new(log.clone()), 1);
    full.arm(Fault::DiskFull, 0, Times::Always);
    let store = objects_on(objects.clone()).unwrap();
    let options = options(MissingLog::Refuse);
    let db = Db::open_apart(Arc::new(full.clone()), store, options).unwrap();
    assert!(full.fired() > 0);
    assert_eq!(rows(&db), [(1, 1)]);
    full.disarm();
    write(&db, &[(2, 2)]);
    let (log, objects) = killed(db, &log, &objects);
    assert_eq!(rows(&open(&log, &objects)), [(1, 1), (2, 2)]);
}

#[test]
fn a_writer_that_begins_while_another_is_opened_is_the_only_one() {
    let (log, objects) = left(&[(1, 1)], &[]);
    let (other, later) = (MemDisk::new(), Arc::new(Mutex::new(None)));
    let overtake = {
        let (other, objects, later) = (other.clone(), objects.clone(), Arc::clone(&later));
        move || {
            let db = give_up(&other, &objects);
            write(&db, &[(2, 2)]);
            *later.lock().unwrap() = Some(db);
        }
    };
    let overtake = Mutex::new(Some(overtake));
    // The manifest was read by then.
    let hooked = HookDisk::new(objects.clone(), move |does, name| {
        let is_due = does == Does::Open && name.starts_with("objects/");
        let act = is_due.then(|| overtake.lock().unwrap().take());
        act.flatten().into_iter().for_each(|act| act());
    });
    let error = try_open(&log, hooked, MissingLog::Refuse).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let later = later.lock().unwrap().take().unwrap();
    write(&later, &[(3, 3)]);
    later.flush().unwrap();
    assert_eq!(rows(&later), [(1, 1), (2, 2), (3, 3)]);
    later.close().unwrap();
    assert_eq!(rows(&open(&other, &objects)), [(1, 1), (2, 2), (3, 3)]);
}

#[test]
fn power_that_is_lost_while_a_log_is_given_up_leaves_one_of_both() {
    let (db, log, objects) = begun(&[(1, 1)], &[(2, 2)]);
    db.close().unwrap();
    let mut were_taken = [0; 2];
    for steps in 0.. {
        let found = objects.crash(steps);
        found.lose_power_after(steps);
        let other = MemDisk::new();
        let opened = try_open(&other, found.clone(), MissingLog::GiveUp);
        let found = found.crash(steps);
        let is_done = opened.is_ok();
        drop(opened);
        match try_open(&log.crash(steps), found.clone(), MissingLog::Refuse) {
            Ok(db) => {
                assert_eq!(rows(&db), [(1, 1), (2, 2)], "{steps}");
                assert!(!is_done, "{steps}");
                were_taken[0] += 1;
            }
            Err(_) => {
                assert_eq!(rows(&open(&other, &found)), [(1, 1)], "{steps}");
                were_taken[1] += 1;
            }
        }
        if is_done {
            assert!(were_taken[0] > 1 && were_taken[1] > 0, "{were_taken:?}");
            return;
        }
    }
}

/// They stayed where they were for ever, and with them all that came later, as it was not said any more how far the manifest had come.
#[test]
fn objects_that_may_have_been_named_are_kept_aside_and_later_ones_deleted() {
    const STRAYS: [&str; 2] = ["objects/0000000000000099.long", "objects/0000000000000100.long"];
    let (db, log, objects) = begun(&[], &[(1, 1)]);
    db.flush().unwrap();
    let before = names_in(&objects, "reached");
    write(&db, &[(2, 2)]);
    db.flush().unwrap();
    let (log, objects) = killed(db, &log, &objects);
    // The process was killed before it could say so.
    names_in(&objects, "reached").iter().for_each(|name| objects.remove(name).unwrap());
    before.iter().for_each(|name| objects.place(name, &[]));
    let large = vec![7; 5 << 20];
    objects.place(STRAYS[0], &large);
    let db = open(&log, &objects);
    assert_eq!(rows(&db), [(1, 1), (2, 2)]);
    assert_eq!(objects.contents(STRAYS[0]), None);
    assert_eq!(objects.contents(&format!("damaged/1/{}", STRAYS[0])), Some(large));
    assert_ne!(names_in(&objects, "reached"), before);
    let (log, objects) = killed(db, &log, &objects);
    objects.place(STRAYS[1], b"left behind");
    let db = open(&log, &objects);
    assert_eq!(rows(&db), [(1, 1), (2, 2)]);
    assert_eq!(objects.contents(STRAYS[1]), None);
    assert!(names_in(&objects, "damaged/2/objects").is_empty());
}

/// Each open copied again what comes before an object that cannot be read.
#[test]
fn objects_are_kept_aside_once_however_often_that_fails() {
    const STRAYS: [&str; 2] = ["objects/0000000000000099.long", "objects/0000000000000100.long"];
    let (db, log, objects) = begun(&[(1, 1)], &[]);
    let (log, objects) = killed(db, &log, &objects);
    names_in(&objects, "reached").iter().for_each(|name| objects.remove(name).unwrap());
    let large = vec![7; 5 << 20];
    objects.place(STRAYS[0], b"small");
    objects.place(STRAYS[1], &large);
    let store = Arc::new(RemoteIo::new(objects_on(objects.clone()).unwrap()));
    // The second read of the large one.
    store.fail_reads_at(4 << 20);
    let copies = |of: &str| -> Vec<String> {
        let names = (1..9).map(|number| format!("damaged/{number}/{of}"));
        names.filter(|name| objects.contents(name).is_some()).collect()
    };
    let open_and_close = || {
        let options = options(MissingLog::Refuse);
        let db = Db::open_apart(Arc::new(log.clone()), store.clone(), options).unwrap();
        assert_eq!(rows(&db), [(1, 1)]);
        db.close().unwrap();
    };
    for _ in 0..3 {
        open_and_close();
        assert!(objects.contents(STRAYS[0]).is_some() && objects.contents(STRAYS[1]).is_some());
        assert_eq!(copies(STRAYS[0]).len(), 1, "{:?}", copies(STRAYS[0]));
        assert!(copies(STRAYS[1]).is_empty());
    }
    store.fail_reads_at(u64::MAX);
    open_and_close();
    assert!(objects.contents(STRAYS[0]).is_none() && objects.contents(STRAYS[1]).is_none());
    let [small, whole] = STRAYS.map(copies);
    assert!(small.len() == 1 && whole.len() == 1, "{small:?} {whole:?}");
    assert_eq!(objects.contents(&whole[0]), Some(large));
}
