//! Text.
//!
//! ```text
//! constant:   the bytes of the value, or nothing when there is no value
//! raw:        lengths (stream, see ints.rs), the bytes of all values
//! zstd:       lengths, Zstandard frame of the bytes of all values
//! dictionary: count varint, size varint, then `size` bytes of the distinct values in the form raw
//!             or zstd with its codec u8 in front, then codec u8 and body of the codes
//! ```
//! In all of them a length is that of one value in bytes, and only rows with a value count.

use std::collections::HashMap;

use tidefall_types::{Error, Result};

use crate::bytes::{Reader, corrupt, put_varint};
use crate::numeric::{self, Nesting};
use crate::page::Codec;
use crate::profile::{MAX_PAGE_TEXT_BYTES, Profile};
use crate::{heavy, ints};

/// Distinct values at most, as a share of all values, for a dictionary to be tried.
const DICTIONARY_MAX_SHARE: usize = 2;
/// A dictionary that takes so many times fewer bytes than the texts is taken without a look at the
/// alternative, which takes as long to encode.
const DICTIONARY_CLEAR_GAIN: usize = 3;
/// Fewer bytes are not worth a Zstandard frame, whose headers take about a dozen.
const ZSTD_MIN_BYTES: usize = 64;
const ZSTD_LEVEL_FAST: i32 = 1;
const ZSTD_LEVEL_DENSE: i32 = 6;
/// No Zstandard frame expands further: a block of 128 KiB takes at least four bytes.
const ZSTD_MAX_EXPANSION: usize = 1 << 16;

/// Chooses a codec for `values` (none of them null) and encodes them.
pub(crate) fn encode(values: &[&str], profile: Profile) -> Result<(Codec, Vec<u8>)> {
    let bytes: usize = values.iter().map(|value| value.len()).sum();
    if bytes > MAX_PAGE_TEXT_BYTES {
        return Err(Error::limit(format!(
            "{} texts of {bytes} bytes together; a page takes {MAX_PAGE_TEXT_BYTES}: write fewer \
             rows at once",
            values.len()
        )));
    }
    let Some(first) = values.first() else { return Ok((Codec::Constant, Vec::new())) };
    if values.iter().all(|value| value == first) {
        return Ok((Codec::Constant, first.as_bytes().to_vec()));
    }
    let dictionary = match encode_dictionary(values, profile)? {
        Some(body) if body.len() * DICTIONARY_CLEAR_GAIN < bytes => {
            return Ok((Codec::Dictionary, body));
        }
        dictionary => dictionary,
    };
    let plain = encode_plain(values, profile)?;
    match dictionary {
        Some(body) if body.len() < plain.1.len() => Ok((Codec::Dictionary, body)),
        _ => Ok(plain),
    }
}

fn encode_plain(values: &[&str], profile: Profile) -> Result<(Codec, Vec<u8>)> {
    let lengths: Vec<i64> = values.iter().map(|value| value.len() as i64).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
    let mut body = Vec::new();
    ints::encode(&lengths, profile.into(), &mut body);
    if bytes.len() >= ZSTD_MIN_BYTES {
        let level = match profile {
            Profile::Fast | Profile::Medium => ZSTD_LEVEL_FAST,
            Profile::Dense => ZSTD_LEVEL_DENSE,
        };
        let frame = heavy::compress(&bytes, level)?;
        if frame.len() < bytes.len() {
            body.extend_from_slice(&frame);
            return Ok((Codec::Zstd, body));
        }
    }
    body.extend_from_slice(&bytes);
    Ok((Codec::Raw, body))
}

fn encode_dictionary(values: &[&str], profile: Profile) -> Result<Option<Vec<u8>>> {
    let distinct_max = values.len() / DICTIONARY_MAX_SHARE;
    let mut distinct: Vec<&str> = Vec::new();
    let mut code_of: HashMap<&str, u16> = HashMap::new();
    let mut codes: Vec<u16> = Vec::with_capacity(values.len());
    for value in values {
        let next = distinct.len();
        let code = *code_of.entry(value).or_insert(next as u16);
        if usize::from(code) == next {
            if next == distinct_max {
                return Ok(None);
            }
            distinct.push(value);
        }
        codes.push(code);
    }
    let (codec, words) = encode_plain(&distinct, profile)?;
    let mut body = Vec::new();
    put_varint(&mut body, distinct.len() as u64);
    put_varint(&mut body, words.len() as u64 + 1);
    body.push(codec as u8);
    body.extend_from_slice(&words);
    let (codec, codes) = numeric::encode(&codes, profile.into(), Nesting::Codes)?;
    body.push(codec as u8);
    body.extend_from_slice(&codes);
    Ok(Some(body))
}

