//! Streams of integers: the common unit divided out, differences where they are smaller, a frame
//! of reference for each vector, and the rest packed into bits; or, for cold data, handed to `pco`.
//!
//! ```text
//! stream: shape u8 (bit 0 differences, bit 1 unit, bit 2 pco; never bits 0 and 2 both)
//!         [unit varint, origin signed]      if bit 1: value = origin + unit * q, else value = q
//!         [start signed]                    if bit 0: q[i] = start + d[0] + ... + d[i]
//!         vectors of 1024 q or d, the last one shorter:
//!           width u8, base signed, ceil(len * width / 8) bytes of q - base or d - base
//!         or, if bit 2: bytes varint, a standalone pco file of q as i64
//! ```
//! All arithmetic wraps around, so that every i64 has its place.

use std::ops::Range;

use tidefall_types::Result;

use crate::bits::{VECTOR, pack, packed_bytes, unpack, width_of};
use crate::bytes::{Reader, corrupt, put_signed, put_varint, signed_bytes};
use crate::heavy;
use crate::page::Profile;

const DIFFERENCES: u8 = 1;
const UNIT: u8 = 2;
const PCO: u8 = 4;

/// Differences must be this much smaller than the values themselves to be taken, in per cent:
/// adding them up again makes decoding about half as fast.
const DIFFERENCES_MIN_SAVING_PERCENT: usize = 8;

/// pco must save this much over packing, in per cent. It decodes four to six times slower, and below
/// this the bytes saved are not worth that even for cold data.
const PCO_MIN_SAVING_PERCENT: usize = 8;
/// pco's own headers cost about 20 bytes, and building its tables costs microseconds; on fewer values
/// it cannot win.
const PCO_MIN_VALUES: usize = 256;
/// pco is tried on this many values from the middle before all are given to it, because its trial
/// is most of the cost of encoding a page. This many need no more bytes a value than a page does, but for
/// the tables.
const PCO_SAMPLE: usize = 1024;
/// What the tables add to a sample at most, in per cent.
const PCO_SAMPLE_EXCESS_PERCENT: usize = 4;

/// What a stream may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Bits only: fast both ways.
    Bits,
    /// Bits, or pco where it is enough smaller.
    Smallest,
    /// pco in any case, to compare them.
    Pco,
}

impl From<Profile> for Packing {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Fast => Self::Bits,
            Profile::Dense => Self::Smallest,
        }
    }
}

/// Appends `values` as a stream.
pub(crate) fn encode(values: &[i64], packing: Packing, out: &mut Vec<u8>) {
    let unit = common_unit(values);
    let origin = values.first().copied().unwrap_or(0);
    let divided: Vec<i64>;
    let quotients = if unit > 1 {
        divided = values.iter().map(|value| (value - origin) / unit as i64).collect();
        &divided[..]
    } else {
        values
    };
    let (start, differences) = differences(quotients);
    let take_differences = frames_bytes(&differences) * 100
        <= frames_bytes(quotients) * (100 - DIFFERENCES_MIN_SAVING_PERCENT);

    let packed = if take_differences { &differences } else { quotients };
    let packed_bytes = frames_bytes(packed);
    let pco = match packing {
        Packing::Bits => None,
        Packing::Smallest => smaller_with_pco(quotients, packed, packed_bytes),
        Packing::Pco => heavy::encode_pco_integers(quotients),
    };

    let mut shape = if unit > 1 { UNIT } else { 0 };
    shape |= match (&pco, take_differences) {
        (Some(_), _) => PCO,
        (None, true) => DIFFERENCES,
        (None, false) => 0,
    };
    out.push(shape);
    if unit > 1 {
        put_varint(out, unit);
        put_signed(out, origin);
    }
    match pco {
        Some(file) => {
            put_varint(out, file.len() as u64);
            out.extend_from_slice(&file);
        }
        None => {
            if take_differences {
                put_signed(out, start);
            }
            put_frames(packed, out);
        }
    }
}

