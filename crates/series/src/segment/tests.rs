use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array};
use tidefall_codec::{Profile, decode_page};
use tidefall_ground::manifest::series::{Model, ObjectEntry};
use tidefall_ground::options::VerifyReport;
use tidefall_simulation::MemDisk;
use tidefall_store::{LocalIo, ObjectIo};
use tidefall_types::{FieldId, FieldType, NS_PER_HOUR, ObjectId, Seq, TableId, TimeRange};

use super::encode::{EncodeParams, Piece, Stretch, encode_piece};
use super::index::FRAME_BYTES_MAX;
use super::wanted::Wanted;
use super::writer::KEPT_BYTES_MAX;
use super::{Segment, SegmentCaches, SegmentWriter, verify_segment};
use crate::rows::SensorRows;

/// The value of a row.
fn value(sensor: u32, row: i64) -> f64 {
    f64::from(sensor) * 1_000.0 + (row * row % 613) as f64 / 4.0
}

/// Writes the rows of sensors, one each hour, and opens them.
fn segment(fields: u16, sensors: u32, rows: i64) -> (ObjectEntry, Segment) {
    segment_of(fields, sensors, rows, |_| {})
}

/// As [`segment`], of pieces that are changed.
fn segment_of(
    fields: u16,
    sensors: u32,
    rows: i64,
    change: impl Fn(&mut Piece),
) -> (ObjectEntry, Segment) {
    let params = EncodeParams {
        fields: (0..fields).map(|field| (FieldId(field), FieldType::F64)).collect(),
        block_ns: NS_PER_HOUR,
        profile: Profile::Fast,
        has_filters: true,
    };
    let io: Arc<dyn ObjectIo> =
        Arc::new(LocalIo::open(Arc::new(MemDisk::new()), &["objects"]).unwrap());
    let name = "objects/1.long";
    let mut writer =
        SegmentWriter::new(io.writer(name).unwrap(), TableId(0), params.clone()).unwrap();
    for sensor in 0..sensors {
        // Two pieces, of which none ends where a frame does.
        for part in [0..rows / 3, rows / 3..rows] {
            let values: ArrayRef = Arc::new(
                part.clone().map(|row| Some(value(sensor, row))).collect::<Float64Array>(),
            );
            let times = part.map(|row| row * NS_PER_HOUR).collect();
            let rows = SensorRows { times, fields: vec![Some(values); usize::from(fields)] };
            let mut piece = encode_piece(sensor, &[Stretch::Rows(rows)], &params).unwrap();
            change(&mut piece);
            writer.append(piece).unwrap();
            let (kept, max) = (writer.kept_bytes(), KEPT_BYTES_MAX + FRAME_BYTES_MAX);
            assert!(kept <= max, "{kept} bytes of frames are kept");
        }
    }
    let summary = writer.finish().unwrap();
    let entry = ObjectEntry {
        since_ns: 0,
        id: ObjectId(1),
        writer: 0,
        model: Model::Long,
        last_seq: Seq(1),
        last_delete: Seq(0),
        is_distinct: false,
        time: summary.time,
        first_sensor: summary.first_sensor,
        last_sensor: summary.last_sensor,
        rows: summary.rows,
        bytes: summary.bytes,
    };
    let caches = Arc::new(SegmentCaches::new(64 << 20));
    let segment = Segment::new(io, caches, entry.id, name.into(), entry.bytes);
    (entry, segment)
}

/// A frame had as many blocks whatever a block takes, and all of a sensor's.
#[test]
fn frames_are_bounded_by_bytes() {
    for (fields, sensors, rows) in [(1, 3, 9_000), (40, 60, 30), (700, 3, 90), (3_000, 2, 3)] {
        let (entry, segment) = segment(fields, sensors, rows);
        let what = format!("{fields} fields, {sensors} sensors, {rows} rows");
        // One block of many fields may be more than a frame should be.
        let block_bytes = usize::from(fields) * 160 + 200;
        let of_fields = usize::from(fields) * size_of::<super::metrics::FieldBlocks>();
        let frame_bytes = FRAME_BYTES_MAX.max(2 * block_bytes) + of_fields + 1_000;
        let mut found = 0;
        for position in 0..segment.metrics_block_count().unwrap() {
            let wanted = vec![Wanted::ALL; usize::from(fields)];
            let blocks = segment.metrics_block_at(position, &wanted).unwrap();
            let bytes = blocks.size_bytes();
            assert!(bytes <= frame_bytes, "{what}: {bytes} bytes of {} blocks", blocks.len());
            found += blocks.len();
        }
        assert_eq!(found as i64, i64::from(sensors) * rows, "{what}");
        for position in 0..segment.index_block_count().unwrap() {
            let bytes = segment.index_block_at(position).unwrap().size_bytes();
            // Offsets and lengths of pages take twice what is written of them.
            assert!(bytes <= 3 * FRAME_BYTES_MAX.max(2 * block_bytes), "{what}: {bytes} bytes");
        }
        let mut report = VerifyReport::default();
        verify_segment(TableId(0), &entry, &segment, &mut report);
        assert_eq!(report.damages, Vec::new(), "{what}");
        assert_eq!(report.rows as i64, i64::from(sensors) * rows, "{what}");
        assert_eq!(entry.time, TimeRange::new(0, (rows - 1) * NS_PER_HOUR));
    }
}

