//! Aggregates that block metrics answer.
//!
//! 1. [`MetricsRule`] (and `ask.rs`) looks for an `Aggregate` over one of our tables whose conditions the storage
//!    answers exactly, whose groups are functions of tags and at most one time bin, and whose
//!    aggregate functions can be made of counts, extremes, sums and first and last values.
//! 2. It replaces the `Aggregate`, and with it everything below, by a [`MetricsNode`]. Expressions
//!    above, such as `sum(x) / count(*)`, stay with DataFusion.
//! 3. `exec.rs` asks the storage for answers (`answers.rs`), piece by piece so that memory stays bounded. The storage
//!    reads whole blocks from their metrics and decodes only the ragged edges. `by_time.rs` asks from one end of
//!    time on, for sorts that keep a few bins.
//!    `distinct.rs` counts the values of a tag: DataFusion makes of `count(DISTINCT tag)` a count over the groups by
//!    this tag.
//! 4. An aggregate over the `UNION ALL` of several tables is a [`MergePlanner`]'s: of each table comes what an aggregate keeps
//!    between its stages, from metrics where they have it, and is merged.
//!
//! Whatever does not fit stays with DataFusion, with the same answer.

mod answers;
mod ask;
mod by_time;
mod columns;
mod distinct;
mod exec;
mod groups;
mod merge;
mod node;
mod one_grouping;
mod question;
mod rule;
mod spec;

pub(crate) use ask::{replace_columns, scan_below};
pub(crate) use merge::MergePlanner;
pub(crate) use node::MetricsPlanner;
pub(crate) use one_grouping::OneGrouping;
pub(crate) use rule::MetricsRule;
pub(crate) use spec::Measure;
