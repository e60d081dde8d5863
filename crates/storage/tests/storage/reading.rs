//! Read-only databases beside their writer: each shows all that was acknowledged before it was opened, and
//! stays readable while the writer goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use arrow_array::Int64Array;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::store::Disk;
use tidefall_storage::{Ack, CascadeRequest, Db, DbOptions, Target, WriteOptions};
use tidefall_types::{
    Clock, ErrorKind, FieldColumn, ManualClock, NS_PER_DAY, NS_PER_SECOND, Result, WriteBatch,
};

use crate::hooks::{Does, Gate, HookDisk};
use crate::rounds;
use crate::small::{batch_of, load, read, write};

/// 2024-03-10; the rows are of a day in January, which moves to long columns.
const NOW_NS: i64 = 19_792 * NS_PER_DAY;
const FIRST_NS: i64 = 19_730 * NS_PER_DAY;
const MINUTE_NS: i64 = 60 * NS_PER_SECOND;

/// A writer, and what it has written.
struct Writer {
    disk: MemDisk,
    clock: Arc<ManualClock>,
    db: Option<Db>,
    rows: i64,
}

fn row(number: i64) -> (i64, i64) {
    (FIRST_NS + number, number)
}

impl Writer {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(NOW_NS));
        let mut writer = Self { disk: MemDisk::new(), clock, db: None, rows: 0 };
        writer.reopen();
        writer
    }

    fn options(&self) -> DbOptions {
        let clock: Arc<ManualClock> = Arc::clone(&self.clock);
        DbOptions { clock, threads: 1, ..DbOptions::default() }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.db = None;
        self.db = Some(Db::open_on(Arc::new(self.disk.clone()), self.options()).unwrap());
    }

    fn write(&mut self) {
        write(self.db(), "plant", &[row(self.rows)]);
        self.rows += 1;
    }

    /// A row that the log never has.
    fn load(&mut self) {
        load(self.db(), "plant", &[row(self.rows)]);
        self.rows += 1;
    }

    fn cascade(&self, target: Target) {
        self.db().cascade(&CascadeRequest { table: None, target }).unwrap();
    }

    fn read_only(&self, disk: impl Disk + 'static) -> Result<Db> {
        Db::open_read_only_on(Arc::new(disk), self.options())
    }
}

type Deed = (&'static str, fn(&mut Writer));

/// What a writer may do while somebody opens its database and reads.
const DEEDS: [Deed; 11] = [
    ("flushes", |writer| {
        writer.db().flush().unwrap();
    }),
    ("writes and flushes", |writer| {
        writer.write();
        writer.db().flush().unwrap();
    }),
    ("writes, flushes and writes", |writer| {
        writer.write();
        writer.db().flush().unwrap();
        writer.write();
    }),
    ("loads", Writer::load),
    ("writes, loads and writes", |writer| {
        writer.write();
        writer.load();
        writer.write();
    }),
    ("writes to memory, flushes and writes", |writer| {
        let options = WriteOptions { ack: Ack::Memory, ..WriteOptions::default() };
        let row = batch_of(&[row(writer.rows)]);
        writer.db().write("plant", &row, &options).unwrap();
        writer.rows += 1;
        writer.db().flush().unwrap();
        writer.write();
    }),
    ("cascades", |writer| {
        writer.write();
        writer.cascade(Target::Long);
    }),
    ("adds a field", |writer| {
        let number = writer.rows;
        crate::schema::write_field(writer.db(), number);
    }),
    ("adds a table", |writer| {
        let number = writer.rows;
        write(writer.db(), &format!("yard{number}"), &[(0, 0)]);
        writer.write();
    }),
    ("is opened again", |writer| {
        writer.write();
        writer.reopen();
    }),
    ("cascades and is opened again", |writer| {
        writer.write();
        writer.db().flush().unwrap();
        writer.write();
        writer.cascade(Target::Long);
        writer.reopen();
        writer.write();
    }),
];

/// The rows that a reader finds, of which the first `acknowledged` must be there.
fn check(found: &[(i64, i64)], acknowledged: i64, what: &str) {
    // Other fields have rows of their own, before 1970.
    let found: Vec<_> = found.iter().filter(|(time, _)| *time >= FIRST_NS).copied().collect();
    let wanted: Vec<_> = (0..found.len() as i64).map(row).collect();
    assert!(found.len() as i64 >= acknowledged, "{what}: {} of {acknowledged}", found.len());
    assert_eq!(found, wanted, "{what}");
}

/// A writer whose readings are in objects and in the log.
fn busy_writer() -> Writer {
    let mut writer = Writer::new();
    make_busy(&mut writer);
    writer
}

/// Returns the number of its rows.
fn make_busy(writer: &mut Writer) -> i64 {
    for _ in 0..2 {
        (0..3).for_each(|_| writer.write());
        writer.db().flush().unwrap();
    }
    (0..3).for_each(|_| writer.write());
    writer.rows
}

/// Whether somebody opens a database, or has it open and wants to see what is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    New,
    Again,
}

