//! Decimal numbers: floats that came from decimal text become integers.
//!
//! The idea is ALP's (Afroozeh, Kuffo and Boncz, "ALP: Adaptive Lossless floating-Point
//! Compression", SIGMOD 2024): find the number of decimals by sampling, store `digits = value *
//! 10^decimals` as packed integers, and store the few values that do not come back bit by bit (NaN,
//! infinities, -0.0, full-precision numbers) beside them. What differs is how `digits / 10^decimals` is
//! computed. ALP multiplies twice, and one product in eight is off by one bit for many pairs of factors. Here
//! the inverse power of ten is split in two, `high` with so few bits that `digits * high` is
//! exact, and `low` for the rest; `digits * high + digits * low` then rounds once, and decimals
//! come back exactly without a division.
//!
//! Numbers that went through arithmetic after they were decimals, as 10.357019999999999 for 10.35702, are
//! next to a decimal, and what is stored for them is how many doubles they are away from it.
//!
//! ```text
//! body: decimals u8, scale u8: bits 0..5 low_bits, bit 6 some are near, bit 7 some are far,
//!       stream of digits (see ints.rs),
//!       if bit 6: near varint, stream of `near` positions, ascending,
//!                 stream of `near` steps from the decimal to the value, as integers of to_int()
//!       if bit 7: far varint, stream of `far` positions, ascending, `far` values
//! ```

use tidefall_types::Result;

use crate::bytes::{Reader, corrupt, put_varint};
use crate::ints;
use crate::stream::Effort;
use crate::value::Number;

const POWERS: [f64; 18] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17,
];
const INVERSES: [f64; 18] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14,
    1e-15, 1e-16, 1e-17,
];
/// What is missing from [`INVERSES`] to the true inverse powers of ten.
const INVERSE_ERRORS: [f64; 18] = [
    0.0,
    -5.551115123125783e-18,
    -2.0816681711721684e-19,
    -2.0816681711721686e-20,
    -4.79217360238593e-21,
    -8.180305391403131e-22,
    4.525188817411374e-23,
    4.525188817411374e-24,
    -2.092256083012847e-25,
    -6.228159145777985e-26,
    -3.643219731549774e-27,
    6.050303071806019e-28,
    2.0113352370744385e-29,
    -3.037374556340037e-30,
    1.1806906454401013e-32,
    -7.770539987666108e-32,
    2.0902213275965398e-33,
    -7.154242405462192e-34,
];

/// Adding this to a double below 2^51 leaves its nearest integer in the low bits (1.5 * 2^52).
const ROUNDER: f64 = 6_755_399_441_055_744.0;
const ROUNDER_BITS: i64 = ROUNDER.to_bits() as i64;

/// Values looked at to find the number of decimals.
const SAMPLE: usize = 64;
/// If none of this many values of the sample is a decimal, the rest is not looked at: full-precision
/// noise is common and the search is the dearest on it.
const PROBE: usize = 8;
/// The most steps between a value and the decimal that it is near to: arithmetic loses a few.
const NEAR_STEPS_MAX: u64 = 8;
/// What position and steps of such a value take, about.
const NEAR_BITS: usize = 10;
/// Bits of `low` at least. Digits up to 2^21 leave `high` with 32 bits; more would gain nothing.
const LOW_BITS_MIN: u8 = 21;
const LOW_BITS_MAX: u8 = 51;
/// What stands before the digits, about, and between frames of them.
const HEAD_BYTES_MAX: usize = 32;
/// Stand beside the low bits.
const NEAR: u8 = 1 << 6;
const FAR: u8 = 1 << 7;

/// `1 / 10^decimals` in two parts.
#[derive(Debug, Clone, Copy)]
struct Scale {
    high: f64,
    low: f64,
}

impl Scale {
    /// `low_bits` is the number of bits that digits may have with `digits * high` still exact.
    fn new(decimals: usize, low_bits: u8) -> Self {
        let inverse = INVERSES[decimals];
        let high = f64::from_bits(inverse.to_bits() >> low_bits << low_bits);
        Self { high, low: (inverse - high) + INVERSE_ERRORS[decimals] }
    }

