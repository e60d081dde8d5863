//! Types that hold the values of several files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use tidefall_types::{Error, FieldType, Result};

use crate::csv::{SeenType, beside_decimals, beyond_numbers, seen_fields};
use crate::{ColumnarOptions, CsvOptions, columnar, is_columnar};

/// What several files have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Together {
    /// By field the type that holds the values of all files, or the one that the options give.
    pub types: BTreeMap<String, FieldType>,
    /// Those that are text, though half of the values and more are numbers.
    pub mixed: BTreeSet<String>,
    /// Those with whole numbers, as texts, that a float does not hold.
    pub inexact: BTreeSet<String>,
    /// Those with numbers, as texts, that have fractions.
    pub fractions: BTreeSet<String>,
    /// Those without a value, so that any type holds them.
    pub empty: BTreeSet<String>,
    /// What was chosen where a file left a choice; each is said of the first such file alone.
    pub notes: Vec<(PathBuf, String)>,
}

/// Looks at files that will be read one after the other. What can be read only once, such as a
/// pipe, is left out.
///
/// # Errors
/// As [`crate::open_csv`] and [`crate::open_columnar`] for any of the files; `Invalid` when none of
/// them has a field whose type `csv` gives.
pub fn look_together(
    files: &[PathBuf],
    csv: &CsvOptions,
    columnar: &ColumnarOptions,
) -> Result<Together> {
    let mut together = Together::default();
    let mut types: BTreeMap<String, SeenType> = BTreeMap::new();
    let mut inexact_in: BTreeMap<String, PathBuf> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let seen = match is_columnar(file) {
            true => columnar::seen_fields(file, columnar)?,
            false => seen_fields(file, csv)?,
        };
        for (name, ty) in seen.types {
            let known = types.entry(name).or_default();
            *known = known.with(ty);
        }
        for name in seen.inexact {
            inexact_in.entry(name).or_insert_with(|| file.clone());
        }
        together.fractions.extend(seen.fractions);
        for note in seen.notes {
            if !together.notes.iter().any(|(_, known)| *known == note) {
                together.notes.push((file.clone(), note));
            }
        }
    }
    let told = &csv.types;
    let is_missing = |name: &&String| !name.starts_with('#') && !types.contains_key(*name);
    if let (Some(name), false) = (told.keys().find(is_missing), types.is_empty()) {
        return Err(Error::invalid(format!(
            "no file has a field {name:?} that could be {}; the fields are {}",
            told[name].sql_name(),
            types.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
        )));
    }
    let those = |wanted: SeenType| {
        let found = types.iter().filter(move |(_, ty)| **ty == wanted);
        found.map(|(name, _)| name.clone()).collect()
    };
    (together.mixed, together.empty) = (those(SeenType::Mixed), those(SeenType::Nothing));
    let types = types.into_iter().map(|(name, ty)| (name, ty.field_type()));
    together.types = types.chain(told.clone()).collect();
    let is_known = |name: &str| {
        let mut known = csv.table.iter().flat_map(|table| &table.fields);
        told.contains_key(name) || known.any(|field| field.name == name)
    };
    together.inexact = inexact_in.keys().cloned().collect();
    // A file by itself says so, too, and in the same words.
    for (name, file) in inexact_in.into_iter().filter(|(name, _)| !is_known(name)) {
        let note = match together.types.get(&name) {
            Some(FieldType::F64) => beside_decimals(&name),
            Some(FieldType::Text) if !together.mixed.contains(&name) => beyond_numbers(&name),
            _ => continue,
        };
        if !together.notes.iter().any(|(_, known)| *known == note) {
            together.notes.push((file, note));
        }
    }
    Ok(together)
}
