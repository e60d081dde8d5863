//! What callers choose, and what they are told.

use tidefall_series::cascade::Target;
use tidefall_types::RowError;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ack {
    /// When it is in memory. It is not logged: a crash loses what was written after the last
    /// [`Db::flush`](crate::Db::flush), which makes everything before it durable. A write of many megabytes of texts comes into
    /// memory in parts, which readers may see one by one.
    Memory,
    /// When it is in the log on disk.
    #[default]
    Durable,
}

/// What happens to a batch in which some rows are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BadRows {
    /// Nothing of the batch is written.
    #[default]
    Reject,
    /// The good rows are written, the bad ones reported.
    SetAside,
}

/// What happens when a table, tag or field is named that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// The write is refused.
    #[default]
    Refuse,
    /// It is created: schema on write.
    Create,
}

/// What a write does with readings that have the tags and the time of one of its rows. A row always takes the place
/// of those before it in its own batch, which counts as replacing, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// It replaces them, field by field.
    #[default]
    Replace,
    /// It replaces them, and says how many. Rows that are newer than all of their sensors cost nothing for that.
    Count,
    /// It is refused if there are any, with `Conflict`; nothing is written then. So that it sees all others, no other write to its
    /// table is on its way from the moment that it is looked at until it is acknowledged.
    Refuse,
}

/// What happens when values of numbers come that do not fit into the type of their field, or values of any type for a field
/// that holds nothing as yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldTypes {
    /// They are bad: a field keeps its type.
    #[default]
    Keep,
    /// The field gets a type that holds them, if what it holds fits, too, and is not too much to be written anew while the
    /// write waits.
    Widen,
}

/// How much may be written anew when a field gets another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewriting {
    /// What takes some ten seconds at most.
    Brief,
    /// All that there is.
    All,
}

/// How a batch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// When the write is acknowledged.
    pub ack: Ack,
    /// What becomes of bad rows.
    pub bad_rows: BadRows,
    /// What becomes of unknown tables, tags and fields.
    pub unknown: Unknown,
    /// What becomes of readings that are there already.
    pub existing: Existing,
    /// What becomes of values that do not fit into the types of their fields.
    pub field_types: FieldTypes,
}

/// What a write did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// The rows written.
    pub rows: usize,
    /// How many of them took the place of others, where that was asked for with [`Existing::Count`] or
    /// [`Existing::Refuse`]. None also where a damaged object keeps it from being known. No record takes the place of another: always 0.
    pub replaced: Option<u64>,
    /// The rows left out, in order; empty unless [`BadRows::SetAside`] was chosen.
    pub bad: Vec<RowError>,
}

/// What `create_table` does when the table exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// It fails.
    Fail,
    /// It leaves the table as it is.
    Keep,
}

/// A request to move readings to the next model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CascadeRequest {
    /// One table, or all of them.
    pub table: Option<String>,
    /// How far.
    pub target: Target,
}
