//! What heavier codecs could make of a stream, estimated from a sample of it, because trying them
//! costs more than all the rest of encoding a page.

use std::sync::LazyLock;

use crate::bits::width_of;
use crate::planes::{PLANE_BITS, plane_count};
use crate::profile::MAX_PAGE_ROWS;

/// Values in the sample, from the middle.
const SAMPLE: usize = 1024;
/// One of so many values of the sample is enough to tell how long they are.
const LENGTHS_STEP: usize = 4;
/// Bits whose entropy is this share of them or more, in per cent, count as noise.
const NOISE_PERCENT: f64 = 98.0;
/// Symbols of a plane.
const SYMBOLS: usize = 1 << PLANE_BITS;
/// Values among which repeats are counted.
const REPEATS_SAMPLE: usize = 512;
/// If fewer of them are distinct, in per cent, values repeat.
const REPEATS_MAX_PERCENT: usize = 90;
/// Slots of the table of distinct values, as a multiple of the values.
const SLOTS_PER_VALUE: usize = 2;

/// How best to cut values into packed low bits and planes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cut {
    /// The bits that are packed.
    pub(crate) low_bits: usize,
    /// The bits that a value is then expected to take.
    pub(crate) bits: f64,
    /// The entropy of the lowest plane, in bits a value.
    pub(crate) lowest_plane_bits: f64,
    /// What a value would take as its length, by its entropy, and so many bits less the first.
    pub(crate) length_bits: f64,
}

/// The sample of `values` that estimates are made from.
pub(crate) fn sample<T>(values: &[T]) -> &[T] {
    let len = values.len().min(SAMPLE);
    let start = (values.len() - len) / 2;
    &values[start..start + len]
}

/// Finds the best cut for `values`, all of them at most `max`, by the entropies of the planes in
/// `sample`, which stands for them.
pub(crate) fn cut(sample: &[u64], max: u64) -> Cut {
    let width = width_of(max);
    let mut counts = [0_u16; 65];
    for &value in sample.iter().step_by(LENGTHS_STEP) {
        counts[width_of(value)] += 1;
    }
    let count = sample.len().div_ceil(LENGTHS_STEP);
    let length_at = |percent: usize| {
        let mut left = count * percent / 100;
        let reached = |&count: &u16| {
            let is_here = left <= usize::from(count);
            left = left.saturating_sub(usize::from(count));
            is_here
        };
        counts.iter().position(reached).unwrap_or(width)
    };
    let bits = counts
        .iter()
        .enumerate()
        .map(|(length, &count)| usize::from(count) * length.saturating_sub(1));
    let length_bits = bits.sum::<usize>() as f64 / count.max(1) as f64 + entropy(&counts);
    // The lowest plane should hold what most values differ in. Bits above the typical length do not
    // matter, and the low bits neither, unless there are few of them or they are not noise.
    let typical = length_at(50);
    let low_bits_count = typical <= 2 * PLANE_BITS - 2
        || plane_entropy(sample, 0) * 100.0 < PLANE_BITS as f64 * NOISE_PERCENT;
    let lowest_top = if low_bits_count { PLANE_BITS } else { width };
    let mut candidates = [lowest_top, typical + 2, length_at(90), width]
        .map(|top| top.min(width).saturating_sub(PLANE_BITS).min(63));
    candidates.sort_unstable();
    let mut best: Option<Cut> = None;
    for (index, &low_bits) in candidates.iter().enumerate() {
        if index > 0 && candidates[index - 1] == low_bits {
            continue;
        }
        let mut found =
            Cut { low_bits, bits: low_bits as f64, lowest_plane_bits: 0.0, length_bits };
        for plane in 0..plane_count(width, low_bits) {
            let bits = plane_entropy(sample, low_bits + plane * PLANE_BITS);
            found.bits += bits;
            if plane == 0 {
                found.lowest_plane_bits = bits;
            }
        }
        if best.is_none_or(|best| found.bits < best.bits) {
            best = Some(found);
        }
    }
    best.unwrap_or_default()
}

