#![allow(clippy::unwrap_used)] // A test that cannot go on should stop.

use std::collections::BTreeMap;

use arrow_array::{ArrayRef, Float64Array};
use tidefall_codec::Profile;
use tidefall_ground::manifest::series::{Model, ObjectEntry};
use tidefall_simulation::MemDisk;
use tidefall_store::{LocalIo, ObjectIo, names};
use tidefall_types::{NS_PER_HOUR, NS_PER_MINUTE, ObjectId, Seq, TableId, TableSchema};

use super::*;
use crate::read::{Bin, LiveObject, LiveTombstone, Objects, Version};
use crate::rows::SensorRows;
use crate::segment::encode::{CHUNK_ROWS, EncodeParams, Stretch, encode_piece};
use crate::segment::{Segment, SegmentCaches, SegmentWriter};

const SENSOR: u32 = 0;
const STEP_NS: i64 = 1_000;
const FIELD: (FieldId, FieldType) = (FieldId(0), FieldType::F64);

type Row = (i64, f64);

/// An object with rows of one sensor, all of them one stretch.
fn object(id: u64, rows: &[Row]) -> Arc<LiveObject> {
    let id = ObjectId(id);
    let name = names::object(id, 0, Model::Long.name());
    let io = Arc::new(LocalIo::open(Arc::new(MemDisk::new()), &[names::OBJECTS_DIR]).unwrap());
    let params = EncodeParams {
        fields: vec![FIELD],
        block_ns: NS_PER_HOUR,
        profile: Profile::Fast,
        has_filters: false,
    };
    let mut writer =
        SegmentWriter::new(io.writer(&name).unwrap(), TableId(0), params.clone()).unwrap();
    let values: Float64Array = rows.iter().map(|(_, value)| Some(*value)).collect();
    let times = rows.iter().map(|(time, _)| *time).collect();
    let rows = SensorRows { times, fields: vec![Some(Arc::new(values) as ArrayRef)] };
    writer.append(encode_piece(SENSOR, &[Stretch::Rows(rows)], &params).unwrap()).unwrap();
    let summary = writer.finish().unwrap();
    let entry = ObjectEntry {
        since_ns: 0,
        id,
        writer: 0,
        model: Model::Long,
        last_seq: Seq(id.0),
        last_delete: Seq(0),
        is_distinct: false,
        time: summary.time,
        first_sensor: summary.first_sensor,
        last_sensor: summary.last_sensor,
        rows: summary.rows,
        bytes: summary.bytes,
    };
    let caches = Arc::new(SegmentCaches::new(1 << 20));
    let segment = Segment::new(io, caches, id, name.into(), entry.bytes);
    Arc::new(LiveObject { entry, segment, since_ns: 0 })
}

fn rows(first_ns: i64, count: usize) -> impl Iterator<Item = Row> {
    (0..count as i64).map(move |row| (first_ns + row * STEP_NS, row as f64))
}

/// Counts and sums by bin.
fn found(
    sources: &Sources,
    time: TimeRange,
    bin: Option<Bin>,
) -> (BTreeMap<i64, (u64, f64)>, AggregatePlan) {
    let request = AggregateRequest {
        sensors: vec![SENSOR].into(),
        groups: vec![0],
        group_count: 1,
        time,
        bin,
        fields: vec![FIELD.0],
        deviations: true,
        extremes: true,
        ends: true,
    };
    let fields: Arc<[(FieldId, FieldType)]> = Arc::new([FIELD]);
    let stats = Arc::new(ReadStats::default());
    let result = aggregate(sources, &request, &fields, 2, &stats).unwrap();
    let lines = result.bin_start_ns.iter().zip(&result.rows).zip(&result.fields[0].sum_f64);
    let lines = lines.map(|((bin, rows), sum)| (*bin, (*rows, *sum))).collect();
    (lines, plan(sources, &request, &fields).unwrap())
}

fn expected(
    rows: &[Row],
    time: TimeRange,
    bin: Option<Bin>,
    deleted: TimeRange,
) -> BTreeMap<i64, (u64, f64)> {
    let mut lines: BTreeMap<i64, (u64, f64)> = BTreeMap::new();
    for (at, value) in rows.iter().filter(|(at, _)| time.contains(*at) && !deleted.contains(*at)) {
        let line = lines.entry(bin.map_or(i64::MIN, |bin| bin.start_of(*at))).or_default();
        line.0 += 1;
        line.1 += value;
    }
    lines
}

/// A block of one object lies on both sides of a gap between its chunks; blocks of others lie within the gap, at
/// its edges, and over one of them. Whatever keeps the first block from being answered from its metrics must not
/// have the others counted as blocks and as rows.
#[test]
fn a_block_within_the_gap_of_another_counts_once() {
    let behind_gap = 30 * NS_PER_MINUTE;
    let outer: Vec<Row> = rows(0, CHUNK_ROWS).chain(rows(behind_gap, CHUNK_ROWS)).collect();
    let last_before = (CHUNK_ROWS as i64 - 1) * STEP_NS;
    let inner_starts = [
        10 * NS_PER_MINUTE,
        last_before + 1,
        behind_gap - 9 * STEP_NS - 1,
        last_before - 2 * STEP_NS - 1,
        behind_gap - 5 * STEP_NS - 1,
    ];
    let minutes = Some(Bin { width_ns: NS_PER_MINUTE, origin_ns: 7 });
    let days = Some(Bin { width_ns: 24 * NS_PER_HOUR, origin_ns: 0 });
    let cut = TimeRange::new(3 * STEP_NS, i64::MAX);
    let nothing = TimeRange::new(0, -1);
    let schema = Arc::new(TableSchema::new(TableId(1), "plant", "time"));
    let deleted = TimeRange::new(2 * STEP_NS, 4 * STEP_NS);
    for start in inner_starts {
        let inner: Vec<Row> = rows(start, 10).collect();
        let both: Vec<Row> = outer.iter().chain(&inner).copied().collect();
        let objects: Objects = [object(1, &outer), object(2, &inner)].into_iter().collect();
        let cases = [TimeRange::ALL, cut].into_iter().flat_map(|time| {
            [None, minutes, days]
                .into_iter()
                .flat_map(move |bin| [nothing, deleted].map(|deleted| (time, bin, deleted)))
        });
        for (time, bin, deleted) in cases {
            let tombstone = LiveTombstone { seq: Seq(9), time: deleted, sensors: None };
            let deletes = (!deleted.is_empty()).then_some(tombstone);
            let deletes = Arc::new(deletes.into_iter().collect());
            let (schema, objects) = (Arc::clone(&schema), objects.clone());
            let version = Arc::new(Version { schema, objects, deletes });
            let sources = Sources { runs: Vec::new(), version, settling: None };
            let (lines, plan) = found(&sources, time, bin);
            let wanted = expected(&both, time, bin, deleted);
            let what = format!("{start}, {time}, {bin:?}, deleted {deleted}");
            assert_eq!(lines, wanted, "{what}");
            // What lies in the gap alone is answered from its metrics all the same.
            let is_alone = start == inner_starts[0] && bin != minutes;
            assert!(!is_alone || plan.blocks_from_metrics >= 1, "{what}: {plan:?}");
        }
    }
}
