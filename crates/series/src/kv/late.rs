//! What is known of the rows of a run that came late: whether they replace others.

use tidefall_sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tidefall_types::TimeRange;

/// Those of no rows.
pub(crate) const NO_TIMES: TimeRange = TimeRange::new(i64::MAX, i64::MIN);

/// What a group takes beside its rows.
const GROUP_BYTES: usize = size_of::<Group>() + 4 * size_of::<usize>();

/// The rows of a run that are not newer than all that their sensor had before, and whether one of them replaces another. That is a fact about
/// what was written before: it is found out once, whoever asks first.
#[derive(Debug)]
pub(crate) struct Late {
    /// Rows of which it was not known when the run was made, and those that are taken to replace others.
    groups: Vec<Group>,
    /// The times of the rows of no group, or more; nothing where that is not known.
    others: Option<TimeRange>,
    /// Whether all of them are newer than what their sensors had in memory: only objects may have readings of theirs.
    pub(crate) are_behind_memory: bool,
    /// The times of the rows that did not come late, or more, whatever has become known of the others.
    pub(crate) in_order: TimeRange,
    /// Set when none is known to replace another, so that nobody looks through thousands of groups for it again.
    are_all_new: OnceLock<()>,
}

/// Late rows of which it is found out together whether one of them replaces another. What is found of the rows of one write holds of all
/// runs that have some of them, also of those that somebody makes of a run meanwhile. So where some rows of a group are taken and others
/// kept, it must be known before: what is found of those that are kept would be said of all.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Where they are in the run, ascending. Of groups of which it is known there may be none.
    pub(crate) rows: Vec<u32>,
    fact: Fact,
}

/// Whether one of some late rows replaces another reading, as far as is known.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    /// Their times, or more.
    times: TimeRange,
    are_new: Arc<OnceLock<bool>>,
}

/// Whose turn it is to find out whether late rows of a table replace others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settling(Arc<Mutex<()>>);

impl Settling {
    /// Held by who looks rows up. Others who want to know wait, and find it known.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fact {
    fn is_known(&self) -> bool {
        self.are_new.get().is_some()
    }

    /// Takes note of what was found out.
    pub(crate) fn settle(&self, are_new: bool) {
        // Somebody else may have found the same.
        let _ = self.are_new.set(are_new);
    }

    /// Whether none with a time within `range` replaces another, as far as some of these are known.
    pub(crate) fn are_new<'a>(
        facts: impl IntoIterator<Item = &'a Self>,
        range: &TimeRange,
    ) -> bool {
        let mut within = facts.into_iter().filter(|fact| fact.times.overlaps(range));
        within.all(|fact| fact.are_new.get() == Some(&true))
    }
}

impl Group {
    /// Rows of which it is not known.
    pub(super) fn new(rows: Vec<u32>, times: TimeRange) -> Self {
        Self { rows, fact: Fact { times, are_new: Arc::default() } }
    }

    /// Rows that are taken to replace others.
    fn of_others(times: TimeRange) -> Self {
        let are_new = Arc::new(OnceLock::from(false));
        Self { rows: Vec::new(), fact: Fact { times, are_new } }
    }

    /// Those of its rows of which the place is known in another run; nothing when there is nothing to be known of them.
    fn placed(&self, place: impl FnMut(&u32) -> Option<u32>) -> Option<Self> {
        let fact = self.fact.clone();
        match fact.are_new.get() {
            Some(true) => None,
            Some(false) => Some(Self { rows: Vec::new(), fact }),
            None => {
                let rows: Vec<u32> = self.rows.iter().filter_map(place).collect();
                (!rows.is_empty()).then_some(Self { rows, fact })
            }
        }
    }
}

impl Default for Late {
    /// Rows of which nothing is known, and that are taken to replace others.
    fn default() -> Self {
        let groups = vec![Group::of_others(TimeRange::ALL)];
        let (are_behind_memory, in_order) = (false, TimeRange::ALL);
        Self { groups, others: None, are_behind_memory, in_order, are_all_new: OnceLock::new() }
    }
}

