//! Columns that are not there, or there twice.

use datafusion::common::utils::quote_identifier;
use datafusion::common::{Column, SchemaError};

use super::words;
use crate::nearest::{did_you_mean, joined, nearest};

/// Columns that are listed at most.
const LISTED_MAX: usize = 20;

/// What is wrong with a name of a column.
pub(super) fn told(error: &SchemaError) -> String {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => missing(field, valid_fields),
        SchemaError::DuplicateUnqualifiedField { name } => {
            format!("column {} is named twice", quote_identifier(name))
        }
        SchemaError::DuplicateQualifiedField { qualifier, name } => {
            let table = quote_identifier(qualifier.table());
            format!(
                "column {table}.{} is there twice; of two tables called {table} give one another name, as in FROM {table} AS \
                 a, and of two columns, too",
                quote_identifier(name)
            )
        }
        SchemaError::AmbiguousReference { .. } => words::told(&error.to_string()),
    }
}

fn missing(column: &Column, known: &[Column]) -> String {
    let what = format!("there is no column {}", asked(column));
    let name = column.name.as_str();
    let in_other_case =
        |other: &&Column| other.name != name && other.name.eq_ignore_ascii_case(name);
    if let Some(other) = known.iter().find(in_other_case) {
        let why = match name.chars().any(char::is_uppercase) {
            true => "names in double quotes keep their case",
            false => "names without double quotes are read in small letters",
        };
        return format!("{what}; there is {}: {why}", shown(other, column.relation.is_some()));
    }
    let names = nearest(name, known.iter().map(|other| other.name.as_str()));
    let tables_of = |name: &str| known.iter().filter(|other| other.name == name).count();
    let full = |name: &&str| {
        let is_full = column.relation.is_some() || tables_of(name) > 1;
        let other = known.iter().find(|other| other.name == **name);
        other.map_or_else(String::new, |other| shown(other, is_full))
    };
    let names: Vec<String> = names.iter().map(full).collect();
    match did_you_mean(&names).or_else(|| listed(known)) {
        Some(others) => format!("{what}; {others}"),
        None => what,
    }
}

fn listed(known: &[Column]) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for column in known {
        let name = shown(column, false);
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() > LISTED_MAX {
            names.truncate(LISTED_MAX);
            return Some(format!("there are {} and others", names.join(", ")));
        }
    }
    match names.len() {
        0 => None,
        1 => Some(format!("there is {}", names[0])),
        _ => Some(format!("there are {}", joined(&names, " and "))),
    }
}

/// A column as it was asked for, with all that stands before it.
fn asked(column: &Column) -> String {
    match &column.relation {
        Some(table) if !table.table().starts_with("__") => column.quoted_flat_name(),
        _ => quote_identifier(&column.name).into_owned(),
    }
}

/// A column as it is written, with its table if that has a name of who asks.
fn shown(column: &Column, with_table: bool) -> String {
    let name = quote_identifier(&column.name);
    match &column.relation {
        Some(table) if with_table && !table.table().starts_with("__") => {
            format!("{}.{name}", quote_identifier(table.table()))
        }
        _ => name.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing_of(name: &str, known: &[&str]) -> String {
        let known = known.iter().map(|name| Column::from_qualified_name_ignore_case(*name));
        let known: Vec<Column> = known.collect();
        let field = Box::new(Column::from_qualified_name_ignore_case(name));
        told(&SchemaError::FieldNotFound { field, valid_fields: known })
    }

    #[test]
    fn a_missing_column_is_told_with_those_that_are_close() {
        let plant = ["t.time", "t.level", "t.Big", "b.level", "__joined_0001.sensor"];
        let check = |name: &str, said: &str| {
            assert_eq!(missing_of(name, &plant), format!("there is no column {said}"));
        };
        check("leve", "leve; did you mean t.level?");
        check("tme", "tme; did you mean time?");
        check("t.tme", "t.tme; did you mean t.time?");
        check("x.time", "x.time; did you mean t.time?");
        check("sensr", "sensr; did you mean sensor?");
        check("kv.t.tme", "kv.t.tme; did you mean t.time?");
        check("Level", "\"Level\"; there is level: names in double quotes keep their case");
        let small = "names without double quotes are read in small letters";
        check("big", &format!("big; there is \"Big\": {small}"));
        check("quality", "quality; there are time, level, \"Big\" and sensor");
        assert_eq!(missing_of("x", &[]), "there is no column x");
    }

    #[test]
    fn long_lists_end() {
        let names: Vec<String> = (0..50).map(|number| format!("t.field_{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let told = missing_of("zz", &names);
        assert!(told.ends_with("field_18, field_19 and others"), "{told}");
    }
}