    /// The value with these digits, which are an integer below 2^51.
    #[inline(always)]
    fn value<T: Number>(self, digits: f64) -> T {
        T::from_f64(digits * self.high + digits * self.low)
    }
}

#[inline(always)]
fn integer_of(rounded: f64) -> i64 {
    (rounded.to_bits() as i64).wrapping_sub(ROUNDER_BITS)
}

#[inline(always)]
fn double_of(integer: i64) -> f64 {
    f64::from_bits(integer.wrapping_add(ROUNDER_BITS) as u64) - ROUNDER
}

/// Encodes `values`, or returns nothing when they are not decimals.
pub(crate) fn encode<T: Number>(values: &[T], effort: Effort) -> Option<Vec<u8>> {
    let (decimals, digits_max) = find_decimals(values)?;
    // One bit more than the sample needs, since the other values may be larger.
    let bits = (digits_max.max(1.0).log2() as u8) + 2;
    let low_bits = bits.clamp(LOW_BITS_MIN, LOW_BITS_MAX);
    let scale = Scale::new(decimals, low_bits);

    let mut digits = vec![0_i64; values.len()];
    let mut misses = 0;
    for (to, &value) in digits.iter_mut().zip(values) {
        let rounded = value.to_f64() * POWERS[decimals] + ROUNDER;
        *to = integer_of(rounded);
        misses += usize::from(!comes_back(value, rounded, scale));
    }
    let exceptions = if misses == 0 {
        Exceptions::default()
    } else {
        Exceptions::patch(values, &mut digits, decimals, scale)
    };
    if exceptions.far.len() * 2 > values.len() {
        return None;
    }

    // Grown once at most, as digits take less than half of the values as a rule.
    let mut body = Vec::with_capacity(values.len() * T::WIDTH / 2 + HEAD_BYTES_MAX);
    body.extend([decimals as u8, low_bits | exceptions.flags()]);
    ints::encode(&digits, effort, &mut body);
    exceptions.put(values, effort, &mut body);
    Some(body)
}

/// The bits that the digits of `values` take as far as a sample tells; nothing when they are not
/// decimals.
pub(crate) fn digits_bits<T: Number>(values: &[T]) -> Option<usize> {
    find_decimals(values).map(|(_, digits_max)| digits_max.max(1.0).log2() as usize + 1)
}

#[inline(always)]
fn comes_back<T: Number>(value: T, rounded: f64, scale: Scale) -> bool {
    let digits = rounded - ROUNDER;
    scale.value::<T>(digits).same(value) & (digits.abs() < T::DIGITS_LIMIT)
}

/// The steps from `decimal` to `value`, if they are few.
fn steps_to<T: Number>(value: T, decimal: T) -> Option<i64> {
    let steps = value.to_int().wrapping_sub(decimal.to_int());
    (steps.unsigned_abs() <= NEAR_STEPS_MAX).then_some(steps)
}

/// The values that do not come back from their digits.
#[derive(Debug, Default)]
struct Exceptions {
    /// Positions of those that are next to their decimal.
    near: Vec<i64>,
    /// How far each of them is away from it.
    steps: Vec<i64>,
    /// Positions of the others.
    far: Vec<i64>,
}

impl Exceptions {
    /// Lists them, and gives those that are far the digits of a neighbour, so that they do not widen
    /// their frame.
    fn patch<T: Number>(values: &[T], digits: &mut [i64], decimals: usize, scale: Scale) -> Self {
        let mut found = Self::default();
        let mut previous = None;
        for (index, &value) in values.iter().enumerate() {
            let rounded = value.to_f64() * POWERS[decimals] + ROUNDER;
            let decimal = rounded - ROUNDER;
            let fits = decimal.abs() < T::DIGITS_LIMIT;
            match steps_to(value, scale.value::<T>(decimal)).filter(|_| fits) {
                None => found.far.push(index as i64),
                Some(steps) => {
                    if steps != 0 {
                        found.near.push(index as i64);
                        found.steps.push(steps);
                    }
                    // Those before the first that is kept take its digits.
                    let digits_here = digits[index];
                    if previous.replace(digits_here).is_none() {
                        digits[..index].fill(digits_here);
                    }
                    continue;
                }
            }
            digits[index] = previous.unwrap_or(0);
        }
        found
    }

