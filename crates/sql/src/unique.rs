//! Dictionaries whose values differ from each other.
//!
//! A query that brings rows of several objects together may have a value twice in a dictionary. Arrow allows that;
//! pandas does not.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::error::ArrowError;
use tidefall_types::{Error, Result};

/// Gives the batches of an answer dictionaries without repeats.
#[derive(Debug)]
pub struct UniqueValues {
    /// For each column the values of a dictionary that were found to be unique.
    known: Vec<Option<ArrayRef>>,
}

impl UniqueValues {
    /// For batches of so many columns.
    pub fn new(columns: usize) -> Self {
        Self { known: vec![None; columns] }
    }

    /// The same rows with dictionaries of unique values. Nothing is copied where they are.
    ///
    /// # Errors
    /// None that is known: a dictionary can always be made anew.
    pub fn apply(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.known.is_empty() {
            return Ok(batch.clone());
        }
        let columns = batch.columns().iter().zip(&mut self.known);
        let columns = columns.map(|(column, known)| unique(column, known));
        columns
            .collect::<std::result::Result<Vec<_>, _>>()
            .and_then(|columns| RecordBatch::try_new(batch.schema(), columns))
            .map_err(|error| Error::invalid(format!("a dictionary with repeats: {error}")))
    }
}

fn unique(
    column: &ArrayRef,
    known: &mut Option<ArrayRef>,
) -> std::result::Result<ArrayRef, ArrowError> {
    let Some(dictionary) = column.as_any_dictionary_opt() else { return Ok(Arc::clone(column)) };
    let values = dictionary.values();
    let is_known = known.as_ref().is_some_and(|known| known.to_data().ptr_eq(&values.to_data()));
    if is_known || are_unique(values) {
        *known = Some(Arc::clone(values));
        return Ok(Arc::clone(column));
    }
    cast(&cast(column, values.data_type())?, column.data_type())
}

fn are_unique(values: &ArrayRef) -> bool {
    let Some(texts) = values.as_string_opt::<i32>() else { return false };
    let mut seen = HashSet::with_capacity(texts.len());
    texts.iter().all(|text| text.is_some_and(|text| seen.insert(text)))
}
