//! Columns that grow at their end while readers have them: in chunks, of which only the last is copied when it grows.

use std::ops::Range;
use std::sync::Arc;

use tidefall_types::NO_TAG;

/// Entries of a chunk: a copy of the last takes some microseconds, and a million entries are a few dozen chunks.
const CHUNK_LEN: usize = 1 << 14;

/// Texts.
#[derive(Debug, Default, Clone)]
pub(super) struct Texts {
    chunks: Vec<Arc<TextChunk>>,
    len: usize,
}

#[derive(Debug, Default, Clone)]
struct TextChunk {
    text: String,
    /// Where each text ends.
    ends: Vec<usize>,
}

impl TextChunk {
    fn get(&self, place: usize) -> Option<&str> {
        let end = *self.ends.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }
}

impl Texts {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A text, if there are so many.
    pub(super) fn get(&self, place: usize) -> Option<&str> {
        self.chunks.get(place / CHUNK_LEN)?.get(place % CHUNK_LEN)
    }

    pub(super) fn push(&mut self, text: &str) {
        let chunk = last_chunk(&mut self.chunks, self.len);
        chunk.text.push_str(text);
        chunk.ends.push(chunk.text.len());
        self.len += 1;
    }
}

/// The key that each sensor has of a tag, or [`NO_TAG`].
#[derive(Debug, Default, Clone)]
pub(super) struct Keys {
    chunks: Vec<Arc<KeyChunk>>,
    len: usize,
}

#[derive(Debug, Default, Clone)]
struct KeyChunk {
    keys: Vec<u32>,
    /// The least and the greatest key, without regard to [`NO_TAG`].
    ends: Option<(u32, u32)>,
    has_missing: bool,
}

impl KeyChunk {
    fn push(&mut self, key: u32) {
        self.keys.push(key);
        if key == NO_TAG {
            self.has_missing = true;
        } else {
            let (least, greatest) = self.ends.unwrap_or((key, key));
            self.ends = Some((least.min(key), greatest.max(key)));
        }
    }

    /// Whether it may have one of some keys, which ascend.
    fn may_have_one(&self, wanted: &[u32]) -> bool {
        let among = |(least, greatest)| {
            let next = wanted.partition_point(|key| *key < least);
            wanted.get(next).is_some_and(|key| *key <= greatest)
        };
        self.ends.is_some_and(among) || (self.has_missing && wanted.last() == Some(&NO_TAG))
    }
}

impl Keys {
    /// No key for each of `len` sensors.
    pub(super) fn missing(len: usize) -> Self {
        let mut keys = Self::default();
        (0..len).for_each(|_| keys.push(NO_TAG));
        keys
    }

    /// The key of a sensor that there is.
    pub(super) fn get(&self, sensor: u32) -> u32 {
        let sensor = sensor as usize;
        self.chunks[sensor / CHUNK_LEN].keys[sensor % CHUNK_LEN]
    }

    /// The keys of some sensors that there are; fastest where these ascend.
    pub(super) fn of(&self, sensors: &[u32]) -> Vec<u32> {
        let chunk = |sensor: u32| sensor as usize / CHUNK_LEN;
        let mut keys = Vec::with_capacity(sensors.len());
        for sensors in sensors.chunk_by(|one, other| chunk(*one) == chunk(*other)) {
            let of_chunk = &self.chunks[chunk(sensors[0])].keys;
            keys.extend(sensors.iter().map(|sensor| of_chunk[*sensor as usize % CHUNK_LEN]));
        }
        keys
    }

    /// The keys of the sensors in a range, all of which there are.
    pub(super) fn within(&self, sensors: Range<u32>) -> Vec<u32> {
        let (mut next, end) = (sensors.start as usize, sensors.end as usize);
        let mut keys = Vec::with_capacity(sensors.len());
        while next < end {
            let (chunk, start) = (next / CHUNK_LEN, next % CHUNK_LEN);
            let taken = (CHUNK_LEN - start).min(end - next);
            keys.extend_from_slice(&self.chunks[chunk].keys[start..start + taken]);
            next += taken;
        }
        keys
    }

