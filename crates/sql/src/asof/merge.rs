//! One pass over both sides, each ordered by keys and time.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use datafusion::arrow::compute::{SortOptions, interleave};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{Row, RowConverter, Rows, SortField};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExpr;
use futures::StreamExt;

use super::Nearest;
use crate::repeat::{BATCH_BYTES, Widths};

/// The keys of a side, and its time behind them.
pub(super) type Exprs = Vec<Arc<dyn PhysicalExpr>>;

/// The state of the pass.
pub(super) struct Merge {
    left: Side,
    right: Side,
    /// The batch of the right side that is being gone through, and the row in it.
    ahead: Option<(Arc<Keyed>, usize)>,
    is_right_over: bool,
    /// The last row of the right side that was passed.
    passed: Option<(Arc<Keyed>, usize)>,
    /// A null of each column of the right side.
    nulls: Vec<ArrayRef>,
    /// Rows of the left side that are not given yet, with their partners.
    found: Option<(RecordBatch, Partners)>,
    nearest: Nearest,
    schema: SchemaRef,
}

struct Side {
    stream: SendableRecordBatchStream,
    exprs: Exprs,
    converters: Arc<Converters>,
}

/// Make keys and times comparable; the same for both sides.
struct Converters {
    keys: Option<RowConverter>,
    time: RowConverter,
}

/// A batch with its keys and times in comparable form.
struct Keyed {
    batch: RecordBatch,
    keys: Option<Rows>,
    time: Rows,
    /// Whether one of keys and time is null; such a row has no partner.
    has_null: Vec<bool>,
    widths: Widths,
}

impl Keyed {
    fn key(&self, row: usize) -> Option<Row<'_>> {
        self.keys.as_ref().map(|keys| keys.row(row))
    }

    /// The order of a row and one of another batch, by keys, then by time.
    fn compare(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        let by_key = self.key(row).cmp(&other.key(other_row));
        by_key.then_with(|| self.time.row(row).cmp(&other.time.row(other_row)))
    }
}

impl Side {
    async fn next(&mut self) -> Result<Option<Keyed>> {
        while let Some(batch) = self.stream.next().await.transpose()? {
            if batch.num_rows() > 0 {
                return self.keyed(batch).map(Some);
            }
        }
        Ok(None)
    }

    fn keyed(&self, batch: RecordBatch) -> Result<Keyed> {
        let rows = batch.num_rows();
        let columns = self.exprs.iter().map(|expr| expr.evaluate(&batch)?.into_array(rows));
        let mut columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let mut has_null = vec![false; rows];
        for nulls in columns.iter().filter_map(|column| column.logical_nulls()) {
            has_null.iter_mut().zip(&nulls).for_each(|(has_null, valid)| *has_null |= !valid);
        }
        let time = columns.split_off(columns.len() - 1);
        let keys = self.converters.keys.as_ref();
        let keys = keys.map(|converter| converter.convert_columns(&columns)).transpose()?;
        let time = self.converters.time.convert_columns(&time)?;
        let widths = Widths::of_batch(&batch);
        Ok(Keyed { batch, keys, time, has_null, widths })
    }
}

impl Merge {
    pub(super) fn try_new(
        (left, right): (SendableRecordBatchStream, SendableRecordBatchStream),
        exprs: (Exprs, Exprs),
        nearest: Nearest,
        schema: SchemaRef,
        order: SortOptions,
    ) -> Result<Self> {
        let of_left = left.schema();
        let field = |expr: &Arc<dyn PhysicalExpr>| {
            Ok(SortField::new_with_options(expr.data_type(&of_left)?, order))
        };
        let mut fields = exprs.0.iter().map(field).collect::<Result<Vec<SortField>>>()?;
        let time = RowConverter::new(fields.split_off(fields.len() - 1))?;
        let keys = if fields.is_empty() { None } else { Some(RowConverter::new(fields)?) };
        let converters = Arc::new(Converters { keys, time });
        let of_right = right.schema();
        let nulls = of_right.fields().iter().map(|field| new_null_array(field.data_type(), 1));
        let nulls = nulls.collect();
        let side = |stream, exprs| Side { stream, exprs, converters: Arc::clone(&converters) };
        Ok(Self {
            left: side(left, exprs.0),
            right: side(right, exprs.1),
            ahead: None,
            is_right_over: false,
            passed: None,
            nulls,
            found: None,
            nearest,
            schema,
        })
    }

