//! What is asked of the types of Arrow in many places.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use tidefall_types::{NS_PER_MICRO, NS_PER_MILLI, NS_PER_SECOND};

/// Whether values of a type are texts.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// The time zone in which clocks show what is stored.
pub(crate) fn is_utc(zone: &str) -> bool {
    ["UTC", "Etc/UTC", "+00:00", "+00", "Z"].iter().any(|utc| utc.eq_ignore_ascii_case(zone))
}

/// Nanoseconds of a unit.
pub(crate) const fn unit_ns(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => NS_PER_SECOND,
        TimeUnit::Millisecond => NS_PER_MILLI,
        TimeUnit::Microsecond => NS_PER_MICRO,
        TimeUnit::Nanosecond => 1,
    }
}
