//! Numbers, booleans and missing values in text.

use tidefall_types::{EXACT_MAX, FieldType, POWERS_OF_TEN};

/// As many decimal digits always fit a `u64`.
const DIGITS_MAX: usize = 19;

/// Reads digits from the front of `text`, at most [`DIGITS_MAX`] of them, behind `value`.
#[inline]
fn take_digits(text: &[u8], mut value: u64) -> (u64, usize) {
    let mut count = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        count += 1;
    }
    (value, count)
}

#[inline]
fn take_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// Reads a decimal number, `NaN` or an infinity, rounded correctly.
///
/// When the digits make a whole number that an `f64` holds, and the power of ten is one too, then
/// their quotient is the correctly rounded value (Clinger 1990, the fast path); this is nearly
/// every reading. Other numbers take the long way.
#[inline]
pub(super) fn parse_f64(text: &[u8]) -> Option<f64> {
    let (negative, rest) = take_sign(text);
    let (whole, whole_digits) = take_digits(rest, 0);
    let (mantissa, decimals, end) = match rest.get(whole_digits) {
        Some(b'.') => {
            let (mantissa, decimals) = take_digits(&rest[whole_digits + 1..], whole);
            (mantissa, decimals, whole_digits + 1 + decimals)
        }
        _ => (whole, 0, whole_digits),
    };
    let digits = whole_digits + decimals;
    if end == rest.len() && (1..=DIGITS_MAX).contains(&digits) && mantissa <= EXACT_MAX {
        let value = mantissa as f64 / POWERS_OF_TEN[decimals];
        return Some(if negative { -value } else { value });
    }
    parse_f64_slow(text)
}

#[cold]
fn parse_f64_slow(text: &[u8]) -> Option<f64> {
    fast_float2::parse(text).ok().filter(|value: &f64| value.is_finite() || is_named(text))
}

/// Reads a single-precision number. Rounding twice, through `f64`, can be off by one, so the
/// long way is taken.
pub(super) fn parse_f32(text: &[u8]) -> Option<f32> {
    fast_float2::parse(text).ok().filter(|value: &f32| value.is_finite() || is_named(text))
}

/// Whether a text names what it stands for, as `inf` and `NaN` do: one of digits that is infinite is too large.
fn is_named(text: &[u8]) -> bool {
    !text.iter().any(u8::is_ascii_digit)
}

/// Whether a text is a number, be it one that no float reaches.
pub(super) fn is_number(text: &[u8]) -> Option<()> {
    fast_float2::parse::<f64, _>(text).ok().map(drop)
}

/// Whether the nearest `f64` to a text of digits is the number itself; `None` for other texts.
pub(super) fn is_exact(text: &[u8]) -> Option<bool> {
    let (_, digits) = take_sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (value, count) = take_digits(digits, 0);
    if count <= DIGITS_MAX {
        return Some(value <= EXACT_MAX || value as f64 as u128 == u128::from(value));
    }
    // All its digits are written.
    let nearest = parse_f64(digits).map(|nearest| format!("{nearest:.0}"));
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    Some(nearest.is_some_and(|nearest| nearest.as_bytes() == &digits[zeros..]))
}

