//! Tables of records against a list of rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampNanosecondArray};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::record_tables::ordinal::ordinals;
use tidefall_storage::record_tables::read::Touched;
use tidefall_storage::record_tables::region::{Region, Regions, Side};
use tidefall_storage::{
    Ack, BadRows, CascadeRequest, Db, IfExists, Repair, TagFilter, Target, WriteOptions,
};
use tidefall_types::{
    ErrorKind, FieldColumn, FieldType, ManualClock, Result, TableId, TableSchema, TimeRange,
};

use crate::asking::{open, options};
use crate::history::START_NS;
use crate::rounds;

const TABLE: &str = "trips";

/// A row, of which the first two are dimensions; the float by its ordinal.
type Row = (i64, i64, Option<String>);

fn schema() -> TableSchema {
    let mut schema = TableSchema::records(TableId::default(), TABLE);
    schema.add_field("x", FieldType::I64).unwrap();
    schema.add_field("y", FieldType::F64).unwrap();
    schema.add_field("note", FieldType::Text).unwrap();
    schema.set_dimensions(&["x", "y"]).unwrap();
    schema
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START_NS))
}

fn new_db(disk: &MemDisk) -> Db {
    let db = open(disk.clone(), &clock()).unwrap();
    db.create_table(&schema(), IfExists::Keep).unwrap();
    db
}

/// What is asked of a database.
#[derive(Clone)]
enum Op {
    Write(Vec<(i64, f64, Option<String>)>, Ack),
    Delete(Regions),
    Flush,
    Cascade,
    Reopen,
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Write(rows, ack) => write!(f, "write {} rows, {ack:?}", rows.len()),
            Self::Delete(regions) => write!(f, "delete {} boxes", regions.boxes().len()),
            Self::Flush => f.write_str("flush"),
            Self::Cascade => f.write_str("cascade"),
            Self::Reopen => f.write_str("reopen"),
        }
    }
}

fn any_op(rng: &mut SmallRng) -> Op {
    match rng.random_range(0..20) {
        0..12 => {
            let rows = [1, 7, 400, 1_300, 9_000][rng.random_range(0..5)];
            let row = |rng: &mut SmallRng| {
                let y = if rng.random_bool(0.01) { f64::NAN } else { rng.random_range(-9.0..9.0) };
                let note = rng.random_bool(0.7).then(|| "n".repeat(rng.random_range(0..5)));
                (rng.random_range(-100..100), y, note)
            };
            let ack = if rng.random_bool(0.7) { Ack::Durable } else { Ack::Memory };
            Op::Write((0..rows).map(|_| row(rng)).collect(), ack)
        }
        12..15 => Op::Delete(any_regions(rng)),
        15..17 => Op::Flush,
        17..19 => Op::Cascade,
        _ => Op::Reopen,
    }
}

fn any_regions(rng: &mut SmallRng) -> Regions {
    let side = |ends: [i64; 2]| Side::new(ends[0].min(ends[1]), ends[0].max(ends[1]));
    let boxes = (0..rng.random_range(1..3)).map(|_| {
        let xs = [rng.random_range(-100..100), rng.random_range(-100..100)];
        let ys = [rng.random_range(-9.0..9.0), rng.random_range(-9.0..9.0)];
        let ys = ordinals(&Float64Array::from(ys.to_vec())).unwrap();
        let sides = [side(xs), side([ys[0], ys[1]])];
        Region::new(sides.map(|side| if rng.random_bool(0.3) { Side::ALL } else { side }))
    });
    Regions::of(boxes.collect::<Vec<_>>())
}

fn columns(rows: &[(i64, f64, Option<String>)]) -> Vec<FieldColumn> {
    let x: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let y: ArrayRef = Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.1)));
    let note: ArrayRef = Arc::new(StringArray::from_iter(rows.iter().map(|row| row.2.as_ref())));
    [("note", note), ("x", x), ("y", y)]
        .map(|(name, values)| FieldColumn { name: name.into(), values })
        .to_vec()
}