    /// The next rows of the left side with their partners, fewer where these are long; none at the end.
    pub(super) async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let found = match self.found.take() {
            Some(found) => Some(found),
            None => self.find().await?,
        };
        let Some((left, mut partners)) = found else { return Ok(None) };
        let rows = partners.rows_within(BATCH_BYTES);
        let rest = partners.places.split_off(rows);
        let mut columns = left.slice(0, rows).columns().to_vec();
        columns.extend(partners.columns(&self.nulls)?);
        if !rest.is_empty() {
            partners.places = rest;
            self.found = Some((left.slice(rows, left.num_rows() - rows), partners));
        }
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }

    /// The next batch of the left side, and its partners.
    async fn find(&mut self) -> Result<Option<(RecordBatch, Partners)>> {
        let Some(left) = self.left.next().await? else { return Ok(None) };
        let mut partners = Partners::default();
        for row in 0..left.batch.num_rows() {
            self.go_to(&left, row).await?;
            let found = if self.nearest.is_before { &self.passed } else { &self.ahead };
            let found = found.as_ref().filter(|(right, place)| {
                !left.has_null[row] && !right.has_null[*place] && right.key(*place) == left.key(row)
            });
            partners.push(found);
        }
        Ok(Some((left.batch, partners)))
    }

    /// Passes the rows of the right side that come before a row of the left one.
    async fn go_to(&mut self, left: &Keyed, row: usize) -> Result<()> {
        // Up to an equal time when the last one is wanted that is early enough, or the first that is later.
        let passes_equal = self.nearest.is_before == self.nearest.is_equal_enough;
        loop {
            if self.ahead.is_none() && !self.is_right_over {
                self.ahead = self.right.next().await?.map(|keyed| (Arc::new(keyed), 0));
                self.is_right_over = self.ahead.is_none();
            }
            let Some((right, place)) = &mut self.ahead else { return Ok(()) };
            match right.compare(*place, left, row) {
                Ordering::Less => {}
                Ordering::Equal if passes_equal => {}
                _ => return Ok(()),
            }
            if self.nearest.is_before {
                self.passed = Some((Arc::clone(right), *place));
            }
            *place += 1;
            if *place == right.batch.num_rows() {
                self.ahead = None;
            }
        }
    }
}

/// Rows of the right side for those of a batch of the left one.
#[derive(Default)]
struct Partners {
    batches: Vec<Arc<Keyed>>,
    /// Batch and row; batch 0 stands for nulls.
    places: Vec<(usize, usize)>,
}

impl Partners {
    fn push(&mut self, found: Option<&(Arc<Keyed>, usize)>) {
        let Some((batch, row)) = found else { return self.places.push((0, 0)) };
        // Partners come in the order of the right side.
        if self.batches.last().is_none_or(|last| !Arc::ptr_eq(last, batch)) {
            self.batches.push(Arc::clone(batch));
        }
        self.places.push((self.batches.len(), *row));
    }

    /// How many of the first rows have no more bytes than `most`; one at least.
    fn rows_within(&self, most: u64) -> usize {
        let mut bytes = 0_u64;
        let is_more = |(batch, row): &(usize, usize)| {
            let found = batch.checked_sub(1).and_then(|at| self.batches.get(at));
            bytes = bytes.saturating_add(found.map_or(0, |keyed| keyed.widths.of(*row)));
            bytes > most
        };
        self.places.iter().position(is_more).map_or(self.places.len(), |row| row.max(1))
    }

    fn columns(&self, nulls: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let column = |(column, null): (usize, &ArrayRef)| {
            let found = self.batches.iter().map(|keyed| &**keyed.batch.column(column));
            let arrays: Vec<&dyn Array> = std::iter::once(&**null).chain(found).collect();
            Ok(interleave(&arrays, &self.places)?)
        };
        nulls.iter().enumerate().map(column).collect()
    }
}
