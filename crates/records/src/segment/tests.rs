use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tidefall_codec::Profile;
use tidefall_ground::options::VerifyReport;
use tidefall_simulation::MemDisk;
use tidefall_store::{Disk, LocalIo, ObjectIo};
use tidefall_types::{ErrorKind, ObjectId, TableId};

use super::*;
use crate::order::CELL_ROWS;
use crate::packed::Packed;
use crate::testing::{layout, rows, stored};

fn damages(table: TableId, rows: u64, segment: &Segment) -> Vec<String> {
    let mut report = VerifyReport::default();
    verify(table, rows, segment, &mut report);
    report.damages.iter().map(ToString::to_string).collect()
}

#[test]
fn segments_hold_what_was_packed() {
    let mut rng = SmallRng::seed_from_u64(31);
    for profile in [Profile::Fast, Profile::Dense] {
        // All parts but the last fill their cells.
        let parts: Vec<_> = [2 * CELL_ROWS, CELL_ROWS, 1000]
            .map(|count| Arc::new(Packed::new(&layout(), &rows(&mut rng, count)).unwrap()))
            .into();
        let (segment, summary) = stored(&parts, profile);
        let all_rows = 3 * CELL_ROWS as u64 + 1000;
        assert_eq!(summary.rows, all_rows);
        assert_eq!(damages(TableId(7), all_rows, &segment), [""; 0]);
        assert!(damages(TableId(8), all_rows, &segment)[0].contains("of table 7, not of 8"));
        assert!(damages(TableId(7), 5, &segment)[0].contains("5 by the manifest"));
        let index = segment.index().unwrap();
        assert_eq!(index.leaves.bounds(), summary.bounds);
        let mut cell = 0;
        for part in &parts {
            for in_part in 0..part.leaves().cells() {
                let count = part.leaves().cell_rows(in_part);
                for (place, column) in part.columns().iter().enumerate() {
                    let found = segment.column(&index, cell, place).unwrap();
                    assert_eq!(
                        *found,
                        *column.slice(in_part * CELL_ROWS, count),
                        "column {place} of cell {cell}"
                    );
                }
                cell += 1;
            }
        }
    }
}

#[test]
fn every_damaged_byte_is_found() {
    let mut rng = SmallRng::seed_from_u64(32);
    let packed = Arc::new(Packed::new(&layout(), &rows(&mut rng, 1500)).unwrap());
    let disk = Arc::new(MemDisk::new());
    let io: Arc<dyn ObjectIo> =
        Arc::new(LocalIo::open(Arc::clone(&disk) as Arc<dyn Disk>, &["objects"]).unwrap());
    let name = "objects/1.records";
    let mut writer =
        SegmentWriter::new(io.writer(name).unwrap(), TableId(7), &layout(), Profile::Fast).unwrap();
    writer.append(encode_cell(&packed, 0, Profile::Fast).unwrap()).unwrap();
    writer.note(&packed).unwrap();
    writer.finish().unwrap();
    let whole = io.read_all(name).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        disk.place(name, &damaged);
        let segment = Segment::new(
            Arc::clone(&io),
            Arc::new(Caches::new(1 << 20)),
            ObjectId(1),
            name.into(),
            whole.len() as u64,
        );
        assert!(!damages(TableId(7), 1500, &segment).is_empty(), "byte {at} of {}", whole.len());
    }
    for bytes in [0, 10, 100, whole.len() - 1] {
        disk.place(name, &whole[..bytes]);
        let caches = Arc::new(Caches::new(1 << 20));
        let segment = Segment::new(Arc::clone(&io), caches, ObjectId(1), name.into(), bytes as u64);
        assert_eq!(segment.index().unwrap_err().kind(), ErrorKind::Corrupt, "{bytes} bytes");
    }
}

#[test]
fn a_segment_without_rows_is_refused() {
    let disk = Arc::new(MemDisk::new());
    let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open(disk, &["objects"]).unwrap());
    let out = io.writer("objects/1.records").unwrap();
    let writer = SegmentWriter::new(out, TableId(7), &layout(), Profile::Fast).unwrap();
    assert!(writer.finish().unwrap_err().message().contains("without rows"));
}
