//! Reading and writing of small numbers in a page. Reading never panics: what is missing or too
//! large becomes a `Corrupt` error.

use tidefall_types::{Error, Result};

/// The error for a page that does not hold what its header says.
pub(crate) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("damaged page: {what}; restore the object that holds it from a copy"))
}

/// Appends `value` in groups of seven bits, lowest first (LEB128).
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps signed numbers to unsigned ones so that small magnitudes of either sign are small.
#[inline(always)]
pub(crate) fn to_zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`to_zigzag`].
#[inline(always)]
pub(crate) fn from_zigzag(zigzag: u64) -> i64 {
    (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)
}

/// Appends a signed number so that small magnitudes of either sign are short.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, to_zigzag(value));
}

/// The number of bytes that [`put_signed`] appends.
pub(crate) fn signed_bytes(value: i64) -> usize {
    (64 - (to_zigzag(value) | 1).leading_zeros() as usize).div_ceil(7)
}

/// A cursor over bytes from outside.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.rest.split_at_checked(bytes) else {
            return Err(corrupt(format_args!(
                "{bytes} bytes expected, {} are left",
                self.rest.len()
            )));
        };
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(corrupt("a number is longer than 64 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64> {
        self.varint().map(from_zigzag)
    }

    /// A count that may not exceed `max`, so that nobody allocates what a forged page asks for.
    pub(crate) fn count(&mut self, what: &str, max: usize) -> Result<usize> {
        let count = self.varint()?;
        match usize::try_from(count) {
            Ok(count) if count <= max => Ok(count),
            _ => Err(corrupt(format_args!("{count} {what}, at most {max} are possible"))),
        }
    }

    pub(crate) fn expect_end(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(corrupt(format_args!("{left} bytes behind its last value"))),
        }
    }
}
