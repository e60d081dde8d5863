//! Reads a whole segment and checks that its parts agree.

use tidefall_ground::options::VerifyReport;
use tidefall_types::{Error, FieldType, Result, TableId};

use super::{Index, Segment};
use crate::leaves::Leaves;
use crate::metrics::Metrics;
use crate::order::CELL_ROWS;
use crate::ordinal::ordinals;

/// Adds to the report what is wrong with a segment that should be of a table and have so many rows.
pub fn verify(table: TableId, rows: u64, segment: &Segment, report: &mut VerifyReport) {
    let outcome = segment.check_size().and_then(|()| verify_whole(table, rows, segment, report));
    report.damages.extend(outcome.err());
}

fn verify_whole(
    table: TableId,
    rows: u64,
    segment: &Segment,
    report: &mut VerifyReport,
) -> Result<()> {
    let index = segment.index()?;
    let damaged = |why: String| Err(segment.locate(0, Error::corrupt(why)));
    if index.table != table {
        return damaged(format!("it is a segment of table {}, not of {table}", index.table));
    }
    let all_rows = index.leaves.all_rows() as u64;
    report.rows += all_rows;
    if all_rows != rows {
        return damaged(format!("it has {all_rows} rows, {rows} by the manifest"));
    }
    let metrics = segment.read_metrics(&index)?;
    report.blocks += index.leaves.len() as u64;
    for cell in 0..index.leaves.cells() {
        for (place, ((_, ty), metrics)) in index.layout.columns.iter().zip(&metrics).enumerate() {
            let checked = verify_column(segment, &index, (cell, place), *ty, metrics);
            report.damages.extend(checked.err());
        }
    }
    Ok(())
}

/// Checks that a column of a cell is what metrics and leaves say of it.
fn verify_column(
    segment: &Segment,
    index: &Index,
    (cell, place): (usize, usize),
    ty: FieldType,
    metrics: &Metrics,
) -> Result<()> {
    let column = segment.read_column(index, cell, place)?;
    let (found, first) = (Metrics::of(ty, &*column), cell * CELL_ROWS);
    let leaves = index.leaves.of_cell(cell);
    let differs = |(of_cell, leaf): (usize, usize)| {
        let (found, told) = (found.total(of_cell), metrics.total(leaf));
        // Of sums of floats NaN is not equal to itself.
        let sums = (found.sum.to_f64(), told.sum.to_f64());
        (found.count, found.least, found.greatest) != (told.count, told.least, told.greatest)
            || (sums.0.to_bits() != sums.1.to_bits() && !(sums.0.is_nan() && sums.1.is_nan()))
    };
    let start = index.column(cell, place).start;
    let damaged = |why: &str| {
        Err(segment.locate(start, Error::corrupt(format!("{why} of the rows from {first} on"))))
    };
    if leaves.clone().enumerate().any(differs) {
        return damaged("its metrics are not those");
    }
    let Some(dimension) = index.layout.dimensions.iter().position(|other| *other == place) else {
        return Ok(());
    };
    let spans = Leaves::of(&[ordinals(&*column).unwrap_or_default()]);
    let is_told = |(of_cell, leaf): (usize, usize)| {
        spans.region(of_cell).sides()[0] == index.leaves.region(leaf).sides()[dimension]
    };
    if leaves.enumerate().all(is_told) { Ok(()) } else { damaged("its leaves do not span those") }
}
