//! The engine against a naive model: maps of maps. Random writes, deletes, moves and restarts; after
//! each step the engine must say what the model says.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow_cast::cast;
use arrow_schema::DataType;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{
    Ack, AggregateRequest, Bin, CascadeRequest, Db, DbOptions, Existing, Extreme, FieldMetrics,
    IfExists, Keep, ReadStats, Rewriting, RowBatch, Scan, ScanRequest, SensorSeries, TableSnapshot,
    TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    ErrorKind, FieldColumn, FieldId, FieldType, ManualClock, NS_PER_DAY, NS_PER_HOUR,
    NS_PER_MINUTE, Series, SeriesBatch, TableSchema, TagColumn, TagId, TimeRange, WriteBatch,
};

use crate::{checked, rounds};

const TABLE: &str = "plant";
/// 2024-03-10: the last 70 days reach into all three models.
const NOW_NS: i64 = 19_792 * NS_PER_DAY;
/// What half of the tables keep.
const RETENTION_NS: i64 = 40 * NS_PER_DAY;

type Values = (Option<f64>, Option<i64>);

/// Rows with all fields of the schema, as the model has them.
fn to_model(
    snapshot: &TableSnapshot,
    sensors: &[u32],
    time: &[i64],
    fields: &[ArrayRef],
) -> Vec<((String, i64), Values)> {
    let schema = snapshot.schema();
    let tag = schema.tags.iter().position(|tag| tag == "sensor").unwrap();
    let (names, keys) = snapshot.tag_keys(TagId(tag as u16));
    let column = |name: &str| {
        schema.fields.iter().position(|field| field.name == name).map(|place| &fields[place])
    };
    let (floats, ints) = (column("value"), column("count"));
    // Whatever type it has by now.
    let ints = ints.map(|column| cast(column, &DataType::Int64).unwrap());
    (0..time.len())
        .map(|row| {
            let name = names.value(keys[sensors[row] as usize] as usize).to_owned();
            let float = floats.map(|column| column.as_primitive::<Float64Type>());
            let int = ints.as_ref().map(|column| column.as_primitive::<Int64Type>());
            let values = (
                float.filter(|column| column.is_valid(row)).map(|column| column.value(row)),
                int.filter(|column| column.is_valid(row)).map(|column| column.value(row)),
            );
            ((name, time[row]), values)
        })
        .collect()
}

#[derive(Default)]
struct Model {
    rows: BTreeMap<(String, i64), Values>,
}

impl Model {
    /// Whether the row took the place of another.
    fn write(&mut self, sensor: &str, time: i64, values: Values) -> bool {
        let rows = self.rows.len();
        let row = self.rows.entry((sensor.to_owned(), time)).or_default();
        row.0 = values.0.or(row.0);
        row.1 = values.1.or(row.1);
        rows == self.rows.len()
    }

    fn delete(&mut self, sensor: Option<&str>, range: TimeRange) {
        self.rows.retain(|(other, time), _| {
            !(range.contains(*time) && sensor.is_none_or(|sensor| sensor == other))
        });
    }
}

