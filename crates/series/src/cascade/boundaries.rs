//! Which model owns which time.

use tidefall_ground::manifest::series::Model;
use tidefall_types::{Day, Month, Result, TableOptions, TimeRange};

/// How far the cascade shall go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// As far as the ages of the readings ask.
    ByAge,
    /// Everything to short columns at least.
    Short,
    /// Everything to long columns.
    Long,
}

/// The times at which the models meet: long columns before `short_ns`, short columns before
/// `kv_ns`, the key-value model from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundaries {
    pub(crate) short_ns: i64,
    pub(crate) kv_ns: i64,
}

impl Boundaries {
    /// The boundaries that a target asks for at `now_ns`. Only whole days leave the key-value
    /// model by age, only whole months leave the short columns.
    pub fn new(options: &TableOptions, target: Target, now_ns: i64) -> Self {
        let kv_ns = Day::of(now_ns.saturating_sub(options.kv_age_ns)).range().first_ns;
        let short_ns = Month::of(now_ns.saturating_sub(options.short_age_ns)).range().first_ns;
        match target {
            Target::ByAge => Self { short_ns: short_ns.min(kv_ns), kv_ns },
            Target::Short => Self { short_ns: short_ns.min(kv_ns), kv_ns: i64::MAX },
            Target::Long => Self { short_ns: i64::MAX, kv_ns: i64::MAX },
        }
    }

    /// Where rows within `time` go: to the objects of young rows, and all others to one for long columns. `days_of` says
    /// as for [`Boundaries::young_spans`] which days have rows.
    pub(crate) fn spans(
        &self,
        time: &TimeRange,
        days_of: impl FnOnce(&TimeRange) -> Result<Vec<Day>>,
    ) -> Result<Vec<(Model, TimeRange)>> {
        let mut spans = self.young_spans(time, days_of)?;
        spans.push((Model::Long, self.range(Model::Long).intersect(time)));
        spans.retain(|(_, span)| !span.is_empty());
        Ok(spans)
    }

    /// Where rows within `time` go that are too young for long columns: days of short columns, and what stays in
    /// the key-value model. `days_of` a stretch of time says which of its days have rows: one reading in a far future
    /// does not make an object of each day until then.
    pub(crate) fn young_spans(
        &self,
        time: &TimeRange,
        days_of: impl FnOnce(&TimeRange) -> Result<Vec<Day>>,
    ) -> Result<Vec<(Model, TimeRange)>> {
        let short = self.range(Model::Short).intersect(time);
        let mut spans = vec![(Model::Kv, self.range(Model::Kv).intersect(time))];
        if !short.is_empty() {
            let days = days_of(&short)?.into_iter();
            spans.extend(days.map(|day| (Model::Short, day.range().intersect(&short))));
        }
        spans.retain(|(_, span)| !span.is_empty());
        Ok(spans)
    }

    /// The times of a model; empty when it owns none.
    pub(crate) fn range(&self, model: Model) -> TimeRange {
        // A boundary at the end of time leaves nothing behind it.
        let until = |boundary_ns: i64| match boundary_ns {
            i64::MAX => i64::MAX,
            boundary_ns => boundary_ns - 1,
        };
        match model {
            Model::Long if self.short_ns == i64::MIN => TimeRange::new(0, -1),
            Model::Long => TimeRange::new(i64::MIN, until(self.short_ns)),
            _ if self.short_ns == i64::MAX => TimeRange::new(0, -1),
            Model::Short if self.kv_ns == i64::MIN => TimeRange::new(0, -1),
            Model::Short => TimeRange::new(self.short_ns, until(self.kv_ns)),
            Model::Kv if self.kv_ns == i64::MAX => TimeRange::new(0, -1),
            Model::Kv => TimeRange::new(self.kv_ns, i64::MAX),
        }
    }
}
