//! Streams of integers: the common unit divided out, differences where they are smaller, a frame
//! of reference for each vector, and the rest packed into bits; or, for cold data, cut into planes of
//! bytes for Zstandard or handed to `pco` (see trial.rs for the choice).
//!
//! ```text
//! stream: shape u8: bit 0 differences, bit 1 unit, bits 2..3 packing: 0 frames, 1 pco, 2 planes, 3 rows
//!         [unit varint, origin signed]      if bit 1: value = origin + unit * q, else value = q
//!         [start signed]                    if bit 0: q[i] = start + d[0] + ... + d[i]
//!         frames: vectors of 1024 q or d, the last one shorter:
//!                   width u8, base signed, ceil(len * width / 8) bytes of q - base or d - base
//!         pco:    bytes varint, a standalone pco file of q as i64; never with bit 0
//!         planes, rows (see planes.rs): base signed, of q - base; if bit 0 no base, of d after zig-zag
//! ```
//! All arithmetic wraps around, so that every i64 has its place.

use tidefall_types::Result;

use crate::bits::{VECTOR, packed_bytes, unpack};
use crate::bytes::{Reader, corrupt, from_zigzag, put_signed, put_varint};
use crate::stream::{DIFFERENCES, Effort, PACKING_SHIFT, Packing, Series, Stream, start_of};
use crate::{heavy, planes, trial};

const UNIT: u8 = 2;
/// Shapes of a known packing.
const SHAPES: u8 = 4 << PACKING_SHIFT;

/// Appends `values` as a stream.
pub(crate) fn encode(values: &[i64], effort: Effort, out: &mut Vec<u8>) {
    let unit = common_unit(values);
    let origin = values.first().copied().unwrap_or(0);
    let divided: Vec<i64>;
    let quotients = if unit > 1 {
        let divisor = Divisor::new(unit);
        divided = values.iter().map(|value| divisor.quotient(value - origin)).collect();
        &divided[..]
    } else {
        values
    };
    let stream = Stream::new(quotients);
    let series = stream.frames();
    let smaller = trial::smaller(&stream, effort);

    let mut shape = if unit > 1 { UNIT } else { 0 };
    shape |= match (&smaller, series) {
        (Some(trial), _) => trial.shape,
        (None, Series::Differences) => DIFFERENCES,
        (None, Series::Values) => 0,
    };
    out.push(shape);
    if unit > 1 {
        put_varint(out, unit);
        put_signed(out, origin);
    }
    if shape & DIFFERENCES != 0 {
        put_signed(out, start_of(quotients));
    }
    match smaller {
        Some(trial) => out.extend_from_slice(&trial.body),
        None => series.put_frames(quotients, out),
    }
}

/// The greatest number that divides all distances between the values; 1 where there is none, or
/// where the distances are too large to divide.
fn common_unit(values: &[i64]) -> u64 {
    let Some((&first, rest)) = values.split_first() else { return 1 };
    let mut divisor: Option<Divisor> = None;
    for value in rest {
        let distance = value.abs_diff(first);
        if distance > i64::MAX as u64 {
            return 1;
        }
        if divisor.as_ref().is_some_and(|divisor| divisor.divides(distance)) {
            continue;
        }
        let unit = divisor.map_or(0, |divisor| divisor.unit);
        divisor = match greatest_common_divisor(unit, distance) {
            // As yet all are the same.
            0 => None,
            1 => return 1,
            unit => Some(Divisor::new(unit)),
        };
    }
    divisor.map_or(1, |divisor| divisor.unit)
}

/// Divides numbers by one that most of them are multiples of, without a division: a multiple of an odd number, times what is its inverse
/// modulo 2^64, is the quotient (T. Granlund, P. L. Montgomery, *Division by invariant integers using multiplication*, 1994).
struct Divisor {
    unit: u64,
    /// The factors of two in it, and the inverse of what is left.
    shift: u32,
    inverse: u64,
    /// The greatest quotient.
    most: u64,
}

impl Divisor {
    /// That by `unit`, which is not 0.
    fn new(unit: u64) -> Self {
        let shift = unit.trailing_zeros();
        let odd = unit >> shift;
        // An odd number is its own inverse modulo 8, and each step makes twice as many bits right.
        let mut inverse = odd;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        Self { unit, shift, inverse, most: u64::MAX / unit }
    }

    fn divides(&self, number: u64) -> bool {
        number.wrapping_mul(self.inverse).rotate_right(self.shift) <= self.most
    }