struct World {
    clock: Arc<ManualClock>,
    db: Option<Db>,
    model: Model,
    rng: SmallRng,
    sensors: usize,
    /// Whether readings are dropped that are older than that.
    limit_ns: Option<i64>,
    /// Behind the database, which writes to it until its end.
    dir: tempfile::TempDir,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let sensors = rng.random_range(1..12);
        let mut world = Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::new(NOW_NS)),
            db: None,
            model: Model::default(),
            rng,
            sensors,
            limit_ns: None,
        };
        world.reopen();
        if world.rng.random_bool(0.5) {
            world.limit_ns = Some(NOW_NS - RETENTION_NS);
            let mut schema = TableSchema::new(Default::default(), TABLE, "time");
            schema.add_tag("sensor").unwrap();
            schema.options.retention_ns = Some(RETENTION_NS);
            world.db().create_table(&schema, IfExists::Fail).unwrap();
        }
        world
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.db = None;
        let clock: Arc<ManualClock> = Arc::clone(&self.clock);
        let options = DbOptions { clock, memory_bytes: 64 << 20, ..DbOptions::default() };
        // Readings are only dropped when the model knows.
        let options = DbOptions { cascade_pause: Duration::MAX, ..options };
        self.db = Some(Db::open(self.dir.path(), options).unwrap());
    }

    fn time(&mut self) -> i64 {
        if let Some(limit_ns) = self.limit_ns
            && self.rng.random_bool(0.3)
        {
            // Objects that reach over the limit, and others that do not.
            return limit_ns - self.rng.random_range(-60..180) * NS_PER_MINUTE;
        }
        let back = match self.rng.random_range(0..10) {
            0..5 => self.rng.random_range(0..3 * 24 * 60),
            5..8 => self.rng.random_range(0..70 * 24 * 60),
            8 => self.rng.random_range(0..40) * 30 * 24 * 60,
            _ => self.rng.random_range(0..60 * 365 * 24 * 60),
        };
        NOW_NS - back * NS_PER_MINUTE
    }

    fn some_rows(&mut self) -> usize {
        if self.rng.random_bool(0.1) { 9_000 } else { self.rng.random_range(1..300) }
    }

    /// Rows that the model has taken, and how many of them took the place of others.
    fn batch(&mut self, rows: usize) -> (WriteBatch, u64) {
        let start = self.time();
        let is_regular = self.rng.random_bool(0.6);
        let with_ints = self.rng.random_bool(0.7);
        let (mut time, mut keys) = (Vec::new(), Vec::new());
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let sensor = self.rng.random_range(0..self.sensors);
            time.push(match is_regular {
                true => start + row as i64 / self.sensors as i64 * NS_PER_MINUTE,
                false => self.time(),
            });
            keys.push(sensor as u32);
            let float = (self.rng.random_range(-9_999..9_999) as f64) / 100.0;
            floats.push(self.rng.random_bool(0.9).then_some(float));
            ints.push(self.rng.random_bool(0.8).then(|| self.rng.random_range(-1_000..1_000)));
        }
        let mut replaced = 0;
        for row in 0..rows {
            let values = (floats[row], ints[row].filter(|_| with_ints));
            replaced += u64::from(self.model.write(&format!("s{}", keys[row]), time[row], values));
        }
        let names = (0..self.sensors).map(|sensor| format!("s{sensor}"));
        let mut fields = vec![FieldColumn {
            name: "value".into(),
            values: Arc::new(Float64Array::from(floats)) as ArrayRef,
        }];
        if with_ints {
            let values = Arc::new(Int64Array::from(ints)) as ArrayRef;
            fields.push(FieldColumn { name: "count".into(), values });
        }
        let values = StringArray::from_iter_values(names);
        let tags = vec![TagColumn { name: "sensor".into(), values, keys: keys.into() }];
        (WriteBatch { time: time.into(), tags, fields }, replaced)
    }

    /// Writes whole columns, sometimes so many rows that chunks outlive the next cascade.
    fn load(&mut self) -> String {
        let rows = if self.rng.random_bool(0.3) { 20_000 } else { self.some_rows() };
        let (batch, replaced) = self.batch(rows);
        let keys = &batch.tags[0].keys;
        let used: Vec<u32> =
            (0..self.sensors as u32).filter(|sensor| keys.contains(sensor)).collect();
        let series = used.iter().map(|sensor| {
            let is_of_sensor: BooleanArray = keys.iter().map(|key| Some(key == sensor)).collect();
            let take = |values: &dyn Array| arrow_select::filter::filter(values, &is_of_sensor);
            let time = take(&Int64Array::new(batch.time.clone(), None)).unwrap();
            Series {
                time: time.as_primitive::<Int64Type>().values().clone(),
                fields: batch.fields.iter().map(|f| take(&*f.values).unwrap()).collect(),
            }
        });
        let tag = TagColumn { keys: used.clone().into(), ..batch.tags[0].clone() };
        let series_batch = SeriesBatch {
            tags: vec![tag],
            fields: batch.fields.iter().map(|field| field.name.clone()).collect(),
            series: series.collect(),
        };
        let load = |existing| {
            let options =
                WriteOptions { unknown: Unknown::Create, existing, ..WriteOptions::default() };
            self.db().load_with(TABLE, &series_batch, &options)
        };
        let report = match load(Existing::Refuse) {
            Err(error) => {
                let place = format!("{replaced} of {rows} rows would take the place");
                assert_eq!(error.kind(), ErrorKind::Conflict);
                assert!(replaced > 0 && error.message().contains(&place), "{error}");
                load(Existing::Count).unwrap()
            }
            report => report.unwrap(),
        };
        assert_eq!((report.rows, report.replaced), (rows, Some(replaced)));
        format!("load of {rows} rows")
    }

    fn step(&mut self) -> String {
        match self.rng.random_range(0..24) {
            19..21 => self.load(),
            21..23 => self.retype(),
            0..11 => {
                let rows = self.some_rows();
                let (batch, replaced) = self.batch(rows);
                let ack = if self.rng.random_bool(0.5) { Ack::Memory } else { Ack::Durable };
                let unknown = Unknown::Create;
                let refuse =
                    WriteOptions { ack, unknown, existing: Existing::Refuse, ..Default::default() };
                let count = WriteOptions { existing: Existing::Count, ..refuse };
                let is_counted = self.rng.random_bool(0.5);
                match self.db().write(TABLE, &batch, if is_counted { &count } else { &refuse }) {
                    Ok(report) if is_counted => {
                        assert_eq!((report.rows, report.replaced), (rows, Some(replaced)));
                    }
                    Ok(report) => assert_eq!((report.replaced, replaced), (Some(0), 0)),
                    Err(error) => {
                        let place = format!("{replaced} of {rows} rows would take the place");
                        assert_eq!(error.kind(), ErrorKind::Conflict);
                        assert!(replaced > 0 && error.message().contains(&place), "{error}");
                        let report = self.db().write(TABLE, &batch, &count).unwrap();
                        assert_eq!((report.rows, report.replaced), (rows, Some(replaced)));
                    }
                }
                format!("write of {rows} rows, {replaced} of them in place of others")
            }
            11..14 => {
                let start = self.time();
                let range = TimeRange::new(start, start + self.rng.random_range(0..5 * NS_PER_DAY));
                let sensor = format!("s{}", self.rng.random_range(0..self.sensors));
                let one = self.rng.random_bool(0.7);
                let filter = match one {
                    true => TagFilter::Eq { tag: "sensor".into(), value: sensor.clone() },
                    false => TagFilter::All,
                };
                if self.db().tables().is_empty() {
                    return "nothing to delete".into();
                }
                self.db().delete(TABLE, &filter, range).unwrap();
                self.model.delete(one.then_some(&*sensor), range);
                format!("delete of {range}")
            }
            14 if self.rng.random_bool(0.5) => {
                let report = self.db().free_memory().unwrap();
                format!("memory is freed: {report:?}")
            }
            14 => {
                self.db().flush().unwrap();
                "flush".into()
            }
            15..19 => {
                let target = match self.rng.random_range(0..4) {
                    0..2 => Target::ByAge,
                    2 => Target::Short,
                    _ => Target::Long,
                };
                let report = self.db().cascade(&CascadeRequest { table: None, target }).unwrap();
                self.forget();
                format!("cascade {target:?}: {report:?}")
            }
            _ => {
                // What is only in memory is lost by a crash but not by an orderly end.
                self.db().flush().unwrap();
                self.reopen();
                "reopen".into()
            }
        }
    }

    /// Gives the whole numbers another type.
    fn retype(&mut self) -> String {
        let types = [FieldType::I16, FieldType::I32, FieldType::I64, FieldType::F64];
        let ty = types[self.rng.random_range(0..types.len())];
        let Ok(schema) = self.db().schema(TABLE) else { return "no table".into() };
        if schema.fields.iter().any(|field| field.name == "count") {
            self.db().retype(TABLE, &[("count".into(), ty)], Rewriting::All).unwrap();
        }
        format!("retype to {}", ty.sql_name())
    }

    /// Takes over which of the old readings are gone, or have lost values that were written long before the others.
    fn forget(&mut self) {
        let Some(limit_ns) = self.limit_ns else { return };
        let mut found: BTreeMap<(String, i64), Values> = BTreeMap::new();
        {
            let snapshot = self.db().snapshot(TABLE).unwrap();
            let fields = (0..snapshot.schema().fields.len() as u16).map(FieldId).collect();
            let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
            let time = TimeRange::ALL;
            let request =
                ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
            for batch in snapshot.scan(&request).unwrap() {
                let batch = batch.unwrap();
                found.extend(to_model(&snapshot, &batch.sensors, &batch.time, &batch.fields));
            }
        }
        self.model.rows.retain(|key, values| {
            let Some(left) = found.get(key).filter(|_| key.1 < limit_ns) else {
                return key.1 >= limit_ns;
            };
            assert!(left.0.is_none() || left.0 == values.0, "{key:?}: {left:?}, not {values:?}");
            assert!(left.1.is_none() || left.1 == values.1, "{key:?}: {left:?}, not {values:?}");
            *values = *left;
            true
        });
    }

    fn check(&mut self) {
        if self.db().tables().is_empty() {
            return assert!(self.model.rows.is_empty());
        }
        self.check_scan(TimeRange::ALL);
        let start = self.time();
        let range = TimeRange::new(start, start + self.rng.random_range(0..90 * NS_PER_DAY));
        self.check_scan(range);
        self.check_aggregate(range);
        self.check_aggregate(TimeRange::ALL);
        self.check_direct(range);
        self.check_direct(TimeRange::ALL);
    }

    /// Frames, values at a time and latest values.
    fn check_direct(&mut self, range: TimeRange) {
        let snapshot = self.db().snapshot(TABLE).unwrap();
        let fields = &snapshot.schema().fields;
        let Some(field) = fields.iter().position(|field| field.name == "value") else { return };
        let field = FieldId(field as u16);
        let mut sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
        if self.rng.random_bool(0.5) {
            sensors.retain(|_| self.rng.random_bool(0.6));
        }
        let tag = snapshot.schema().tags.iter().position(|tag| tag == "sensor").unwrap();
        let (names, keys) = snapshot.tag_keys(TagId(tag as u16));
        let place = |name: &str| {
            sensors.iter().position(|sensor| names.value(keys[*sensor as usize] as usize) == name)
        };
        let rows: Vec<(usize, i64, Option<f64>)> = self
            .model
            .rows
            .iter()
            .filter_map(|((name, time), values)| Some((place(name)?, *time, values.0)))
            .collect();

        let mut expected: BTreeMap<i64, Vec<Option<f64>>> = BTreeMap::new();
        for (place, time, value) in rows.iter().filter(|row| range.contains(row.1)) {
            expected.entry(*time).or_insert_with(|| vec![None; sensors.len()])[*place] = *value;
        }
        let frame = snapshot.read_frame::<f64>(&sensors, &range, field).unwrap();
        assert_eq!(&frame.time[..], expected.keys().copied().collect::<Vec<_>>());
        let mut missing = 0;
        for (row, values) in expected.values().enumerate() {
            for (column, value) in values.iter().enumerate() {
                let found = frame.values[column * expected.len() + row];
                missing += usize::from(value.is_none());
                assert_eq!(Some(found).filter(|found| !found.is_nan()), *value);
            }
        }
        assert_eq!(frame.missing, missing);

        self.check_kept(&snapshot, &sensors, &range, field, &expected);

        let asked_ns = match rows.is_empty() {
            false => rows[self.rng.random_range(0..rows.len())].1,
            true => self.time(),
        };
        let mut at: Vec<Option<(i64, f64)>> = vec![None; sensors.len()];
        let mut latest = at.clone();
        for (place, time, value) in rows {
            let Some(value) = value else { continue };
            latest[place] = Some((time, value));
            if time == asked_ns {
                at[place] = Some((time, value));
            }
        }
        check_extremes(&snapshot, &sensors, &range, field, &expected);
        for (found, expected) in [
            (snapshot.at(&sensors, asked_ns, field).unwrap(), at),
            (snapshot.latest(&sensors, field).unwrap(), latest),
        ] {
            let values = found.values.as_primitive::<Float64Type>().values();
            let found: Vec<(u32, i64, f64)> = (0..found.sensors.len())
                .map(|row| (found.sensors[row], found.time[row], values[row]))
                .collect();
            let expected: Vec<(u32, i64, f64)> = sensors
                .iter()
                .zip(expected)
                .filter_map(|(sensor, found)| found.map(|(time, value)| (*sensor, time, value)))
                .collect();
            assert_eq!(found, expected);
        }
    }

    /// Frames of the values that meet a condition; `all` are those of a frame without.
    fn check_kept(
        &mut self,
        snapshot: &TableSnapshot,
        sensors: &[u32],
        range: &TimeRange,
        field: FieldId,
        all: &BTreeMap<i64, Vec<Option<f64>>>,
    ) {
        let known: Vec<f64> = all.values().flatten().flatten().copied().collect();
        let mut bound = || match known.is_empty() {
            true => 0.0,
            false => known[self.rng.random_range(0..known.len())],
        };
        let (a, b) = (bound(), bound());
        for keep in [Keep::Between(a.min(b), a.max(b)), Keep::Outside(a.min(b), a.max(b))] {
            let mut expected: Vec<(i64, Vec<Option<f64>>)> = all
                .iter()
                .map(|(time, values)| {
                    (*time, values.iter().map(|v| v.filter(|v| keep.keeps(*v))).collect())
                })
                .collect();
            expected.retain(|(_, values)| values.iter().any(Option::is_some));
            let frame = snapshot.read_frame_where::<f64>(sensors, range, field, &keep).unwrap();
            let times: Vec<i64> = expected.iter().map(|(time, _)| *time).collect();
            assert_eq!(&frame.time[..], times);
            for (row, (_, values)) in expected.iter().enumerate() {
                for (column, value) in values.iter().enumerate() {
                    let found = frame.values[column * expected.len() + row];
                    assert_eq!(Some(found).filter(|found| !found.is_nan()), *value);
                }
            }
        }
    }

    fn check_scan(&self, range: TimeRange) {
        let snapshot = self.db().snapshot(TABLE).unwrap();
        let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
        let fields: Vec<FieldId> =
            (0..snapshot.schema().fields.len() as u16).map(FieldId).collect();
        let mut series = Vec::new();
        for sensor in &sensors {
            let SensorSeries { time, fields } =
                snapshot.read_sensor(*sensor, &range, &fields).unwrap();
            series.extend(to_model(&snapshot, &vec![*sensor; time.len()], &time, &fields));
        }
        let request =
            ScanRequest { sensors, time: range, fields, conditions: Vec::new(), limit: None };
        let mut found = Vec::new();
        for batch in snapshot.scan(&request).unwrap() {
            let batch = batch.unwrap();
            found.extend(to_model(&snapshot, &batch.sensors, &batch.time, &batch.fields));
        }
        assert!(series == found, "a scan and the series of all sensors differ in {range}");
        self.check_without_times(&snapshot, &request);
        let expected: Vec<_> = self
            .model
            .rows
            .iter()
            .filter(|((_, time), _)| range.contains(*time))
            .map(|(key, values)| (key.clone(), *values))
            .collect();
        assert_eq!(found.len(), expected.len(), "rows in {range}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
    }

    /// A scan without times has the same rows, at most so many as are asked for.
    fn check_without_times(&self, snapshot: &TableSnapshot, request: &ScanRequest) {
        let rows_of = |scan: Scan| {
            let mut rows = Vec::new();
            for batch in scan {
                let RowBatch { sensors, fields, .. } = batch.unwrap();
                let numbers: Vec<i64> = (rows.len() as i64..).take(sensors.len()).collect();
                rows.extend(to_model(snapshot, &sensors, &numbers, &fields));
            }
            rows
        };
        let all = rows_of(snapshot.scan(request).unwrap());
        let bare = snapshot.scan(request).unwrap().without_times();
        assert!(all == rows_of(bare), "a scan without times has other rows");
        let limit = all.len() * 2 / 3;
        let some = ScanRequest { limit: Some(limit), ..request.clone() };
        let first = rows_of(snapshot.scan(&some).unwrap().without_times());
        assert!(all[..limit] == first, "the first {limit} rows of {}", all.len());
    }

    fn check_aggregate(&mut self, range: TimeRange) {
        let snapshot = self.db().snapshot(TABLE).unwrap();
        let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
        let width = [NS_PER_HOUR, NS_PER_DAY, 7 * NS_PER_MINUTE, 31 * NS_PER_DAY, NS_PER_MINUTE];
        let bin = self.rng.random_bool(0.8).then(|| Bin {
            width_ns: width[self.rng.random_range(0..width.len())],
            origin_ns: self.rng.random_range(0..2) * 13 * NS_PER_MINUTE,
        });
        let by_sensor = self.rng.random_bool(0.5);
        let groups: Vec<u32> =
            (0..sensors.len() as u32).map(|group| if by_sensor { group } else { 0 }).collect();
        let fields: Vec<FieldId> =
            (0..snapshot.schema().fields.len() as u16).map(FieldId).collect();
        let value = snapshot.schema().fields.iter().position(|field| field.name == "value");
        let request = AggregateRequest {
            group_count: sensors.len().max(1) as u32,
            sensors: sensors.clone().into(),
            groups,
            time: range,
            bin,
            fields,
            deviations: self.rng.random_bool(0.5),
            extremes: self.rng.random_bool(0.7),
            ends: self.rng.random_bool(0.7),
        };
        let stats = Arc::new(ReadStats::default());
        let threads = self.rng.random_range(1..4);
        let found = snapshot.aggregate_on(threads, &request, &stats).unwrap();
        let (names, keys) = snapshot.tag_keys(TagId(0));
        let group_of = |name: &str| match by_sensor {
            false => 0,
            true => sensors
                .iter()
                .position(|s| names.value(keys[*s as usize] as usize) == name)
                .unwrap() as u32,
        };
        let mut expected: BTreeMap<(u32, i64), Vec<(i64, Values)>> = BTreeMap::new();
        for ((name, time), values) in &self.model.rows {
            if range.contains(*time) {
                let bin = bin.map_or(i64::MIN, |bin| bin.start_of(*time));
                expected.entry((group_of(name), bin)).or_default().push((*time, *values));
            }
        }
        let lines: Vec<(u32, i64)> =
            found.group.iter().copied().zip(found.bin_start_ns.iter().copied()).collect();
        assert_eq!(lines, expected.keys().copied().collect::<Vec<_>>(), "groups and bins");
        for (line, rows) in expected.values().enumerate() {
            assert_eq!(found.rows[line], rows.len() as u64);
            if request.ends {
                let ends = (rows.iter().map(|row| row.0).min(), rows.iter().map(|row| row.0).max());
                let found = (found.first_time_ns[line], found.last_time_ns[line]);
                assert_eq!((Some(found.0), Some(found.1)), ends);
            }
            let Some(value) = value else { continue };
            let rows: Vec<(i64, Option<f64>)> =
                rows.iter().map(|(time, values)| (*time, values.0)).collect();
            check_field(&found.fields[value], line, rows, &request, by_sensor);
        }
    }
}

