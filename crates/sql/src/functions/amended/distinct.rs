//! `count(DISTINCT text)` by group, also of tags.
//!
//! DataFusion gives every group a table of texts of its own, which takes some ten KiB even for a single text, so that
//! a few thousand groups fill the memory of a query. Here all groups share one table, in which each text has a number,
//! and one set of the pairs of a group and a text.

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, StringArray, UInt32Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{HashMap, HashSet, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

/// Texts that may be known though no group has them any more, beside as many as there are pairs: numbering anew what
/// is left should not happen often.
const FORGOTTEN_MAX: usize = 1024;

/// What a table of hashbrown takes for each place beside what is in it.
pub(super) const PLACE_BYTES: usize = 1;

/// The type of the texts in what is passed from one stage to the next, if `data_type` is one of texts.
pub(super) fn text_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(data_type),
        DataType::Dictionary(_, values) => text_type(values),
        _ => None,
    }
}

/// Counts the distinct texts of many groups.
#[derive(Debug)]
pub(super) struct DistinctTexts {
    text_type: DataType,
    numbers: HashMap<Box<str>, usize>,
    text_bytes: usize,
    /// Groups and the numbers of their texts.
    pairs: HashSet<(usize, usize)>,
    counts: Vec<i64>,
}

/// The texts of a column: for each row the place of its text among others.
struct Texts {
    values: StringArray,
    keys: Option<Vec<usize>>,
}

impl Texts {
    fn of(column: &ArrayRef) -> Result<Self> {
        let (values, keys) = match column.as_any_dictionary_opt() {
            None => (column, None),
            // Nobody looks at the keys of a column without any value.
            Some(dictionary) if dictionary.values().is_empty() => {
                (dictionary.values(), Some(Vec::new()))
            }
            Some(dictionary) => (dictionary.values(), Some(dictionary.normalized_keys())),
        };
        Ok(Self { values: cast(values, &DataType::Utf8)?.as_string::<i32>().clone(), keys })
    }

    fn place(&self, row: usize) -> usize {
        self.keys.as_ref().map_or(row, |keys| keys[row])
    }
}

pub(super) fn is_kept(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl DistinctTexts {
    pub(super) fn new(text_type: &DataType) -> Self {
        Self {
            text_type: text_type.clone(),
            numbers: HashMap::default(),
            text_bytes: 0,
            pairs: HashSet::default(),
            counts: Vec::new(),
        }
    }

    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len();
        self.text_bytes += text.len();
        self.numbers.insert(text.into(), number);
        number
    }

    fn add(&mut self, group: usize, number: usize) {
        if self.pairs.insert((group, number)) {
            self.counts[group] += 1;
        }
    }

    /// Forgets the first groups, or all.
    fn forget(&mut self, groups: EmitTo) {
        match groups {
            EmitTo::All => self.pairs = HashSet::default(),
            EmitTo::First(count) => {
                let all = std::mem::take(&mut self.pairs).into_iter();
                let left = all.filter(|(group, _)| *group >= count);
                self.pairs = left.map(|(group, number)| (group - count, number)).collect();
            }
        }
        if self.numbers.len() > self.pairs.len() + FORGOTTEN_MAX || self.pairs.is_empty() {
            self.number_anew();
        }
    }

    /// Forgets the texts that no group has.
    fn number_anew(&mut self) {
        let mut new: HashMap<usize, usize> = HashMap::default();
        let pairs = std::mem::take(&mut self.pairs).into_iter();
        self.pairs = pairs
            .map(|(group, number)| {
                let next = new.len();
                (group, *new.entry(number).or_insert(next))
            })
            .collect();
        let numbers = std::mem::take(&mut self.numbers).into_iter();
        self.numbers =
            numbers.filter_map(|(text, number)| Some((text, *new.get(&number)?))).collect();
        self.text_bytes = self.numbers.keys().map(|text| text.len()).sum();
    }
}