    /// The quotient of a multiple.
    fn quotient(&self, multiple: i64) -> i64 {
        (multiple >> self.shift).wrapping_mul(self.inverse.cast_signed())
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Reads a stream of `out.len()` values and stores `map` of each.
///
/// # Errors
/// `Corrupt` when the bytes end too early or their shape is unknown.
pub(crate) fn decode<T>(
    reader: &mut Reader<'_>,
    out: &mut [T],
    map: impl Fn(i64) -> T + Copy,
) -> Result<()> {
    let shape = reader.byte()?;
    let packing = Packing::from_shape(shape);
    let is_differences = shape & DIFFERENCES != 0;
    if shape >= SHAPES || (packing == Packing::Pco && is_differences) {
        return Err(corrupt(format_args!("integer stream of unknown shape {shape}")));
    }
    if shape & UNIT == 0 {
        return decode_packing(reader, out, (packing, is_differences), map);
    }
    let (unit, origin) = (reader.varint()? as i64, reader.signed()?);
    decode_packing(reader, out, (packing, is_differences), move |value| {
        map(origin.wrapping_add(unit.wrapping_mul(value)))
    })
}

#[inline(always)]
fn decode_packing<T>(
    reader: &mut Reader<'_>,
    out: &mut [T],
    form: (Packing, bool),
    map: impl Fn(i64) -> T + Copy,
) -> Result<()> {
    // Of differences the start, of other planes and rows the base.
    let mut value = match form {
        (Packing::Frames | Packing::Pco, false) => 0,
        _ => reader.signed()?,
    };
    let (packing, is_differences) = form;
    match packing {
        Packing::Frames if is_differences => return decode_differences(reader, out, value, map),
        Packing::Frames => return decode_frames(reader, out, map),
        Packing::Pco => return decode_pco(reader, out, map),
        Packing::Planes | Packing::Rows => {}
    }
    let len = out.len();
    let mut vectors = out.chunks_mut(VECTOR);
    let mut store = |words: &mut [u64]| {
        let Some(vector) = vectors.next() else { return };
        if is_differences {
            for word in &mut *words {
                value = value.wrapping_add(from_zigzag(*word));
                *word = value as u64;
            }
            vector.iter_mut().zip(words).for_each(|(to, word)| *to = map(*word as i64));
        } else {
            let add = |word: u64| map(value.wrapping_add(word as i64));
            vector.iter_mut().zip(words).for_each(|(to, word)| *to = add(*word));
        }
    };
    match packing {
        Packing::Rows => planes::decode_rows(reader, len, &mut store),
        _ => planes::decode(reader, len, &mut store),
    }
}

/// Reads some values of a stream of `len`: those from `first` on for which `out` has places. Frames in
/// which none of them lies are passed over.
///
/// # Errors
/// As [`decode`].
pub(crate) fn decode_some<T: Copy>(
    reader: &mut Reader<'_>,
    len: usize,
    first: usize,
    out: &mut [T],
    map: impl Fn(i64) -> T + Copy,
) -> Result<()> {
    let end = first + out.len();
    let mut ahead = reader.clone();
    let shape = ahead.byte()?;
    if shape & !UNIT != Packing::Frames.shape() {
        let mut all = vec![0; len];
        decode(reader, &mut all, |value| value)?;
        out.iter_mut().zip(&all[first..end]).for_each(|(to, value)| *to = map(*value));
        return Ok(());
    }
    let (unit, origin) = match shape & UNIT {
        0 => (1, 0),
        _ => (ahead.varint()? as i64, ahead.signed()?),
    };
    let map = move |value: i64| map(origin.wrapping_add(unit.wrapping_mul(value)));
    for start in (0..len).step_by(VECTOR) {
        let vector = start..(start + VECTOR).min(len);
        if vector.end <= first || vector.start >= end {
            let width = usize::from(ahead.byte()?);
            ahead.signed()?;
            ahead.take(packed_bytes(vector.len(), width))?;
            continue;
        }
        let wanted = vector.start.max(first)..vector.end.min(end);
        let places = &mut out[wanted.start - first..wanted.end - first];
        if wanted == vector {
            decode_frames(&mut ahead, places, map)?;
        } else {
            let mut values = [0; VECTOR];
            decode_frames(&mut ahead, &mut values[..vector.len()], |value| value)?;
            let values = &values[wanted.start - start..wanted.end - start];
            places.iter_mut().zip(values).for_each(|(to, value)| *to = map(*value));
        }
    }
    *reader = ahead;
    Ok(())
}

/// A stream of differences in frames, of which none was read yet.
pub(crate) struct Steps<'a> {
    frames: Reader<'a>,
    len: usize,
    unit: i64,
    origin: i64,
    start: i64,
}

impl<'a> Steps<'a> {
    /// The stream of `len` values at the start of `reader`; nothing where it has another shape.
    ///
    /// # Errors
    /// As [`decode`].
    pub(crate) fn open(reader: &mut Reader<'a>, len: usize) -> Result<Option<Self>> {
        let mut frames = reader.clone();
        let shape = frames.byte()?;
        if shape & !UNIT != Packing::Frames.shape() | DIFFERENCES {
            return Ok(None);
        }
        let (unit, origin) = match shape & UNIT {
            0 => (1, 0),
            _ => (frames.varint()? as i64, frames.signed()?),
        };
        let start = frames.signed()?;
        // What wraps around has no order.
        Ok((unit > 0).then_some(Self { frames, len, unit, origin, start }))
    }
}

/// Which of some ascending numbers are in a stream that ascends: for these `found` becomes true.
///
/// # Errors
/// As [`decode`].
pub(crate) fn find(steps: Steps<'_>, wanted: &[i64], found: &mut [bool]) -> Result<()> {
    let Steps { mut frames, len, unit, origin, start: mut value } = steps;
    // Numbers between two units are not there.
    let quotient = |number: &i64| {
        let distance = number.checked_sub(origin)?;
        (distance % unit == 0).then_some(distance / unit)
    };
    let numbers = wanted.iter().zip(found);
    let mut rest = numbers.filter_map(|(number, found)| Some((quotient(number)?, found)));
    let mut next = rest.next();
    let mut differences = [0_i64; VECTOR];
    for first in (0..len).step_by(VECTOR) {
        if next.is_none() {
            break;
        }
        let differences = &mut differences[..VECTOR.min(len - first)];
        decode_frames(&mut frames, differences, |difference| difference)?;
        let sum = differences.iter().fold(0, |sum: i64, step| sum.wrapping_add(*step));
        let last = value.wrapping_add(sum);
        if next.as_ref().is_some_and(|(number, _)| *number <= last) {
            for step in &*differences {
                value = value.wrapping_add(*step);
                while let Some((number, found)) = next.take_if(|(number, _)| *number <= value) {
                    *found |= number == value;
                    next = rest.next();
                }
            }
        }
        value = last;
    }
    Ok(())
}

fn decode_pco<T>(
    reader: &mut Reader<'_>,
    out: &mut [T],
    map: impl Fn(i64) -> T + Copy,
) -> Result<()> {
    let bytes = reader.count("bytes of pco", reader.remaining())?;
    let mut values = vec![0_i64; out.len()];
    heavy::decode_pco(reader.take(bytes)?, &mut values)?;
    for (to, &value) in out.iter_mut().zip(&values) {
        *to = map(value);
    }
    Ok(())
}

#[inline(always)]
fn decode_frames<T>(
    reader: &mut Reader<'_>,
    out: &mut [T],
    map: impl Fn(i64) -> T + Copy,
) -> Result<()> {
    for vector in out.chunks_mut(VECTOR) {
        let width = reader.byte()?;
        let base = reader.signed()?;
        unpack(reader, usize::from(width), vector, move |offset| {
            map(base.wrapping_add(offset as i64))
        })?;
    }
    Ok(())
}

#[inline(always)]
fn decode_differences<T>(
    reader: &mut Reader<'_>,
    out: &mut [T],
    start: i64,
    map: impl Fn(i64) -> T + Copy,
) -> Result<()> {
    let mut value = start;
    let mut differences = [0_i64; VECTOR];
    for vector in out.chunks_mut(VECTOR) {
        decode_frames(reader, &mut differences[..vector.len()], |difference| difference)?;
        for (to, difference) in vector.iter_mut().zip(&differences) {
            value = value.wrapping_add(*difference);
            *to = map(value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn quotients_are_those_of_a_division() {
        let mut rng = SmallRng::seed_from_u64(15);
        for _ in 0..20_000 {
            let unit = (rng.random::<u64>() >> rng.random_range(1..64)).max(1);
            let unit = [unit, 1 << rng.random_range(0..63), 10_u64.pow(rng.random_range(0..19))];
            let unit = unit[rng.random_range(0..3)];
            let divisor = Divisor::new(unit);
            let number = rng.random::<u64>() >> rng.random_range(0..64);
            assert_eq!(divisor.divides(number), number.is_multiple_of(unit), "{number} / {unit}");
            let quotient = number as i64 / unit as i64;
            assert!(divisor.divides(quotient.unsigned_abs() * unit), "{quotient} * {unit}");
            assert_eq!(divisor.quotient(quotient * unit as i64), quotient, "{unit}");
        }
    }
}
