//! The numeric types that pages hold.

use arrow_array::ArrowPrimitiveType;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_buffer::ArrowNativeType;
use tidefall_types::FieldType;

/// Runs an expression with the name given bound to the native type of a numeric [`FieldType`]; timestamps count
/// as `i64`, text and truth values as `u8`.
macro_rules! with_number {
    ($ty:expr, $native:ident => $body:expr) => {
        with_number!(@match $ty, $native, $body,
            I8 i8, I16 i16, I32 i32, I64 i64, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64,
            Timestamp i64)
    };
    (@match $ty:expr, $native:ident, $body:expr, $($variant:ident $number:ident),*) => {
        match $ty {
            $(FieldType::$variant => {
                type $native = $number;
                $body
            })*
            FieldType::U8 | FieldType::Bool | FieldType::Text => {
                type $native = u8;
                $body
            }
        }
    };
}
pub(crate) use with_number;

/// A number that a page can hold: `i8`..`i64`, `u8`..`u64`, `f32` or `f64`.
pub trait PageValue: Number {}

/// What the codecs need to know about a number. Sealed: the page format fixes the set of types.
pub trait Number: ArrowNativeType + pco::data_types::Number {
    /// The Arrow type with this native type.
    type Arrow: ArrowPrimitiveType<Native = Self>;
    /// The type as tables name it.
    const TYPE: FieldType;
    /// Stands for a null where there is no validity: NaN, or 0 for integers.
    const NULL: Self;
    /// Whether the decimal codec applies.
    const IS_FLOAT: bool;
    /// The most decimals that the decimal codec looks for.
    const MAX_DECIMALS: usize;
    /// Digits of a decimal stay below this magnitude.
    const DIGITS_LIMIT: f64;
    /// Below this magnitude decimals are sparse enough among the values that to be near one is no
    /// accident.
    const NEAR_DIGITS_LIMIT: f64;
    /// Bytes of one value.
    const WIDTH: usize = size_of::<Self>();

    /// The integer with the same order, and for floats with every bit pattern kept.
    fn to_int(self) -> i64;
    /// The inverse of [`Number::to_int`].
    fn from_int(int: i64) -> Self;
    /// The value as a double.
    fn to_f64(self) -> f64;
    /// The nearest value to a double.
    fn from_f64(double: f64) -> Self;
    /// Appends the value, little-endian.
    fn put(self, out: &mut Vec<u8>);
    /// Reads a value of exactly [`Number::WIDTH`] bytes, little-endian; shorter input counts as
    /// padded with zeros.
    fn get(bytes: &[u8]) -> Self;
    /// Whether both have the same bits.
    fn same(self, other: Self) -> bool;
}

macro_rules! number {
    ($native:ident, $arrow:ident, $ty:ident, $null:expr, $float:expr, $decimals:expr, $limit:expr, $near_limit:expr,
     |$value:ident| $to_int:expr, |$int:ident| $from_int:expr) => {
        impl PageValue for $native {}

        impl Number for $native {
            type Arrow = $arrow;
            const TYPE: FieldType = FieldType::$ty;
            const NULL: Self = $null;
            const IS_FLOAT: bool = $float;
            const MAX_DECIMALS: usize = $decimals;
            const DIGITS_LIMIT: f64 = $limit;
            const NEAR_DIGITS_LIMIT: f64 = $near_limit;

            #[inline(always)]
            fn to_int(self) -> i64 {
                let $value = self;
                $to_int
            }
            #[inline(always)]
            fn from_int($int: i64) -> Self {
                $from_int
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn from_f64(double: f64) -> Self {
                double as Self
            }
            #[inline(always)]
            fn same(self, other: Self) -> bool {
                self.to_le_bytes() == other.to_le_bytes()
            }
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<Self>()];
                for (to, from) in array.iter_mut().zip(bytes) {
                    *to = *from;
                }
                Self::from_le_bytes(array)
            }
        }
    };
}

macro_rules! integer {
    ($native:ident, $arrow:ident, $ty:ident) => {
        number!($native, $arrow, $ty, 0, false, 0, 0.0, 0.0, |v| v as i64, |i| i as $native);
    };
}

integer!(i8, Int8Type, I8);
integer!(i16, Int16Type, I16);
integer!(i32, Int32Type, I32);
integer!(i64, Int64Type, I64);
integer!(u8, UInt8Type, U8);
integer!(u16, UInt16Type, U16);
integer!(u32, UInt32Type, U32);

// Flipping the top bit maps the order of u64 onto that of i64.
number!(u64, UInt64Type, U64, 0, false, 0, 0.0, 0.0, |v| (v ^ (1 << 63)) as i64, |i| i as u64
    ^ (1 << 63));

// Negative floats order backwards by their bits; flipping all bits but the sign mends that.
number!(
    f32,
    Float32Type,
    F32,
    f32::NAN,
    true,
    10,
    2_147_483_648.0,
    131_072.0,
    |v| {
        let bits = v.to_bits() as i32;
        i64::from(bits ^ (((bits >> 31) as u32) >> 1) as i32)
    },
    |i| {
        let bits = i as i32;
        f32::from_bits((bits ^ (((bits >> 31) as u32) >> 1) as i32) as u32)
    }
);
number!(
    f64,
    Float64Type,
    F64,
    f64::NAN,
    true,
    17,
    2_251_799_813_685_248.0,
    17_592_186_044_416.0,
    |v| {
        let bits = v.to_bits() as i64;
        bits ^ (((bits >> 63) as u64) >> 1) as i64
    },
    |i| f64::from_bits((i ^ (((i >> 63) as u64) >> 1) as i64) as u64)
);
