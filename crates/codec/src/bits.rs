//! Packing of up to 1024 unsigned integers into a fixed number of bits each.
//!
//! A full vector of 1024 uses the interleaved order of FastLanes (Afroozeh and Boncz, "The FastLanes
//! Compression Layout", VLDB 2023), which plain compilers turn into SIMD code. A shorter one, the
//! end of a page, is a plain stream of bits, lowest first, so that it costs no padding.

use fastlanes::BitPacking;
use tidefall_types::Result;

use crate::bytes::{Reader, corrupt};

/// Values in a full vector.
pub(crate) const VECTOR: usize = 1024;

/// The bits that `max` needs.
pub(crate) fn width_of(max: u64) -> usize {
    64 - max.leading_zeros() as usize
}

/// The bytes that `len` values of `width` bits take.
pub(crate) fn packed_bytes(len: usize, width: usize) -> usize {
    (len * width).div_ceil(8)
}

/// Appends `values` (at most [`VECTOR`]) in `width` bits each; every value must fit.
pub(crate) fn pack(values: &[u64], width: usize, out: &mut Vec<u8>) {
    debug_assert!(values.len() <= VECTOR && values.iter().all(|&value| width_of(value) <= width));
    if width == 0 {
        return;
    }
    if values.len() < VECTOR {
        pack_stream(values, width, out);
    } else if width <= 32 {
        let mut narrow = [0_u32; VECTOR];
        for (to, &from) in narrow.iter_mut().zip(values) {
            *to = from as u32;
        }
        let mut packed = [0_u32; VECTOR];
        let packed = &mut packed[..width * VECTOR / 32];
        // SAFETY: `narrow` has 1024 values, `packed` the 1024 * width / 32 words asked for.
        unsafe { u32::unchecked_pack(width, &narrow, packed) };
        put_words(packed, |word| word.to_le_bytes(), out);
    } else {
        let mut packed = [0_u64; VECTOR];
        let packed = &mut packed[..width * VECTOR / 64];
        // SAFETY: `values` has 1024 values (shorter ones took the first branch; longer ones are
        // cut here), `packed` the 1024 * width / 64 words asked for, and width <= 64.
        unsafe { u64::unchecked_pack(width, &values[..VECTOR], packed) };
        put_words(packed, |word| word.to_le_bytes(), out);
    }
}

fn put_words<T: Copy, const N: usize>(
    words: &[T],
    to_bytes: impl Fn(T) -> [u8; N],
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.resize(start + words.len() * N, 0);
    for (bytes, &word) in out[start..].as_chunks_mut::<N>().0.iter_mut().zip(words) {
        *bytes = to_bytes(word);
    }
}

fn pack_stream(values: &[u64], width: usize, out: &mut Vec<u8>) {
    let (mut pending, mut bits) = (0_u128, 0);
    for &value in values {
        pending |= u128::from(value) << bits;
        bits += width;
        if bits >= 64 {
            out.extend_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            bits -= 64;
        }
    }
    out.extend_from_slice(&(pending as u64).to_le_bytes()[..bits.div_ceil(8)]);
}

/// Reads `out.len()` values (at most [`VECTOR`]) of `width` bits and stores `map` of each.
///
/// # Errors
/// `Corrupt` when the bytes end too early or the width is impossible.
#[inline(always)]
pub(crate) fn unpack<T>(
    reader: &mut Reader<'_>,
    width: usize,
    out: &mut [T],
    map: impl Fn(u64) -> T + Copy,
) -> Result<()> {
    if width > 64 || out.len() > VECTOR {
        return Err(corrupt(format_args!("integers of {width} bits")));
    }
    let packed = reader.take(packed_bytes(out.len(), width))?;
    if width == 0 {
        out.fill_with(|| map(0));
    } else if out.len() < VECTOR {
        unpack_stream(packed, width, out, map);
    } else if width <= 32 {
        let mut values = [0_u32; VECTOR];
        unpack_narrow(packed, width, &mut values);
        for (to, &from) in out.iter_mut().zip(&values) {
            *to = map(u64::from(from));
        }
    } else {
        let mut values = [0_u64; VECTOR];
        unpack_wide(packed, width, &mut values);
        for (to, &from) in out.iter_mut().zip(&values) {
            *to = map(from);
        }
    }
    Ok(())
}

/// `packed` holds `width * 128` bytes and `width` is at most 32.
fn unpack_narrow(packed: &[u8], width: usize, values: &mut [u32; VECTOR]) {
    let mut words = [0_u32; VECTOR];
    let words = &mut words[..width * VECTOR / 32];
    for (word, bytes) in words.iter_mut().zip(packed.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    // SAFETY: `words` has the 1024 * width / 32 words and `values` the 1024 places asked for;
    // slicing above would have panicked for a width over 32.
    unsafe { u32::unchecked_unpack(width, words, values) };
}

/// `packed` holds `width * 128` bytes and `width` is at most 64.
fn unpack_wide(packed: &[u8], width: usize, values: &mut [u64; VECTOR]) {
    let mut words = [0_u64; VECTOR];
    let words = &mut words[..width * VECTOR / 64];
    for (word, bytes) in words.iter_mut().zip(packed.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    // SAFETY: `words` has the 1024 * width / 64 words and `values` the 1024 places asked for;
    // slicing above would have panicked for a width over 64.
    unsafe { u64::unchecked_unpack(width, words, values) };
}

#[inline(always)]
fn unpack_stream<T>(packed: &[u8], width: usize, out: &mut [T], map: impl Fn(u64) -> T) {
    // A copy with zeros behind it, so that every value can be read with one wide load.
    const PADDING: usize = 16;
    let mut padded = [0_u8; VECTOR * 8 + PADDING];
    padded[..packed.len()].copy_from_slice(packed);
    let mask = u64::MAX >> (64 - width);
    if width <= 57 {
        for (index, to) in out.iter_mut().enumerate() {
            let bit = index * width;
            let mut word = [0; 8];
            word.copy_from_slice(&padded[bit / 8..bit / 8 + 8]);
            *to = map((u64::from_le_bytes(word) >> (bit % 8)) & mask);
        }
    } else {
        for (index, to) in out.iter_mut().enumerate() {
            let bit = index * width;
            let mut word = [0; 16];
            word.copy_from_slice(&padded[bit / 8..bit / 8 + 16]);
            *to = map((u128::from_le_bytes(word) >> (bit % 8)) as u64 & mask);
        }
    }
}
