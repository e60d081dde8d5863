//! Readings that are too old to keep.

use tidefall_storage::{CascadeRequest, IfExists, Target};
use tidefall_types::{Clock, NS_PER_DAY, SystemClock, TableSchema};

use crate::small::{open, read, write};

#[test]
fn one_cascade_drops_what_is_too_old_wherever_it_is() {
    let now = SystemClock.now_ns();
    let (old, young) = (now - 400 * NS_PER_DAY, now - NS_PER_DAY);
    for target in [Target::ByAge, Target::Short, Target::Long] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let mut schema = TableSchema::new(Default::default(), "plant", "time");
        schema.options.retention_ns = Some(30 * NS_PER_DAY);
        db.create_table(&schema, IfExists::Fail).unwrap();
        // From memory first, then beside objects.
        for round in 0..2 {
            write(&db, "plant", &[(old + round, 0), (young + round, 1)]);
            db.cascade(&CascadeRequest { table: None, target }).unwrap();
            let kept: Vec<(i64, i64)> = (0..=round).map(|round| (young + round, 1)).collect();
            assert_eq!(read(&db, "plant"), kept, "{target:?}, round {round}");
        }
    }
}

/// What readings at some times were overwritten with, or nothing, must be what is found there.
fn never_comes_back(keep_days: i64, writes: &[&[i64]]) {
    let now = SystemClock.now_ns();
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let mut schema = TableSchema::new(Default::default(), "plant", "time");
    schema.options.retention_ns = Some(keep_days * NS_PER_DAY);
    db.create_table(&schema, IfExists::Fail).unwrap();
    let mut latest = std::collections::BTreeMap::new();
    for (value, days) in (1..).zip(writes) {
        let rows: Vec<(i64, i64)> =
            days.iter().map(|days| (now - days * NS_PER_DAY, value)).collect();
        latest.extend(rows.iter().copied());
        write(&db, "plant", &rows);
        db.flush().unwrap();
    }
    let check = || {
        for (time, value) in read(&db, "plant") {
            let days = (now - time) / NS_PER_DAY;
            assert_eq!(latest.get(&time), Some(&value), "of {days} days ago, {writes:?}");
        }
    };
    for target in [Target::ByAge, Target::ByAge, Target::Long, Target::ByAge] {
        check();
        db.cascade(&CascadeRequest { table: None, target }).unwrap();
    }
    check();
    let young = latest.range(now - keep_days * NS_PER_DAY..);
    let found = read(&db, "plant");
    let found = found.into_iter().filter(|(time, _)| *time >= now - keep_days * NS_PER_DAY);
    assert_eq!(
        found.collect::<Vec<_>>(),
        young.map(|(time, value)| (*time, *value)).collect::<Vec<_>>(),
        "{writes:?}"
    );
}

#[test]
fn dropped_readings_do_not_uncover_what_they_overwrote() {
    // The second object is too old as a whole, and the first is not.
    never_comes_back(70, &[&[90, 65], &[90]]);
    // The third is, and the second, which is, has to stay for the first.
    never_comes_back(70, &[&[90, 65], &[95, 90, 80], &[95]]);
    // The second reaches far over the limit, and the first a little.
    never_comes_back(70, &[&[90, 65], &[120, 90, 65]]);
    never_comes_back(70, &[&[90, 65], &[95, 90], &[200, 95]]);
    never_comes_back(70, &[&[200, 65], &[90, 66], &[300, 90]]);
}
