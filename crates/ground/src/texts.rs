//! The bytes of texts. A number takes as much as any other, and counting rows bounds what numbers take; a text may be
//! as long as it likes, so that work on columns of texts is bounded by their bytes as well. These follow from the
//! offsets of a column: nothing is done for each row, and nothing at all for numbers.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};

/// Bytes of texts that a chunk has at most, unless one row alone has more. A chunk is read as a whole: a reader, and
/// each part that it lays together with others, holds so much. Tests, which run with assertions, have less.
pub const CHUNK_TEXT_BYTES: usize = if cfg!(debug_assertions) { 16 << 10 } else { 1 << 20 };
/// Bytes of texts that a piece of a segment has: each thread that encodes holds a piece, and some more wait to be written.
pub const PIECE_TEXT_BYTES: usize = 2 * CHUNK_TEXT_BYTES;
/// Bytes of texts, encoded, that a stretch has which one thread rewrites; all of its pieces may wait to be written.
pub const STRETCH_TEXT_BYTES: usize = 2 * PIECE_TEXT_BYTES;
/// Bytes of texts that a batch of rows has, unless one row alone has more.
pub const BATCH_TEXT_BYTES: usize = CHUNK_TEXT_BYTES;
/// Bytes of a single text at most, about what the log takes at once. No page could hold one of more than 256 MiB.
pub const VALUE_BYTES_MAX: usize = 32 << 20;

fn offsets(column: &dyn Array) -> Option<&[i32]> {
    column.as_string_opt::<i32>().map(|texts| texts.value_offsets())
}

pub use tidefall_types::text_bytes;

/// The bytes of all texts of some columns.
pub fn all_text_bytes(columns: &[Option<ArrayRef>]) -> usize {
    columns.iter().flatten().map(|column| text_bytes(column, 0..column.len())).sum()
}

/// How many of the `rows` have texts of together at most `bytes_max`, counted from the first; one at least, if there
/// is one.
pub fn rows_within(columns: &[Option<ArrayRef>], rows: Range<usize>, bytes_max: usize) -> usize {
    let texts: Vec<&[i32]> =
        columns.iter().flatten().filter_map(|column| offsets(column)).collect();
    let bytes = |count: usize| -> usize {
        let ends = (rows.start, rows.start + count);
        texts.iter().map(|offsets| (offsets[ends.1] - offsets[ends.0]) as usize).sum()
    };
    first_within(rows.len(), bytes_max, bytes)
}

/// The most of `count` things of which `bytes`, which ascends, is within `bytes_max`; one at least, if there is one.
pub fn first_within(count: usize, bytes_max: usize, bytes: impl Fn(usize) -> usize) -> usize {
    if bytes(count) <= bytes_max {
        return count;
    }
    let (mut fits, mut over) = (count.min(1), count);
    while fits + 1 < over {
        let middle = fits + (over - fits) / 2;
        if bytes(middle) <= bytes_max { fits = middle } else { over = middle }
    }
    fits
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, StringArray};

    use super::*;

    #[test]
    fn rows_are_cut_by_the_bytes_of_their_texts() {
        let lengths = [3_usize, 0, 5, 100, 1, 1, 0, 7];
        let texts = StringArray::from_iter(lengths.iter().map(|length| match length {
            0 => None,
            length => Some("x".repeat(*length)),
        }));
        let numbers = Int64Array::from(vec![1; lengths.len()]);
        let columns: Vec<Option<ArrayRef>> = vec![
            Some(Arc::new(numbers)),
            None,
            Some(Arc::new(texts.clone())),
            Some(Arc::new(texts)),
        ];
        for first in 0..=lengths.len() {
            for end in first..=lengths.len() {
                for bytes_max in 0..250 {
                    let rows = rows_within(&columns, first..end, bytes_max);
                    let bytes = |rows| 2 * lengths[first..first + rows].iter().sum::<usize>();
                    let most = (0..=end - first).rev().find(|rows| bytes(*rows) <= bytes_max);
                    assert_eq!(rows, most.unwrap_or(0).max(1).min(end - first));
                }
            }
        }
        assert_eq!(all_text_bytes(&columns), 2 * 117);
        assert_eq!(rows_within(&columns[..2], 2..8, 0), 6, "numbers are not bounded by bytes");
    }
}
