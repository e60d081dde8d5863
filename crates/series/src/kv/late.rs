//! What is known of the rows of a run that came late: whether they replace others.

use tidefall_sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tidefall_types::TimeRange;

/// Those of no rows.
pub(super) const NO_TIMES: TimeRange = TimeRange::new(i64::MAX, i64::MIN);

/// The rows of a run that are not newer than all that their sensor had before, and whether one of them replaces another. That is a fact about
/// what was written before: it is found out once, whoever asks first.
#[derive(Debug)]
pub(crate) struct Late {
    /// Where those are in the run, ascending, of which it was not known when the run was made.
    rows: Vec<u32>,
    /// The times of the other rows, or more; nothing where that is not known.
    others: Option<TimeRange>,
    /// Whether all of them are newer than what their sensors had in memory: only objects may have readings of theirs.
    pub(crate) are_behind_memory: bool,
    /// How often the table had lost readings when they came: only before it loses more can be seen what they may have replaced.
    pub(crate) losses: u64,
    /// The times of the rows that did not come late, or more, whatever has become known of the others.
    pub(crate) in_order: TimeRange,
    are_new: OnceLock<bool>,
}

/// What is to be known of a table to find out whether late rows replace others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settling {
    /// How often readings have gone that were not replaced: by deletes, and for their age.
    pub(crate) losses: u64,
    turn: Arc<Mutex<()>>,
}

impl Settling {
    /// Held by who looks rows up. Others who want to know wait, and find it known.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Late {
    /// Rows of which nothing is known, and that are taken to replace others.
    fn default() -> Self {
        let (are_new, in_order) = (OnceLock::from(false), TimeRange::ALL);
        let rows = Vec::new();
        Self { rows, others: None, are_behind_memory: false, losses: 0, in_order, are_new }
    }
}

impl Late {
    pub(crate) fn new(rows: Vec<u32>, others: TimeRange, are_behind_memory: bool) -> Self {
        let are_new = if rows.is_empty() { OnceLock::from(true) } else { OnceLock::new() };
        let in_order = others;
        Self { rows, others: Some(others), are_behind_memory, losses: 0, in_order, are_new }
    }

    /// What is known of runs that become one: of each what is known, its number of rows and the times of these.
    pub(super) fn concat(runs: &[(&Self, usize, TimeRange)]) -> Self {
        let in_order = runs.iter().map(|(late, ..)| late.in_order);
        let in_order = in_order.reduce(|all, more| all.union(&more)).unwrap_or(NO_TIMES);
        if runs.iter().any(|(late, ..)| late.are_new.get() == Some(&false)) {
            return Self { in_order, ..Self::default() };
        }
        let losses = runs.iter().map(|(late, ..)| late.losses).min().unwrap_or_default();
        let are_behind_memory = runs.iter().all(|(late, ..)| late.are_behind_memory);
        let others = runs.iter().map(|(late, _, range)| late.others(range));
        let others = others.reduce(|all, more| all.union(&more)).unwrap_or(NO_TIMES);
        let (mut start, mut rows) = (0, Vec::new());
        for (late, count, _) in runs {
            rows.extend(late.unsettled().iter().map(|row| start + row));
            start += *count as u32;
        }
        Self { losses, in_order, ..Self::new(rows, others, are_behind_memory) }
    }

    /// What is known of those rows of a run, which has rows within `range`, that are `kept` and ascend.
    pub(super) fn of_kept(&self, kept: &[u32], range: &TimeRange) -> Self {
        let in_order = self.in_order;
        if self.are_new.get() == Some(&false) {
            return Self { in_order, ..Self::default() };
        }
        let place = |row: &u32| kept.binary_search(row).ok().map(|place| place as u32);
        let rows = self.unsettled().iter().filter_map(place).collect();
        let others = self.others(range);
        let losses = self.losses;
        Self { losses, in_order, ..Self::new(rows, others, self.are_behind_memory) }
    }

    /// The times of the rows that are not among the unsettled ones, or more.
    fn others(&self, range: &TimeRange) -> TimeRange {
        self.others.filter(|_| self.are_new.get().is_none()).unwrap_or(*range)
    }

    /// The rows that came late, whatever is known of them by now, and the times of all others or more; nothing where that is not known.
    pub(crate) fn apart(&self) -> Option<(&[u32], TimeRange)> {
        self.others.map(|others| (&self.rows[..], others))
    }

    /// Whether none replaces another, as far as is known.
    pub(super) fn are_new(&self) -> bool {
        self.are_new.get() == Some(&true)
    }

    /// The rows of which it is not known.
    pub(super) fn unsettled(&self) -> &[u32] {
        if self.are_new.get().is_none() { &self.rows } else { &[] }
    }

    pub(super) fn settle(&self, are_new: bool) {
        // Somebody else may have found the same.
        let _ = self.are_new.set(are_new);
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<u32>()
    }
}
