//! Ordinals: values of a dimension as integers in the same order. Floats come in their one form
//! (`tidefall_types::floats`), so that NaN is one value, above all others.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use tidefall_codec::Number;
use tidefall_types::{FieldType, OneForm};

/// Runs an expression with the native values of a column of numbers, times or ordinals; none for texts and truth values.
macro_rules! with_values {
    ($array:expr, |$values:ident| $body:expr) => {
        with_values!(@ $array, $values, $body,
            Int8 => Int8Type, Int16 => Int16Type, Int32 => Int32Type, Int64 => Int64Type,
            UInt8 => UInt8Type, UInt16 => UInt16Type, UInt32 => UInt32Type, UInt64 => UInt64Type,
            Float32 => Float32Type, Float64 => Float64Type)
    };
    (@ $array:expr, $values:ident, $body:expr, $($data:ident => $arrow:ident),*) => {
        match $array.data_type() {
            arrow_schema::DataType::Timestamp(..) => {
                let $values: &[_] = arrow_array::cast::AsArray::as_primitive::<
                    arrow_array::types::TimestampNanosecondType,
                >($array).values();
                Some($body)
            }
            $(arrow_schema::DataType::$data => {
                let $values: &[_] = arrow_array::cast::AsArray::as_primitive::<
                    arrow_array::types::$arrow,
                >($array).values();
                Some($body)
            })*
            _ => None,
        }
    };
}
pub(crate) use with_values;

/// The ordinals of a column; nothing when it cannot be a dimension. Those of nulls say nothing.
pub fn ordinals(column: &dyn Array) -> Option<Vec<i64>> {
    with_values!(column, |values| values.iter().map(|value| value.to_int()).collect())
}

/// A column of the values of some ordinals, with NULL where there is none.
///
/// # Panics
/// For a type that has no ordinals.
pub fn column_of(ty: FieldType, ordinals: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    let ordinals = ordinals.into_iter();
    macro_rules! of {
        ($array:ident, $native:ident) => {
            Arc::new(ordinals.map(|ordinal| ordinal.map($native::from_int)).collect::<$array>())
        };
    }
    match ty {
        FieldType::I8 => of!(Int8Array, i8),
        FieldType::I16 => of!(Int16Array, i16),
        FieldType::I32 => of!(Int32Array, i32),
        FieldType::I64 => of!(Int64Array, i64),
        FieldType::U8 => of!(UInt8Array, u8),
        FieldType::U16 => of!(UInt16Array, u16),
        FieldType::U32 => of!(UInt32Array, u32),
        FieldType::U64 => of!(UInt64Array, u64),
        FieldType::F32 => of!(Float32Array, f32),
        FieldType::F64 => of!(Float64Array, f64),
        FieldType::Timestamp => of!(TimestampNanosecondArray, i64),
        FieldType::Text | FieldType::Bool => unreachable!("{ty:?} has no ordinals"),
    }
}

/// The least and the greatest ordinal of a type.
///
/// # Panics
/// For a type that has no ordinals.
pub fn extent(ty: FieldType) -> (i64, i64) {
    match ty {
        FieldType::I8 => (i8::MIN.to_int(), i8::MAX.to_int()),
        FieldType::I16 => (i16::MIN.to_int(), i16::MAX.to_int()),
        FieldType::I32 => (i32::MIN.to_int(), i32::MAX.to_int()),
        FieldType::I64 | FieldType::Timestamp => (i64::MIN, i64::MAX),
        FieldType::U8 => (u8::MIN.to_int(), u8::MAX.to_int()),
        FieldType::U16 => (u16::MIN.to_int(), u16::MAX.to_int()),
        FieldType::U32 => (u32::MIN.to_int(), u32::MAX.to_int()),
        FieldType::U64 => (u64::MIN.to_int(), u64::MAX.to_int()),
        FieldType::F32 => (f32::NEG_INFINITY.to_int(), f32::NAN.one_form().to_int()),
        FieldType::F64 => (f64::NEG_INFINITY.to_int(), f64::NAN.one_form().to_int()),
        FieldType::Text | FieldType::Bool => unreachable!("{ty:?} has no ordinals"),
    }
}

/// An ordinal of a type as a number that distances are made of: exact but for whole numbers beyond 2^53.
pub fn position(ty: FieldType, ordinal: i64) -> f64 {
    match ty {
        FieldType::F32 => f32::from_int(ordinal).to_f64(),
        FieldType::F64 => f64::from_int(ordinal),
        FieldType::U64 => u64::from_int(ordinal).to_f64(),
        _ => ordinal as f64,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::BooleanArray;

    use super::*;

    #[test]
    fn ordinals_have_the_order_of_values() {
        let columns: [(FieldType, ArrayRef); 5] = [
            (FieldType::I8, Arc::new(Int8Array::from(vec![-128, -1, 0, 127]))),
            (FieldType::U64, Arc::new(UInt64Array::from(vec![0, 1, 1 << 63, u64::MAX]))),
            (
                FieldType::F32,
                Arc::new(Float32Array::from(vec![
                    f32::NEG_INFINITY,
                    -1.5,
                    0.0,
                    1e-9,
                    f32::INFINITY,
                    f32::NAN,
                ])),
            ),
            (
                FieldType::F64,
                Arc::new(Float64Array::from(vec![
                    f64::NEG_INFINITY,
                    -1e300,
                    0.0,
                    5e-324,
                    f64::INFINITY,
                    f64::NAN,
                ])),
            ),
            (
                FieldType::Timestamp,
                Arc::new(TimestampNanosecondArray::from(vec![i64::MIN, -1, 0, i64::MAX])),
            ),
        ];
        for (ty, column) in columns {
            let found = ordinals(&*column).unwrap();
            assert!(found.is_sorted_by(|a, b| a < b), "{ty:?}: {found:?}");
            for (row, ordinal) in found.iter().enumerate() {
                let back = ordinals(&*column_of(ty, [Some(*ordinal)])).unwrap();
                assert_eq!(
                    (&back[..], column.data_type()),
                    (&[*ordinal][..], &ty.arrow()),
                    "row {row}"
                );
            }
            assert_eq!(column_of(ty, [None]).null_count(), 1);
            let (least, greatest) = extent(ty);
            assert!(found.iter().all(|ordinal| (least..=greatest).contains(ordinal)), "{ty:?}");
            let positions: Vec<f64> = found.iter().map(|ordinal| position(ty, *ordinal)).collect();
            assert!(positions.is_sorted_by(|a, b| a < b || b.is_nan()), "{ty:?}: {positions:?}");
        }
        assert!(ordinals(&BooleanArray::from(vec![true])).is_none());
    }
}
