//! Sorts of rows that come in a part of their order already, as all that was read by sensor does.
//!
//! Where rows are sorted by a first key, and shall be by a second, those of equal first keys, a *group*, stay together:
//! each is sorted by itself and given away, so that no more than a group is held. Small groups are sorted together, as
//! many as make a batch.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{concat, partition};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr};
use futures::{Stream, StreamExt, TryStreamExt};

use super::runs::Sorter;

/// How many of the first keys rows come in the order of.
pub(super) fn keys_in_order(rows: &EquivalenceProperties, keys: &LexOrdering) -> Result<usize> {
    for count in (1..keys.len()).rev() {
        if rows.ordering_satisfy(keys[..count].iter().cloned())? {
            return Ok(count);
        }
    }
    Ok(0)
}

/// Rows in groups that are sorted one after the other.
pub(super) struct Groups<F> {
    input: SendableRecordBatchStream,
    /// Rows of one group have the same values of these.
    by: Vec<Arc<dyn PhysicalExpr>>,
    /// A sorter of the first rows, so many, if not of all.
    sorter: F,
    /// Rows that are sorted together at least.
    least_rows: usize,
    /// Rows that are still wanted, if not all are.
    wanted: Option<usize>,
    /// Rows of the next group.
    next: Option<RecordBatch>,
    /// What the last row that came is grouped by.
    last: Option<Vec<ArrayRef>>,
}

impl<F: Fn(Option<usize>) -> Sorter> Groups<F> {
    pub(super) fn new(
        input: SendableRecordBatchStream,
        by: Vec<Arc<dyn PhysicalExpr>>,
        sorter: F,
        (least_rows, wanted): (usize, Option<usize>),
    ) -> Self {
        Self { input, by, sorter, least_rows, wanted, next: None, last: None }
    }

    /// All rows, or those that are wanted, in their order.
    pub(super) fn sorted(self) -> impl Stream<Item = Result<RecordBatch>> {
        futures::stream::try_unfold(self, |mut groups| async move {
            let sorted = groups.sort_next().await?;
            Ok::<_, DataFusionError>(sorted.map(|sorted| (sorted, groups)))
        })
        .try_flatten()
    }

    /// The next groups, sorted.
    async fn sort_next(&mut self) -> Result<Option<SendableRecordBatchStream>> {
        if self.wanted == Some(0) {
            return Ok(None);
        }
        let (mut sorter, mut rows) = ((self.sorter)(self.wanted), 0);
        loop {
            let batch = match self.next.take() {
                Some(batch) => batch,
                None => match self.input.next().await {
                    Some(batch) => batch?,
                    None => break,
                },
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let last_group = self.last_group(&batch)?;
            if let Some(start) = last_group
                && rows + start >= self.least_rows
            {
                sorter.push(batch.slice(0, start)).await?;
                rows += start;
                self.next = Some(batch.slice(start, batch.num_rows() - start));
                // It goes on from here.
                self.last = None;
                break;
            }
            rows += batch.num_rows();
            sorter.push(batch).await?;
        }
        if rows == 0 {
            return Ok(None);
        }
        self.wanted = self.wanted.map(|wanted| wanted.saturating_sub(rows));
        sorter.finish().await.map(Some)
    }

    /// Where in a batch the last group begins that begins there.
    fn last_group(&mut self, batch: &RecordBatch) -> Result<Option<usize>> {
        let rows = batch.num_rows();
        let values = self.by.iter().map(|by| by.evaluate(batch)?.into_array(rows));
        let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
        let start = partition(&values)?.ranges().last().map_or(0, |group| group.start);
        let before = self.last.replace(values.iter().map(|v| v.slice(rows - 1, 1)).collect());
        if start > 0 {
            return Ok(Some(start));
        }
        let Some(before) = before else { return Ok(None) };
        let ends = before.iter().zip(&values);
        let ends = ends.map(|(before, values)| Ok(concat(&[&**before, &*values.slice(0, 1)])?));
        let ends: Vec<ArrayRef> = ends.collect::<Result<_>>()?;
        Ok((partition(&ends)?.len() > 1).then_some(0))
    }
}
