//! What DataFusion leaves to its callers to compile: compiled here, once, and not with each edit of `tidefall-sql`.
//!
//! Walks are generic: those through statements (`walk.rs`) in the visitor, those through expressions and plans (`tree.rs`) in the
//! closure. An asynchronous function is compiled where it is awaited, with all that only it calls (`steps.rs`). Together they were a third
//! of what `tidefall-sql` had. So nothing that is generic in what it is called with may be called from here by a generic function:
//! each node has its own, which takes what it calls as `dyn`.

pub mod steps;
pub mod tree;
pub mod walk;
