//! Sorts and windows that run over a stretch of whole groups at a time.
//!
//! Where rows come ordered by the first keys of a sort, or by the keys of a window's partitions, nothing has to be known
//! of what comes later: with sensors one after the other, the memory of some of them is enough. DataFusion's nodes take
//! all rows first. Here they run again and again, each time over rows up to where the keys change.
//!
//! Windows over whole partitions hold their rows without asking the memory of queries for it; it is asked for here.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{ArrayRef, RecordBatch, make_comparator};
use datafusion::arrow::compute::{SortOptions, partition};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::plan_err;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{Stream, StreamExt};

use crate::otherwise::{RunsOtherwise, runs_otherwise};
use crate::over::{OverExec, bytes_of, reservation_of};
use crate::sort::SortedExec;
use crate::tree::Tree;

/// Lets sorts and windows run groupwise where they can.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Groupwise {
    /// Rows of a stretch at least, so that it pays to begin one.
    rows: usize,
    /// Bytes that are enough as well, where rows are long.
    bytes: usize,
}

impl Default for Groupwise {
    fn default() -> Self {
        Self { rows: 1 << 16, bytes: 8 << 20 }
    }
}

impl PhysicalOptimizerRule for Groupwise {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wrapped = plan.transform_up(|node| {
            let (sort, window) =
                (node.downcast_ref::<SortedExec>(), node.downcast_ref::<WindowAggExec>());
            let keys = match (sort, window) {
                (Some(sort), _) => ordered_before(sort)?,
                // Without keys there is one stretch, whose memory counts.
                (_, Some(window)) => Some(partition_keys(window)),
                _ => None,
            };
            let is_window = node.is::<WindowAggExec>();
            Ok(match keys {
                Some(keys) => {
                    let groupwise = Arc::new(GroupwiseExec { inner: node, keys, least: *self });
                    Transformed::yes(match is_window {
                        true => Arc::new(OverExec::new(groupwise)) as _,
                        false => groupwise as _,
                    })
                }
                None if node.is::<BoundedWindowAggExec>() => {
                    Transformed::yes(Arc::new(OverExec::new(node)) as _)
                }
                None => Transformed::no(node),
            })
        });
        wrapped.map(|wrapped| wrapped.data)
    }

    fn name(&self) -> &str {
        "tidefall_groupwise"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The first keys of a sort by which its input is ordered already. None if there are none.
fn ordered_before(sort: &SortedExec) -> Result<Option<Vec<Arc<dyn PhysicalExpr>>>> {
    let sort = sort.sort();
    let ordered = sort.input().equivalence_properties();
    let mut count = 0;
    while count < sort.expr().len()
        && ordered.ordering_satisfy(sort.expr().iter().take(count + 1).cloned())?
    {
        count += 1;
    }
    let keys = sort.expr().iter().take(count).map(|key| Arc::clone(&key.expr)).collect();
    Ok((count > 0).then_some(keys))
}

/// What the partitions of all functions of a window node have in common.
fn partition_keys(window: &WindowAggExec) -> Vec<Arc<dyn PhysicalExpr>> {
    let Some((first, others)) = window.window_expr().split_first() else { return Vec::new() };
    let keys = first.partition_by();
    let same = |keys: &[Arc<dyn PhysicalExpr>], of: &[Arc<dyn PhysicalExpr>]| {
        keys.len() == of.len() && keys.iter().all(|key| of.contains(key))
    };
    match others.iter().all(|other| same(keys, other.partition_by())) {
        true => keys.to_vec(),
        false => Vec::new(),
    }
}

/// A sort or a window that runs over stretches of its input, which end where keys change.
#[derive(Debug)]
struct GroupwiseExec {
    inner: Arc<dyn ExecutionPlan>,
    /// Rows with equal keys come one after the other.
    keys: Vec<Arc<dyn PhysicalExpr>>,
    least: Groupwise,
}

impl DisplayAs for GroupwiseExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "Groupwise: by=[{}], ", keys.join(", "))?;
        self.inner.fmt_as(kind, f)
    }
}

runs_otherwise!(GroupwiseExec);

impl RunsOtherwise for GroupwiseExec {
    const NAME: &'static str = "Groupwise";

    type Inner = dyn ExecutionPlan;

    fn inner(&self) -> &Arc<dyn ExecutionPlan> {
        &self.inner
    }

    fn over(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self { inner, keys: self.keys.clone(), least: self.least })
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let children = self.inner.children();
        let Some(child) = children.first() else {
            return plan_err!("nothing is sorted");
        };
        let input = child.execute(partition, Arc::clone(&context))?;
        let charged = self.inner.is::<WindowAggExec>().then(|| reservation_of(partition, &context));
        let rows = Rows {
            keys: self.keys.clone(),
            least: self.least,
            input,
            rest: None,
            last: None,
            rows: 0,
            bytes: 0,
            is_whole: false,
            has_ended: false,
            charged,
        };
        let rows = Shared(Arc::new(Mutex::new(rows)));
        let leaf =
            Arc::new(Leaf { rows: rows.clone(), properties: Arc::clone(child.properties()) });
        let keep = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        let inner = Arc::clone(&self.inner).replace_children(vec![leaf], keep)?;
        let wanted = self.kept();
        Ok(Box::pin(Stretches { inner, rows, running: None, wanted, partition, context }))
    }
}

