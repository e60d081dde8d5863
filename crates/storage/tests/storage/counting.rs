//! Rows that take the place of others are counted by who waits for a write, not by the thread that commits.

use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::{Ack, Db, DbOptions, Existing, Uncounted, WriteOptions, WriteReport};
use tidefall_types::ErrorKind;

use crate::small::{batch_of, load, read, write};

fn open(disk: FaultDisk) -> Db {
    Db::open_on(Arc::new(disk), DbOptions { threads: 1, ..DbOptions::default() }).unwrap()
}

/// Submits times with their values, and waits until they are written.
fn submit(db: &Db, ack: Ack, rows: &[(i64, i64)]) -> (WriteReport, Option<Uncounted>) {
    let options = WriteOptions { ack, existing: Existing::Count, ..WriteOptions::default() };
    let (send, receive) = mpsc::channel();
    let done = move |outcome| send.send(outcome).unwrap();
    db.submit("plant", &batch_of(rows), &options, done).unwrap();
    receive.recv().unwrap().unwrap()
}

#[test]
fn only_rows_that_are_not_the_newest_are_looked_up() {
    for ack in [Ack::Memory, Ack::Durable] {
        let db = open(FaultDisk::new(Arc::new(MemDisk::new()), 1));
        write(&db, "plant", &[(10, 1)]);
        // What is known at once, and what is found in the end.
        let cases = [
            (vec![(11, 1), (12, 1)], Some(0), 0),
            (vec![(5, 1)], None, 0),
            (vec![(12, 2), (13, 2)], None, 1),
            (vec![(20, 1), (20, 2), (20, 3)], None, 2),
            (vec![(23, 1), (22, 1), (21, 1)], None, 0),
            (vec![(5, 3), (10, 3), (23, 3), (24, 3)], None, 3),
            (vec![(25, 1)], Some(0), 0),
        ];
        for (rows, known, replaced) in cases {
            let (report, uncounted) = submit(&db, ack, &rows);
            assert_eq!((report.rows, report.replaced), (rows.len(), known), "{rows:?}");
            assert_eq!(uncounted.is_none(), known.is_some(), "{rows:?}");
            let found = uncounted.map_or(Some(0), |uncounted| uncounted.count());
            assert_eq!(found, Some(replaced), "{rows:?}");
        }
    }
}

/// What is counted later is what was there just before, whatever has come and gone since.
#[test]
fn writes_that_come_before_the_count_do_not_change_it() {
    let db = open(FaultDisk::new(Arc::new(MemDisk::new()), 1));
    write(&db, "plant", &[(10, 1), (20, 1)]);
    let (_, uncounted) = submit(&db, Ack::Durable, &[(10, 2), (15, 2)]);
    for _ in 0..200 {
        write(&db, "plant", &[(15, 3), (20, 3)]);
    }
    db.flush().unwrap();
    write(&db, "plant", &[(12, 4)]);
    assert_eq!(uncounted.unwrap().count(), Some(1));
    let (_, uncounted) = submit(&db, Ack::Durable, &[(15, 5), (12, 5), (13, 5)]);
    db.drop_table("plant").unwrap();
    assert_eq!(uncounted.unwrap().count(), Some(2));
}

#[test]
fn a_count_that_fails_fails_no_write() {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()), 1);
    let db = open(disk.clone());
    let rows: Vec<_> = (0..10_000).map(|at| (at * at, at)).collect();
    write(&db, "plant", &rows);
    db.flush().unwrap();
    disk.arm(Fault::ReadError, 0, Times::Always);
    let count = WriteOptions { existing: Existing::Count, ..WriteOptions::default() };
    let report = db.write("plant", &batch_of(&[(25, 0)]), &count).unwrap();
    assert_eq!((report.rows, report.replaced), (1, None));
    // Nothing is read for what is new.
    let report = db.write("plant", &batch_of(&[(1 << 40, 0)]), &count).unwrap();
    assert_eq!((report.rows, report.replaced), (1, Some(0)));
    disk.disarm();
    let report = db.write("plant", &batch_of(&[(25, 1), (26, 1)]), &count).unwrap();
    assert_eq!((report.rows, report.replaced), (2, Some(1)));
    assert_eq!(read(&db, "plant").len(), 10_002);
}

/// Several saw nothing that they would replace, and all were told that they had replaced nothing.
#[test]
fn of_writes_that_refuse_to_replace_one_is_first() {
    const WRITERS: i64 = 4;
    const ROUNDS: i64 = 100;
    let refuse = |ack| WriteOptions { ack, existing: Existing::Refuse, ..WriteOptions::default() };
    for ack in [Ack::Memory, Ack::Durable] {
        let db = open(FaultDisk::new(Arc::new(MemDisk::new()), 1));
        write(&db, "plant", &[(10 * ROUNDS, 0)]);
        let barrier = Barrier::new(WRITERS as usize);
        let write = |writer: i64| {
            let mut written = Vec::new();
            for round in 0..ROUNDS {
                // Late ones, and the newest of all.
                let time = if round % 2 == 0 { round } else { 10 * ROUNDS + round };
                barrier.wait();
                match db.write("plant", &batch_of(&[(time, writer)]), &refuse(ack)) {
                    Ok(_) => written.push((time, writer)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
            }
            written
        };
        let mut written: Vec<(i64, i64)> = std::thread::scope(|scope| {
            let write = &write;
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        written.push((10 * ROUNDS, 0));
        written.sort_unstable();
        assert_eq!(written.len() as i64, ROUNDS + 1);
        assert_eq!(read(&db, "plant"), written);
    }
}

/// A load that has its place among the writes, and is not to be seen yet, was not looked at.
#[test]
fn a_load_beside_a_write_that_refuses_to_replace_is_counted_by_one_of_them() {
    const ROUNDS: i64 = 200;
    let db = open(FaultDisk::new(Arc::new(MemDisk::new()), 1));
    write(&db, "plant", &[(-1, 0)]);
    let refuse = WriteOptions { existing: Existing::Refuse, ..WriteOptions::default() };
    let barrier = Barrier::new(2);
    for round in 0..ROUNDS {
        let (loaded, written) = std::thread::scope(|scope| {
            let loading = scope.spawn(|| {
                barrier.wait();
                load(&db, "plant", &[(round, 1)]).replaced
            });
            barrier.wait();
            // Now and then in the middle of it.
            std::thread::sleep(Duration::from_micros(round as u64 * 10));
            let written = db.write("plant", &batch_of(&[(round, 2)]), &refuse);
            (loading.join().unwrap(), written)
        });
        // The load came behind the write, or the write found it.
        let replaced = match written {
            Ok(_) => 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                0
            }
        };
        assert_eq!(loaded, Some(replaced), "round {round}");
    }
    assert!(read(&db, "plant").iter().skip(1).all(|(_, value)| *value == 1));
}
