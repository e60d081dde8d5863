//! Metrics of bins, from one end of time on.
//!
//! Time is asked in stretches that begin where bins begin, so that no bin is answered twice. A reader who has enough
//! bins says so in filters that change, and the stretches behind are not asked for.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use tidefall_storage::{Bin, TimeOrder};
use tidefall_types::{ColumnKind, TagId, TimeRange};

use super::answers::Answers;
use crate::ahead::Batches;
use crate::error::to_datafusion;
use crate::live::{Around, Columns, Live};
use crate::reads::Tally;
use crate::source::Source;

/// Answers a question with bins stretch by stretch.
#[derive(Debug)]
pub(super) struct ByTime {
    answers: Answers,
    bin: Bin,
    order: TimeOrder,
    /// The kinds of the columns, as far as filters on them can spare work: the bin is a time, all others are as good
    /// as tags.
    kinds: Vec<ColumnKind>,
}

impl ByTime {
    /// The same answers; their bins are in the column `bin_column`.
    pub(super) fn new(answers: Answers, (bin, bin_column): (Bin, usize), order: TimeOrder) -> Self {
        let mut kinds = vec![ColumnKind::Tag(TagId(0)); bin_column];
        kinds.push(ColumnKind::Time);
        Self { answers, bin, order, kinds }
    }

    fn columns(&self) -> Columns<'_> {
        Columns { kinds: &self.kinds, schema: self.answers.view().schema() }
    }

    /// Whether a bin that begins within what is wanted may lie in a stretch.
    fn is_wanted(&self, stretch: &TimeRange, around: &Around) -> bool {
        let starts = around.time();
        let last_ns = starts.last_ns.saturating_add(self.bin.width_ns - 1);
        !starts.is_empty() && TimeRange::new(starts.first_ns, last_ns).overlaps(stretch)
    }
}

impl Source for ByTime {
    fn name(&self) -> &'static str {
        Answers::NAME
    }

    fn describe(&self) -> String {
        let order = match self.order {
            TimeOrder::NewestFirst => "newest first",
            TimeOrder::OldestFirst => "oldest first",
        };
        format!("{}, {order}", self.answers.describe())
    }

    fn partitions(&self) -> usize {
        self.answers.partitions()
    }

    fn is_narrowed_by(&self, filter: &Arc<dyn PhysicalExpr>) -> bool {
        self.columns().can_tell(filter)
    }

    fn open(
        self: Arc<Self>,
        partition: usize,
        _limit: Option<usize>,
        mut live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        let (sensors, time) = self.answers.asked_for(partition);
        let stretches =
            self.answers.view().snapshot().stretches(&sensors.to_list(), &time, self.order);
        let stretches = aligned(stretches.map_err(to_datafusion)?, self.order, self.bin);
        let (mut stretches, tally) = (stretches.into_iter(), tally.clone());
        let mut around = Around::everything();
        let mut batches: Option<Batches> = None;
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                if let Some(batch) = batches.as_mut().and_then(Iterator::next) {
                    return Some(batch);
                }
                if let Some(news) = live.news(self.columns()) {
                    around = news;
                }
                let stretch = stretches.next()?;
                batches = None;
                if self.is_wanted(&stretch, &around) {
                    let part = Arc::new(self.answers.within(stretch));
                    match part.batches(partition, &tally) {
                        Ok(opened) => batches = Some(opened),
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        })))
    }
}

/// Moves the places between stretches to where bins begin.
fn aligned(mut stretches: Vec<TimeRange>, order: TimeOrder, bin: Bin) -> Vec<TimeRange> {
    if order == TimeOrder::NewestFirst {
        stretches.reverse();
    }
    let mut found: Vec<TimeRange> = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        match found.last_mut() {
            None => found.push(stretch),
            Some(before) => {
                let start_ns = bin.start_of(stretch.first_ns);
                if start_ns <= before.first_ns {
                    before.last_ns = stretch.last_ns;
                    continue;
                }
                before.last_ns = start_ns - 1;
                found.push(TimeRange::new(start_ns, stretch.last_ns));
            }
        }
    }
    if order == TimeOrder::NewestFirst {
        found.reverse();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_begin_with_bins() {
        let range = TimeRange::new;
        let bin = Bin { width_ns: 10, origin_ns: 3 };
        let newest =
            aligned(vec![range(47, 90), range(21, 46), range(-5, 20)], TimeOrder::NewestFirst, bin);
        assert_eq!(newest, [range(43, 90), range(13, 42), range(-5, 12)]);
        let oldest =
            aligned(vec![range(-5, 4), range(5, 6), range(7, 90)], TimeOrder::OldestFirst, bin);
        assert_eq!(oldest, [range(-5, 2), range(3, 90)]);
        let one = aligned(vec![range(45, 47), range(43, 44)], TimeOrder::NewestFirst, bin);
        assert_eq!(one, [range(43, 47)]);
        assert_eq!(aligned(vec![TimeRange::ALL], TimeOrder::OldestFirst, bin), [TimeRange::ALL]);
    }
}
