//! What is asked of the metrics of blocks.

/// What of a field is wanted of a frame. The fewer columns there are, the more frames stay in memory: a table may have
/// millions of sensors, or thousands of fields of which a question asks for one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Counts, sums, and which blocks are exact.
    pub(crate) sums: bool,
    /// The least and the greatest value.
    pub(crate) extremes: bool,
    /// The first and the last value.
    pub(crate) ends: bool,
    /// The squared differences.
    pub(crate) deviations: bool,
}

impl Wanted {
    pub(crate) const ALL: Self = Self { sums: true, extremes: true, ends: true, deviations: true };

    /// What rules blocks out by their values.
    pub(crate) const RANGE: Self =
        Self { sums: true, extremes: true, ends: false, deviations: false };

    /// What is wanted of each of so many fields, of which those at some places are asked for.
    pub(crate) fn of_places(self, places: &[Option<usize>], fields: usize) -> Vec<Self> {
        let mut of_fields = vec![Self::default(); fields];
        places.iter().flatten().for_each(|place| of_fields[*place] = self);
        of_fields
    }

    /// What one of two wants.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            sums: self.sums || other.sums,
            extremes: self.extremes || other.extremes,
            ends: self.ends || other.ends,
            deviations: self.deviations || other.deviations,
        }
    }
}