/// Decoded text: the bytes of all values and the length of each.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) lengths: Vec<i32>,
    pub(crate) bytes: Vec<u8>,
}

/// Decodes `count` values.
///
/// # Errors
/// `Corrupt` when the body does not hold exactly that many, or they are not UTF-8.
pub(crate) fn decode(codec: Codec, body: &[u8], count: usize) -> Result<Text> {
    match codec {
        Codec::Constant => repeat(body, count),
        Codec::Raw | Codec::Zstd => decode_plain(codec, body, count),
        Codec::Dictionary => decode_dictionary(body, count),
        _ => Err(corrupt(format_args!("text in the codec {}", codec.name()))),
    }
}

fn repeat(value: &[u8], count: usize) -> Result<Text> {
    if count == 0 {
        return Reader::new(value).expect_end().map(|()| Text::default());
    }
    let length = check_size(value.len().saturating_mul(count), MAX_PAGE_TEXT_BYTES)? / count;
    check_utf8(&Text { lengths: vec![length as i32], bytes: value.to_vec() })?;
    Ok(Text { lengths: vec![length as i32; count], bytes: value.repeat(count) })
}

fn check_size(bytes: usize, max: usize) -> Result<usize> {
    if bytes <= max.min(MAX_PAGE_TEXT_BYTES) {
        return Ok(bytes);
    }
    Err(corrupt(format_args!("{bytes} bytes of text, at most {max} are possible")))
}

fn decode_plain(codec: Codec, body: &[u8], count: usize) -> Result<Text> {
    let mut reader = Reader::new(body);
    let mut lengths = vec![0_i64; count];
    ints::decode(&mut reader, &mut lengths, |length| length)?;
    let mut bytes = 0_usize;
    for &length in &lengths {
        let length = usize::try_from(length).map_err(|_| corrupt("a text of negative length"))?;
        bytes = check_size(bytes.saturating_add(length), MAX_PAGE_TEXT_BYTES)?;
    }
    let bytes = if codec == Codec::Zstd {
        let frame = reader.rest();
        check_size(bytes, frame.len().saturating_mul(ZSTD_MAX_EXPANSION))?;
        heavy::decompress(frame, bytes)?
    } else {
        reader.take(bytes)?.to_vec()
    };
    reader.expect_end()?;
    let lengths = lengths.into_iter().map(|length| length as i32).collect();
    let text = Text { lengths, bytes };
    check_utf8(&text)?;
    Ok(text)
}

fn decode_dictionary(body: &[u8], count: usize) -> Result<Text> {
    let mut reader = Reader::new(body);
    let word_count = reader.count("distinct texts", count)?;
    let size = reader.count("bytes of distinct texts", reader.remaining())?;
    let mut words = Reader::new(reader.take(size)?);
    let words = match Codec::from_code(words.byte()?)? {
        codec @ (Codec::Raw | Codec::Zstd) => decode_plain(codec, words.rest(), word_count)?,
        codec => return Err(corrupt(format_args!("a dictionary in the codec {}", codec.name()))),
    };
    let codec = Codec::from_code(reader.byte()?)?;
    let mut codes = vec![0_u16; count];
    numeric::decode(codec, reader.rest(), &mut codes, Nesting::Codes)?;

    let mut at = 0;
    let mut slices: Vec<&[u8]> = Vec::with_capacity(word_count);
    for &length in &words.lengths {
        slices.push(&words.bytes[at..at + length as usize]);
        at += length as usize;
    }
    let largest = codes.iter().fold(0, |largest, &code| largest.max(code));
    if count > 0 && usize::from(largest) >= word_count {
        return Err(corrupt(format_args!("text {largest} of a dictionary of {word_count}")));
    }
    let lengths: Vec<i32> = codes.iter().map(|&code| words.lengths[usize::from(code)]).collect();
    let total = lengths.iter().map(|&length| length as usize).sum();
    let mut bytes = Vec::with_capacity(check_size(total, MAX_PAGE_TEXT_BYTES)?);
    for code in codes {
        bytes.extend_from_slice(slices[usize::from(code)]);
    }
    // Whole words are UTF-8 in any order, as each of them is.
    Ok(Text { lengths, bytes })
}

fn check_utf8(text: &Text) -> Result<()> {
    let all = std::str::from_utf8(&text.bytes)
        .map_err(|error| corrupt(format_args!("text that is not UTF-8: {error}")))?;
    let mut end = 0;
    for &length in &text.lengths {
        end += length as usize;
        if !all.is_char_boundary(end) {
            return Err(corrupt("a text that ends inside of a character"));
        }
    }
    Ok(())
}
