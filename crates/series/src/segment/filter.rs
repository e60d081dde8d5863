//! Filters: by which rows that came late are known to replace nothing, without a look at their times.
//!
//! Whether an object has a reading of a sensor and a time tells its index, and then a page of times. Where many rows come late, each by
//! another while, that is a page for each of them. An object that itself is of such rows has filters, which say of a reading
//! that it is surely not there: split block Bloom filters (F. Putze, P. Sanders, J. Singler, *Cache-, hash- and space-efficient Bloom
//! filters*, 2009), with a bit in each of the eight words of a block. Of readings that are not there one of some 3000 has to be looked up: that is a page of
//! thousands of times, which is read and decoded, and the reason for so many bits.

use std::iter::zip;
use std::ops::Range;

use tidefall_codec::Profile;
use tidefall_ground::frames::{FrameReader, FrameWriter};
use tidefall_types::{Error, Result};

/// Rows after which a filter is closed, where the piece of a sensor ends: it takes some hundred KiB, which a core has near at hand. Tests,
/// which run with assertions, have fewer.
pub(super) const ROWS_PER_FILTER: usize = if cfg!(debug_assertions) { 1 << 11 } else { 1 << 16 };
/// Bits for each row.
const ROW_BITS: usize = 20;

/// Words of a block.
const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * size_of::<u32>();
/// Odd numbers, of which each gives another bit: those of Parquet's filters.
const SALTS: [u32; WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// The number by which a filter knows a reading: the finalizer of SplitMix64 over both.
pub(crate) fn key(sensor: u32, time_ns: i64) -> u64 {
    let mut key = u64::from(sensor).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ time_ns as u64;
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// The block of a key among so many.
fn block(key: u64, blocks: usize) -> usize {
    ((u128::from(key >> 32) * blocks as u128) >> 32) as usize
}

/// Its bit in a word of its block.
fn bit(key: u64, salt: u32) -> u32 {
    1 << ((key as u32).wrapping_mul(salt) >> 27)
}

/// The frame of a filter of some keys.
///
/// # Errors
/// `Limit` when there are too many.
pub(super) fn encode(keys: &[u64]) -> Result<Vec<u8>> {
    let blocks = (keys.len() * ROW_BITS).div_ceil(BLOCK_BYTES * 8).max(1);
    let mut words = vec![[0_u32; WORDS]; blocks];
    for key in keys {
        for (word, salt) in zip(&mut words[block(*key, blocks)], SALTS) {
            *word |= bit(*key, salt);
        }
    }
    let bytes: Vec<u8> = words.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut frame = FrameWriter::new(Profile::Fast);
    frame.put_bytes(&bytes)?;
    frame.finish()
}

/// A filter as it was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filter<'a>(&'a [[u8; BLOCK_BYTES]]);

impl<'a> Filter<'a> {
    /// The filter of a frame.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged.
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self> {
        match FrameReader::new(frame)?.take_bytes()?.as_chunks() {
            (blocks, []) if !blocks.is_empty() => Ok(Self(blocks)),
            _ => Err(Error::corrupt("a filter is not of whole blocks")),
        }
    }

    /// Whether the reading of a key may be there: surely not where this is false.
    pub(crate) fn may_have(self, key: u64) -> bool {
        let (words, _) = self.0[block(key, self.0.len())].as_chunks();
        let has_bit =
            |(word, salt): (&[u8; 4], &u32)| u32::from_le_bytes(*word) & bit(key, *salt) != 0;
        // Half of the words of a block tell, one after the other; half of them together nearly always do, without a branch each.
        let (few, others) = (0..WORDS / 2, WORDS / 2..WORDS);
        let has = |of: Range<usize>| {
            zip(&words[of.clone()], &SALTS[of]).fold(true, |has, one| has & has_bit(one))
        };
        has(few) && has(others)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn a_filter_has_all_that_is_in_it_and_little_else() {
        let mut rng = SmallRng::seed_from_u64(42);
        for rows in [0, 1, 2, 21, 22, 1_000, 100_000] {
            // Regular times, those with a little noise, and any.
            let steps = [1, 1_000_000_000, i64::MAX / 200_000];
            let step = steps[rng.random_range(0..steps.len())];
            let noise = if rng.random() { 1 } else { step.min(1 << 20) };
            let mut reading = |row: u32| {
                key(row % 1_000, i64::from(row / 1_000) * step + rng.random_range(0..noise))
            };
            let all: Vec<u64> = (0..2 * rows).map(&mut reading).collect();
            let (there, others) = all.split_at(rows as usize);
            let frame = encode(there).unwrap();
            let filter = Filter::decode(&frame).unwrap();
            assert!(there.iter().all(|key| filter.may_have(*key)), "{rows} rows, step {step}");
            let found = others.iter().filter(|key| filter.may_have(**key)).count();
            assert!(found <= 10 + rows as usize / 100, "{found} of {rows}, step {step}");
        }
    }

    #[test]
    fn a_damaged_filter_is_an_error() {
        let frame = encode(&[1, 2, 3]).unwrap();
        for byte in 0..frame.len() {
            let mut frame = frame.clone();
            frame[byte] ^= 1 << (byte % 8);
            assert!(Filter::decode(&frame).is_err(), "byte {byte}");
        }
        let mut frame = FrameWriter::new(Profile::Fast);
        frame.put_bytes(&[0; BLOCK_BYTES + 1]).unwrap();
        Filter::decode(&frame.finish().unwrap()).unwrap_err();
    }
}
