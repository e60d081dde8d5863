//! The type of a column from its values.

use tidefall_types::FieldType;

use crate::csv::scalar::{self, Numerals};
use crate::csv::time::TimeParser;

/// Fewer values than this decide nothing by majority.
const MAJORITY_VALUES_MIN: usize = 100;

/// What the values of a field call for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SeenType {
    /// There are no values.
    #[default]
    Nothing,
    /// Text, but at least half are numbers: where others say that they are numbers, the rest is wrong.
    Mixed,
    /// A type that holds these whole numbers.
    Whole(Whole),
    /// This type.
    Sure(FieldType),
}

impl SeenType {
    /// What the values of both call for.
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => Self::Whole(one.with(other)),
            // Beside what was measured they are no names.
            (Self::Whole(_), Self::Sure(ty)) | (Self::Sure(ty), Self::Whole(_)) if is_float(ty) => {
                Self::Sure(FieldType::F64)
            }
            (Self::Whole(whole), Self::Sure(ty)) | (Self::Sure(ty), Self::Whole(whole)) => {
                Self::Sure(common(whole.field_type(), ty))
            }
            (Self::Sure(one), Self::Sure(other)) => Self::Sure(common(one, other)),
            (Self::Whole(whole), _) | (_, Self::Whole(whole)) => Self::Whole(whole),
            (Self::Sure(ty), _) | (_, Self::Sure(ty)) => Self::Sure(ty),
            (Self::Mixed, _) | (_, Self::Mixed) => Self::Mixed,
            (Self::Nothing, Self::Nothing) => Self::Nothing,
        }
    }

    /// The type of a field that holds such values.
    pub fn field_type(self) -> FieldType {
        match self {
            Self::Sure(ty) => ty,
            Self::Whole(whole) => whole.field_type(),
            Self::Mixed => FieldType::Text,
            Self::Nothing => FieldType::F64,
        }
    }
}

/// Which whole numbers there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Whole {
    negative: bool,
    /// Beyond 63 bits, but not 64.
    large: bool,
    /// Beyond 64 bits, or 63 when they are negative.
    huge: bool,
    /// None that a float is.
    inexact: bool,
}

impl Whole {
    /// What a text is that has a sign and digits alone.
    fn of(text: &[u8], numerals: Numerals) -> Option<Self> {
        if let Some(value) = numerals.read(text, scalar::parse_i64) {
            let inexact = value as f64 as i128 != i128::from(value);
            return Some(Self { negative: value < 0, inexact, ..Self::default() });
        }
        let inexact = !numerals.read(text, scalar::is_exact)?;
        let large = numerals.read(text, scalar::parse_u64).is_some();
        Some(Self { negative: text.starts_with(b"-"), large, huge: !large, inexact })
    }

    fn with(self, other: Self) -> Self {
        Self {
            negative: self.negative || other.negative,
            large: self.large || other.large,
            huge: self.huge || other.huge,
            inexact: self.inexact || other.inexact,
        }
    }

    fn is_beyond_integers(self) -> bool {
        self.huge || self.large && self.negative
    }

    /// Whether no type of numbers holds them all as they are: they name something.
    fn is_beyond_numbers(self) -> bool {
        self.is_beyond_integers() && self.inexact
    }

    fn field_type(self) -> FieldType {
        match self {
            _ if self.is_beyond_numbers() => FieldType::Text,
            _ if self.is_beyond_integers() => FieldType::F64,
            _ if self.large => FieldType::U64,
            _ => FieldType::I64,
        }
    }
}

/// What was seen of the values of a column.
#[derive(Debug, Default, Clone)]
pub(in crate::csv) struct Seen {
    all: usize,
    whole: usize,
    /// Which those were.
    kinds: Whole,
    /// Other numbers.
    decimal: usize,
    /// Whether one of them has a fraction.
    has_fraction: bool,
    boolean: usize,
    /// Whole numbers with zeros in front, such as 00123: they name something.
    padded: usize,
    /// Times in the form of the column.
    times: usize,
    /// A text that is neither number nor boolean, and how often it was there.
    odd: (Vec<u8>, usize),
}

/// How the values of a column may be written.
#[derive(Debug, Clone)]
pub(in crate::csv) struct Forms {
    pub numerals: Numerals,
    /// That of times, if they look like some.
    pub times: Option<TimeParser>,
}

