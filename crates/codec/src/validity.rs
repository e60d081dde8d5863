//! Which rows of a page have a value.
//!
//! ```text
//! bitmap: ceil(rows / 8) bytes, lowest bit first, 1 = the row has a value
//! runs:   count varint, stream of `count` lengths: rows with a value, rows without, with, ...
//! zstd:   bytes varint, Zstandard frame of the bitmap
//! ```

use arrow_buffer::{BooleanBuffer, NullBuffer};
use tidefall_types::Result;

use crate::bytes::{Reader, corrupt, put_varint};
use crate::heavy;
use crate::ints;
use crate::profile::MAX_PAGE_ROWS;
use crate::stream::Effort;

/// Bitmaps below this size are not worth a Zstandard frame.
const ZSTD_MIN_BYTES: usize = 64;
const ZSTD_LEVEL: i32 = 11;
/// What Zstandard must save over the shorter of bitmap and runs, in per cent.
const ZSTD_MIN_SAVING_PERCENT: usize = 5;

/// How the validity of a page is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Every row has a value; nothing is stored.
    All,
    Bitmap,
    Runs,
    Zstd,
}

impl Form {
    pub(crate) fn from_code(code: u8) -> Result<Self> {
        match code {
            0 => Ok(Self::All),
            1 => Ok(Self::Bitmap),
            2 => Ok(Self::Runs),
            3 => Ok(Self::Zstd),
            _ => Err(corrupt(format_args!("validity of unknown form {code}"))),
        }
    }
}

/// The validity of a page, as it is stored.
#[derive(Debug)]
pub(crate) struct Validity {
    pub(crate) form: Form,
    pub(crate) rows: usize,
    pub(crate) nulls: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Validity {
    /// The validity of `rows` rows in its shortest form.
    pub(crate) fn encode(rows: usize, nulls: Option<&NullBuffer>, effort: Effort) -> Self {
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else {
            return Self { form: Form::All, rows, nulls: 0, bytes: Vec::new() };
        };
        let (runs, bitmap) = (encode_runs(nulls, effort), bitmap(nulls));
        let (mut form, mut bytes) = if runs.len() < bitmap.len() {
            (Form::Runs, runs)
        } else {
            (Form::Bitmap, bitmap.clone())
        };
        if effort != Effort::Light
            && bytes.len() >= ZSTD_MIN_BYTES
            && let Ok(frame) = heavy::compress(&bitmap, ZSTD_LEVEL)
            && frame.len() * 100 < bytes.len() * (100 - ZSTD_MIN_SAVING_PERCENT)
        {
            form = Form::Zstd;
            bytes.clear();
            put_varint(&mut bytes, frame.len() as u64);
            bytes.extend_from_slice(&frame);
        }
        Self { form, rows, nulls: nulls.null_count(), bytes }
    }
}

fn encode_runs(nulls: &NullBuffer, effort: Effort) -> Vec<u8> {
    let mut lengths: Vec<i64> = vec![0];
    let mut at = 0;
    for (start, end) in nulls.valid_slices() {
        lengths.push((start - at) as i64);
        lengths.push((end - start) as i64);
        at = end;
    }
    lengths.push((nulls.len() - at) as i64);
    let mut runs = Vec::new();
    put_varint(&mut runs, lengths.len() as u64);
    ints::encode(&lengths, effort, &mut runs);
    runs
}

fn bitmap(nulls: &NullBuffer) -> Vec<u8> {
    let mut bitmap = vec![0; nulls.len().div_ceil(8)];
    for index in nulls.valid_indices() {
        bitmap[index / 8] |= 1 << (index % 8);
    }
    bitmap
}

/// Reads the validity of `rows` rows of which `null_count` have no value.
///
/// # Errors
/// `Corrupt` when it does not describe that many.
pub(crate) fn decode(
    form: Form,
    rows: usize,
    null_count: usize,
    reader: &mut Reader<'_>,
) -> Result<Option<NullBuffer>> {
    let bits = match form {
        Form::All => return Ok(None),
        Form::Bitmap => BooleanBuffer::new(reader.take(rows.div_ceil(8))?.into(), 0, rows),
        Form::Runs => decode_runs(rows, reader)?,
        Form::Zstd => {
            let bytes = reader.count("bytes of validity", reader.remaining())?;
            let bitmap = heavy::decompress(reader.take(bytes)?, rows.div_ceil(8))?;
            BooleanBuffer::new(bitmap.into(), 0, rows)
        }
    };
    let nulls = NullBuffer::new(bits);
    if nulls.null_count() != null_count {
        return Err(corrupt(format_args!(
            "{} rows without a value, its header says {null_count}",
            nulls.null_count()
        )));
    }
    Ok(Some(nulls))
}

fn decode_runs(rows: usize, reader: &mut Reader<'_>) -> Result<BooleanBuffer> {
    // Runs of no row may stand at the start only, and are never worth more than two.
    let count = reader.count("runs of validity", MAX_PAGE_ROWS + 2)?;
    let mut lengths = vec![0_i64; count];
    ints::decode(reader, &mut lengths, |length| length)?;
    let mut valid = Vec::with_capacity(rows);
    for (index, &length) in lengths.iter().enumerate() {
        let left = rows - valid.len();
        match usize::try_from(length) {
            Ok(length) if length <= left => {
                valid.resize(valid.len() + length, index.is_multiple_of(2));
            }
            _ => return Err(corrupt(format_args!("a run of {length} rows where {left} fit"))),
        }
    }
    if valid.len() != rows {
        return Err(corrupt(format_args!("validity of {} rows of {rows}", valid.len())));
    }
    Ok(BooleanBuffer::from(valid))
}

/// Moves the first values of `out`, one for each valid row, to their rows, and puts `null` into
/// the other rows.
pub(crate) fn spread<T: Copy>(out: &mut [T], nulls: &NullBuffer, null: T) {
    let mut from = out.len() - nulls.null_count();
    let mut end = out.len();
    // Values only ever move up, so that none is overwritten before it has moved.
    let runs: Vec<(usize, usize)> = nulls.valid_slices().collect();
    for &(run_start, run_end) in runs.iter().rev() {
        out[run_end..end].fill(null);
        from -= run_end - run_start;
        out.copy_within(from..from + run_end - run_start, run_start);
        end = run_start;
    }
    out[..end].fill(null);
}
