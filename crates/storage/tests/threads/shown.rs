//! What a table shows to who reads all of it.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use tidefall_storage::{AggregateRequest, ScanRequest, TableSnapshot};
use tidefall_types::{FieldId, TimeRange};

use crate::history::{FIELDS, Row, Rows, Shown, Types};

impl Shown {
    /// All that a snapshot shows. The values of a field have its type.
    pub fn of(snapshot: &TableSnapshot) -> Self {
        let mut types = Types::default();
        for field in &snapshot.schema().fields {
            types[number_of(&field.name)] = Some(field.ty);
        }
        Self { rows: rows_of(snapshot), types }
    }
}

/// The number of a field.
fn number_of(name: &str) -> usize {
    FIELDS.iter().position(|other| *other == name).unwrap()
}

/// All rows, each once; they are as many, and as large, as metrics say.
fn rows_of(snapshot: &TableSnapshot) -> Rows {
    let schema = snapshot.schema();
    let sensors: Vec<u32> = (0..snapshot.sensor_count()).collect();
    let fields = (0..schema.fields.len() as u16).map(FieldId).collect();
    let request = ScanRequest {
        sensors: sensors.clone(),
        time: TimeRange::ALL,
        fields,
        conditions: Vec::new(),
        limit: None,
    };
    let mut rows = Rows::new();
    if schema.tags.is_empty() {
        return rows;
    }
    let (names, keys) = snapshot.tag_keys(tidefall_types::TagId(0));
    for batch in snapshot.scan(&request).unwrap() {
        let batch = batch.unwrap();
        for (field, column) in schema.fields.iter().zip(&batch.fields) {
            assert_eq!(*column.data_type(), field.ty.arrow(), "{}", field.name);
        }
        let columns: Vec<Int64Array> = batch.fields.iter().map(whole).collect();
        for place in 0..batch.time.len() {
            let name = names.value(keys[batch.sensors[place] as usize] as usize);
            let sensor = name[1..].parse().unwrap();
            let mut row = Row::default();
            for (field, column) in schema.fields.iter().zip(&columns) {
                row[number_of(&field.name)] = column.is_valid(place).then(|| column.value(place));
            }
            let before = rows.insert((sensor, batch.time[place]), row);
            assert_eq!(before, None, "a row is there twice");
        }
    }
    check_metrics(snapshot, &sensors, &rows);
    rows
}

fn check_metrics(snapshot: &TableSnapshot, sensors: &[u32], rows: &Rows) {
    let fields = &snapshot.schema().fields;
    let Some(field) = fields.iter().position(|field| field.name == FIELDS[0]) else { return };
    let request = AggregateRequest {
        sensors: sensors.to_vec().into(),
        groups: Vec::new(),
        group_count: 1,
        time: TimeRange::ALL,
        bin: None,
        fields: vec![FieldId(field as u16)],
        deviations: false,
        extremes: true,
        ends: false,
    };
    let found = snapshot.aggregate(&request, &Default::default()).unwrap();
    assert_eq!(found.rows.iter().sum::<u64>(), rows.len() as u64, "rows by metrics");
    let sum: i64 = whole(&found.fields[0].sum).iter().flatten().sum();
    assert_eq!(sum, rows.values().filter_map(|row| row[0]).sum::<i64>(), "sum by metrics");
}

/// Whole numbers, which may be of another type.
fn whole(values: &ArrayRef) -> Int64Array {
    cast(values, &DataType::Int64).unwrap().as_primitive::<Int64Type>().clone()
}
