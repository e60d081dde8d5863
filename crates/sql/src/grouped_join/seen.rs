//! The groups that have rows.
//!
//! Accumulators take a group for one that has rows as soon as they hear of it, so that groups come to them one by one, in
//! the order in which they are seen here.

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::error::Result;

use super::keys::{Column, Integers, Last, NONE};
use super::question::{Group, Question};
use super::small::{Small, evaluated};

/// Groups in the order in which they came.
pub(super) struct Seen {
    /// What each has of the groups of the small side.
    small: Vec<u32>,
    /// The place of each of the small side's groups among these; [`NONE`] for those that have not come. Nothing where there
    /// is something beside them.
    place_of: Vec<u32>,
    /// What is grouped by beside the groups of the small side.
    beside: Vec<Beside>,
    /// The places of the groups of some rows.
    pub(super) places: Vec<usize>,
}

/// Something of the big side that is grouped by.
struct Beside {
    values: Column,
    last: Last,
    /// Numbers for pairs of what comes before in a group, and the number of a value. The last of them are places.
    pairs: Integers,
    /// The number of the value that each group has.
    numbers: Vec<u32>,
}

impl Seen {
    pub(super) fn new(question: &Question, small: &Small) -> Self {
        let beside: Vec<Beside> = question
            .big_groups()
            .map(|(_, kind)| Beside {
                values: Column::new(kind),
                last: None,
                pairs: Integers::default(),
                numbers: Vec::new(),
            })
            .collect();
        let place_of = if beside.is_empty() { vec![NONE; small.group_count] } else { Vec::new() };
        Self { small: Vec::new(), place_of, beside, places: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.small.len()
    }

    /// The numbers of what rows have beside the groups of the small side, column by column.
    pub(super) fn learn(
        &mut self,
        question: &Question,
        rows: &RecordBatch,
    ) -> Result<Vec<Vec<u32>>> {
        let beside = self.beside.iter_mut().zip(question.big_groups());
        let learnt = beside.map(|(beside, (group, _))| {
            beside.values.learn_all(&evaluated(group, rows)?, &mut beside.last)
        });
        learnt.collect()
    }

    /// Fills `places` for rows that have these groups of the small side, and these numbers beside them.
    pub(super) fn place(&mut self, small: impl Iterator<Item = u32>, numbers: &[Vec<u32>]) {
        self.places.clear();
        if self.beside.is_empty() {
            for group in small {
                let place = &mut self.place_of[group as usize];
                if *place == NONE {
                    *place = self.small.len() as u32;
                    self.small.push(group);
                }
                self.places.push(*place as usize);
            }
            return;
        }
        for (row, group) in small.enumerate() {
            let mut place = group;
            for (beside, numbers) in self.beside.iter_mut().zip(numbers) {
                let pair = (i64::from(place) << 32) | i64::from(numbers[row]);
                place = beside.pairs.learn(pair);
            }
            if place as usize == self.small.len() {
                self.small.push(group);
                for (beside, numbers) in self.beside.iter_mut().zip(numbers) {
                    beside.numbers.push(numbers[row]);
                }
            }
            self.places.push(place as usize);
        }
    }

    /// The columns of all groups.
    pub(super) fn columns(&self, question: &Question, small: &Small) -> Result<Vec<ArrayRef>> {
        let places = UInt32Array::from(self.small.clone());
        let (mut of_small, mut of_big) = (small.groups.iter(), self.beside.iter());
        let mut columns = Vec::with_capacity(question.schema.fields().len());
        for (group, field) in question.groups.iter().zip(question.group_schema.fields()) {
            match group {
                Group::Small(_) => {
                    if let Some(values) = of_small.next() {
                        columns.push(take(values, &places, None)?);
                    }
                }
                Group::Big(..) => {
                    if let Some(beside) = of_big.next() {
                        columns.push(beside.values.values(&beside.numbers, field.data_type())?);
                    }
                }
            }
        }
        Ok(columns)
    }

    /// Bytes at most of the columns of all groups, where there is something beside those of the small side.
    pub(super) fn told_bytes(&self, small: &Small) -> usize {
        let of_small = small.groups.iter();
        let of_small = of_small.map(|group| group.get_array_memory_size() / group.len().max(1));
        let each = of_small.chain(self.beside.iter().map(|beside| beside.values.longest_bytes()));
        each.sum::<usize>().saturating_mul(self.len())
    }

    pub(super) fn bytes(&self) -> usize {
        let beside = self.beside.iter().map(|beside| {
            let numbers = beside.numbers.capacity() * size_of::<u32>();
            beside.values.bytes() + beside.pairs.bytes() + numbers
        });
        (self.small.capacity() + self.place_of.capacity()) * size_of::<u32>()
            + self.places.capacity() * size_of::<usize>()
            + beside.sum::<usize>()
    }
}
