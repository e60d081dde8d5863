//! Keys of a join, and the numbers that stand for them.
//!
//! Each value of a key column has a number, in the order in which values come; pairs of numbers have numbers again, so
//! that any count of key columns ends in one number. When all are known, numbers may be exchanged for others
//! ([`Keys::renumber`]), so that what is looked up is what is wanted.

use std::sync::Arc;

use datafusion::arrow::array::{
    AnyDictionaryArray, Array, ArrayRef, AsArray, Int64Array, StringArray, UInt32Array, make_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt32Type};
use datafusion::common::{HashMap, internal_err};
use datafusion::error::Result;

/// Stands for a key that is NULL or not known.
pub(super) const NONE: u32 = u32::MAX;

/// Integers lie near each other when their range has at most so many places for each of them.
const PLACES_FOR_EACH: usize = 8;
/// Places of a range that are always fine.
const PLACES_FEW: usize = 1 << 14;

/// Texts of a key at most that are named to the big side, and their bytes.
const TEXTS_NAMED_MAX: usize = 10_000;
const TEXTS_NAMED_BYTES_MAX: usize = 1 << 20;

/// What keys are compared as. None for types whose equal values may look different, or that are not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer(DataType),
}

impl Kind {
    pub(super) fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Dictionary(_, values) => Self::of(values).filter(|kind| *kind == Self::Text),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(Self::Text),
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
                Some(Self::Integer(data_type.clone()))
            }
            other => other.is_integer().then(|| Self::Integer(other.clone())),
        }
    }
}

/// The keys of all rows of one side.
#[derive(Debug)]
pub(super) struct Keys {
    columns: Vec<Column>,
    /// Numbers of pairs: of the first two columns, of such a pair and the third column, and so on.
    pairs: Vec<Integers>,
}

impl Keys {
    pub(super) fn new(kinds: &[Kind]) -> Self {
        let columns = kinds.iter().map(Column::new).collect();
        let pairs = (1..kinds.len()).map(|_| Integers::default()).collect();
        Self { columns, pairs }
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The numbers of the keys of some rows, which are known from now on; [`NONE`] where one is NULL.
    pub(super) fn learn(&mut self, arrays: &[ArrayRef]) -> Result<Vec<u32>> {
        let mut numbers: Vec<u32> = Vec::new();
        for (at, (column, array)) in self.columns.iter_mut().zip(arrays).enumerate() {
            let next = column.learn(array)?;
            numbers = match at.checked_sub(1).and_then(|at| self.pairs.get_mut(at)) {
                None => next,
                Some(pairs) => {
                    let both = numbers.iter().zip(&next);
                    both.map(|(first, second)| match pair(*first, *second) {
                        Some(pair) => pairs.learn(pair),
                        None => NONE,
                    })
                    .collect()
                }
            };
        }
        Ok(numbers)
    }

    /// How many keys are known.
    pub(super) fn len(&self) -> usize {
        match (self.pairs.last(), self.columns.last()) {
            (Some(pairs), _) => pairs.len,
            (None, Some(column)) => column.len(),
            (None, None) => 0,
        }
    }

    /// Gives each key the number that stands at the place of its number in `numbers`. Nothing can be learnt then.
    pub(super) fn renumber(&mut self, numbers: &[u32]) {
        match (self.pairs.last_mut(), self.columns.last_mut()) {
            (Some(pairs), _) => pairs.renumber(numbers),
            (None, Some(Column::Integers(integers))) => integers.renumber(numbers),
            (None, Some(Column::Texts(texts))) => {
                texts.numbers.values_mut().for_each(|number| *number = exchanged(*number, numbers));
            }
            (None, None) => {}
        }
    }

    /// Makes keys found faster that lie near each other. Nothing can be learnt then.
    pub(super) fn pack(&mut self) {
        let columns = self.columns.iter_mut().filter_map(|column| match column {
            Column::Integers(integers) => Some(integers),
            Column::Texts(_) => None,
        });
        self.pairs.iter_mut().chain(columns).for_each(Integers::pack);
    }

    pub(super) fn bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(Column::bytes).sum();
        columns + self.pairs.iter().map(Integers::bytes).sum::<usize>()
    }
}

fn exchanged(number: u32, numbers: &[u32]) -> u32 {
    numbers.get(number as usize).copied().unwrap_or(NONE)
}

/// A key for two numbers, if both are known.
fn pair(first: u32, second: u32) -> Option<i64> {
    let is_known = first != NONE && second != NONE;
    is_known.then_some((i64::from(first) << 32) | i64::from(second))
}

/// The values of the last dictionary of a column, with their numbers.
pub(super) type Last = Option<(ArrayRef, Vec<u32>)>;

/// Looks for keys, batch after batch.
#[derive(Debug, Default)]
pub(super) struct Finder {
    /// One for each column.
    last: Vec<Last>,
    next: Vec<u32>,
}