/// Opens, or refreshes, and reads while, before one operation of the reader's, its writer does something. Returns whether there
/// was such an operation.
fn read_beside(comes: Comes, deed: Deed, at: u64) -> bool {
    let writer = if comes == Comes::New { busy_writer() } else { Writer::new() };
    let (disk, options) = (writer.disk.clone(), writer.options());
    let operations = Arc::new(AtomicU64::new(0));
    let (writer, count) = (Arc::new(Mutex::new(writer)), Arc::clone(&operations));
    // Nothing is done before the reader is there.
    let is_watched = Arc::new(AtomicBool::new(comes == Comes::New));
    let hooked = HookDisk::new(disk, {
        let (writer, is_watched) = (Arc::clone(&writer), Arc::clone(&is_watched));
        move |_, _| {
            if is_watched.load(Ordering::Relaxed) && count.fetch_add(1, Ordering::Relaxed) == at {
                deed.1(&mut writer.lock().unwrap());
            }
        }
    });
    let what =
        format!("the writer {} before operation {at} of the reader that comes {comes:?}", deed.0);
    let mut acknowledged = writer.lock().unwrap().rows;
    let reader = Db::open_read_only_on(Arc::new(hooked), options)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    if comes == Comes::Again {
        acknowledged = make_busy(&mut writer.lock().unwrap());
        is_watched.store(true, Ordering::Relaxed);
        let is_new = reader.refresh().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(is_new, "{what}");
    }
    check(&read(&reader, "plant"), acknowledged, &what);
    operations.load(Ordering::Relaxed) > at
}

#[test]
fn whatever_the_writer_does_meanwhile_a_reader_sees_all_that_was_acknowledged() {
    let mut operations = 0;
    for deed in DEEDS {
        for comes in [Comes::New, Comes::Again] {
            let last = (0..).find(|at| !read_beside(comes, deed, *at)).unwrap();
            assert!(last > 10, "only {last} operations");
            operations += last;
        }
    }
    println!("{} deeds before each of {operations} operations of a reader", DEEDS.len());
}

#[test]
fn a_log_that_is_cut_again_and_again_is_an_error() {
    let writer = Writer::new();
    let (disk, options) = (writer.disk.clone(), writer.options());
    let writer = Mutex::new(writer);
    let hooked = HookDisk::new(disk, move |does, name| {
        if does == Does::List && name == "wal" {
            let mut writer = writer.lock().unwrap();
            // The committer may not have noted as yet that the second is visible: the log is cut behind the first.
            (0..2).for_each(|_| writer.write());
            writer.db().flush().unwrap();
        }
    });
    let error = Db::open_read_only_on(Arc::new(hooked), options).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}

#[test]
fn what_was_replaced_stays_for_a_minute_also_when_the_writer_is_opened_again() {
    let mut writer = busy_writer();
    let objects = |writer: &Writer| writer.disk.list("objects").unwrap().len();
    let readers: Vec<Db> = (0..4).map(|_| writer.read_only(writer.disk.clone()).unwrap()).collect();
    let rows = writer.rows;
    writer.cascade(Target::Long);
    let crowded = objects(&writer);
    for (number, reader) in readers.into_iter().enumerate() {
        // None of them has opened an object before.
        check(&read(&reader, "plant"), rows, &format!("reader {number}"));
        writer.clock.set(writer.clock.now_ns() + MINUTE_NS / 5);
        // Also when its process was killed: nothing of the disk is lost then.
        std::mem::forget(writer.db.take().filter(|_| number % 2 == 0));
        writer.reopen();
        assert_eq!(objects(&writer), crowded, "reader {number}");
    }
    writer.clock.set(writer.clock.now_ns() + MINUTE_NS / 5);
    writer.reopen();
    // One segment, and one object of sensors.
    assert_eq!(objects(&writer), 2, "what was replaced is still there after a minute");
    check(&read(writer.db(), "plant"), rows, "the writer");
}

/// Replaced objects took twice the room of all others for a minute.
#[test]
fn what_was_replaced_goes_at_once_when_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = crate::small::open(&dir);
    let objects = || std::fs::read_dir(dir.path().join("objects")).unwrap().count();
    let cascade = |db: &Db| {
        db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
        // The next one deletes what this one has replaced.
        db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    };
    let mut rows = 0;
    let mut flush = || {
        for _ in 0..3 {
            write(&db, "plant", &[row(rows)]);
            db.flush().unwrap();
            rows += 1;
        }
        rows
    };
    flush();
    cascade(&db);
    // One segment, and one object of sensors.
    assert_eq!(objects(), 2);
    let rows = flush();
    let reader = Db::open_read_only(dir.path(), DbOptions::default()).unwrap();
    let snapshot = db.snapshot("plant").unwrap();
    cascade(&db);
    assert!(objects() > 2, "what a process reads, which has not opened it as yet, is gone");
    check(&read(&reader, "plant"), rows, "the reader");
    drop(reader);
    cascade(&db);
    assert!(objects() > 2, "what the process of the writer reads is gone");
    drop(snapshot);
    cascade(&db);
    assert_eq!(objects(), 2);
    check(&read(&db, "plant"), rows, "the writer");
}

