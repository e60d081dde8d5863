//! Conditions as boxes.

use datafusion::arrow::array::Array;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use tidefall_storage::record_tables::ordinal::ordinals;
use tidefall_storage::record_tables::region::{Region, Regions, Side};
use tidefall_types::{TableSchema, one_form};

/// Boxes of a union at most: each is tested against each leaf. Of more a condition is looked at row by row.
const BOXES_MAX: usize = 256;

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
                    (Some(at), None) => self.compared(at, *op, right),
                    (None, Some(at)) => self.compared(at, op.swap()?, left),
                    _ => None,
                }
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let at = self.dimension(expr)?;
                let (low, high) = (self.ordinal(at, low)?, self.ordinal(at, high)?);
                let Some((low, high)) = low.zip(high) else {
                    // One bound alone may still rule rows out, but tells less than what is asked.
                    return None;
                };
                Some(self.sides(
                    at,
                    match negated {
                        false => vec![Side::new(low, high)],
                        true => [below(low), above(high)].into_iter().flatten().collect(),
                    },
                ))
            }
            Expr::InList(InList { expr, list, negated: false }) => {
                let at = self.dimension(expr)?;
                if list.len() > BOXES_MAX {
                    return None;
                }
                let ordinals =
                    list.iter().map(|value| self.ordinal(at, value)).collect::<Option<Vec<_>>>()?;
                // What is compared with NULL holds for no row.
                let sides =
                    ordinals.into_iter().flatten().map(|ordinal| Side::new(ordinal, ordinal));
                Some(self.sides(at, sides.collect()))
            }
            // No dimension is ever NULL.
            Expr::IsNull(expr) => self.dimension(expr).map(|_| Cover::exactly(Regions::default())),
            Expr::IsNotNull(expr) => {
                self.dimension(expr).map(|_| Cover::exactly(Regions::all(self.0.dimensions.len())))
            }
            Expr::Literal(ScalarValue::Boolean(held), _) => Some(Cover::exactly(match held {
                Some(true) => Regions::all(self.0.dimensions.len()),
                Some(false) | None => Regions::default(),
            })),
            _ => None,
        }
    }

    fn compared(&self, at: usize, op: Operator, value: &Expr) -> Option<Cover> {
        let Some(ordinal) = self.ordinal(at, value)? else {
            return matches!(
                op,
                Operator::Eq
                    | Operator::NotEq
                    | Operator::Lt
                    | Operator::LtEq
                    | Operator::Gt
                    | Operator::GtEq
            )
            .then(|| Cover::exactly(Regions::default()));
        };
        let sides: Vec<Side> = match op {
            Operator::Eq | Operator::IsNotDistinctFrom => vec![Side::new(ordinal, ordinal)],
            Operator::NotEq | Operator::IsDistinctFrom => {
                [below(ordinal), above(ordinal)].into_iter().flatten().collect()
            }
            Operator::Lt => below(ordinal).into_iter().collect(),
            Operator::LtEq => vec![Side::new(i64::MIN, ordinal)],
            Operator::Gt => above(ordinal).into_iter().collect(),
            Operator::GtEq => vec![Side::new(ordinal, i64::MAX)],
            _ => return None,
        };
        Some(self.sides(at, sides))
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

    /// Which dimension a column is.
    fn dimension(&self, expr: &Expr) -> Option<usize> {
        let Expr::Column(column) = expr else { return None };
        let is_it = |id: &tidefall_types::FieldId| self.0.fields[id.index()].name == column.name;
        self.0.dimensions.iter().position(is_it)
    }

    /// A literal as an ordinal of a dimension; none within for NULL, none at all for what is no literal of its type.
    fn ordinal(&self, at: usize, value: &Expr) -> Option<Option<i64>> {
        let Expr::Literal(value, _) = value else { return None };
        if value.is_null() {
            return Some(None);
        }
        let ty = self.0.fields[self.0.dimensions[at].index()].ty;
        if value.data_type() != ty.arrow() {
            return None;
        }
        let array = value.to_array().ok()?;
        let array = one_form(&array).unwrap_or(array);
        debug_assert_eq!(array.len(), 1);
        ordinals(&*array)?.first().map(|ordinal| Some(*ordinal))
    }
}

fn below(ordinal: i64) -> Option<Side> {
    ordinal.checked_sub(1).map(|last| Side::new(i64::MIN, last))
}

fn above(ordinal: i64) -> Option<Side> {
    ordinal.checked_add(1).map(|first| Side::new(first, i64::MAX))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};
    use tidefall_types::{FieldType, TableId};

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
}
