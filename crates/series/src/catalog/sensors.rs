//! Sensors: each distinct combination of tag values has a number.
//!
//! [`SensorDictionary`] grows with ingest, behind a lock; readers use a [`SensorsView`], which
//! never changes. A view is made when a reader first asks after the dictionary has grown. It shares what the
//! dictionary has, so that this costs the same for a million sensors as for a few.

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};
use roaring::RoaringBitmap;
use tidefall_sync::{Arc, OnceLock};
use tidefall_types::{Error, NO_TAG, Result};

use super::stored::{StoredSensors, encode_tags, out_of_order};
use super::tag::TagValues;

/// The sensors of a table while they grow.
#[derive(Debug, Default)]
pub struct SensorDictionary {
    hasher: DefaultHashBuilder,
    tags: Vec<TagValues>,
    by_tuple: HashTable<u32>,
    count: u32,
    view: OnceLock<Arc<SensorsView>>,
}

impl SensorDictionary {
    /// The number of sensors.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Makes room for a tag that all sensors so far have no value for.
    pub fn add_tags(&mut self, tags: usize) {
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
    ///
    /// # Errors
    /// `Limit` when the tag has too many values.
    pub fn intern_key(&mut self, tag: usize, value: &str) -> Result<u32> {
        self.add_tags(tag + 1);
        // A view that nobody reads must not make the columns be copied as they grow.
        self.view = OnceLock::new();
        self.tags[tag].intern(value)
    }

    /// The sensor with these keys, which is added if it is new.
    ///
    /// # Errors
    /// `Limit` when the table has too many sensors.
    pub fn intern(&mut self, keys: &[u32]) -> Result<u32> {
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

    /// The sensor with these tag values, if it is known.
    pub fn find(&self, values: &[Option<&str>]) -> Option<u32> {
        let key = |(tag, value): (usize, &Option<&str>)| {
            value.map_or(Some(NO_TAG), |value| self.key(tag, value))
        };
        let keys: Option<Vec<u32>> = values.iter().enumerate().map(key).collect();
        self.sensor(&keys?)
    }

    /// The sensor with these tag values, added if it is new.
    ///
    /// # Errors
    /// `Limit` when the table has too many sensors, or a tag too many values.
    pub fn find_or_add(&mut self, values: &[Option<&str>]) -> Result<u32> {
        let key = |(tag, value): (usize, &Option<&str>)| {
            value.map_or(Ok(NO_TAG), |value| self.intern_key(tag, value))
        };
        let keys: Result<Vec<u32>> = values.iter().enumerate().map(key).collect();
        self.intern(&keys?)
    }

    /// The sensors as they are now.
    pub fn view(&self) -> Arc<SensorsView> {
        Arc::clone(
            self.view.get_or_init(|| {
                Arc::new(SensorsView { count: self.count, tags: self.tags.clone() })
            }),
        )
    }

    /// The tag values of some sensors, all of which there are, as bytes for the log and for storage.
    ///
    /// # Errors
    /// `Limit` for more than a frame holds: encode fewer at once.
    pub fn encode(&self, sensors: Range<u32>) -> Result<Vec<u8>> {
        encode_tags(&self.tags, sensors)
    }

    /// The first of some sensors, all of which there are: as many as [`SensorDictionary::encode`] makes about
    /// `bytes_max` bytes of before they are packed; one at least, if there is one.
    pub(crate) fn first_within(&self, sensors: Range<u32>, bytes_max: usize) -> Range<u32> {
        let mut bytes = 0;
        let mut seen = vec![RoaringBitmap::new(); self.tags.len()];
        for sensor in sensors.clone() {
            for (tag, seen) in self.tags.iter().zip(&mut seen) {
                let key = tag.key_of(sensor);
                bytes += size_of_val(&key);
                if key != NO_TAG && seen.insert(key) {
                    bytes += tag.value(key).map_or(0, str::len);
                }
            }
            if bytes > bytes_max && sensor > sensors.start {
                return sensors.start..sensor;
            }
        }
        sensors
    }

    /// Adds sensors from [`SensorDictionary::encode`]; those that are there already are
    /// passed over.
    ///
    /// # Errors
    /// `Corrupt` for damaged bytes, and for sensors that do not follow those that are there; `Limit` as [`SensorDictionary::intern`].
    pub fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        let mut stored = StoredSensors::open(bytes)?;
        if stored.sensors.start > self.count {
            return Err(out_of_order());
        }
        self.add_tags(stored.tags());
        let mut keys = Vec::new();
        for sensor in stored.sensors.clone() {
            stored.next_keys(|tag, value| self.intern_key(tag, value), &mut keys)?;
            if sensor >= self.count && self.intern(&keys)? != sensor {
                return Err(Error::corrupt("a sensor of a table is listed twice"));
            }
        }
        stored.expect_end()
    }

    /// Adds sensors from [`SensorDictionary::encode`] whatever their numbers are, as those before them may be lost.
    /// Returns for each number the one that the sensor has here.
    ///
    /// # Errors
    /// `Corrupt` for damaged bytes; `Limit` as [`SensorDictionary::intern`].
    pub fn adopt(&mut self, bytes: &[u8]) -> Result<Vec<(u32, u32)>> {
        let mut stored = StoredSensors::open(bytes)?;
        self.add_tags(stored.tags());
        let (mut adopted, mut keys) = (Vec::new(), Vec::new());
        for sensor in stored.sensors.clone() {
            stored.next_keys(|tag, value| self.intern_key(tag, value), &mut keys)?;
            adopted.push((sensor, self.intern(&keys)?));
        }
        stored.expect_end().map(|()| adopted)
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
pub struct SensorsView {
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

    /// Up to 65,536 tags were taken, of which only 65,535 were read again.
    #[test]
    fn sensors_with_as_many_tags_as_a_table_can_have_are_read_again() {
        let mut dictionary = SensorDictionary::default();
        let mut keys = vec![NO_TAG; 1 << 16];
        keys[(1 << 16) - 1] = dictionary.intern_key((1 << 16) - 1, "last").unwrap();
        dictionary.intern(&keys).unwrap();
        let mut other = SensorDictionary::default();
        other.decode(&dictionary.encode(0..1).unwrap()).unwrap();
        assert_eq!(other.view().tag((1 << 16) - 1).unwrap().value(0), Some("last"));
    }

    #[test]
    fn sensors_are_cut_by_the_bytes_of_the_values_that_they_do_not_share() {
        let mut dictionary = SensorDictionary::default();
        for sensor in 0..100 {
            let name = dictionary.intern_key(0, &format!("{sensor:04}")).unwrap();
            let shared = dictionary.intern_key(1, &"x".repeat(1_000)).unwrap();
            dictionary.intern(&[name, if sensor == 0 { NO_TAG } else { shared }]).unwrap();
        }
        // Two keys and a name each; the shared text once in each part.
        assert_eq!(dictionary.first_within(0..100, 2_200), 0..100);
        assert_eq!(dictionary.first_within(0..100, 2_199), 0..99);
        assert_eq!(dictionary.first_within(99..100, 0), 99..100);
        assert_eq!(dictionary.first_within(100..100, 0), 100..100);
        let mut parts = Vec::new();
        while parts.len() < 100 && parts.last().is_none_or(|part: &Range<u32>| part.end < 100) {
            let start = parts.last().map_or(0, |part| part.end);
            parts.push(dictionary.first_within(start..100, 1_300));
        }
        assert_eq!(parts, [0..25, 25..50, 50..75, 75..100]);
        let mut other = SensorDictionary::default();
        for part in parts {
            other.decode(&dictionary.encode(part).unwrap()).unwrap();
        }
        assert_eq!(other.encode(0..100).unwrap(), dictionary.encode(0..100).unwrap());
    }
}
