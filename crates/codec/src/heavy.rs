//! The compressors that trade speed for size: `pco` for numbers, Zstandard for bytes.
//!
//! Contexts of Zstandard are kept for each thread: setting one up costs more than compressing a
//! small page.

use std::cell::RefCell;
use std::io;

use pco::standalone::{simple_compress, simple_decompress_into};
use pco::{ChunkConfig, ModeSpec};
use tidefall_types::{Error, Result};
use zstd::bulk::{Compressor, Decompressor};

use crate::bytes::corrupt;
use crate::value::Number;

/// Effort of pco, 0..12. On readings with three decimals 6 gives the size of the default 8 within a
/// quarter of a per cent, in half the time.
const PCO_LEVEL: usize = 6;
/// Of more bytes than this the compressor is not kept, as it grows with its input.
const KEPT_COMPRESSOR_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Whether pco looks for a unit, or for a unit with a remainder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitSearch {
    /// For streams, of which the unit is divided out already: twice as fast.
    Off,
    /// For a few values that are worth it.
    On,
}

/// Compresses floats with pco.
pub(crate) fn encode_pco<T: Number>(values: &[T]) -> Result<Vec<u8>> {
    let config = ChunkConfig::default().with_compression_level(PCO_LEVEL);
    simple_compress(values, &config)
        .map_err(|error| Error::invalid(format!("pco cannot compress a page: {error}")))
}

/// Compresses integers with pco. The digits of decimals mostly take fewer bytes this way than the
/// floats do, and decode 1.3 to 1.8 times faster. Nothing when pco cannot.
pub(crate) fn encode_pco_integers(values: &[i64], search: UnitSearch) -> Option<Vec<u8>> {
    let mode = match search {
        UnitSearch::Off => ModeSpec::Classic,
        UnitSearch::On => ModeSpec::Auto,
    };
    let config = ChunkConfig::default().with_compression_level(PCO_LEVEL).with_mode_spec(mode);
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

/// Compresses `bytes` into one Zstandard frame.
pub(crate) fn compress(bytes: &[u8], level: i32) -> Result<Vec<u8>> {
    let failed = |error| Error::io("compressing a page", &error);
    if bytes.len() > KEPT_COMPRESSOR_BYTES_MAX {
        return zstd::bulk::compress(bytes, level).map_err(failed);
    }
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => kept.insert(Compressor::new(level).map_err(failed)?),
        };
        compressor.set_compression_level(level).map_err(failed)?;
        compressor.compress(bytes).map_err(failed)
    })
}

/// Decompresses a Zstandard frame of exactly `out.len()` bytes.
///
/// # Errors
/// `Corrupt` when the frame is damaged or holds another number of bytes.
pub(crate) fn decompress_into(frame: &[u8], out: &mut [u8]) -> Result<()> {
    let bytes = out.len();
    check_size(with_decompressor(|kept| kept.decompress_to_buffer(frame, out)), bytes)
}

/// Decompresses a Zstandard frame of exactly `bytes` bytes, which the caller has bounded.
///
/// # Errors
/// As [`decompress_into`].
pub(crate) fn decompress(frame: &[u8], bytes: usize) -> Result<Vec<u8>> {
    let mut content = Vec::with_capacity(bytes);
    let found = with_decompressor(|kept| kept.decompress_to_buffer(frame, &mut content));
    check_size(found, bytes)?;
    Ok(content)
}

fn with_decompressor(
    run: impl FnOnce(&mut Decompressor<'static>) -> io::Result<usize>,
) -> io::Result<usize> {
    DECOMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(decompressor) => run(decompressor),
        None => run(kept.insert(Decompressor::new()?)),
    })
}

fn check_size(found: io::Result<usize>, bytes: usize) -> Result<()> {
    match found {
        Ok(found) if found == bytes => Ok(()),
        Ok(found) => Err(corrupt(format_args!("Zstandard holds {found} bytes of {bytes}"))),
        Err(error) => Err(corrupt(format_args!("Zstandard: {error}"))),
    }
}