/// Reads a whole number of any size that an `i128` holds; the callers narrow it.
#[inline]
pub(super) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, rest) = take_sign(text);
    let (value, digits) = take_digits(rest, 0);
    if digits != rest.len() || digits == 0 {
        return None;
    }
    if digits < DIGITS_MAX {
        return Some(if negative { -(value as i64) } else { value as i64 });
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a whole number that is not negative.
pub(super) fn parse_u64(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads `true` or `false`, as programs write them.
pub(super) fn parse_bool(text: &[u8]) -> Option<bool> {
    match text {
        b"true" | b"True" | b"TRUE" | b"t" | b"T" => Some(true),
        b"false" | b"False" | b"FALSE" | b"f" | b"F" => Some(false),
        _ => None,
    }
}

/// The marks in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numerals {
    /// What stands before the decimals: a point or a comma.
    pub decimal: u8,
    /// What stands between groups of three digits, if anything.
    pub thousands: Option<u8>,
}

impl Numerals {
    /// A decimal point, and nothing between thousands.
    pub const PLAIN: Self = Self { decimal: b'.', thousands: None };

    /// Reads a number with `parse`, which knows plain ones.
    #[inline]
    pub fn read<T>(self, text: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        match self == Self::PLAIN {
            true => parse(text),
            false => self.read_marked(text, parse),
        }
    }

    fn read_marked<T>(self, text: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        /// Longer than any number that somebody would write.
        const BYTES_MAX: usize = 64;
        let mut plain = [0; BYTES_MAX];
        let mut used = 0;
        let whole_end = memchr::memchr(self.decimal, text).unwrap_or(text.len());
        let (_, whole) = take_sign(&text[..whole_end]);
        if let Some(mark) = self.thousands
            && whole.contains(&mark)
        {
            let groups = whole.split(|byte| *byte == mark);
            let right = |(place, group): (usize, &[u8])| match place {
                0 => (1..=3).contains(&group.len()) && group.iter().all(u8::is_ascii_digit),
                _ => group.len() == 3 && group.iter().all(u8::is_ascii_digit),
            };
            groups.enumerate().all(right).then_some(())?;
        }
        for (at, &byte) in text.iter().enumerate() {
            if at < whole_end && Some(byte) == self.thousands {
                continue;
            }
            // The point of a plain number is no mark here.
            let byte = match byte {
                byte if byte == self.decimal && at == whole_end => b'.',
                b'.' => return None,
                byte => byte,
            };
            *plain.get_mut(used)? = byte;
            used += 1;
        }
        parse(&plain[..used])
    }
}

/// What to do about a text that is a number but for its marks.
pub(super) fn marks_hint(text: &[u8]) -> &'static str {
    let reads = |decimal, thousands| {
        Numerals { decimal, thousands: Some(thousands) }
            .read(text.trim_ascii(), parse_f64)
            .is_some()
    };
    match (reads(b',', b'.'), reads(b'.', b',')) {
        (true, true) => "; --decimal , or --thousands , reads such numbers",
        (true, false) if text.contains(&b'.') => "; --decimal , --thousands . reads such numbers",
        (true, false) => "; --decimal , reads such numbers",
        (false, true) => "; --thousands , reads such numbers",
        (false, false) if reads(b'.', b'\'') => "; --thousands \"'\" reads such numbers",
        (false, false) => "",
    }
}

/// What a text of a column of this type should have been.
pub(super) fn expected(ty: FieldType) -> &'static str {
    match ty {
        FieldType::I8 => "a whole number from -128 to 127",
        FieldType::I16 => "a whole number from -32768 to 32767",
        FieldType::I32 => "a whole number of 32 bits",
        FieldType::I64 => "a whole number",
        FieldType::U8 => "a whole number from 0 to 255",
        FieldType::U16 => "a whole number from 0 to 65535",
        FieldType::U32 => "a whole number of 32 bits, not negative",
        FieldType::U64 => "a whole number, not negative",
        FieldType::F32 | FieldType::F64 => "a number",
        FieldType::Bool => "true or false",
        FieldType::Text => "text in UTF-8",
        FieldType::Timestamp => "a time as the first ones are written",
    }
}

/// The texts that stand for a missing value.
#[derive(Debug, Clone)]
pub(super) struct NullTexts {
    texts: Vec<Vec<u8>>,
    /// Whether an empty text in quotes does so where it could be a text.
    pub quoted_empty: bool,
    /// By first byte, whether some text starts with it; most values are told apart by this.
    starts: [bool; 256],
    /// Whether some text is also a number, so that it must be looked for before numbers are read.
    pub has_number: bool,
}

impl NullTexts {
    pub fn new(texts: &[String]) -> Self {
        let mut nulls = Self {
            texts: Vec::new(),
            quoted_empty: false,
            starts: [false; 256],
            has_number: false,
        };
        for text in texts.iter().map(String::as_bytes) {
            match text.first() {
                None => nulls.quoted_empty = true,
                Some(&first) => {
                    nulls.starts[usize::from(first)] = true;
                    // Whatever the marks in numbers are.
                    nulls.has_number |= text.iter().any(u8::is_ascii_digit)
                        || parse_f64(text).is_some()
                        || parse_bool(text).is_some();
                    nulls.texts.push(text.to_vec());
                }
            }
        }
        nulls
    }

