//! Reads the records in a union of boxes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::record_tables::leaves::Relation;
use tidefall_storage::record_tables::merge::Visible;
use tidefall_storage::record_tables::read::{Effort, Touched};
use tidefall_storage::record_tables::region::Regions;
use tidefall_storage::{BATCH_ROWS, RecordsSnapshot};
use tidefall_types::FieldId;

use crate::ahead::Batches;
use crate::error::to_datafusion;
use crate::live::Live;
use crate::reads::Tally;
use crate::source::{Source, SourceNode, sliced};

/// What is read.
#[derive(Debug)]
pub(super) struct Read {
    /// Where the rows are: in all of these.
    pub(super) regions: Vec<Regions>,
    /// Their columns.
    pub(super) fields: Vec<FieldId>,
    /// Under which names, and of which types.
    pub(super) arrow: SchemaRef,
}

/// The rows of some boxes, cell by cell.
struct RecordScan {
    snapshot: Arc<RecordsSnapshot>,
    read: Read,
    /// Where rows may be, and how the leaves there lie to the boxes.
    places: Vec<(Visible, Arc<[Relation]>)>,
    /// The cells that may have rows, each as its place and its number there.
    cells: Vec<(usize, usize)>,
    /// The cells of each partition.
    parts: Vec<Range<usize>>,
    effort: Effort,
    rows_about: usize,
}

/// A plan that reads in at most `partitions_max` partitions.
pub(super) fn plan(
    snapshot: &Arc<RecordsSnapshot>,
    read: Read,
    limit: Option<usize>,
    partitions_max: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let found = snapshot.places(&read.regions).map_err(to_datafusion)?;
    let (mut cells, mut effort, mut rows_about) = (Vec::new(), Effort::default(), 0);
    let mut places = Vec::with_capacity(found.len());
    for (number, (place, hidden)) in found.into_iter().enumerate() {
        let touched = Touched::new(&place, &read.regions, &hidden);
        cells.extend(touched.cells().map(|cell| (number, cell)));
        let of_place = touched.effort();
        effort.leaves += of_place.leaves;
        effort.cut += of_place.cut;
        rows_about += touched.rows_about();
        let relations = Arc::clone(touched.relations());
        places.push(((place, hidden), relations));
    }
    let few = limit.is_some_and(|limit| limit <= BATCH_ROWS);
    let parts_max = if few { 1 } else { partitions_max.max(1) };
    let each = cells.len().div_ceil(parts_max).max(1);
    let starts = (0..cells.len().max(1)).step_by(each);
    let parts = starts.map(|start| start..cells.len().min(start + each)).collect();
    let equivalence = EquivalenceProperties::new(Arc::clone(&read.arrow));
    let snapshot = Arc::clone(snapshot);
    let scan = RecordScan { snapshot, read, places, cells, parts, effort, rows_about };
    Ok(Arc::new(SourceNode::new(Arc::new(scan), equivalence, limit)))
}

impl std::fmt::Debug for RecordScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordScan").field("read", &self.read).finish_non_exhaustive()
    }
}

impl RecordScan {
    fn batch(&self, (number, cell): (usize, usize)) -> Result<RecordBatch> {
        let ((place, hidden), relations) = &self.places[number];
        let touched = Touched::again(place, &self.read.regions, hidden, Arc::clone(relations));
        let held: Vec<Option<usize>> =
            self.read.fields.iter().map(|id| place.layout().place(*id)).collect();
        let places: Vec<usize> = held.iter().flatten().copied().collect();
        let (rows, columns) = touched.columns_of(cell, &places).map_err(to_datafusion)?;
        let mut columns = columns.into_iter();
        let types = held.iter().zip(self.read.arrow.fields());
        // One that the place lacks came later; and of no row nothing is read.
        let columns: Vec<ArrayRef> = types
            .map(|(held, field)| {
                let column = held.and_then(|_| columns.next());
                column.unwrap_or_else(|| new_null_array(field.data_type(), rows))
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let arrow = Arc::clone(&self.read.arrow);
        Ok(RecordBatch::try_new_with_options(arrow, columns, &options)?)
    }
}

impl Source for RecordScan {
    fn name(&self) -> &'static str {
        "TidefallRecords"
    }

    fn describe(&self) -> String {
        let columns = self.read.arrow.fields().iter().map(|field| field.name().as_str());
        format!(
            "table={}, boxes={}, places={} of {}, leaves={}, cut={}, columns=[{}]",
            self.snapshot.schema().name,
            self.read.regions.iter().map(|regions| regions.boxes().len()).sum::<usize>(),
            self.places.len(),
            self.snapshot.all_places(),
            self.effort.leaves,
            self.effort.cut,
            columns.collect::<Vec<_>>().join(", ")
        )
    }

    fn partitions(&self) -> usize {
        self.parts.len()
    }

    fn rows_about(&self, partition: Option<usize>) -> Option<usize> {
        let all = self.cells.len().max(1);
        let part = partition.map_or(all, |at| self.parts[at].len());
        Some(self.rows_about * part / all)
    }

    fn open(
        self: Arc<Self>,
        partition: usize,
        _limit: Option<usize>,
        _live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        let stats = tally.start();
        let cells = self.parts[partition].clone();
        let batches = cells.map(move |at| {
            let batch = self.batch(self.cells[at])?;
            stats.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            Ok(batch)
        });
        Ok(sliced(batches.filter(|batch| !batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0))))
    }
}
