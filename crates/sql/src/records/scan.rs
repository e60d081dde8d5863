//! Reads the records in a union of boxes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::record_tables::leaves::Relation;
use tidefall_storage::record_tables::merge::Visible;
use tidefall_storage::record_tables::read::{Effort, Touched};
use tidefall_storage::record_tables::region::Regions;
use tidefall_storage::{BATCH_ROWS, Comparison, RecordsSnapshot, TimeOrder};
use tidefall_types::{ColumnKind, FieldId};

use crate::ahead::Batches;
use crate::error::to_datafusion;
use crate::live::{Around, Columns, Live};
use crate::reads::Tally;
use crate::source::{Source, SourceNode, sliced};

use super::knn::Near;

/// What is read.
#[derive(Debug)]
pub(super) struct Read {
    /// Where the rows are: in all of these.
    pub(super) regions: Vec<Regions>,
    /// Their columns.
    pub(super) fields: Vec<FieldId>,
    /// Under which names, and of which types.
    pub(super) arrow: SchemaRef,
    /// How far they are from a point, if that is asked for.
    pub(super) near: Option<Arc<Near>>,
}

impl Read {
    fn kinds(&self) -> Vec<ColumnKind> {
        self.fields.iter().map(|id| ColumnKind::Field(*id)).collect()
    }
}

/// Where rows may be, and how the leaves there lie to what is asked for.
struct Found {
    visible: Visible,
    relations: Arc<[Relation]>,
}

/// A cell that may have rows.
#[derive(Clone, Copy)]
struct Cell {
    /// The number of its place, ...
    place: usize,
    /// ... and its own there.
    cell: usize,
    /// No row is nearer.
    distance: f64,
}

/// The rows of some boxes, cell by cell.
#[derive(Clone)]
struct RecordScan {
    snapshot: Arc<RecordsSnapshot>,
    read: Arc<Read>,
    places: Arc<Vec<Found>>,
    cells: Vec<Cell>,
    /// The cells of each partition.
    parts: Vec<Range<usize>>,
    /// Whether cells come by their distance.
    is_by_distance: bool,
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
    for (number, visible) in found.into_iter().enumerate() {
        let (place, hidden) = &visible;
        let mut touched = Touched::new(place, &read.regions, hidden);
        let mut to_leaves = Vec::new();
        if let Some(near) = &read.near {
            to_leaves = near.center.to_leaves(place.layout(), place.leaves());
            touched = touched.without(|leaf| to_leaves[leaf] > near.within);
        }
        cells.extend(touched.cells().map(|cell| {
            let leaves = touched.leaves_of(cell).filter_map(|leaf| to_leaves.get(leaf).copied());
            let distance = leaves.reduce(f64::min).unwrap_or_default();
            Cell { place: number, cell, distance }
        }));
        effort = [effort, touched.effort()].into_iter().sum();
        rows_about += touched.rows_about();
        let relations = Arc::clone(touched.relations());
        places.push(Found { visible, relations });
    }
    let few = limit.is_some_and(|limit| limit <= BATCH_ROWS);
    let parts_max = if few { 1 } else { partitions_max.max(1) };
    let each = cells.len().div_ceil(parts_max).max(1);
    let starts = (0..cells.len().max(1)).step_by(each);
    let parts = starts.map(|start| start..cells.len().min(start + each)).collect();
    let equivalence = EquivalenceProperties::new(Arc::clone(&read.arrow));
    let scan = RecordScan {
        snapshot: Arc::clone(snapshot),
        read: Arc::new(read),
        places: Arc::new(places),
        cells,
        parts,
        is_by_distance: false,
        effort,
        rows_about,
    };
    Ok(Arc::new(SourceNode::new(Arc::new(scan), equivalence, limit)))
}

impl std::fmt::Debug for RecordScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordScan").field("read", &self.read).finish_non_exhaustive()
    }
}