impl Late {
    /// Those of groups that have rows, beside others.
    pub(crate) fn new(groups: Vec<Group>, others: TimeRange, are_behind_memory: bool) -> Self {
        let in_order = others;
        let are_all_new = OnceLock::new();
        Self { groups, others: Some(others), are_behind_memory, in_order, are_all_new }
    }

    /// What is known of runs that become one: of each what is known, its number of rows and the times of these.
    pub(super) fn concat(runs: &[(&Self, usize, TimeRange)]) -> Self {
        let (mut start, mut groups) = (0, Vec::new());
        for (late, count, _) in runs {
            let placed =
                late.groups.iter().filter_map(|group| group.placed(|row| Some(start + row)));
            groups.extend(placed);
            start += *count as u32;
        }
        // Of those that replace others there is nothing more to be known.
        let replaces = |group: &Group| group.rows.is_empty();
        if groups.iter().any(replaces) {
            let times =
                union(groups.iter().filter(|group| replaces(group)).map(|group| group.fact.times));
            groups.retain(|group| !replaces(group));
            groups.push(Group::of_others(times));
        }
        Self {
            groups,
            others: Some(union(runs.iter().map(|(late, _, range)| late.others(range)))),
            are_behind_memory: runs.iter().all(|(late, ..)| late.are_behind_memory),
            in_order: union(runs.iter().map(|(late, ..)| late.in_order)),
            are_all_new: OnceLock::new(),
        }
    }

    /// What is known of those rows of a run, which has rows within `range`, that are `kept` and ascend.
    pub(super) fn of_kept(&self, kept: &[u32], range: &TimeRange) -> Self {
        let place = |row: &u32| kept.binary_search(row).ok().map(|place| place as u32);
        Self {
            groups: self.groups.iter().filter_map(|group| group.placed(place)).collect(),
            others: Some(self.others(range)),
            are_all_new: OnceLock::new(),
            ..*self
        }
    }

    /// The times of the rows that are not among those of which it is not known, or more.
    fn others(&self, range: &TimeRange) -> TimeRange {
        let is_any_known = self.groups.iter().any(|group| group.fact.is_known());
        self.others.filter(|_| !is_any_known).unwrap_or(*range)
    }

    /// The rows of all groups, whatever is known of them by now, and the times of all others or more; nothing where that is not known.
    pub(crate) fn apart(&self) -> Option<(&[Group], TimeRange)> {
        self.others.map(|others| (&self.groups[..], others))
    }

    /// Whether none with a time within `range` replaces another, as far as is known.
    pub(super) fn are_new(&self, range: &TimeRange) -> bool {
        self.are_all_new() || Fact::are_new(self.facts(), range)
    }

    fn are_all_new(&self) -> bool {
        if self.are_all_new.get().is_some() {
            return true;
        }
        let are_new = Fact::are_new(self.facts(), &TimeRange::ALL);
        if are_new {
            self.are_all_new.get_or_init(|| ());
        }
        are_new
    }

    /// What is known of the groups, and will be.
    pub(crate) fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.groups.iter().map(|group| &group.fact)
    }

    /// The groups with times within `range` of which it is not known.
    pub(super) fn unsettled(&self, range: &TimeRange) -> impl Iterator<Item = &Group> {
        let groups = if self.are_all_new() { &[] } else { &self.groups[..] };
        groups.iter().filter(|group| !group.fact.is_known() && group.fact.times.overlaps(range))
    }

    /// Takes note of what was found out about these.
    pub(super) fn settle(&self, range: &TimeRange, are_new: bool) {
        self.unsettled(range).for_each(|group| group.fact.settle(are_new));
    }

    pub(super) fn size_bytes(&self) -> usize {
        let rows: usize = self.groups.iter().map(|group| group.rows.capacity()).sum();
        rows * size_of::<u32>() + self.groups.len() * GROUP_BYTES
    }
}

/// All of some times.
fn union(times: impl Iterator<Item = TimeRange>) -> TimeRange {
    times.reduce(|all, more| all.union(&more)).unwrap_or(NO_TIMES)
}
