//! Which rows of a page have a value.
//!
//! ```text
//! bitmap: ceil(rows / 8) bytes, lowest bit first, 1 = the row has a value
//! runs:   count varint, stream of `count` lengths: rows with a value, rows without, with, ...
//! ```

use arrow_buffer::{BooleanBuffer, NullBuffer};
use tidefall_types::Result;

use crate::bytes::{Reader, corrupt, put_varint};
use crate::ints::{self, Packing};
use crate::page::MAX_PAGE_ROWS;

/// How the validity of a page is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Every row has a value; nothing is stored.
    All,
    Bitmap,
    Runs,
}

impl Form {
    pub(crate) fn from_code(code: u8) -> Result<Self> {
        match code {
            0 => Ok(Self::All),
            1 => Ok(Self::Bitmap),
            2 => Ok(Self::Runs),
            _ => Err(corrupt(format_args!("validity of unknown form {code}"))),
        }
    }
}

/// Appends the validity in its shorter form.
pub(crate) fn encode(nulls: &NullBuffer, out: &mut Vec<u8>) -> Form {
    if nulls.null_count() == 0 {
        return Form::All;
    }
    let mut lengths: Vec<i64> = Vec::new();
    let mut at = 0;
    for (start, end) in nulls.valid_slices() {
        lengths.push((start - at) as i64);
        lengths.push((end - start) as i64);
        at = end;
    }
    lengths.push((nulls.len() - at) as i64);
    // `lengths` starts with nulls; the form starts with values.
    lengths.insert(0, 0);

    let mut runs = Vec::new();
    put_varint(&mut runs, lengths.len() as u64);
    ints::encode(&lengths, Packing::Bits, &mut runs);
    let bitmap_bytes = nulls.len().div_ceil(8);
    if runs.len() < bitmap_bytes {
        out.extend_from_slice(&runs);
        return Form::Runs;
    }
    let start = out.len();
    out.resize(start + bitmap_bytes, 0);
    let bitmap = &mut out[start..];
    for index in nulls.valid_indices() {
        bitmap[index / 8] |= 1 << (index % 8);
    }
    Form::Bitmap
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
        let room = rows - valid.len();
        match usize::try_from(length) {
            Ok(length) if length <= room => {
                valid.resize(valid.len() + length, index.is_multiple_of(2));
            }
            _ => return Err(corrupt(format_args!("a run of {length} rows where {room} fit"))),
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
    for row in (0..out.len()).rev() {
        // Values only ever move up, so that none is overwritten before it has moved.
        if nulls.is_valid(row) {
            from -= 1;
            out[row] = out[from];
        } else {
            out[row] = null;
        }
    }
}
