//! The codecs that trade speed for size: `pco`, and differences with Zstandard.
//!
//! ```text
//! pco:        one standalone pco file
//! delta zstd: first value, then a Zstandard frame of the differences as i64, transposed so that
//!             the first bytes of all differences stand together, then the second bytes, ...
//! ```

use pco::standalone::{simple_compress, simple_decompress_into};
use pco::{ChunkConfig, ModeSpec};
use tidefall_types::{Error, Result};

use crate::bytes::{Reader, corrupt, put_signed};
use crate::value::Number;

/// Effort of pco, 0..12. On readings with three decimals 6 gives the size of the default 8 within a
/// quarter of a per cent, in half the time.
const PCO_LEVEL: usize = 6;
/// Effort of Zstandard, as in the comparison of the papers.
const ZSTD_LEVEL: i32 = 3;

/// Compresses with pco.
pub(crate) fn encode_pco<T: Number>(values: &[T]) -> Result<Vec<u8>> {
    let config = ChunkConfig::default().with_compression_level(PCO_LEVEL);
    simple_compress(values, &config)
        .map_err(|error| Error::invalid(format!("pco cannot compress a page: {error}")))
}

/// Compresses integers with pco, without its search for a unit, which is divided out already. The
/// digits of decimals mostly take fewer bytes this way than the floats do, and decode 1.3 to 1.8 times
/// faster. Nothing when pco cannot.
pub(crate) fn encode_pco_integers(values: &[i64]) -> Option<Vec<u8>> {
    let config =
        ChunkConfig::default().with_compression_level(PCO_LEVEL).with_mode_spec(ModeSpec::Classic);
    simple_compress(values, &config).ok()
}

/// Decodes `out.len()` values.
///
/// # Errors
/// `Corrupt` when the body does not hold exactly that many.
pub(crate) fn decode_pco<T: Number>(body: &[u8], out: &mut [T]) -> Result<()> {
    let progress =
        simple_decompress_into(body, out).map_err(|error| corrupt(format_args!("pco: {error}")))?;
    if progress.n_processed == out.len() && progress.finished {
        return Ok(());
    }
    Err(corrupt(format_args!("pco holds {} values of {}", progress.n_processed, out.len())))
}

/// Differences between neighbours, byte planes, Zstandard.
pub(crate) fn encode_delta_zstd<T: Number>(values: &[T]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let Some(first) = values.first() else { return Ok(body) };
    put_signed(&mut body, first.to_int());
    let count = values.len() - 1;
    let mut planes = vec![0_u8; count * 8];
    for (index, pair) in values.windows(2).enumerate() {
        let difference = pair[1].to_int().wrapping_sub(pair[0].to_int());
        for (plane, byte) in difference.to_le_bytes().into_iter().enumerate() {
            planes[plane * count + index] = byte;
        }
    }
    let frame = zstd::bulk::compress(&planes, ZSTD_LEVEL)
        .map_err(|error| Error::io("compressing a page", &error))?;
    body.extend_from_slice(&frame);
    Ok(body)
}

/// Decodes `out.len()` values.
///
/// # Errors
/// `Corrupt` when the body does not hold exactly that many.
pub(crate) fn decode_delta_zstd<T: Number>(body: &[u8], out: &mut [T]) -> Result<()> {
    let mut reader = Reader::new(body);
    let mut value = reader.signed()?;
    let Some((first, rest)) = out.split_first_mut() else { return reader.expect_end() };
    *first = T::from_int(value);
    let planes = decompress(reader.rest(), rest.len() * 8)?;
    for (index, to) in rest.iter_mut().enumerate() {
        let mut difference = [0; 8];
        for (byte, plane) in difference.iter_mut().zip(planes.chunks_exact(out_len(&planes))) {
            *byte = plane[index];
        }
        value = value.wrapping_add(i64::from_le_bytes(difference));
        *to = T::from_int(value);
    }
    Ok(())
}

/// The length of one of the eight byte planes; never 0, as slicing wants it.
fn out_len(planes: &[u8]) -> usize {
    (planes.len() / 8).max(1)
}

/// Decompresses a Zstandard frame of exactly `bytes` bytes.
pub(crate) fn decompress(frame: &[u8], bytes: usize) -> Result<Vec<u8>> {
    let content = zstd::bulk::decompress(frame, bytes)
        .map_err(|error| corrupt(format_args!("Zstandard: {error}")))?;
    if content.len() == bytes {
        return Ok(content);
    }
    Err(corrupt(format_args!("Zstandard holds {} bytes of {bytes}", content.len())))
}