/// The entropy, in bits a value, of the eight bits from `shift` on.
fn plane_entropy(sample: &[u64], shift: usize) -> f64 {
    // Two counters of each symbol: equal neighbours need not wait for each other.
    let mut counts = [[0_u16; SYMBOLS]; 2];
    let symbol = |value: u64| (value >> shift) as usize % SYMBOLS;
    let (pairs, last) = sample.as_chunks::<2>();
    for &[even, odd] in pairs {
        counts[0][symbol(even)] += 1;
        counts[1][symbol(odd)] += 1;
    }
    last.iter().for_each(|&value| counts[0][symbol(value)] += 1);
    let [mut counts, odd] = counts;
    counts.iter_mut().zip(odd).for_each(|(count, odd)| *count += odd);
    entropy(&counts).min(PLANE_BITS as f64)
}

/// The entropy, in bits, of symbols that were counted. What a small sample lacks is made up for
/// (Miller and Madow, 1955), else noise would look compressible.
fn entropy(counts: &[u16]) -> f64 {
    /// `n * log2(n)` for all counts of a sample.
    static N_LOG_N: LazyLock<[f32; SAMPLE + 1]> = LazyLock::new(|| {
        std::array::from_fn(|n| if n > 0 { n as f32 * (n as f32).log2() } else { 0.0 })
    });
    let n_log_n = &*N_LOG_N;
    let sum: f32 = counts.iter().map(|&count| n_log_n[usize::from(count).min(SAMPLE)]).sum();
    let seen = counts.iter().filter(|&&count| count > 0).count();
    let len = counts.iter().map(|&count| usize::from(count)).sum::<usize>().max(1) as f64;
    let missing = seen.saturating_sub(1) as f64 / (2.0 * len) * std::f64::consts::LOG2_E;
    len.log2() - f64::from(sum) / len + missing
}

/// Whether many of `sample` are values that it has already.
pub(crate) fn repeats(sample: impl Iterator<Item = u64>) -> bool {
    let mut distinct = Distinct::new(REPEATS_SAMPLE);
    let mut len = 0;
    for value in sample.take(REPEATS_SAMPLE) {
        distinct.index_of(value);
        len += 1;
    }
    distinct.values().len() * 100 < len * REPEATS_MAX_PERCENT
}

/// A set of at most [`MAX_PAGE_ROWS`] numbers.
#[derive(Debug)]
pub(crate) struct Distinct {
    /// Index + 1 of a value in `values`; 0 marks an empty slot.
    slots: Vec<u16>,
    values: Vec<u64>,
}

impl Distinct {
    /// A set with room for `capacity` numbers.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.min(MAX_PAGE_ROWS);
        let slots = (capacity * SLOTS_PER_VALUE).next_power_of_two().max(2);
        Self { slots: vec![0; slots], values: Vec::new() }
    }

    /// The index of `value` among the numbers in order of their first appearance. A new one takes the
    /// next index.
    pub(crate) fn index_of(&mut self, value: u64) -> usize {
        // Fibonacci hashing (Knuth, volume 3): the high bits of a product with 2^64 / golden ratio. Folding
        // first lets the high and the low bits of doubles count alike.
        let hash = (value ^ value >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut slot = (hash >> (64 - self.slots.len().trailing_zeros())) as usize;
        loop {
            let index = usize::from(self.slots[slot]);
            if index == 0 {
                assert!(self.values.len() < MAX_PAGE_ROWS, "more numbers than a page has");
                self.values.push(value);
                self.slots[slot] = self.values.len() as u16;
                return self.values.len() - 1;
            }
            if self.values[index - 1] == value {
                return index - 1;
            }
            slot = (slot + 1) % self.slots.len();
        }
    }

    /// The numbers in order of their first appearance.
    pub(crate) fn values(&self) -> &[u64] {
        &self.values
    }
}
