//! What data frames ask of a table: sensors by their tags, one field of these side by side, each by itself, at one time, or in bins.
//!
//! The Python package asks so in its own process, and a server for its clients: `ask.rs` is a question as a client sends it, `answer.rs` what it gets,
//! a column of Arrow for each thing. Both come to [`Question`], so that answers are the same.

mod answer;
mod ask;
mod pieces;
mod question;
mod resample;

pub use answer::{Answer, Sizes};
pub use ask::{Ask, Asked, BinsAsked, Bound, Kept, range_of};
pub use question::{Block, Chosen, Points, Question, Tags};
pub use resample::{Aggregate, Bins};
