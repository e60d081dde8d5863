//! Values that can be told apart: each is made from a number that is used once, and can be traced
//! back to it.

use tidefall_types::{TimeRange, format_time, parse_time};

/// The fields of a reading.
pub const FIELDS: usize = 5;

/// Sensors that most rows belong to. Others come later, and with a tag that these do not have.
pub const SENSORS: u32 = 6;

/// The field with text that is long and hard to pack, which fills memory and log.
pub const NOTE: usize = 4;

/// The longest note in bytes.
const NOTE_BYTES_MAX: u64 = 4_000;

/// A sensor and a time in nanoseconds.
pub type Key = (u32, i64);

/// By field, the number that its value was made from; none for a field that was never written.
pub type Row = [Option<u32>; FIELDS];

/// The name of a field.
pub fn field_name(field: usize) -> String {
    if field == NOTE { "note".to_owned() } else { format!("f{field}") }
}

/// The field with this name.
pub fn field_of(name: &str) -> Option<usize> {
    (0..FIELDS).find(|field| field_name(*field) == name)
}

/// A value as CSV has it: `f0` and `f2` are integers, `f1` and `f3` floats.
pub fn as_csv(field: usize, number: u32) -> String {
    match field {
        NOTE => note(number),
        field if field % 2 == 0 => number.to_string(),
        _ => format!("{number}.25"),
    }
}

/// The number that a value in CSV was made from.
pub fn from_csv(field: usize, text: &str) -> Option<u32> {
    let digits = text.split(['.', ':']).next()?;
    let number = digits.parse().ok()?;
    (as_csv(field, number) == text).then_some(number)
}

/// A line of line protocol; `tags` stand behind the table, with a comma in front of each.
pub fn line(table: &str, tags: &str, (sensor, time_ns): Key, row: &Row) -> String {
    let fields: Vec<String> = row
        .iter()
        .enumerate()
        .filter_map(|(field, number)| Some(field_as_line(field, (*number)?)))
        .collect();
    let room = room_of(sensor).map_or(String::new(), |room| format!(",room={room}"));
    format!("{table}{tags},sensor=s{sensor}{room} {} {time_ns}\n", fields.join(","))
}

fn field_as_line(field: usize, number: u32) -> String {
    let (name, value) = (field_name(field), as_csv(field, number));
    match field {
        NOTE => format!("{name}=\"{value}\""),
        field if field % 2 == 0 => format!("{name}={value}i"),
        _ => format!("{name}={value}"),
    }
}

/// The sensor with a name such as `s7`.
pub fn sensor_of(name: &str) -> Option<u32> {
    name.strip_prefix('s')?.parse().ok()
}

/// The tag that a sensor has beside its name.
pub fn room_of(sensor: u32) -> Option<String> {
    (sensor >= SENSORS).then(|| format!("r{}", sensor % 7))
}

/// A time in the answer of a query.
pub fn time_of(text: &str) -> Option<i64> {
    parse_time(text).ok()
}

/// A condition in SQL.
pub fn within(time: &TimeRange) -> String {
    format!("time >= '{}' AND time <= '{}'", format_time(time.first_ns), format_time(time.last_ns))
}

fn note(number: u32) -> String {
    let mut state = u64::from(number);
    let length = next(&mut state) % NOTE_BYTES_MAX;
    let mut text = format!("{number}:");
    while (text.len() as u64) < length {
        text.push_str(&format!("{:016x}", next(&mut state)));
    }
    text
}

/// SplitMix64: a state becomes a number that looks random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
