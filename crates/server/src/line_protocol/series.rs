//! Series keys: found again by their bytes, taken apart once.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::scan::{self, Stop};

/// The longest series key, as in InfluxDB.
const KEY_BYTES_MAX: usize = 65_535;

/// A tag of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeriesTag {
    /// The position of the tag in [`Table::tags`].
    pub tag: u32,
    /// The position of its value in the tag's dictionary.
    pub value: u32,
}

/// Distinct texts, numbered by first appearance.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    bytes: Vec<u8>,
    /// Where each text ends.
    ends: Vec<u32>,
    index: HashTable<u32>,
}

impl Dictionary {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, number: u32) -> &[u8] {
        text_of(&self.bytes, &self.ends, number)
    }

    fn position(&self, text: &[u8], hasher: &DefaultHashBuilder) -> Option<u32> {
        let same = |number: &u32| self.get(*number) == text;
        self.index.find(hasher.hash_one(text), same).copied()
    }

    fn intern(&mut self, text: &[u8], hasher: &DefaultHashBuilder) -> u32 {
        let Self { bytes, ends, index } = self;
        let hash = hasher.hash_one(text);
        if let Some(&number) = index.find(hash, |&number| text_of(bytes, ends, number) == text) {
            return number;
        }
        let number = ends.len() as u32;
        bytes.extend_from_slice(text);
        ends.push(bytes.len() as u32);
        index.insert_unique(hash, number, |&number| hasher.hash_one(text_of(bytes, ends, number)));
        number
    }
}

fn text_of<'a>(bytes: &'a [u8], ends: &[u32], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] as usize };
    &bytes[start..ends[number] as usize]
}

/// A table that some line named.
#[derive(Debug)]
pub(super) struct Table {
    pub name: String,
    pub tag_names: Dictionary,
    /// The values of each tag, by the tag's number in `tag_names`.
    pub tag_values: Vec<Dictionary>,
}

#[derive(Debug)]
struct Series<'a> {
    key: &'a [u8],
    table: u32,
    tags: Range<u32>,
    /// The batch that last admitted this series.
    generation: u32,
}

/// The generation of no batch.
const UNMARKED: u32 = u32::MAX;

/// All series of a body.
#[derive(Debug, Default)]
pub(super) struct SeriesIndex<'a> {
    hasher: DefaultHashBuilder,
    series: Vec<Series<'a>>,
    by_key: HashTable<u32>,
    tags: Vec<SeriesTag>,
    tables: Vec<Table>,
    tables_by_name: HashTable<u32>,
    /// The series that was found last: successive lines often belong to one.
    current: Option<u32>,
}

impl<'a> SeriesIndex<'a> {
    /// The series of `key`, which is taken as it stands in the body.
    pub(super) fn find(&mut self, key: &'a [u8]) -> Result<u32, Stop> {
        if let Some(current) = self.current
            && self.series[current as usize].key == key
        {
            return Ok(current);
        }
        let hash = self.hasher.hash_one(key);
        let found =
            self.by_key.find(hash, |&number| self.series[number as usize].key == key).copied();
        let number = match found {
            Some(number) => number,
            None => self.add(key, hash)?,
        };
        self.current = Some(number);
        Ok(number)
    }

    pub(super) fn current(&self) -> Option<u32> {
        self.current
    }

    pub(super) fn table_of(&self, series: u32) -> usize {
        self.series[series as usize].table as usize
    }

    pub(super) fn table(&self, table: usize) -> &Table {
        &self.tables[table]
    }

    pub(super) fn tags_of(&self, series: u32) -> &[SeriesTag] {
        let Range { start, end } = self.series[series as usize].tags;
        &self.tags[start as usize..end as usize]
    }

    /// Marks a series as admitted to the batch of `generation`; says whether it was so already.
    #[inline]
    pub(super) fn mark(&mut self, series: u32, generation: u32) -> bool {
        std::mem::replace(&mut self.series[series as usize].generation, generation) == generation
    }

    pub(super) fn unmark(&mut self, series: u32) {
        self.series[series as usize].generation = UNMARKED;
    }

