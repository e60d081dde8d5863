//! What queries read, for `EXPLAIN ANALYZE` and for whoever runs a query.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::physical_plan::metrics::{Count, Metric, MetricValue, MetricsSet};
use tidefall_storage::ReadStats;

/// What a query has read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Objects from which something was read.
    pub objects: u64,
    /// Pages decoded.
    pub pages: u64,
    /// Pages left out because their metrics rule every row out.
    pub pages_pruned: u64,
    /// Bytes read from objects.
    pub bytes: u64,
    /// Rows delivered, or aggregated one by one.
    pub rows: u64,
    /// Rows taken from the key-value model in memory.
    pub rows_from_memory: u64,
    /// Blocks answered from their metrics.
    pub blocks_from_metrics: u64,
}

/// The counters of all reads that a plan node has started; its clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    started: Arc<Mutex<Vec<Arc<ReadStats>>>>,
}

impl Tally {
    /// Counts a read in.
    pub(crate) fn add(&self, stats: &Arc<ReadStats>) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.push(Arc::clone(stats));
    }

    /// A read that is counted in.
    pub(crate) fn start(&self) -> Arc<ReadStats> {
        let stats = Arc::new(ReadStats::default());
        self.add(&stats);
        stats
    }

    /// What they have read so far.
    pub(crate) fn sum(&self) -> Reads {
        let mut all = Reads::default();
        for stats in self.started.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            all.add_stats(stats);
        }
        all
    }
}

impl Reads {
    fn add_stats(&mut self, stats: &ReadStats) {
        self.objects += stats.objects.load(Ordering::Relaxed);
        self.pages += stats.pages.load(Ordering::Relaxed);
        self.pages_pruned += stats.pages_pruned.load(Ordering::Relaxed);
        self.bytes += stats.bytes.load(Ordering::Relaxed);
        self.rows += stats.rows.load(Ordering::Relaxed);
        self.rows_from_memory += stats.rows_from_memory.load(Ordering::Relaxed);
        self.blocks_from_metrics += stats.blocks_from_metrics.load(Ordering::Relaxed);
    }

    /// Adds what another part of the query has read.
    pub(crate) fn add(&mut self, other: &Self) {
        self.objects += other.objects;
        self.pages += other.pages;
        self.pages_pruned += other.pages_pruned;
        self.bytes += other.bytes;
        self.rows += other.rows;
        self.rows_from_memory += other.rows_from_memory;
        self.blocks_from_metrics += other.blocks_from_metrics;
    }
}

/// The same as metrics of a plan node.
pub(crate) fn metrics(tally: &Tally) -> MetricsSet {
    let reads = tally.sum();
    let mut set = MetricsSet::new();
    for (name, value) in [
        ("objects", reads.objects),
        ("pages", reads.pages),
        ("pages_pruned", reads.pages_pruned),
        ("bytes", reads.bytes),
        ("rows", reads.rows),
        ("rows_from_memory", reads.rows_from_memory),
        ("blocks_from_metrics", reads.blocks_from_metrics),
    ] {
        let count = Count::new();
        count.add(usize::try_from(value).unwrap_or(usize::MAX));
        let value = MetricValue::Count { name: Cow::Borrowed(name), count };
        set.push(Arc::new(Metric::new(value, None)));
    }
    set
}
