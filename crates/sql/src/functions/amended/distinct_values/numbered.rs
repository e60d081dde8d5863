//! Values with numbers, and bits for them.

use datafusion::common::HashMap;

use crate::functions::amended::distinct::PLACE_BYTES;

/// Numbers after that of the value before among which a value is looked for first while values come in the order of
/// their numbers: sensors with the same times have them one after the other, and groups leave some out. Otherwise it is
/// looked for at the next number alone.
const NEAR: usize = 4;

/// Bits of a block for which it pays to bring blocks in order before values are taken out of them.
const BITS_FULL: usize = 4;

/// Values that may be known though no group has them any more, beside as many as groups have: numbering anew what is
/// left should not happen often.
const FORGOTTEN_MAX: usize = 1024;

/// Values that have numbers, in which they came.
#[derive(Debug, Default)]
pub(super) struct Numbered {
    numbers: HashMap<u64, u32>,
    values: Vec<u64>,
    /// The number of the value that came last.
    last: usize,
    /// Whether it came soon after the one before it.
    is_in_order: bool,
    /// Which of 64 numbers a group has. The key has the group in its upper half, the block in its lower one.
    blocks: HashMap<u64, u64>,
    /// How many values each group has.
    counts: Vec<usize>,
    pairs: usize,
}

fn key_of(group: usize, number: usize) -> u64 {
    (group as u64) << 32 | (number >> 6) as u64
}

fn group_of(key: u64) -> usize {
    (key >> 32) as usize
}

/// The numbers in a block.
fn numbers_in(key: u64, mut bits: u64) -> impl Iterator<Item = usize> {
    let first = (key as u32 as usize) << 6;
    std::iter::from_fn(move || {
        let next = (bits != 0).then(|| first + bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        next
    })
}

impl Numbered {
    pub(super) fn begin(&mut self, group_count: usize) {
        self.counts.resize(group_count, 0);
    }

    pub(super) fn pairs(&self) -> usize {
        self.pairs
    }

    #[inline]
    pub(super) fn add(&mut self, group: usize, value: u64) {
        let number = self.number(value);
        let block = self.blocks.entry(key_of(group, number)).or_insert(0);
        let bit = 1 << (number & 63);
        if *block & bit == 0 {
            *block |= bit;
            self.counts[group] += 1;
            self.pairs += 1;
        }
    }

    #[inline]
    fn number(&mut self, value: u64) -> usize {
        let steps = if self.is_in_order { NEAR } else { 1 };
        let end = (self.last + 1 + steps).min(self.values.len());
        let near = self.values.get(self.last..end).unwrap_or(&[]);
        let steps = near.iter().position(|near| *near == value);
        self.is_in_order = steps.is_some();
        self.last = match steps {
            Some(steps) => self.last + steps,
            None => self.number_of_any(value),
        };
        self.last
    }

    fn number_of_any(&mut self, value: u64) -> usize {
        let next = self.values.len();
        let number = *self.numbers.entry(value).or_insert(next as u32) as usize;
        if number == next {
            self.values.push(value);
        }
        number
    }

    /// How many values each of the first groups has.
    pub(super) fn lengths(&self, groups: usize) -> Vec<usize> {
        self.counts[..groups].to_vec()
    }

    /// How many values each of the first groups has, and their values, one group behind the other.
    pub(super) fn lists(&self, groups: usize) -> (Vec<usize>, Vec<u64>) {
        let lengths = self.lengths(groups);
        let mut sum = 0;
        let starts = lengths.iter().map(|length| {
            sum += length;
            sum - length
        });
        let mut places: Vec<usize> = starts.collect();
        let mut values = vec![0; sum];
        let blocks = self.blocks.iter().map(|(key, bits)| (*key, *bits));
        let mut blocks: Vec<(u64, u64)> =
            blocks.filter(|(key, _)| group_of(*key) < groups).collect();
        if blocks.len() * BITS_FULL <= sum {
            blocks.sort_unstable();
        }
        for (key, bits) in blocks {
            let place = &mut places[group_of(key)];
            for number in numbers_in(key, bits) {
                values[*place] = self.values[number];
                *place += 1;
            }
        }
        (lengths, values)
    }

    /// Forgets the first groups.
    pub(super) fn forget(&mut self, groups: usize) {
        self.pairs -= self.counts.drain(..groups).sum::<usize>();
        if self.counts.is_empty() {
            *self = Self::default();
            return;
        }
        let gone = (groups as u64) << 32;
        let blocks = std::mem::take(&mut self.blocks).into_iter();
        self.blocks =
            blocks.filter_map(|(key, bits)| Some((key.checked_sub(gone)?, bits))).collect();
        if self.values.len() > self.pairs + FORGOTTEN_MAX {
            self.number_anew();
        }
    }

    /// Forgets the values that no group has.
    fn number_anew(&mut self) {
        let mut kept = Self::default();
        kept.begin(self.counts.len());
        for (key, bits) in &self.blocks {
            for number in numbers_in(*key, *bits) {
                kept.add(group_of(*key), self.values[number]);
            }
        }
        *self = kept;
    }

    pub(super) fn bytes(&self) -> usize {
        self.numbers.capacity() * (size_of::<(u64, u32)>() + PLACE_BYTES)
            + self.values.capacity() * size_of::<u64>()
            + self.blocks.capacity() * (size_of::<(u64, u64)>() + PLACE_BYTES)
            + self.counts.capacity() * size_of::<usize>()
    }
}
