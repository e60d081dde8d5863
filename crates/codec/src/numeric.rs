//! The choice of a codec for the numbers of a page, and the way back.

use tidefall_types::{FieldType, Result};

use crate::bytes::{Reader, corrupt, put_varint};
use crate::dictionary::{self, Dictionary};
use crate::ints;
use crate::page::Codec;
use crate::stream::{Effort, Packing};
use crate::value::Number;
use crate::{decimal, heavy};

/// Runs must have at least this many values on average before they are tried.
const RUN_LENGTH_MIN: usize = 3;

/// Packing to more than this share of the raw bytes counts as noise, in per cent.
const NOISE_PERCENT: usize = 75;
/// On noise, pco over the floats themselves must save this much, in per cent. Reading noise is bound by the
/// bytes fetched, so that a small gain pays.
const PCO_MIN_SAVING_NOISE_PERCENT: usize = 2;
/// On fewer floats pco cannot make up for its headers.
const PCO_MIN_VALUES: usize = 256;
/// What a dictionary must save over all else, in per cent: it takes one more look-up for each value.
const DICTIONARY_MIN_SAVING_PERCENT: usize = 2;

/// Where numbers stand, which decides what they may be stored as: nesting ends after a few levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// The values of a page.
    Page,
    /// One value for each run: no runs again.
    Runs,
    /// The codes of a dictionary of texts: no dictionary of numbers on top.
    Codes,
    /// The distinct values of a dictionary: neither.
    Distinct,
}

impl Nesting {
    fn allows_runs(self) -> bool {
        matches!(self, Self::Page | Self::Codes)
    }

    fn allows_dictionary(self) -> bool {
        matches!(self, Self::Page | Self::Runs)
    }
}

/// A way to store some values.
enum Way<T> {
    /// As decimals, integers or bits.
    Plain,
    /// As single precision.
    Single(Vec<f32>),
    Runs,
    Dictionary(Dictionary<T>),
}

/// Chooses a codec for `values` (none of them null) and encodes them.
pub(crate) fn encode<T: Number>(
    values: &[T],
    effort: Effort,
    nesting: Nesting,
) -> Result<(Codec, Vec<u8>)> {
    let Some(first) = values.first() else { return Ok((Codec::Constant, Vec::new())) };
    let pairs = values.iter().zip(&values[1..]);
    let run_count = 1 + pairs.map(|(a, b)| usize::from(!a.same(*b))).sum::<usize>();
    if run_count == 1 {
        let mut body = Vec::with_capacity(T::WIDTH);
        first.put(&mut body);
        return Ok((Codec::Constant, body));
    }
    let way = singles(values).map_or(Way::Plain, Way::Single);
    let has_runs = nesting.allows_runs() && run_count * RUN_LENGTH_MIN <= values.len();
    let dictionary = (nesting.allows_dictionary() && effort != Effort::Light)
        .then(|| Dictionary::of(values))
        .flatten();
    if !has_runs && dictionary.is_none() {
        return encode_way(&way, values, effort, nesting);
    }
    let mut ways = vec![way];
    ways.extend(has_runs.then_some(Way::Runs));
    ways.extend(dictionary.map(Way::Dictionary));
    choose(values, ways, effort, nesting)
}

/// Encodes `values` in the one of `ways` in which a probe of them is smallest.
fn choose<T: Number>(
    values: &[T],
    mut ways: Vec<Way<T>>,
    effort: Effort,
    nesting: Nesting,
) -> Result<(Codec, Vec<u8>)> {
    let probe = match effort {
        Effort::Full | Effort::Thorough if ways.len() > 1 => Effort::Probe,
        effort => effort,
    };
    let mut best: Option<(usize, (Codec, Vec<u8>))> = None;
    for (index, way) in ways.iter().enumerate() {
        let found = encode_way(way, values, probe, nesting)?;
        let weight = match way {
            Way::Dictionary(_) => 100 + DICTIONARY_MIN_SAVING_PERCENT,
            _ => 100,
        };
        if best.as_ref().is_none_or(|(_, (_, body))| found.1.len() * weight < body.len() * 100) {
            best = Some((index, found));
        }
    }
    match best {
        Some((_, best)) if probe == effort => Ok(best),
        Some((index, _)) => encode_way(&ways.swap_remove(index), values, effort, nesting),
        None => encode_plain(values, effort),
    }
}

fn encode_way<T: Number>(
    way: &Way<T>,
    values: &[T],
    effort: Effort,
    nesting: Nesting,
) -> Result<(Codec, Vec<u8>)> {
    Ok(match way {
        Way::Plain => encode_plain(values, effort)?,
        Way::Single(singles) => (Codec::Single, encode_nested(singles, effort, nesting)?),
        Way::Runs => (Codec::Runs, encode_runs(values, effort)?),
        Way::Dictionary(dictionary) => (Codec::Dictionary, dictionary.encode(effort, distinct)?),
    })
}

