//! Records: rows without identity, that are asked for by boxes over any of their dimensions. After the paper on multidimensional
//! data (MDDS, part 3 of the workloads).
//!
//! 1. A dimension is a column of numbers or times. Its values count as integers in their order ([`ordinal`]), so that a box over
//!    dimensions of all types is one kind of thing ([`region`]).
//! 2. Rows that came are put into the order of a kd-tree ([`order`]), and that is cut into leaves of equal length. What a leaf spans
//!    in each dimension stands in columns beside those of all others ([`leaves`]), so that a box is tested against a
//!    thousand leaves in some microseconds, and a leaf needs no pointer. What the rows of a leaf come to is known as well ([`metrics`]).
//! 3. Rows with their leaves are packed ([`packed`]): they can be asked, and written to an object ([`segment`]) as they are.
//! 4. A question is a union of boxes ([`read`]): leaves outside are passed over, of those inside rows are not looked at, and aggregates
//!    come from metrics ([`total`]); rows of leaves that a box cuts are tested column by column ([`mask`]). Who looks for
//!    neighbours of a point begins with the nearest leaves ([`distance`]).
//!
//! What a database asks of each kind of table, and where it is answered here:
//!
//! | question | answer |
//! |---|---|
//! | open what the manifest names | [`open`] |
//! | apply a change; a record of the log | [`change`]; [`replay`] |
//! | the oldest record still needed, what the log alone holds | [`table::Live::oldest_seq`], [`install`] |
//! | flush, and the next step of upkeep | [`flush`], [`compact`], [`upkeep`], [`retention`] |
//! | rows that go past the log | [`load`] |
//! | show one moment | [`snapshot`] |
//! | verify, report | [`verify`], [`report`] |

pub mod change;
pub mod compact;
pub mod context;
pub mod deletes;
pub mod distance;
pub mod failed;
pub mod flush;
pub mod install;
pub mod leaves;
pub mod load;
pub mod mask;
pub mod merge;
pub mod metrics;
pub mod open;
pub mod order;
pub mod ordinal;
pub mod packed;
pub mod read;
pub mod record;
pub mod region;
pub mod replay;
pub mod report;
pub mod retention;
pub mod segment;
pub mod snapshot;
pub mod table;
pub mod total;
pub mod upkeep;
pub mod verify;
pub mod version;
mod write;

pub use context::Context;
pub use table::Table;

#[cfg(test)]
mod testing;
