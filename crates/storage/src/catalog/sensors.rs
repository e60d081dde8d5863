//! Sensors: each distinct combination of tag values has a number.
//!
//! [`SensorDictionary`] grows with ingest, behind a lock; readers use a [`SensorsView`], which
//! never changes. A view is made when a reader first asks after the dictionary has grown. It shares what the
//! dictionary has, so that this costs the same for a million sensors as for a few.

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, StringArray};
use hashbrown::{DefaultHashBuilder, HashTable};
use tidefall_codec::Profile;
use tidefall_types::{Error, FieldType, NO_TAG, Result};

use super::tag::TagValues;
use crate::segment::frame::{FrameReader, FrameWriter};

/// The sensors of a table while they grow.
#[derive(Debug, Default)]
pub(crate) struct SensorDictionary {
    hasher: DefaultHashBuilder,
    tags: Vec<TagValues>,
    by_tuple: HashTable<u32>,
    count: u32,
    view: OnceLock<Arc<SensorsView>>,
}

impl SensorDictionary {
    /// The number of sensors.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Makes room for a tag that all sensors so far have no value for.
    pub(crate) fn add_tags(&mut self, tags: usize) {
        while self.tags.len() < tags {
            self.tags.push(TagValues::missing(self.count));
            self.view = OnceLock::new();
        }
    }

    /// The key of a value of a tag, if some sensor has it.
    pub(crate) fn key(&self, tag: usize, value: &str) -> Option<u32> {
        self.tags.get(tag)?.key(value)
    }

    /// The sensor with these keys, one for each tag; tags behind the last are without value.
    pub(crate) fn sensor(&self, keys: &[u32]) -> Option<u32> {
        let hash = self.hash_tuple(keys);
        self.by_tuple.find(hash, |&sensor| self.has_keys(sensor, keys)).copied()
    }

    /// The key of a value of a tag, which is added if it is new.
    pub(crate) fn intern_key(&mut self, tag: usize, value: &str) -> Result<u32> {
        self.add_tags(tag + 1);
        // A view that nobody reads must not make the columns be copied as they grow.
        self.view = OnceLock::new();
        self.tags[tag].intern(value)
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
        self.view = OnceLock::new();
        for (position, tag) in self.tags.iter_mut().enumerate() {
            tag.push(keys.get(position).copied().unwrap_or(NO_TAG));
        }
        let hash = self.hash_tuple(keys);
        let (tags, hasher) = (&self.tags, &self.hasher);
        self.by_tuple.insert_unique(hash, sensor, |&sensor| {
            hash_keys(hasher, tags.iter().map(|tag| tag.key_of(sensor)))
        });
        Ok(sensor)
    }

    /// The sensors as they are now.
    pub(crate) fn view(&self) -> Arc<SensorsView> {
        Arc::clone(
            self.view.get_or_init(|| {
                Arc::new(SensorsView { count: self.count, tags: self.tags.clone() })
            }),
        )
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
            for sensor in sensors.clone() {
                column.append_option(tag.value(tag.key_of(sensor)));
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
            tag.key_of(sensor) == keys.get(position).copied().unwrap_or(NO_TAG)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Held against the table of all that was written.
    #[test]
    fn a_view_shows_the_sensors_of_its_time() {
        const SENSORS: u32 = 40_000;
        let mut dictionary = SensorDictionary::default();
        let (mut views, name) = (Vec::new(), |sensor: u32| format!("s{sensor}"));
        for sensor in 0..SENSORS {
            if sensor % 9_999 == 0 {
                views.push((dictionary.view(), sensor));
            }
            let site = dictionary.intern_key(1, ["a", "b", "c"][sensor as usize % 3]).unwrap();
            let keys = [dictionary.intern_key(0, &name(sensor)).unwrap(), site];
            assert_eq!(dictionary.intern(&keys).unwrap(), sensor);
        }
        for (view, count) in views {
            assert_eq!(view.count, count);
            let Some((names, sites)) = view.tag(0).zip(view.tag(1)) else {
                assert_eq!(count, 0);
                continue;
            };
            let newest = name(count - 1);
            assert_eq!(names.key(&newest), Some(count - 1));
            assert_eq!(names.key(&name(count)), None);
            assert_eq!(names.sensors_with(vec![count - 1]), [count - 1]);
            assert_eq!(names.value(names.key_of(count - 1)), Some(newest.as_str()));
            let b: Vec<u32> = (0..count).filter(|sensor| sensor % 3 == 1).collect();
            assert_eq!(sites.sensors_with(vec![1]), b);
            assert_eq!(sites.sensors_with(vec![0, 1, 2]).len(), count as usize);
        }
        let all = dictionary.encode(0..SENSORS).unwrap();
        let mut other = SensorDictionary::default();
        other.decode(&all).unwrap();
        assert_eq!((other.count(), other.encode(0..SENSORS).unwrap()), (SENSORS, all));
    }
}
