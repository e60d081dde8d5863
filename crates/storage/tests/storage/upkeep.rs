//! What a database does by itself, when memory is full, when writers do not stop, and when the disk fails: nobody waits
//! for ever, and nothing starves.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::store::{Disk, DiskEntry};
use tidefall_storage::{
    Ack, CascadeReport, CascadeRequest, Db, DbOptions, IfExists, MEMORY_BYTES_MIN, Rewriting,
    Target, Unknown, WriteOptions,
};
use tidefall_types::{
    Clock, ErrorKind, FieldColumn, FieldType, ManualClock, Month, NS_PER_DAY, NS_PER_HOUR,
    NS_PER_MINUTE, NS_PER_SECOND, Result, TableId, TableSchema, WriteBatch,
};

use crate::hooks::{Does, Gate, HookDisk, within_a_minute};
use crate::small::{load, read, write};

/// 2024-03-10.
const NOW_NS: i64 = 19_792 * NS_PER_DAY;
/// Between two looks at what is awaited.
const PAUSE: Duration = Duration::from_millis(5);
/// Rows of a write that fills memory after a few of its kind.
const ROWS: i64 = 100_000;
const MEMORY: WriteOptions = WriteOptions {
    ack: Ack::Memory,
    unknown: Unknown::Create,
    bad_rows: tidefall_storage::BadRows::Reject,
    existing: tidefall_storage::Existing::Replace,
    field_types: tidefall_storage::FieldTypes::Keep,
};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(NOW_NS))
}

fn open(disk: impl Disk + 'static, clock: &Arc<ManualClock>, cascade_pause: Duration) -> Db {
    let clock: Arc<ManualClock> = Arc::clone(clock);
    let memory_bytes = MEMORY_BYTES_MIN;
    let options = DbOptions { memory_bytes, clock, cascade_pause, ..DbOptions::default() };
    Db::open_on(Arc::new(disk), options).unwrap()
}

/// As long as it takes for a test to end.
const LONG: Duration = Duration::from_secs(600);

fn batch(first_ns: i64, rows: i64) -> WriteBatch {
    let values = Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef;
    let fields = vec![FieldColumn { name: "value".into(), values }];
    WriteBatch { time: (first_ns..first_ns + rows).collect(), tags: Vec::new(), fields }
}

/// The files of objects with readings.
fn objects(disk: &MemDisk) -> Vec<String> {
    let name = |entry| match entry {
        DiskEntry::File { name, .. } => Some(name),
        DiskEntry::Dir(_) => None,
    };
    let names = disk.list("objects").unwrap().into_iter().filter_map(name);
    names.filter(|name| !name.ends_with(".sensors") && !name.ends_with(".tmp")).collect()
}

/// The live objects of a table.
fn live_objects(db: &Db, table: &str) -> usize {
    let tables = db.inspect().unwrap();
    let table = tables.iter().find(|found| found.name == table).unwrap();
    table.models.iter().map(|model| model.objects as usize).sum()
}

/// The bytes of all objects that readers see.
fn live_bytes(db: &Db) -> u64 {
    db.inspect().unwrap()[0].models.iter().map(|model| model.bytes).sum()
}

/// Changes bits of the rows of an object.
fn damage(disk: &MemDisk, name: &str) {
    let mut bytes = disk.contents(name).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle.min(64)..=middle].iter_mut().step_by(16).for_each(|byte| *byte ^= 1);
    disk.place(name, &bytes);
}

/// A table that forgets what is older than thirty days, with an object that is younger.
fn table_that_forgets(db: &Db) {
    let mut schema = TableSchema::new(TableId::default(), "yard", "time");
    schema.add_field("value", FieldType::I64).unwrap();
    schema.options.retention_ns = Some(30 * NS_PER_DAY);
    db.create_table(&schema, IfExists::Fail).unwrap();
    write(db, "yard", &[(NOW_NS - 20 * NS_PER_DAY, 1)]);
    db.flush().unwrap();
    assert_eq!(live_objects(db, "yard"), 1);
}