/// The body of `values` in every codec that can hold them, with a name.
pub(crate) fn encode_all<T: Number>(values: &[T]) -> Result<Vec<(&'static str, Codec, Vec<u8>)>> {
    let mut all = vec![
        ("raw", Codec::Raw, encode_raw(values)),
        ("runs", Codec::Runs, encode_runs(values, Effort::Light)?),
    ];
    for (packed, decimal, packing) in [
        ("packed", "decimal", Packing::Frames),
        ("packed, pco", "decimal, pco", Packing::Pco),
        ("packed, planes", "decimal, planes", Packing::Planes),
        ("packed, rows", "decimal, rows", Packing::Rows),
    ] {
        let effort = Effort::Only(packing);
        all.push((packed, Codec::Packed, encode_packed(values, effort)));
        all.extend(decimal_body(values, effort).map(|body| (decimal, Codec::Decimal, body)));
    }
    if let Some(dictionary) = Dictionary::of(values) {
        all.push(("dictionary", Codec::Dictionary, dictionary.encode(Effort::Light, distinct)?));
        all.push((
            "dictionary, dense",
            Codec::Dictionary,
            dictionary.encode(Effort::Full, distinct)?,
        ));
    }
    if let Some(singles) = singles(values) {
        let body = encode_nested(&singles, Effort::Light, Nesting::Page)?;
        all.push(("single", Codec::Single, body));
    }
    if T::WIDTH > 1 {
        all.push(("pco", Codec::Pco, heavy::encode_pco(values)?));
    }
    Ok(all)
}

fn encode_plain<T: Number>(values: &[T], effort: Effort) -> Result<(Codec, Vec<u8>)> {
    let raw_bytes = values.len() * T::WIDTH;
    let mut best = decimal_body(values, effort).map(|body| (Codec::Decimal, body));
    let is_noise = |body: &[u8]| body.len() * 100 > raw_bytes * NOISE_PERCENT;
    if best.as_ref().is_none_or(|(_, body)| is_noise(body)) {
        let body = encode_packed(values, effort);
        if best.as_ref().is_none_or(|(_, least)| body.len() < least.len()) {
            best = Some((Codec::Packed, body));
        }
    }
    let best = match best {
        Some(best) if best.1.len() < raw_bytes => best,
        _ => (Codec::Raw, encode_raw(values)),
    };
    let try_pco = T::IS_FLOAT && values.len() >= PCO_MIN_VALUES && is_noise(&best.1);
    if try_pco && matches!(effort, Effort::Full | Effort::Thorough) {
        let body = heavy::encode_pco(values)?;
        if body.len() * 100 <= best.1.len() * (100 - PCO_MIN_SAVING_NOISE_PERCENT) {
            return Ok((Codec::Pco, body));
        }
    }
    Ok(best)
}

fn decimal_body<T: Number>(values: &[T], effort: Effort) -> Option<Vec<u8>> {
    if T::IS_FLOAT { decimal::encode(values, effort) } else { None }
}

fn encode_raw<T: Number>(values: &[T]) -> Vec<u8> {
    let mut body = Vec::with_capacity(values.len() * T::WIDTH);
    values.iter().for_each(|value| value.put(&mut body));
    body
}

fn encode_packed<T: Number>(values: &[T], effort: Effort) -> Vec<u8> {
    let integers: Vec<i64> = values.iter().map(|value| value.to_int()).collect();
    let mut body = Vec::with_capacity(values.len() * T::WIDTH / 2 + 16);
    ints::encode(&integers, effort, &mut body);
    body
}

/// ```text
/// runs: count varint, stream of `count` lengths, codec u8, body of `count` values
/// ```
fn encode_runs<T: Number>(values: &[T], effort: Effort) -> Result<Vec<u8>> {
    let mut firsts: Vec<T> = Vec::new();
    let mut lengths: Vec<i64> = Vec::new();
    for run in values.chunk_by(|a, b| a.same(*b)) {
        firsts.push(run[0]);
        lengths.push(run.len() as i64);
    }
    let mut body = Vec::new();
    put_varint(&mut body, firsts.len() as u64);
    ints::encode(&lengths, effort, &mut body);
    body.extend_from_slice(&encode_nested(&firsts, effort, Nesting::Runs)?);
    Ok(body)
}

/// The codec and the body that `values` take.
pub(crate) fn encode_nested<T: Number>(
    values: &[T],
    effort: Effort,
    nesting: Nesting,
) -> Result<Vec<u8>> {
    let (codec, inner) = encode(values, effort, nesting)?;
    let mut body = Vec::with_capacity(inner.len() + 1);
    body.push(codec as u8);
    body.extend_from_slice(&inner);
    Ok(body)
}

/// The distinct values of a dictionary.
fn distinct<T: Number>(values: &[T], effort: Effort) -> Result<Vec<u8>> {
    encode_nested(values, effort, Nesting::Distinct)
}

