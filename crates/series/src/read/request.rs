//! What a reader asks for, and what it gets.

use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use tidefall_sync::atomic::{AtomicU64, Ordering};
use tidefall_types::{FieldId, TimeRange};

use super::bin::Bin;
use super::sensors::Sensors;
use crate::segment::wanted::Wanted;

/// Rows of a batch at most; also the unit in which a scan allocates. A batch of long texts or of very many fields has fewer.
pub const BATCH_ROWS: usize = 8192;
/// Values of a batch at most, some 16 MiB of numbers, so that a table of thousands of fields is read in smaller batches.
pub(super) const BATCH_VALUES: usize = 2 << 20;

/// A question for rows.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// The sensors, in the order in which their rows shall come out; none twice.
    pub sensors: Vec<u32>,
    /// The times.
    pub time: TimeRange,
    /// The fields to deliver, in this order; may be empty, then only sensors and times come.
    pub fields: Vec<FieldId>,
    /// Conditions that every wanted row meets. They only serve to leave out blocks that cannot
    /// hold such a row: rows that do not meet them may still come.
    pub conditions: Vec<ValueCondition>,
    /// Enough rows; the scan may stop after as many.
    pub limit: Option<usize>,
}

/// A comparison that a condition makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Less than.
    Lt,
    /// Less than or equal.
    LtEq,
    /// Greater than.
    Gt,
    /// Greater than or equal.
    GtEq,
    /// Equal.
    Eq,
}

/// A condition on the value of a field, such as `temperature > 80`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueCondition {
    /// The field; must be numeric.
    pub field: FieldId,
    /// The comparison with the value of the field on its left.
    pub op: Comparison,
    /// What the field is compared with.
    pub value: f64,
}

/// A condition that becomes known while rows are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LateCondition {
    /// What a value must meet.
    pub condition: ValueCondition,
    /// Whether rows without a value are wanted, too.
    pub or_null: bool,
}

/// At which end of time reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOrder {
    /// With the earliest rows.
    OldestFirst,
    /// With the latest rows.
    NewestFirst,
}

/// A piece of a scan's answer: rows as columns.
#[derive(Debug, Clone)]
pub struct RowBatch {
    /// The sensor of each row.
    pub sensors: Vec<u32>,
    /// The time of each row in nanoseconds since 1970 UTC; empty if the scan is without times.
    pub time: ScalarBuffer<i64>,
    /// The requested fields.
    pub fields: Vec<ArrayRef>,
}

impl RowBatch {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.sensors.len()
    }
}

/// A question for metrics instead of rows.
#[derive(Debug, Clone)]
pub struct AggregateRequest {
    /// The sensors.
    pub sensors: Sensors,
    /// For each of `sensors` the group into which it counts, below `group_count`; nothing where all count into group 0.
    pub groups: Vec<u32>,
    /// The number of groups.
    pub group_count: u32,
    /// The times.
    pub time: TimeRange,
    /// How time is cut; one bin for all of it when absent.
    pub bin: Option<Bin>,
    /// The numeric fields whose metrics are wanted.
    pub fields: Vec<FieldId>,
    /// Whether [`FieldMetrics::m2`] is wanted, which takes as long as all the others do.
    pub deviations: bool,
    /// Whether the least and the greatest values are wanted. Where they are not, they are of no meaning: sums alone take a
    /// third of the time.
    pub extremes: bool,
    /// Whether the first and the last times and values are wanted; they, too, are of no meaning else.
    pub ends: bool,
}

impl AggregateRequest {
    /// What of the metrics of its fields is wanted.
    pub(crate) fn wanted(&self) -> Wanted {
        let Self { extremes, ends, deviations, .. } = *self;
        Wanted { sums: true, extremes, ends, deviations }
    }
}

/// Metrics by group and bin, ordered by them; groups and bins without a row are left out.
#[derive(Debug, Clone)]
pub struct AggregateResult {
    /// The group of each line.
    pub group: Vec<u32>,
    /// The start of the bin of each line; [`i64::MIN`] throughout when the request has no bins.
    pub bin_start_ns: Vec<i64>,
    /// The rows of each line, including those in which all fields are null.
    pub rows: Vec<u64>,
    /// The first time of each line.
    pub first_time_ns: Vec<i64>,
    /// The last time of each line.
    pub last_time_ns: Vec<i64>,
    /// The metrics of each requested field.
    pub fields: Vec<FieldMetrics>,
}

/// The metrics of one field, one value a line. Null where `count` is 0.
#[derive(Debug, Clone)]
pub struct FieldMetrics {
    /// The values that are not null.
    pub count: Vec<u64>,
    /// The least value, in the type of the field. NaN counts as greater than every number.
    pub min: ArrayRef,
    /// The greatest value, in the type of the field.
    pub max: ArrayRef,
    /// The sum: `Float64` for floats, `Int64` or `UInt64` (wrapping) for integers.
    pub sum: ArrayRef,
    /// The sum as `f64` also for integers, whose sum is exact before it is rounded once; an average is made of it.
    pub sum_f64: Vec<f64>,
    /// The sum of the squared differences from the mean, from which a variance is made; of no
    /// meaning where the request does not want it.
    pub m2: Vec<f64>,
    /// The value of the earliest row in which the field is not null.
    pub first: ArrayRef,
    /// The value of the latest row in which the field is not null.
    pub last: ArrayRef,
    /// The time of `first`; of no meaning where there is none.
    pub first_time_ns: Vec<i64>,
    /// The time of `last`; of no meaning where there is none.
    pub last_time_ns: Vec<i64>,
}

/// What a read has touched so far. Counted as it runs, readable at any time.
#[derive(Debug, Default)]
pub struct ReadStats {
    /// Objects from which something was read.
    pub objects: AtomicU64,
    /// Pages decoded.
    pub pages: AtomicU64,
    /// Pages left out because their metrics rule every row out.
    pub pages_pruned: AtomicU64,
    /// Bytes read from objects.
    pub bytes: AtomicU64,
    /// Rows delivered, or aggregated one by one.
    pub rows: AtomicU64,
    /// Rows taken from the key-value model in memory.
    pub rows_from_memory: AtomicU64,
    /// Blocks answered from their metrics.
    pub blocks_from_metrics: AtomicU64,
}

impl ReadStats {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}
