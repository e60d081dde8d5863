//! The memory of queries, of which sorts leave some to their own merges, and these to what stands above them.
//!
//! A sort that has no room left merges what it holds to write it down, and needs about as much again for that. In
//! DataFusion's pool other sorts take that room meanwhile, each as much as it would have if none of them merged, and
//! then a merge fails that cannot wait. At the end it merges as many of the runs that it has written as there is memory for, and
//! leaves none to the merge of all partitions. So whether a sort of more than the memory succeeds is a matter of luck there. Here
//! sorts have three eighths of the pool, their merges four, in even shares, and the last one is for others alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

/// DataFusion's pool, which shares evenly among those that can write down what they hold, with less for sorts.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    all: FairSpillPool,
    parts: Mutex<[Part; 2]>,
}

/// A part of the pool that some consumers share evenly.
#[derive(Debug)]
struct Part {
    /// How their names begin.
    prefix: &'static str,
    bytes: usize,
    /// What each of them holds, by its id; all of its reservations together.
    held: HashMap<usize, usize>,
}

impl Part {
    fn is_of(&self, consumer: &MemoryConsumer) -> bool {
        consumer.name().starts_with(self.prefix)
    }

    /// Takes note that a consumer holds more, if that is no more than its share.
    fn try_grow(&mut self, consumer: &MemoryConsumer, more: usize) -> bool {
        let share = self.bytes / self.held.len().max(1);
        let held = self.held.entry(consumer.id()).or_default();
        // The first rows of each are taken if the pool allows.
        let may_grow = *held == 0 || held.saturating_add(more) <= share;
        *held += if may_grow { more } else { 0 };
        may_grow
    }

    fn shrink(&mut self, consumer: &MemoryConsumer, less: usize) {
        let held = self.held.entry(consumer.id()).or_default();
        *held = held.saturating_sub(less);
    }
}

impl QueryMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        let part =
            |prefix, eighths| Part { prefix, bytes: bytes / 8 * eighths, held: HashMap::new() };
        let parts = [part("ExternalSorter[", 3), part("ExternalSorterMerge[", 4)];
        Self { all: FairSpillPool::new(bytes), parts: Mutex::new(parts) }
    }

    /// Changes the part of a consumer, if it has one.
    fn change<T>(
        &self,
        consumer: &MemoryConsumer,
        change: impl FnOnce(&mut Part) -> T,
    ) -> Option<T> {
        // Each change is whole before anything can panic.
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter_mut().find(|part| part.is_of(consumer)).map(change)
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        self.all.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.all.register(consumer);
        self.change(consumer, |part| part.held.insert(consumer.id(), 0));
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.all.unregister(consumer);
        self.change(consumer, |part| part.held.remove(&consumer.id()));
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.all.grow(reservation, additional);
        let consumer = reservation.consumer();
        self.change(consumer, |part| {
            *part.held.entry(consumer.id()).or_default() += additional;
        });
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.all.shrink(reservation, shrink);
        let consumer = reservation.consumer();
        self.change(consumer, |part| part.shrink(consumer, shrink));
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let consumer = reservation.consumer();
        if self.change(consumer, |part| part.try_grow(consumer, additional)) == Some(false) {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} has its share of the memory for sorts already",
                consumer.name()
            )));
        }
        let grown = self.all.try_grow(reservation, additional);
        if grown.is_err() {
            self.change(consumer, |part| part.shrink(consumer, additional));
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
        let merge = |partition: usize| {
            MemoryConsumer::new(format!("ExternalSorterMerge[{partition}]")).register(&pool)
        };
        let merges = [merge(0), merge(1)];
        for merge in &merges {
            merge.try_grow(150).unwrap();
            merge.new_empty().grow(50);
            merge.try_grow(50).unwrap();
            assert!(merge.try_grow(1).is_err());
        }
        let above = MemoryConsumer::new("SortPreservingMergeExec[0]").register(&pool);
        above.try_grow(100).unwrap();
        assert!(above.try_grow(1).is_err());
        assert_eq!(pool.reserved(), 800);
        drop((part, merges, above));
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
