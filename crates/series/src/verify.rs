//! Reads all of a table and checks it: checksums, and that manifest, index, pages and metrics agree on how
//! many rows there are.

use tidefall_ground::Ground;
use tidefall_ground::manifest::series::SensorObject;
use tidefall_ground::options::VerifyReport;
use tidefall_store::check_size;

use crate::catalog::SensorDictionary;
use crate::catalog::object::read_sensors;
use crate::segment::verify_segment;
use crate::table::Table;

/// Reads all that the manifest names of a table. Damage is listed in the report.
pub fn verify(ground: &Ground, table: &Table, report: &mut VerifyReport) {
    if let Some(damage) = &table.damage {
        report.damages.push(damage.clone());
        return;
    }
    let version = table.version();
    for object in version.objects.iter() {
        report.objects += 1;
        verify_segment(table.id, &object.entry, &object.segment, report);
    }
    verify_sensors(ground, table, report);
}

/// Reads the stored sensors of a table again.
fn verify_sensors(ground: &Ground, table: &Table, report: &mut VerifyReport) {
    let parts = match ground.manifest().state().series(table.id) {
        Some((_, stored)) => stored.sensors.clone(),
        None => return,
    };
    let mut stored = SensorDictionary::default();
    for part in &parts {
        report.objects += 1;
        let name = part.name();
        let checked = check_size(&*ground.io, &name, part.bytes)
            .and_then(|()| read_sensors(&*ground.io, table.id, part, |frame| stored.decode(frame)));
        // One that was replaced meanwhile may be gone.
        let is_named = |part: &SensorObject| {
            let manifest = ground.manifest();
            let table = manifest.state().series(table.id);
            table.is_some_and(|(_, stored)| stored.sensors.iter().any(|other| other.id == part.id))
        };
        if let Err(error) = checked {
            if is_named(part) {
                report.damages.push(error);
            }
            // What comes behind it does not follow what was read.
            return;
        }
    }
}