/// `values` in single precision, if they are doubles that all came from it and are no decimals
/// that are shorter.
fn singles<T: Number>(values: &[T]) -> Option<Vec<f32>> {
    // What a cast makes of the bits of NaN is not certain.
    let is_single = |value: &T| {
        let double = value.to_f64();
        !double.is_nan() && T::from_f64(f64::from(double as f32)).same(*value)
    };
    if T::TYPE != FieldType::F64 || !values.iter().all(is_single) {
        return None;
    }
    if decimal::digits_bits(values).is_some_and(|bits| bits <= f32::WIDTH * 8) {
        return None;
    }
    Some(values.iter().map(|value| value.to_f64() as f32).collect())
}

/// Decodes `out.len()` values of `codec`.
///
/// # Errors
/// `Corrupt` when the body does not hold exactly that many.
pub(crate) fn decode<T: Number>(
    codec: Codec,
    body: &[u8],
    out: &mut [T],
    nesting: Nesting,
) -> Result<()> {
    let mut reader = Reader::new(body);
    match codec {
        Codec::Constant => {
            let value = if out.is_empty() { T::NULL } else { T::get(reader.take(T::WIDTH)?) };
            out.fill(value);
            reader.expect_end()
        }
        Codec::Raw => {
            let bytes = reader.take(out.len() * T::WIDTH)?;
            for (to, from) in out.iter_mut().zip(bytes.chunks_exact(T::WIDTH)) {
                *to = T::get(from);
            }
            reader.expect_end()
        }
        Codec::Packed => {
            ints::decode(&mut reader, out, T::from_int)?;
            reader.expect_end()
        }
        Codec::Decimal => decimal::decode(body, out.len(), 0, out),
        Codec::Runs if nesting.allows_runs() => decode_runs(body, out),
        Codec::Dictionary if nesting.allows_dictionary() => {
            dictionary::decode(body, out, |reader, out| {
                decode_nested(reader, out, Nesting::Distinct)
            })
        }
        Codec::Pco => heavy::decode_pco(body, out),
        Codec::Single if T::TYPE == FieldType::F64 => decode_singles(body, out, nesting),
        Codec::Runs | Codec::Dictionary | Codec::Single | Codec::Zstd => {
            Err(corrupt(format_args!("numbers in the codec {}", codec.name())))
        }
    }
}

/// Decodes some of `len` values of a page: those from `first` on for which `out` has places. Where the codec
/// has vectors, only those that hold them are decoded.
pub(crate) fn decode_some<T: Number>(
    codec: Codec,
    body: &[u8],
    len: usize,
    first: usize,
    out: &mut [T],
) -> Result<()> {
    match codec {
        Codec::Packed => {
            let mut reader = Reader::new(body);
            ints::decode_some(&mut reader, len, first, out, T::from_int)?;
            reader.expect_end()
        }
        Codec::Decimal => decimal::decode(body, len, first, out),
        _ => {
            let mut all = vec![T::NULL; len];
            decode(codec, body, &mut all, Nesting::Page)?;
            out.copy_from_slice(&all[first..first + out.len()]);
            Ok(())
        }
    }
}

/// Decodes what [`encode_nested`] made, which is all that is left of `reader`.
pub(crate) fn decode_nested<T: Number>(
    reader: &mut Reader<'_>,
    out: &mut [T],
    nesting: Nesting,
) -> Result<()> {
    let codec = Codec::from_code(reader.byte()?)?;
    decode(codec, reader.rest(), out, nesting)
}

/// ```text
/// single: codec u8 and body of the values as f32
/// ```
fn decode_singles<T: Number>(body: &[u8], out: &mut [T], nesting: Nesting) -> Result<()> {
    let mut singles = vec![0_f32; out.len()];
    decode_nested(&mut Reader::new(body), &mut singles, nesting)?;
    for (to, single) in out.iter_mut().zip(singles) {
        *to = T::from_f64(f64::from(single));
    }
    Ok(())
}

fn decode_runs<T: Number>(body: &[u8], out: &mut [T]) -> Result<()> {
    let mut reader = Reader::new(body);
    let count = reader.count("runs", out.len())?;
    let mut lengths = vec![0_i64; count];
    ints::decode(&mut reader, &mut lengths, |length| length)?;
    let mut firsts = vec![T::NULL; count];
    decode_nested(&mut reader, &mut firsts, Nesting::Runs)?;

    let mut rest = out;
    for (&value, &length) in firsts.iter().zip(&lengths) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let left = rest.len();
        let Some((run, tail)) = rest.split_at_mut_checked(length) else {
            return Err(corrupt(format_args!("a run of {length} values where {left} fit")));
        };
        run.fill(value);
        rest = tail;
    }
    match rest.len() {
        0 => Ok(()),
        left => Err(corrupt(format_args!("runs that leave {left} values open"))),
    }
}
