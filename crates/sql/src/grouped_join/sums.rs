//! What the rows of the big side come to, group by group.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array,
};
use datafusion::arrow::compute::take;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_plan::aggregates::AggregateOutputMode;
use tokio::task::coop::consume_budget;

use super::keys::{Finder, NONE};
use super::question::{Aggregate, Question};
use super::seen::Seen;
use super::small::{Places, Small, evaluated, nulls};

/// Groups of both sides of which a first aggregate keeps the states; more of them are told, and begin anew.
const GROUPS_MAX: usize = 1 << 17;

/// Bytes of the groups that are told at once, about.
const TOLD_BYTES_MAX: usize = 32 << 20;

/// The states of the groups to which rows of one partition of the big side belong.
pub(super) struct Sums {
    question: Arc<Question>,
    small: Arc<Small>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    groups: Seen,
    finder: Finder,
    /// Numbers of the keys of a batch, then of those of its rows that have partners.
    numbers: Vec<u32>,
    charged: MemoryReservation,
    /// There is no room for more groups.
    is_full: bool,
}

impl Sums {
    /// No rows yet. What is kept of them is charged.
    pub(super) fn new(
        question: Arc<Question>,
        small: Arc<Small>,
        charged: MemoryReservation,
    ) -> Result<Self> {
        let accumulators = question.aggregates.iter();
        let accumulators =
            accumulators.map(|aggregate| aggregate.function.create_groups_accumulator());
        let accumulators = accumulators.collect::<Result<_>>()?;
        let groups = Seen::new(&question, &small);
        charged.try_grow(groups.bytes())?;
        let (finder, numbers, is_full) = (Finder::default(), Vec::new(), false);
        Ok(Self { question, small, accumulators, groups, finder, numbers, charged, is_full })
    }

    /// Adds rows of the big side.
    pub(super) async fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let small = Arc::clone(&self.small);
        let keys = self.question.keys.iter().map(|(_, big)| evaluated(big, batch));
        self.finder.find(&small.keys, &keys.collect::<Result<Vec<_>>>()?, &mut self.numbers)?;
        let rows = self.with_partners(small.other);
        if self.numbers.is_empty() {
            return Ok(());
        }
        let rows = self.columns(batch, rows)?;
        let mut values = Values::of(&self.question, &rows)?;
        values.beside = self.groups.learn(&self.question, &rows)?;
        match &small.places {
            Places::Groups => {
                self.groups.place(self.numbers.iter().copied(), &values.beside);
                self.update(&values)?;
            }
            Places::Lists { starts, groups } => self.add_lists(values, starts, groups).await?,
        }
        let states = self.accumulators.iter().map(|state| state.size()).sum::<usize>();
        let charged = self.charged.try_resize(states + self.groups.bytes());
        let may_tell = self.question.big_groups().next().is_some();
        let is_long = self.groups.told_bytes(&small) > TOLD_BYTES_MAX;
        self.is_full = may_tell && (charged.is_err() || is_long || self.groups.len() > GROUPS_MAX);
        if self.is_full { Ok(()) } else { charged }
    }

    /// The groups so far, if there is no room for more of them; what comes next begins anew.
    pub(super) fn overflow(&mut self) -> Result<Option<RecordBatch>> {
        if !std::mem::take(&mut self.is_full) {
            return Ok(None);
        }
        let answer = self.tell()?;
        self.groups = Seen::new(&self.question, &self.small);
        Ok(Some(answer))
    }

    /// Lets go of the numbers of rows without partners, and says which are left; none if all are.
    fn with_partners(&mut self, other: Option<u32>) -> Option<UInt32Array> {
        let count = self.numbers.len();
        if let Some(other) = other {
            let unknown = self.numbers.iter_mut().filter(|number| **number == NONE);
            unknown.for_each(|number| *number = other);
            return None;
        }
        let mut rows = Vec::with_capacity(count);
        let known = self.numbers.iter().enumerate().filter(|(_, number)| **number != NONE);
        rows.extend(known.map(|(row, _)| row as u32));
        if rows.len() == count {
            return None;
        }
        self.numbers.retain(|number| *number != NONE);
        Some(UInt32Array::from(rows))
    }

    /// The columns that aggregates look at, of some rows of a batch, or of all.
    fn columns(&self, batch: &RecordBatch, rows: Option<UInt32Array>) -> Result<RecordBatch> {
        let schema = Arc::clone(&self.question.columns_schema);
        let mut columns = Vec::with_capacity(self.question.columns.len());
        for column in &self.question.columns {
            let column = batch.column(*column);
            columns.push(match &rows {
                Some(rows) => take(column, rows, None)?,
                None => Arc::clone(column),
            });
        }
        // There may be no columns, as for `count(*)`.
        let options = RecordBatchOptions::new().with_row_count(Some(self.numbers.len()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// Adds each row once for each of the rows that have its key: at first all of them, then those for which there is a
    /// second row, and so on.
    async fn add_lists(
        &mut self,
        mut values: Values,
        starts: &[usize],
        groups: &[u32],
    ) -> Result<()> {
        let stretch = |number: u32| starts[number as usize]..starts[number as usize + 1];
        for turn in 0.. {
            let placed = self.numbers.iter().map(|number| groups[stretch(*number).start + turn]);
            self.groups.place(placed, &values.beside);
            self.update(&values)?;
            let has_more = |number: u32| stretch(number).len() > turn + 1;
            let numbered = self.numbers.iter().enumerate();
            let more = numbered.filter(|(_, number)| has_more(**number)).map(|(row, _)| row as u32);
            let more: Vec<u32> = more.collect();
            if more.is_empty() {
                break;
            }
            if more.len() < self.numbers.len() {
                values = values.taken(&UInt32Array::from(more))?;
                self.numbers.retain(|number| has_more(*number));
            }
            consume_budget().await;
        }
        Ok(())
    }

    /// Adds values of the groups that were placed last.
    fn update(&mut self, values: &Values) -> Result<()> {
        let (places, count) = (&self.groups.places, self.groups.len());
        for (state, (arguments, filter)) in self.accumulators.iter_mut().zip(&values.aggregates) {
            state.update_batch(arguments, places, filter.as_ref(), count)?;
        }
        Ok(())
    }

    /// The groups that are left. Without anything to group by there is one line always.
    pub(super) fn finish(mut self) -> Result<Option<RecordBatch>> {
        if self.groups.len() == 0 {
            if !self.question.groups.is_empty() {
                return Ok(None);
            }
            self.groups.place(std::iter::once(0), &[]);
            let values = Values::of_no_row(&self.question)?;
            self.update(&values)?;
        }
        self.tell().map(Some)
    }

    /// The groups with their states or results.
    fn tell(&mut self) -> Result<RecordBatch> {
        let mut columns = self.groups.columns(&self.question, &self.small)?;
        for state in &mut self.accumulators {
            match self.question.mode.output_mode() {
                AggregateOutputMode::Partial => columns.extend(state.state(EmitTo::All)?),
                AggregateOutputMode::Final => columns.push(state.evaluate(EmitTo::All)?),
            }
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.question.schema), columns)?)
    }
}

