//! What storage has done since the database was opened, and how far it is behind.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tidefall_types::{Day, Month, NS_PER_SECOND};

use super::Engine;
use crate::cascade::{Boundaries, backlog};
use crate::inspect::Work;
use crate::manifest::Model;
use crate::options::Target;
use crate::table::Table;

/// Counts what is done.
#[derive(Debug, Default)]
pub(crate) struct Worked {
    /// Bytes that rows took in memory before they left it.
    freed_bytes: AtomicUsize,
    flushed_bytes: AtomicU64,
    rewritten_bytes: AtomicU64,
    delayed: AtomicU64,
    delayed_us: AtomicU64,
    /// Flushed bytes when somebody was told of them.
    told_bytes: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Worked {
    /// Rows that took so many bytes in memory have become objects of so many bytes.
    pub(crate) fn flushed(&self, freed_bytes: usize, bytes: u64) {
        self.freed_bytes.fetch_add(freed_bytes, Ordering::Relaxed);
        add(&self.flushed_bytes, bytes);
    }

    pub(super) fn freed_bytes(&self) -> usize {
        self.freed_bytes.load(Ordering::Relaxed)
    }

    /// Objects have become others of so many bytes.
    pub(crate) fn rewritten(&self, bytes: u64) {
        add(&self.rewritten_bytes, bytes);
    }

    /// Whether new rows have become objects since this was asked last.
    pub(crate) fn has_news(&self) -> bool {
        let bytes = get(&self.flushed_bytes);
        self.told_bytes.swap(bytes, Ordering::Relaxed) != bytes
    }

    /// A write has waited for memory.
    pub(crate) fn delayed(&self, time: Duration) {
        add(&self.delayed, 1);
        add(&self.delayed_us, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}

impl Engine {
    /// What was done, and what is due.
    pub(crate) fn work(&self) -> Work {
        let tables = self.tables();
        let behind = tables.iter().filter_map(|table| behind_ns(table, self.now_ns())).max();
        Work {
            flushed_bytes: get(&self.worked.flushed_bytes),
            rewritten_bytes: get(&self.worked.rewritten_bytes),
            delayed_writes: get(&self.worked.delayed),
            delayed: Duration::from_micros(get(&self.worked.delayed_us)),
            objects_to_compact: tables.iter().map(|table| backlog(self, table) as u64).sum(),
            replaced_objects: self.graveyard.count() as u64,
            behind: behind.map(|ns| Duration::from_secs((ns / NS_PER_SECOND) as u64)),
        }
    }
}

/// For how long a table has had an object that could have fallen to the next model; nothing where none could.
fn behind_ns(table: &Table, now_ns: i64) -> Option<i64> {
    let options = table.schema().options.clone();
    let boundaries = Boundaries::new(&options, Target::ByAge, now_ns);
    let long = boundaries.range(Model::Long);
    let live = table.live();
    let due_since = live.objects.iter().filter_map(|object| {
        let time = &object.entry.time;
        // Whole days and whole months fall.
        let of_age_ns = match object.entry.model {
            Model::Kv if time.first_ns < boundaries.kv_ns => {
                Day::of(time.first_ns).range().last_ns.saturating_add(options.kv_age_ns)
            }
            Model::Short if long.covers(time) => {
                let age_ns = options.short_age_ns.max(options.kv_age_ns);
                Month::of(time.last_ns).range().last_ns.saturating_add(age_ns)
            }
            _ => return None,
        };
        Some(of_age_ns.max(object.since_ns))
    });
    due_since.min().map(|since_ns| now_ns.saturating_sub(since_ns).max(0))
}
