//! Sensors: each distinct combination of tag values has a number.
//!
//! [`SensorDictionary`] grows with ingest, behind a lock; readers use a [`SensorsView`], which
//! never changes. A view is made when a reader first asks after the dictionary has grown.

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, StringArray};
use hashbrown::{DefaultHashBuilder, HashTable};
use tidefall_codec::Profile;
use tidefall_types::{Error, FieldType, NO_TAG, Result};

use crate::segment::frame::{FrameReader, FrameWriter};

/// The sensors of a table while they grow.
#[derive(Debug, Default)]
pub(crate) struct SensorDictionary {
    hasher: DefaultHashBuilder,
    tags: Vec<TagDictionary>,
    by_tuple: HashTable<u32>,
    count: u32,
    view: OnceLock<Arc<SensorsView>>,
}

/// The distinct values of a tag and the value that each sensor has.
#[derive(Debug, Default, Clone)]
struct TagDictionary {
    values: Vec<Arc<str>>,
    by_value: HashTable<u32>,
    key_of_sensor: Vec<u32>,
}

impl SensorDictionary {
    /// The number of sensors.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Makes room for a tag that all sensors so far have no value for.
    pub(crate) fn add_tags(&mut self, tags: usize) {
        while self.tags.len() < tags {
            let key_of_sensor = vec![NO_TAG; self.count as usize];
            self.tags.push(TagDictionary { key_of_sensor, ..TagDictionary::default() });
            self.view = OnceLock::new();
        }
    }

    /// The key of a value of a tag, if some sensor has it.
    pub(crate) fn key(&self, tag: usize, value: &str) -> Option<u32> {
        let tag = self.tags.get(tag)?;
        let hash = self.hasher.hash_one(value);
        tag.by_value.find(hash, |&key| &*tag.values[key as usize] == value).copied()
    }

    /// The sensor with these keys, one for each tag; tags behind the last are without value.
    pub(crate) fn sensor(&self, keys: &[u32]) -> Option<u32> {
        let hash = self.hash_tuple(keys);
        self.by_tuple.find(hash, |&sensor| self.has_keys(sensor, keys)).copied()
    }

    /// The key of a value of a tag, which is added if it is new.
    pub(crate) fn intern_key(&mut self, tag: usize, value: &str) -> Result<u32> {
        self.add_tags(tag + 1);
        if let Some(key) = self.key(tag, value) {
            return Ok(key);
        }
        let hasher = &self.hasher;
        let tag = &mut self.tags[tag];
        let key = u32::try_from(tag.values.len())
            .ok()
            .filter(|key| *key != NO_TAG)
            .ok_or_else(|| Error::limit("a tag has more than 4,294,967,294 values"))?;
        tag.values.push(value.into());
        let values = &tag.values;
        tag.by_value.insert_unique(hasher.hash_one(value), key, |&key| {
            hasher.hash_one(&*values[key as usize])
        });
        Ok(key)
    }

    /// The sensor with these keys, which is added if it is new.
    pub(crate) fn intern(&mut self, keys: &[u32]) -> Result<u32> {
        self.add_tags(keys.len());
        if let Some(sensor) = self.sensor(keys) {
            return Ok(sensor);
        }
        let sensor = self.count;
        self.count = sensor
            .checked_add(1)
            .ok_or_else(|| Error::limit("a table has more than 4,294,967,295 sensors"))?;
        for (position, tag) in self.tags.iter_mut().enumerate() {
            tag.key_of_sensor.push(keys.get(position).copied().unwrap_or(NO_TAG));
        }
        let hash = self.hash_tuple(keys);
        let (tags, hasher) = (&self.tags, &self.hasher);
        self.by_tuple.insert_unique(hash, sensor, |&sensor| {
            hash_keys(hasher, tags.iter().map(|tag| tag.key_of_sensor[sensor as usize]))
        });
        self.view = OnceLock::new();
        Ok(sensor)
    }

    /// The sensors as they are now.
    pub(crate) fn view(&self) -> Arc<SensorsView> {
        Arc::clone(self.view.get_or_init(|| {
            let tags = self.tags.iter().map(|tag| TagValues::new(tag, &self.hasher)).collect();
            Arc::new(SensorsView { count: self.count, tags })
        }))
    }

    /// The tag values of some sensors, all of which there are, as bytes for the log and for storage.
    pub(crate) fn encode(&self, sensors: Range<u32>) -> Result<Vec<u8>> {
        let mut frame = FrameWriter::new(Profile::Dense);
        frame.put_i64s(vec![
            i64::from(sensors.start),
            i64::from(sensors.end - sensors.start),
            self.tags.len() as i64,
        ])?;
        for tag in &self.tags {
            let mut column = StringBuilder::new();
            for &key in &tag.key_of_sensor[sensors.start as usize..sensors.end as usize] {
                column.append_option(tag.values.get(key as usize));
            }
            frame.put_column(&column.finish())?;
        }
        frame.finish()
    }

