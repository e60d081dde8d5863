//! A manifest that has lost its newest files: it is not taken for an older one, and what only they named stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::store::{Disk, DiskEntry};
use tidefall_storage::{Ack, Db, Repair, Target, Unknown, WriteOptions};
use tidefall_types::{Error, ErrorKind, FieldColumn, ManualClock};

use crate::asking::{ask, batch, open, options, read};
use crate::history::{Op, Rows, START_NS};

const PLANT: &str = "plant";
const OTHER: &str = "other";
const ROWS: i64 = 100;

type Files = BTreeMap<String, Vec<u8>>;

/// All files on a disk.
fn files(disk: &MemDisk) -> Files {
    let (mut found, mut dirs) = (Files::new(), vec![String::new()]);
    while let Some(dir) = dirs.pop() {
        for entry in disk.list(&dir).unwrap() {
            match entry {
                DiskEntry::Dir(name) => dirs.push(name),
                DiskEntry::File { name, .. } => {
                    let bytes = disk.contents(&name).unwrap();
                    found.insert(name, bytes);
                }
            }
        }
    }
    found
}

/// A copy of those files for which `stays` holds.
fn copy(files: &Files, stays: impl Fn(&str) -> bool) -> MemDisk {
    let disk = MemDisk::new();
    files.iter().filter(|(name, _)| stays(name)).for_each(|(name, bytes)| disk.place(name, bytes));
    disk
}

/// The version of a file of the manifest.
fn version(name: &str) -> Option<u64> {
    let name = name.strip_prefix("manifest/")?;
    name.split_once('.')?.0.parse().ok()
}

fn newest(files: &Files) -> u64 {
    files.keys().filter_map(|name| version(name)).max().unwrap()
}

/// Files of which those of the manifest behind version `upto` are lost.
fn upto(files: &Files, upto: u64) -> MemDisk {
    copy(files, |name| version(name).is_none_or(|version| version <= upto))
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START_NS))
}

fn rows(from: i64) -> Rows {
    (0..ROWS).map(|row| ((0, START_NS + from + row), (Some(1.5), Some(row)))).collect()
}

fn put(db: &Db, op: &Op) {
    ask(db, op).unwrap().unwrap();
}

/// A database all of whose readings are in objects, written in some steps; nothing is in the log.
fn written(disk: &MemDisk) -> Db {
    let db = open(disk.clone(), &clock()).unwrap();
    for from in [0, ROWS] {
        put(&db, &Op::Write(PLANT, rows(from), Ack::Durable));
        put(&db, &Op::Cascade(Target::Long));
    }
    db
}

/// A database with rows in the log, and the newest version of its manifest.
fn logged(disk: &MemDisk) -> (Db, u64) {
    let db = open(disk.clone(), &clock()).unwrap();
    put(&db, &Op::Write(PLANT, rows(0), Ack::Durable));
    (db, newest(&files(disk)))
}

fn count(db: &Db) -> usize {
    if db.schema(PLANT).is_err() { 0 } else { read(db, PLANT).unwrap().len() }
}

/// The objects in a directory, by their names within it.
fn objects<'a>(files: &'a Files, dir: &str) -> BTreeMap<&'a str, &'a [u8]> {
    let within =
        files.iter().filter_map(|(name, bytes)| Some((name.strip_prefix(dir)?, &bytes[..])));
    within.collect()
}

fn check_refused(error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    for part in ["manifest", "missing"] {
        assert!(error.message().contains(part), "{what}: {error}");
    }
}