impl Seen {
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>, forms: &mut Forms) -> Self {
        let mut seen = Self::default();
        values.for_each(|text| seen.add(text, forms));
        seen
    }

    /// Whether there was no value.
    pub fn is_empty(&self) -> bool {
        self.all == 0
    }

    pub fn merge(&mut self, other: &Self) {
        self.all += other.all;
        self.whole += other.whole;
        self.kinds = self.kinds.with(other.kinds);
        self.decimal += other.decimal;
        self.has_fraction |= other.has_fraction;
        self.boolean += other.boolean;
        self.padded += other.padded;
        self.times += other.times;
        if self.odd.0 == other.odd.0 {
            self.odd.1 += other.odd.1;
        } else if other.odd.1 > self.odd.1 {
            self.odd = other.odd.clone();
        }
    }

    /// Whether more values could widen the type, other than by being plainly wrong.
    pub fn is_in_doubt(&self) -> bool {
        let ty = self.field_type();
        // What no integer holds is a text or a float, until there is a decimal.
        self.all == 0 || self.are_whole() || !matches!(ty, FieldType::F64 | FieldType::Text)
    }

    pub fn add(&mut self, text: &[u8], forms: &mut Forms) {
        let numerals = forms.numerals;
        self.all += 1;
        if matches!(text, [b'0', b'0'..=b'9', ..]) && text.iter().all(u8::is_ascii_digit) {
            self.padded += 1;
        } else if let Some(kinds) = Whole::of(text, numerals) {
            self.whole += 1;
            self.kinds = self.kinds.with(kinds);
        } else if numerals.read(text, scalar::is_number).is_some() {
            self.decimal += 1;
            self.has_fraction |=
                numerals.read(text, scalar::parse_f64).is_some_and(|v| v.fract() != 0.0);
        } else if scalar::parse_bool(text).is_some() {
            self.boolean += 1;
        } else if forms.times.as_mut().is_some_and(|times| times.parse(text).is_ok()) {
            self.times += 1;
        } else if self.odd.1 == 0 {
            self.odd = (text.to_vec(), 1);
        } else if self.odd.0 == text {
            self.odd.1 += 1;
        }
    }

    /// What the values call for.
    pub fn seen_type(&self) -> SeenType {
        match self.field_type() {
            _ if self.all == 0 => SeenType::Nothing,
            _ if self.are_whole() => SeenType::Whole(self.kinds),
            FieldType::Text if self.padded == 0 && self.numbers() * 2 >= self.all => {
                SeenType::Mixed
            }
            ty => SeenType::Sure(ty),
        }
    }

    /// Whether it calls for floats: no type of whole numbers holds all.
    pub fn has_fraction(&self) -> bool {
        self.has_fraction && self.field_type() == FieldType::F64
    }

    /// Whether there are whole numbers that a float does not hold.
    pub fn has_inexact(&self) -> bool {
        self.kinds.inexact
    }

    fn numbers(&self) -> usize {
        self.whole + self.decimal
    }

    /// Whether nearly all (99 of 100) are numbers, and none has zeros in front.
    fn are_numbers(&self) -> bool {
        let nearly_all = || {
            self.all >= MAJORITY_VALUES_MIN
                && self.padded == 0
                && self.numbers() * 100 >= self.all * 99
        };
        self.numbers() == self.all || nearly_all()
    }

    /// Whether all numbers of a column of numbers are whole.
    fn are_whole(&self) -> bool {
        self.whole > 0 && self.decimal == 0 && self.are_numbers()
    }

    /// The one text that keeps a column of numbers from being one.
    pub fn odd_one(&self) -> Option<&[u8]> {
        let is_only = self.numbers() + self.odd.1 == self.all && self.odd.1 < self.numbers();
        (is_only && !self.are_numbers()).then_some(self.odd.0.as_slice())
    }

    /// Whether the column is text because of zeros in front of numbers.
    pub fn is_padded(&self) -> bool {
        self.padded > 0 && self.field_type() == FieldType::Text
    }

    /// Whether the column is text because its whole numbers would be rounded.
    pub fn is_beyond_numbers(&self) -> bool {
        self.are_whole() && self.kinds.is_beyond_numbers()
    }

    /// The narrowest type for these values. Nearly all must be numbers for a column of numbers; a column
    /// of nothing is one of numbers.
    pub fn field_type(&self) -> FieldType {
        if self.all > 0 && self.boolean == self.all {
            FieldType::Bool
        } else if self.all > 0 && self.times == self.all {
            FieldType::Timestamp
        } else if !self.are_numbers() {
            FieldType::Text
        } else if self.are_whole() {
            self.kinds.field_type()
        } else {
            FieldType::F64
        }
    }
}

/// The narrowest type that holds values of both.
pub(super) fn common(one: FieldType, other: FieldType) -> FieldType {
    if one == other {
        return one;
    }
    if !one.is_numeric() || !other.is_numeric() {
        return FieldType::Text;
    }
    let (Some(one), Some(other)) = (integer(one), integer(other)) else { return FieldType::F64 };
    let bits = match one.0 == other.0 {
        true => one.1.max(other.1),
        // A sign takes a bit, and types come in doubles.
        false => {
            let (signed, unsigned) = if one.0 == Sign::Any { (one, other) } else { (other, one) };
            signed.1.max(unsigned.1 * 2)
        }
    };
    let signs = if one.0 == other.0 { one.0 } else { Sign::Any };
    INTEGERS.into_iter().find(|(_, of)| *of == (signs, bits)).map_or(FieldType::F64, |(ty, _)| ty)
}

fn is_float(ty: FieldType) -> bool {
    matches!(ty, FieldType::F32 | FieldType::F64)
}

/// Which whole numbers a type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Any,
    NotNegative,
}

const INTEGERS: [(FieldType, (Sign, u32)); 8] = [
    (FieldType::I8, (Sign::Any, 8)),
    (FieldType::I16, (Sign::Any, 16)),
    (FieldType::I32, (Sign::Any, 32)),
    (FieldType::I64, (Sign::Any, 64)),
    (FieldType::U8, (Sign::NotNegative, 8)),
    (FieldType::U16, (Sign::NotNegative, 16)),
    (FieldType::U32, (Sign::NotNegative, 32)),
    (FieldType::U64, (Sign::NotNegative, 64)),
];

/// The signs and bits of a type of whole numbers.
fn integer(ty: FieldType) -> Option<(Sign, u32)> {
    INTEGERS.into_iter().find(|(known, _)| *known == ty).map(|(_, of)| of)
}
