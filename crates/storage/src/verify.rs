//! Reads everything and checks it: checksums, and that manifest, index, pages and metrics agree on how
//! many rows there are.

use tidefall_ground::options::VerifyReport;
use tidefall_types::Result;

use crate::Db;

impl Db {
    /// Reads every object that the manifest names, and the manifest, and checks them. The log is
    /// read, and checked, whenever a database is opened.
    ///
    /// # Errors
    /// `Io` when the disk fails, `Full` when no more files can be opened; damage is no error but is listed in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let engine = self.engine();
        engine.tables().iter().for_each(|table| table.verify(&engine.ground, &mut report));
        let (objects, damages) = engine.ground.manifest().verify()?;
        report.objects += objects;
        report.damages.extend(damages);
        Ok(report)
    }
}
