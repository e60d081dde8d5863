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

use crate::bits::{VECTOR, pack, packed_bytes, unpack, width_of};
use crate::bytes::{Reader, corrupt, from_zigzag, put_signed, put_varint, signed_bytes};
use crate::page::Profile;
use crate::{heavy, planes, trial};

pub(crate) const DIFFERENCES: u8 = 1;
const UNIT: u8 = 2;
const PACKING_SHIFT: u8 = 2;
/// Shapes of a known packing.
const SHAPES: u8 = 4 << PACKING_SHIFT;

/// Differences must be this much smaller than the values themselves to be taken, in per cent:
/// adding them up again makes decoding about half as fast.
const DIFFERENCES_MIN_SAVING_PERCENT: usize = 8;

/// How the integers of a stream are packed once unit and differences are taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Packing {
    Frames = 0,
    Pco = 1,
    Planes = 2,
    Rows = 3,
}

impl Packing {
    /// The bits of the shape that say so.
    pub(crate) fn shape(self) -> u8 {
        (self as u8) << PACKING_SHIFT
    }

    fn from_shape(shape: u8) -> Self {
        match shape >> PACKING_SHIFT {
            0 => Self::Frames,
            1 => Self::Pco,
            2 => Self::Planes,
            _ => Self::Rows,
        }
    }
}

/// How much is tried to make a stream small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Frames only: fast both ways.
    Light,
    /// What is cheap to try, to compare ways of making integers of a column.
    Probe,
    /// All that may pay, judging from a sample.
    Full,
    /// All that may pay for a few ascending values that take many bytes each, however slow.
    Thorough,
    /// This packing in any case, to compare them.
    Only(Packing),
}

impl From<Profile> for Effort {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Fast => Self::Light,
            Profile::Medium => Self::Probe,
            Profile::Dense => Self::Full,
        }
    }
}

/// Appends `values` as a stream.
pub(crate) fn encode(values: &[i64], effort: Effort, out: &mut Vec<u8>) {
    let unit = common_unit(values);
    let origin = values.first().copied().unwrap_or(0);
    let divided: Vec<i64>;
    let quotients = if unit > 1 {
        divided = values.iter().map(|value| (value - origin) / unit as i64).collect();
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

/// The values of a stream with their unit divided out, and what is known of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream<'a> {
    pub(crate) quotients: &'a [i64],
    pub(crate) values: Extent,
    pub(crate) differences: Extent,
}

impl<'a> Stream<'a> {
    fn new(quotients: &'a [i64]) -> Self {
        let extent = |series: Series| series.extent(quotients);
        Self { quotients, values: extent(Series::Values), differences: extent(Series::Differences) }
    }

    /// What goes into frames, if they are taken.
    fn frames(&self) -> Series {
        let (values, differences) = (self.values.frames_bytes, self.differences.frames_bytes);
        if differences * 100 <= values * (100 - DIFFERENCES_MIN_SAVING_PERCENT) {
            Series::Differences
        } else {
            Series::Values
        }
    }

    /// The bytes that frames take.
    pub(crate) fn frames_bytes(&self) -> usize {
        match self.frames() {
            Series::Values => self.values.frames_bytes,
            Series::Differences => self.differences.frames_bytes,
        }
    }
}

/// What some integers range over, and the bytes that they take in frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) frames_bytes: usize,
}

/// What of a stream is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Series {
    Values,
    /// The differences between neighbours. The first repeats the second, so that it does not widen
    /// its frame, and [`start_of`] makes up for it.
    Differences,
}

impl Series {
    /// Calls `body` with each vector of 1024, the last one shorter.
    pub(crate) fn each(self, values: &[i64], mut body: impl FnMut(&[i64])) {
        if self == Self::Values {
            values.chunks(VECTOR).for_each(body);
            return;
        }
        let mut differences = [0_i64; VECTOR];
        for (index, vector) in values.chunks(VECTOR).enumerate() {
            let before = (index * VECTOR).saturating_sub(1);
            let next = values.get(before + 1).unwrap_or(&values[before]);
            differences[0] = next.wrapping_sub(values[before]);
            for (to, pair) in differences[1..].iter_mut().zip(vector.windows(2)) {
                *to = pair[1].wrapping_sub(pair[0]);
            }
            body(&differences[..vector.len()]);
        }
    }

    fn extent(self, values: &[i64]) -> Extent {
        let mut extent = Extent { min: i64::MAX, max: i64::MIN, frames_bytes: 0 };
        self.each(values, |vector| {
            let (min, max) = min_max(vector);
            let width = width_of(max.wrapping_sub(min) as u64);
            extent.min = extent.min.min(min);
            extent.max = extent.max.max(max);
            extent.frames_bytes += 1 + signed_bytes(min) + packed_bytes(vector.len(), width);
        });
        extent
    }

    fn put_frames(self, values: &[i64], out: &mut Vec<u8>) {
        let mut offsets = [0_u64; VECTOR];
        self.each(values, |vector| {
            let (base, max) = min_max(vector);
            let width = width_of(max.wrapping_sub(base) as u64);
            for (offset, value) in offsets.iter_mut().zip(vector) {
                *offset = value.wrapping_sub(base) as u64;
            }
            out.push(width as u8);
            put_signed(out, base);
            pack(&offsets[..vector.len()], width, out);
        });
    }
}

/// What the first difference is added to.
fn start_of(values: &[i64]) -> i64 {
    match values {
        [first, second, ..] => first.wrapping_sub(second.wrapping_sub(*first)),
        [first] => *first,
        [] => 0,
    }
}

fn min_max(vector: &[i64]) -> (i64, i64) {
    vector.iter().fold((i64::MAX, i64::MIN), |(min, max), &value| (min.min(value), max.max(value)))
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