fn ask(db: &Db, op: &Op) -> Result<()> {
    match op {
        Op::Write(rows, ack) => {
            let options = WriteOptions { ack: *ack, ..WriteOptions::default() };
            let report = db.write_records(TABLE, &columns(rows), &options)?;
            assert_eq!(report.rows, rows.len());
            Ok(())
        }
        Op::Delete(regions) => db.delete_records(TABLE, regions),
        Op::Flush => db.flush().map(drop),
        Op::Cascade => {
            let table = Some(TABLE.to_owned());
            db.cascade(&CascadeRequest { table, target: Target::Long }).map(drop)
        }
        Op::Reopen => db.close(),
    }
}

/// The rows that there should be.
#[derive(Debug, Clone, Default)]
struct Model(Vec<Row>);

impl Model {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write(rows, _) => self.0.extend(rows.iter().map(|(x, y, note)| {
                let y = ordinals(&Float64Array::from(vec![*y])).unwrap()[0];
                (*x, y, note.clone())
            })),
            Op::Delete(regions) => self.0.retain(|row| !regions.contains(&[row.0, row.1])),
            Op::Flush | Op::Cascade | Op::Reopen => {}
        }
    }

    fn within(&self, regions: &Regions) -> Vec<Row> {
        let mut rows: Vec<Row> =
            self.0.iter().filter(|row| regions.contains(&[row.0, row.1])).cloned().collect();
        rows.sort();
        rows
    }
}

fn read(db: &Db, regions: &Regions) -> Result<Vec<Row>> {
    let snapshot = db.records(TABLE)?;
    let (mut rows, mut counted) = (Vec::new(), 0);
    let asked = std::slice::from_ref(regions);
    for (place, hidden) in snapshot.places(asked)? {
        let touched = Touched::new(&place, asked, &hidden);
        counted += touched.totals(&[0, 1, 2])?.0;
        for cell in touched.cells() {
            let (_, columns) = touched.columns_of(cell, &[0, 1, 2])?;
            let [x, y, note] = &columns[..] else { continue };
            let (x, y) = (x.as_primitive::<Int64Type>(), y.as_primitive::<Float64Type>());
            let y = ordinals(y).unwrap();
            let notes = note.as_string::<i32>().iter().map(|note| note.map(str::to_owned));
            rows.extend(x.values().iter().zip(y).zip(notes).map(|((x, y), note)| (*x, y, note)));
        }
    }
    assert_eq!(counted, rows.len() as u64);
    rows.sort();
    Ok(rows)
}

fn everything() -> Regions {
    Regions::all(2)
}

#[track_caller]
fn check(db: &Db, model: &Model, rng: &mut SmallRng, what: &str) {
    for regions in [everything(), any_regions(rng)] {
        let (found, expected) = (read(db, &regions).unwrap(), model.within(&regions));
        assert!(found == expected, "{what}: {} rows, not {}", found.len(), expected.len());
    }
}

#[test]
fn answers_are_those_of_a_list_of_rows_whatever_is_done() {
    for seed in 0..rounds(6) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = MemDisk::new();
        let (mut db, mut model) = (new_db(&disk), Model::default());
        for number in 0..60 {
            let op = any_op(&mut rng);
            ask(&db, &op).unwrap();
            if matches!(op, Op::Reopen) {
                db = open(disk.clone(), &clock()).unwrap();
            }
            model.apply(&op);
            check(&db, &model, &mut rng, &format!("seed {seed}, request {number}"));
        }
        ask(&db, &Op::Cascade).unwrap();
        let report = db.verify().unwrap();
        assert_eq!(report.damages, []);
        assert_eq!(report.rows, model.0.len() as u64);
        let table = db.inspect().unwrap().remove(0);
        assert_eq!((table.rows_in_memory, table.deletes), (0, 0), "{table:?}");
        let segments = table.segments.unwrap();
        assert_eq!(segments.rows, model.0.len() as u64);
        assert!(segments.objects < 3 * 8, "{segments:?}");
    }
}

