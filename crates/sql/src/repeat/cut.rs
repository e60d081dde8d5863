//! Batches that are cut to as many rows as what comes next may repeat.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use tidefall_types::Error;

use super::widths::elements;
use super::{
    BATCH_BYTES, BATCH_BYTES_MAX, ROWS_FEW, Widths, has_length, rows_of, usual_rows, with_rows,
};
use crate::error::to_datafusion;
use crate::passing::{PassesRows, passes_rows_on};

/// Bytes of a row that any number of elements may repeat: about as many as elements have.
const SHORT_BYTES_MAX: u64 = 64;

/// What batches are cut for.
#[derive(Debug, Clone)]
pub(super) enum Cut {
    /// A join that repeats a row of the other side in each row of a batch, and rows of this one if it says so.
    Probe { is_repeated: bool },
    /// A node that gathers rows of more batches.
    Gathered,
    /// What puts the values of expressions into each row.
    Scalars(Vec<Arc<dyn PhysicalExpr>>),
    /// A node that repeats the other columns for each element of the lists, which are unnested so many times.
    Unnest { lists: Vec<(usize, usize)>, others: Vec<usize> },
}

/// Cuts the batches of its input.
#[derive(Debug)]
pub(super) struct CutExec {
    input: Arc<dyn ExecutionPlan>,
    cut: Cut,
}

impl CutExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, cut: Cut) -> Self {
        Self { input, cut }
    }
}

passes_rows_on!(CutExec);

impl PassesRows for CutExec {
    const NAME: &'static str = "Cut";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, cut: self.cut.clone() }
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        // What is below gathers as many rows as ever, except where the same rows go on to a projection.
        let below = match self.cut {
            Cut::Probe { .. } | Cut::Gathered => with_rows(&context, usual_rows(&context)),
            Cut::Scalars(_) | Cut::Unnest { .. } => Arc::clone(&context),
        };
        let input = self.input.execute(partition, below)?;
        let rows = match self.cut {
            // The batches of a filter do not follow from the context.
            Cut::Gathered => ROWS_FEW.min(context.session_config().batch_size()),
            _ => context.session_config().batch_size(),
        };
        let mut cutter = Cutter { cut: self.cut.clone(), rows, gathered: (0, 0) };
        let batches = input.map(move |batch| {
            let batch = batch?;
            let parts = cutter.parts(&batch)?.into_iter();
            let parts = parts
                .map(move |part| Ok::<_, DataFusionError>(batch.slice(part.start, part.len())));
            Ok::<_, DataFusionError>(futures::stream::iter(parts))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches.try_flatten())))
    }
}

struct Cutter {
    cut: Cut,
    /// Rows that what comes next gathers.
    rows: usize,
    /// Rows and bytes that it has gathered.
    gathered: (usize, u64),
}

impl Cutter {
    /// The parts of a batch.
    fn parts(&mut self, batch: &RecordBatch) -> Result<Vec<Range<usize>>> {
        match &self.cut {
            Cut::Probe { is_repeated } => {
                if *is_repeated && self.rows > 1 {
                    let longest = Widths::of_batch(batch).longest();
                    if longest.saturating_mul(self.rows as u64) > BATCH_BYTES_MAX {
                        return Err(too_long(
                            batch,
                            &format!(
                                "a join may repeat a row of {longest} bytes in each of {} rows",
                                self.rows
                            ),
                        ));
                    }
                }
                Ok(parts_of(batch.num_rows(), self.rows))
            }
            Cut::Gathered => self.gather(batch),
            Cut::Scalars(scalars) => {
                let mut bytes = 0_u64;
                for scalar in scalars {
                    if let ColumnarValue::Scalar(value) = scalar.evaluate(&batch.slice(0, 0))? {
                        let value = value.to_array_of_size(1)?;
                        bytes = bytes.saturating_add(Widths::of_columns([&value]).longest());
                    }
                }
                Ok(parts_of(batch.num_rows(), rows_of(bytes)))
            }
            Cut::Unnest { lists, others } => parts_to_unnest(batch, lists, others),
        }
    }

    /// Counts what is gathered of a batch. It is not cut: few rows of it are taken at a time.
    fn gather(&mut self, batch: &RecordBatch) -> Result<Vec<Range<usize>>> {
        let widths = Widths::of_batch(batch);
        let (rows, bytes) = &mut self.gathered;
        for row in 0..batch.num_rows() {
            if *rows >= self.rows {
                (*rows, *bytes) = (0, 0);
            }
            *rows += 1;
            *bytes = bytes.saturating_add(widths.of(row));
            if *bytes > BATCH_BYTES_MAX {
                let what = format!(
                    "{rows} rows that are gathered after they were repeated have {bytes} bytes"
                );
                return Err(too_long(batch, &what));
            }
        }
        Ok(parts_of(batch.num_rows(), usize::MAX))
    }
}

fn parts_of(rows: usize, most: usize) -> Vec<Range<usize>> {
    let most = most.max(1);
    (0..rows).step_by(most).map(|start| start..start.saturating_add(most).min(rows)).collect()
}

fn parts_to_unnest(
    batch: &RecordBatch,
    lists: &[(usize, usize)],
    others: &[usize],
) -> Result<Vec<Range<usize>>> {
    let repeated = Widths::of_columns(others.iter().map(|at| batch.column(*at)));
    let lists: Vec<Widths> =
        lists.iter().map(|(at, depth)| elements(&**batch.column(*at), *depth)).collect();
    let mut unnested = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let longest = lists.iter().map(|list| list.of(row)).max().unwrap_or(0);
        let bytes = longest.saturating_mul(repeated.of(row));
        if bytes > BATCH_BYTES_MAX && repeated.of(row) > SHORT_BYTES_MAX {
            return Err(too_long(
                batch,
                &format!(
                    "unnest would repeat a row of {} bytes for each of {longest} elements",
                    repeated.of(row)
                ),
            ));
        }
        unnested.push(bytes);
    }
    Ok(Widths::Each(unnested).parts(batch.num_rows(), BATCH_BYTES))
}

fn too_long(batch: &RecordBatch, what: &str) -> DataFusionError {
    to_datafusion(Error::limit(format!(
        "{what}, more than {BATCH_BYTES_MAX} bytes at once (long: {}); leave these columns out, shorten them, or compute \
         from them what is needed before they are repeated",
        long_columns(&batch.schema())
    )))
}

fn long_columns(schema: &Schema) -> String {
    let fields = schema.fields().iter().filter(|field| has_length(field.data_type()));
    // Lists that are unnested have names of the planner, and are not repeated.
    let long = fields.filter(|field| !field.name().starts_with("__unnest"));
    long.map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_all_rows() {
        assert_eq!(parts_of(5, 2), [0..2, 2..4, 4..5]);
        assert_eq!(parts_of(5, usize::MAX).first(), Some(&(0..5)));
        assert_eq!(parts_of(2, 0), [0..1, 1..2]);
        assert!(parts_of(0, 7).is_empty());
    }
}