/// Index and metrics were kept until the end, and were many times the memory that a database may have.
#[test]
fn frames_lie_between_the_pieces_of_a_large_segment() {
    const SENSORS: u32 = 300;
    const ROWS: i64 = 90;
    let (entry, segment) = segment(2, SENSORS, ROWS);
    let mut report = VerifyReport::default();
    verify_segment(TableId(0), &entry, &segment, &mut report);
    assert_eq!(report.damages, Vec::new());
    let (mut ranges, mut found) = (Vec::new(), 0);
    for position in 0..segment.index_block_count().unwrap() {
        let index = segment.index_block_at(position).unwrap();
        for (place, &sensor) in index.sensors().iter().enumerate() {
            let chunk = index.chunk(place);
            let first = chunk.meta.first_ns / NS_PER_HOUR;
            let expected: Float64Array = (first..)
                .take(chunk.meta.rows as usize)
                .map(|row| Some(value(sensor, row)))
                .collect();
            for page in [chunk.field_page(0), chunk.field_page(1)] {
                let bytes = segment.read(page.clone()).unwrap();
                let values = decode_page(&bytes, FieldType::F64).unwrap();
                assert_eq!(values.as_primitive::<Float64Type>(), &expected);
                ranges.push(page);
            }
            found += chunk.meta.rows;
        }
    }
    assert_eq!(i64::from(found), i64::from(SENSORS) * ROWS);
    let gaps = ranges.windows(2).filter(|pair| pair[0].end < pair[1].start).count();
    assert!(gaps > 10, "frames lie at {gaps} places between the pieces");
    let bytes_before_gaps = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
    assert!(bytes_before_gaps, "pieces are not in their order");
}

/// Readers believe a filter: one that lacks a row would hide that it is replaced.
#[test]
fn a_row_that_the_filters_do_not_know_is_damage() {
    let verified = |lacks_a_row: bool| {
        let (entry, segment) = segment_of(1, 40, 90, |piece: &mut Piece| {
            let rows: u32 = piece.chunks.iter().map(|chunk| chunk.rows).sum();
            assert_eq!(piece.keys.len() as u32, rows);
            if lacks_a_row && piece.sensor == 31 && piece.chunks[0].first_ns == 0 {
                piece.keys.remove(7);
            }
        });
        let mut report = VerifyReport::default();
        verify_segment(TableId(0), &entry, &segment, &mut report);
        report.damages
    };
    assert_eq!(verified(false), Vec::new());
    let damages = verified(true);
    let [damage] = &damages[..] else { panic!("{damages:?}") };
    assert!(damage.to_string().contains("do not know the row of sensor 31"), "{damage}");
}

/// A question about two of 700 fields read the metrics of all, which had no room in the cache, so that the next one read them
/// again.
#[test]
fn metrics_are_read_of_the_fields_that_are_asked_for() {
    const FIELDS: u16 = 700;
    let (_, segment) = segment(FIELDS, 2, 90);
    let of_places = |wanted: Wanted, places: &[usize]| {
        let places: Vec<Option<usize>> = places.iter().copied().map(Some).collect();
        wanted.of_places(&places, usize::from(FIELDS))
    };
    let read = |wanted: &[Wanted]| {
        let frames = segment.metrics(1, 1, wanted).unwrap();
        let bytes: usize = frames.iter().map(|frame| frame.size_bytes()).sum();
        let blocks: usize = frames.iter().map(|frame| frame.len()).sum();
        assert!(frames.iter().all(|frame| frame.have(wanted)));
        bytes / blocks
    };
    let of_none = read(&of_places(Wanted::ALL, &[]));
    let more = |wanted: &[Wanted]| read(wanted) - of_none;
    assert!((16..60).contains(&more(&of_places(Wanted::RANGE, &[5]))));
    assert!((60..160).contains(&more(&of_places(Wanted::ALL, &[699]))));
    // What was read before is kept.
    assert!((60..160).contains(&more(&of_places(Wanted::RANGE, &[5, 699]))));
    assert!(more(&of_places(Wanted::ALL, &(0..700).collect::<Vec<_>>())) > 700 * 40);
}
