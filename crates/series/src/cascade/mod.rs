//! The cascade: readings move from the key-value model to short columns to long columns.
//!
//! 1. `flush.rs`: rows in memory become objects of the model that owns their time.
//! 2. `kv_to_short.rs`: run files of days that have come of age become short columns.
//! 3. `short_to_long.rs`: days of months that have come of age become long columns, and parts of
//!    long columns that overlap become one.
//!
//! `load.rs` is a way in beside them, for whole columns. It shares `series.rs`, rows on their way to
//! objects, with the flush.
//!
//! Each step writes new objects first, then installs them in the manifest and removes their inputs
//! there in one commit, then shows them to readers in one step. A step that fails takes what it has
//! written away at once (`written.rs` of ground), and the others are taken without what could not be read
//! (`failed.rs`). A crash in between leaves objects that nothing names, which the next open deletes.

mod boundaries;
mod compact;
mod failed;
mod flush;
mod kv_to_short;
mod load;
mod order;
mod pieces;
mod retention;
mod retype;
mod rewrite;
mod series;
mod short_to_long;

pub use boundaries::{Boundaries, Target};
pub use compact::{Backlog, backlog, compact, compact_once};
pub use failed::{Outcome, look_again};
pub use flush::{Take, flush};
pub use kv_to_short::{Effort, Look, kv_to_short};
pub use load::{Loaded, load};
pub use retention::{drop_old, due_since_ns, retain};
pub use retype::retype;
pub(crate) use short_to_long::short_to_long;
