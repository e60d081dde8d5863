//! Which columns of a file are read, and what they are.

use arrow_schema::{DataType, SchemaRef};
use tidefall_types::{Error, Result};

use super::ColumnarOptions;
use crate::ArrowOptions;
use crate::arrow::time_column;
use crate::tags::{Provided, skipped};

/// The tags that the options name, or else those of the table that are not something else here.
pub(super) fn tags(schema: &SchemaRef, options: &ColumnarOptions) -> Result<Vec<String>> {
    let (Some(table), true) = (&options.table, options.tags.is_empty()) else {
        return Ok(options.tags.clone());
    };
    let constant = options.constant_tags.iter().map(|(name, _)| name);
    let others = constant.chain(&options.skip).map(String::as_str).collect();
    let columns = schema.fields().iter().map(|field| field.name().as_str()).collect();
    Provided { columns, others }.check(table)?;
    let others = || options.time.iter().chain(&options.skip).chain(options.fields.iter().flatten());
    let is_tag =
        |tag: &&String| schema.index_of(tag).is_ok() && !others().any(|other| other == *tag);
    Ok(table.tags.iter().filter(is_tag).cloned().collect())
}

/// The positions of the columns that are read, and the name of the one that is the time, which all batches share.
pub(super) fn wanted_columns(
    schema: &SchemaRef,
    options: &ColumnarOptions,
    tags: &[String],
) -> Result<(Vec<usize>, String)> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let skip = skipped(&options.skip, options.table.as_deref(), |name| names.contains(&name));
    let given = options.time.iter().chain(tags).chain(skip);
    let missing =
        given.chain(options.fields.iter().flatten()).find(|name| !names.contains(&name.as_str()));
    if let Some(name) = missing {
        return Err(Error::invalid(format!(
            "there is no column {name:?}; the columns are {names:?}"
        )));
    }
    let has = |list: &[String], name: &str| list.iter().any(|listed| listed == name);
    let there = (0..names.len()).filter(|&column| !has(&options.skip, names[column]));
    let there: Vec<usize> = there.collect();
    let time = time_of(schema, &there, options, tags)?;
    let is_wanted = |name: &str| {
        name == time
            || has(tags, name)
            || options.fields.as_ref().is_none_or(|fields| has(fields, name))
    };
    Ok((there.into_iter().filter(|&column| is_wanted(names[column])).collect(), time))
}

/// The name of the column that is the time, one of those `there`.
fn time_of(
    schema: &SchemaRef,
    there: &[usize],
    options: &ColumnarOptions,
    tags: &[String],
) -> Result<String> {
    let is_field = |name: &String| {
        let mut told = options.fields.iter().flatten().chain(options.types.keys());
        let of_table = options.table.iter().flat_map(|table| &table.fields);
        told.any(|told| told == name) || of_table.into_iter().any(|field| field.name == *name)
    };
    let may_be_time = |column: &usize| {
        let field = schema.field(*column);
        let has_dates = matches!(
            field.data_type(),
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
        );
        options.time.is_some() || has_dates || !is_field(field.name())
    };
    // Numbers and texts that are known to be a field are not asked about.
    let there: Vec<usize> = there.iter().copied().filter(may_be_time).collect();
    let left = schema.project(&there).map_err(|error| Error::invalid(error.to_string()))?;
    let arrow = ArrowOptions { time: options.time.clone(), tags: tags.to_vec() };
    Ok(left.field(time_column(&left, &arrow)?).name().clone())
}
