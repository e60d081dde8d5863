//! Windows that can be stopped, and whose memory is charged.
//!
//! DataFusion computes windows in one go, without asking whether anybody still waits, and without asking for the memory of
//! what they keep and answer. Here:
//!
//! - A window node is computed on a thread that may block, so that whoever waits for it can stop waiting (`apart.rs`).
//! - Its functions ask for each row whether anybody still waits, and charge their answers (`watch.rs`).
//! - The rows that it keeps are charged by a function that sees them (`probe.rs`), or as a stretch (`../groupwise.rs`).

mod apart;
mod probe;
pub(crate) mod watch;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use futures::StreamExt;

use self::apart::Apart;
pub(crate) use self::probe::bytes_of;
use self::probe::probe;
use self::watch::Watch;
use crate::passing::{PassesRows, passes_rows_on};

/// Computes the window node below where it can be stopped.
#[derive(Debug)]
pub(crate) struct OverExec {
    input: Arc<dyn ExecutionPlan>,
}

impl OverExec {
    pub(crate) fn new(window: Arc<dyn ExecutionPlan>) -> Self {
        Self { input: window }
    }
}

passes_rows_on!(OverExec);

impl PassesRows for OverExec {
    const NAME: &'static str = "Over";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        // Sorts divide memory among all that can spill. Nothing is charged to this one: what they leave to it is free.
        let share = MemoryConsumer::new(format!("WindowShare[{partition}]")).with_can_spill(true);
        let share = share.register(context.memory_pool());
        let watch = Watch::new(reservation_of(partition, &context), share);
        let stream = match self.input.downcast_ref::<BoundedWindowAggExec>() {
            Some(window) => probed(window, partition, context)?,
            None => self.input.execute(partition, context)?,
        };
        Ok(Box::pin(Apart::new(stream, watch)))
    }
}

/// What a window answers, while the rows that it keeps are charged.
fn probed(
    window: &BoundedWindowAggExec,
    partition: usize,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let schema = window.schema();
    let mut functions = window.window_expr().to_vec();
    functions.extend(functions.first().map(probe));
    let (input, mode) = (Arc::clone(window.input()), window.input_order_mode.clone());
    let window = BoundedWindowAggExec::try_new(functions, input, mode, true)?;
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let batches = window.execute(partition, context)?;
    let batches = batches.map(move |batch| Ok(batch?.project(&columns)?));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

/// Memory for the windows of a partition of a plan node. They cannot spill, and count as a whole.
pub(crate) fn reservation_of(partition: usize, context: &TaskContext) -> MemoryReservation {
    MemoryConsumer::new(format!("Window[{partition}]")).register(context.memory_pool())
}
