//! Segments of records.

use std::sync::Arc;

use tidefall_ground::frames::{Content, TAIL_BYTES};
use tidefall_ground::options::VerifyReport;
use tidefall_records::distance::{At, Axis, Center};
use tidefall_records::merge::{AtOnce, merge};
use tidefall_records::read::{Place, Touched};
use tidefall_records::record::{decode_delete, decode_rows};
use tidefall_records::region::{Region, Regions, Side};
use tidefall_records::segment::{Caches, Index, Segment, verify};
use tidefall_simulation::MemDisk;
use tidefall_store::LocalIo;
use tidefall_types::{FieldType, ObjectId, Result, TableId, TableSchema};

use crate::check_error;
use crate::checksums::{put_u32, repair_column, repair_frame, repair_header};

/// A segment of records of arbitrary bytes, with its checksums as they are or repaired, or a record of the log: all ways to read it give rows that
/// agree, or an error.
pub fn records(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let outcome = match mode & 3 {
        2 => decode_rows(&schema(), data, Err).map(|columns| {
            let rows = columns[0].len();
            assert!(columns.iter().all(|column| column.len() == rows));
        }),
        3 => decode_delete(&schema(), data).map(drop),
        checksums => {
            let mut bytes = data.to_vec();
            if checksums == 1 {
                repair(&mut bytes);
            }
            read(&bytes)
        }
    };
    outcome.unwrap_or_else(|error| check_error(&error));
}

/// That of the seeds.
fn schema() -> TableSchema {
    let mut schema = TableSchema::records(TableId(0), "fuzz");
    let types = [FieldType::I64, FieldType::F64, FieldType::Text];
    let added = ["x", "y", "note"]
        .iter()
        .zip(types)
        .try_for_each(|(name, ty)| schema.add_field(name, ty).map(drop));
    assert!(
        added.is_ok() && schema.set_dimensions(&["x", "y"]).is_ok(),
        "the schema is a right one"
    );
    schema
}

/// Repairs header, tail, index, metrics and pages, as far as each can be found by what stands before it.
fn repair(bytes: &mut [u8]) {
    repair_header(Content::Records, bytes);
    let Some(tail) = bytes.len().checked_sub(TAIL_BYTES) else { return };
    let crc = crc32c::crc32c(&bytes[tail..tail + 12]);
    put_u32(bytes, tail + 12, crc);
    bytes[tail + 16..].copy_from_slice(Content::Records.magic());
    let mut offset = [0; 8];
    offset.copy_from_slice(&bytes[tail..tail + 8]);
    let offset = u64::from_le_bytes(offset);
    let place = usize::try_from(offset).ok();
    let Some(index) = place.and_then(|at| bytes.get_mut(at..tail)) else { return };
    repair_frame(index, 1);
    let Ok(index) = Index::decode(TableId(0), index, offset) else { return };
    // What it says of places was checked to lie before it.
    let metrics = index.metrics();
    repair_frame(&mut bytes[metrics.start as usize..metrics.end as usize], 0);
    for cell in 0..index.leaves.cells() {
        for column in 0..index.layout.columns.len() {
            let place = index.column(cell, column);
            repair_column(&mut bytes[place.start as usize..place.end as usize]);
        }
    }
}

fn read(bytes: &[u8]) -> Result<()> {
    let disk = MemDisk::new();
    let name = "objects/1.records";
    disk.place(name, bytes);
    let io = Arc::new(LocalIo::open_read_only(Arc::new(disk)));
    let caches = Arc::new(Caches::new(1 << 20));
    let segment = Segment::new(io, caches, ObjectId(1), name.into(), bytes.len() as u64);
    verify(TableId(0), 1, &segment, &mut VerifyReport::default());
    let place = Place::stored(&segment)?;
    let dimensions = place.layout().dimensions.len();
    let columns: Vec<usize> = (0..place.layout().columns.len()).collect();
    let narrow = Region::new(vec![Side::new(-5, 1 << 62); dimensions]);
    let none = Regions::default();
    for (asked, hidden) in [
        (Regions::all(dimensions), none.clone()),
        (Regions::of([narrow.clone()]), none.clone()),
        (Regions::all(dimensions), Regions::of([narrow])),
    ] {
        let asked = [asked];
        let touched = Touched::new(&place, &asked, &hidden);
        let mut read = 0;
        for cell in touched.cells() {
            let (rows, columns) = touched.columns_of(cell, &columns)?;
            assert!(columns.iter().all(|column| column.len() == rows));
            read += rows as u64;
        }
        let (rows, totals) = touched.totals(&columns)?;
        // Where leaves do not span what they hold the two may differ, which `verify` tells.
        assert!(totals.iter().all(|total| total.count <= rows.max(read)));
    }
    let layout = place.layout();
    let axes = (0..dimensions).map(|dimension| {
        let (_, ty) = layout.columns[layout.dimensions[dimension]];
        Axis { dimension, at: At::of(ty, 3.0), scale: 2.0 }
    });
    let center = Center { axes: axes.collect() };
    let to_leaves = center.to_leaves(place.layout(), place.leaves());
    assert!(to_leaves.len() == place.leaves().len() && !to_leaves.iter().any(|one| one.is_nan()));
    let layout = Arc::clone(place.layout());
    let at_once = AtOnce { rows: 0, text_bytes: 1 << 20 };
    merge(&layout, &[(place, none)], at_once, |_| Ok(()))
}
