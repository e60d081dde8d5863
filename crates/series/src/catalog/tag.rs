//! A tag: its distinct values, and the value that each sensor has.

use std::hash::BuildHasher;
use std::ops::Range;

use arrow_array::{Array, StringArray};
use hashbrown::{DefaultHashBuilder, HashTable};
use tidefall_sync::{Arc, Mutex, PoisonError, RwLock};
use tidefall_types::{Error, NO_TAG, Result};

use super::columns::{Keys, Texts};

/// A tag of all sensors. A clone shows what there was when it was made, and costs next to nothing.
#[derive(Debug, Default, Clone)]
pub(crate) struct TagValues {
    /// The distinct values, by key.
    texts: Texts,
    keys: Keys,
    shared: Arc<Shared>,
}

/// What the tag and its clones find values by. It may know of values that a clone does not have.
#[derive(Debug, Default)]
struct Shared {
    hasher: DefaultHashBuilder,
    by_value: RwLock<HashTable<u32>>,
    order: Mutex<Arc<TagOrder>>,
    dictionary: Mutex<Option<StringArray>>,
}

/// The order of the values of a tag.
#[derive(Debug, Default)]
pub struct TagOrder {
    /// The keys in the order of their values.
    keys: Vec<u32>,
    /// The place of each key among them.
    ranks: Vec<u32>,
}

impl TagOrder {
    /// The place of a key in the order of the values; behind all others for [`NO_TAG`].
    pub fn rank(&self, key: u32) -> u32 {
        self.ranks.get(key as usize).copied().unwrap_or(NO_TAG)
    }

    fn of(keys: Vec<u32>) -> Self {
        let mut ranks = vec![0; keys.len()];
        for (key, rank) in keys.iter().zip(0..) {
            ranks[*key as usize] = rank;
        }
        Self { keys, ranks }
    }
}

impl TagValues {
    /// A tag that none of so many sensors has a value for.
    pub(super) fn missing(sensors: u32) -> Self {
        Self { keys: Keys::missing(sensors as usize), ..Self::default() }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The value with a key, if there is one.
    pub(crate) fn value(&self, key: u32) -> Option<&str> {
        self.texts.get(key as usize)
    }

    /// All values, by key.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|key| self.texts.get(key))
    }

    /// The key of a value, if some sensor has it.
    pub(crate) fn key(&self, value: &str) -> Option<u32> {
        let hash = self.shared.hasher.hash_one(value);
        let by_value = self.shared.by_value.read().unwrap_or_else(PoisonError::into_inner);
        by_value.find(hash, |key| self.value(*key) == Some(value)).copied()
    }

    /// The key of a value, which is added if it is new.
    pub(super) fn intern(&mut self, value: &str) -> Result<u32> {
        if let Some(key) = self.key(value) {
            return Ok(key);
        }
        let key = u32::try_from(self.len())
            .ok()
            .filter(|key| *key != NO_TAG)
            .ok_or_else(|| Error::limit("a tag has more than 4,294,967,294 values"))?;
        self.texts.push(value);
        let (hasher, texts) = (&self.shared.hasher, &self.texts);
        let hash_of = |key: &u32| hasher.hash_one(texts.get(*key as usize).unwrap_or_default());
        let mut by_value = self.shared.by_value.write().unwrap_or_else(PoisonError::into_inner);
        by_value.insert_unique(hasher.hash_one(value), key, hash_of);
        Ok(key)
    }

    /// The key of a sensor that there is, or [`NO_TAG`].
    pub(crate) fn key_of(&self, sensor: u32) -> u32 {
        self.keys.get(sensor)
    }

    /// The keys of some sensors that there are.
    pub(crate) fn keys_of(&self, sensors: &[u32]) -> Vec<u32> {
        self.keys.of(sensors)
    }

    /// The keys of the sensors in a range, all of which there are.
    pub fn keys_within(&self, sensors: Range<u32>) -> Vec<u32> {
        self.keys.within(sensors)
    }

