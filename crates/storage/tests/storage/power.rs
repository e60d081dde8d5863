//! Power is lost after every step of a history: what was acknowledged is found again, what was not
//! is there as a whole or not at all, and the database goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::{Ack, Db, Target};
use tidefall_types::{Clock, ManualClock};

use crate::asking::{ask, open, read_all};
use crate::history::{History, Op, Rows, START_NS, TABLES, When, requests};
use crate::rounds;

/// A disk, and what was asked of the database on it until it lost power.
struct Crash {
    disk: MemDisk,
    clock: Arc<ManualClock>,
    history: History,
    what: String,
}

impl Crash {
    /// Puts requests until all are done, or the power is lost after some steps of the disk.
    fn after(seed: u64, ops: &[Op], steps: u64) -> Self {
        let disk = MemDisk::new();
        disk.lose_power_after(steps);
        let clock = Arc::new(ManualClock::new(START_NS));
        let what = format!("seed {seed}, {} requests, step {steps}", ops.len());
        let mut crash = Self { disk, clock, history: History::default(), what };
        crash.work(ops);
        crash
    }

    fn work(&mut self, ops: &[Op]) {
        let Ok(mut db) = open(self.disk.clone(), &self.clock) else { return };
        for op in ops {
            match op {
                Op::Wait(pause_ns) => self.clock.set(self.clock.now_ns() + pause_ns),
                Op::Reopen => {
                    if db.close().is_err() {
                        return;
                    }
                    self.history.done(op);
                    match open(self.disk.clone(), &self.clock) {
                        Ok(opened) => db = opened,
                        Err(_) => return,
                    }
                }
                op => {
                    self.history.may_forget(self.clock.now_ns());
                    match ask(&db, op) {
                        None => {}
                        Some(Ok(())) => self.history.done(op),
                        Some(Err(_)) => return self.history.failed(op),
                    }
                }
            }
        }
    }

    /// Opens what was found and checks it.
    fn open(&self, disk: &MemDisk) -> (Db, BTreeMap<&'static str, Rows>) {
        let what = &self.what;
        let db = open(disk.clone(), &self.clock).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = read_all(&db, &TABLES).unwrap_or_else(|error| panic!("{what}: {error}"));
        for table in TABLES {
            let exists = self.history.has_table(table, When::Reopened);
            let is_possible = exists.is_none_or(|exists| exists == found.contains_key(table));
            assert!(is_possible, "{what}: table {table} exists or not, wrongly");
            let rows = found.get(table).cloned().unwrap_or_default();
            let checked = self.history.check(table, &rows, When::Reopened);
            checked.unwrap_or_else(|why| panic!("{what}: {why}"));
        }
        let report = db.verify().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(report.damages, [], "{what}");
        (db, found)
    }

    /// The power is back: everything is there, and new readings can be written and move.
    fn check(&self, seed: u64) {
        let disk = self.disk.crash(seed);
        let (db, found) = self.open(&disk);
        let mut next = Self { history: self.history.clone(), ..self.with_disk(disk) };
        next.history.settle(&found);
        let rows = Rows::from([((0, START_NS), (Some(1.5), None)), ((9, START_NS), (None, None))]);
        let table = TABLES[seed as usize % TABLES.len()];
        for op in [Op::Write(table, rows, Ack::Durable), Op::Flush, Op::Cascade(Target::Long)] {
            next.history.may_forget(next.clock.now_ns());
            let done = ask(&db, &op).unwrap_or(Ok(()));
            done.unwrap_or_else(|error| panic!("{}, then {op:?}: {error}", self.what));
            next.history.done(&op);
        }
        drop(db);
        next.open(&next.disk);
    }

    /// The process is killed rather than the power lost, and the power goes after the next open:
    /// what that open has shown is there for good.
    fn check_kill(&self, seed: u64) {
        self.disk.go_on();
        if seed.is_multiple_of(2) {
            // Or the last fsync had failed.
            self.disk.forget_unsynced();
        }
        let (db, found) = self.open(&self.disk);
        let crashed = self.disk.crash(seed);
        drop(db);
        let (_, again) = self.open(&crashed);
        assert!(found == again, "{}: readings changed in a crash behind the open", self.what);
    }

    /// The power goes again while the database is opened.
    fn check_recovery(&self, seed: u64, steps: u64) {
        let disk = self.disk.crash(seed);
        disk.lose_power_after(steps);
        drop(open(disk.clone(), &self.clock));
        self.with_disk(disk).check(seed + 1);
    }

    fn with_disk(&self, disk: MemDisk) -> Self {
        let clock = Arc::new(ManualClock::new(self.clock.now_ns()));
        Self { disk, clock, history: self.history.clone(), what: self.what.clone() }
    }
}

/// The steps that requests take when nothing fails.
fn steps(seed: u64, ops: &[Op]) -> u64 {
    Crash::after(seed, ops, u64::MAX >> 1).disk.steps()
}

#[test]
fn power_loss_after_any_step_loses_nothing_that_was_acknowledged() {
    let mut crashes = 0;
    for seed in 0..rounds(10) {
        let ops = requests(seed, 10);
        for step in 0..=steps(seed, &ops) {
            let crash = Crash::after(seed, &ops, step);
            crash.check(step);
            crash.check_recovery(step, step % 12);
            crash.check_kill(step);
            crashes += 3;
        }
    }
    println!("{crashes} crashes, at every step of {} short histories", rounds(10));
    assert!(crashes > 1_000, "only {crashes} crashes");
}

#[test]
fn power_loss_within_long_histories_loses_nothing_that_was_acknowledged() {
    let mut crashes = 0;
    for seed in 1_000..1_000 + rounds(6) {
        let ops = requests(seed, 120);
        let all = steps(seed, &ops);
        let mut rng = SmallRng::seed_from_u64(seed);
        for _ in 0..20 {
            let crash = Crash::after(seed, &ops, rng.random_range(0..=all));
            crash.check(rng.random_range(0..1_000));
            crash.check_recovery(rng.random_range(0..1_000), rng.random_range(0..30));
            crash.check_kill(rng.random_range(0..1_000));
            crashes += 3;
        }
    }
    println!("{crashes} crashes at random steps of {} long histories", rounds(6));
}