/// Readers beside a writer that moves every seventh row to an object, on a real disk.
#[test]
fn hundreds_of_readers_beside_a_busy_writer_see_all_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let db = crate::small::open(&dir);
    write(&db, "plant", &[row(0)]);
    let (acknowledged, is_over) = (AtomicU64::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                write(&db, "plant", &[row(number)]);
                acknowledged.store(number as u64 + 1, Ordering::Release);
                if number % 7 == 0 {
                    db.flush().unwrap();
                }
                if number % 100 == 0 {
                    db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
                }
            }
        });
        let opened = std::panic::catch_unwind(|| {
            for number in 0..rounds(300) {
                let before = acknowledged.load(Ordering::Acquire) as i64;
                let what = format!("reader {number}");
                let reader = Db::open_read_only(dir.path(), DbOptions::default())
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&read(&reader, "plant"), before, &what);
            }
        });
        is_over.store(true, Ordering::Release);
        opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    println!("{} rows in the end", acknowledged.load(Ordering::Acquire));
}

/// A random number for each row, so that three megabytes of them are as many in the log.
fn long_batch(first: i64) -> WriteBatch {
    const ROWS: i64 = 400_000;
    let mut rng = SmallRng::seed_from_u64(first as u64);
    let values = Int64Array::from_iter_values((0..ROWS).map(|_| rng.random()));
    let fields = vec![FieldColumn { name: "value".into(), values: Arc::new(values) }];
    WriteBatch { time: (first..first + ROWS).collect(), tags: Vec::new(), fields }
}

/// A writer on a full disk takes frames back that a reader may have seen, and writes others in their place: the reader
/// took that for damage.
#[test]
fn frames_that_the_writer_takes_back_are_no_damage() {
    for writes_again in [false, true] {
        let disk = MemDisk::new();
        let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
        let gate = Arc::new(Gate::default());
        let is_armed = Arc::new(AtomicBool::new(false));
        let frames = Arc::new(AtomicU64::new(0));
        // A reader that has seen the log, and goes on when it is told to.
        let (saw, has_seen) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        let reader = {
            let (saw, goes) = (Mutex::new(saw), Mutex::new(goes));
            let (has_read, has_waited) = (AtomicBool::new(false), AtomicBool::new(false));
            let hooked = HookDisk::new(disk.clone(), move |does, name| {
                if does == Does::Read && name.starts_with("wal/") {
                    has_read.store(true, Ordering::SeqCst);
                }
                let is_behind = does == Does::List && name.starts_with("manifest");
                if is_behind
                    && has_read.load(Ordering::SeqCst)
                    && !has_waited.swap(true, Ordering::SeqCst)
                {
                    saw.lock().unwrap().send(()).unwrap();
                    goes.lock().unwrap().recv().unwrap();
                }
            });
            move || Db::open_read_only_on(Arc::new(hooked), DbOptions::default())
        };
        let opened = Arc::new(Mutex::new(None));
        let (reader, has_seen) = (Mutex::new(Some(reader)), Mutex::new(has_seen));
        let (at_gate, armed, faults) = (Arc::clone(&gate), Arc::clone(&is_armed), faulty.clone());
        let (count, thread) = (Arc::clone(&frames), Arc::clone(&opened));
        let hooked = HookDisk::new(faulty.clone(), move |does, name| {
            if !name.starts_with("wal/") {
                return;
            }
            if does == Does::Sync {
                at_gate.pass();
            }
            // The first frame of the group is there, the second is about to be.
            if does == Does::Write
                && armed.load(Ordering::SeqCst)
                && count.fetch_add(1, Ordering::SeqCst) == 1
            {
                let reader = reader.lock().unwrap().take().unwrap();
                *thread.lock().unwrap() = Some(std::thread::spawn(reader));
                has_seen.lock().unwrap().recv().unwrap();
                faults.arm(Fault::DiskFull, 0, Times::Once);
            }
        });
        let writer = Db::open_on(Arc::new(hooked), DbOptions::default()).unwrap();
        write(&writer, "plant", &[(0, 0)]);
        gate.shut();
        let held = {
            let writer = writer.clone();
            std::thread::spawn(move || write(&writer, "plant", &[(1, 1)]))
        };
        gate.wait_for_one();
        let (send, outcomes) = mpsc::channel();
        for first in [1_000_000, 2_000_000] {
            let send = send.clone();
            let durable = WriteOptions::default();
            let done = move |outcome: Result<_>| send.send(outcome.map(drop)).unwrap();
            writer.submit("plant", &long_batch(first), &durable, done).unwrap();
        }
        is_armed.store(true, Ordering::SeqCst);
        gate.open();
        held.join().unwrap();
        for _ in 0..2 {
            assert_eq!(outcomes.recv().unwrap().unwrap_err().kind(), ErrorKind::Full);
        }
        let mut wanted = vec![(0, 0), (1, 1)];
        if writes_again {
            write(&writer, "plant", &[(2, 2)]);
            wanted.push((2, 2));
        }
        go.send(()).unwrap();
        let reader = opened.lock().unwrap().take().unwrap();
        let found = reader.join().unwrap().unwrap();
        assert_eq!(read(&found, "plant"), wanted);
    }
}
