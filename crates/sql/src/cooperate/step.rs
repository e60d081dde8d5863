//! How long a task keeps its thread.

use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::coop::{RestoreOnPending, poll_proceed};
use tokio::task::yield_now;

/// How long a task keeps its thread before others have a turn, but for what it is in the middle of.
const TURN_MAX: Duration = Duration::from_millis(10);

/// The steps of one stream. Tokio lets a task go on for 128 of them, and what is made of a batch above may take long: so they also end by time.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Since when the thread is kept, as far as is known here; nothing while it is given back. However long others keep it then, a step comes next.
    since: Option<Instant>,
}

impl Steps {
    pub(crate) const fn begin() -> Self {
        Self { since: None }
    }

    /// Takes a step, or gives the thread back: the task goes on when others have had a turn.
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<RestoreOnPending> {
        if self.since.get_or_insert_with(Instant::now).elapsed() < TURN_MAX {
            let step = poll_proceed(cx);
            if step.is_pending() {
                self.rest();
            }
            return step;
        }
        self.rest();
        // Behind all tasks that are ready, those that came from other threads, and timers. A task that wakes itself is looked at before all of these.
        let _always_pending = pin!(yield_now()).poll(cx);
        Poll::Pending
    }

    /// The thread is given back for another reason.
    pub(crate) const fn rest(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Who came from another thread waited for sixty turns of two tasks that were there before, and a timer did, too.
    #[test]
    fn tasks_from_elsewhere_and_timers_have_their_turns() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().expect("threads");
        let is_over = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..2)
            .map(|_| {
                let (is_over, mut steps) = (Arc::clone(&is_over), Steps::begin());
                runtime.spawn(poll_fn(move |cx| {
                    while !is_over.load(Ordering::SeqCst) {
                        match steps.poll_step(cx) {
                            Poll::Ready(step) => step.made_progress(),
                            Poll::Pending => return Poll::Pending,
                        }
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    Poll::Ready(())
                }))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        let small = runtime.spawn(async {
            let begun = Instant::now();
            tokio::time::sleep(Duration::from_millis(50)).await;
            begun
        });
        let begun = runtime.block_on(small).expect("a task");
        let waited = (begun - start, start.elapsed());
        is_over.store(true, Ordering::SeqCst);
        for task in busy {
            runtime.block_on(task).expect("a task");
        }
        assert!(waited.0 < Duration::from_secs(3), "{waited:?}");
        assert!(waited.1 < Duration::from_secs(4), "{waited:?}");
    }
}