/// The lowest and the highest value of each sensor; `all` are those of a frame.
fn check_extremes(
    snapshot: &TableSnapshot,
    sensors: &[u32],
    range: &TimeRange,
    field: FieldId,
    all: &BTreeMap<i64, Vec<Option<f64>>>,
) {
    for (which, order) in [(Extreme::Lowest, Ordering::Less), (Extreme::Highest, Ordering::Greater)]
    {
        let found = snapshot.extremes::<f64>(sensors, range, field, which).unwrap();
        let mut best: Vec<Option<(i64, f64)>> = vec![None; sensors.len()];
        for (time, values) in all {
            for (best, value) in best.iter_mut().zip(values) {
                let Some(value) = value else { continue };
                if best.is_none_or(|(_, best)| value.partial_cmp(&best) == Some(order)) {
                    *best = Some((*time, *value));
                }
            }
        }
        assert_eq!(found, best);
    }
}

/// What a line says of a field; `rows` has its times and values, of one sensor if it is `by_sensor`.
fn check_field(
    field: &FieldMetrics,
    line: usize,
    mut rows: Vec<(i64, Option<f64>)>,
    request: &AggregateRequest,
    by_sensor: bool,
) {
    let values: Vec<f64> = rows.iter().filter_map(|row| row.1).collect();
    assert_eq!(field.count[line], values.len() as u64);
    let get = |array: &ArrayRef| {
        let array = array.as_primitive::<Float64Type>();
        array.is_valid(line).then(|| array.value(line))
    };
    if request.extremes {
        assert_eq!(get(&field.min), values.iter().copied().reduce(f64::min));
        assert_eq!(get(&field.max), values.iter().copied().reduce(f64::max));
    }
    if let Some(sum) = get(&field.sum) {
        let expected: f64 = values.iter().sum();
        assert!((sum - expected).abs() < 1e-6, "{sum} is not {expected}");
        let mean = expected / values.len() as f64;
        let m2: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let is_right = (field.m2[line] - m2).abs() < 1e-6 * (1.0 + m2);
        assert!(is_right || !request.deviations);
    }
    if by_sensor && request.ends {
        rows.sort_by_key(|row| row.0);
        let first = rows.iter().find_map(|row| row.1);
        let last = rows.iter().rev().find_map(|row| row.1);
        assert_eq!((get(&field.first), get(&field.last)), (first, last));
    }
}

#[test]
fn random_histories_match_the_model() {
    for seed in 0..rounds(30) {
        let mut world = World::new(seed);
        for step in 0..25 {
            let what = world.step();
            checked(|| world.check(), || format!("seed {seed}, step {step}: {what}"));
        }
        let report = world.db().verify().unwrap();
        assert_eq!(report.damages, Vec::new());
    }
}