    /// The number of the tag called `name` in the table of `series`.
    pub(super) fn tag_number(&self, series: u32, name: &[u8]) -> Option<u32> {
        self.tables[self.table_of(series)].tag_names.position(name, &self.hasher)
    }

    pub(super) fn tag_names_of(&self, series: u32) -> impl Iterator<Item = &[u8]> {
        let names = &self.tables[self.table_of(series)].tag_names;
        self.tags_of(series).iter().map(|tag| names.get(tag.tag))
    }

    fn add(&mut self, key: &'a [u8], hash: u64) -> Result<u32, Stop> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Stop("max key size exceeded: 65535 bytes"));
        }
        let (measurement, mut rest) = scan::cut(key, b",");
        if measurement.is_empty() {
            return Err(Stop("missing measurement"));
        }
        let name = scan::unescape(measurement, b", ");
        let name = std::str::from_utf8(&name).map_err(|_| Stop("invalid UTF-8"))?;
        // The syntax is checked before anything is interned, so that a wrong key leaves no trace.
        let mut tags = Vec::new();
        while let Some(tag) = rest.strip_prefix(b",") {
            let (pair, after) = scan::cut(tag, b",");
            tags.push(tag_pair(pair)?);
            rest = after;
        }
        if has_twice(&tags) {
            return Err(Stop("duplicate tags"));
        }
        let table = self.table_number(name);
        let start = self.tags.len() as u32;
        for (name, value) in &tags {
            self.add_tag(table, name, value);
        }
        let number = self.series.len() as u32;
        let tags = start..self.tags.len() as u32;
        self.series.push(Series { key, table, tags, generation: UNMARKED });
        let (series, hasher) = (&self.series, &self.hasher);
        self.by_key
            .insert_unique(hash, number, |&number| hasher.hash_one(series[number as usize].key));
        Ok(number)
    }

    fn add_tag(&mut self, table: u32, name: &[u8], value: &[u8]) {
        let table = &mut self.tables[table as usize];
        let tag = table.tag_names.intern(name, &self.hasher);
        if tag as usize == table.tag_values.len() {
            table.tag_values.push(Dictionary::default());
        }
        let value = table.tag_values[tag as usize].intern(value, &self.hasher);
        self.tags.push(SeriesTag { tag, value });
    }

    fn table_number(&mut self, name: &str) -> u32 {
        let Self { tables, tables_by_name, hasher, .. } = self;
        let hash = hasher.hash_one(name);
        let found = tables_by_name.find(hash, |&number| tables[number as usize].name == name);
        if let Some(&number) = found {
            return number;
        }
        let number = tables.len() as u32;
        tables.push(Table {
            name: name.to_owned(),
            tag_names: Dictionary::default(),
            tag_values: Vec::new(),
        });
        tables_by_name
            .insert_unique(hash, number, |&number| hasher.hash_one(&*tables[number as usize].name));
        number
    }
}

/// The name and the value of a tag.
type TagPair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

fn tag_pair(pair: &[u8]) -> Result<TagPair<'_>, Stop> {
    let (name, value) = scan::cut(pair, b"=");
    if name.is_empty() {
        return Err(Stop("missing tag key"));
    }
    let value = match value {
        [b'=', value @ ..] if !value.is_empty() => value,
        _ => return Err(Stop("missing tag value")),
    };
    if !scan::cut(value, b"=").1.is_empty() {
        return Err(Stop("invalid tag format"));
    }
    if name == scan::TIME_NAME {
        return Err(Stop("\"time\" is the name of the time: give the tag another name"));
    }
    let pair = (scan::unescape(name, b",= "), scan::unescape(value, b",= "));
    if std::str::from_utf8(&pair.0).is_err() || std::str::from_utf8(&pair.1).is_err() {
        return Err(Stop("invalid UTF-8"));
    }
    Ok(pair)
}

fn has_twice(tags: &[TagPair<'_>]) -> bool {
    // Sorting would cost more than comparing the handful of tags that most series have, but a
    // hostile key can hold thousands.
    const FEW: usize = 16;
    if tags.len() <= FEW {
        return tags.iter().enumerate().any(|(i, a)| tags[..i].iter().any(|b| a.0 == b.0));
    }
    let mut sorted: Vec<&[u8]> = tags.iter().map(|tag| &*tag.0).collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}
