//! Where a value lies among the ordinals of a dimension.

use datafusion::arrow::array::{Array, ArrayRef, Datum};
use datafusion::arrow::compute::kernels::cmp::{gt, lt};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use tidefall_storage::record_tables::ordinal::{column_of, extent, ordinals};
use tidefall_storage::record_tables::region::Side;
use tidefall_types::{FieldType, one_form};

/// The neighbours of a value, which itself need not be one of the dimension: 10.5 lies between 10 and 11.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The last ordinal that is less.
    below: Option<i64>,
    /// The first one that is greater.
    above: Option<i64>,
}

impl Place {
    /// Of a value beside a dimension of a type, as it is or cast to another; nothing where their order is not that of ordinals.
    pub(super) fn of(value: &ScalarValue, ty: FieldType, cast: Option<&DataType>) -> Option<Self> {
        let value = value.to_array().ok()?;
        let value = one_form(&value).unwrap_or(value);
        let asked = cast.cloned().unwrap_or_else(|| ty.arrow());
        if *value.data_type() != asked {
            return None;
        }
        if asked == ty.arrow() {
            let ordinal = *ordinals(&*value)?.first()?;
            return Some(Self { below: ordinal.checked_sub(1), above: ordinal.checked_add(1) });
        }
        Self::among_casts(&value, ty, &asked)
    }

    /// Casts keep the order, if they are of the same sort and can be made of all values, and may make equals of several.
    fn among_casts(value: &ArrayRef, ty: FieldType, to: &DataType) -> Option<Self> {
        let is_of_a_sort = match ty {
            FieldType::Timestamp => {
                matches!(to, DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64)
            }
            _ => to.is_numeric(),
        };
        let (least, greatest) = extent(ty);
        let cast = |ordinal: i64| {
            let options = CastOptions { safe: true, ..CastOptions::default() };
            let cast = cast_with_options(&column_of(ty, [Some(ordinal)]), to, &options).ok()?;
            let cast = one_form(&cast).unwrap_or(cast);
            cast.is_valid(0).then_some(cast)
        };
        if !is_of_a_sort || cast(least).is_none() || cast(greatest).is_none() {
            return None;
        }
        let is_less = |ordinal: i64| Some(lt(&cast(ordinal)? as &dyn Datum, value).ok()?.value(0));
        let is_no_greater =
            |ordinal: i64| Some(!gt(&cast(ordinal)? as &dyn Datum, value).ok()?.value(0));
        Some(Self {
            below: last_of((least, greatest), is_less)?,
            above: match last_of((least, greatest), is_no_greater)? {
                None => Some(least),
                Some(last) if last == greatest => None,
                Some(last) => Some(last + 1),
            },
        })
    }

    /// The ordinals for which a comparison holds; nothing when it is none.
    pub(super) fn sides(self, op: Operator) -> Option<Vec<Side>> {
        let less = self.below.map(|last| Side::new(i64::MIN, last));
        let greater = self.above.map(|first| Side::new(first, i64::MAX));
        // Beyond what the type has no row is, so that a side may reach there.
        let from = self.below.map_or(Some(i64::MIN), |last| last.checked_add(1));
        let until = self.above.map_or(Some(i64::MAX), |first| first.checked_sub(1));
        let sides: Vec<Side> = match op {
            Operator::Eq | Operator::IsNotDistinctFrom => {
                from.zip(until).map(|(first, last)| Side::new(first, last)).into_iter().collect()
            }
            Operator::NotEq | Operator::IsDistinctFrom => less.into_iter().chain(greater).collect(),
            Operator::Lt => less.into_iter().collect(),
            Operator::LtEq => until.map(|last| Side::new(i64::MIN, last)).into_iter().collect(),
            Operator::Gt => greater.into_iter().collect(),
            Operator::GtEq => from.map(|first| Side::new(first, i64::MAX)).into_iter().collect(),
            _ => return None,
        };
        Some(sides)
    }
}

/// The last ordinal from the first to the last one for which something holds, that holds for all before one for which it does.
fn last_of((first, last): (i64, i64), holds: impl Fn(i64) -> Option<bool>) -> Option<Option<i64>> {
    if !holds(first)? {
        return Some(None);
    }
    let (mut low, mut high) = (i128::from(first), i128::from(last) + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        match holds(i64::try_from(middle).ok()?)? {
            true => low = middle,
            false => high = middle,
        }
    }
    Some(i64::try_from(low).ok())
}