    pub(super) fn push(&mut self, key: u32) {
        last_chunk(&mut self.chunks, self.len).push(key);
        self.len += 1;
    }

    /// The keys of all sensors.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().flat_map(|chunk| chunk.keys.iter().copied())
    }

    /// The sensors whose key `is_wanted`, in order; `wanted` are these keys, ascending.
    pub(super) fn sensors_with(
        &self,
        wanted: &[u32],
        is_wanted: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = u32> {
        let chunks = self.chunks.iter().zip((0_u32..).step_by(CHUNK_LEN));
        let chunks = chunks.filter(move |(chunk, _)| chunk.may_have_one(wanted));
        chunks
            .flat_map(|(chunk, first)| (first..).zip(&chunk.keys))
            .filter_map(move |(sensor, key): (u32, &u32)| is_wanted(*key).then_some(sensor))
    }
}

/// The chunk that takes the entry behind the first `len`. It is copied if a reader has it.
fn last_chunk<C: Clone + Default>(chunks: &mut Vec<Arc<C>>, len: usize) -> &mut C {
    if len.is_multiple_of(CHUNK_LEN) {
        chunks.push(Arc::default());
    }
    let last = chunks.len() - 1;
    Arc::make_mut(&mut chunks[last])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_some_sensors_are_those_of_each() {
        let mut keys = Keys::default();
        (0..3 * CHUNK_LEN as u32 + 7).for_each(|at| keys.push(at ^ 21));
        for sensors in [(0..keys.len as u32).collect(), vec![], vec![40_000, 3, 16_384, 16_383, 5]]
        {
            let each: Vec<u32> = sensors.iter().map(|sensor| keys.get(*sensor)).collect();
            assert_eq!(keys.of(&sensors), each);
        }
        for range in [0..0, 5..6, 0..keys.len as u32, 16_383..16_385, 20_000..40_000] {
            let each: Vec<u32> = range.clone().map(|sensor| keys.get(sensor)).collect();
            assert_eq!(keys.within(range), each);
        }
    }

    #[test]
    fn what_a_reader_has_does_not_change_and_is_shared() {
        let (mut texts, mut keys) = (Texts::default(), Keys::missing(3));
        let mut readers = Vec::new();
        for at in 3..3 * CHUNK_LEN + 5 {
            if at % 10_000 == 0 {
                readers.push((texts.clone(), keys.clone(), at));
            }
            texts.push(&format!("value {at}"));
            keys.push(if at % 7 == 0 { NO_TAG } else { at as u32 });
        }
        for (shown, shown_keys, at) in &readers {
            assert_eq!((shown.len(), shown_keys.len), (at - 3, *at));
            assert_eq!((shown.get(at - 3), texts.get(at - 3).is_some()), (None, true));
            assert_eq!(shown.get(at - 4), Some(&*format!("value {}", at - 1)));
            // All but the last chunk are those that grew on.
            let whole = shown.chunks.len() - 1;
            assert!((0..whole).all(|at| Arc::ptr_eq(&shown.chunks[at], &texts.chunks[at])));
            assert!((0..whole).all(|at| Arc::ptr_eq(&shown_keys.chunks[at], &keys.chunks[at])));
        }
        let missing: Vec<u32> = keys.sensors_with(&[NO_TAG], |key| key == NO_TAG).collect();
        let expected: Vec<u32> =
            (0..keys.len as u32).filter(|at| *at < 3 || at.is_multiple_of(7)).collect();
        assert_eq!(missing, expected);
        let some = [8, 20_000, 40_000, 900_000];
        let found = keys.sensors_with(&some, |key| some.contains(&key));
        assert_eq!(found.collect::<Vec<_>>(), [8, 20_000, 40_000]);
    }
}
