//! From objects that a step has written to what the manifest names and readers see.

use std::sync::{Arc, PoisonError};

use tidefall_ground::Ground;
use tidefall_ground::frames::{Content, encode_header};
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::series::Edit::{AddSensors, ReplaceSensors};
use tidefall_ground::manifest::series::SensorObject;
use tidefall_ground::manifest::{Edit, State};
use tidefall_ground::written::Written;
use tidefall_types::Result;

use crate::catalog::SensorDictionary;
use crate::context::Context;
use crate::read::{LiveObject, Objects, Version};
use crate::table::{Live, Table};

/// Sensor objects of a table beyond which they are written anew, as one unless that would be too large.
const SENSOR_OBJECTS_MAX: usize = 16;
/// Bytes of tags of an object of sensors, values that they share once and before they are packed; tests have less.
const SENSORS_BYTES_MAX: usize = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 20 };

/// Commits edits of one table, for which `written` was written, and shows them to readers in one step, together
/// with `change`.
///
/// # Errors
/// Those of [`Ground::commit`].
pub(crate) fn install(
    context: &Context,
    table: &Table,
    written: Written,
    mut edits: Vec<Edit>,
    change: impl FnOnce(&mut Live),
) -> Result<()> {
    let ground = &context.ground;
    let _alone = ground.install_alone();
    // What only goes needs nothing beside it, and no room for that.
    if !edits.iter().all(|edit| matches!(edit, Edit::RemoveObject(..))) {
        table.add_what_the_log_holds(ground, &mut edits, &written)?;
    }
    commit(context, table, &mut ground.manifest(), written, &edits, change)
}

/// As [`install`] for who holds [`Ground::install_alone`] and the manifest.
///
/// # Errors
/// As there.
pub fn commit(
    context: &Context,
    table: &Table,
    manifest: &mut ManifestLog<State>,
    written: Written,
    edits: &[Edit],
    change: impl FnOnce(&mut Live),
) -> Result<()> {
    context.ground.commit_written(manifest, written, edits)?;
    show(context, table, manifest, change)
}

/// Shows readers what the manifest says of a table now, in one step, together with `change`. Whoever calls has held the manifest since
/// the commit, or somebody else might have shown it without the change.
///
/// # Errors
/// `Corrupt` when a delete is damaged, which none is that the table has brought there.
pub fn show(
    context: &Context,
    table: &Table,
    manifest: &ManifestLog<State>,
    change: impl FnOnce(&mut Live),
) -> Result<()> {
    let state = manifest.state();
    let Some(stored) = state.series(table.id) else {
        // It was dropped.
        change(&mut table.live());
        return Ok(());
    };
    table.note_stored(state);
    let open = |entry: &_| context.live_object(entry);
    let following = |version: &Version| {
        let next = version.following(stored, state.wal_from, open);
        // What is in the manifest and not shown here must not be built on.
        next.inspect_err(|error| context.ground.failure.set(error))
    };
    let before = table.version();
    let mut next = following(&before)?;
    let mut live = table.live();
    let now = table.version();
    if !Arc::ptr_eq(&now, &before) {
        // A delete has come. Nothing else comes while the manifest is held.
        next = following(&now)?;
    }
    change(&mut live);
    let (version, replaced) = next;
    table.change_version(&mut live, |shown| *shown = version);
    live.count_bytes();
    drop(live);
    watch(&context.ground, &replaced);
    context.ground.memory.rows_left();
    Ok(())
}

/// Lets go of all that a table has, which is no part of the database any more.
pub fn forget(ground: &Ground, table: &Table) {
    let mut live = table.live();
    live.drop_all();
    let mut objects = Objects::default();
    table.change_version(&mut live, |version| std::mem::swap(&mut version.objects, &mut objects));
    drop(live);
    watch(ground, &objects);
    ground.memory.rows_left();
}