/// What no side has in it.
pub(super) fn gaps(mut sides: Vec<Side>) -> Vec<Side> {
    sides.retain(|side| !side.is_empty());
    sides.sort_unstable_by_key(|side| side.first);
    let (mut gaps, mut from) = (Vec::with_capacity(sides.len() + 1), Some(i64::MIN));
    for side in sides {
        let Some(first) = from else { break };
        if first < side.first {
            gaps.push(Side::new(first, side.first - 1));
        }
        from = side.last.checked_add(1).map(|next| next.max(first));
    }
    gaps.extend(from.map(|first| Side::new(first, i64::MAX)));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sides that a comparison has, as ordinals of a few values.
    fn check(ty: FieldType, value: &ScalarValue, values: &ArrayRef) {
        let place = Place::of(value, ty, Some(&value.data_type())).expect("a place");
        let asked = value.to_array().expect("a value");
        let options = CastOptions { safe: true, ..CastOptions::default() };
        for row in 0..values.len() {
            let one = values.slice(row, 1);
            let cast = cast_with_options(&one, &value.data_type(), &options).expect("a cast");
            let ordinal = ordinals(&*one).expect("ordinals")[0];
            let (less, greater) = (
                lt(&cast as &dyn Datum, &asked).expect("compared").value(0),
                gt(&cast as &dyn Datum, &asked).expect("compared").value(0),
            );
            for (op, expected) in [
                (Operator::Lt, less),
                (Operator::Gt, greater),
                (Operator::LtEq, !greater),
                (Operator::GtEq, !less),
                (Operator::Eq, !less && !greater),
                (Operator::NotEq, less || greater),
            ] {
                let sides = place.sides(op).expect("a comparison");
                let found = sides.iter().any(|side| side.contains(ordinal));
                assert_eq!(found, expected, "{ty:?} {one:?} {op} {value:?}: {place:?}");
            }
        }
    }

    #[test]
    fn values_of_other_types_have_their_places() {
        use datafusion::arrow::array::{Float32Array, Int8Array, Int64Array, UInt64Array};
        use std::sync::Arc;

        let doubles = [
            0.0,
            0.1,
            -0.5,
            10.5,
            11.0,
            127.0,
            127.5,
            -129.0,
            1e18,
            -1e19,
            2e19,
            f64::from(f32::MAX),
            f64::MAX,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let bytes: ArrayRef = Arc::new(Int8Array::from(vec![-128, -1, 0, 1, 10, 11, 127]));
        let near = 1_000_000_000_000_000_000;
        let whole =
            vec![i64::MIN, near - 64, near - 1, near, near + 1, near + 65, -1, 0, 11, i64::MAX];
        let longs: ArrayRef = Arc::new(Int64Array::from(whole));
        let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![0, 1, 11, 1 << 63, u64::MAX]));
        let floats: ArrayRef = Arc::new(Float32Array::from(vec![
            f32::NEG_INFINITY,
            -0.5,
            0.0,
            0.1,
            0.099_999_99,
            10.5,
            11.0,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ]));
        for double in doubles {
            let value = ScalarValue::Float64(Some(double));
            check(FieldType::I8, &value, &bytes);
            check(FieldType::I64, &value, &longs);
            check(FieldType::U64, &value, &unsigned);
            check(FieldType::F32, &value, &floats);
        }
        for whole in [i64::MIN, -129, -1, 0, 11, 127, 128, i64::MAX] {
            check(FieldType::I8, &ScalarValue::Int64(Some(whole)), &bytes);
            let decimal = ScalarValue::Decimal128(Some(i128::from(whole)), 20, 0);
            check(FieldType::U64, &decimal, &unsigned);
            check(FieldType::I64, &decimal, &longs);
        }
    }

    #[test]
    fn casts_without_an_order_have_no_places() {
        let text = ScalarValue::from("11");
        assert_eq!(Place::of(&text, FieldType::I8, Some(&DataType::Utf8)), None);
        let byte = ScalarValue::Int8(Some(11));
        assert_eq!(Place::of(&byte, FieldType::I64, Some(&DataType::Int8)), None);
        assert_eq!(Place::of(&byte, FieldType::F64, Some(&DataType::Int8)), None);
    }

    #[test]
    fn gaps_are_between_sides() {
        let side = |(first, last): (i64, i64)| Side::new(first, last);
        let gaps_of = |sides: &[(i64, i64)]| -> Vec<(i64, i64)> {
            let gaps = gaps(sides.iter().copied().map(side).collect());
            gaps.into_iter().map(|gap| (gap.first, gap.last)).collect()
        };
        let (min, max) = (i64::MIN, i64::MAX);
        assert_eq!(gaps_of(&[]), [(min, max)]);
        assert_eq!(gaps_of(&[(5, 5), (1, 3), (4, 4), (9, 8)]), [(min, 0), (6, max)]);
        assert_eq!(gaps_of(&[(min, 0), (2, max), (3, 3)]), [(1, 1)]);
        assert_eq!(gaps_of(&[(1, 9), (2, 3)]), [(min, 0), (10, max)]);
    }
}
