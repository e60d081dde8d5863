//! Every fault of a disk, at every operation that it can strike: requests get typed errors,
//! answers are right or errors, nothing is written after a failed fsync, and all that was
//! acknowledged is there when the disk is well again.

use std::cell::Cell;
use std::ops::AddAssign;
use std::sync::Arc;

use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::Db;
use tidefall_types::{Clock, Error, ErrorKind, ManualClock, Result};

use crate::asking::{ask, open, read, read_all};
use crate::history::{History, Op, START_NS, TABLES, When, requests};
use crate::rounds;

/// A database on a disk with a fault.
struct Run {
    disk: FaultDisk,
    clock: Arc<ManualClock>,
    history: History,
    fault: Fault,
    /// Errors that somebody got.
    errors: Cell<u64>,
    what: String,
}

/// What runs came to.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    runs: u64,
    faults: u64,
    errors: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.faults += other.faults;
        self.errors += other.errors;
    }
}

impl Run {
    fn new(seed: u64, fault: Fault, skip: u64, times: Times) -> Self {
        let disk = FaultDisk::new(Arc::new(MemDisk::new()), skip);
        disk.arm(fault, skip, times);
        let what = format!("seed {seed}, {fault:?} {times:?} at operation {skip}");
        let clock = Arc::new(ManualClock::new(START_NS));
        Self { disk, clock, history: History::default(), fault, errors: Cell::new(0), what }
    }

    /// Puts all requests, also behind those that fail.
    fn work(&mut self, ops: &[Op]) {
        let db = match open(self.disk.clone(), &self.clock) {
            Ok(db) => db,
            Err(error) => return self.check_error(&error, "open"),
        };
        for (number, op) in ops.iter().enumerate() {
            let is_of_fsync = matches!(self.fault, Fault::SyncError | Fault::SyncFull);
            let had_failed_fsync = is_of_fsync && self.disk.fired() > 0;
            if let Op::Wait(pause_ns) = op {
                self.clock.set(self.clock.now_ns() + pause_ns);
            }
            self.history.may_forget(self.clock.now_ns());
            match ask(&db, op) {
                None => {}
                Some(Ok(())) => {
                    // These may find nothing to write.
                    let writes_nothing = matches!(
                        op,
                        Op::Flush | Op::FreeMemory | Op::Cascade(_) | Op::Delete(_, Some(_), _)
                    );
                    let may_be_done = !had_failed_fsync || writes_nothing;
                    assert!(may_be_done, "{}: {op:?} was taken after a failed fsync", self.what);
                    self.history.done(op);
                }
                Some(Err(error)) => {
                    self.check_error(&error, &format!("{op:?}"));
                    let is_closed = error.kind() == ErrorKind::Closed;
                    assert!(!had_failed_fsync || is_closed, "{}: {error}", self.what);
                    self.history.failed(op);
                }
            }
            if number % 4 == 3 {
                self.query(&db, When::Now);
            }
        }
        match db.close() {
            Ok(()) => self.history.done(&Op::Reopen),
            Err(error) => self.check_error(&error, "close"),
        }
    }

    /// Whatever can be read is right.
    fn query(&self, db: &Db, when: When) {
        for table in TABLES {
            let found = db.schema(table).is_ok();
            let exists = self.history.has_table(table, when);
            assert!(exists.is_none_or(|exists| exists == found), "{}: {table}", self.what);
            if !found {
                continue;
            }
            match read(db, table) {
                Err(error) => self.check_error(&error, "read"),
                Ok(rows) => {
                    let checked = self.history.check(table, &rows, when);
                    checked.unwrap_or_else(|why| panic!("{}: {why}", self.what));
                }
            }
            if let Err(error) = read_all(db, &[table]) {
                self.check_error(&error, "aggregate");
            }
        }
    }

    fn check_error(&self, error: &Error, what: &str) {
        self.errors.set(self.errors.get() + 1);
        let mut kinds = vec![ErrorKind::Io, ErrorKind::Corrupt, ErrorKind::Closed];
        if matches!(self.fault, Fault::DiskFull | Fault::TooManyFiles) {
            // Nothing is lost by it, and nothing ends.
            kinds = vec![ErrorKind::Full];
        }
        if what == "open" {
            kinds.push(ErrorKind::NotFound);
        }
        let is_typed = kinds.contains(&error.kind()) && !error.message().contains("bug");
        assert!(is_typed, "{}, {what}: {:?} {error}", self.what, error.kind());
    }

    /// The disk is well again.
    fn check_well(&mut self) -> Result<()> {
        self.disk.disarm();
        let db = open(self.disk.clone(), &self.clock)?;
        let found = read_all(&db, &TABLES)?;
        self.query(&db, When::Reopened);
        assert_eq!(db.verify()?.damages, [], "{}", self.what);
        self.history.settle(&found);
        let table = TABLES[0];
        let rows = found.values().next().cloned().unwrap_or_default();
        for op in [Op::Load(table, rows), Op::Drop(TABLES[1]), Op::Flush] {
            self.history.may_forget(self.clock.now_ns());
            if let Some(done) = ask(&db, &op) {
                done?;
                self.history.done(&op);
            }
        }
        self.query(&db, When::Now);
        db.close()
    }
}

fn strike_everywhere(seed: u64, fault: Fault, times: Times) -> Counts {
    let ops: Vec<Op> =
        requests(seed, 16).into_iter().filter(|op| !matches!(op, Op::Reopen)).collect();
    let mut counts = Counts::default();
    for skip in 0.. {
        let mut run = Run::new(seed, fault, skip, times);
        run.work(&ops);
        match open(run.disk.clone(), &run.clock) {
            Ok(db) => run.query(&db, When::Reopened),
            Err(error) => run.check_error(&error, "open"),
        }
        let struck = run.disk.fired();
        counts.errors += run.errors.get();
        let what = run.what.clone();
        run.check_well().unwrap_or_else(|error| panic!("{what}, when it was well again: {error}"));
        counts.runs += 1;
        counts.faults += struck;
        if struck == 0 {
            break;
        }
    }
    counts
}

#[test]
fn every_fault_at_every_operation_is_an_error_and_loses_nothing() {
    let mut all = Counts::default();
    for fault in Fault::ALL {
        for times in [Times::Once, Times::Always] {
            let mut of_fault = Counts::default();
            for seed in 0..rounds(1) {
                of_fault += strike_everywhere(seed, fault, times);
            }
            println!("{fault:?} {times:?}: {of_fault:?}");
            assert!(of_fault.errors > 0, "{fault:?} {times:?} did nothing");
            all += of_fault;
        }
    }
    println!("all: {all:?}");
}
