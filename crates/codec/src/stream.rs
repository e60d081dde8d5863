//! A stream of integers on its way to bytes: what is packed of it, and how hard that is tried.

use crate::bits::{VECTOR, pack, packed_bytes, width_of};
use crate::bytes::{put_signed, signed_bytes};
use crate::profile::Profile;

/// The bit of the shape that says that differences are packed.
pub(crate) const DIFFERENCES: u8 = 1;
/// Where in the shape the packing is.
pub(crate) const PACKING_SHIFT: u8 = 2;

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

    pub(crate) fn from_shape(shape: u8) -> Self {
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

/// The values of a stream with their unit divided out, and what is known of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream<'a> {
    pub(crate) quotients: &'a [i64],
    pub(crate) values: Extent,
    pub(crate) differences: Extent,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(quotients: &'a [i64]) -> Self {
        let extent = |series: Series| series.extent(quotients);
        Self { quotients, values: extent(Series::Values), differences: extent(Series::Differences) }
    }

    /// What goes into frames, if they are taken.
    pub(crate) fn frames(&self) -> Series {
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

    pub(crate) fn put_frames(self, values: &[i64], out: &mut Vec<u8>) {
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
pub(crate) fn start_of(values: &[i64]) -> i64 {
    match values {
        [first, second, ..] => first.wrapping_sub(second.wrapping_sub(*first)),
        [first] => *first,
        [] => 0,
    }
}

fn min_max(vector: &[i64]) -> (i64, i64) {
    vector.iter().fold((i64::MAX, i64::MIN), |(min, max), &value| (min.min(value), max.max(value)))
}
