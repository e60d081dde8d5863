//! How much the log holds: no more than a named number of bytes, whatever stays in memory.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::store::{Disk, DiskEntry};
use tidefall_storage::{CascadeRequest, Db, DbOptions, MEMORY_BYTES_MIN, Target};
use tidefall_types::{ManualClock, NS_PER_DAY};

use crate::small;

/// 2024-03-10.
const NOW_NS: i64 = 19_792 * NS_PER_DAY;
/// Nearly the year 2100.
const FAR_NS: i64 = 47_450 * NS_PER_DAY;
/// Twice what a database with the least memory keeps of its log.
const WRITTEN_BYTES: u64 = 512 << 20;
const PART_ROWS: usize = if cfg!(debug_assertions) { 1 << 10 } else { 1 << 20 };

fn open(disk: &MemDisk) -> Db {
    let clock = Arc::new(ManualClock::new(NOW_NS));
    let options = DbOptions { memory_bytes: MEMORY_BYTES_MIN, clock, ..DbOptions::default() };
    Db::open_on(Arc::new(disk.clone()), options).unwrap()
}

fn log_bytes(disk: &MemDisk) -> u64 {
    let bytes = |entry| match entry {
        DiskEntry::File { size_bytes, .. } => size_bytes,
        DiskEntry::Dir(_) => 0,
    };
    disk.list("wal").unwrap().into_iter().map(bytes).sum()
}

fn check(db: &Db, rows: i64) {
    assert_eq!(small::read(db, "plan"), [(FAR_NS, 1)]);
    assert_eq!(small::read(db, "plant").len() as i64, rows);
}

/// A row that never comes of age kept the log from ever being cut.
#[test]
fn rows_that_stay_in_memory_do_not_keep_the_log() {
    let disk = MemDisk::new();
    let db = open(&disk);
    let mut rng = SmallRng::seed_from_u64(1);
    let cascade = CascadeRequest { table: None, target: Target::ByAge };
    small::write(&db, "plan", &[(FAR_NS, 1)]);
    let (mut written, mut rows) = (0, 0);
    let mut most = 0;
    while rows < 256 * PART_ROWS as i64 && written < WRITTEN_BYTES {
        let part = rows..rows + PART_ROWS as i64;
        let part: Vec<(i64, i64)> =
            part.map(|row| (NOW_NS - 10 * NS_PER_DAY + row, rng.random())).collect();
        rows += part.len() as i64;
        let before = log_bytes(&disk);
        small::write(&db, "plant", &part);
        written += log_bytes(&disk) - before;
        db.cascade(&cascade).unwrap();
        most = most.max(log_bytes(&disk));
        if rng.random_ratio(1, 16) {
            check(&open(&disk.crash(written)), rows);
        }
    }
    println!("of {written} bytes the log held up to {most}");
    assert!(most < written / 4 * 3, "of {written} bytes the log held {most}");
    for db in [open(&disk.crash(1)), db] {
        check(&db, rows);
        assert_eq!(db.verify().unwrap().damages, []);
    }
}