    fn flags(&self) -> u8 {
        let near = if self.near.is_empty() { 0 } else { NEAR };
        near | if self.far.is_empty() { 0 } else { FAR }
    }

    fn put<T: Number>(&self, values: &[T], effort: Effort, out: &mut Vec<u8>) {
        if !self.near.is_empty() {
            put_varint(out, self.near.len() as u64);
            ints::encode(&self.near, effort, out);
            ints::encode(&self.steps, effort, out);
        }
        if !self.far.is_empty() {
            put_varint(out, self.far.len() as u64);
            ints::encode(&self.far, effort, out);
        }
        for &position in &self.far {
            values[position as usize].put(out);
        }
    }
}

/// The number of decimals that makes a sample of the values smallest, and the largest digits
/// then seen in the sample.
fn find_decimals<T: Number>(values: &[T]) -> Option<(usize, f64)> {
    let step = values.len().div_ceil(SAMPLE).max(1);
    // How many values need exactly that many decimals, and the largest of them.
    let mut counts = [0_usize; POWERS.len()];
    let mut near_counts = [0_usize; POWERS.len()];
    let mut largest = [0_f64; POWERS.len()];
    let (mut total, mut hits, mut latest) = (0, 0, 0);
    for &value in values.iter().step_by(step) {
        if total == PROBE && hits == 0 {
            return None;
        }
        total += 1;
        if let Some((decimals, steps)) = decimals_of(value, latest) {
            hits += 1;
            latest = decimals.max(latest);
            counts[decimals] += 1;
            near_counts[decimals] += usize::from(steps != 0);
            largest[decimals] = largest[decimals].max(value.to_f64().abs());
        }
    }

    let exception_bits = (T::WIDTH + 2) * 8;
    let mut best: Option<(usize, usize, f64)> = None;
    let (mut covered, mut near, mut magnitude) = (0, 0, 0_f64);
    for decimals in 0..=T::MAX_DECIMALS {
        if counts[decimals] == 0 {
            continue;
        }
        covered += counts[decimals];
        near += near_counts[decimals];
        magnitude = magnitude.max(largest[decimals]);
        let digits_max = magnitude * POWERS[decimals];
        let cost = (total - covered) * exception_bits
            + near * NEAR_BITS
            + covered * (digits_max.max(1.0).log2() as usize + 1);
        if digits_max < T::DIGITS_LIMIT && best.is_none_or(|(least, ..)| cost < least) {
            best = Some((cost, decimals, digits_max));
        }
    }
    best.map(|(_, decimals, digits_max)| (decimals, digits_max))
}

/// The fewest decimals that make `value`, and the steps from there to it: 0 where it is exact. It is found soon if that are no
/// more than `likely`.
fn decimals_of<T: Number>(value: T, likely: usize) -> Option<(usize, i64)> {
    let double = value.to_f64();
    let digits = (double * POWERS[likely] + ROUNDER) - ROUNDER;
    // Below, numbers with so many decimals are many steps apart: one of them is next to no other.
    let is_sure = digits.abs() < T::NEAR_DIGITS_LIMIT;
    if is_sure && T::from_f64(digits / POWERS[likely]).same(value) {
        let (mut decimals, mut digits) = (likely, digits);
        while decimals > 0 && (digits / 10.0).trunc() * 10.0 == digits {
            (decimals, digits) = (decimals - 1, digits / 10.0);
        }
        return Some((decimals, 0));
    }
    (0..=T::MAX_DECIMALS).find_map(|decimals| {
        let digits = (double * POWERS[decimals] + ROUNDER) - ROUNDER;
        let steps = steps_to(value, T::from_f64(digits / POWERS[decimals]))?;
        let limit = if steps == 0 { T::DIGITS_LIMIT } else { T::NEAR_DIGITS_LIMIT };
        (digits.abs() < limit).then_some((decimals, steps))
    })
}

