//! Decimals into the floats that are nearest to them.

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
    Float32Type, Float64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;

/// Powers of ten that `f64` holds exactly.
pub const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Every whole number up to here is an `f64`.
pub const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;

/// The floats of a type, `Float64` or `Float32`, nearest to the values of a column of decimals. Arrow's own cast rounds the
/// digits and then their quotient, which may be another float. Nothing for columns of anything else, and for other types.
pub fn nearest_floats(decimals: &dyn Array, to: &DataType) -> Option<ArrayRef> {
    match decimals.data_type() {
        DataType::Decimal32(_, scale) => of_decimals::<Decimal32Type>(decimals, *scale, to),
        DataType::Decimal64(_, scale) => of_decimals::<Decimal64Type>(decimals, *scale, to),
        DataType::Decimal128(_, scale) => of_decimals::<Decimal128Type>(decimals, *scale, to),
        DataType::Decimal256(_, scale) => of_decimals::<Decimal256Type>(decimals, *scale, to),
        _ => None,
    }
}

fn of_decimals<T: DecimalType>(decimals: &dyn Array, scale: i8, to: &DataType) -> Option<ArrayRef> {
    let decimals = decimals.as_primitive::<T>();
    let power = usize::try_from(scale).ok().and_then(|scale| POWERS_OF_TEN.get(scale));
    match to {
        // Both are exact, so that their quotient is rounded once.
        DataType::Float64 => Some(nearest::<T, Float64Type>(decimals, |digits| {
            let power = power.filter(|_| digits.unsigned_abs() <= EXACT_MAX)?;
            Some(digits as f64 / power)
        })),
        DataType::Float32 => Some(nearest::<T, Float32Type>(decimals, |_| None)),
        _ => None,
    }
}

/// The floats nearest to decimals, those of few digits by a shorter way.
fn nearest<T: DecimalType, F: ArrowPrimitiveType<Native: FromStr>>(
    decimals: &PrimitiveArray<T>,
    of_few: impl Fn(i64) -> Option<F::Native>,
) -> ArrayRef {
    let floats = decimals.iter().enumerate().map(|(row, value)| {
        let float = value?.to_i64().and_then(&of_few);
        float.or_else(|| decimals.value_as_string(row).parse().ok())
    });
    Arc::new(floats.collect::<PrimitiveArray<F>>())
}

#[cfg(test)]
mod tests {
    use arrow_array::{Decimal32Array, Decimal128Array, Float32Array, Float64Array};

    use super::*;

    #[test]
    fn floats_are_the_nearest_of_their_type() {
        let digits = vec![Some(872_911_066_945_999_000), None, Some(-15_000), Some(1)];
        let decimals = Decimal128Array::from(digits).with_precision_and_scale(38, 4).unwrap();
        let found = nearest_floats(&decimals, &DataType::Float64).unwrap();
        let expected =
            Float64Array::from(vec![Some(87_291_106_694_599.9), None, Some(-1.5), Some(1e-4)]);
        assert_eq!(found.as_ref(), &expected as &dyn Array);
        let found = nearest_floats(&decimals, &DataType::Float32).unwrap();
        let expected =
            Float32Array::from(vec![Some(87_291_106_694_599.9), None, Some(-1.5), Some(1e-4)]);
        assert_eq!(found.as_ref(), &expected as &dyn Array);
        let whole = Decimal32Array::from(vec![7]).with_precision_and_scale(3, -2).unwrap();
        let found = nearest_floats(&whole, &DataType::Float64).unwrap();
        assert_eq!(found.as_ref(), &Float64Array::from(vec![700.0]) as &dyn Array);
        assert!(nearest_floats(&whole, &DataType::Int64).is_none());
        assert!(nearest_floats(&expected, &DataType::Float64).is_none());
    }
}
