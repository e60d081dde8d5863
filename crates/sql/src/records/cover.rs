//! Conditions as boxes.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use tidefall_storage::record_tables::region::{Region, Regions, Side};
use tidefall_types::TableSchema;

use super::place::{Place, gaps};

/// Boxes of a union at most: each is tested against each leaf. Of more a condition is looked at row by row.
pub(crate) const BOXES_MAX: usize = 256;

/// A union of boxes with all rows for which a condition holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cover {
    pub(super) regions: Regions,
    /// Whether it holds for all rows in them, too.
    pub(super) is_exact: bool,
}

impl Cover {
    const fn exactly(regions: Regions) -> Self {
        Self { regions, is_exact: true }
    }

    /// Of a condition; nothing when it says nothing of where its rows are.
    pub(super) fn of(condition: &Expr, schema: &TableSchema) -> Option<Self> {
        Dimensions(schema).cover(condition)
    }

    /// Of conditions that all hold: unions of boxes in all of which their rows are, as few as that can be, and whether all rows in these are theirs.
    pub(super) fn of_all(conditions: &[Expr], schema: &TableSchema) -> (Vec<Regions>, bool) {
        let mut all: Vec<Self> = vec![Self::exactly(Regions::all(schema.dimensions.len()))];
        let mut is_exact = true;
        for condition in conditions {
            let Some(mut cover) = Self::of(condition, schema) else {
                is_exact = false;
                continue;
            };
            is_exact &= cover.is_exact;
            // With the first that does not make too many boxes with it.
            let both = all.iter().enumerate().find_map(|(at, one)| Some((at, one.and(&cover)?)));
            if let Some((at, both)) = both {
                all.remove(at);
                cover = both;
            }
            all.push(cover);
        }
        (all.into_iter().map(|cover| cover.regions).collect(), is_exact)
    }

    /// What is in both; nothing when that would be too many boxes.
    fn and(&self, other: &Self) -> Option<Self> {
        let (own, others) = (self.regions.boxes(), other.regions.boxes());
        if own.len() * others.len() > BOXES_MAX {
            return None;
        }
        let both = own.iter().flat_map(|one| others.iter().map(|other| one.within(other)));
        Some(Self { regions: Regions::of(both), is_exact: self.is_exact && other.is_exact })
    }

    fn or(&self, other: &Self) -> Option<Self> {
        let all = self.regions.boxes().iter().chain(other.regions.boxes());
        let regions = Regions::of(all.cloned());
        let is_exact = self.is_exact && other.is_exact;
        (regions.boxes().len() <= BOXES_MAX).then_some(Self { regions, is_exact })
    }
}

/// A dimension that is compared.
struct Asked<'a> {
    at: usize,
    /// The type to which it is cast.
    cast: Option<&'a DataType>,
}

/// The dimensions of a table, by the names of their columns.
struct Dimensions<'a>(&'a TableSchema);

