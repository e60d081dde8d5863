//! What is asked of the metrics of a table.

use std::sync::Arc;

use tidefall_storage::Bin;
use tidefall_types::{TagId, TimeRange};

use super::spec::{Group, Measure};
use crate::pushdown::Conditions;
use crate::view::View;

/// What is asked of the metrics of a table. Its parts are all that an answer depends on, so that equal questions
/// have equal answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// The table.
    pub(crate) view: Arc<View>,
    /// Which rows count; exact.
    pub(crate) conditions: Conditions,
    /// The first columns of the answer.
    pub(crate) groups: Vec<Group>,
    /// The columns behind them.
    pub(crate) measures: Vec<Measure>,
    /// A tag whose values are counted, in all columns behind the groups: then there are no measures.
    pub(crate) counted: Option<TagId>,
}

impl Question {
    /// How time is cut.
    pub(super) fn bin(&self) -> Option<Bin> {
        self.groups.iter().find_map(|group| match group {
            Group::Bin(bin) => Some(*bin),
            Group::Tags(_) => None,
        })
    }

    /// About how many rows there are at the times that are asked for, of all sensors.
    pub(super) fn rows_about(&self) -> usize {
        let snapshot = self.view.snapshot();
        snapshot.rows_about(snapshot.sensor_count() as usize, &self.time_with_rows())
    }

    /// The times that are asked for, without those at which there are surely no rows.
    pub(super) fn time_with_rows(&self) -> TimeRange {
        let (bounds, wanted) = (self.view.snapshot().time_bounds(), self.conditions.time);
        bounds.map_or(wanted, |bounds| wanted.intersect(&bounds))
    }
}
