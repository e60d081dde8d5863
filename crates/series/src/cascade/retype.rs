//! Writing objects anew with fields of other types. All else stays: their rows, also those that a delete hides, their place
//! among the writes, their model.

use std::sync::Arc;

use arrow_array::ArrayRef;
use tidefall_ground::manifest::Edit;
use tidefall_ground::manifest::series::Edit::AddObject;
use tidefall_ground::manifest::series::ObjectEntry;
use tidefall_ground::written::Written;
use tidefall_types::{Error, FieldId, FieldType, Result, TimeRange};

use super::pieces::take_pieces;
use super::rewrite::{
    EachPiece, Output, estimate, sensors_of, stretch_rows, stretches, write_in_turn, write_object,
};
use crate::context::Context;
use crate::read::{LiveObject, ReadStats, SensorStream, Sources};
use crate::rows::SensorRows;
use crate::segment::encode::Stretch;
use crate::table::Table;

/// Writes objects anew. `from` and `to` are the fields of the table before and after; `convert` brings values of the field at a
/// place to its type. Returns the edits that put the new objects in the place of the old ones.
///
/// # Errors
/// Those of `convert`, `Io`, `Full` and `Corrupt` from storage; `Closed` when the database closes meanwhile.
pub fn retype(
    context: &Context,
    table: &Arc<Table>,
    (from, to): (&[FieldType], &[FieldType]),
    objects: &[Arc<LiveObject>],
    written: &Written,
    convert: &(dyn Fn(usize, &ArrayRef) -> Result<ArrayRef> + Sync),
) -> Result<Vec<Edit>> {
    let numbered = |types: &[FieldType]| -> Vec<(FieldId, FieldType)> {
        types.iter().enumerate().map(|(id, ty)| (FieldId(id as u16), *ty)).collect()
    };
    let (fields, new_fields): (Arc<[_]>, _) = (numbered(from).into(), numbered(to));
    let changed: Vec<usize> = (0..from.len()).filter(|&place| from[place] != to[place]).collect();
    let stats = Arc::new(ReadStats::default());
    let block_ns = table.schema().options.block_ns;
    let change = |stretch: &Stretch| -> Result<Stretch> {
        let SensorRows { times, mut fields } = stretch.rows().clone();
        for &place in &changed {
            fields[place] = fields[place].as_ref().map(|v| convert(place, v)).transpose()?;
        }
        Ok(Stretch::Rows(SensorRows { times, fields }))
    };
    let entries = write_in_turn(written, objects, |object| {
        context.ground.steps.check()?;
        if object.segment.fields()?.iter().any(|(id, _)| id.index() >= from.len()) {
            return Err(Error::internal(
                "an object has a field that nobody knows of when types change",
            ));
        }
        let (has_filters, threads) = (object.segment.has_filters()?, context.ground.threads());
        let inputs = std::slice::from_ref(object);
        let ObjectEntry { model, time, last_seq, .. } = object.entry;
        let sources = Sources::of(inputs, &table.version().undeleted());
        let sensors = sensors_of(inputs)?;
        let read = |(sensor, time): &(u32, TimeRange), each: &mut EachPiece<'_>| {
            let stream = SensorStream::new(&sources, *sensor, time, &fields, &stats)?;
            take_pieces(stream, time, |_| false, &mut |piece| {
                let piece: Vec<Stretch> = piece.iter().map(change).collect::<Result<_>>()?;
                each(*sensor, &piece)
            })
        };
        let output = Output {
            table: table.id,
            model,
            fields: &new_fields,
            seq: last_seq,
            block_ns,
            estimate: estimate(inputs, &time, sensors.len()),
            has_filters,
            threads,
        };
        let items = stretches(inputs, &sensors, &time, stretch_rows(fields.len()))?;
        write_object(context, output, &items, read)
    })?;
    let is_same = |(object, entry): (&Arc<LiveObject>, &ObjectEntry)| {
        let old = &object.entry;
        (old.rows, old.time, old.last_seq) == (entry.rows, entry.time, entry.last_seq)
    };
    if entries.len() != objects.len() || !objects.iter().zip(&entries).all(is_same) {
        return Err(Error::internal("an object lost rows when its fields changed their types"));
    }
    let mut edits = Vec::with_capacity(2 * objects.len());
    for (object, entry) in objects.iter().zip(entries) {
        let ObjectEntry { id, last_delete, is_distinct, .. } = object.entry;
        edits.push(Edit::RemoveObject(table.id, id));
        let entry = ObjectEntry { last_delete, is_distinct, ..entry };
        edits.push(AddObject(table.id, entry).into());
    }
    Ok(edits)
}