/// Decodes some of `len` values: those from `first` on for which `out` has places.
///
/// # Errors
/// `Corrupt` when the body does not hold that many.
pub(crate) fn decode<T: Number>(
    body: &[u8],
    len: usize,
    first: usize,
    out: &mut [T],
) -> Result<()> {
    let mut reader = Reader::new(body);
    let [decimals, flags] = reader.array()?;
    let low_bits = flags & !(NEAR | FAR);
    if usize::from(decimals) >= POWERS.len()
        || !(LOW_BITS_MIN..=LOW_BITS_MAX).contains(&low_bits)
        || !T::IS_FLOAT
    {
        return Err(corrupt(format_args!("a scale of {decimals} decimals, {low_bits} bits")));
    }
    let scale = Scale::new(usize::from(decimals), low_bits);
    let value_of = move |digits| scale.value(double_of(digits));
    match out.len() == len {
        true => ints::decode(&mut reader, out, value_of)?,
        false => ints::decode_some(&mut reader, len, first, out, value_of)?,
    }
    if flags & NEAR != 0 {
        let near = reader.count("values near a decimal", len)?;
        let positions = decode_integers(&mut reader, near)?;
        let steps = decode_integers(&mut reader, near)?;
        for (position, steps) in positions.into_iter().zip(steps) {
            if let Some(place) = place_of(out, position, len, first)? {
                *place = T::from_int(place.to_int().wrapping_add(steps));
            }
        }
    }
    if flags & FAR != 0 {
        let far = reader.count("values far from decimals", len)?;
        let positions = decode_integers(&mut reader, far)?;
        let values = reader.take(far * T::WIDTH)?;
        for (position, value) in positions.into_iter().zip(values.chunks(T::WIDTH)) {
            if let Some(place) = place_of(out, position, len, first)? {
                *place = T::get(value);
            }
        }
    }
    reader.expect_end()
}

fn decode_integers(reader: &mut Reader<'_>, count: usize) -> Result<Vec<i64>> {
    let mut integers = vec![0; count];
    ints::decode(reader, &mut integers, |integer| integer)?;
    Ok(integers)
}

/// The place of an exception, if it is among those that are decoded.
fn place_of<T>(out: &mut [T], position: i64, len: usize, first: usize) -> Result<Option<&mut T>> {
    match usize::try_from(position) {
        Ok(position) if position < len => {
            Ok(position.checked_sub(first).and_then(|place| out.get_mut(place)))
        }
        _ => Err(corrupt(format_args!("an exception at row {position}"))),
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn is_the_same_whatever_is_likely<T: Number>(value: T) {
        // What is likely at first is nothing.
        let found = decimals_of(value, 0);
        for likely in 0..=T::MAX_DECIMALS {
            assert_eq!(decimals_of(value, likely), found, "{} by {likely}", value.to_f64());
        }
    }

    #[test]
    fn decimals_are_the_fewest_whatever_is_likely() {
        let mut rng = SmallRng::seed_from_u64(4);
        for round in 0..40_000 {
            let digits = rng.random_range(-(1_i64 << (round % 52))..=1_i64 << (round % 52)) as f64;
            let decimal = digits / POWERS[rng.random_range(0..12)];
            let steps = rng.random_range(-9..9_i64);
            let near = f64::from_bits(decimal.to_bits().wrapping_add_signed(steps));
            for value in [decimal, near, f64::from_bits(rng.random())] {
                is_the_same_whatever_is_likely(value);
                is_the_same_whatever_is_likely(value as f32);
            }
        }
        for value in [0.0, -0.0, 0.1 + 0.2, 100.0, 1e15, 1e22, f64::NAN, f64::INFINITY, f64::MIN] {
            is_the_same_whatever_is_likely(value);
            is_the_same_whatever_is_likely(value as f32);
        }
    }
}