/// What is taken of some rows.
struct Values {
    /// The arguments of each aggregate, and which rows it takes.
    aggregates: Vec<(Vec<ArrayRef>, Option<BooleanArray>)>,
    /// Numbers of what is grouped by beside groups of the small side, column by column.
    beside: Vec<Vec<u32>>,
}

impl Values {
    fn of(question: &Question, rows: &RecordBatch) -> Result<Self> {
        let mut aggregates = Vec::with_capacity(question.aggregates.len());
        for Aggregate { arguments, filter, .. } in &question.aggregates {
            let arguments = arguments.iter().map(|argument| evaluated(argument, rows));
            let filter = match filter {
                Some(filter) => Some(evaluated(filter, rows)?.as_boolean().clone()),
                None => None,
            };
            aggregates.push((arguments.collect::<Result<_>>()?, filter));
        }
        Ok(Self { aggregates, beside: Vec::new() })
    }

    /// Those of a row that no aggregate takes.
    fn of_no_row(question: &Question) -> Result<Self> {
        let mut values = Self::of(question, &nulls(&question.columns_schema)?)?;
        for (_, filter) in &mut values.aggregates {
            *filter = Some(BooleanArray::from(vec![false]));
        }
        Ok(values)
    }

    fn taken(&self, rows: &UInt32Array) -> Result<Self> {
        let mut aggregates = Vec::with_capacity(self.aggregates.len());
        for (arguments, filter) in &self.aggregates {
            let mut taken = Vec::with_capacity(arguments.len());
            for argument in arguments {
                taken.push(take(argument, rows, None)?);
            }
            let filter = match filter {
                Some(filter) => Some(take(filter, rows, None)?.as_boolean().clone()),
                None => None,
            };
            aggregates.push((taken, filter));
        }
        let taken = |numbers: &Vec<u32>| {
            rows.values().iter().map(|row| numbers[*row as usize]).collect::<Vec<u32>>()
        };
        Ok(Self { aggregates, beside: self.beside.iter().map(taken).collect() })
    }
}
