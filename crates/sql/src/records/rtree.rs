//! `rtree('trips')`: the boxes of a table of records, for those who look: of each place, in memory and in segments, and of its leaves.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::{MemTable, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::Result;
use tidefall_storage::Db;
use tidefall_storage::record_tables::ordinal::column_of;
use tidefall_storage::record_tables::read::Place;
use tidefall_storage::record_tables::region::{Region, Regions};
use tidefall_types::Error;

use super::RecordsTable;
use crate::error::to_datafusion;
use crate::literals::{literal, text};

/// Leaves that are shown at most: who looks draws them, and all are made at once.
const LEAVES_MAX: usize = 1 << 18;

/// The function.
#[derive(Debug)]
pub(crate) struct Rtree {
    db: Db,
}

impl Rtree {
    pub(crate) const NAME: &'static str = "rtree";

    /// The function over the tables of `db`.
    pub(crate) const fn new(db: Db) -> Self {
        Self { db }
    }
}

/// What is said of a box.
#[derive(Default)]
struct Boxes {
    kind: Vec<&'static str>,
    place: Vec<i64>,
    leaf: Vec<Option<i64>>,
    rows: Vec<i64>,
    regions: Vec<Region>,
}

impl Boxes {
    fn push(
        &mut self,
        kind: &'static str,
        (place, leaf): (usize, Option<usize>),
        rows: usize,
        region: Region,
    ) {
        self.kind.push(kind);
        self.place.push(place as i64);
        self.leaf.push(leaf.map(|leaf| leaf as i64));
        self.rows.push(rows as i64);
        self.regions.push(region);
    }
}

impl TableFunctionImpl for Rtree {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let name = match args.exprs() {
            [name] => literal(name).and_then(text),
            _ => None,
        };
        let misused = || Error::invalid("rtree wants the name of a table, as in rtree('trips')");
        let name = name.ok_or_else(misused).map_err(to_datafusion)?;
        let table = RecordsTable::named(&self.db, name, Self::NAME).map_err(to_datafusion)?;
        let batch = boxes(&table)?;
        Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
    }
}

fn boxes(table: &RecordsTable) -> Result<RecordBatch> {
    let schema = table.table_schema();
    let all = [Regions::all(schema.dimensions.len())];
    let places = table.snapshot().places(&all).map_err(to_datafusion)?;
    let leaves: usize = places.iter().map(|(place, _)| place.leaves().len()).sum();
    if leaves > LEAVES_MAX {
        let name = &schema.name;
        return Err(to_datafusion(Error::limit(format!(
            "rtree shows {LEAVES_MAX} leaves at most, and {name} has {leaves}"
        ))));
    }
    let mut found = Boxes::default();
    for (number, (place, _)) in places.iter().enumerate() {
        let leaves = place.leaves();
        let kind = match place {
            Place::Memory(_) => "memory",
            Place::Stored(..) => "segment",
        };
        found.push(kind, (number, None), leaves.all_rows(), leaves.bounds());
        for leaf in 0..leaves.len() {
            let rows = leaves.leaf_rows(leaf);
            found.push("leaf", (number, Some(leaf)), rows, leaves.region(leaf));
        }
    }
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("kind".into(), Arc::new(StringArray::from(found.kind))),
        ("place".into(), Arc::new(Int64Array::from(found.place))),
        ("leaf".into(), Arc::new(Int64Array::from(found.leaf))),
        ("rows".into(), Arc::new(Int64Array::from(found.rows))),
    ];
    for (at, id) in schema.dimensions.iter().enumerate() {
        let field = &schema.fields[id.index()];
        let sides = || found.regions.iter().map(|region| region.sides()[at]);
        let first = column_of(field.ty, sides().map(|side| Some(side.first)));
        let last = column_of(field.ty, sides().map(|side| Some(side.last)));
        columns.push((format!("{}_first", field.name), first));
        columns.push((format!("{}_last", field.name), last));
    }
    let fields = columns
        .iter()
        .map(|(name, column)| Field::new(name, column.data_type().clone(), name == "leaf"));
    let arrow = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(arrow, columns.into_iter().map(|(_, column)| column).collect())?)
}
