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
//! ```text
//! body: decimals u8, low_bits u8, exceptions varint,
//!       stream of digits (see ints.rs),
//!       exceptions * u16 positions, ascending,
//!       exceptions * value
//! ```

use tidefall_types::Result;

use crate::bytes::{Reader, corrupt, put_varint};
use crate::ints::{self, Packing};
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
/// Bits of `low` at least. Digits up to 2^21 leave `high` with 32 bits; more would gain nothing.
const LOW_BITS_MIN: u8 = 21;
const LOW_BITS_MAX: u8 = 51;

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
pub(crate) fn encode<T: Number>(values: &[T], packing: Packing) -> Option<Vec<u8>> {
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
        Vec::new()
    } else if misses * 2 > values.len() {
        return None;
    } else {
        patch_misses(values, &mut digits, decimals, scale)
    };

    let mut body = Vec::with_capacity(values.len() * 3 + 16);
    body.extend_from_slice(&[decimals as u8, low_bits]);
    put_varint(&mut body, exceptions.len() as u64);
    ints::encode(&digits, packing, &mut body);
    for &position in &exceptions {
        body.extend_from_slice(&position.to_le_bytes());
    }
    for &position in &exceptions {
        values[usize::from(position)].put(&mut body);
    }
    Some(body)
}

#[inline(always)]
fn comes_back<T: Number>(value: T, rounded: f64, scale: Scale) -> bool {
    let digits = rounded - ROUNDER;
    scale.value::<T>(digits).same(value) & (digits.abs() < T::DIGITS_LIMIT)
}

/// Lists the values that do not come back and gives them the digits of a neighbour that does, so that
/// they do not widen their frame.
fn patch_misses<T: Number>(
    values: &[T],
    digits: &mut [i64],
    decimals: usize,
    scale: Scale,
) -> Vec<u16> {
    let misses = |value: T| !comes_back(value, value.to_f64() * POWERS[decimals] + ROUNDER, scale);
    let first_hit = values.iter().position(|&value| !misses(value));
    let mut previous = first_hit.map_or(0, |index| digits[index]);
    let mut exceptions = Vec::new();
    for (index, &value) in values.iter().enumerate() {
        if misses(value) {
            exceptions.push(index as u16);
            digits[index] = previous;
        } else {
            previous = digits[index];
        }
    }
    exceptions
}

/// The number of decimals that makes a sample of the values smallest, and the largest digits
/// then seen in the sample.
fn find_decimals<T: Number>(values: &[T]) -> Option<(usize, f64)> {
    let step = values.len().div_ceil(SAMPLE).max(1);
    // How many values need exactly that many decimals, and the largest of them.
    let mut counts = [0_usize; POWERS.len()];
    let mut largest = [0_f64; POWERS.len()];
    let (mut total, mut hits) = (0, 0);
    for &value in values.iter().step_by(step) {
        if total == PROBE && hits == 0 {
            return None;
        }
        total += 1;
        if let Some(decimals) = decimals_of(value) {
            hits += 1;
            counts[decimals] += 1;
            largest[decimals] = largest[decimals].max(value.to_f64().abs());
        }
    }

    let exception_bits = (T::WIDTH + 2) * 8;
    let mut best: Option<(usize, usize, f64)> = None;
    let (mut covered, mut magnitude) = (0, 0_f64);
    for decimals in 0..=T::MAX_DECIMALS {
        if counts[decimals] == 0 {
            continue;
        }
        covered += counts[decimals];
        magnitude = magnitude.max(largest[decimals]);
        let digits_max = magnitude * POWERS[decimals];
        let cost = (total - covered) * exception_bits
            + covered * (digits_max.max(1.0).log2() as usize + 1);
        if digits_max < T::DIGITS_LIMIT && best.is_none_or(|(least, ..)| cost < least) {
            best = Some((cost, decimals, digits_max));
        }
    }
    best.map(|(_, decimals, digits_max)| (decimals, digits_max))
}

/// The fewest decimals with which `value` is exact.
fn decimals_of<T: Number>(value: T) -> Option<usize> {
    let double = value.to_f64();
    (0..=T::MAX_DECIMALS).find(|&decimals| {
        let digits = (double * POWERS[decimals] + ROUNDER) - ROUNDER;
        digits.abs() < T::DIGITS_LIMIT && T::from_f64(digits / POWERS[decimals]).same(value)
    })
}

/// Decodes `out.len()` values.
///
/// # Errors
/// `Corrupt` when the body does not hold that many.
pub(crate) fn decode<T: Number>(body: &[u8], out: &mut [T]) -> Result<()> {
    let mut reader = Reader::new(body);
    let [decimals, low_bits] = reader.array()?;
    if usize::from(decimals) >= POWERS.len()
        || !(LOW_BITS_MIN..=LOW_BITS_MAX).contains(&low_bits)
        || !T::IS_FLOAT
    {
        return Err(corrupt(format_args!("a scale of {decimals} decimals, {low_bits} bits")));
    }
    let scale = Scale::new(usize::from(decimals), low_bits);
    let exceptions = reader.count("exceptions", out.len())?;
    ints::decode(&mut reader, out, move |digits| scale.value(double_of(digits)))?;
    let positions = reader.take(exceptions * 2)?;
    let values = reader.take(exceptions * T::WIDTH)?;
    reader.expect_end()?;
    for (position, value) in positions.as_chunks::<2>().0.iter().zip(values.chunks(T::WIDTH)) {
        let position = u16::from_le_bytes(*position);
        match out.get_mut(usize::from(position)) {
            Some(place) => *place = T::get(value),
            None => return Err(corrupt(format_args!("an exception at row {position}"))),
        }
    }
    Ok(())
}
