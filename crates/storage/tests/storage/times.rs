//! Times from the first to the last nanosecond there is.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{
    AggregateRequest, Bin, CascadeRequest, Db, Extreme, ReadStats, TableSnapshot, Target,
};
use tidefall_types::{Clock, FieldId, NS_PER_DAY, SystemClock, TimeRange};

use crate::small::{load, open, read, write};
use crate::{checked, rounds};

const FIELD: FieldId = FieldId(0);
const FAR: [i64; 2] = [i64::MIN, i64::MAX];

type Rows = BTreeMap<i64, i64>;

/// Times anywhere, at one step from one end to the other, or a few at the ends.
fn some_times(rng: &mut SmallRng) -> Vec<i64> {
    let count: i64 = rng.random_range(1..12);
    match rng.random_range(0..4) {
        0 => (0..count).map(|_| rng.random()).collect(),
        1 => {
            // As far apart as there is room for.
            let step = u64::MAX / count as u64;
            let step = (step - rng.random_range(0..step / 2)).min(i64::MAX as u64) as i64;
            let first = i64::MIN.saturating_add(rng.random_range(0..NS_PER_DAY));
            let time = |row| i128::from(first) + i128::from(row) * i128::from(step);
            (0..count).filter_map(|row| i64::try_from(time(row)).ok()).collect()
        }
        2 => {
            let at = FAR[rng.random_range(0..2)];
            (0..count).map(|row| at.saturating_add(row).saturating_sub(count / 2)).collect()
        }
        _ => {
            let now = SystemClock.now_ns();
            (0..count).map(|row| now - row * NS_PER_DAY).collect()
        }
    }
}

fn check(db: &Db, table: &str, rows: &Rows, range: TimeRange) {
    let all: Vec<(i64, i64)> = rows.iter().map(|(time, value)| (*time, *value)).collect();
    assert_eq!(read(db, table), all);
    let within: Vec<(i64, i64)> =
        all.iter().copied().filter(|(time, _)| range.contains(*time)).collect();
    let snapshot = db.snapshot(table).unwrap();
    let series = snapshot.read_sensor(0, &range, &[FIELD]).unwrap();
    let values = series.fields[0].as_primitive::<Int64Type>().values();
    let found: Vec<(i64, i64)> = series.time.iter().copied().zip(values.iter().copied()).collect();
    assert_eq!(found, within);
    let frame = snapshot.read_frame::<i64>(&[0], &range, FIELD).unwrap();
    let found: Vec<(i64, i64)> = frame.time.iter().copied().zip(frame.values).collect();
    assert_eq!(found, within);
    for (time, value) in &within {
        let found = snapshot.at(&[0], *time, FIELD).unwrap();
        assert_eq!(found.time, [*time]);
        assert_eq!(found.values.as_primitive::<Int64Type>().values(), &[*value]);
    }
    let latest = snapshot.latest(&[0], FIELD).unwrap();
    assert_eq!(latest.time.first(), all.last().map(|(time, _)| time));
    let lowest = snapshot.extremes::<i64>(&[0], &range, FIELD, Extreme::Lowest).unwrap();
    assert_eq!(lowest[0].map(|found| found.1), within.iter().map(|(_, value)| *value).min());
    let extent = snapshot.extent(&[0], &range).unwrap();
    let ends = within.first().zip(within.last());
    let ends = ends.map(|(first, last)| TimeRange::new(first.0, last.0));
    // It may be told from what is known without reading.
    assert!(extent.map(|(time, _)| time).is_none_or(|time| range.covers(&time)));
    assert!(ends.is_none_or(|ends| extent.is_some_and(|(time, _)| time.covers(&ends))));
    for bin in [None, Some(NS_PER_DAY), Some(1 << 40), Some(i64::MAX)] {
        let bin = bin.map(|width_ns| Bin { width_ns, origin_ns: 0 });
        check_aggregate(&snapshot, bin, range, &within);
    }
}

fn check_aggregate(
    snapshot: &TableSnapshot,
    bin: Option<Bin>,
    time: TimeRange,
    within: &[(i64, i64)],
) {
    let request = AggregateRequest {
        sensors: vec![0].into(),
        groups: vec![0],
        group_count: 1,
        time,
        bin,
        fields: vec![FIELD],
        deviations: true,
        extremes: true,
        ends: true,
    };
    let found = snapshot.aggregate(&request, &Arc::new(ReadStats::default())).unwrap();
    let mut lines: BTreeMap<i64, (u64, i64)> = BTreeMap::new();
    for (time, value) in within {
        let start = bin.map_or(i64::MIN, |bin| bin.start_of(*time));
        let line = lines.entry(start).or_default();
        *line = (line.0 + 1, line.1 + value);
    }
    assert_eq!(found.bin_start_ns, lines.keys().copied().collect::<Vec<_>>(), "{bin:?}");
    assert_eq!(found.rows, lines.values().map(|line| line.0).collect::<Vec<_>>(), "{bin:?}");
    let sums = found.fields[0].sum.as_primitive::<Int64Type>().values();
    assert_eq!(sums, &lines.values().map(|line| line.1).collect::<Vec<_>>()[..], "{bin:?}");
}

#[test]
fn readings_at_any_times_are_read_in_every_model() {
    for seed in 0..rounds(60) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let mut rows = Rows::new();
        for step in 0..6 {
            let times = some_times(&mut rng);
            let mut more: Vec<(i64, i64)> =
                times.iter().map(|time| (*time, rng.random_range(-9..9))).collect();
            more.sort_by_key(|row| row.0);
            more.dedup_by_key(|row| row.0);
            rows.extend(more.iter().copied());
            let target = [Target::ByAge, Target::Short, Target::Long][rng.random_range(0..3)];
            let is_loaded = rng.random_bool(0.3);
            let ends: (i64, i64) = (rng.random(), rng.random());
            let range = match rng.random_bool(0.5) {
                true => TimeRange::ALL,
                false => TimeRange::new(ends.0.min(ends.1), ends.0.max(ends.1)),
            };
            let act = || {
                match is_loaded {
                    true => drop(load(&db, "plant", &more)),
                    false => write(&db, "plant", &more),
                }
                check(&db, "plant", &rows, range);
                db.cascade(&CascadeRequest { table: None, target }).unwrap();
                check(&db, "plant", &rows, range);
            };
            checked(act, || format!("seed {seed}, step {step}: {target:?} of {more:?}"));
        }
        assert_eq!(db.verify().unwrap().damages, Vec::new(), "seed {seed}");
    }
}

#[test]
fn far_readings_make_no_objects_of_the_days_between() {
    let now = SystemClock.now_ns();
    let objects =
        |db: &Db| db.inspect().unwrap()[0].models.iter().map(|model| model.objects).sum::<u64>();
    for is_loaded in [false, true] {
        for far in [now, i64::MAX, i64::MIN] {
            let dir = tempfile::tempdir().unwrap();
            let db = open(&dir);
            let rows = [(now.min(far), 1), (now.max(far), 2)];
            match is_loaded {
                true => drop(load(&db, "plant", &rows)),
                false => write(&db, "plant", &rows),
            }
            for target in [Target::ByAge, Target::Short, Target::Long] {
                db.cascade(&CascadeRequest { table: None, target }).unwrap();
                assert!(objects(&db) <= 2, "{} objects for two readings", objects(&db));
            }
        }
    }
}
