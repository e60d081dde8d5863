//! From the tags of rows to their sensors.

use arrow_array::Array;
use hashbrown::HashMap;
use tidefall_types::{Error, NO_TAG, Result, RowError, TableSchema, TagColumn, WriteBatch};

use crate::catalog::SensorDictionary;

/// The tags of a batch in the order of the schema; none where the batch lacks one.
fn tags_in_order<'a>(schema: &TableSchema, batch: &'a WriteBatch) -> Vec<Option<&'a TagColumn>> {
    let find = |name: &String| batch.tags.iter().find(|tag| tag.name == *name);
    schema.tags.iter().map(find).collect()
}

/// The longest value of a tag: a quarter of what names a series in InfluxDB, so that a page of them is far below what
/// the codec takes.
pub const TAG_BYTES_MAX: usize = 16 << 10;
/// The most that all tag values of a sensor may have together, as in InfluxDB.
pub const TAGS_BYTES_MAX: usize = 64 << 10;

/// Adds to `bad` the rows of new sensors whose tags are too long. Sensors that are there already stay, from when there was
/// no limit.
pub fn refuse_long_tags(
    schema: &TableSchema,
    batch: &WriteBatch,
    sensors: &SensorDictionary,
    bad: &mut Vec<RowError>,
) {
    let longest: Vec<usize> = batch.tags.iter().map(longest_value).collect();
    let is_short = longest.iter().all(|bytes| *bytes <= TAG_BYTES_MAX);
    if is_short && longest.iter().sum::<usize>() <= TAGS_BYTES_MAX {
        return;
    }
    let tags = tags_in_order(schema, batch);
    for row in 0..batch.rows() {
        let values: Vec<Option<&str>> =
            tags.iter().map(|tag| tag.and_then(|tag| tag_value(tag, tag.keys[row]))).collect();
        if let Some(error) = too_long(schema, &values)
            && sensors.find(&values).is_none()
        {
            bad.push(RowError { row, error });
        }
    }
}

fn longest_value(tag: &TagColumn) -> usize {
    tag.values.offsets().lengths().max().unwrap_or(0)
}

/// Why a sensor cannot have these tags, if they are too long.
fn too_long(schema: &TableSchema, values: &[Option<&str>]) -> Option<Error> {
    let lengths = || values.iter().map(|value| value.map_or(0, str::len));
    let named = schema.tags.iter().zip(values);
    let long = named.clone().find(|(_, value)| value.is_some_and(|v| v.len() > TAG_BYTES_MAX));
    if let Some((tag, Some(value))) = long {
        return Some(Error::invalid(format!(
            "table {}, tag {tag:?}: a value of {} bytes, which begins {:?}, is too long: a tag may have up to \
             {TAG_BYTES_MAX} bytes; store long texts in a field",
            schema.name,
            value.len(),
            value.chars().take(SHOWN_CHARS).collect::<String>()
        )));
    }
    let all: usize = lengths().sum();
    (all > TAGS_BYTES_MAX).then(|| {
        let longest = named.max_by_key(|(_, value)| value.map_or(0, str::len));
        let longest = longest.map_or(String::new(), |(tag, value)| {
            format!(", of which {tag:?} has {}", value.map_or(0, str::len))
        });
        Error::invalid(format!(
            "table {}: the tags of a sensor have {all} bytes together{longest}; they may have up to \
             {TAGS_BYTES_MAX}; store long texts in a field",
            schema.name
        ))
    })
}

/// So much of a long value tells which one it is.
const SHOWN_CHARS: usize = 30;

/// Distinct combinations of tag keys that are looked up in a plain table rather than in a hash
/// map; above, the table would not fit into a core's cache.
const DENSE_COMBINATIONS_MAX: u64 = 1 << 16;

/// The sensor of each row. `find` is asked once for each distinct combination of tag values; when
/// it knows none, the answer is the row at which that happened.
///
/// # Errors
/// Those of `find`.
pub fn sensors_of_rows(
    schema: &TableSchema,
    batch: &WriteBatch,
    mut find: impl FnMut(&[Option<&str>]) -> Result<Option<u32>>,
) -> Result<Option<Vec<u32>>> {
    let tags = tags_in_order(schema, batch);
    let present: Vec<&TagColumn> = tags.iter().flatten().copied().collect();
    let mut find_row = |row: usize| {
        let values: Vec<Option<&str>> =
            tags.iter().map(|tag| tag.and_then(|tag| tag_value(tag, tag.keys[row]))).collect();
        find(&values)
    };
    let Combinations { codes, bound } = Combinations::of(&present, batch.rows());
    let mut sensors = Vec::with_capacity(codes.len());
    if bound <= DENSE_COMBINATIONS_MAX {
        let mut known = vec![u32::MAX; bound as usize];
        for (row, code) in codes.into_iter().enumerate() {
            let slot = &mut known[code as usize];
            if *slot == u32::MAX {
                match find_row(row)? {
                    Some(sensor) => *slot = sensor,
                    None => return Ok(None),
                }
            }
            sensors.push(*slot);
        }
        return Ok(Some(sensors));
    }
    let mut known: HashMap<u64, u32> = HashMap::new();
    for (row, code) in codes.into_iter().enumerate() {
        let sensor = match known.get(&code) {
            Some(sensor) => *sensor,
            None => match find_row(row)? {
                Some(sensor) => *known.entry(code).insert(sensor).get(),
                None => return Ok(None),
            },
        };
        sensors.push(sensor);
    }
    Ok(Some(sensors))
}

/// A number for each row that says which tag keys it has.
struct Combinations {
    codes: Vec<u64>,
    /// All codes are below.
    bound: u64,
}

impl Combinations {
    /// The keys of a row as the digits of a number, tag by tag. Before that would no longer fit, the codes so far are
    /// numbered in the order in which they come, so that there are never more than rows.
    fn of(tags: &[&TagColumn], rows: usize) -> Self {
        let mut all = Self { codes: vec![0; rows], bound: 1 };
        for tag in tags {
            let slots = tag.values.len() as u64 + 1;
            if all.bound.checked_mul(slots).is_none() {
                all.number();
            }
            all.bound = all.bound.saturating_mul(slots);
            for (code, &key) in all.codes.iter_mut().zip(tag.keys.iter()) {
                let slot = if key == NO_TAG { 0 } else { u64::from(key) + 1 };
                *code = *code * slots + slot;
            }
        }
        all
    }

    fn number(&mut self) {
        let mut numbers: HashMap<u64, u64> = HashMap::new();
        for code in &mut self.codes {
            let next = numbers.len() as u64;
            *code = *numbers.entry(*code).or_insert(next);
        }
        self.bound = numbers.len() as u64;
    }
}

/// The value of a tag under a key; nothing for [`tidefall_types::NO_TAG`].
pub fn tag_value(tag: &TagColumn, key: u32) -> Option<&str> {
    let key = key as usize;
    (key < tag.values.len() && tag.values.is_valid(key)).then(|| tag.values.value(key))
}

#[cfg(test)]
mod tests;