/// A disk on which a cascade goes through a gate before it makes an object.
fn disk_with_a_gate() -> (HookDisk, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let before = Arc::clone(&gate);
    let hooked = HookDisk::new(MemDisk::new(), move |does, _| {
        if does == Does::Create && std::thread::current().name() == Some(CASCADE) {
            before.pass();
        }
    });
    (hooked, gate)
}

/// The thread of a cascade that stands in front of a gate.
const CASCADE: &str = "cascade";

/// Begins to move the readings of the plant, up to the gate, which is shut.
fn cascade_up_to_the_gate(
    db: &Db,
    gate: &Gate,
    target: Target,
) -> JoinHandle<Result<CascadeReport>> {
    gate.shut();
    let cascading = db.clone();
    let request = CascadeRequest { table: Some("plant".into()), target };
    let cascade = std::thread::Builder::new().name(CASCADE.into());
    let cascade = cascade.spawn(move || cascading.cascade(&request)).unwrap();
    gate.wait_for_one();
    cascade
}

/// Writes from memory until the disk is found full.
fn fill_memory(db: &Db) {
    let db = db.clone();
    let error = within_a_minute("a write", move || {
        let mut rows = 0;
        loop {
            match db.write("plant", &batch(NOW_NS + rows, ROWS), &MEMORY) {
                Ok(_) => rows += ROWS,
                Err(error) => return error,
            }
        }
    });
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
}

/// The upkeep of a full disk was one try after the other to write, and nothing that would have made room.
#[test]
fn what_was_replaced_goes_while_the_disk_is_full() {
    let (disk, clock) = (MemDisk::new(), clock());
    let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
    let db = open(faulty.clone(), &clock, LONG);
    for round in 0..2 {
        let rows: Vec<(i64, i64)> = (0..100).map(|row| (2 * row + round, row)).collect();
        write(&db, "plant", &rows);
        db.flush().unwrap();
    }
    let replaced = objects(&disk);
    db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    assert_eq!((replaced.len(), live_objects(&db, "plant")), (2, 1));
    faulty.arm(Fault::DiskFull, 0, Times::Always);
    fill_memory(&db);
    assert_eq!(objects(&disk).len(), 3);
    clock.set(NOW_NS + 120 * NS_PER_SECOND);
    let found = disk.clone();
    within_a_minute("what frees room", move || {
        while objects(&found).iter().any(|name| replaced.contains(name)) {
            std::thread::sleep(PAUSE);
        }
    });
    assert!(db.write("plant", &batch(0, 1), &MEMORY).is_err(), "the disk is full all the same");
    faulty.disarm();
}

/// A disk that has no room for objects, and some for all else.
#[test]
fn what_is_too_old_goes_while_the_disk_is_full() {
    let (disk, clock) = (MemDisk::new(), clock());
    let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
    let is_full = Arc::new(AtomicBool::new(false));
    let (fills, full) = (faulty.clone(), Arc::clone(&is_full));
    let hooked = HookDisk::new(faulty, move |does, name| {
        let is_hit = matches!(does, Does::Write | Does::Create) && name.starts_with("objects/");
        match is_hit && full.load(Ordering::SeqCst) {
            true => fills.arm(Fault::DiskFull, 0, Times::Always),
            false => fills.disarm(),
        }
    });
    let db = open(hooked, &clock, LONG);
    table_that_forgets(&db);
    write(&db, "plant", &[(NOW_NS, 0)]);
    is_full.store(true, Ordering::SeqCst);
    fill_memory(&db);
    clock.set(NOW_NS + 20 * NS_PER_DAY);
    let (waiting, later) = (db.clone(), Arc::clone(&clock));
    within_a_minute("retention", move || {
        while live_objects(&waiting, "yard") > 0 {
            std::thread::sleep(PAUSE);
        }
        later.set(later.now_ns() + 120 * NS_PER_SECOND);
        while !objects(&disk).is_empty() {
            std::thread::sleep(PAUSE);
        }
    });
    is_full.store(false, Ordering::SeqCst);
}

