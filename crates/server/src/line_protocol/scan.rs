//! The pieces of a line: where they end, and what they mean. Nothing here keeps state.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memchr2};

/// Why reading stopped, in InfluxDB's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop(pub &'static str);

/// The value of a field as it stands in the body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    F64(f64),
    I64(i64),
    U64(u64),
    Bool(bool),
    /// What stands between the quotes, escapes not yet resolved.
    Text {
        raw: &'a [u8],
        escaped: bool,
        newlines: u32,
    },
}

/// The powers of ten that an `f64` holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Integers up to here have an exact `f64`.
const F64_EXACT_MAX: u64 = 1 << 53;

/// Decimal digits that always fit into a `u64`.
const U64_DIGITS: usize = 19;

/// The earliest and the latest time that InfluxDB takes; the numbers beyond mean "no time" there.
const TIME_MIN_NS: i64 = i64::MIN + 2;
const TIME_MAX_NS: i64 = i64::MAX - 1;

/// What neither a tag nor a field may be called: the time column of new tables is.
pub(super) const TIME_NAME: &[u8] = b"time";

const INVALID_NUMBER: Stop = Stop("invalid number");
const INVALID_FIELD: Stop = Stop("invalid field format");
const TIME_RANGE: Stop = Stop("time outside range -9223372036854775806 - 9223372036854775806");

pub(super) fn skip_blanks(body: &[u8], mut pos: usize) -> usize {
    while matches!(body.get(pos), Some(b' ' | b'\t' | 0)) {
        pos += 1;
    }
    pos
}

/// Whether the line ends at `pos`: at a newline, at the carriage return before one, or at the end
/// of the body.
pub(super) fn is_line_end(body: &[u8], pos: usize) -> bool {
    match body.get(pos) {
        None | Some(b'\n') => true,
        Some(b'\r') => matches!(body.get(pos + 1), None | Some(b'\n')),
        Some(_) => false,
    }
}

/// The next newline from `pos` on, or the end of the body.
pub(super) fn newline(body: &[u8], pos: usize) -> usize {
    let pos = pos.min(body.len());
    memchr(b'\n', &body[pos..]).map_or(body.len(), |at| pos + at)
}

/// The newlines in `text`.
pub(super) fn newlines(text: &[u8]) -> u32 {
    memchr_iter(b'\n', text).count() as u32
}

/// Where the line that begins at `start` ends, whatever is wrong with it: at a newline that is neither escaped nor
/// in quotes, or with the body. As in InfluxDB, quotes count behind the first space, where a value may stand.
pub(super) fn line_end(body: &[u8], start: usize) -> usize {
    let mut pos = start;
    let (mut in_fields, mut in_quotes) = (false, false);
    let (mut equals, mut commas) = (0_usize, 0_usize);
    while let Some(&byte) = body.get(pos) {
        match byte {
            b'\\' if pos + 2 < body.len() => pos += 1,
            b'\n' if !in_quotes => break,
            b' ' => in_fields = true,
            b'=' if in_fields && !in_quotes => equals += 1,
            b',' if in_fields && !in_quotes => commas += 1,
            b'"' if in_fields && equals > commas => in_quotes = !in_quotes,
            _ => {}
        }
        pos += 1;
    }
    pos
}

/// Where the series key that begins at `start` ends: at a space that is not escaped, or with the
/// line.
pub(super) fn key_end(body: &[u8], start: usize) -> usize {
    let mut pos = start;
    loop {
        let Some(at) = memchr2(b' ', b'\n', &body[pos..]) else {
            return trim_return(body, start, body.len());
        };
        let end = pos + at;
        if body[end] == b'\n' {
            return trim_return(body, start, end);
        }
        if end == start || body[end - 1] != b'\\' {
            return end;
        }
        pos = end + 1;
    }
}

fn trim_return(body: &[u8], start: usize, end: usize) -> usize {
    if end > start && body[end - 1] == b'\r' { end - 1 } else { end }
}

/// Cuts `text` at the first of `separators` that is not escaped; the separator stays with the
/// second part. There is no second part when none is found.
pub(super) fn cut<'a>(text: &'a [u8], separators: &[u8]) -> (&'a [u8], &'a [u8]) {
    let end = (0..text.len())
        .find(|&at| separators.contains(&text[at]) && (at == 0 || text[at - 1] != b'\\'));
    text.split_at(end.unwrap_or(text.len()))
}

/// Resolves the escapes of a measurement, tag or field name; a backslash before any other byte
/// stands for itself.
pub(super) fn unescape<'a>(text: &'a [u8], escapable: &[u8]) -> Cow<'a, [u8]> {
    if memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut pos = 0;
    while pos < text.len() {
        if text[pos] == b'\\' && text.get(pos + 1).is_some_and(|next| escapable.contains(next)) {
            pos += 1;
        }
        out.push(text[pos]);
        pos += 1;
    }
    Cow::Owned(out)
}

/// The name of the field that begins at `pos`, as it stands there, up to its `=`.
pub(super) fn field_name(body: &[u8], pos: usize) -> Result<&[u8], Stop> {
    let mut end = pos;
    loop {
        match body.get(end) {
            Some(b'=') if end == pos => return Err(Stop("missing field key")),
            Some(b'=') => return Ok(&body[pos..end]),
            Some(b'\\') if !is_line_end(body, end + 1) => end += 2,
            None | Some(b' ' | b',' | b'\n') => return Err(INVALID_FIELD),
            Some(_) => end += 1,
        }
    }
}