#[test]
fn a_manifest_that_lost_its_newest_files_is_refused_and_nothing_is_changed() {
    for is_closed in [true, false] {
        let disk = MemDisk::new();
        let db = written(&disk);
        if is_closed {
            db.close().unwrap();
        }
        let all = files(&disk);
        // Without the first there is no manifest at all, which is an error of its own.
        for last in 1..newest(&all) {
            let what = format!("closed {is_closed}, up to {last}");
            let found = upto(&all, last);
            let before = files(&found);
            let lost_objects = objects(&all, "objects/").len();
            match open(found.clone(), &clock()) {
                Ok(db) => {
                    // What came behind it named no object: all is there.
                    assert!(!is_closed, "{what}");
                    assert_eq!(objects(&files(&found), "objects/").len(), lost_objects, "{what}");
                    assert_eq!(count(&db), 2 * ROWS as usize, "{what}");
                    continue;
                }
                Err(error) => check_refused(&error, &what),
            }
            let read_only = Db::open_read_only_on(Arc::new(found.clone()), options(&clock()));
            check_refused(&read_only.map(drop).unwrap_err(), &what);
            assert!(files(&found) == before, "{what}: files were changed");
        }
        let db = open(upto(&all, newest(&all)), &clock()).unwrap();
        assert_eq!(count(&db), 2 * ROWS as usize);
    }
}

#[test]
fn a_repair_takes_what_is_left_of_a_manifest_and_keeps_what_it_does_not_name() {
    let disk = MemDisk::new();
    written(&disk).close().unwrap();
    let all = files(&disk);
    for last in 1..newest(&all) {
        let found = upto(&all, last);
        let before = files(&found);
        let look = |how| Db::repair_on(Arc::new(found.clone()), options(&clock()), how).unwrap();
        let report = look(Repair::Look);
        assert!(files(&found) == before, "a look changes nothing");
        assert_eq!(report.losses[0].place, "manifest", "{report:?}");
        assert!(report.losses[0].what.contains("newest files"), "{report:?}");
        assert_eq!(look(Repair::Mend).losses, report.losses);
        let readings = count(&open(found.clone(), &clock()).unwrap());
        assert!([0, 1, 2].contains(&(readings / ROWS as usize)));
        let after = files(&found);
        let kept: BTreeMap<_, _> = objects(&after, "objects/")
            .into_iter()
            .chain(objects(&after, "damaged/1/objects/"))
            .collect();
        for (name, bytes) in objects(&all, "objects/") {
            assert_eq!(kept.get(name), Some(&bytes), "{last}: {name}");
        }
        assert_eq!(look(Repair::Look).losses, [], "{last}");
    }
}

/// A whole record of the log was given up for a field of which nothing else knew any more.
#[test]
fn rows_are_kept_without_a_field_that_the_manifest_has_lost() {
    let disk = MemDisk::new();
    let (db, known) = logged(&disk);
    let mut more = batch(&rows(ROWS));
    let values = Arc::clone(&more.fields[0].values);
    more.fields.push(FieldColumn { name: "more".into(), values });
    let options_of_write =
        WriteOptions { unknown: Unknown::Create, ack: Ack::Durable, ..WriteOptions::default() };
    db.write(PLANT, &more, &options_of_write).unwrap();
    let found = upto(&files(&disk), known);
    let report = Db::repair_on(Arc::new(found.clone()), options(&clock()), Repair::Mend).unwrap();
    let is_told = |what: &str| report.losses.iter().any(|loss| loss.what.contains(what));
    assert!(is_told("the values of a field in 100 rows of table plant"), "{report:?}");
    let mut wanted = rows(0);
    wanted.extend(rows(ROWS));
    assert_eq!(read(&open(found, &clock()).unwrap(), PLANT).unwrap(), wanted);
}

#[test]
fn a_repair_that_is_cut_off_may_be_tried_again() {
    let disk = MemDisk::new();
    written(&disk).close().unwrap();
    let all = files(&disk);
    let wanted = objects(&all, "objects/");
    for steps in 0.. {
        let found = upto(&all, 1);
        found.lose_power_after(steps);
        let repair =
            |disk: &MemDisk| Db::repair_on(Arc::new(disk.clone()), options(&clock()), Repair::Mend);
        let is_done = repair(&found).is_ok();
        let found = found.crash(steps);
        let again = repair(&found).unwrap();
        assert!(!is_done || again.losses.is_empty(), "{steps}: {again:?}");
        open(found.clone(), &clock()).unwrap();
        let kept = files(&found);
        for (name, bytes) in &wanted {
            let is_it = |(other, found): (&String, &Vec<u8>)| {
                other.ends_with(&format!("objects/{name}")) && found == bytes
            };
            assert!(kept.iter().any(is_it), "{steps}: {name}");
        }
        if is_done {
            assert!(steps > 10, "{steps}");
            break;
        }
    }
}