/// What was acknowledged is found again, and what was not is there as a whole or not at all.
#[test]
fn power_may_be_lost_at_any_step() {
    for seed in 0..rounds(4) {
        let mut rng = SmallRng::seed_from_u64(1_000 + seed);
        let small = |op: Op| match op {
            Op::Write(mut rows, _) => {
                rows.truncate(700);
                Op::Write(rows, Ack::Durable)
            }
            op => op,
        };
        let ops: Vec<Op> = (0..25).map(|_| small(any_op(&mut rng))).collect();
        for steps in (0..).step_by(7) {
            let disk = MemDisk::new();
            drop(new_db(&disk));
            disk.lose_power_after(steps);
            let (mut model, mut failed) = (Model::default(), None);
            if let Ok(mut db) = open(disk.clone(), &clock()) {
                for op in &ops {
                    if ask(&db, op).is_err() {
                        failed = Some(op);
                        break;
                    }
                    model.apply(op);
                    if matches!(op, Op::Reopen) {
                        match open(disk.clone(), &clock()) {
                            Ok(opened) => db = opened,
                            Err(_) => {
                                failed = Some(op);
                                break;
                            }
                        }
                    }
                }
                let is_over = failed.is_none();
                drop(db);
                if is_over && steps > 0 {
                    break;
                }
            }
            let found = disk.crash(seed + steps);
            let what = format!("seed {seed}, step {steps}, {failed:?}");
            let db = open(found, &clock()).unwrap_or_else(|error| panic!("{what}: {error}"));
            let rows = read(&db, &everything()).unwrap();
            let mut with_failed = model.clone();
            failed.iter().for_each(|op| with_failed.apply(op));
            let possible = [model.within(&everything()), with_failed.within(&everything())];
            let counts = [rows.len(), possible[0].len(), possible[1].len()];
            assert!(possible.contains(&rows), "{what}: {counts:?} rows");
            assert_eq!(db.verify().unwrap().damages, [], "{what}");
        }
    }
}

#[test]
fn bad_rows_are_refused_or_set_aside() {
    let db = new_db(&MemDisk::new());
    let x: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let y: ArrayRef = Arc::new(StringArray::from(vec!["1", "2", "3"]));
    let column = |name: &str, values: &ArrayRef| FieldColumn {
        name: name.into(),
        values: Arc::clone(values),
    };
    let write = |columns: &[FieldColumn], bad_rows| {
        let options = WriteOptions { bad_rows, ..WriteOptions::default() };
        db.write_records(TABLE, columns, &options)
    };
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 2.0, 3.0]));
    let lacking = write(&[column("x", &x), column("y", &floats)], BadRows::Reject).unwrap_err();
    assert!(
        lacking.message().contains("row 2") && lacking.message().contains("\"x\" is a dimension"),
        "{lacking}"
    );
    let report = write(&[column("x", &x), column("y", &floats)], BadRows::SetAside).unwrap();
    assert_eq!((report.rows, report.bad.len(), report.bad[0].row), (2, 1, 1));
    let other = write(&[column("x", &x), column("y", &y)], BadRows::Reject).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Conflict, "{other}");
    assert!(
        write(&[column("x", &x)], BadRows::Reject)
            .unwrap_err()
            .message()
            .contains("\"y\" is a dimension")
    );
    let unknown = write(&[column("z", &x)], BadRows::Reject).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let twice = write(&[column("x", &x), column("x", &x)], BadRows::Reject).unwrap_err();
    assert!(twice.message().contains("twice"), "{twice}");
    // -0.0 is 0.0.
    let zero = Regions::of([Region::new(vec![Side::ALL, Side::new(0, 0)])]);
    assert_eq!(read(&db, &zero).unwrap(), [(1, 0, None)]);
}