    /// The keys of all sensors.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> {
        self.keys.iter()
    }

    /// Gives the next sensor its key.
    pub(super) fn push(&mut self, key: u32) {
        self.keys.push(key);
    }

    /// The sensors with one of some keys, in order; those without a value for [`NO_TAG`].
    pub(crate) fn sensors_with(&self, mut keys: Vec<u32>) -> Vec<u32> {
        keys.sort_unstable();
        if let [key] = keys[..] {
            return self.keys.sensors_with(&keys, |other| other == key).collect();
        }
        // Of those without a value at the end.
        let slot = |key: u32| (key as usize).min(self.len());
        let mut wanted = vec![false; self.len() + 1];
        keys.iter().for_each(|key| wanted[slot(*key)] = true);
        self.keys.sensors_with(&keys, |key| wanted[slot(key)]).collect()
    }

    /// The order of the values. It is kept, and new values are laid into it.
    pub fn order(&self) -> Arc<TagOrder> {
        let mut kept = self.shared.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, len) = (kept.keys.len(), self.len());
        if known == len {
            return Arc::clone(&kept);
        }
        if known > len {
            let older = kept.keys.iter().copied().filter(|key| (*key as usize) < len);
            return Arc::new(TagOrder::of(older.collect()));
        }
        let mut new: Vec<u32> = (known as u32..len as u32).collect();
        new.sort_unstable_by_key(|key| self.value(*key));
        let (mut keys, mut rest) = (Vec::with_capacity(len), &kept.keys[..]);
        for key in new {
            let value = self.value(key);
            let place = rest.partition_point(|other| self.value(*other) < value);
            keys.extend_from_slice(&rest[..place]);
            keys.push(key);
            rest = &rest[place..];
        }
        keys.extend_from_slice(rest);
        let order = Arc::new(TagOrder::of(keys));
        *kept = Arc::clone(&order);
        order
    }

    /// All values as a dictionary, which is kept: for tags with few values.
    pub fn dictionary(&self) -> StringArray {
        let mut kept = self.shared.dictionary.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dictionary) = kept.as_ref().filter(|kept| kept.len() == self.len()) {
            return dictionary.clone();
        }
        let dictionary = StringArray::from_iter_values(self.values());
        *kept = Some(dictionary.clone());
        dictionary
    }
}

/// A tag of the sensors of a snapshot. A tag that no sensor has a value for yet has none.
#[derive(Debug, Clone, Copy)]
pub struct SensorTag<'a>(Option<&'a TagValues>);

impl<'a> SensorTag<'a> {
    pub(crate) fn new(values: Option<&'a TagValues>) -> Self {
        Self(values)
    }

    /// The number of distinct values, which are counted from 0 by *keys*.
    pub fn value_count(&self) -> usize {
        self.0.map_or(0, TagValues::len)
    }

    /// The value with a key, if there is one.
    pub fn value(&self, key: u32) -> Option<&'a str> {
        self.0?.value(key)
    }

    /// The key of the value that a sensor has, or [`NO_TAG`]. The sensor must be one of the snapshot.
    pub fn key(&self, sensor: u32) -> u32 {
        self.0.map_or(NO_TAG, |values| values.key_of(sensor))
    }

    /// The keys of the values that some sensors have. The sensors must be among those of the snapshot; those that ascend
    /// are found fastest.
    pub fn keys(&self, sensors: &[u32]) -> Vec<u32> {
        self.0.map_or_else(|| vec![NO_TAG; sensors.len()], |values| values.keys_of(sensors))
    }

    /// As [`SensorTag::keys`], of the sensors in a range.
    pub fn keys_within(&self, sensors: Range<u32>) -> Vec<u32> {
        match self.0 {
            None => vec![NO_TAG; sensors.len()],
            Some(values) => values.keys_within(sensors),
        }
    }

    /// The value that a sensor has. The sensor must be one of the snapshot.
    pub fn of(&self, sensor: u32) -> Option<&'a str> {
        self.value(self.key(sensor))
    }

    /// The order of the values. The first call after there are new ones looks at them.
    pub fn order(&self) -> Arc<TagOrder> {
        self.0.map_or_else(Arc::default, TagValues::order)
    }

    /// All values, by key; the array is shared by all calls until there are new ones. For tags with few values: each
    /// new value makes all be copied.
    pub fn dictionary(&self) -> StringArray {
        self.0.map_or_else(|| StringArray::from(Vec::<&str>::new()), TagValues::dictionary)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn orders_and_keys_are_those_of_the_time_of_the_clone() {
        let mut rng = SmallRng::seed_from_u64(8);
        let (mut tag, mut clones) = (TagValues::default(), Vec::new());
        for round in 0..60 {
            for _ in 0..rng.random_range(0..50) {
                let key = tag.intern(&format!("v{}", rng.random_range(0..900))).unwrap();
                tag.push(if rng.random_bool(0.1) { NO_TAG } else { key });
            }
            clones.push(tag.clone());
            let clone = &clones[rng.random_range(0..=round)];
            let mut keys: Vec<u32> = (0..clone.len() as u32).collect();
            keys.sort_by_key(|key| clone.value(*key));
            assert_eq!(clone.order().keys, keys, "round {round}");
            let ranks: Vec<u32> = keys.iter().map(|key| clone.order().rank(*key)).collect();
            assert!(ranks.iter().copied().eq(0..keys.len() as u32), "round {round}");
            let values: Vec<String> = clone.values().map(str::to_owned).collect();
            for number in 0..900 {
                let value = format!("v{number}");
                let expected = values.iter().position(|other| *other == value);
                assert_eq!(clone.key(&value), expected.map(|key| key as u32), "round {round}");
            }
            assert_eq!(clone.dictionary().len(), values.len());
            let mut wanted: Vec<u32> = [0, 3, NO_TAG, 7, 5][..round % 5 + 1].to_vec();
            wanted.retain(|key| *key == NO_TAG || (*key as usize) < values.len());
            let expected = clone.keys().zip(0..).filter(|(key, _)| wanted.contains(key));
            let expected: Vec<u32> = expected.map(|(_, sensor)| sensor).collect();
            assert_eq!(clone.sensors_with(wanted), expected, "round {round}");
        }
    }
}