/// Keeps objects that were replaced as long as somebody reads them here.
fn watch(ground: &Ground, objects: &[Arc<LiveObject>]) {
    let watched = |object: &Arc<LiveObject>| (object.segment.name().to_owned(), object.reader());
    ground.obsolete.watch(objects.iter().map(watched));
}

impl Table {
    /// Adds edits that make new sensors and deletes durable outside of the log.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn add_what_the_log_holds(
        &self,
        ground: &Ground,
        edits: &mut Vec<Edit>,
        written: &Written,
    ) -> Result<()> {
        if self.damage.is_some() {
            return Ok(());
        }
        let deletes = Arc::clone(&self.version().deletes);
        let stored: Vec<SensorObject> = match ground.manifest().state().series(self.id) {
            Some((state, stored)) => {
                for delete in deletes.iter().filter(|delete| !state.has_delete(delete.seq)) {
                    edits.push(Edit::AddTombstone(self.id, delete.to_stored()?));
                }
                stored.sensors.clone()
            }
            None => return Ok(()),
        };
        self.add_sensors(ground, &stored, edits, written)
    }

    /// Writes the sensors that no object has yet, in parts of which each is read and written as a whole.
    fn add_sensors(
        &self,
        ground: &Ground,
        stored: &[SensorObject],
        edits: &mut Vec<Edit>,
        written: &Written,
    ) -> Result<()> {
        let known = stored.last().map_or(0, |part| part.first + part.count);
        let (count, is_crowded) = {
            let sensors = self.sensors.read().unwrap_or_else(PoisonError::into_inner);
            let count = sensors.count();
            (count, count > known && is_crowded(&sensors, stored.len()))
        };
        let mut first = if is_crowded { 0 } else { known };
        while first < count {
            let sensors = self.sensors.read().unwrap_or_else(PoisonError::into_inner);
            let part = sensors.first_within(first..count, SENSORS_BYTES_MAX);
            let frame = sensors.encode(part.clone())?;
            drop(sensors);
            let header = encode_header(Content::Sensors, self.id);
            let (id, writer) = (ground.next_object_id(), ground.writer());
            let bytes = (header.len() + frame.len()) as u64;
            let stored = SensorObject { id, writer, first, count: part.end - first, bytes };
            let name = stored.name();
            written.note(name.clone());
            ground.io.put_new(&name, &[&header, &frame])?;
            edits.push(match is_crowded && first == 0 {
                true => ReplaceSensors(self.id, stored).into(),
                false => AddSensors(self.id, stored).into(),
            });
            first = part.end;
        }
        Ok(())
    }

    /// Takes note of what is stored of sensors: those that are in objects, and the tags that they may have.
    pub fn note_stored(&self, state: &State) {
        let Some((table, stored)) = state.series(self.id) else { return };
        self.known.keep(stored.sensor_count());
        let tags = table.schema.tags.len();
        if self.schema().tags.len() < tags {
            self.sensors.write().unwrap_or_else(PoisonError::into_inner).add_tags(tags);
        }
    }

    /// Whether sensors below `upto` that no object and no record of the log has are too much for one record.
    pub fn has_many_new_sensors(&self, upto: u32, bytes_max: usize) -> bool {
        let unkept = self.known.kept()..upto;
        let sensors = self.sensors.read().unwrap_or_else(PoisonError::into_inner);
        !unkept.is_empty() && sensors.first_within(unkept.clone(), bytes_max).end < unkept.end
    }
}

/// Whether so many objects have the sensors that far fewer would do.
fn is_crowded(sensors: &SensorDictionary, objects: usize) -> bool {
    if objects < SENSOR_OBJECTS_MAX {
        return false;
    }
    let (mut needed, mut first) = (0, 0);
    while first < sensors.count() {
        first = sensors.first_within(first..sensors.count(), SENSORS_BYTES_MAX).end;
        needed += 1;
    }
    objects >= 2 * needed
}
