//! Streams of unsigned integers as bytes for Zstandard.
//!
//! ```text
//! planes: low_bits u8, planes u8,
//!         vectors of 1024, the last one shorter: the lowest `low_bits` of each value, packed
//!         each plane, of the next eight bits of all values, lowest first:
//!           bytes varint, Zstandard frame of `len` bytes; or the `len` bytes, if bytes = len
//! rows:   width u8, bytes varint, Zstandard frame of `len` values of `width` bytes
//! ```
//! The low bits of readings are noise, and packed they come back at memory speed. The bits above them
//! have few likely values, and Zstandard's Huffman code, a table for each plane, takes hardly more
//! than their entropy; it decodes a byte in about a nanosecond. Rows keep the bytes of a value
//! together, for values that repeat whole.

use tidefall_types::Result;

use crate::bits::{VECTOR, pack, packed_bytes, unpack, width_of};
use crate::bytes::{Reader, corrupt, put_varint};
use crate::heavy;

/// Bits in one plane.
pub(crate) const PLANE_BITS: usize = 8;

/// Planes that values of `width` bits have above their low bits.
pub(crate) fn plane_count(width: usize, low_bits: usize) -> usize {
    width.saturating_sub(low_bits).div_ceil(PLANE_BITS)
}

/// Numbers to encode, handed out in vectors of 1024, the last one shorter, so that they need not
/// stand in memory all at once.
pub(crate) trait Numbers {
    /// How many there are.
    fn len(&self) -> usize;
    /// No number is larger.
    fn max(&self) -> u64;
    /// Calls `body` with each vector.
    fn each(&self, body: impl FnMut(&[u64]));
}

/// Appends `numbers` as planes above their lowest `low_bits` bits, at most 63.
pub(crate) fn encode(
    numbers: &impl Numbers,
    low_bits: usize,
    level: i32,
    out: &mut Vec<u8>,
) -> Result<()> {
    let len = numbers.len();
    let count = plane_count(width_of(numbers.max()), low_bits);
    out.extend_from_slice(&[low_bits as u8, count as u8]);
    let mask = (1_u64 << low_bits) - 1;
    let mut low = [0_u64; VECTOR];
    let mut planes = vec![0_u8; count * len];
    let mut start = 0;
    numbers.each(|vector| {
        for (to, number) in low.iter_mut().zip(vector) {
            *to = number & mask;
        }
        pack(&low[..vector.len()], low_bits, out);
        for (index, plane) in planes.chunks_exact_mut(len.max(1)).enumerate() {
            let shift = low_bits + index * PLANE_BITS;
            for (to, number) in plane[start..].iter_mut().zip(vector) {
                *to = (number >> shift) as u8;
            }
        }
        start += vector.len();
    });
    for plane in planes.chunks_exact(len.max(1)) {
        let frame = heavy::compress(plane, level)?;
        let bytes = if frame.len() < plane.len() { &frame } else { plane };
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
    Ok(())
}

/// Reads planes of `len` numbers and calls `body` with them, in vectors of 1024, the last one
/// shorter.
///
/// # Errors
/// `Corrupt` when the bytes end too early or a plane does not hold that many.
pub(crate) fn decode(
    reader: &mut Reader<'_>,
    len: usize,
    body: &mut dyn FnMut(&mut [u64]),
) -> Result<()> {
    let [low_bits, count] = reader.array()?.map(usize::from);
    if low_bits >= 64 || count > plane_count(64, low_bits) {
        return Err(corrupt(format_args!("{count} planes above {low_bits} bits")));
    }
    let full = len / VECTOR * packed_bytes(VECTOR, low_bits);
    let mut low = Reader::new(reader.take(full + packed_bytes(len % VECTOR, low_bits))?);
    let mut planes = vec![0_u8; count * len];
    for plane in planes.chunks_exact_mut(len.max(1)) {
        let bytes = reader.count("bytes of a plane", plane.len())?;
        let stored = reader.take(bytes)?;
        if bytes == plane.len() {
            plane.copy_from_slice(stored);
        } else {
            heavy::decompress_into(stored, plane)?;
        }
    }
    let mut words = [0_u64; VECTOR];
    for start in (0..len).step_by(VECTOR) {
        let words = &mut words[..VECTOR.min(len - start)];
        unpack(&mut low, low_bits, words, |word| word)?;
        for plane in 0..count {
            let shift = low_bits + plane * PLANE_BITS;
            let bytes = &planes[plane * len + start..][..words.len()];
            for (word, &byte) in words.iter_mut().zip(bytes) {
                *word |= u64::from(byte) << shift;
            }
        }
        body(words);
    }
    Ok(())
}

/// Appends `numbers` as rows.
pub(crate) fn encode_rows(numbers: &impl Numbers, level: i32, out: &mut Vec<u8>) -> Result<()> {
    let width = width_of(numbers.max()).div_ceil(8).max(1);
    let mut rows = Vec::with_capacity(numbers.len() * width);
    numbers.each(|vector| {
        for number in vector {
            rows.extend_from_slice(&number.to_le_bytes()[..width]);
        }
    });
    let frame = heavy::compress(&rows, level)?;
    out.push(width as u8);
    put_varint(out, frame.len() as u64);
    out.extend_from_slice(&frame);
    Ok(())
}

/// Reads rows of `len` numbers and calls `body` with them, in vectors of 1024, the last one
/// shorter.
///
/// # Errors
/// `Corrupt` when the frame does not hold that many.
pub(crate) fn decode_rows(
    reader: &mut Reader<'_>,
    len: usize,
    body: &mut dyn FnMut(&mut [u64]),
) -> Result<()> {
    let width = usize::from(reader.byte()?);
    if !(1..=8).contains(&width) {
        return Err(corrupt(format_args!("rows of {width} bytes")));
    }
    let bytes = reader.count("bytes of rows", reader.remaining())?;
    let rows = heavy::decompress(reader.take(bytes)?, len * width)?;
    let mut words = [0_u64; VECTOR];
    for rows in rows.chunks(VECTOR * width) {
        let words = &mut words[..rows.len() / width];
        // A width known when this is compiled makes one load of each row.
        match width {
            1 => read_rows::<1>(rows, words),
            2 => read_rows::<2>(rows, words),
            3 => read_rows::<3>(rows, words),
            4 => read_rows::<4>(rows, words),
            5 => read_rows::<5>(rows, words),
            6 => read_rows::<6>(rows, words),
            7 => read_rows::<7>(rows, words),
            _ => read_rows::<8>(rows, words),
        }
        body(words);
    }
    Ok(())
}

fn read_rows<const WIDTH: usize>(rows: &[u8], words: &mut [u64]) {
    for (word, row) in words.iter_mut().zip(rows.as_chunks::<WIDTH>().0) {
        let mut bytes = [0; 8];
        bytes[..WIDTH].copy_from_slice(row);
        *word = u64::from_le_bytes(bytes);
    }
}
