//! Batches whose times clocks of a zone have shown.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, RecordBatch, TimestampNanosecondArray};
use arrow_schema::{DataType, Field, Schema};
use tidefall_types::{Error, Result, RowError};

use crate::arrow::{time_column, timestamps};
use crate::{ArrowOptions, LocalZone};

/// The batch with all dates and timestamps that name no zone as instants, but for fields and tags of `are_texts`, which
/// stay what the file says. The rows of the second part have one that clocks never showed or that is out of range, which is
/// null then; the third part is how many values of the time they showed twice.
pub(crate) fn instants(
    batch: &RecordBatch,
    zone: LocalZone,
    options: &ArrowOptions,
    are_texts: impl Fn(&str) -> bool,
) -> Result<(RecordBatch, Vec<RowError>, u64)> {
    let time = time_column(batch.schema_ref(), options)?;
    let schema = batch.schema();
    let (mut fields, mut columns) = (schema.fields().to_vec(), batch.columns().to_vec());
    let (mut bad, mut twice) = (Vec::new(), 0);
    for (place, (field, column)) in fields.iter_mut().zip(&mut columns).enumerate() {
        let is_text = place != time && are_texts(field.name());
        if is_text || !is_local(field.data_type()) {
            continue;
        }
        let local = timestamps(field.name(), column, &mut bad)?;
        let mut of_column = 0;
        let instant = |(row, local_ns): (usize, Option<i64>)| {
            let instant = zone.instant(local_ns?, &mut of_column);
            let named = |error: Error| error.context(format_args!("column {:?}", field.name()));
            instant.map_err(|error| bad.push(RowError { row, error: named(error) })).ok()
        };
        let local = local.as_primitive::<TimestampNanosecondType>();
        let instants: TimestampNanosecondArray = local.iter().enumerate().map(instant).collect();
        let instants = instants.with_timezone("+00:00");
        *field = Arc::new(Field::new(field.name(), instants.data_type().clone(), true));
        *column = Arc::new(instants);
        twice += if place == time { of_column } else { 0 };
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema, columns)
        .map_err(|error| Error::invalid(format!("times in {zone}: {error}")))?;
    Ok((batch, bad, twice))
}

/// Whether values of a type are dates or timestamps that name no zone.
fn is_local(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64 => true,
        DataType::Dictionary(_, values) => is_local(values),
        _ => false,
    }
}
