//! A stream that is computed on threads that may block, so that whoever waits for it can stop waiting.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::task::AtomicWaker;
use futures::{FutureExt, Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::watch::Watch;
use crate::blocking::lost;
use crate::error::to_datafusion;

/// The batches of a stream, each asked for on a thread that may block: none is held while the stream waits.
pub(super) struct Apart {
    schema: SchemaRef,
    state: State,
    watch: Arc<Watch>,
    woken: Arc<Woken>,
    threads: Handle,
}

type Polled = Poll<Option<Result<RecordBatch>>>;

enum State {
    /// It can be asked for a batch.
    Resting(SendableRecordBatchStream),
    /// It waits for something, and wakes us.
    Waiting(SendableRecordBatchStream),
    Working(JoinHandle<(SendableRecordBatchStream, Polled)>),
    Done,
}

/// Whether the stream has something to do again, and whom to tell.
#[derive(Default)]
struct Woken {
    is_woken: AtomicBool,
    reader: AtomicWaker,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.reader.wake();
    }
}

impl Apart {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(stream: SendableRecordBatchStream, watch: Watch) -> Self {
        Self {
            schema: stream.schema(),
            state: State::Resting(stream),
            watch: Arc::new(watch),
            woken: Arc::default(),
            threads: Handle::current(),
        }
    }

    fn work(&self, mut stream: SendableRecordBatchStream) -> State {
        self.woken.is_woken.store(false, Ordering::SeqCst);
        let (watch, waker) = (Arc::clone(&self.watch), Waker::from(Arc::clone(&self.woken)));
        let threads = self.threads.clone();
        State::Working(self.threads.spawn_blocking(move || {
            let polled = watch.during(|| {
                // What waits for its turn within the stream has as many steps as in any other task.
                threads.block_on(std::future::poll_fn(|_| {
                    Poll::Ready(stream.poll_next_unpin(&mut Context::from_waker(&waker)))
                }))
            });
            (stream, polled)
        }))
    }
}

impl Stream for Apart {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.woken.reader.register(cx.waker());
        loop {
            match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return Poll::Ready(None),
                State::Waiting(stream) if !self.woken.is_woken.load(Ordering::SeqCst) => {
                    self.state = State::Waiting(stream);
                    return Poll::Pending;
                }
                State::Resting(stream) | State::Waiting(stream) => self.state = self.work(stream),
                State::Working(mut work) => {
                    let ended = match work.poll_unpin(cx) {
                        Poll::Ready(ended) => ended,
                        Poll::Pending => {
                            self.state = State::Working(work);
                            return Poll::Pending;
                        }
                    };
                    let (stream, polled) = ended.map_err(|error| to_datafusion(lost(error)))?;
                    match polled {
                        Poll::Ready(None) => return Poll::Ready(None),
                        Poll::Ready(batch) => {
                            self.watch.give();
                            self.state = State::Resting(stream);
                            return Poll::Ready(batch);
                        }
                        Poll::Pending => self.state = State::Waiting(stream),
                    }
                }
            }
        }
    }
}

impl RecordBatchStream for Apart {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.watch.leave();
    }
}