/// Each round of the upkeep found memory full, and did nothing else.
#[test]
fn writers_that_do_not_stop_keep_nothing_from_being_tended() {
    let clock = clock();
    let db = open(MemDisk::new(), &clock, Duration::from_secs(1));
    table_that_forgets(&db);
    let is_over = Arc::new(AtomicBool::new(false));
    let (writing, over) = (db.clone(), Arc::clone(&is_over));
    let later_ns = NOW_NS + 20 * NS_PER_DAY;
    let writer = std::thread::spawn(move || {
        let mut rows = 0;
        while !over.load(Ordering::SeqCst) {
            writing.write("plant", &batch(later_ns + rows % (10 * ROWS), ROWS), &MEMORY).unwrap();
            rows += ROWS;
        }
        rows
    });
    clock.set(later_ns);
    let waiting = db.clone();
    within_a_minute("retention", move || {
        while live_objects(&waiting, "yard") > 0 {
            std::thread::sleep(PAUSE);
        }
    });
    is_over.store(true, Ordering::SeqCst);
    println!("{} rows were written meanwhile", writer.join().unwrap());
}

/// Run files of all tables piled up for as long as a cascade took.
#[test]
fn a_long_cascade_keeps_nothing_from_being_laid_together() {
    const FLUSHES: i64 = 64;
    const RUN_FILES_MAX: usize = 16;
    let gate = Arc::new(Gate::default());
    let before = Arc::clone(&gate);
    let hooked = HookDisk::new(MemDisk::new(), move |does, name| {
        if does == Does::Create && name.contains(".long") {
            before.pass();
        }
    });
    let db = open(hooked, &clock(), LONG);
    write(&db, "yard", &[(NOW_NS - 10 * NS_PER_DAY, 1)]);
    db.flush().unwrap();
    gate.shut();
    let cascading = db.clone();
    let request = CascadeRequest { table: Some("yard".into()), target: Target::Long };
    let cascade = std::thread::spawn(move || cascading.cascade(&request));
    gate.wait_for_one();
    for flush in 0..FLUSHES {
        write(&db, "plant", &[(NOW_NS + flush, flush)]);
        db.flush().unwrap();
    }
    let waiting = db.clone();
    within_a_minute("compaction", move || {
        while live_objects(&waiting, "plant") > RUN_FILES_MAX {
            std::thread::sleep(PAUSE);
        }
    });
    gate.open();
    assert_eq!(cascade.join().unwrap().unwrap().rows, 1);
    assert_eq!(read(&db, "plant").len() as i64, FLUSHES);
}

/// What was too old stayed for as long as a cascade took, of any table.
#[test]
fn a_long_cascade_keeps_nothing_that_is_too_old() {
    let (disk, gate) = disk_with_a_gate();
    let clock = clock();
    let db = open(disk, &clock, Duration::from_millis(50));
    table_that_forgets(&db);
    write(&db, "plant", &[(NOW_NS - 10 * NS_PER_DAY, 1)]);
    db.flush().unwrap();
    let cascade = cascade_up_to_the_gate(&db, &gate, Target::Long);
    clock.set(NOW_NS + 60 * NS_PER_DAY);
    let waiting = db.clone();
    within_a_minute("retention", move || {
        while live_objects(&waiting, "yard") > 0 {
            std::thread::sleep(PAUSE);
        }
    });
    gate.open();
    cascade.join().unwrap().unwrap();
}

/// Whoever dropped a table, or gave its fields other types, waited for the readings of all tables to be moved.
#[test]
fn a_long_cascade_holds_up_nobody_who_wants_to_be_alone_with_another_table() {
    let (disk, gate) = disk_with_a_gate();
    let db = open(disk, &clock(), LONG);
    for table in ["plant", "yard", "roof"] {
        write(&db, table, &[(NOW_NS - 10 * NS_PER_DAY, 1)]);
    }
    db.flush().unwrap();
    let cascade = cascade_up_to_the_gate(&db, &gate, Target::Long);
    let others = db.clone();
    within_a_minute("a drop and another type", move || {
        others.drop_table("yard").unwrap();
        let types = [("value".to_owned(), FieldType::I32)];
        others.retype("roof", &types, Rewriting::All).unwrap();
    });
    gate.open();
    assert_eq!(cascade.join().unwrap().unwrap().rows, 1);
    assert_eq!(read(&db, "plant"), [(NOW_NS - 10 * NS_PER_DAY, 1)]);
}

