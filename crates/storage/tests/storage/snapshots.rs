//! What a snapshot shows is the table at one time: its fields, their types, and its rows without those that were deleted.
//!
//! One thread writes, adds fields, gives them other types and deletes, others move rows, and readers look each time whether there was a
//! time, between the begin and the end of their look, at which the table was what they have seen. One of them follows as another process does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::{
    CascadeRequest, Db, DbOptions, Rewriting, ScanRequest, TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{ErrorKind, FieldColumn, FieldId, FieldType, TimeRange, WriteBatch};

use crate::schema::Ends;
use crate::{checked, rounds};

const TABLE: &str = "plant";
const READERS: usize = 16;
const CHANGES: usize = 60;
const TIMES: i64 = 8;

/// What a table shows: the types of its fields, and the values of each row.
#[derive(Debug, Clone, Default, PartialEq)]
struct Shown {
    fields: Vec<FieldType>,
    rows: BTreeMap<i64, Vec<Option<f64>>>,
}

impl Shown {
    fn add_field(&mut self) {
        self.fields.push(FieldType::I64);
        self.rows.values_mut().for_each(|row| row.push(None));
    }

    fn write(&mut self, time: i64, field: usize, value: i64) {
        let empty = || vec![None; self.fields.len()];
        self.rows.entry(time).or_insert_with(empty)[field] = Some(value as f64);
    }

    fn read(db: &Db) -> Self {
        let snapshot = db.snapshot(TABLE).unwrap();
        let fields = &snapshot.schema().fields;
        let request = ScanRequest {
            sensors: snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap()),
            time: TimeRange::ALL,
            fields: (0..fields.len() as u16).map(FieldId).collect(),
            conditions: Vec::new(),
            limit: None,
        };
        let mut rows = BTreeMap::new();
        for batch in snapshot.scan(&request).unwrap() {
            let batch = batch.unwrap();
            let types = batch.fields.iter().map(|field| field.data_type().clone());
            assert!(types.eq(fields.iter().map(|field| field.ty.arrow())));
            let columns = batch.fields.iter().map(|field| cast(field, &DataType::Float64).unwrap());
            let columns: Vec<ArrayRef> = columns.collect();
            for (row, time) in batch.time.iter().enumerate() {
                let value = |column: &ArrayRef| {
                    let column = column.as_primitive::<Float64Type>();
                    column.is_valid(row).then(|| column.value(row))
                };
                rows.insert(*time, columns.iter().map(value).collect());
            }
        }
        Self { fields: fields.iter().map(|field| field.ty).collect(), rows }
    }
}

struct World {
    db: Db,
    /// What the table has shown, step by step, and will show if what has begun ends well.
    history: Mutex<Vec<Shown>>,
    /// The last of these that is past doubt.
    done: AtomicUsize,
    is_over: AtomicBool,
}

impl World {
    fn begin(&self, change: impl FnOnce(&mut Shown)) {
        let mut history = self.history.lock().unwrap();
        let mut next = history.last().unwrap().clone();
        change(&mut next);
        history.push(next);
    }

    fn end(&self) {
        self.done.store(self.history.lock().unwrap().len() - 1, Ordering::SeqCst);
    }

    fn write(&self, time: i64, field: usize, value: i64, ty: FieldType) {
        let values: ArrayRef = match ty {
            FieldType::I64 => Arc::new(Int64Array::from(vec![value])),
            _ => Arc::new(Float64Array::from(vec![value as f64])),
        };
        let fields = vec![FieldColumn { name: format!("field{field}"), values }];
        let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
        let batch = WriteBatch { time: vec![time].into(), tags: Vec::new(), fields };
        self.db.write(TABLE, &batch, &options).unwrap();
    }

    fn change(&self, rng: &mut SmallRng, number: usize) {
        let fields = self.history.lock().unwrap().last().unwrap().fields.clone();
        let (time, value) = (rng.random_range(0..TIMES), number as i64);
        let field = rng.random_range(0..fields.len());
        match rng.random_range(0..10) {
            0..3 => {
                self.begin(Shown::add_field);
                self.begin(|shown| shown.write(time, fields.len(), value));
                self.write(time, fields.len(), value, FieldType::I64);
            }
            3 if fields[field] == FieldType::I64 => {
                self.begin(|shown| shown.fields[field] = FieldType::F64);
                let types = [(format!("field{field}"), FieldType::F64)];
                self.db.retype(TABLE, &types, Rewriting::All).unwrap();
            }
            3..6 => {
                let time = TimeRange::new(time, time + rng.random_range(0..TIMES));
                self.begin(|shown| shown.rows.retain(|at, _| !time.contains(*at)));
                self.db.delete(TABLE, &TagFilter::All, time).unwrap();
            }
            _ => {
                self.begin(|shown| shown.write(time, field, value));
                self.write(time, field, value, fields[field]);
            }
        }
        self.end();
    }

    fn until_over(&self, act: impl Fn()) {
        while !self.is_over.load(Ordering::SeqCst) {
            act();
        }
    }

    fn check(&self, db: &Db) {
        let first = self.done.load(Ordering::SeqCst);
        match db.refresh() {
            // It shows what it did before.
            Err(error) if error.kind() == ErrorKind::Limit => return,
            refreshed => drop(refreshed.unwrap()),
        }
        let shown = Shown::read(db);
        let history = self.history.lock().unwrap()[first..].to_vec();
        assert!(history.contains(&shown), "never from {first} on: {shown:?}");
    }
}

fn run(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let disk = MemDisk::new();
    let world = World {
        db: Db::open_on(Arc::new(disk.clone()), DbOptions::default()).unwrap(),
        history: Mutex::new(vec![Shown::default()]),
        done: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    };
    world.begin(Shown::add_field);
    world.begin(|shown| shown.write(0, 0, 0));
    world.write(0, 0, 0, FieldType::I64);
    world.end();
    let follower = Db::open_read_only_on(Arc::new(disk), DbOptions::default()).unwrap();
    let target = [Target::ByAge, Target::Long][seed as usize % 2];
    std::thread::scope(|scope| {
        let _ends = Ends(&world.is_over);
        for _ in 0..READERS {
            scope.spawn(|| world.until_over(|| world.check(&world.db)));
        }
        scope.spawn(|| world.until_over(|| world.check(&follower)));
        scope.spawn(|| {
            world.until_over(|| {
                world.db.flush().unwrap();
                world.db.cascade(&CascadeRequest { table: None, target }).unwrap();
            });
        });
        (0..CHANGES).for_each(|number| world.change(&mut rng, number));
    });
    world.check(&world.db);
    world.check(&follower);
}

#[test]
fn a_snapshot_is_the_table_at_one_time() {
    for seed in 0..rounds(8) {
        checked(|| run(seed), || format!("seed {seed}"));
    }
}
