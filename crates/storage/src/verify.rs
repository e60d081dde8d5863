//! Reads everything and checks it: checksums, and that manifest, index, pages and metrics agree on how
//! many rows there are.

use tidefall_types::Result;

use crate::Db;
use crate::catalog::SensorDictionary;
use crate::catalog::object::read_sensors;
use crate::engine::Engine;
use crate::manifest::SensorObject;
use crate::options::VerifyReport;
use crate::store::check_size;
use crate::table::Table;

impl Db {
    /// Reads every object that the manifest names, and the manifest, and checks them. The log is
    /// read, and checked, whenever a database is opened.
    ///
    /// # Errors
    /// `Io` when the disk fails; damage is no error but is listed in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let engine = self.engine();
        for table in engine.tables() {
            if let Some(damage) = &table.damage {
                report.damages.push(damage.clone());
                continue;
            }
            let objects = table.live().objects.clone();
            for object in objects.iter() {
                report.objects += 1;
                let id = table.id;
                crate::segment::verify_segment(id, &object.entry, &object.segment, &mut report);
            }
            verify_sensors(engine, &table, &mut report);
        }
        let (objects, damages) = engine.manifest().verify()?;
        report.objects += objects;
        report.damages.extend(damages);
        Ok(report)
    }
}

/// Reads the stored sensors of a table again.
fn verify_sensors(engine: &Engine, table: &Table, report: &mut VerifyReport) {
    let parts = match engine.manifest().state().tables.get(&table.id) {
        Some(state) => state.sensors.clone(),
        None => return,
    };
    let mut stored = SensorDictionary::default();
    for part in &parts {
        report.objects += 1;
        let name = part.name();
        let checked = check_size(&*engine.io, &name, part.bytes)
            .and_then(|()| read_sensors(&*engine.io, table.id, part, |frame| stored.decode(frame)));
        // One that was replaced meanwhile may be gone.
        let is_named = |part: &SensorObject| {
            let manifest = engine.manifest();
            let table = manifest.state().tables.get(&table.id);
            table.is_some_and(|table| table.sensors.iter().any(|other| other.id == part.id))
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