    /// Whether `text` stands for a missing value, as nothing always does.
    #[inline]
    pub fn contains(&self, text: &[u8]) -> bool {
        match text.first() {
            None => true,
            Some(&first) => self.starts[usize::from(first)] && self.listed(text),
        }
    }

    fn listed(&self, text: &[u8]) -> bool {
        self.texts.iter().any(|null| null == text)
    }
}

/// `text` for a message: readable whatever its bytes are, and not too long.
pub(crate) fn quoted(text: &[u8]) -> String {
    const BYTES_MAX: usize = 60;
    match text.get(..BYTES_MAX) {
        Some(start) if text.len() > BYTES_MAX => {
            format!("{:?}...", String::from_utf8_lossy(start))
        }
        _ => format!("{:?}", String::from_utf8_lossy(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_rounded_as_the_standard_library_does() {
        use rand::{Rng, SeedableRng};
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        for _ in 0..200_000 {
            let whole = random.random::<u64>() >> random.random_range(0..64);
            let fraction = random.random::<u64>() >> random.random_range(0..64);
            for text in
                [format!("-{whole}.{fraction}"), format!("{whole}"), format!("+.{fraction}")]
            {
                assert_eq!(parse_f64(text.as_bytes()), text.parse().ok(), "{text}");
            }
        }
        for text in ["", ".", "-", "+", "1.2.3", "1x", "--1", "0x10", "1,5", " 1"] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
        assert!(parse_f64(b"NaN").is_some_and(f64::is_nan));
        assert_eq!(parse_f64(b"-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_f64(b"-0").map(f64::is_sign_negative), Some(true));
    }

    #[test]
    fn numbers_beyond_all_floats_are_not_infinite() {
        for text in ["1e400", "-1e400", "+2E+308", &"9".repeat(400)] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
            assert_eq!(parse_f32(text.as_bytes()), None, "{text}");
            assert!(is_number(text.as_bytes()).is_some(), "{text}");
        }
        assert_eq!(parse_f32(b"3e39"), None);
        assert_eq!(parse_f32(b"-inf"), Some(f32::NEG_INFINITY));
        assert_eq!(parse_f64(b"1e-400"), Some(0.0));
    }

    #[test]
    fn marks_in_numbers_are_read_where_they_belong() {
        let check = |decimal, thousands, text: &str, expected: Option<f64>| {
            let found = Numerals { decimal, thousands }.read(text.as_bytes(), parse_f64);
            assert_eq!(found, expected, "{text:?}");
        };
        check(b',', None, "-2,5", Some(-2.5));
        check(b',', None, "25", Some(25.0));
        check(b',', None, ",5e1", Some(5.0));
        check(b',', None, "2.5", None);
        check(b',', None, "1,2,3", None);
        check(b',', Some(b'.'), "-1.234.567,5", Some(-1_234_567.5));
        check(b',', Some(b'.'), "1.23", None);
        check(b',', Some(b'.'), "1234.567", None);
        check(b',', Some(b'.'), ".123", None);
        check(b'.', Some(b','), "1,234.5", Some(1_234.5));
        check(b'.', Some(b','), "1,234,56", None);
        check(b'.', Some(b','), "1.234,5", None);
        check(b'.', Some(b' '), "+1 234", Some(1_234.0));
        check(b'.', Some(b','), &"1".repeat(100), None);
    }

    #[test]
    fn whole_numbers_that_are_floats_are_told() {
        use rand::{Rng, SeedableRng};
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        for _ in 0..20_000 {
            let number = random.random::<u128>() >> random.random_range(1..128);
            // Few numbers of many bits are floats.
            let number = number >> random.random_range(0..64) << random.random_range(0..64);
            let expected = number as f64 as u128 == number;
            for text in [format!("{number}"), format!("-{number}"), format!("+00{number}")] {
                assert_eq!(is_exact(text.as_bytes()), Some(expected), "{text}");
            }
        }
        assert_eq!(is_exact("9".repeat(400).as_bytes()), Some(false));
        for text in ["", "-", "1.0", "1e3", "NaN", " 1"] {
            assert_eq!(is_exact(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn whole_numbers_stop_at_their_limits() {
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"9223372036854775808"), None);
        assert_eq!(parse_i64(b"00000000000000000000000000001"), Some(1));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for text in ["", "-", "+", "1.0", "1e3", "-+1"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }
}