/// It waits for one step, which ends, and not for all of them.
#[test]
fn a_table_is_dropped_between_the_steps_of_its_cascade() {
    let (db, gate, days) = days_in_two_parts();
    let cascade = cascade_up_to_the_gate(&db, &gate, Target::ByAge);
    let dropping = db.clone();
    let drop = std::thread::spawn(move || dropping.drop_table("plant"));
    // Until it waits, for which there is no sign.
    std::thread::sleep(Duration::from_millis(200));
    gate.open();
    let moved = cascade.join().unwrap().unwrap();
    drop.join().unwrap().unwrap();
    assert!(moved.steps < days, "{} steps", moved.steps);
    assert_eq!(db.drop_table("plant").unwrap_err().kind(), ErrorKind::NotFound);
}

/// Whoever asks for a cascade gets all of it, though others were alone with the table between its steps.
#[test]
fn what_a_cascade_leaves_for_who_waits_it_does_behind_him() {
    let (db, gate, days) = days_in_two_parts();
    let cascade = cascade_up_to_the_gate(&db, &gate, Target::ByAge);
    let retyping = db.clone();
    let retype = std::thread::spawn(move || {
        for ty in [FieldType::I32, FieldType::I64, FieldType::I16, FieldType::I64] {
            retyping.retype("plant", &[("value".to_owned(), ty)], Rewriting::All).unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    gate.open();
    cascade.join().unwrap().unwrap();
    retype.join().unwrap();
    assert_eq!(live_objects(&db, "plant") as u64, days);
    assert_eq!(read(&db, "plant").len() as u64, 2 * days);
}

/// A table of ten days, each in two parts, and the gate in front of a cascade that makes them one; and how many they are.
fn days_in_two_parts() -> (Db, Arc<Gate>, u64) {
    const DAYS: i64 = 10;
    let (disk, gate) = disk_with_a_gate();
    let db = open(disk, &clock(), LONG);
    for part in 0..2 {
        let day = |day| (NOW_NS - (5 + day) * NS_PER_DAY + part, day);
        write(&db, "plant", &(0..DAYS).map(day).collect::<Vec<_>>());
        db.flush().unwrap();
    }
    assert_eq!(live_objects(&db, "plant") as i64, 2 * DAYS);
    (db, gate, DAYS as u64)
}

/// A late reading of an old month and one of a young month were one object, with which all months between them were written anew.
#[test]
fn late_readings_from_all_over_the_years_leave_most_of_them_as_they_are() {
    const MONTHS: i64 = 6;
    const MONTH_ROWS: i64 = 200_000;
    const STEP_NS: i64 = 10 * NS_PER_SECOND;
    let clock = clock();
    let db = open(MemDisk::new(), &clock, LONG);
    let mut rng = SmallRng::seed_from_u64(14);
    let month = |number: i64| Month(Month::of(NOW_NS).0 - 3 - number as i32).range().first_ns;
    for number in 0..MONTHS {
        let row = |row| (month(number) + row * STEP_NS, rng.random());
        load(&db, "plant", &(0..MONTH_ROWS).map(row).collect::<Vec<(i64, i64)>>());
    }
    let cascade = || db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    cascade();
    let (segments, before) = (live_objects(&db, "plant"), db.work().rewritten_bytes);
    assert_eq!(segments as i64, MONTHS);
    let bytes = live_bytes(&db);
    for round in 1..=20 {
        clock.set(NOW_NS + NS_PER_HOUR + round * NS_PER_SECOND);
        let (one, other) = (rng.random_range(0..MONTHS), rng.random_range(0..MONTHS));
        write(&db, "plant", &[(month(one) + round, round), (month(other) + round, round)]);
        cascade();
    }
    let rewritten = db.work().rewritten_bytes - before;
    // One segment, and none for as long as its bytes are worth.
    assert!(rewritten < bytes / 4, "{rewritten} of {bytes} bytes were written anew");
    let most = MONTHS as usize * 8;
    assert!(live_objects(&db, "plant") <= most, "{} objects", live_objects(&db, "plant"));
    let late = read(&db, "plant").into_iter().filter(|(_, value)| (1..=20).contains(value));
    assert_eq!(late.map(|(_, value)| value).collect::<BTreeSet<_>>().len(), 20);
    // Who asks for it gets them in one place.
    db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    assert_eq!(live_objects(&db, "plant"), segments);
}

/// Objects that only a damaged one kept together were written anew in each round, and came out as they had been.
#[test]
fn what_only_a_damaged_object_kept_together_stays_as_it_is() {
    let disk = MemDisk::new();
    let db = open(disk.clone(), &clock(), LONG);
    let mut rng = SmallRng::seed_from_u64(15);
    let month = |number: i64| Month(Month::of(NOW_NS).0 - 12 + number as i32).range().first_ns;
    let mut fill = |months: std::ops::Range<i64>, rows: i64| {
        let step_ns = (month(months.end) - month(months.start)) / rows;
        let row = |row| (month(months.start) + row * step_ns, rng.random());
        load(&db, "plant", &(0..rows).map(row).collect::<Vec<(i64, i64)>>());
    };
    fill(0..6, 100_000);
    damage(&disk, objects(&disk).last().unwrap());
    fill(0..3, 90_000);
    fill(3..6, 90_000);
    let cascade = || {
        // It is said each time that one is damaged.
        db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap_err();
        db.work().rewritten_bytes
    };
    let written = [cascade(), cascade(), cascade()];
    assert_eq!(written, [written[0]; 3]);
    assert_eq!(live_objects(&db, "plant"), 3);
}

/// A load of some sensors over all the years, half as large as a segment, made the whole history one object for a while.
#[test]
fn a_load_over_all_the_years_leaves_them_as_they_are() {
    const MONTHS: i64 = 10;
    let db = open(MemDisk::new(), &clock(), LONG);
    let mut rng = SmallRng::seed_from_u64(16);
    let month = |number: i64| Month(Month::of(NOW_NS).0 - 15 + number as i32).range().first_ns;
    let mut fill = |months: std::ops::Range<i64>, rows: i64, odd_ns: i64| {
        let step_ns = (month(months.end) - month(months.start)) / rows;
        let row = |row| (month(months.start) + row * step_ns + odd_ns, rng.random());
        load(&db, "plant", &(0..rows).map(row).collect::<Vec<(i64, i64)>>());
    };
    (0..MONTHS).for_each(|number| fill(number..number + 1, 100_000, 0));
    let fall = || db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    fall();
    let (before, bytes) = (db.work().rewritten_bytes, live_bytes(&db));
    fill(0..MONTHS, 60_000, 1);
    let added = live_bytes(&db) - bytes;
    fall();
    let written = db.work().rewritten_bytes - before;
    // It is cut, and one of the segments takes in what there is of it.
    assert!(written < 2 * added + bytes / 5, "{written} for {added}, beside {bytes} bytes");
    assert_eq!(read(&db, "plant").len() as i64, MONTHS * 100_000 + 60_000);
    assert!(db.verify().unwrap().damages.is_empty());
}

/// The group with the oldest segment was the only one that was tried, also when nothing could be written of it.
#[test]
fn one_that_cannot_be_written_keeps_no_other_from_taking_in_its_late_readings() {
    let (disk, clock) = (MemDisk::new(), clock());
    let db = open(disk.clone(), &clock, LONG);
    let month = |number: i64| Month(Month::of(NOW_NS).0 - 12 + number as i32).range().first_ns;
    let mut rng = SmallRng::seed_from_u64(17);
    for months in [0..2, 6..8] {
        let step_ns = (month(months.end) - month(months.start)) / 90_000;
        let row = |row| (month(months.start) + row * step_ns, rng.random());
        load(&db, "plant", &(0..90_000).map(row).collect::<Vec<(i64, i64)>>());
    }
    let fall = || db.cascade(&CascadeRequest { table: None, target: Target::ByAge });
    write(&db, "plant", &[(month(1) + 1, 1)]);
    db.flush().unwrap();
    damage(&disk, objects(&disk).last().unwrap());
    write(&db, "plant", &[(month(7) + 1, 1)]);
    for round in 1..=3 {
        clock.set(NOW_NS + round * 10 * NS_PER_MINUTE);
        fall().unwrap_err();
    }
    assert_eq!(live_objects(&db, "plant"), 3);
}

/// For each few late readings the whole segment was written anew as long as a part of its months was damaged.
#[test]
fn a_damaged_part_of_its_months_has_no_segment_written_anew() {
    let (disk, clock) = (MemDisk::new(), clock());
    let db = open(disk.clone(), &clock, LONG);
    let month = |number: i64| Month(Month::of(NOW_NS).0 - 12 + number as i32).range().first_ns;
    let mut rng = SmallRng::seed_from_u64(18);
    let mut fill = |months: std::ops::Range<i64>, rows: i64| {
        let step_ns = (month(months.end) - month(months.start)) / rows;
        let row = |row| (month(months.start) + row * step_ns, rng.random());
        load(&db, "plant", &(0..rows).map(row).collect::<Vec<(i64, i64)>>());
    };
    fill(0..3, 15_000);
    damage(&disk, objects(&disk).last().unwrap());
    fill(0..5, 90_000);
    let bytes = live_bytes(&db);
    let before = db.work().rewritten_bytes;
    for late in 1..=40 {
        write(&db, "plant", &[(month(4) + late, late)]);
        clock.set(NOW_NS + late * NS_PER_SECOND);
        db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap_err();
    }
    let written = db.work().rewritten_bytes - before;
    assert!(written < bytes, "{written} of {bytes} bytes");
    assert!(live_objects(&db, "plant") <= 12, "{} objects", live_objects(&db, "plant"));
}

/// Small parts of a month that were kept apart by larger ones, written between, kept these from becoming one, too.
#[test]
fn parts_of_two_sizes_that_take_turns_become_few() {
    let clock = clock();
    let db = open(MemDisk::new(), &clock, LONG);
    let month = Month(Month::of(NOW_NS).0 - 6).range().first_ns;
    let mut rng = SmallRng::seed_from_u64(20);
    let mut rows = |count: i64| -> Vec<(i64, i64)> {
        (0..count).map(|row| (month + row * NS_PER_SECOND, rng.random())).collect()
    };
    load(&db, "plant", &rows(300_000));
    let mut expected = read(&db, "plant");
    for round in 0..16 {
        // Each takes the place of what was there.
        let corrected = rows(if round % 2 == 0 { 2_000 } else { 1 });
        write(&db, "plant", &corrected);
        expected[..corrected.len()].copy_from_slice(&corrected);
        clock.set(NOW_NS + round * NS_PER_SECOND);
        db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    }
    assert!(live_objects(&db, "plant") <= 12, "{} objects", live_objects(&db, "plant"));
    assert_eq!(read(&db, "plant"), expected);
}

/// What found no room was written up to the end of the disk each minute, for one late reading.
#[test]
fn a_segment_for_which_there_is_no_room_is_not_written_again_and_again() {
    let written = Arc::new(AtomicU64::new(0));
    let disk = FaultDisk::new(Arc::new(MemDisk::new()), 1);
    let hooked = {
        let (written, disk) = (Arc::clone(&written), disk.clone());
        HookDisk::new(disk.clone(), move |does, name| {
            if does == Does::Create && name.contains(".long") {
                written.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let clock = clock();
    let db = open(hooked, &clock, LONG);
    let month = Month(Month::of(NOW_NS).0 - 6).range().first_ns;
    let mut rng = SmallRng::seed_from_u64(19);
    let row = |row| (month + row * NS_PER_SECOND, rng.random());
    load(&db, "plant", &(0..500_000).map(row).collect::<Vec<(i64, i64)>>());
    write(&db, "plant", &[(month + 1, 1)]);
    db.flush().unwrap();
    let before = written.load(Ordering::SeqCst);
    disk.arm(Fault::DiskFull, 0, Times::Always);
    for minute in 1..=3 {
        clock.set(NOW_NS + minute * NS_PER_MINUTE);
        let fallen = db.cascade(&CascadeRequest { table: None, target: Target::ByAge });
        assert_eq!(fallen.is_err(), minute == 1, "minute {minute}");
    }
    assert_eq!(written.load(Ordering::SeqCst) - before, 1);
    disk.disarm();
    clock.set(NOW_NS + NS_PER_DAY);
    db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    assert_eq!(live_objects(&db, "plant"), 1);
}

/// A long segment that reaches to this day, and a reading in memory that is written again: the late readings of all that time, which
/// came behind it, were kept apart, an object each.
#[test]
fn late_readings_do_not_pile_up_behind_one_that_stays() {
    let clock = clock();
    let db = open(MemDisk::new(), &clock, LONG);
    let hour = |number: i64| NOW_NS - number * NS_PER_HOUR;
    load(&db, "plant", &(0..9_600).rev().map(|number| (hour(number), number)).collect::<Vec<_>>());
    db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    write(&db, "plant", &[(hour(1), -1)]);
    for late in 1..=40 {
        write(&db, "plant", &[(hour(200 * late + 1_000) + 1, -late)]);
        clock.set(NOW_NS + late * NS_PER_MINUTE);
        db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
        assert!(live_objects(&db, "plant") <= 10, "{} behind {late}", live_objects(&db, "plant"));
    }
    let rows = read(&db, "plant");
    assert_eq!(rows.len(), 9_640);
    assert!(rows.contains(&(hour(1), -1)));
}

/// Who cascaded kept others from flushing memory: writers waited until all tables were through, later until one of them was.
#[test]
fn a_long_cascade_keeps_no_writer() {
    const WRITES: i64 = 14;
    let (is_cascading, is_written) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let was_written = Arc::new(AtomicBool::new(false));
    let (begin, begins) = mpsc::channel();
    let begin = Mutex::new(begin);
    let hooked = {
        let (is_cascading, was_written) = (Arc::clone(&is_cascading), Arc::clone(&was_written));
        let is_written: Arc<AtomicBool> = Arc::clone(&is_written);
        HookDisk::new(MemDisk::new(), move |does, name| {
            let is_long = name.starts_with("objects/") && name.contains(".long");
            if does != Does::Create || !is_long || !is_cascading.swap(false, Ordering::SeqCst) {
                return;
            }
            begin.lock().unwrap().send(()).unwrap();
            let tries = (0..4_000).take_while(|_| !is_written.load(Ordering::SeqCst));
            tries.for_each(|_| std::thread::sleep(PAUSE));
            was_written.store(is_written.load(Ordering::SeqCst), Ordering::SeqCst);
        })
    };
    let db = open(hooked, &clock(), LONG);
    write(&db, "writer", &[(NOW_NS, 0)]);
    for part in 0..2 {
        write(&db, "aging", &[(NOW_NS - 400 * NS_PER_DAY + part, 0)]);
        db.flush().unwrap();
    }
    is_cascading.store(true, Ordering::SeqCst);
    let writer = {
        let (db, is_written) = (db.clone(), Arc::clone(&is_written));
        std::thread::spawn(move || {
            begins.recv().unwrap();
            for number in 0..WRITES {
                db.write("writer", &batch(NOW_NS + number * ROWS, ROWS), &MEMORY).unwrap();
            }
            is_written.store(true, Ordering::SeqCst);
        })
    };
    db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    within_a_minute("the writer", move || writer.join().unwrap());
    assert!(was_written.load(Ordering::SeqCst), "the writer waited for the cascade");
}