/// The answers of the inner node to one stretch after the other.
struct Stretches {
    inner: Arc<dyn ExecutionPlan>,
    rows: Shared,
    running: Option<SendableRecordBatchStream>,
    /// Rows that are still wanted, where the inner node keeps the first ones only.
    wanted: Option<usize>,
    partition: usize,
    context: Arc<TaskContext>,
}

impl Stretches {
    /// Those of some rows that are wanted; what comes after them need not be read.
    fn keep(&mut self, batch: RecordBatch) -> RecordBatch {
        let Some(wanted) = &mut self.wanted else { return batch };
        let kept = batch.num_rows().min(*wanted);
        *wanted -= kept;
        if *wanted == 0 {
            self.running = None;
        }
        batch.slice(0, kept)
    }
}

impl Stream for Stretches {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(running) = &mut self.running {
                match ready!(running.poll_next_unpin(cx)) {
                    Some(batch) => return Poll::Ready(Some(batch.map(|batch| self.keep(batch)))),
                    None => self.running = None,
                }
            }
            if self.wanted == Some(0) || !self.rows.lock().begin() {
                return Poll::Ready(None);
            }
            let running = self.inner.execute(self.partition, Arc::clone(&self.context));
            match running {
                Ok(running) => self.running = Some(running),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl RecordBatchStream for Stretches {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}

/// The input of the inner node: the rows of the stretch that has begun.
struct Leaf {
    rows: Shared,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf").finish_non_exhaustive()
    }
}

impl DisplayAs for Leaf {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stretch")
    }
}

impl ExecutionPlan for Leaf {
    fn name(&self) -> &str {
        "Stretch"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(self.rows.clone()))
    }
}

/// What the inner node reads from, and what begins its stretches.
#[derive(Clone)]
struct Shared(Arc<Mutex<Rows>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Shared {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.lock().poll(cx)
    }
}

impl RecordBatchStream for Shared {
    fn schema(&self) -> SchemaRef {
        self.lock().input.schema()
    }
}

struct Rows {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    least: Groupwise,
    input: SendableRecordBatchStream,
    /// Rows of the next stretch that have come already.
    rest: Option<RecordBatch>,
    /// The keys of the last row, once the stretch may end.
    last: Option<Vec<ArrayRef>>,
    /// Rows and bytes of this stretch.
    rows: usize,
    bytes: usize,
    /// This stretch has all its rows.
    is_whole: bool,
    /// The input has no more rows.
    has_ended: bool,
    /// Memory for the rows of this stretch, where the inner node holds them without asking for it.
    charged: Option<MemoryReservation>,
}

impl Rows {
    /// Begins a stretch, if there may be rows for it.
    fn begin(&mut self) -> bool {
        (self.last, self.rows, self.bytes, self.is_whole) = (None, 0, 0, false);
        if let Some(charged) = &self.charged {
            charged.free();
        }
        self.rest.is_some() || !self.has_ended
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if self.is_whole {
            return Poll::Ready(None);
        }
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None if self.has_ended => return Poll::Ready(None),
            None => match ready!(self.input.poll_next_unpin(cx)) {
                Some(Ok(batch)) => batch,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.has_ended = true;
                    return Poll::Ready(None);
                }
            },
        };
        Poll::Ready(self.take(batch).transpose())
    }

    /// The rows of a batch that belong to this stretch; none if the stretch has ended before it.
    fn take(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let count = batch.num_rows();
        let mine = match &self.last {
            Some(last) if count > 0 => rows_before_a_change(last, &self.values(&batch)?)?,
            _ => count,
        };
        let batch = match mine < count {
            true => {
                self.is_whole = true;
                self.rest = Some(batch.slice(mine, count - mine));
                batch.slice(0, mine)
            }
            false => batch,
        };
        if mine == 0 && self.is_whole {
            return Ok(None);
        }
        let bytes: usize = batch.columns().iter().map(|column| bytes_of(column)).sum();
        if let Some(charged) = &self.charged {
            // The node lays all of them together at the end.
            charged.try_grow(2 * bytes)?;
        }
        self.rows += mine;
        self.bytes += bytes;
        if mine > 0 && !self.keys.is_empty() && self.is_long() {
            self.last = Some(self.values(&batch.slice(mine - 1, 1))?);
        }
        Ok(Some(batch))
    }

    fn is_long(&self) -> bool {
        self.rows >= self.least.rows || self.bytes >= self.least.bytes
    }

    fn values(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let of = |key: &Arc<dyn PhysicalExpr>| key.evaluate(batch)?.into_array(batch.num_rows());
        self.keys.iter().map(of).collect()
    }
}

/// How many of the rows have the keys of the one row that came before.
fn rows_before_a_change(last: &[ArrayRef], keys: &[ArrayRef]) -> Result<usize> {
    for (last, key) in last.iter().zip(keys) {
        let order = make_comparator(last, key, SortOptions::default())?;
        if order(0, 0).is_ne() {
            return Ok(0);
        }
    }
    let ranges = partition(keys)?.ranges();
    Ok(ranges.first().map_or(0, |range| range.end))
}

#[cfg(test)]
mod tests;