impl GroupsAccumulator for DistinctTexts {
    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.counts.resize(group_count, 0);
        let nulls = columns[0].logical_nulls();
        let texts = Texts::of(&columns[0])?;
        // Each text is looked up once, unless there are far more of them than rows.
        let places = if texts.values.len() <= groups.len() { texts.values.len() } else { 0 };
        let mut known: Vec<Option<usize>> = vec![None; places];
        for (row, group) in groups.iter().enumerate() {
            if !is_kept(filter, row) || nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let place = texts.place(row);
            let number = match known.get(place).copied().flatten() {
                Some(number) => number,
                None => self.number(texts.values.value(place)),
            };
            if let Some(known) = known.get_mut(place) {
                *known = Some(number);
            }
            self.add(*group, number);
        }
        Ok(())
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.counts.resize(group_count, 0);
        let lists = states[0].as_list::<i32>();
        let texts = Texts::of(lists.values())?.values;
        for (group, places) in groups.iter().zip(lists.offsets().windows(2)) {
            for place in places[0] as usize..places[1] as usize {
                let number = self.number(texts.value(place));
                self.add(*group, number);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let counts = emit_to.take_needed(&mut self.counts);
        self.forget(emit_to);
        Ok(Arc::new(Int64Array::from(counts)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let counts = emit_to.take_needed(&mut self.counts);
        let mut texts = vec![""; self.numbers.len()];
        for (text, number) in &self.numbers {
            texts[*number] = text;
        }
        let emitted = self.pairs.iter().copied().filter(|(group, _)| *group < counts.len());
        let mut emitted: Vec<(usize, usize)> = emitted.collect();
        emitted.sort_unstable();
        let values: StringArray = emitted.iter().map(|(_, number)| Some(texts[*number])).collect();
        let lengths = counts.iter().map(|count| *count as usize);
        let lists = lists_of(&self.text_type, lengths, &(Arc::new(values) as ArrayRef))?;
        self.forget(emit_to);
        Ok(vec![lists])
    }

    fn convert_to_state(
        &self,
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        Ok(vec![each_alone(&self.text_type, &columns[0], filter)?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.numbers.capacity() * (size_of::<(Box<str>, usize)>() + PLACE_BYTES)
            + self.text_bytes
            + self.pairs.capacity() * (size_of::<(usize, usize)>() + PLACE_BYTES)
            + self.counts.capacity() * size_of::<i64>()
    }
}

/// A list for each row of a column: of its value, if it has one that is kept.
pub(super) fn each_alone(
    data_type: &DataType,
    column: &ArrayRef,
    filter: Option<&BooleanArray>,
) -> Result<ArrayRef> {
    let nulls = column.logical_nulls();
    let has_value =
        |row: usize| is_kept(filter, row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let rows = (0..column.len()).filter(|row| has_value(*row)).map(|row| row as u32);
    let values = take(column, &UInt32Array::from_iter_values(rows), None)?;
    let lengths = (0..column.len()).map(|row| usize::from(has_value(row)));
    lists_of(data_type, lengths, &values)
}

/// Lists of values, one behind the other.
pub(super) fn lists_of(
    data_type: &DataType,
    lengths: impl Iterator<Item = usize>,
    values: &ArrayRef,
) -> Result<ArrayRef> {
    let field = Arc::new(Field::new_list_field(data_type.clone(), true));
    let values = cast(values, data_type)?;
    if i32::try_from(values.len()).is_err() {
        return exec_err!("count(DISTINCT) has more than {} values at once", i32::MAX);
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(field, offsets, values, None)?))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::DictionaryArray;
    use datafusion::arrow::datatypes::UInt32Type;

    use super::*;

    fn counts(array: &ArrayRef) -> Vec<i64> {
        array.as_primitive::<datafusion::arrow::datatypes::Int64Type>().values().to_vec()
    }

    fn column() -> ArrayRef {
        let texts = [Some("a"), Some("b"), None, Some("a"), Some("c"), Some("a"), Some("b")];
        Arc::new(texts.into_iter().collect::<DictionaryArray<UInt32Type>>())
    }

    const GROUPS: [usize; 7] = [0, 0, 1, 0, 2, 2, 3];

    #[test]
    fn groups_leave_in_turn_and_take_their_texts_along() -> Result<()> {
        let mut texts = DistinctTexts::new(&DataType::Utf8);
        texts.update_batch(&[column()], &GROUPS, None, 4)?;
        assert_eq!(counts(&texts.evaluate(EmitTo::First(2))?), [2, 0]);
        // What were groups 2 and 3.
        texts.update_batch(&[column()], &[0, 0, 0, 0, 0, 1, 1], None, 2)?;
        assert_eq!(counts(&texts.evaluate(EmitTo::All)?), [3, 2]);
        assert_eq!((texts.numbers.len(), texts.text_bytes), (0, 0));
        Ok(())
    }

    #[test]
    fn states_say_what_rows_say() -> Result<()> {
        let filter: BooleanArray =
            [Some(true), Some(false), Some(true), None, Some(true), Some(true), Some(true)]
                .into_iter()
                .collect();
        for text_type in [DataType::Utf8, DataType::Utf8View, DataType::LargeUtf8] {
            let column = cast(&column(), &text_type)?;
            for filter in [None, Some(&filter)] {
                let new = || DistinctTexts::new(&text_type);
                let mut rows = new();
                rows.update_batch(std::slice::from_ref(&column), &GROUPS, filter, 4)?;
                let mut converted = new();
                let states = new().convert_to_state(std::slice::from_ref(&column), filter)?;
                converted.merge_batch(&states, &GROUPS, 4)?;
                let mut merged = new();
                for emit_to in [EmitTo::First(1), EmitTo::All] {
                    let first = if matches!(emit_to, EmitTo::All) { 1 } else { 0 };
                    let states = rows.state(emit_to)?;
                    let groups: Vec<usize> = (first..first + states[0].len()).collect();
                    merged.merge_batch(&states, &groups, 4)?;
                }
                let expected = if filter.is_some() { [1, 0, 2, 1] } else { [2, 0, 2, 1] };
                assert_eq!(counts(&merged.evaluate(EmitTo::All)?), expected);
                assert_eq!(counts(&converted.evaluate(EmitTo::All)?), expected);
            }
        }
        Ok(())
    }
}
