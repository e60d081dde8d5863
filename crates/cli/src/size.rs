//! Sizes and counts as people write and read them.

use tidefall_types::{Error, Result};

/// Reads `512MiB`, `2GB`, `1048576`.
///
/// # Errors
/// `Invalid` for any other form.
pub(crate) fn parse_bytes(text: &str) -> Result<usize> {
    const UNITS: [(&str, usize); 10] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
        ("", 1),
    ];
    let digits = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text.trim()[digits.len()..];
    let factor = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let digits = digits.trim();
    let (Some((_, factor)), true) = (factor, is_count(digits)) else {
        return Err(Error::invalid(format!("{text:?} is not a size: write 512MiB or 2GB")));
    };
    let size = digits.parse::<usize>().ok().and_then(|count| count.checked_mul(*factor));
    size.filter(|&size| size <= SIZE_MAX)
        .ok_or_else(|| Error::invalid(format!("{text:?} is too large: at most 1024TiB")))
}

/// Far more than any machine has, and far from where sums overflow.
const SIZE_MAX: usize = 1 << 50;

fn is_count(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Writes bytes as `1.5 MiB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}

/// Writes a count with commas: `1,234,567`.
pub(crate) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes `1 object`, `1,234 objects`.
pub(crate) fn show_number_of(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", show_count(count))
}
