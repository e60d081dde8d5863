//! Texts of several runs, which stay where they are until some rows are asked for: texts are most of the bytes of a
//! table that has long ones, and a second copy of all of them would not fit beside the first.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringArray};
use tidefall_types::{Error, FieldType, Result};

use super::run::Run;

/// The texts of the rows of some runs.
#[derive(Debug)]
pub(super) struct Texts {
    fields: Vec<TextField>,
    /// Where each row stands: run and row. Rows are counted as `SortedRuns` counts them.
    places: Vec<(u32, u32)>,
    /// The bytes of each row and of all before it, in the order of times.
    ends: Vec<u64>,
}

#[derive(Debug)]
struct TextField {
    /// Its place among the fields.
    field: usize,
    /// The texts of each run.
    runs: Vec<Option<StringArray>>,
}

impl TextField {
    fn value(&self, place: (u32, u32)) -> Option<&str> {
        let (texts, row) = (self.runs[place.0 as usize].as_ref()?, place.1 as usize);
        texts.is_valid(row).then(|| texts.value(row))
    }
}

impl Texts {
    /// The texts of `runs`; nothing when they have none. `places` tells where each row stands.
    pub(super) fn of(
        runs: &[Arc<Run>],
        types: &[FieldType],
        places: impl FnOnce() -> Vec<(u32, u32)>,
    ) -> Option<Self> {
        let texts = types.iter().enumerate().filter(|(_, ty)| **ty == FieldType::Text);
        let fields: Vec<TextField> = texts
            .map(|(field, _)| {
                let texts = |run: &Arc<Run>| run.field(field)?.as_string_opt::<i32>().cloned();
                TextField { field, runs: runs.iter().map(texts).collect() }
            })
            .filter(|texts| texts.runs.iter().any(Option::is_some))
            .collect();
        (!fields.is_empty()).then(|| Self { fields, places: places(), ends: Vec::new() })
    }

    /// Notes the order of the rows by time; without one they stand in it already.
    pub(super) fn set_order(&mut self, order: Option<&[u32]>) {
        let mut all = 0;
        let row = |at: usize| order.map_or(at, |order| order[at] as usize);
        let bytes = |row: usize| {
            let lengths = self.fields.iter().map(|texts| texts.value(self.places[row]));
            lengths.flatten().map(|text| text.len() as u64).sum::<u64>()
        };
        self.ends = (0..self.places.len())
            .map(|at| {
                all += bytes(row(at));
                all
            })
            .collect();
    }

    /// The bytes of some rows, counted in the order of times.
    pub(super) fn bytes(&self, rows: Range<usize>) -> usize {
        let before = |row: usize| row.checked_sub(1).map_or(0, |last| self.ends[last]);
        (before(rows.end) - before(rows.start)) as usize
    }

    /// Puts the texts of `rows` into the columns of a table.
    pub(super) fn put(
        &self,
        rows: impl Iterator<Item = usize> + Clone,
        columns: &mut [Option<ArrayRef>],
    ) -> Result<()> {
        self.fields.iter().try_for_each(|texts| {
            let values = rows.clone().map(|row| texts.value(self.places[row]));
            columns[texts.field] = Some(gathered(values)?);
            Ok(())
        })
    }

    /// Puts the latest text of each time into the columns of a table. `keys` are times and rows in their order.
    pub(super) fn put_latest(
        &self,
        keys: &[(i64, u32)],
        columns: &mut [Option<ArrayRef>],
    ) -> Result<()> {
        self.fields.iter().try_for_each(|texts| {
            let groups = keys.chunk_by(|one, next| one.0 == next.0);
            let latest = groups.map(|group| {
                let mut places = group.iter().rev().map(|key| self.places[key.1 as usize]);
                places.find_map(|place| texts.value(place))
            });
            let latest: Vec<Option<&str>> = latest.collect();
            columns[texts.field] = Some(gathered(latest.iter().copied())?);
            Ok(())
        })
    }
}

fn gathered<'a>(values: impl Iterator<Item = Option<&'a str>> + Clone) -> Result<ArrayRef> {
    let (rows, bytes) = values
        .clone()
        .fold((0, 0), |(rows, bytes), value| (rows + 1, bytes + value.map_or(0, str::len)));
    if i32::try_from(bytes).is_err() {
        // Rows of one time are not parted.
        return Err(Error::limit(format!(
            "{rows} values of a text field take {bytes} bytes; more than {} cannot be moved at once",
            i32::MAX
        )));
    }
    let mut texts = StringBuilder::with_capacity(rows, bytes);
    values.for_each(|value| texts.append_option(value));
    Ok(Arc::new(texts.finish()))
}
