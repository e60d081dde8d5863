//! The answer to a statement.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use futures::{Stream, StreamExt};
use tidefall_types::Result;

use crate::error::from_datafusion;
use crate::inserted::InsertNode;
use crate::reads::Reads;
use crate::sink::Inserted;
use crate::source::SourceNode;

/// The answer to a statement: a stream of batches that all have the same schema.
pub struct QueryStream {
    schema: SchemaRef,
    // Never locked: the mutex makes a stream that may be sent one that may also be shared.
    stream: Mutex<SendableRecordBatchStream>,
    plan: Option<Arc<dyn ExecutionPlan>>,
}

impl std::fmt::Debug for QueryStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryStream").field("schema", &self.schema()).finish_non_exhaustive()
    }
}

impl QueryStream {
    /// What `plan` gives out, if it is known which plan that is.
    pub(crate) fn new(
        stream: SendableRecordBatchStream,
        plan: Option<Arc<dyn ExecutionPlan>>,
    ) -> Self {
        Self { schema: stream.schema(), stream: Mutex::new(stream), plan }
    }

    /// An answer that is known already.
    pub(crate) fn ready(stream: SendableRecordBatchStream) -> Self {
        Self::new(stream, None)
    }

    /// The columns of the answer.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// What the query has read from tables so far; complete when the stream has ended.
    pub fn reads(&self) -> Reads {
        self.plan.as_ref().map(SourceNode::reads_below).unwrap_or_default()
    }

    /// What an `INSERT` has written, once its answer was read; none for other statements.
    pub fn inserted(&self) -> Option<Inserted> {
        self.plan.as_ref().and_then(InsertNode::inserted_by)
    }
}

impl Stream for QueryStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        stream.poll_next_unpin(cx).map(|item| item.map(|batch| batch.map_err(from_datafusion)))
    }
}
