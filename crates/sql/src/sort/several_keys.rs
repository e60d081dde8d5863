//! Sorts rows in memory by several keys.
//!
//! Keys are compared as Arrow's row format writes them, bytes after bytes. Most bytes of a key are the same in all rows: times of a
//! day share their first two, small integers all but the last. Of the bytes that differ the first eight, as one integer, decide most
//! comparisons; the rows themselves are looked at for what those leave open.

use datafusion::arrow::array::{Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::error::Result;
use datafusion::physical_expr::LexOrdering;

/// Bytes of a row that are looked at for some that differ.
const LOOKED_AT: usize = 64;

/// A batch in the order of its keys, or the first so many rows of it; rows with the same keys keep their order.
pub(super) fn sorted(
    batch: &RecordBatch,
    keys: &LexOrdering,
    fetch: Option<usize>,
) -> Result<RecordBatch> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for key in keys {
        let values = key.expr.evaluate(batch)?.into_array(batch.num_rows())?;
        fields.push(SortField::new_with_options(values.data_type().clone(), key.options));
        columns.push(values);
    }
    let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
    drop(columns);
    let mut order = order_of(&rows);
    drop(rows);
    order.truncate(fetch.unwrap_or(order.len()));
    Ok(take_record_batch(batch, &UInt32Array::from(order))?)
}

/// The numbers of the rows in their order.
fn order_of(rows: &Rows) -> Vec<u32> {
    let places = Places::of(rows);
    let mut keyed: Vec<(u64, u32)> =
        rows.iter().zip(0..).map(|(row, number)| (places.of_row(row.data()), number)).collect();
    match places.tell_all {
        true => keyed.sort_unstable(),
        false => keyed.sort_unstable_by(|(key, number), (other_key, other)| {
            let rest = || rows.row(*number as usize).cmp(&rows.row(*other as usize));
            key.cmp(other_key).then_with(rest).then(number.cmp(other))
        }),
    }
    keyed.into_iter().map(|(_, number)| number).collect()
}

/// Where the first bytes are that differ between rows.
#[derive(Debug)]
struct Places {
    /// At most eight, ascending, within the shortest row.
    differing: Vec<usize>,
    /// Rows whose bytes at these places are the same are the same as a whole.
    tell_all: bool,
}

impl Places {
    fn of(rows: &Rows) -> Self {
        let lengths = || rows.lengths();
        let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        let looked_at = least.min(LOOKED_AT);
        let mut differences = [0_u8; LOOKED_AT];
        let differences = &mut differences[..looked_at];
        if let Some(first) = rows.iter().next() {
            let first = &first.data()[..looked_at];
            for row in rows {
                let bytes = row.data()[..looked_at].iter().zip(first);
                for (differs, (byte, other)) in differences.iter_mut().zip(bytes) {
                    *differs |= byte ^ other;
                }
            }
        }
        let mut differing: Vec<usize> = (0..looked_at).filter(|at| differences[*at] != 0).collect();
        let tell_all = differing.len() <= size_of::<u64>() && looked_at == most;
        differing.truncate(size_of::<u64>());
        Self { differing, tell_all }
    }

    /// The bytes of a row at these places as one integer.
    fn of_row(&self, row: &[u8]) -> u64 {
        self.differing.iter().fold(0, |key, at| key << 8 | u64::from(row[*at]))
    }
}
