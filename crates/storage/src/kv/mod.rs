//! The key-value model: readings as they came, in memory, covered by the log.
//!
//! A write adds a [`Run`], or a part of one: nothing is looked up and nothing is sorted while
//! readings arrive. A run finds its order by sensor and time when a reader first asks for it.

mod held;
mod run;
mod scatter;
mod texts;

pub(crate) use held::{Held, KvBytes};
pub(crate) use run::{Known, Run, RunWalk, Together, order_of};
pub(crate) use scatter::sort_runs;
