//! The choice of a codec for the numbers of a page, and the way back.

use tidefall_types::{FieldType, Result};

use crate::bytes::{Reader, corrupt, put_varint};
use crate::ints::{self, Packing};
use crate::page::{Codec, Profile};
use crate::value::Number;
use crate::{decimal, heavy};

/// Runs must have at least this many values on average before they are tried.
const RUN_LENGTH_MIN: usize = 3;

/// Packing to more than this share of the raw bytes counts as noise, in per cent.
const NOISE_PERCENT: usize = 75;
/// On noise, pco over the floats themselves must save this much, in per cent. Reading noise is bound by the
/// bytes fetched, so that a small gain pays.
const PCO_MIN_SAVING_NOISE_PERCENT: usize = 2;
/// On fewer values the heavy codecs cannot make up for their headers.
const HEAVY_MIN_VALUES: usize = 256;
/// Delta + Zstandard must beat everything else by this much, in per cent: it is the slowest to decode.
const DELTA_ZSTD_MIN_SAVING_PERCENT: usize = 10;

/// Whether values may be stored as runs: the values of runs themselves may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    Allowed,
    Forbidden,
}

/// Chooses a codec for `values` (none of them null) and encodes them.
pub(crate) fn encode<T: Number>(
    values: &[T],
    profile: Profile,
    runs: Runs,
) -> Result<(Codec, Vec<u8>)> {
    let Some(first) = values.first() else { return Ok((Codec::Constant, Vec::new())) };
    let run_count = 1 + values.windows(2).filter(|pair| !pair[0].same(pair[1])).count();
    if run_count == 1 {
        let mut body = Vec::with_capacity(T::WIDTH);
        first.put(&mut body);
        return Ok((Codec::Constant, body));
    }
    let mut best = encode_light(values, profile);
    if runs == Runs::Allowed && run_count * RUN_LENGTH_MIN <= values.len() {
        let body = encode_runs(values, profile)?;
        if body.len() < best.1.len() {
            best = (Codec::Runs, body);
        }
    }
    if profile == Profile::Dense && values.len() >= HEAVY_MIN_VALUES {
        best = improve(values, best)?;
    }
    Ok(best)
}

/// The body of `values` in every codec that can hold them, with a name.
pub(crate) fn encode_all<T: Number>(values: &[T]) -> Result<Vec<(&'static str, Codec, Vec<u8>)>> {
    let mut all = vec![
        ("raw", Codec::Raw, encode_raw(values)),
        ("packed", Codec::Packed, encode_packed(values, Packing::Bits)),
        ("packed by pco", Codec::Packed, encode_packed(values, Packing::Pco)),
        ("runs", Codec::Runs, encode_runs(values, Profile::Fast)?),
        ("delta-zstd", Codec::DeltaZstd, heavy::encode_delta_zstd(values)?),
    ];
    for (name, packing) in [("decimal", Packing::Bits), ("decimal by pco", Packing::Pco)] {
        all.extend(decimal_body(values, packing).map(|body| (name, Codec::Decimal, body)));
    }
    if T::WIDTH > 1 {
        all.push(("pco", Codec::Pco, heavy::encode_pco(values)?));
    }
    Ok(all)
}

fn encode_light<T: Number>(values: &[T], profile: Profile) -> (Codec, Vec<u8>) {
    let raw_bytes = values.len() * T::WIDTH;
    let mut best: Option<(Codec, Vec<u8>)> =
        decimal_body(values, profile.into()).map(|body| (Codec::Decimal, body));
    let is_noise = |body: &[u8]| body.len() * 100 > raw_bytes * NOISE_PERCENT;
    if best.as_ref().is_none_or(|(_, body)| is_noise(body)) {
        let body = encode_packed(values, profile.into());
        if best.as_ref().is_none_or(|(_, least)| body.len() < least.len()) {
            best = Some((Codec::Packed, body));
        }
    }
    match best {
        Some(best) if best.1.len() < raw_bytes => best,
        _ => (Codec::Raw, encode_raw(values)),
    }
}

fn decimal_body<T: Number>(values: &[T], packing: Packing) -> Option<Vec<u8>> {
    if T::IS_FLOAT { decimal::encode(values, packing) } else { None }
}

