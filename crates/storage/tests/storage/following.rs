//! Databases that are opened only for reading, and follow their writer: after a refresh they show what it has.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::store::Readers;
use tidefall_storage::{Ack, CascadeRequest, Db, DbOptions, Target};
use tidefall_types::{Clock, ErrorKind, FieldId, ManualClock, NS_PER_SECOND, TimeRange};

use crate::asking::{ask, open, options, read_all};
use crate::history::{Op, START_NS, TABLES, requests};
use crate::hooks::{Does, HookDisk};
use crate::small::{copy_folder, load, read, write};
use crate::{checked, rounds};

fn follow(disk: &MemDisk, clock: &Arc<ManualClock>) -> Db {
    Db::open_read_only_on(Arc::new(disk.clone()), options(clock)).unwrap()
}

/// Held against the writer, which has been held against models.
#[test]
fn after_a_refresh_a_reader_shows_what_its_writer_has() {
    let (mut refreshed, mut advanced) = (0, 0);
    for seed in 0..rounds(40) {
        let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(START_NS)));
        let mut writer = Some(open(disk.clone(), &clock).unwrap());
        let readers = [follow(&disk, &clock), follow(&disk, &clock)];
        for (number, op) in requests(seed, 60).into_iter().enumerate() {
            // What is only in the memory of the writer nobody else can see.
            let op = match op {
                Op::Write(table, rows, _) => Op::Write(table, rows, Ack::Durable),
                op => op,
            };
            match op {
                Op::Wait(pause_ns) => clock.set(clock.now_ns() + pause_ns),
                Op::Reopen => {
                    // A killed process leaves everything as it is.
                    std::mem::forget(writer.take().filter(|_| number % 2 == 0));
                    writer = Some(open(disk.clone(), &clock).unwrap());
                }
                _ => drop(ask(writer.as_ref().unwrap(), &op).map(Result::unwrap)),
            }
            let expected = read_all(writer.as_ref().unwrap(), &TABLES).unwrap();
            // One of them always, the other once in a while.
            let due = if number % 7 == 6 { &readers[..] } else { &readers[..1] };
            for reader in due {
                advanced += usize::from(reader.refresh().unwrap());
                refreshed += 1;
                let place = || format!("seed {seed}, {number}: {op:?}");
                checked(|| assert_eq!(read_all(reader, &TABLES).unwrap(), expected), place);
                assert!(!reader.refresh().unwrap(), "{}: nothing is new", place());
            }
        }
    }
    println!("{refreshed} refreshes, {advanced} of them found something new");
    assert!(advanced > refreshed / 2);
}

/// What a refresh brings changes nothing for who reads already.
#[test]
fn a_snapshot_stays_as_it_is() {
    let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(START_NS)));
    let writer = open(disk.clone(), &clock).unwrap();
    write(&writer, "plant", &[(1, 1), (2, 2)]);
    writer.flush().unwrap();
    write(&writer, "plant", &[(3, 3)]);
    let reader = follow(&disk, &clock);
    let before = reader.snapshot("plant").unwrap();
    assert_eq!(before.rows_max(), 3);
    write(&writer, "plant", &[(2, 20), (4, 4)]);
    writer.flush().unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(before.rows_max(), 3);
    assert_eq!(read(&reader, "plant"), [(1, 1), (2, 20), (3, 3), (4, 4)]);
    writer.drop_table("plant").unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(before.rows_max(), 3);
    assert_eq!(reader.snapshot("plant").unwrap_err().kind(), ErrorKind::NotFound);
}

