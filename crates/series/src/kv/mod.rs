//! The key-value model: readings as they came, in memory, covered by the log.
//!
//! A write adds a [`Run`], or a part of one. Whoever writes many rows brings their order by sensor and time along; others
//! are ordered when a reader first asks for them. Nothing is looked up but the newest reading of each sensor.

mod late;
mod newest;
mod run;
mod scatter;
mod sort;
mod texts;

pub(crate) use late::{Fact, Group, Late, NO_TIMES, Settling};
pub(crate) use newest::Newest;
pub(crate) use run::{Known, Run, RunWalk, Together, dense_runs, is_sparse, order_of};
pub(crate) use scatter::{SortedRuns, sort_runs};

#[cfg(test)]
pub(crate) use run::GROWTH_MAX;
