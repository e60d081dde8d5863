//! Files as people have them.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on should stop.

mod arrow_files;
mod marks;
mod tags;
mod times;
mod types;

use std::fmt::Write as _;
use std::io::Cursor;

use arrow_array::Array;
use arrow_cast::display::array_value_to_string;
use tidefall_import::{BadLine, CsvOptions, Input, read_csv};
use tidefall_types::{NO_TAG, Result, WriteBatch, format_time};

fn input(text: &str) -> Input {
    let bytes = text.as_bytes().to_vec();
    let length = Some(bytes.len() as u64);
    Input::from_reader("test.csv", Box::new(Cursor::new(bytes)), length).unwrap()
}

/// Rows as `time tag=value field=value`, without missing values.
fn rows_of(batch: &WriteBatch) -> String {
    batch.check().unwrap();
    let mut rows = String::new();
    for row in 0..batch.rows() {
        rows.push_str(&format_time(batch.time[row]));
        for tag in batch.tags.iter().filter(|tag| tag.keys[row] != NO_TAG) {
            write!(rows, " {}={}", tag.name, tag.values.value(tag.keys[row] as usize)).unwrap();
        }
        for field in batch.fields.iter().filter(|field| field.values.is_valid(row)) {
            let value = array_value_to_string(&field.values, row).unwrap();
            write!(rows, " {}={value}", field.name).unwrap();
        }
        rows.push('\n');
    }
    rows
}

/// All rows of a file, and then the bad lines.
fn read_all(text: &str, options: &CsvOptions) -> Result<String> {
    let (mut rows, mut bad) = (String::new(), String::new());
    for batch in read_csv(input(text), options)? {
        let batch = batch?;
        rows.push_str(&rows_of(&batch.batch));
        for BadLine { line, reason, .. } in batch.bad {
            writeln!(bad, "line {line}: {reason}").unwrap();
        }
    }
    Ok(rows + &bad)
}

#[track_caller]
fn check(text: &str, options: &CsvOptions, expected: &str) {
    let found = read_all(text, options).unwrap_or_else(|error| panic!("{error}"));
    let expected: String = expected.lines().map(|line| line.trim().to_owned() + "\n").collect();
    assert_eq!(found.trim(), expected.trim(), "in {text:?}");
}

fn tagged(tags: &[&str]) -> CsvOptions {
    CsvOptions { tags: tags.iter().map(|&tag| tag.to_owned()).collect(), ..CsvOptions::default() }
}