/// Their footers, indexes and metrics would have to be read again.
#[test]
fn objects_that_stay_are_not_opened_again() {
    let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(START_NS)));
    let writer = open(disk.clone(), &clock).unwrap();
    load(&writer, "plant", &[(1, 1), (2, 2)]);
    load(&writer, "yard", &[(1, 1)]);
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    let hooked = HookDisk::new(disk.clone(), move |does, name| {
        if does == Does::Read && name.starts_with("objects/") && !name.ends_with("sensors") {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let reader = Db::open_read_only_on(Arc::new(hooked), options(&clock)).unwrap();
    let reads_of = |act: &dyn Fn()| {
        let before = reads.load(Ordering::Relaxed);
        act();
        reads.load(Ordering::Relaxed) - before
    };
    let all = || {
        let snapshot = reader.snapshot("plant").unwrap();
        let frame = snapshot.read_frame::<i64>(&[0], &TimeRange::ALL, FieldId(0)).unwrap();
        assert_eq!(frame.time.len(), 2);
    };
    assert!(reads_of(&all) > 1);
    let again = reads_of(&all);
    for number in 0..3 {
        write(&writer, "yard", &[(5 + number, 1)]);
        if number == 1 {
            writer.flush().unwrap();
        }
        assert_eq!(reads_of(&|| assert!(reader.refresh().unwrap())), 0);
        assert_eq!(reads_of(&all), again, "only pages are read again");
    }
}

/// What was shown before is shown still.
#[test]
fn a_refresh_that_fails_changes_nothing() {
    let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(START_NS)));
    let writer = open(disk.clone(), &clock).unwrap();
    write(&writer, "plant", &[(1, 1)]);
    let faulty = FaultDisk::new(Arc::new(disk.clone()), 0);
    let reader = Db::open_read_only_on(Arc::new(faulty.clone()), options(&clock)).unwrap();
    write(&writer, "plant", &[(2, 2)]);
    writer.flush().unwrap();
    write(&writer, "plant", &[(3, 3)]);
    let mut failed = 0;
    for skip in 0.. {
        faulty.arm(Fault::ReadError, skip, Times::Always);
        let refreshed = reader.refresh();
        faulty.disarm();
        let shown = read(&reader, "plant");
        match refreshed {
            Ok(_) => {
                assert_eq!(shown, [(1, 1), (2, 2), (3, 3)]);
                break;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                assert_eq!(shown, [(1, 1)]);
                failed += 1;
            }
        }
    }
    assert!(failed > 3, "{failed}");
}

/// Its numbers may be those of the other, and mean something else.
#[test]
fn another_database_in_the_place_of_one_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let make = |tables: i64| {
        let writer = Db::open(&dir, DbOptions::default()).unwrap();
        for table in 0..tables {
            write(&writer, &format!("t{table}"), &[(1, table)]);
            writer.flush().unwrap();
        }
        write(&writer, "t0", &[(2, 2)]);
        // The last row is in the log alone.
        writer.close().unwrap();
    };
    make(2);
    let reader = Db::open_read_only(&dir, DbOptions::default()).unwrap();
    let check = |what: &str| {
        let error = reader.refresh().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{what}: {error}");
        assert_eq!(read(&reader, "t0"), [(1, 0), (2, 2)], "{what}");
        assert_eq!(reader.tables().len(), 2, "{what}");
    };
    // Files that are open stay so.
    assert_eq!(read(&reader, "t0"), [(1, 0), (2, 2)]);
    std::fs::rename(&dir, place.path().join("old")).unwrap();
    check("nothing is there");
    for tables in [1, 2, 5] {
        make(tables);
        check(&format!("another with {tables} tables"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
    std::fs::rename(place.path().join("old"), &dir).unwrap();
    reader.refresh().unwrap();
    assert_eq!(read(&reader, "t0"), [(1, 0), (2, 2)]);
}

/// It is as it is.
#[test]
fn a_database_that_is_written_has_nothing_to_refresh() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Db::open(dir.path(), DbOptions::default()).unwrap();
    write(&writer, "plant", &[(1, 1)]);
    assert!(!writer.refresh().unwrap());
    let reader = Db::open_shared(dir.path(), DbOptions::default()).unwrap();
    write(&writer, "plant", &[(2, 2)]);
    assert_eq!(read(&reader, "plant"), [(1, 1)]);
    assert!(reader.refresh().unwrap());
    assert_eq!(read(&reader, "plant"), [(1, 1), (2, 2)]);
    writer.close().unwrap();
    // A database that ends is shown as it ended, and so is one that another process goes on with.
    reader.refresh().unwrap();
    let next = Db::open(dir.path(), DbOptions::default()).unwrap();
    write(&next, "plant", &[(3, 3)]);
    assert!(reader.refresh().unwrap());
    assert_eq!(read(&reader, "plant"), [(1, 1), (2, 2), (3, 3)]);
}

/// Its numbers are those of what was read, up to where the two parted.
#[test]
fn a_copy_that_went_another_way_is_refused() {
    let go_on = |dir: &Path, commits: i64, value: i64| {
        let writer = Db::open(dir, DbOptions::default()).unwrap();
        for number in 0..commits {
            write(&writer, "plant", &[(2 + number, value)]);
            writer.flush().unwrap();
        }
        // It forgets what the manifest was long ago, too.
        writer.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
        writer.close().unwrap();
    };
    // Up to more commits than a manifest remembers.
    for (first, second) in [(1, 1), (2, 1), (1, 2), (3, 100), (3, 700)] {
        let place = tempfile::tempdir().unwrap();
        let [shown, aside, other] = ["shown", "aside", "other"].map(|name| place.path().join(name));
        go_on(&shown, 1, 0);
        copy_folder(&shown, &other);
        go_on(&shown, first, 10);
        let reader = Db::open_read_only(&shown, DbOptions::default()).unwrap();
        let expected = read(&reader, "plant");
        for _ in 0..3 {
            go_on(&other, second, 20);
        }
        std::fs::rename(&shown, &aside).unwrap();
        std::fs::rename(&other, &shown).unwrap();
        let error = reader.refresh().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{first} and {second} commits: {error}");
        std::fs::rename(&shown, &other).unwrap();
        std::fs::rename(&aside, &shown).unwrap();
        assert!(!reader.refresh().unwrap(), "{first} and {second} commits");
        assert_eq!(read(&reader, "plant"), expected);
        // However far the one that was read goes on, it is followed.
        for _ in 0..3 {
            go_on(&shown, second, 30);
        }
        assert!(reader.refresh().unwrap());
        let again = Db::open_read_only(&shown, DbOptions::default()).unwrap();
        assert_eq!(read(&reader, "plant"), read(&again, "plant"));
    }
}

/// Their bytes would stay on the disk.
#[cfg(target_os = "linux")]
#[test]
fn files_that_were_replaced_are_open_no_longer_than_they_are_read() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START_NS)));
    let writer = Db::open(dir.path(), options(&clock)).unwrap();
    let reader = Db::open_read_only(dir.path(), options(&clock)).unwrap();
    let open_in_vain = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let open = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        let open = open.map(|file| file.to_string_lossy().into_owned());
        let is_gone = |file: &String| file.contains("/objects/") && file.ends_with("(deleted)");
        open.filter(|file| file.starts_with(&*dir.path().to_string_lossy())).filter(is_gone).count()
    };
    for number in 0..20 {
        write(&writer, "plant", &[(number, number)]);
        writer.flush().unwrap();
    }
    reader.refresh().unwrap();
    assert_eq!(read(&reader, "plant").len(), 20);
    let before = reader.snapshot("plant").unwrap();
    let cascade = || writer.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    cascade();
    // What was replaced goes after a minute.
    clock.set(clock.now_ns() + 61 * NS_PER_SECOND);
    cascade();
    assert!(open_in_vain() > 0);
    reader.refresh().unwrap();
    assert!(open_in_vain() > 0, "a snapshot reads them");
    drop(before);
    assert!(!reader.refresh().unwrap());
    assert_eq!(open_in_vain(), 0);
    assert_eq!(read(&reader, "plant").len(), 20);
}

