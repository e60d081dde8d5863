//! Floats in one form, so that values which are equal are the same bits.
//!
//! There is one NaN, greater than every number, and one zero: every NaN becomes the one without a sign, and
//! -0.0 becomes 0.0. Whatever compares, sorts, groups or hashes bits then agrees with what compares numbers.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_schema::DataType;

/// A float that has one form.
pub trait OneForm: Copy {
    /// The same value in its one form.
    #[must_use]
    fn one_form(self) -> Self;
    /// Whether the value may have another form.
    fn is_doubtful(self) -> bool;
}

macro_rules! floats {
    ($($ty:ty = $nan:literal),*) => {$(
        impl OneForm for $ty {
            fn one_form(self) -> Self {
                // Adding 0.0 takes the sign from zero and leaves everything else.
                if self.is_nan() { Self::from_bits($nan) } else { self + 0.0 }
            }

            fn is_doubtful(self) -> bool {
                self.is_nan() | ((self == 0.0) & self.is_sign_negative())
            }
        }
    )*};
}
floats!(f32 = 0x7fc0_0000, f64 = 0x7ff8_0000_0000_0000);

/// The floats of an array in their one form; nothing when they have it already, or are no floats.
pub fn one_form(values: &dyn Array) -> Option<ArrayRef> {
    match values.data_type() {
        DataType::Float64 => of_primitive(values.as_primitive::<Float64Type>()),
        DataType::Float32 => of_primitive(values.as_primitive::<Float32Type>()),
        _ => None,
    }
}

fn of_primitive<T: ArrowPrimitiveType>(values: &PrimitiveArray<T>) -> Option<ArrayRef>
where
    T::Native: OneForm,
{
    // Without an early end, so that it runs over many values at a time.
    let is_doubtful =
        values.values().iter().fold(false, |found, value| found | value.is_doubtful());
    is_doubtful.then(|| Arc::new(values.unary::<_, T>(OneForm::one_form)) as ArrayRef)
}

#[cfg(test)]
mod tests {
    use arrow_array::Float64Array;

    use super::*;

    #[test]
    fn there_is_one_nan_and_one_zero() {
        let odd =
            [-f64::NAN, f64::from_bits(0x7ff8_0000_0000_0001), -0.0, 0.0, -1.5, f64::INFINITY];
        let found = odd.map(|value| value.one_form().to_bits());
        let nan = 0x7ff8_0000_0000_0000;
        assert_eq!(found, [nan, nan, 0, 0, (-1.5_f64).to_bits(), f64::INFINITY.to_bits()]);
        assert_eq!((-0.0_f32).one_form().to_bits(), 0);
        assert_eq!((-f32::NAN).one_form().to_bits(), 0x7fc0_0000);
    }

    #[test]
    fn arrays_in_their_one_form_are_not_copied() {
        assert!(one_form(&Float64Array::from(vec![0.0, -1.0, f64::NEG_INFINITY])).is_none());
        let array = Float64Array::from(vec![Some(-0.0), None, Some(-f64::NAN), Some(2.0)]);
        let found = one_form(&array).expect("another form");
        let found = found.as_primitive::<Float64Type>();
        assert_eq!(found.value(0).to_bits(), 0);
        assert!(found.is_null(1) && found.value(2).is_sign_positive());
        assert_eq!(found.value(3), 2.0);
    }
}
