//! Sensors as bytes, in the log and in objects.
//!
//! ```text
//! frame = head tag*
//! head  = i64 column: first sensor, number of sensors, number of tags, 1
//! tag   = text column: the values that these sensors have, each once
//!         u32 column: for each sensor the place of its value there, null without value
//! ```
//!
//! Before, the head had no fourth number, and a tag was a text column with the value of each sensor. Such are read.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, UInt32Array};
use hashbrown::HashMap;
use tidefall_codec::Profile;
use tidefall_ground::frames::{FrameReader, FrameWriter, TextPages};
use tidefall_types::{Error, FieldType, NO_TAG, Result};

use super::tag::TagValues;

/// As many tags as a table can have.
const TAGS_MAX: u32 = 1 << 16;
/// The fourth number of the head: values that sensors share are there once.
const SHARED: i64 = 1;

/// The values that some sensors, all of which there are, have of the tags.
pub(super) fn encode_tags(tags: &[TagValues], sensors: Range<u32>) -> Result<Vec<u8>> {
    let mut frame = FrameWriter::new(Profile::Dense);
    let count = sensors.end - sensors.start;
    frame.put_i64s(vec![sensors.start.into(), count.into(), tags.len() as i64, SHARED])?;
    for tag in tags {
        let mut keys = Vec::new();
        let mut places: HashMap<u32, u32> = HashMap::new();
        let mut place_of = |key: u32| {
            *places.entry(key).or_insert_with(|| {
                keys.push(key);
                keys.len() as u32 - 1
            })
        };
        let of_sensors: UInt32Array = sensors
            .clone()
            .map(|sensor| tag.key_of(sensor))
            .map(|key| (key != NO_TAG).then(|| place_of(key)))
            .collect();
        frame.put_texts(keys.iter().filter_map(|key| tag.value(*key)))?;
        frame.put_column(&of_sensors)?;
    }
    frame.finish()
}

/// Sensors that were stored, of which one after the other is read.
pub(super) struct StoredSensors<'a> {
    pub(super) sensors: Range<u32>,
    tags: Vec<StoredTag<'a>>,
}

enum StoredTag<'a> {
    /// The value of each sensor.
    Each(TextPages<'a>),
    /// The values, and for each sensor the place of its own.
    Shared { values: TextPages<'a>, keys: Vec<u32>, places: UInt32Array, row: usize },
}

impl<'a> StoredSensors<'a> {
    /// # Errors
    /// `Corrupt` for what [`encode_tags`] has not written.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self> {
        let mut frame = FrameReader::new(bytes)?;
        let head = frame.take_i64s()?;
        let (first, count, tags, is_shared) = match head[..] {
            [first, count, tags] => (first, count, tags, false),
            [first, count, tags, SHARED] => (first, count, tags, true),
            _ => return Err(out_of_order()),
        };
        let end = first.checked_add(count).filter(|end| *end >= first).ok_or_else(out_of_order)?;
        let number = |number| u32::try_from(number).map_err(|_| out_of_order());
        let (sensors, tags) = (number(first)?..number(end)?, number(tags)?);
        if tags > TAGS_MAX {
            return Err(out_of_order());
        }
        let tags = (0..tags).map(|_| match is_shared {
            true => StoredTag::open_shared(&mut frame, sensors.len()),
            false => Ok(StoredTag::Each(frame.take_texts()?)),
        });
        let tags = tags.collect::<Result<Vec<_>>>()?;
        if tags.is_empty() && sensors.len() > 1 {
            return Err(Error::corrupt("without tags there are several sensors"));
        }
        Ok(Self { sensors, tags })
    }

    /// The number of tags.
    pub(super) fn tags(&self) -> usize {
        self.tags.len()
    }

    /// The keys that a dictionary gives the values of the next sensor, one for each tag.
    pub(super) fn next_keys(
        &mut self,
        mut intern: impl FnMut(usize, &str) -> Result<u32>,
        keys: &mut Vec<u32>,
    ) -> Result<()> {
        keys.clear();
        for (tag, stored) in self.tags.iter_mut().enumerate() {
            keys.push(stored.next_key(|value| intern(tag, value))?);
        }
        Ok(())
    }

    /// Behind the last sensor.
    pub(super) fn expect_end(&self) -> Result<()> {
        if self.tags.iter().all(StoredTag::is_at_end) { Ok(()) } else { Err(out_of_order()) }
    }
}

impl<'a> StoredTag<'a> {
    fn open_shared(frame: &mut FrameReader<'a>, sensors: usize) -> Result<Self> {
        let values = frame.take_texts()?;
        let places = frame.take_column(FieldType::U32)?.as_primitive::<UInt32Type>().clone();
        if places.len() != sensors {
            return Err(out_of_order());
        }
        Ok(Self::Shared { values, keys: Vec::new(), places, row: 0 })
    }

    fn next_key(&mut self, mut intern: impl FnMut(&str) -> Result<u32>) -> Result<u32> {
        match self {
            Self::Each(values) => values.next_text()?.map_or(Ok(NO_TAG), intern),
            Self::Shared { values, keys, places, row } => {
                let place = places.is_valid(*row).then(|| places.value(*row) as usize);
                *row += 1;
                let Some(place) = place else { return Ok(NO_TAG) };
                // Values stand in the order in which they are needed first.
                while keys.len() <= place {
                    keys.push(intern(values.next_text()?.ok_or_else(out_of_order)?)?);
                }
                Ok(keys[place])
            }
        }
    }

    fn is_at_end(&self) -> bool {
        match self {
            Self::Each(values) => values.is_at_end(),
            Self::Shared { values, places, row, .. } => values.is_at_end() && *row == places.len(),
        }
    }
}

pub(super) fn out_of_order() -> Error {
    Error::corrupt("the sensors of a table do not follow each other")
}