impl Dimensions<'_> {
    fn inexactly(cover: Cover) -> Cover {
        Cover { is_exact: false, ..cover }
    }

    fn cover(&self, condition: &Expr) -> Option<Cover> {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                match (self.cover(left), self.cover(right)) {
                    (Some(left), Some(right)) => Some(left.and(&right).unwrap_or_else(|| {
                        let fewer = left.regions.boxes().len() <= right.regions.boxes().len();
                        Self::inexactly(if fewer { left } else { right })
                    })),
                    (one, other) => one.or(other).map(Self::inexactly),
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                self.cover(left)?.or(&self.cover(right)?)
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                match (self.dimension(left), self.dimension(right)) {
                    (Some(asked), None) => self.compared(&asked, *op, right),
                    (None, Some(asked)) => self.compared(&asked, op.swap()?, left),
                    _ => None,
                }
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let asked = self.dimension(expr)?;
                // One bound alone may still rule rows out, but tells less than what is asked.
                let low = self.place(&asked, low)??.sides(Operator::GtEq)?;
                let high = self.place(&asked, high)??.sides(Operator::LtEq)?;
                let both = low.iter().zip(&high).map(|(low, high)| low.within(high)).collect();
                Some(self.sides(asked.at, if *negated { gaps(both) } else { both }))
            }
            Expr::InList(InList { expr, list, negated }) => {
                let asked = self.dimension(expr)?;
                if list.len() >= BOXES_MAX {
                    return None;
                }
                let places = list
                    .iter()
                    .map(|value| self.place(&asked, value))
                    .collect::<Option<Vec<_>>>()?;
                // What is compared with NULL holds for no row.
                if *negated && places.contains(&None) {
                    return Some(Cover::exactly(Regions::default()));
                }
                let equal =
                    places.into_iter().flatten().filter_map(|place| place.sides(Operator::Eq));
                let equal = equal.flatten().collect();
                Some(self.sides(asked.at, if *negated { gaps(equal) } else { equal }))
            }
            // No dimension is ever NULL.
            Expr::IsNull(expr) => self.plain(expr).then(|| Cover::exactly(Regions::default())),
            Expr::IsNotNull(expr) => {
                self.plain(expr).then(|| Cover::exactly(Regions::all(self.0.dimensions.len())))
            }
            Expr::Literal(ScalarValue::Boolean(held), _) => Some(Cover::exactly(match held {
                Some(true) => Regions::all(self.0.dimensions.len()),
                Some(false) | None => Regions::default(),
            })),
            _ => None,
        }
    }

    fn compared(&self, asked: &Asked<'_>, op: Operator, value: &Expr) -> Option<Cover> {
        match self.place(asked, value)? {
            Some(place) => Some(self.sides(asked.at, place.sides(op)?)),
            None => matches!(
                op,
                Operator::Eq
                    | Operator::NotEq
                    | Operator::Lt
                    | Operator::LtEq
                    | Operator::Gt
                    | Operator::GtEq
            )
            .then(|| Cover::exactly(Regions::default())),
        }
    }

    /// Whether it is a dimension, and no cast of one.
    fn plain(&self, expr: &Expr) -> bool {
        self.dimension(expr).is_some_and(|asked| asked.cast.is_none())
    }

    /// Boxes that are bound in one dimension.
    fn sides(&self, at: usize, sides: Vec<Side>) -> Cover {
        let region = |side: Side| {
            let mut all = vec![Side::ALL; self.0.dimensions.len()];
            all[at] = side;
            Region::new(all)
        };
        Cover::exactly(Regions::of(sides.into_iter().map(region)))
    }

    /// Which dimension a column is, or a cast of it.
    fn dimension<'a>(&self, expr: &'a Expr) -> Option<Asked<'a>> {
        let (expr, cast) = match expr {
            Expr::Cast(cast) => (&*cast.expr, Some(cast.field.data_type())),
            expr => (expr, None),
        };
        let Expr::Column(column) = expr else { return None };
        let is_it = |id: &tidefall_types::FieldId| self.0.fields[id.index()].name == column.name;
        let at = self.0.dimensions.iter().position(is_it)?;
        Some(Asked { at, cast })
    }

    /// The place of a literal; none within for NULL, none at all for what has none.
    fn place(&self, asked: &Asked<'_>, value: &Expr) -> Option<Option<Place>> {
        let Expr::Literal(value, _) = value else { return None };
        if value.is_null() {
            return Some(None);
        }
        let ty = self.0.fields[self.0.dimensions[asked.at].index()].ty;
        Place::of(value, ty, asked.cast).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::binary_expr;
    use datafusion::prelude::{cast, col, lit};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tidefall_storage::record_tables::ordinal::ordinals;
    use tidefall_types::{FieldType, TableId, one_form};

    use super::*;

    fn schema() -> TableSchema {
        let mut schema = TableSchema::records(TableId(1), "t");
        for (name, ty) in [("n", FieldType::I64), ("x", FieldType::F64), ("v", FieldType::F64)] {
            schema.add_field(name, ty).expect("a column");
        }
        schema.set_dimensions(&["n", "x"]).expect("dimensions");
        schema
    }

    fn boxes(condition: &Expr) -> Option<(usize, bool)> {
        let cover = Cover::of(condition, &schema())?;
        Some((cover.regions.boxes().len(), cover.is_exact))
    }

    #[test]
    fn conditions_on_dimensions_are_boxes() {
        let n = || col("n");
        let x = || col("x");
        for (condition, expected) in [
            (n().gt(lit(5_i64)), Some((1, true))),
            (lit(5_i64).lt(n()), Some((1, true))),
            (n().eq(lit(5_i64)).and(x().lt_eq(lit(2.0))), Some((1, true))),
            (n().not_eq(lit(5_i64)), Some((2, true))),
            (n().not_eq(lit(5_i64)).and(x().not_eq(lit(0.0))), Some((4, true))),
            (n().in_list(vec![lit(1_i64), lit(9_i64), lit(1_i64)], false), Some((2, true))),
            (n().between(lit(1_i64), lit(3_i64)).or(x().gt(lit(7.5))), Some((2, true))),
            (n().between(lit(3_i64), lit(1_i64)), Some((0, true))),
            (n().lt(lit(i64::MIN)), Some((0, true))),
            (n().eq(lit(ScalarValue::Int64(None))), Some((0, true))),
            (n().is_null(), Some((0, true))),
            (n().is_not_null(), Some((1, true))),
            // What is about another column as well.
            (n().gt(lit(5_i64)).and(col("v").gt(lit(1.0))), Some((1, false))),
            (n().gt(lit(5_i64)).or(col("v").gt(lit(1.0))), None),
            (col("v").gt(lit(1.0)), None),
            (n().gt(col("x")), None),
            // A literal of another type is not compared as one of the column's.
            (n().gt(lit(5.5)), None),
            // Unless that is cast to it.
            (cast(n(), DataType::Float64).gt(lit(5.5)), Some((1, true))),
            (cast(n(), DataType::Float64).eq(lit(5.5)), Some((0, true))),
            (cast(n(), DataType::Float64).not_eq(lit(5.5)), Some((2, true))),
            (cast(n(), DataType::Utf8).gt(lit("5")), None),
            (n().in_list((0..9).map(|at| lit(2 * at as i64)).collect(), true), Some((10, true))),
            (n().in_list(vec![lit(1_i64), lit(ScalarValue::Int64(None))], true), Some((0, true))),
        ] {
            assert_eq!(boxes(&condition), expected, "{condition}");
        }
        let many = (0..300).fold(n().eq(lit(-1_i64)), |all, at| all.or(n().eq(lit(2 * at as i64))));
        assert_eq!(boxes(&many), None);
    }

    /// Each condition alone was promised to be looked at here, and both together made too many boxes: one was forgotten.
    #[test]
    fn conditions_that_make_too_many_boxes_are_all_kept() {
        let list = |name: &str| {
            let values = (0..17).map(|at| lit(2 * at as i64)).collect();
            col(name).in_list(values, false)
        };
        let mut schema = TableSchema::records(TableId(1), "t");
        for name in ["a", "b", "c"] {
            schema.add_field(name, FieldType::I64).expect("a column");
        }
        schema.set_dimensions(&["a", "b", "c"]).expect("dimensions");
        let conditions = [list("a"), list("b"), col("c").gt(lit(3_i64)), list("c")];
        let (all, is_exact) = Cover::of_all(&conditions, &schema);
        assert!(is_exact && all.len() > 1, "{} unions", all.len());
        for point in [[0, 2, 4], [0, 2, 2], [1, 2, 4], [0, 3, 4], [32, 32, 32], [34, 0, 4]] {
            let inside = |ordinal: &i64| (0..=32).contains(ordinal) && ordinal % 2 == 0;
            let expected = point.iter().all(inside) && point[2] > 3;
            assert_eq!(all.iter().all(|regions| regions.contains(&point)), expected, "{point:?}");
        }
    }

    #[test]
    fn nan_is_above_all_numbers() {
        let cover = Cover::of(&col("x").gt(lit(f64::INFINITY)), &schema()).expect("a box");
        let side = cover.regions.boxes()[0].sides()[1];
        let nan = ordinals(&datafusion::arrow::array::Float64Array::from(vec![f64::NAN]));
        assert!(side.contains(nan.expect("floats")[0]));
        let zero = Cover::of(&col("x").eq(lit(-0.0)), &schema()).expect("a box");
        assert!(zero.regions.contains(&[0, 0]));
    }

    /// Values of a type with its ends, and what is odd, as literals.
    fn literals(ty: FieldType) -> Vec<ScalarValue> {
        macro_rules! whole {
            ($scalar:ident, $native:ty) => {
                [<$native>::MIN, <$native>::MIN + 1, 7, 8, 100, <$native>::MAX - 1, <$native>::MAX]
                    .map(|value| ScalarValue::$scalar(Some(value)))
                    .to_vec()
            };
        }
        macro_rules! float {
            ($scalar:ident, $native:ident) => {
                [
                    $native::NAN,
                    $native::INFINITY,
                    $native::NEG_INFINITY,
                    0.0,
                    -0.0,
                    $native::MAX,
                    $native::MIN,
                    $native::MIN_POSITIVE,
                    1.5,
                ]
                .map(|value| ScalarValue::$scalar(Some(value)))
                .to_vec()
            };
        }
        match ty {
            FieldType::I8 => whole!(Int8, i8),
            FieldType::I16 => whole!(Int16, i16),
            FieldType::I32 => whole!(Int32, i32),
            FieldType::I64 => whole!(Int64, i64),
            FieldType::U8 => whole!(UInt8, u8),
            FieldType::U16 => whole!(UInt16, u16),
            FieldType::U32 => whole!(UInt32, u32),
            FieldType::U64 => whole!(UInt64, u64),
            FieldType::F32 => float!(Float32, f32),
            FieldType::F64 => float!(Float64, f64),
            FieldType::Timestamp => [i64::MIN, -1, 0, 7, i64::MAX]
                .map(|ns| ScalarValue::TimestampNanosecond(Some(ns), None))
                .to_vec(),
            FieldType::Bool | FieldType::Text => Vec::new(),
        }
    }

    fn ordinal(literal: &ScalarValue) -> i64 {
        let column = literal.to_array().expect("a column");
        ordinals(&*one_form(&column).unwrap_or(column)).expect("ordinals")[0]
    }

    type Holds = Box<dyn Fn(&[i64]) -> bool>;
    type Compare = fn(&i64, &i64) -> bool;

    /// A condition on some dimensions, and whether it holds at a point.
    fn any_condition(rng: &mut SmallRng, values: &[Vec<ScalarValue>], depth: u32) -> (Expr, Holds) {
        if depth > 0 && rng.random_bool(0.6) {
            let (left, left_holds) = any_condition(rng, values, depth - 1);
            let (right, right_holds) = any_condition(rng, values, depth - 1);
            return match rng.random_bool(0.6) {
                true => (left.and(right), Box::new(move |at| left_holds(at) && right_holds(at))),
                false => (left.or(right), Box::new(move |at| left_holds(at) || right_holds(at))),
            };
        }
        let at = rng.random_range(0..values.len());
        let name = format!("d{at}");
        let mut any = || {
            let value = values[at][rng.random_range(0..values[at].len())].clone();
            (Expr::Literal(value.clone(), None), ordinal(&value))
        };
        let ((one, first), (other, second), (third, last)) = (any(), any(), any());
        let is_negated = rng.random_bool(0.5);
        match rng.random_range(0..4) {
            0 => {
                let between =
                    Between::new(Box::new(col(&name)), is_negated, Box::new(one), Box::new(other));
                let holds =
                    move |point: &[i64]| (first..=second).contains(&point[at]) != is_negated;
                (Expr::Between(between), Box::new(holds))
            }
            1 => {
                let holds =
                    move |point: &[i64]| [first, second, last].contains(&point[at]) != is_negated;
                (col(&name).in_list(vec![one, other, third], is_negated), Box::new(holds))
            }
            _ => {
                let ops: [(Operator, Compare); 6] = [
                    (Operator::Eq, i64::eq),
                    (Operator::NotEq, i64::ne),
                    (Operator::Lt, i64::lt),
                    (Operator::LtEq, i64::le),
                    (Operator::Gt, i64::gt),
                    (Operator::GtEq, i64::ge),
                ];
                let (op, compare) = ops[rng.random_range(0..ops.len())];
                match is_negated {
                    false => (
                        binary_expr(col(&name), op, one),
                        Box::new(move |point| compare(&point[at], &first)),
                    ),
                    true => (
                        binary_expr(one, op, col(&name)),
                        Box::new(move |point| compare(&first, &point[at])),
                    ),
                }
            }
        }
    }

    /// Every mix of open and closed sides, of 1 to 16 dimensions of all types, at the ends of these.
    #[test]
    fn boxes_are_where_their_conditions_hold() {
        let types: Vec<FieldType> =
            FieldType::ALL.into_iter().filter(|ty| ty.is_dimension()).collect();
        let rounds = std::env::var("TIDEFALL_BOXES").ok().and_then(|count| count.parse().ok());
        let rounds: usize = rounds.unwrap_or(100_000) / 100;
        let mut rng = SmallRng::seed_from_u64(3);
        let (mut exact, mut inside) = (0, 0);
        for round in 0..rounds {
            let count = round % 16 + 1;
            let mut schema = TableSchema::records(TableId(1), "t");
            let mut values = Vec::new();
            for at in 0..count {
                let ty = types[rng.random_range(0..types.len())];
                schema.add_field(&format!("d{at}"), ty).expect("a column");
                values.push(literals(ty));
            }
            let names: Vec<String> = (0..count).map(|at| format!("d{at}")).collect();
            schema.set_dimensions(&names).expect("dimensions");
            for _ in 0..100 {
                let (condition, holds) = any_condition(&mut rng, &values, 3);
                let Some(cover) = Cover::of(&condition, &schema) else {
                    panic!("{condition} is no box")
                };
                exact += usize::from(cover.is_exact);
                for _ in 0..10 {
                    let point: Vec<i64> = values
                        .iter()
                        .map(|all| ordinal(&all[rng.random_range(0..all.len())]))
                        .collect();
                    let (is_inside, holds) = (cover.regions.contains(&point), holds(&point));
                    inside += usize::from(is_inside);
                    assert!(is_inside || !holds, "{condition} holds at {point:?}");
                    assert!(holds || !is_inside || !cover.is_exact, "{condition} at {point:?}");
                }
            }
        }
        assert!(exact > rounds * 90 && inside > rounds * 100, "{exact} exact, {inside} inside");
    }
}