impl Finder {
    /// Fills `found` with the numbers of the keys of some rows.
    pub(super) fn find(
        &mut self,
        keys: &Keys,
        arrays: &[ArrayRef],
        found: &mut Vec<u32>,
    ) -> Result<()> {
        self.last.resize_with(keys.columns.len(), || None);
        for (at, (column, array)) in keys.columns.iter().zip(arrays).enumerate() {
            let last = &mut self.last[at];
            let Some(pairs) = at.checked_sub(1).and_then(|at| keys.pairs.get(at)) else {
                column.find(array, last, found)?;
                continue;
            };
            column.find(array, last, &mut self.next)?;
            for (first, second) in found.iter_mut().zip(&self.next) {
                *first = pair(*first, *second).map_or(NONE, |pair| pairs.number(pair));
            }
        }
        Ok(())
    }
}

/// The values of a key column.
#[derive(Debug)]
pub(super) enum Column {
    Integers(Integers),
    Texts(Texts),
}

impl Column {
    pub(super) fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Text => Self::Texts(Texts::default()),
            Kind::Integer(_) => Self::Integers(Integers::default()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Integers(integers) => integers.len,
            Self::Texts(texts) => texts.numbers.len(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Integers(integers) => integers.bytes(),
            Self::Texts(texts) => {
                texts.bytes + texts.numbers.capacity() * size_of::<(Box<str>, u32)>()
            }
        }
    }

    fn learn(&mut self, array: &ArrayRef) -> Result<Vec<u32>> {
        Ok(match self {
            Self::Integers(integers) => {
                let keys = integers_of(array)?;
                keys.iter().map(|key| key.map_or(NONE, |key| integers.learn(key))).collect()
            }
            Self::Texts(texts) => {
                let keys = cast(array, &DataType::Utf8View)?;
                let keys = keys.as_string_view().iter();
                keys.map(|key| key.map_or(NONE, |key| texts.learn(key))).collect()
            }
        })
    }

    /// The same, of which what is learnt of a dictionary is not learnt again. Values of it that no row has may be learnt, too.
    pub(super) fn learn_all(&mut self, array: &ArrayRef, last: &mut Last) -> Result<Vec<u32>> {
        let Some(dictionary) = array.as_any_dictionary_opt() else { return self.learn(array) };
        let values = dictionary.values();
        if !last.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, values)) {
            *last = Some((Arc::clone(values), self.learn(values)?));
        }
        let mut numbers = Vec::with_capacity(array.len());
        of_dictionary(dictionary, last, &mut numbers)?;
        Ok(numbers)
    }

    /// Bytes of the longest value at most.
    pub(super) fn longest_bytes(&self) -> usize {
        match self {
            Self::Integers(_) => size_of::<i64>(),
            Self::Texts(texts) => texts.longest,
        }
    }

    /// The values that have some numbers, and NULL for [`NONE`].
    pub(super) fn values(&self, numbers: &[u32], data_type: &DataType) -> Result<ArrayRef> {
        let values: ArrayRef = match self {
            Self::Integers(integers) => {
                let mut by_number = vec![0; integers.len];
                for (value, number) in &integers.numbers {
                    by_number[*number as usize] = *value;
                }
                let of = |number: &u32| by_number.get(*number as usize).copied();
                Arc::new(Int64Array::from_iter(numbers.iter().map(of)))
            }
            Self::Texts(texts) => {
                let mut by_number = vec![""; texts.len()];
                for (text, number) in &texts.numbers {
                    by_number[*number as usize] = text;
                }
                let of = |number: &u32| by_number.get(*number as usize).copied();
                Arc::new(StringArray::from_iter(numbers.iter().map(of)))
            }
        };
        Ok(match data_type {
            DataType::UInt64 | DataType::Date64 | DataType::Timestamp(..) => {
                as_type(&values, data_type)?
            }
            DataType::Date32 => as_type(&cast(&values, &DataType::Int32)?, data_type)?,
            other => cast(&values, other)?,
        })
    }

    fn find(&self, array: &ArrayRef, last: &mut Last, found: &mut Vec<u32>) -> Result<()> {
        found.clear();
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            let values = dictionary.values();
            if !last.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, values)) {
                let mut numbers = Vec::new();
                self.find(values, &mut None, &mut numbers)?;
                *last = Some((Arc::clone(values), numbers));
            }
            return of_dictionary(dictionary, last, found);
        }
        match self {
            Self::Integers(integers) => integers.find(&integers_of(array)?, found),
            Self::Texts(texts) => {
                let keys = cast(array, &DataType::Utf8View)?;
                let keys = keys.as_string_view().iter();
                found.extend(keys.map(|key| key.map_or(NONE, |key| texts.number(key))));
            }
        }
        Ok(())
    }
}