fn encode_raw<T: Number>(values: &[T]) -> Vec<u8> {
    let mut body = Vec::with_capacity(values.len() * T::WIDTH);
    values.iter().for_each(|value| value.put(&mut body));
    body
}

fn encode_packed<T: Number>(values: &[T], packing: Packing) -> Vec<u8> {
    let integers: Vec<i64> = values.iter().map(|value| value.to_int()).collect();
    let mut body = Vec::with_capacity(values.len() * T::WIDTH / 2 + 16);
    ints::encode(&integers, packing, &mut body);
    body
}

/// ```text
/// runs: count varint, stream of `count` lengths, codec u8, body of `count` values
/// ```
fn encode_runs<T: Number>(values: &[T], profile: Profile) -> Result<Vec<u8>> {
    let mut firsts: Vec<T> = Vec::new();
    let mut lengths: Vec<i64> = Vec::new();
    for run in values.chunk_by(|a, b| a.same(*b)) {
        firsts.push(run[0]);
        lengths.push(run.len() as i64);
    }
    let mut body = Vec::new();
    put_varint(&mut body, firsts.len() as u64);
    ints::encode(&lengths, profile.into(), &mut body);
    let (codec, inner) = encode(&firsts, profile, Runs::Forbidden)?;
    body.push(codec as u8);
    body.extend_from_slice(&inner);
    Ok(body)
}

/// Takes a heavier codec in place of `best` where that is enough smaller.
fn improve<T: Number>(values: &[T], best: (Codec, Vec<u8>)) -> Result<(Codec, Vec<u8>)> {
    let is_noise = best.1.len() * 100 > values.len() * T::WIDTH * NOISE_PERCENT;
    if T::IS_FLOAT && is_noise {
        let candidate = (Codec::Pco, heavy::encode_pco(values)?);
        return Ok(better(candidate, best, PCO_MIN_SAVING_NOISE_PERCENT));
    }
    if matches!(T::TYPE, FieldType::I64 | FieldType::U64) {
        let candidate = (Codec::DeltaZstd, heavy::encode_delta_zstd(values)?);
        return Ok(better(candidate, best, DELTA_ZSTD_MIN_SAVING_PERCENT));
    }
    Ok(best)
}

fn better(
    candidate: (Codec, Vec<u8>),
    best: (Codec, Vec<u8>),
    min_saving_percent: usize,
) -> (Codec, Vec<u8>) {
    if candidate.1.len() * 100 <= best.1.len() * (100 - min_saving_percent) {
        candidate
    } else {
        best
    }
}

/// Decodes `out.len()` values of `codec`.
///
/// # Errors
/// `Corrupt` when the body does not hold exactly that many.
pub(crate) fn decode<T: Number>(
    codec: Codec,
    body: &[u8],
    out: &mut [T],
    runs: Runs,
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
        Codec::Decimal => decimal::decode(body, out),
        Codec::Runs if runs == Runs::Allowed => decode_runs(body, out),
        Codec::Pco => heavy::decode_pco(body, out),
        Codec::DeltaZstd => heavy::decode_delta_zstd(body, out),
        Codec::Runs | Codec::Dictionary | Codec::Zstd => {
            Err(corrupt(format_args!("numbers in the codec {}", codec.name())))
        }
    }
}

fn decode_runs<T: Number>(body: &[u8], out: &mut [T]) -> Result<()> {
    let mut reader = Reader::new(body);
    let count = reader.count("runs", out.len())?;
    let mut lengths = vec![0_i64; count];
    ints::decode(&mut reader, &mut lengths, |length| length)?;
    let codec = Codec::from_code(reader.byte()?)?;
    let mut firsts = vec![T::NULL; count];
    decode(codec, reader.rest(), &mut firsts, Runs::Forbidden)?;

    let mut rest = out;
    for (&value, &length) in firsts.iter().zip(&lengths) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let room = rest.len();
        let Some((run, tail)) = rest.split_at_mut_checked(length) else {
            return Err(corrupt(format_args!("a run of {length} values where {room} fit")));
        };
        run.fill(value);
        rest = tail;
    }
    match rest.len() {
        0 => Ok(()),
        left => Err(corrupt(format_args!("runs that leave {left} values open"))),
    }
}
