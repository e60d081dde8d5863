//! The memory of queries, of which sorts leave some to their own merges, and these to what stands above them.
//!
//! A sort that has no room left merges what it holds to write it down, and needs about as much again for that. In
//! DataFusion's pool other sorts take that room meanwhile, each as much as it would have if none of them merged, and
//! then a merge fails that cannot wait. At the end it merges as many of the runs that it has written as there is memory for, and
//! leaves none to the merge of all partitions. So whether a sort of more than the memory succeeds is a matter of luck there. Here
//! all sorts together hold a part of the pool, and with their merges a larger part, but never all of it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

/// How the consumers begin that hold the rows of a sort, and those that merge them.
const SORTS: &str = "ExternalSorter[";
const MERGES: &str = "ExternalSorterMerge[";

/// Eighths of the pool that all sorts hold at most, and those with their merges.
const SORTS_EIGHTHS: usize = 3;
const MERGES_EIGHTHS: usize = 6;

/// DataFusion's pool, which shares evenly among those that can write down what they hold, with less for sorts.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    all: FairSpillPool,
    bytes: usize,
    held: Mutex<Held>,
}

/// What sorts hold.
#[derive(Debug, Default)]
struct Held {
    /// Each of them, by the id of its consumer; all of its reservations together.
    sorts: HashMap<usize, usize>,
    /// All of their merges.
    merges: usize,
}

impl Held {
    /// Whether a sort or a merge may hold more, of which then is taken note. Others may as far as this is concerned.
    fn grow(&mut self, consumer: &MemoryConsumer, more: usize, bytes: usize) -> bool {
        if consumer.name().starts_with(SORTS) {
            let share = bytes / 8 * SORTS_EIGHTHS / self.sorts.len().max(1);
            let held = self.sorts.entry(consumer.id()).or_default();
            // The first rows of each are taken if the pool allows.
            let may_grow = *held == 0 || held.saturating_add(more) <= share;
            *held += if may_grow { more } else { 0 };
            return may_grow;
        }
        if consumer.name().starts_with(MERGES) {
            let sorts: usize = self.sorts.values().sum();
            let all = sorts.saturating_add(self.merges).saturating_add(more);
            let may_grow = all <= bytes / 8 * MERGES_EIGHTHS;
            self.merges += if may_grow { more } else { 0 };
            return may_grow;
        }
        true
    }

    fn shrink(&mut self, consumer: &MemoryConsumer, less: usize) {
        if consumer.name().starts_with(SORTS) {
            let held = self.sorts.entry(consumer.id()).or_default();
            *held = held.saturating_sub(less);
        } else if consumer.name().starts_with(MERGES) {
            self.merges = self.merges.saturating_sub(less);
        }
    }
}

impl QueryMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { all: FairSpillPool::new(bytes), bytes, held: Mutex::default() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        // Each change is whole before anything can panic.
        change(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        self.all.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.all.register(consumer);
        if consumer.name().starts_with(SORTS) {
            self.change(|held| held.sorts.insert(consumer.id(), 0));
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.all.unregister(consumer);
        self.change(|held| held.sorts.remove(&consumer.id()));
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.all.grow(reservation, additional);
        self.change(|held| held.grow(reservation.consumer(), additional, usize::MAX));
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.all.shrink(reservation, shrink);
        self.change(|held| held.shrink(reservation.consumer(), shrink));
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let consumer = reservation.consumer();
        if !self.change(|held| held.grow(consumer, additional, self.bytes)) {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} has its share of the memory for sorts already",
                consumer.name()
            )));
        }
        let grown = self.all.try_grow(reservation, additional);
        if grown.is_err() {
            self.change(|held| held.shrink(consumer, additional));
        }
        grown
    }

    fn reserved(&self) -> usize {
        self.all.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.all.memory_limit()
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn sort(pool: &Arc<dyn MemoryPool>, partition: usize) -> MemoryReservation {
        let name = format!("ExternalSorter[{partition}]");
        MemoryConsumer::new(name).with_can_spill(true).register(pool)
    }

    #[test]
    fn sorts_leave_room_for_their_merges_and_these_for_others() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(800));
        let (one, other) = (sort(&pool, 0), sort(&pool, 1));
        one.try_grow(150).unwrap();
        assert!(one.try_grow(1).is_err());
        // Parts of what it holds are of the same sort.
        let part = one.split(120);
        assert!(one.try_grow(1).is_err());
        other.try_grow(150).unwrap();
        let merge = MemoryConsumer::new("ExternalSorterMerge[0]").register(&pool);
        merge.try_grow(300).unwrap();
        assert!(merge.try_grow(1).is_err());
        let above = MemoryConsumer::new("SortPreservingMergeExec[0]").register(&pool);
        above.try_grow(200).unwrap();
        assert!(above.try_grow(1).is_err());
        assert_eq!(pool.reserved(), 800);
        drop((part, merge, above));
        one.try_grow(120).unwrap();
        drop((one, other));
        // Alone it has all of that; whoever else can write down what it holds has the share that it ever had.
        let alone = sort(&pool, 0);
        alone.try_grow(300).unwrap();
        assert!(alone.try_grow(1).is_err());
        alone.free();
        alone.try_grow(700).unwrap();
        alone.free();
        let groups = MemoryConsumer::new("Groups").with_can_spill(true).register(&pool);
        groups.try_grow(400).unwrap();
        drop((alone, groups));
        assert_eq!(pool.reserved(), 0);
    }
}
