//! What stands before the name of a table, and need not be written. Layers have schemas of their own (`layers/`).

/// The name of the one catalog.
pub(crate) const CATALOG: &str = "tidefall";
/// The schema in which a table has one row per reading; `plant` is short for `kv.plant`.
pub(crate) const READINGS: &str = "kv";
