use datafusion::common::ScalarValue;
use datafusion::functions::datetime::expr_fn::{date_bin, date_trunc};
use datafusion::prelude::{Expr, col, lit};
use tidefall_storage::{Case, Comparison};
use tidefall_types::{FieldId, FieldType, NS_PER_DAY, NS_PER_HOUR, TableId};

use super::*;

fn schema() -> TableSchema {
    let mut schema = TableSchema::new(TableId(1), "t", "time");
    schema.add_tag("a").expect("a tag");
    schema.add_tag("b").expect("a tag");
    schema.add_field("x", FieldType::F64).expect("a field");
    schema.add_field("i", FieldType::I64).expect("a field");
    schema
}

fn time(ns: i64) -> Expr {
    lit(ScalarValue::TimestampNanosecond(Some(ns), None))
}

fn of(filter: &Expr) -> Conditions {
    Conditions::of([filter], &schema())
}

#[track_caller]
fn check_time(filter: &Expr, range: (i64, i64), support: Support) {
    let conditions = of(filter);
    assert_eq!((conditions.time.first_ns, conditions.time.last_ns), range, "{filter}");
    assert_eq!(Conditions::support(filter, &schema()), support, "{filter}");
}

#[test]
fn comparisons_with_time() {
    let (min, max) = (i64::MIN, i64::MAX);
    check_time(&col("time").gt_eq(time(5)), (5, max), Support::Exact);
    check_time(&col("time").gt(time(5)), (6, max), Support::Exact);
    check_time(&time(5).gt(col("time")), (min, 4), Support::Exact);
    check_time(&col("time").eq(time(5)), (5, 5), Support::Exact);
    check_time(&col("time").between(time(5), time(9)), (5, 9), Support::Exact);
    check_time(&col("time").gt(time(max)), (0, -1), Support::Exact);
    check_time(&col("time").lt(time(3)).or(col("time").lt(time(9))), (min, 8), Support::Exact);
    check_time(&col("time").eq(time(3)).or(col("time").eq(time(9))), (3, 9), Support::Part);
    check_time(&col("time").not_eq(time(3)), (min, max), Support::None);
    check_time(
        &col("time").gt(lit(ScalarValue::TimestampNanosecond(None, None))),
        (0, -1),
        Support::Exact,
    );
    let day = lit(ScalarValue::Date32(Some(2)));
    check_time(&col("time").lt(day), (min, 2 * NS_PER_DAY - 1), Support::Exact);
}

#[test]
fn comparisons_with_bins_of_time() {
    let (hour, max) = (NS_PER_HOUR, i64::MAX);
    let width = lit(ScalarValue::new_interval_mdn(0, 0, hour));
    let bin = || date_bin(width.clone(), col("time"), time(0));
    check_time(&bin().gt_eq(time(hour)), (hour, max), Support::Exact);
    check_time(&bin().gt_eq(time(hour + 1)), (2 * hour, max), Support::Exact);
    check_time(&bin().gt(time(hour)), (2 * hour, max), Support::Exact);
    check_time(&bin().eq(time(-hour)), (-hour, -1), Support::Exact);
    let conditions = of(&bin().eq(time(hour + 1)));
    assert!(conditions.time.is_empty() && conditions.exact);
    let day = || date_trunc(lit("day"), col("time"));
    check_time(&day().lt_eq(time(0)), (i64::MIN, NS_PER_DAY - 1), Support::Exact);
    let month = date_trunc(lit("month"), col("time")).eq(time(0));
    assert_eq!(Conditions::support(&month, &schema()), Support::None);
}

#[test]
fn conditions_on_tags() {
    let eq = |tag: &str, value: &str| TagFilter::Eq { tag: tag.into(), value: value.into() };
    assert_eq!(of(&col("a").eq(lit("v"))).tags, eq("a", "v"));
    assert_eq!(of(&col("a").not_eq(lit("v"))).tags, TagFilter::Not(Box::new(eq("a", "v"))));
    assert_eq!(
        of(&col("a").eq(lit("v")).or(col("b").eq(lit("w"))).or(col("b").eq(lit("z")))).tags,
        TagFilter::Or(vec![eq("a", "v"), eq("b", "w"), eq("b", "z")])
    );
    assert_eq!(
        of(&col("a").ilike(lit("V%"))).tags,
        TagFilter::Like { tag: "a".into(), pattern: "V%".into(), case: Case::Insensitive }
    );
    // The index does not order values: evaluated per sensor.
    let conditions = of(&col("a").gt(lit("v")));
    assert!(conditions.exact && conditions.tags == TagFilter::All);
    assert_eq!(conditions.tag_exprs.len(), 1);
    // Both sides of the OR bound the box, but it is larger than they are.
    let either = col("a").eq(lit("v")).and(col("time").lt(time(5))).or(col("b").eq(lit("w")));
    let conditions = of(&either);
    assert!(!conditions.exact && conditions.time == TimeRange::ALL);
    assert_eq!(conditions.tags, TagFilter::Or(vec![eq("a", "v"), eq("b", "w")]));
}

#[test]
fn conditions_on_values_never_rule_out_too_much() {
    let of_value = |filter: &Expr| of(filter).values.first().map(|found| (found.field, found.op));
    let (x, i) = (FieldId(0), FieldId(1));
    assert_eq!(of_value(&col("x").gt(lit(1.5))), Some((x, Comparison::Gt)));
    assert_eq!(of_value(&lit(1.5).gt(col("x"))), Some((x, Comparison::Lt)));
    // -0.0 < 0.0 in SQL, and both are 0 to metrics.
    assert_eq!(of_value(&col("x").lt(lit(0.0))), Some((x, Comparison::LtEq)));
    // 2^53 + 1 is no f64.
    assert_eq!(of_value(&col("i").gt(lit((1_i64 << 53) + 1))), Some((i, Comparison::GtEq)));
    assert_eq!(of_value(&col("x").gt(lit(f64::NAN))), None);
    assert_eq!(Conditions::support(&col("x").gt(lit(1.5)), &schema()), Support::Part);
}
