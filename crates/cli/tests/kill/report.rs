//! What the rounds did, for people.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ledger::Fate;

/// Messages in the log of a process that tell what the kill before it had cut off.
const TRACES: [(&str, &str); 6] = [
    ("brought rows back from the log", "logs with rows"),
    ("cut off the torn end of the log", "torn ends of logs"),
    ("removed a log file that was never begun", "log files without a header"),
    ("removed an object that was never finished", "unfinished objects"),
    ("deleted an object that nothing names", "objects that nothing named"),
    ("trying an older checkpoint", "torn checkpoints"),
];

/// Counters that the clients share.
#[derive(Debug, Default)]
pub struct Tally {
    pub writes: AtomicU64,
    pub inserts: AtomicU64,
    pub rows: AtomicU64,
    /// Comparisons while others wrote.
    pub looks: AtomicU64,
    pub deletes: AtomicU64,
    pub rows_deleted: AtomicU64,
    pub drops: AtomicU64,
    /// Of the table of records what was inserted and deleted.
    pub records: AtomicU64,
    pub records_deleted: AtomicU64,
    /// Processes that only read.
    pub readers_killed: AtomicU64,
}

impl Tally {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// What the rounds did.
#[derive(Debug, Default)]
pub struct Report {
    pub rounds: u64,
    pub seed: u64,
    pub time: Duration,
    pub tally: Tally,
    /// Kills by what the process was doing.
    pub kills: BTreeMap<&'static str, u64>,
    /// Processes that came to their end.
    pub ends: BTreeMap<&'static str, u64>,
    pub fates: BTreeMap<&'static str, u64>,
    pub traces: BTreeMap<&'static str, u64>,
    pub rows_read: u64,
    pub checks: u64,
    pub full_checks: u64,
    pub rows_at_end: u64,
    pub imported: u64,
}

impl Report {
    /// Notes what became of a change that was under way.
    pub fn add_fate(&mut self, fate: Fate) {
        let name = match fate {
            Fate::Nothing => return,
            Fate::Present => "present",
            Fate::Absent => "absent",
            Fate::Partial => "rows one by one",
            Fate::Traceless => "without effect",
        };
        *self.fates.entry(name).or_default() += 1;
    }

    /// Notes what a process found when it started.
    pub fn add_log(&mut self, log: &str) {
        for (message, name) in TRACES {
            *self.traces.entry(name).or_default() += log.matches(message).count() as u64;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Tally { writes, inserts, rows, looks, deletes, rows_deleted, drops, .. } = &self.tally;
        let Tally { records, records_deleted, readers_killed, .. } = &self.tally;
        let seconds = self.time.as_secs_f64();
        writeln!(f, "{} rounds in {seconds:.1} s, seed {}", self.rounds, self.seed)?;
        let readers = get(readers_killed);
        writeln!(f, "  killed while: {}; readers {readers} times", list(&self.kills))?;
        writeln!(f, "  not killed: {}", list(&self.ends))?;
        writeln!(
            f,
            "  acknowledged: {} rows in {} writes and {} INSERTs, {} deletes of {} rows, {} dropped tables, \
             {} imported rows; {} records, {} of them deleted",
            get(rows),
            get(writes),
            get(inserts),
            get(deletes),
            get(rows_deleted),
            get(drops),
            self.imported,
            get(records),
            get(records_deleted)
        )?;
        writeln!(f, "  under way at a kill, then: {}", list(&self.fates))?;
        writeln!(f, "  found at starts: {}", list(&self.traces))?;
        write!(
            f,
            "  {} checks read {} rows, {} of them everything; {} checks of a part under load; \
             {} rows at the end",
            self.checks,
            self.rows_read,
            self.full_checks,
            get(looks),
            self.rows_at_end
        )
    }
}

fn list(counts: &BTreeMap<&'static str, u64>) -> String {
    let items: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if items.is_empty() { "nothing".to_owned() } else { items.join(", ") }
}
