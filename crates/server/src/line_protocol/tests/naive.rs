//! A parser for one line that makes no attempt at speed, to compare the real one with.

use std::collections::BTreeMap;

use super::{Point, Val};

/// Splits at `separator` where it is not preceded by a backslash.
fn split(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if c == separator && (at == 0 || before != '\\') {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(c);
        }
        before = c;
    }
    parts
}

fn unescape(text: &str, escapable: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek() {
            Some(&next) if c == '\\' && escapable.contains(next) => {
                out.push(next);
                chars.next();
            }
            _ => out.push(c),
        }
    }
    out
}

fn key(text: &str) -> Option<(String, BTreeMap<String, String>)> {
    let parts = split(text, ',');
    let mut tags = BTreeMap::new();
    for part in &parts[1..] {
        let pair = split(part, '=');
        if pair.len() != 2 || pair.iter().any(String::is_empty) {
            return None;
        }
        if tags.insert(unescape(&pair[0], ",= "), unescape(&pair[1], ",= ")).is_some() {
            return None;
        }
    }
    (!parts[0].is_empty()).then(|| (unescape(&parts[0], ", "), tags))
}

fn number(text: &str) -> Option<Val> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if let Some(integer) = text.strip_suffix('i') {
        return digits(&unsigned[..unsigned.len() - 1])
            .then(|| integer.parse().ok().map(Val::I64))?;
    }
    if let Some(integer) = text.strip_suffix('u') {
        return digits(integer).then(|| integer.parse().ok().map(Val::U64))?;
    }
    let plain = unsigned.bytes().all(|byte| b"0123456789.eE+-".contains(&byte));
    let value: f64 = text.parse().ok()?;
    let starts = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (plain && starts && value.is_finite()).then_some(Val::F64(value))
}

/// The value at the start of `text`, and what follows it.
fn value(text: &str) -> Option<(Val, &str)> {
    if let Some(inner) = text.strip_prefix('"') {
        let mut skip = false;
        for (at, c) in inner.char_indices() {
            match c {
                _ if skip => skip = false,
                '\\' => skip = true,
                '"' => return Some((Val::Text(unescape(&inner[..at], "\"\\")), &inner[at + 1..])),
                _ => {}
            }
        }
        return None;
    }
    let (value, rest) = text.split_at(text.find([',', ' ', '\t']).unwrap_or(text.len()));
    Some((
        match value {
            "t" | "T" | "true" | "True" | "TRUE" => Val::Bool(true),
            "f" | "F" | "false" | "False" | "FALSE" => Val::Bool(false),
            _ => number(value)?,
        },
        rest,
    ))
}

/// The end of a field's name, at its `=`.
fn name_end(text: &str) -> Option<usize> {
    let mut skip = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if skip => skip = false,
            '\\' => skip = true,
            '=' => return (at > 0).then_some(at),
            ' ' | ',' => return None,
            _ => {}
        }
    }
    None
}

/// The point of a line without newlines, if the line is right.
pub(super) fn parse(line: &str, now_ns: i64) -> Option<Point> {
    let blank = |c| c == ' ' || c == '\t' || c == '\0';
    let line = line.trim_start_matches(blank);
    let bytes = line.as_bytes();
    let end = (1..bytes.len()).find(|&at| bytes[at] == b' ' && bytes[at - 1] != b'\\')?;
    let (table, tags) = key(&line[..end])?;
    let mut rest = line[end..].trim_start_matches(blank);
    let mut fields = BTreeMap::new();
    loop {
        let end = name_end(rest)?;
        let name = unescape(&rest[..end], ",= ");
        let (value, after) = value(&rest[end + 1..])?;
        if tags.contains_key(&name) || fields.insert(name, value).is_some() {
            return None;
        }
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None if after.is_empty() || after.starts_with([' ', '\t']) => {
                rest = after.trim_matches(blank);
                break;
            }
            None => return None,
        }
    }
    let time_ns = match rest {
        "" => now_ns,
        text if text.starts_with('+') => return None,
        text => text.parse().ok().filter(|ns| (i64::MIN + 2..i64::MAX).contains(ns))?,
    };
    Some(Point { table, tags, fields, time_ns })
}
