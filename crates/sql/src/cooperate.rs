//! Queries that can be stopped, and recursions that come to an end.
//!
//! A stream that is computed without waiting gives other tasks, and whoever wants to stop it, a turn only
//! where it says so. Our leaves of a plan do (`source.rs`). A join or an `unnest` may make millions of batches of one that a leaf
//! gave, and a series of DataFusion's knows no time: they say so here; so does a recursion, which has a limit, too: without a condition it has no end.
//!
//! A join that finds nothing gives no batches on which it could say so, and works through the pairs of one batch of its
//! probe side with all rows of its build side in one go. `pace` cuts these batches.
//!
//! A join of all with all makes a batch for each row of one side. Small ones become one, as some of what is above them takes long for each batch:
//! `array_agg` counts what it has so far.
//!
//! What has taken all of its rows, such as a grouping or a sort, gives out batches without waiting, too. Where functions are computed of these, they
//! give others a turn between them (`calls.rs`): a sum of edit distances of some million groups could not be stopped.
//!
//! A task may go on for 128 steps at a time, and for 10 ms and the batch that it is at, as what is made of one may take long (`step.rs`): behind
//! two clients who had left a sum of edit distances a third one waited for a minute. DataFusion's `CooperativeExec` takes a step on the way down, so that of more
//! joins within each other than that none would ever move. Here a step is a batch on its way up: one for which none is
//! left waits where it is.

mod calls;
mod pace;
mod step;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::stream::Fuse;
use futures::{Stream, StreamExt};
use tidefall_types::Error;

use self::calls::{calls_functions, gives_turns};
use self::pace::{Kept, PaceExec};
pub(crate) use self::step::Steps;
use crate::error::to_datafusion;
use crate::passing::{PassesRows, passes_rows_on};
use crate::tree::Tree;

/// Batches of a recursion at most. Each step makes one at least, and these take some seconds.
const RECURSION_BATCHES_MAX: usize = 100_000;
/// Rows or bytes of small batches that become one.
const GATHERED_ROWS: usize = 4_096;
const GATHERED_BYTES: usize = 1 << 20;

/// Lets every join, every recursion and whatever else makes many batches give others a turn.
#[derive(Debug)]
pub(crate) struct Cooperation;

impl PhysicalOptimizerRule for Cooperation {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wrapped = plan.transform_up(|plan| {
            let left = match plan.name() {
                "RecursiveQueryExec" => RECURSION_BATCHES_MAX,
                name if name.ends_with("JoinExec") => usize::MAX,
                // Many batches of one, and many of none.
                "UnnestExec" | "LazyMemoryExec" => usize::MAX,
                _ if calls_functions(&plan)? => return plan.map_children(between_batches),
                _ => return Ok(Transformed::no(plan)),
            };
            let kept = Arc::new(Kept::new(plan.output_partitioning().partition_count()));
            let gathers = plan.name() == "CrossJoinExec";
            let input = paced(plan, &kept)?;
            Ok(Transformed::yes(Arc::new(TurnsExec { input, kept, left, gathers }) as _))
        });
        wrapped.map(|wrapped| wrapped.data)
    }

    fn name(&self) -> &str {
        "tidefall_cooperation"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A plan that gives others a turn between its batches.
fn between_batches(input: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if gives_turns(&input) {
        return Ok(Transformed::no(input));
    }
    let kept = Arc::new(Kept::new(input.output_partitioning().partition_count()));
    let turns = TurnsExec { input, kept, left: usize::MAX, gathers: false };
    Ok(Transformed::yes(Arc::new(turns) as _))
}

/// A join whose probe side comes in batches that it works through in time.
fn paced(join: Arc<dyn ExecutionPlan>, kept: &Arc<Kept>) -> Result<Arc<dyn ExecutionPlan>> {
    if !matches!(join.name(), "NestedLoopJoinExec" | "HashJoinExec") {
        return Ok(join);
    }
    let children: Vec<_> = join.children().into_iter().cloned().collect();
    let Ok([build, probe]) = <[_; 2]>::try_from(children) else { return Ok(join) };
    let probe = Arc::new(PaceExec::new(probe, Arc::clone(kept)));
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    join.replace_children(vec![build, probe], anew)
}

/// Gives others a turn between the batches of its input.
#[derive(Debug)]
struct TurnsExec {
    input: Arc<dyn ExecutionPlan>,
    /// How the input keeps its thread.
    kept: Arc<Kept>,
    /// Batches that may come.
    left: usize,
    /// Whether small batches become one.
    gathers: bool,
}

passes_rows_on!(TurnsExec);

impl PassesRows for TurnsExec {
    const NAME: &'static str = "Turns";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, kept: Arc::clone(&self.kept), left: self.left, gathers: self.gathers }
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?.fuse();
        let kept = Arc::clone(&self.kept);
        let gathered = self.gathers.then(Gathered::default);
        let (waiting, steps) = (None, Steps::begin());
        Ok(Box::pin(Turns { input, waiting, left: self.left, kept, partition, gathered, steps }))
    }
}

