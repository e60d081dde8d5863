use datafusion::arrow::array::{
    Array, AsArray, Float64Array, RecordBatch, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Field, Float64Type, Schema, TimeUnit, TimestampNanosecondType,
};
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, is_null, lit};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_types::{FieldType, TableId};

use super::*;

type Expr = Arc<dyn PhysicalExpr>;

const KINDS: [ColumnKind; 3] =
    [ColumnKind::Time, ColumnKind::Field(FieldId(0)), ColumnKind::Field(FieldId(1))];
const NAMES: [&str; 3] = ["time", "v", "w"];

fn table() -> TableSchema {
    let mut table = TableSchema::new(TableId(1), "t", "time");
    table.add_field("v", FieldType::F64).expect("a field");
    table.add_field("w", FieldType::F64).expect("a field");
    table
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Arc::new(BinaryExpr::new(left, op, right))
}

fn column(at: usize) -> Expr {
    Arc::new(Column::new(NAMES[at], at))
}

fn literal(at: usize, value: i64) -> Expr {
    match at {
        0 => lit(ScalarValue::TimestampNanosecond(Some(value), None)),
        _ => lit(value as f64),
    }
}

fn compare(at: usize, op: Operator, value: i64) -> Expr {
    binary(column(at), op, literal(at, value))
}

fn random_expr(rng: &mut SmallRng, depth: usize) -> Expr {
    const OPS: [Operator; 6] =
        [Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq, Operator::Eq, Operator::NotEq];
    let (at, op) = (rng.random_range(0..3), OPS[rng.random_range(0..OPS.len())]);
    let value = rng.random_range(-4..5);
    match rng.random_range(0..if depth > 0 { 9 } else { 5 }) {
        0 => is_null(column(at)).expect("an expression"),
        1 => binary(literal(at, value), op, column(at)),
        2 if rng.random_bool(0.3) => lit(rng.random_bool(0.5)),
        2..=4 => compare(at, op, value),
        5 | 6 => binary(random_expr(rng, depth - 1), Operator::And, random_expr(rng, depth - 1)),
        _ => binary(random_expr(rng, depth - 1), Operator::Or, random_expr(rng, depth - 1)),
    }
}

fn rows() -> RecordBatch {
    let mut rows = Vec::new();
    for time in -5..=5 {
        for v in -6..=5 {
            for w in -6..=5 {
                // The least stands for null.
                let value = |value: i64| (value > -6).then_some(value as f64);
                rows.push((time, value(v), value(w)));
            }
        }
    }
    let number = |name| Field::new(name, DataType::Float64, true);
    let time = Field::new("time", DataType::Timestamp(TimeUnit::Nanosecond, None), false);
    let schema = Arc::new(Schema::new(vec![time, number("v"), number("w")]));
    let times: TimestampNanosecondArray = rows.iter().map(|row| Some(row.0)).collect();
    let v: Float64Array = rows.iter().map(|row| row.1).collect();
    let w: Float64Array = rows.iter().map(|row| row.2).collect();
    RecordBatch::try_new(schema, vec![Arc::new(times), Arc::new(v), Arc::new(w)]).expect("rows")
}

fn meets(late: &LateCondition, value: Option<f64>) -> bool {
    let Some(value) = value else { return late.or_null };
    match late.condition.op {
        Comparison::Lt => value < late.condition.value,
        Comparison::LtEq => value <= late.condition.value,
        Comparison::Gt => value > late.condition.value,
        Comparison::GtEq => value >= late.condition.value,
        Comparison::Eq => value == late.condition.value,
    }
}

/// Whether a row lies in a box.
fn holds(around: &Around, rows: &RecordBatch, row: usize) -> bool {
    let time = rows.column(0).as_primitive::<TimestampNanosecondType>().value(row);
    around.time().contains(time)
        && around.conditions().iter().all(|late| {
            let values = rows.column(late.condition.field.index() + 1);
            let value = values.as_primitive::<Float64Type>();
            meets(late, value.is_valid(row).then(|| value.value(row)))
        })
}

/// No row for which a filter is true is outside of its box.
#[test]
fn a_box_holds_what_its_filter_is_true_for() {
    let (mut rng, rows, table) = (SmallRng::seed_from_u64(3), rows(), table());
    let columns = Columns { kinds: &KINDS, schema: &table };
    let mut left_out = 0;
    for _ in 0..400 {
        let filter = random_expr(&mut rng, 3);
        let Some(around) = Around::of(&filter, columns) else { continue };
        let found = filter.evaluate(&rows).and_then(|found| found.into_array(rows.num_rows()));
        let found = found.expect("an array");
        let is_true = found.as_boolean();
        for row in 0..rows.num_rows() {
            let is_wanted = is_true.is_valid(row) && is_true.value(row);
            let is_in = holds(&around, &rows, row);
            assert!(is_in || !is_wanted, "{filter}\n{around:?}\nlacks row {row}");
            left_out += usize::from(!is_in);
        }
    }
    assert!(left_out > 100_000, "{left_out}");
}

/// What sorts by one and by two columns say.
#[test]
fn boxes_of_sorts_are_tight() {
    let table = table();
    let columns = Columns { kinds: &KINDS, schema: &table };
    let around = |filter: &Expr| Around::of(filter, columns).expect("a box");
    let late = |field, op, value, or_null| LateCondition {
        condition: ValueCondition { field: FieldId(field), op, value },
        or_null,
    };
    let newest = around(&compare(0, Operator::Gt, 7));
    assert_eq!((newest.time(), newest.conditions()), (TimeRange::new(8, i64::MAX), vec![]));
    let greatest = compare(1, Operator::Gt, 7);
    let conditions = around(&greatest).conditions();
    assert_eq!(conditions, [late(0, Comparison::Gt, 7.0, false)]);
    let or_null = binary(is_null(column(1)).expect("an expression"), Operator::Or, greatest);
    assert_eq!(around(&or_null).conditions(), [late(0, Comparison::Gt, 7.0, true)]);
    // Of those that are equal, the earlier ones.
    let equal = binary(compare(1, Operator::Eq, 7), Operator::And, compare(0, Operator::Lt, 3));
    let two = around(&binary(or_null, Operator::Or, equal));
    assert_eq!(two.conditions(), [late(0, Comparison::GtEq, 7.0, true)]);
    assert_eq!(two.time(), TimeRange::ALL);
    let nothing = binary(compare(1, Operator::Gt, 3), Operator::And, compare(1, Operator::Lt, 3));
    assert!(around(&nothing).time().is_empty());
    assert!(around(&compare(0, Operator::Gt, i64::MAX)).time().is_empty());
}

#[test]
fn news_come_once() {
    let table = table();
    let columns = Columns { kinds: &KINDS, schema: &table };
    let filter = Arc::new(DynamicFilterPhysicalExpr::new(vec![column(0)], lit(true)));
    let mut live = Live::new(vec![Arc::clone(&filter) as Expr]);
    assert_eq!(live.news(columns), Some(Around::everything()));
    assert_eq!(live.news(columns), None);
    filter.update(compare(0, Operator::Lt, 5)).expect("an update");
    let time = live.news(columns).map(|around| around.time());
    assert_eq!(time, Some(TimeRange::new(i64::MIN, 4)));
    assert_eq!(live.news(columns), None);
    assert_eq!(Live::default().news(columns), None);
}
