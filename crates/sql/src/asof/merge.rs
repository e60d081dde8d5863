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
use crate::over::bytes_of;
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
    /// A batch of the left side whose rows from one on have not been looked at yet.
    rest: Option<(Keyed, usize)>,
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

/// Bytes of rows of the right side that are kept for those of the left one, beside those of the last batch: rows that are
/// far from each other would keep a whole batch each.
const KEPT_BYTES: usize = 8 << 20;

/// Rows, and how long each is.
struct Given {
    batch: RecordBatch,
    widths: Widths,
    bytes: usize,
}

impl Given {
    fn of(batch: RecordBatch) -> Self {
        let bytes = batch.columns().iter().map(|column| bytes_of(column)).sum();
        Self { widths: Widths::of_batch(&batch), batch, bytes }
    }
}

/// A batch with its keys and times in comparable form.
struct Keyed {
    given: Arc<Given>,
    keys: Option<Rows>,
    time: Rows,
    /// Whether one of keys and time is null; such a row has no partner.
    has_null: Vec<bool>,
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
        Ok(Keyed { given: Arc::new(Given::of(batch)), keys, time, has_null })
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
            rest: None,
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
        columns.extend(partners.columns(&self.nulls, &partners.places)?);
        if !rest.is_empty() {
            partners.places = rest;
            self.found = Some((left.slice(rows, left.num_rows() - rows), partners));
        }
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }

    /// The next rows of the left side, and their partners.
    async fn find(&mut self) -> Result<Option<(RecordBatch, Partners)>> {
        let (left, start) = match self.rest.take() {
            Some(rest) => rest,
            None => match self.left.next().await? {
                Some(left) => (left, 0),
                None => return Ok(None),
            },
        };
        let rows = left.given.batch.num_rows();
        let (mut partners, mut end) = (Partners::default(), start);
        while end < rows && !partners.are_enough(&self.nulls)? {
            self.go_to(&left, end).await?;
            let found = if self.nearest.is_before { &self.passed } else { &self.ahead };
            let found = found.as_ref().filter(|(right, place)| {
                !left.has_null[end] && !right.has_null[*place] && right.key(*place) == left.key(end)
            });
            partners.push(found.map(|(right, place)| (&right.given, *place)));
            end += 1;
        }
        let batch = left.given.batch.slice(start, end - start);
        self.rest = (end < rows).then_some((left, end));
        Ok(Some((batch, partners)))
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
            if *place == right.given.batch.num_rows() {
                self.ahead = None;
            }
        }
    }
}

/// Rows of the right side for those of a batch of the left one.
#[derive(Default)]
struct Partners {
    batches: Vec<Arc<Given>>,
    /// Batch and row; batch 0 stands for nulls.
    places: Vec<(usize, usize)>,
    /// Bytes of the batches, without the last one.
    bytes: usize,
}

impl Partners {
    fn push(&mut self, found: Option<(&Arc<Given>, usize)>) {
        let Some((batch, row)) = found else { return self.places.push((0, 0)) };
        // Partners come in the order of the right side.
        if self.batches.last().is_none_or(|last| !Arc::ptr_eq(last, batch)) {
            self.bytes += self.batches.last().map_or(0, |last| last.bytes);
            self.batches.push(Arc::clone(batch));
        }
        self.places.push((self.batches.len(), row));
    }

    /// Whether more would take too much memory, though nothing but rows that are partners is kept.
    fn are_enough(&mut self, nulls: &[ArrayRef]) -> Result<bool> {
        if self.bytes <= KEPT_BYTES {
            return Ok(false);
        }
        // Rows of the last batch are likely to have more partners.
        let Some(last) = self.batches.pop() else { return Ok(false) };
        let at_last = self.batches.len() + 1;
        let (mut kept, mut places) = (Vec::new(), Vec::with_capacity(self.places.len()));
        for place in &self.places {
            places.push(match *place {
                (0, _) => (0, 0),
                (batch, row) if batch == at_last => (2, row),
                found => {
                    // What is repeated is kept once.
                    if kept.last() != Some(&found) {
                        kept.push(found);
                    }
                    (1, kept.len() - 1)
                }
            });
        }
        let columns = self.columns(nulls, &kept)?;
        let batch = RecordBatch::try_new(last.batch.schema(), columns)?;
        let kept = Arc::new(Given::of(batch));
        self.bytes = kept.bytes;
        (self.batches, self.places) = (vec![kept, last], places);
        Ok(self.bytes > KEPT_BYTES / 2)
    }

    /// How many of the first rows have no more bytes than `most`; one at least.
    fn rows_within(&self, most: u64) -> usize {
        let mut bytes = 0_u64;
        let is_more = |(batch, row): &(usize, usize)| {
            let found = batch.checked_sub(1).and_then(|at| self.batches.get(at));
            bytes = bytes.saturating_add(found.map_or(0, |given| given.widths.of(*row)));
            bytes > most
        };
        self.places.iter().position(is_more).map_or(self.places.len(), |row| row.max(1))
    }

    /// The columns of the right side for rows at such places.
    fn columns(&self, nulls: &[ArrayRef], places: &[(usize, usize)]) -> Result<Vec<ArrayRef>> {
        let column = |(column, null): (usize, &ArrayRef)| {
            let found = self.batches.iter().map(|given| &**given.batch.column(column));
            let arrays: Vec<&dyn Array> = std::iter::once(&**null).chain(found).collect();
            Ok(interleave(&arrays, places)?)
        };
        nulls.iter().enumerate().map(column).collect()
    }
}