/// Nothing is written meanwhile.
#[test]
fn a_file_that_is_put_back_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Db::open(dir.path(), DbOptions::default()).unwrap();
    write(&writer, "plant", &[(1, 1)]);
    writer.flush().unwrap();
    writer.close().unwrap();
    let objects = std::fs::read_dir(dir.path().join("objects")).unwrap();
    let sensors = objects.map(|entry| entry.unwrap().path());
    let sensors = sensors.filter(|path| path.extension().is_some_and(|kind| kind == "sensors"));
    let sensors = sensors.last().unwrap();
    std::fs::rename(&sensors, dir.path().join("aside")).unwrap();
    let reader = Db::open_read_only(dir.path(), DbOptions::default()).unwrap();
    assert_eq!(reader.snapshot("plant").unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(!reader.refresh().unwrap(), "it is as damaged as before");
    std::fs::rename(dir.path().join("aside"), &sensors).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(read(&reader, "plant"), [(1, 1)]);
    assert!(!reader.refresh().unwrap());
}

/// What it replaces stays for a minute then.
#[test]
fn a_writer_knows_of_a_reader_also_after_its_folder_was_replaced_by_a_copy() {
    let place = tempfile::tempdir().unwrap();
    let [shown, aside] = ["shown", "aside"].map(|name| place.path().join(name));
    let writer = Db::open(&shown, DbOptions::default()).unwrap();
    write(&writer, "plant", &[(1, 1)]);
    writer.close().unwrap();
    drop(writer);
    let reader = Db::open_read_only(&shown, DbOptions::default()).unwrap();
    std::fs::rename(&shown, &aside).unwrap();
    copy_folder(&aside, &shown);
    let readers = Readers::watch(&shown).unwrap();
    assert!(readers.keep_out().is_some());
    assert!(!reader.refresh().unwrap());
    assert!(readers.keep_out().is_none());
    drop(reader);
    assert!(readers.keep_out().is_some());
}