/// What is older than the table keeps goes, but for an eighth of the age.
#[test]
fn old_records_go() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let (disk, clock) = (MemDisk::new(), clock());
    let db = open(disk.clone(), &clock).unwrap();
    let mut schema = TableSchema::records(TableId::default(), TABLE);
    schema.add_field("x", FieldType::I64).unwrap();
    schema.add_field("at", FieldType::Timestamp).unwrap();
    schema.set_dimensions(&["x", "at"]).unwrap();
    schema.options.retention_ns = Some(16 * HOUR_NS);
    db.create_table(&schema, IfExists::Fail).unwrap();
    let times = |from: i64, to: i64| -> Vec<i64> {
        (from..to).map(|minute| START_NS + minute * HOUR_NS / 60).collect()
    };
    // A part that is old as a whole soon, and one that reaches over many hours.
    for part in [times(0, 120), times(60, 2_000)] {
        let x: ArrayRef = Arc::new(Int64Array::from_iter_values(0..part.len() as i64));
        let at: ArrayRef = Arc::new(TimestampNanosecondArray::from(part));
        let columns =
            [("x", x), ("at", at)].map(|(name, values)| FieldColumn { name: name.into(), values });
        db.write_records(TABLE, &columns, &WriteOptions::default()).unwrap();
        db.flush().unwrap();
    }
    let left = |db: &Db| {
        let all = [Regions::all(2)];
        let places = db.records(TABLE).unwrap().places(&all).unwrap();
        let rows = places
            .iter()
            .map(|(place, hidden)| Touched::new(place, &all, hidden).totals(&[]).unwrap().0);
        rows.sum::<u64>()
    };
    let tend = |hours: i64| {
        clock.set(START_NS + hours * HOUR_NS);
        db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    };
    tend(16);
    assert_eq!(left(&db), 120 + 1_940, "nothing is old");
    // The second part begins an hour before the limit, which is less than two hours.
    tend(18);
    assert_eq!(left(&db), 1_940);
    // Neither do rows stay that are in memory.
    let late = [
        ("x", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
        ("at", Arc::new(TimestampNanosecondArray::from(times(0, 1)))),
    ];
    let late = late.map(|(name, values)| FieldColumn { name: name.into(), values });
    db.write_records(TABLE, &late, &WriteOptions::default()).unwrap();
    // Now all that is older than 20 - 16 hours.
    tend(20);
    assert_eq!(left(&db), 2_000 - 4 * 60);
    tend(21);
    assert_eq!(left(&db), 2_000 - 4 * 60);
    drop(db);
    let db = open(disk, &clock).unwrap();
    assert_eq!(left(&db), 2_000 - 4 * 60);
    assert_eq!(db.verify().unwrap().damages, []);
}