/// The batches of a stream, with turns for others between them.
struct Turns {
    /// What is gathered last comes before its end does.
    input: Fuse<SendableRecordBatchStream>,
    /// What has come when no step was left.
    waiting: Option<Result<RecordBatch>>,
    /// Batches that may come.
    left: usize,
    kept: Arc<Kept>,
    partition: usize,
    gathered: Option<Gathered>,
    steps: Steps,
}

/// Small batches that will become one.
#[derive(Default)]
struct Gathered {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl Gathered {
    /// Takes a batch; whether it is enough then.
    fn add(&mut self, batch: RecordBatch) -> bool {
        self.rows += batch.num_rows();
        self.bytes += batch.get_array_memory_size();
        self.batches.push(batch);
        // Also batches without rows come to an end.
        self.rows.max(self.batches.len()) >= GATHERED_ROWS || self.bytes >= GATHERED_BYTES
    }

    fn take(&mut self) -> Option<Result<RecordBatch>> {
        let Self { batches, .. } = std::mem::take(self);
        let first = batches.first()?;
        Some(match batches.len() {
            1 => Ok(first.clone()),
            _ => concat_batches(first.schema_ref(), &batches).map_err(Into::into),
        })
    }
}

impl Turns {
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        self.kept.begin(self.partition);
        let polled = self.poll_batches(cx);
        self.kept.end(self.partition);
        polled
    }

    fn poll_batches(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let Some(gathered) = &mut self.gathered else { return self.input.poll_next_unpin(cx) };
        loop {
            match ready!(self.input.poll_next_unpin(cx)) {
                Some(Ok(batch)) => {
                    if gathered.add(batch) {
                        return Poll::Ready(gathered.take());
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(gathered.take()),
            }
        }
    }
}

impl Stream for Turns {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batch = match self.waiting.take() {
            Some(batch) => batch,
            None => match self.poll_input(cx) {
                Poll::Ready(Some(_)) if self.left == 0 => Err(endless()),
                Poll::Ready(Some(batch)) => {
                    self.left -= 1;
                    batch
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.steps.rest();
                    return Poll::Pending;
                }
            },
        };
        match self.steps.poll_step(cx) {
            Poll::Ready(step) => {
                step.made_progress();
                Poll::Ready(Some(batch))
            }
            Poll::Pending => {
                self.waiting = Some(batch);
                Poll::Pending
            }
        }
    }
}

fn endless() -> DataFusionError {
    to_datafusion(Error::limit(format!(
        "a recursion makes more than {RECURSION_BATCHES_MAX} steps; end it with a condition, or take numbers from \
         generate_series"
    )))
}

impl RecordBatchStream for Turns {
    fn schema(&self) -> SchemaRef {
        self.input.get_ref().schema()
    }
}
