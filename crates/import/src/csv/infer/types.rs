//! The type of a column from its values.

use tidefall_types::FieldType;

use crate::csv::scalar;

/// Fewer values than this decide nothing by majority.
const MAJORITY_VALUES_MIN: usize = 100;

/// What was seen of the values of a column.
#[derive(Debug, Default, Clone)]
pub(in crate::csv) struct Seen {
    all: usize,
    whole: usize,
    negative: usize,
    /// Whole numbers beyond 63 bits that 64 bits hold.
    large: usize,
    decimal: usize,
    boolean: usize,
}

impl Seen {
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut seen = Self::default();
        values.for_each(|text| seen.add(text));
        seen
    }

    pub fn merge(&mut self, other: &Self) {
        self.all += other.all;
        self.whole += other.whole;
        self.negative += other.negative;
        self.large += other.large;
        self.decimal += other.decimal;
        self.boolean += other.boolean;
    }

    /// Whether more values could widen the type, other than by being plainly wrong.
    pub fn is_in_doubt(&self) -> bool {
        let ty = self.field_type();
        self.all == 0 || !matches!(ty, FieldType::F64 | FieldType::Text)
    }

    pub fn add(&mut self, text: &[u8]) {
        self.all += 1;
        if scalar::parse_i64(text).is_some() {
            self.whole += 1;
            self.negative += usize::from(text[0] == b'-');
        } else if scalar::parse_u64(text).is_some() {
            self.large += 1;
        } else if scalar::parse_f64(text).is_some() {
            self.decimal += 1;
        } else if scalar::parse_bool(text).is_some() {
            self.boolean += 1;
        }
    }

    /// The narrowest type for these values. Nearly all (99 of 100) must be numbers for a column
    /// of numbers; a column of nothing is one of numbers.
    pub fn field_type(&self) -> FieldType {
        let numbers = self.whole + self.large + self.decimal;
        let nearly_all = self.all >= MAJORITY_VALUES_MIN && numbers * 100 >= self.all * 99;
        if self.all > 0 && self.boolean == self.all {
            FieldType::Bool
        } else if numbers < self.all && !nearly_all {
            FieldType::Text
        } else if self.decimal > 0 || self.all == 0 || (self.large > 0 && self.negative > 0) {
            FieldType::F64
        } else if self.large > 0 {
            FieldType::U64
        } else {
            FieldType::I64
        }
    }
}

/// The narrowest inferred type that holds values of both.
pub(super) fn common(one: FieldType, other: FieldType) -> FieldType {
    if one == other {
        one
    } else if one.is_numeric() && other.is_numeric() {
        FieldType::F64
    } else {
        FieldType::Text
    }
}