#[test]
fn tables_of_one_kind_are_none_of_the_other() {
    let db = new_db(&MemDisk::new());
    let mut series = TableSchema::new(TableId::default(), "plant", "time");
    series.add_field("v", FieldType::F64).unwrap();
    db.create_table(&series, IfExists::Fail).unwrap();
    assert_eq!(db.records("plant").unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(db.snapshot(TABLE).unwrap_err().kind(), ErrorKind::Conflict);
    let of_time = db.delete(TABLE, &TagFilter::All, TimeRange::ALL).unwrap_err();
    assert!(of_time.message().contains("is of records"), "{of_time}");
    assert_eq!(db.records("none").unwrap_err().kind(), ErrorKind::NotFound);
    let mut without = TableSchema::records(TableId::default(), "without");
    without.add_field("x", FieldType::I64).unwrap();
    assert!(db.create_table(&without, IfExists::Fail).unwrap_err().message().contains("dimension"));
    db.drop_table(TABLE).unwrap();
    assert_eq!(db.records(TABLE).unwrap_err().kind(), ErrorKind::NotFound);
}

/// A log that is damaged behind its first records, and a segment that is gone.
#[test]
fn a_repair_keeps_what_can_be_read() {
    let disk = MemDisk::new();
    let write =
        |db: &Db, x: i64| ask(db, &Op::Write(vec![(x, 0.5, None); 3], Ack::Durable)).unwrap();
    let db = new_db(&disk);
    write(&db, 1);
    db.flush().unwrap();
    write(&db, 2);
    db.close().unwrap();
    let objects = crate::image::files(&disk);
    let (name, bytes) = objects.into_iter().find(|(name, _)| name.ends_with(".records")).unwrap();
    disk.place(&name, &bytes[..bytes.len() - 9]);
    let repaired = Db::repair_on(Arc::new(disk.clone()), options(&clock()), Repair::Mend).unwrap();
    assert_eq!(repaired.losses.len(), 1, "{repaired:?}");
    assert!(repaired.losses[0].what.contains("3 rows of table trips"), "{repaired:?}");
    let db = open(disk, &clock()).unwrap();
    assert_eq!(
        read(&db, &everything()).unwrap().iter().map(|row| row.0).collect::<Vec<_>>(),
        [2; 3]
    );
}

/// Eight segments of the most rows that one may have became eight again, for ever.
#[test]
fn segments_that_are_full_stay_as_they_are() {
    let db = new_db(&MemDisk::new());
    let row = |row: i64| (row % 1_000, row as f64, Some("x".repeat(6)));
    let mut model = Model::default();
    for load in 0..10 {
        let op = Op::Write((0..33_000).map(|at| row(load * 33_000 + at)).collect(), Ack::Durable);
        ask(&db, &op).unwrap();
        model.apply(&op);
    }
    let report = db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    let segments = db.inspect().unwrap()[0].segments.unwrap();
    assert!(report.steps < 20 && segments.objects < 20, "{report:?} {segments:?}");
    check(&db, &model, &mut SmallRng::seed_from_u64(3), "full segments");
}

/// Rows were bounded by their number alone when they were laid together.
#[test]
fn long_texts_are_laid_together_in_parts() {
    let db = new_db(&MemDisk::new());
    let mut rng = SmallRng::seed_from_u64(4);
    let mut model = Model::default();
    for write in 0..9 {
        let mut row = || {
            let note: String = (0..4_000).map(|_| rng.random_range('a'..='z')).collect();
            (rng.random_range(-100..100), f64::from(write), Some(note))
        };
        let op = Op::Write(
            (0..1_500).map(|_| row()).collect(),
            [Ack::Memory, Ack::Durable][write as usize % 2],
        );
        ask(&db, &op).unwrap();
        model.apply(&op);
        db.flush().unwrap();
    }
    for _ in 0..2 {
        let report = db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
        let segments = db.inspect().unwrap()[0].segments.unwrap();
        assert!(report.steps < 10, "{report:?} {segments:?}");
        // 54 MB of texts, and 2.7 MB of them at once.
        assert!((9..60).contains(&segments.objects), "{segments:?}");
    }
    check(&db, &model, &mut rng, "long texts");
    assert_eq!(db.verify().unwrap().damages, []);
}

/// What a delete hides as a whole goes by itself, and the delete behind it.
#[test]
fn what_is_deleted_goes_by_the_clock() {
    let db = new_db(&MemDisk::new());
    for x in 0..5 {
        let rows = (0..600).map(|row| (x * 1_000 + row, 0.5, None)).collect();
        ask(&db, &Op::Write(rows, Ack::Durable)).unwrap();
    }
    let box_of = |first, last| Regions::of([Region::new(vec![Side::new(first, last), Side::ALL])]);
    ask(&db, &Op::Delete(box_of(0, 3_200))).unwrap();
    let by_clock = || db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    by_clock();
    let left = || {
        let table = db.inspect().unwrap().remove(0);
        (table.segments.unwrap().objects, table.deletes)
    };
    // The fourth has rows that stay.
    assert_eq!(left(), (2, 1));
    assert_eq!(read(&db, &everything()).unwrap().len(), 600 + 399);
    for x in 0..70 {
        ask(&db, &Op::Delete(box_of(4_000 + x, 4_000 + x))).unwrap();
    }
    by_clock();
    assert_eq!(left(), (2, 0));
    assert_eq!(read(&db, &everything()).unwrap().len(), 600 - 70 + 399);
    // One delete may have as many boxes as many of them.
    let boxes =
        (100..170).map(|x| Region::new(vec![Side::new(4_000 + 2 * x, 4_000 + 2 * x), Side::ALL]));
    ask(&db, &Op::Delete(Regions::of(boxes))).unwrap();
    by_clock();
    assert_eq!(left(), (2, 0));
    assert_eq!(read(&db, &everything()).unwrap().len(), 600 - 140 + 399);
}

/// Segments and records of the log for fuzzers, behind the byte that says what they are.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![[&[3], &br#"{"seq":0,"time":{"first_ns":0,"last_ns":9},"sensors":null,"boxes":[[[0,1],[-5,7]]]}"#[..]].concat()];
    let mut rng = SmallRng::seed_from_u64(5);
    for rows in [1, 300, 9_000] {
        let disk = MemDisk::new();
        let db = new_db(&disk);
        let row = |rng: &mut SmallRng| {
            let note = rng.random_bool(0.5).then(|| "n".repeat(rng.random_range(0..3)));
            (rng.random_range(-9..9), rng.random_range(-9..9) as f64 / 4.0, note)
        };
        let rows = (0..rows).map(|_| row(&mut rng)).collect();
        ask(&db, &Op::Write(rows, Ack::Memory)).unwrap();
        db.flush().unwrap();
        let objects = crate::image::files(&disk);
        let segments = objects.into_iter().filter(|(name, _)| name.ends_with(".records"));
        seeds.extend(segments.map(|(_, bytes)| [&[1], &bytes[..]].concat()));
    }
    assert_eq!(seeds.len(), 4);
    seeds
}