/// The value that begins at `pos`, and where it ends.
pub(super) fn value(body: &[u8], pos: usize) -> Result<(Value<'_>, usize), Stop> {
    match body.get(pos) {
        Some(b'0'..=b'9' | b'-' | b'.') => number(body, pos),
        Some(b'"') => text(body, pos + 1),
        None | Some(b',' | b' ' | b'\n' | b'\r') => Err(Stop("missing field value")),
        Some(b'n' | b'N' | b'i' | b'I' | b'+') => Err(INVALID_NUMBER),
        Some(_) => boolean(body, pos),
    }
}

fn boolean(body: &[u8], pos: usize) -> Result<(Value<'_>, usize), Stop> {
    let rest = &body[pos..];
    let length = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let value = match &rest[..length] {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => true,
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => false,
        _ => return Err(Stop("invalid boolean")),
    };
    Ok((Value::Bool(value), pos + length))
}

/// A string up to its closing quote; `pos` is behind the opening one.
fn text(body: &[u8], pos: usize) -> Result<(Value<'_>, usize), Stop> {
    let mut end = pos;
    let mut escaped = false;
    loop {
        let Some(at) = memchr2(b'"', b'\\', &body[end..]) else {
            return Err(Stop("unbalanced quotes"));
        };
        end += at;
        if body[end] == b'"' {
            break;
        }
        escaped = true;
        end += 2;
        if end > body.len() {
            return Err(Stop("unbalanced quotes"));
        }
    }
    let raw = &body[pos..end];
    Ok((Value::Text { raw, escaped, newlines: newlines(raw) }, end + 1))
}

fn number(body: &[u8], pos: usize) -> Result<(Value<'_>, usize), Stop> {
    let negative = body[pos] == b'-';
    let first = pos + usize::from(negative);
    let mut mantissa = 0_u64;
    let mut end = digits(body, first, &mut mantissa);
    let whole = end - first;
    match body.get(end) {
        Some(b'i') => return Ok((Value::I64(integer(&body[pos..end])?), end + 1)),
        Some(b'u') => return Ok((Value::U64(integer(&body[pos..end])?), end + 1)),
        _ => {}
    }
    let mut decimals = 0;
    if body.get(end) == Some(&b'.') {
        let after = end + 1;
        end = digits(body, after, &mut mantissa);
        decimals = end - after;
    }
    if whole + decimals == 0 {
        return Err(INVALID_NUMBER);
    }
    let exponent = exponent_bytes(&body[end..]);
    // Both operands are exact, so that the one division rounds as a correct parser does (Clinger,
    // "How to read floating point numbers accurately", 1990).
    let exact = exponent == 0
        && whole + decimals <= U64_DIGITS
        && mantissa <= F64_EXACT_MAX
        && decimals < POWERS.len();
    end += exponent;
    let value = if exact {
        let value = mantissa as f64 / POWERS[decimals];
        if negative { -value } else { value }
    } else {
        fast_float2::parse::<f64, _>(&body[pos..end]).map_err(|_| INVALID_NUMBER)?
    };
    if !value.is_finite() {
        return Err(Stop("invalid float"));
    }
    match body.get(end) {
        Some(b',' | b' ' | b'\t' | b'\n' | b'\r') | None => Ok((Value::F64(value), end)),
        Some(_) => Err(INVALID_NUMBER),
    }
}

/// Reads digits from `pos` on into `mantissa`, which overflows silently, and says where they end.
#[inline]
fn digits(body: &[u8], mut pos: usize, mantissa: &mut u64) -> usize {
    while let Some(digit) = body.get(pos).map(|byte| byte.wrapping_sub(b'0'))
        && digit <= 9
    {
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        pos += 1;
    }
    pos
}

/// The length of an exponent such as `e-7` at the start of `text`; 0 when there is none.
fn exponent_bytes(text: &[u8]) -> usize {
    if !matches!(text.first(), Some(b'e' | b'E')) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    let digits = text[1 + sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    1 + sign + digits
}

fn integer<T: std::str::FromStr>(text: &[u8]) -> Result<T, Stop> {
    if !text.last().is_some_and(u8::is_ascii_digit) {
        return Err(INVALID_NUMBER);
    }
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Stop("unable to parse integer: value out of range"))
}

/// The timestamp that begins at `pos`, in the unit of the body, and where it ends.
pub(super) fn timestamp(body: &[u8], pos: usize) -> Result<(i64, usize), Stop> {
    let negative = body.get(pos) == Some(&b'-');
    let first = pos + usize::from(negative);
    let mut magnitude = 0_u64;
    let end = digits(body, first, &mut magnitude);
    if end == first || !matches!(body.get(end), None | Some(b' ' | b'\t' | b'\n' | b'\r' | 0)) {
        return Err(Stop("bad timestamp"));
    }
    let leading_zeros = body[first..end].iter().take_while(|&&byte| byte == b'0').count();
    if end - first - leading_zeros > U64_DIGITS {
        return Err(TIME_RANGE);
    }
    let magnitude = i64::try_from(magnitude).map_err(|_| TIME_RANGE)?;
    Ok((if negative { -magnitude } else { magnitude }, end))
}

/// A timestamp in nanoseconds.
pub(super) fn scale(time: i64, unit_ns: i64) -> Result<i64, Stop> {
    time.checked_mul(unit_ns)
        .filter(|time_ns| (TIME_MIN_NS..=TIME_MAX_NS).contains(time_ns))
        .ok_or(TIME_RANGE)
}
