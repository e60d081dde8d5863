//! Blocks of metrics and the rows that they answer for.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use tidefall_simulation::MemDisk;
use tidefall_storage::{AggregateRequest, Bin, Db, ReadStats, TagFilter, Unknown};
use tidefall_types::{
    FieldId, ManualClock, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, Series, SeriesBatch, TimeRange,
};

use crate::asking::open;
use crate::history::START_NS;

const TABLE: &str = "notes";
/// Tests have chunks of at most 16 KiB of texts, and pieces of two of them.
const TEXT_BYTES: usize = 3_000;
/// Long ago: straight to long columns.
const FIRST_NS: i64 = START_NS - 400 * NS_PER_DAY;
/// Between the chunks, and within a bin of each width.
const WITHIN_NS: i64 = FIRST_NS + 10 * NS_PER_MINUTE + 50;

fn load(db: &Db, times: &[i64]) {
    let texts = StringArray::from_iter_values(times.iter().map(|_| "x".repeat(TEXT_BYTES)));
    let fields = vec![Arc::new(texts) as ArrayRef];
    let series = vec![Series { time: times.to_vec().into(), fields }];
    let batch = SeriesBatch { tags: Vec::new(), fields: vec!["note".into()], series };
    db.load(TABLE, &batch, Unknown::Create).unwrap();
}

/// Rows and values by bin, and the blocks that were answered from metrics.
fn counts(db: &Db, time: TimeRange, bin: Option<Bin>) -> (Vec<(i64, u64, u64)>, u64) {
    let snapshot = db.snapshot(TABLE).unwrap();
    let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
    let request = AggregateRequest {
        groups: vec![0; sensors.len()],
        group_count: 1,
        sensors: sensors.into(),
        time,
        bin,
        fields: vec![FieldId(0)],
        deviations: true,
        extremes: true,
        ends: true,
    };
    let stats = Arc::new(ReadStats::default());
    let found = snapshot.aggregate(&request, &stats).unwrap();
    let counts = found.rows.iter().zip(&found.fields[0].count);
    let lines = found.bin_start_ns.iter().zip(counts);
    let blocks = stats.blocks_from_metrics.load(std::sync::atomic::Ordering::Relaxed);
    (lines.map(|(bin, (rows, values))| (*bin, *rows, *values)).collect(), blocks)
}

/// A block of one object lies on both sides of a gap between its chunks; a block of another object lies within the
/// gap, or over one end of it. Whatever keeps the first block from answering for its time, the rows of the other must
/// not be counted from its metrics and as rows.
#[test]
fn a_block_within_the_gap_of_another_counts_once() {
    let outer: Vec<i64> =
        (0..10).map(|row| FIRST_NS + row + row / 5 * 30 * NS_PER_MINUTE).collect();
    let bins = [
        None,
        Some(Bin { width_ns: NS_PER_MINUTE, origin_ns: FIRST_NS + 2 }),
        Some(Bin { width_ns: NS_PER_HOUR, origin_ns: 0 }),
    ];
    let cut = TimeRange::new(FIRST_NS + 1, i64::MAX);
    let deleted = TimeRange::new(FIRST_NS + 2, FIRST_NS + 3);
    for start in [WITHIN_NS, FIRST_NS + 5, outer[5] - 2, outer[4] - 1] {
        let inner: Vec<i64> = (0..3).map(|row| start + 100 * row).collect();
        let db = open(MemDisk::new(), &Arc::new(ManualClock::new(START_NS))).unwrap();
        load(&db, &outer);
        load(&db, &inner);
        let mut all: Vec<i64> = outer.iter().chain(&inner).copied().collect();
        all.sort_unstable();
        all.dedup();
        for is_deleted in [false, true] {
            if is_deleted {
                db.delete(TABLE, &TagFilter::All, deleted).unwrap();
                all.retain(|time| !deleted.contains(*time));
            }
            for (time, bin) in
                [TimeRange::ALL, cut].into_iter().flat_map(|time| bins.map(|bin| (time, bin)))
            {
                let wanted: Vec<i64> =
                    all.iter().copied().filter(|at| time.contains(*at)).collect();
                let bin_of = |at: i64| bin.map_or(i64::MIN, |bin| bin.start_of(at));
                let wanted: Vec<(i64, u64, u64)> = wanted
                    .chunk_by(|one, next| bin_of(*one) == bin_of(*next))
                    .map(|rows| (bin_of(rows[0]), rows.len() as u64, rows.len() as u64))
                    .collect();
                let (found, blocks) = counts(&db, time, bin);
                let what = format!("from {}, {time}, {bin:?}, {is_deleted}", start - FIRST_NS);
                assert_eq!(found, wanted, "{what}");
                // The block within the gap is not read.
                let is_within = start == WITHIN_NS;
                assert!(!is_within || blocks > 0, "{what}");
            }
        }
    }
}