/// The numbers of the values to which the keys of a dictionary lead.
fn of_dictionary(
    dictionary: &dyn AnyDictionaryArray,
    last: &Last,
    found: &mut Vec<u32>,
) -> Result<()> {
    let numbers = last.as_ref().map_or(&[][..], |(_, numbers)| numbers);
    let places = cast(dictionary.keys(), &DataType::UInt32)?;
    let places: &UInt32Array = places.as_primitive::<UInt32Type>();
    match places.nulls() {
        None => found.extend(places.values().iter().map(|at| exchanged(*at, numbers))),
        Some(_) => {
            let found_at = |at: Option<u32>| at.map_or(NONE, |at| exchanged(at, numbers));
            found.extend(places.iter().map(found_at));
        }
    }
    Ok(())
}

/// Texts with their numbers.
#[derive(Debug, Default)]
pub(super) struct Texts {
    numbers: HashMap<Box<str>, u32>,
    bytes: usize,
    /// Bytes of the longest.
    longest: usize,
}

impl Texts {
    fn learn(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        self.bytes += text.len();
        self.longest = self.longest.max(text.len());
        self.numbers.insert(text.into(), number);
        number
    }

    fn number(&self, text: &str) -> u32 {
        self.numbers.get(text).copied().unwrap_or(NONE)
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether they are few and short enough to be named to the big side.
    pub(super) fn may_be_named(&self) -> bool {
        self.len() <= TEXTS_NAMED_MAX && self.bytes <= TEXTS_NAMED_BYTES_MAX
    }

    pub(super) fn to_array(&self) -> StringArray {
        self.numbers.keys().map(|text| Some(&**text)).collect()
    }
}

/// Integers with their numbers.
#[derive(Debug, Default)]
pub(super) struct Integers {
    len: usize,
    numbers: HashMap<i64, u32>,
    /// The numbers by places from the least key on, where keys lie near each other.
    near: Option<Vec<u32>>,
    /// The least and the greatest key.
    ends: Option<(i64, i64)>,
}

impl Integers {
    pub(super) fn learn(&mut self, key: i64) -> u32 {
        let (least, greatest) = self.ends.unwrap_or((key, key));
        self.ends = Some((least.min(key), greatest.max(key)));
        let number = *self.numbers.entry(key).or_insert(self.len as u32);
        self.len = self.numbers.len();
        number
    }

    fn renumber(&mut self, numbers: &[u32]) {
        self.numbers.values_mut().for_each(|number| *number = exchanged(*number, numbers));
    }

    /// Lays the numbers at the places of their keys, if these are near each other.
    fn pack(&mut self) {
        let Some((least, greatest)) = self.ends else { return };
        let places = (greatest.wrapping_sub(least) as u64).saturating_add(1);
        if places > (self.len * PLACES_FOR_EACH).max(PLACES_FEW) as u64 {
            return;
        }
        let mut near = vec![NONE; places as usize];
        for (key, number) in std::mem::take(&mut self.numbers) {
            near[place(key, least)] = number;
        }
        self.near = Some(near);
    }

    fn number(&self, key: i64) -> u32 {
        match (&self.near, self.ends) {
            (Some(near), Some((least, _))) => exchanged_at(place(key, least), near),
            _ => self.numbers.get(&key).copied().unwrap_or(NONE),
        }
    }

    fn find(&self, keys: &Int64Array, found: &mut Vec<u32>) {
        match (&self.near, self.ends) {
            (Some(near), Some((least, _))) => {
                each(keys, found, |key| exchanged_at(place(key, least), near));
            }
            _ => each(keys, found, |key| self.numbers.get(&key).copied().unwrap_or(NONE)),
        }
    }

    /// The least and the greatest key, if there is any.
    pub(super) const fn ends(&self) -> Option<(i64, i64)> {
        self.ends
    }

    pub(super) fn bytes(&self) -> usize {
        let near = self.near.as_ref().map_or(0, Vec::capacity);
        self.numbers.capacity() * (size_of::<(i64, u32)>() + 1) + near * size_of::<u32>()
    }
}

fn place(key: i64, least: i64) -> usize {
    key.wrapping_sub(least) as u64 as usize
}

fn exchanged_at(place: usize, numbers: &[u32]) -> u32 {
    numbers.get(place).copied().unwrap_or(NONE)
}

fn each(keys: &Int64Array, found: &mut Vec<u32>, number: impl Fn(i64) -> u32) {
    match keys.nulls() {
        None => found.extend(keys.values().iter().map(|key| number(*key))),
        Some(_) => found.extend(keys.iter().map(|key| key.map_or(NONE, &number))),
    }
}

/// Integers and times, as different numbers where they are different.
fn integers_of(array: &ArrayRef) -> Result<Int64Array> {
    let integers = match array.data_type() {
        DataType::UInt64 | DataType::Date64 | DataType::Timestamp(..) => {
            as_type(array, &DataType::Int64)?
        }
        DataType::Date32 => cast(&as_type(array, &DataType::Int32)?, &DataType::Int64)?,
        other if other.is_integer() => cast(array, &DataType::Int64)?,
        other => return internal_err!("keys of type {other}"),
    };
    Ok(integers.as_primitive::<Int64Type>().clone())
}

/// The same bits as another type of as many.
fn as_type(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let data = array.to_data().into_builder().data_type(data_type.clone());
    Ok(make_array(data.build()?))
}
