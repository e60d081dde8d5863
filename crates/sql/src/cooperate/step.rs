//! How long a task keeps its thread.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::coop::{RestoreOnPending, poll_proceed};

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
            return poll_proceed(cx);
        }
        self.rest();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The thread is given back for another reason.
    pub(crate) const fn rest(&mut self) {
        self.since = None;
    }
}