/// A pco file of `values`, if it is enough smaller than the `packed_bytes` of `packed`.
fn smaller_with_pco(values: &[i64], packed: &[i64], packed_bytes: usize) -> Option<Vec<u8>> {
    if values.len() < PCO_MIN_VALUES {
        return None;
    }
    if values.len() >= 2 * PCO_SAMPLE {
        let start = (values.len() - PCO_SAMPLE) / 2;
        let sample: Range<usize> = start..start + PCO_SAMPLE;
        let file = heavy::encode_pco_integers(&values[sample.clone()])?;
        let most = 100 - PCO_MIN_SAVING_PERCENT + PCO_SAMPLE_EXCESS_PERCENT;
        if file.len() * 100 > frames_bytes(&packed[sample]) * most {
            return None;
        }
    }
    let file = heavy::encode_pco_integers(values)?;
    (file.len() * 100 <= packed_bytes * (100 - PCO_MIN_SAVING_PERCENT)).then_some(file)
}

/// The greatest number that divides all distances between the values; 1 where there is none, or
/// where the distances are too large to divide.
fn common_unit(values: &[i64]) -> u64 {
    let Some((&first, rest)) = values.split_first() else { return 1 };
    let mut unit = 0_u64;
    for value in rest {
        let distance = value.abs_diff(first);
        if distance > i64::MAX as u64 {
            return 1;
        }
        if unit == 0 || !distance.is_multiple_of(unit) {
            unit = greatest_common_divisor(unit, distance);
        }
        if unit == 1 {
            return 1;
        }
    }
    unit.max(1)
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The differences between neighbours. The first repeats the second, so that it does not widen its
/// frame, and the start makes up for it.
fn differences(values: &[i64]) -> (i64, Vec<i64>) {
    let Some(&first) = values.first() else { return (0, Vec::new()) };
    let step = values.get(1).map_or(0, |second| second.wrapping_sub(first));
    let mut differences = Vec::with_capacity(values.len());
    differences.push(step);
    differences.extend(values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])));
    (first.wrapping_sub(step), differences)
}

fn frame(vector: &[i64]) -> (i64, usize) {
    let mut min = i64::MAX;
    let mut max = i64::MIN;
    for &value in vector {
        min = min.min(value);
        max = max.max(value);
    }
    (min, width_of(max.wrapping_sub(min) as u64))
}

fn frames_bytes(values: &[i64]) -> usize {
    let bytes = values.chunks(VECTOR).map(|vector| {
        let (base, width) = frame(vector);
        1 + signed_bytes(base) + packed_bytes(vector.len(), width)
    });
    bytes.sum()
}

fn put_frames(values: &[i64], out: &mut Vec<u8>) {
    let mut offsets = [0_u64; VECTOR];
    for vector in values.chunks(VECTOR) {
        let (base, width) = frame(vector);
        for (offset, value) in offsets.iter_mut().zip(vector) {
            *offset = value.wrapping_sub(base) as u64;
        }
        out.push(width as u8);
        put_signed(out, base);
        pack(&offsets[..vector.len()], width, out);
    }
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
    if shape > DIFFERENCES | UNIT | PCO || shape & (DIFFERENCES | PCO) == DIFFERENCES | PCO {
        return Err(corrupt(format_args!("integer stream of unknown shape {shape}")));
    }
    let (unit, origin) =
        if shape & UNIT != 0 { (reader.varint()? as i64, reader.signed()?) } else { (1, 0) };
    let scale = move |value: i64| map(origin.wrapping_add(unit.wrapping_mul(value)));
    if shape & PCO != 0 {
        let bytes = reader.count("bytes of pco", reader.remaining())?;
        let mut values = vec![0_i64; out.len()];
        heavy::decode_pco(reader.take(bytes)?, &mut values)?;
        for (to, &value) in out.iter_mut().zip(&values) {
            *to = scale(value);
        }
        return Ok(());
    }
    match (shape & DIFFERENCES != 0, shape & UNIT != 0) {
        (false, false) => decode_frames(reader, out, map),
        (false, true) => decode_frames(reader, out, scale),
        (true, false) => decode_differences(reader, out, map),
        (true, true) => decode_differences(reader, out, scale),
    }
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
    map: impl Fn(i64) -> T + Copy,
) -> Result<()> {
    let mut value = reader.signed()?;
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