    /// Adds sensors from [`SensorDictionary::encode`]; those that are there already are
    /// passed over.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        let stored = StoredSensors::decode(bytes)?;
        if stored.sensors.start > self.count {
            return Err(out_of_order());
        }
        for sensor in self.count..stored.sensors.end {
            if self.add(&stored, sensor)? != sensor {
                return Err(Error::corrupt("a sensor of a table is listed twice"));
            }
        }
        Ok(())
    }

    /// Adds sensors from [`SensorDictionary::encode`] whatever their numbers are, as those before them may be lost.
    /// Returns for each number the one that the sensor has here.
    pub(crate) fn adopt(&mut self, bytes: &[u8]) -> Result<Vec<(u32, u32)>> {
        let stored = StoredSensors::decode(bytes)?;
        stored.sensors.clone().map(|sensor| Ok((sensor, self.add(&stored, sensor)?))).collect()
    }

    fn add(&mut self, stored: &StoredSensors, sensor: u32) -> Result<u32> {
        self.add_tags(stored.tags.len());
        let row = (sensor - stored.sensors.start) as usize;
        let mut keys = Vec::with_capacity(stored.tags.len());
        for (tag, column) in stored.tags.iter().enumerate() {
            keys.push(match column.is_valid(row) {
                true => self.intern_key(tag, column.value(row))?,
                false => NO_TAG,
            });
        }
        self.intern(&keys)
    }

    fn has_keys(&self, sensor: u32, keys: &[u32]) -> bool {
        self.tags.iter().enumerate().all(|(position, tag)| {
            tag.key_of_sensor[sensor as usize] == keys.get(position).copied().unwrap_or(NO_TAG)
        })
    }

    fn hash_tuple(&self, keys: &[u32]) -> u64 {
        hash_keys(&self.hasher, keys.iter().copied())
    }
}

/// What [`SensorDictionary::encode`] has written.
struct StoredSensors {
    sensors: Range<u32>,
    /// Of each tag the values of the sensors.
    tags: Vec<StringArray>,
}

impl StoredSensors {
    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut frame = FrameReader::new(bytes)?;
        let head = frame.take_i64s()?;
        let &[first, count, tags] = head.as_slice() else { return Err(out_of_order()) };
        let end = first.checked_add(count).filter(|end| *end >= first).ok_or_else(out_of_order)?;
        let number = |number| u32::try_from(number).map_err(|_| out_of_order());
        let (sensors, tags) = (number(first)?..number(end)?, u16::try_from(tags));
        let count = sensors.len();
        let tags = (0..tags.map_err(|_| out_of_order())?).map(|_| {
            let column = frame.take_column(FieldType::Text)?.as_string::<i32>().clone();
            if column.len() == count { Ok(column) } else { Err(out_of_order()) }
        });
        let tags = tags.collect::<Result<Vec<_>>>()?;
        if tags.is_empty() && count > 1 {
            return Err(Error::corrupt("without tags there are several sensors"));
        }
        Ok(Self { sensors, tags })
    }
}

fn out_of_order() -> Error {
    Error::corrupt("the sensors of a table do not follow each other")
}

/// Hashes only tags that have a value, so that a tag added later does not move old sensors.
fn hash_keys(hasher: &DefaultHashBuilder, keys: impl Iterator<Item = u32>) -> u64 {
    let mut state = hasher.build_hasher();
    for (tag, key) in keys.enumerate().filter(|(_, key)| *key != NO_TAG) {
        (tag as u32, key).hash(&mut state);
    }
    state.finish()
}

/// The sensors of a table at one moment.
#[derive(Debug, Default)]
pub(crate) struct SensorsView {
    pub(crate) count: u32,
    tags: Vec<TagValues>,
}

impl SensorsView {
    /// A tag; none when no sensor has a value for it yet.
    pub(crate) fn tag(&self, tag: usize) -> Option<&TagValues> {
        self.tags.get(tag)
    }
}

/// A tag of all sensors: dictionary, key of each sensor, and the inverted index.
#[derive(Debug)]
pub(crate) struct TagValues {
    /// The distinct values, by key.
    pub(crate) values: StringArray,
    /// The key of each sensor, or [`NO_TAG`].
    pub(crate) key_of_sensor: Vec<u32>,
    hasher: DefaultHashBuilder,
    by_value: HashTable<u32>,
    inverted: OnceLock<Inverted>,
}

/// The sensors of each key, one behind the other, with those without value at the end.
#[derive(Debug)]
struct Inverted {
    starts: Vec<u32>,
    sensors: Vec<u32>,
}

impl TagValues {
    fn new(tag: &TagDictionary, hasher: &DefaultHashBuilder) -> Self {
        Self {
            values: StringArray::from_iter_values(tag.values.iter()),
            key_of_sensor: tag.key_of_sensor.clone(),
            hasher: hasher.clone(),
            by_value: tag.by_value.clone(),
            inverted: OnceLock::new(),
        }
    }

    /// The key of a value, if some sensor has it.
    pub(crate) fn key(&self, value: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(value);
        self.by_value.find(hash, |&key| self.values.value(key as usize) == value).copied()
    }

    /// The sensors with a key, in order; those without a value for [`NO_TAG`].
    pub(crate) fn sensors_with(&self, key: u32) -> &[u32] {
        let inverted = self.inverted.get_or_init(|| self.invert());
        let key = (key as usize).min(self.values.len());
        &inverted.sensors[inverted.starts[key] as usize..inverted.starts[key + 1] as usize]
    }

    fn invert(&self) -> Inverted {
        let keys = self.values.len() + 1;
        let slot = |key: u32| (key as usize).min(keys - 1);
        let mut starts = vec![0_u32; keys + 1];
        for &key in &self.key_of_sensor {
            starts[slot(key) + 1] += 1;
        }
        for key in 0..keys {
            starts[key + 1] += starts[key];
        }
        let mut next = starts.clone();
        let mut sensors = vec![0; self.key_of_sensor.len()];
        for (sensor, &key) in self.key_of_sensor.iter().enumerate() {
            sensors[next[slot(key)] as usize] = sensor as u32;
            next[slot(key)] += 1;
        }
        Inverted { starts, sensors }
    }
}