impl RecordScan {
    fn batch(&self, Cell { place: number, cell, .. }: Cell) -> Result<RecordBatch> {
        let Found { visible: (place, hidden), relations } = &self.places[number];
        let touched = Touched::again(place, &self.read.regions, hidden, Arc::clone(relations));
        let layout = place.layout();
        let held = self.read.fields.iter().map(|id| layout.place(*id));
        let held: Vec<Option<usize>> = held.collect();
        let near = self.read.near.as_ref().filter(|near| self.read.fields.contains(&near.field));
        let axes = near.into_iter().flat_map(|near| &near.center.axes);
        let axes = axes.map(|axis| layout.dimensions[axis.dimension]);
        let places: Vec<usize> = held.iter().flatten().copied().chain(axes).collect();
        let (rows, mut columns) = touched.columns_of(cell, &places).map_err(to_datafusion)?;
        // Of no row nothing is read.
        let along = columns.split_off(columns.len().min(held.iter().flatten().count()));
        let mut columns = columns.into_iter();
        let fields = self.read.fields.iter().zip(&held).zip(self.read.arrow.fields());
        let columns: Vec<ArrayRef> = fields
            .map(|((id, held), field)| match near {
                Some(near) if near.field == *id && rows > 0 => distances(near, &along),
                // One that the place lacks came later.
                _ => {
                    let column = held.and_then(|_| columns.next());
                    column.unwrap_or_else(|| new_null_array(field.data_type(), rows))
                }
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let arrow = Arc::clone(&self.read.arrow);
        Ok(RecordBatch::try_new_with_options(arrow, columns, &options)?)
    }

    /// Which column has the distance.
    fn distance_at(&self) -> Option<(usize, &Near)> {
        let near = self.read.near.as_ref()?;
        Some((self.read.fields.iter().position(|id| *id == near.field)?, near))
    }
}

/// NULL where there is none.
fn distances(near: &Near, along: &[ArrayRef]) -> ArrayRef {
    let distances = near.center.distances(along).into_iter();
    Arc::new(Float64Array::from_iter(distances.map(|one| (!one.is_nan()).then_some(one))))
}

/// How far away a row may be by what filters say now.
fn wanted_within(around: &Around, distance: FieldId) -> f64 {
    if around.time().is_empty() {
        return f64::NEG_INFINITY;
    }
    let ends = around.conditions().into_iter().filter(|late| {
        let is_end = matches!(late.condition.op, Comparison::Lt | Comparison::LtEq);
        is_end && !late.or_null && late.condition.field == distance
    });
    ends.map(|late| late.condition.value).fold(f64::INFINITY, f64::min)
}

impl Source for RecordScan {
    fn name(&self) -> &'static str {
        "TidefallRecords"
    }

    fn describe(&self) -> String {
        let columns = self.read.arrow.fields().iter().map(|field| field.name().as_str());
        let order = if self.is_by_distance { ", nearest first" } else { "" };
        format!(
            "table={}, boxes={}, places={} of {}, leaves={}, cut={}, columns=[{}]{order}",
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

    fn is_narrowed_by(&self, filter: &Arc<dyn PhysicalExpr>) -> bool {
        let distance = self.distance_at().filter(|_| self.is_by_distance);
        distance.is_some_and(|(at, _)| {
            collect_columns(filter).iter().any(|column| column.index() == at)
        })
    }

    /// From the nearest cell on, where the column is the distance.
    fn by_time(&self, column: usize, order: TimeOrder) -> Option<Arc<dyn Source>> {
        let (distance, _) = self.distance_at()?;
        if column != distance || order != TimeOrder::OldestFirst {
            return None;
        }
        let mut nearest = Self { is_by_distance: true, ..self.clone() };
        nearest.cells.sort_by(|one, other| one.distance.total_cmp(&other.distance));
        // The partitions, whose number stays, take turns.
        let (sorted, count) = (std::mem::take(&mut nearest.cells), nearest.parts.len());
        for (part, range) in nearest.parts.iter_mut().enumerate() {
            let first = nearest.cells.len();
            nearest.cells.extend(sorted.iter().skip(part).step_by(count));
            *range = first..nearest.cells.len();
        }
        Some(Arc::new(nearest))
    }

    fn open(
        self: Arc<Self>,
        partition: usize,
        _limit: Option<usize>,
        mut live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        let stats = tally.start();
        let mut places = self.parts[partition].clone();
        let mut within = f64::INFINITY;
        let batches = std::iter::from_fn(move || {
            let cell = self.cells[places.next()?];
            if self.is_by_distance
                && let Some((_, near)) = self.distance_at()
            {
                let kinds = self.read.kinds();
                let columns = Columns { kinds: &kinds, schema: &near.schema };
                if let Some(around) = live.news(columns) {
                    within = wanted_within(&around, near.field);
                }
                // And so are all behind it.
                if cell.distance > within {
                    return None;
                }
            }
            let batch = self.batch(cell);
            if let Ok(batch) = &batch {
                stats.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            }
            Some(batch)
        });
        Ok(sliced(batches.filter(|batch| !batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0))))
    }
}