/// A database of an earlier version says nothing of how far its manifest had come.
#[test]
fn objects_of_which_nobody_knows_whether_they_were_named_are_kept_aside() {
    let disk = MemDisk::new();
    written(&disk).close().unwrap();
    let all = files(&disk);
    let found = copy(&all, |name| {
        version(name).is_none_or(|version| version <= 1) && !name.starts_with("reached/")
    });
    let db = open(found.clone(), &clock()).unwrap();
    assert_eq!(count(&db), 0);
    assert!(objects(&files(&found), "damaged/1/objects/") == objects(&all, "objects/"));
    put(&db, &Op::Write(PLANT, rows(0), Ack::Durable));
    put(&db, &Op::Cascade(Target::Long));
    db.close().unwrap();
    assert_eq!(count(&open(found, &clock()).unwrap()), ROWS as usize);
}

#[test]
fn objects_stay_where_they_are_when_a_full_disk_cannot_keep_them_aside() {
    let disk = MemDisk::new();
    written(&disk).close().unwrap();
    let all = files(&disk);
    let found = copy(&all, |name| {
        version(name).is_none_or(|version| version <= 1) && !name.starts_with("reached/")
    });
    drop(open(copy(&all, |_| true), &clock()).unwrap());
    let full = FaultDisk::new(Arc::new(found.clone()), 1);
    // The log and its file are there.
    full.arm(Fault::DiskFull, 0, Times::Always);
    let opened = open(full.clone(), &clock());
    assert!(full.fired() > 0);
    drop(opened);
    full.disarm();
    let after = files(&found);
    for (name, bytes) in objects(&all, "objects/") {
        assert_eq!(objects(&after, "objects/").get(name), Some(&bytes), "{name}");
    }
    let db = open(full, &clock()).unwrap();
    put(&db, &Op::Write(PLANT, rows(0), Ack::Durable));
    put(&db, &Op::Cascade(Target::Long));
}

#[test]
fn what_a_crash_leaves_behind_is_deleted() {
    let disk = MemDisk::new();
    let db = written(&disk);
    let all = files(&disk);
    drop(db);
    let found = copy(&all, |_| true);
    found.place("objects/0000000000000099.long", b"left behind");
    let db = open(found.clone(), &clock()).unwrap();
    assert_eq!(count(&db), 2 * ROWS as usize);
    let after = files(&found);
    assert!(!after.contains_key("objects/0000000000000099.long"));
    assert!(after.keys().all(|name| !name.starts_with("damaged/")), "{:?}", after.keys());
    assert_eq!(after.keys().filter(|name| name.starts_with("reached/")).count(), 1);
}

/// A table that the manifest has lost has rows in the log, which would be passed over like those of one that was dropped.
#[test]
fn rows_of_a_table_that_the_manifest_does_not_know_are_no_rows_of_a_dropped_one() {
    let disk = MemDisk::new();
    let (db, known) = logged(&disk);
    put(&db, &Op::Write(OTHER, rows(0), Ack::Durable));
    let all = files(&disk);
    drop(db);
    let found = upto(&all, known);
    let before = files(&found);
    check_refused(&open(found.clone(), &clock()).map(drop).unwrap_err(), "open");
    let read_only = Db::open_read_only_on(Arc::new(found.clone()), options(&clock()));
    check_refused(&read_only.map(drop).unwrap_err(), "read-only");
    let after = files(&found);
    for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with("wal/")) {
        assert!(after[name].starts_with(bytes), "{name}");
    }
    let report = Db::repair_on(Arc::new(found.clone()), options(&clock()), Repair::Mend).unwrap();
    assert!(report.losses.iter().any(|loss| loss.what.contains("table number 1")), "{report:?}");
    assert_eq!(count(&open(found, &clock()).unwrap()), ROWS as usize);
}
