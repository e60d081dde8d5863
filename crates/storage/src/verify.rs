//! Reads everything and checks it: checksums, order, and that metrics say what the rows say.

use tidefall_types::{Error, Result};

use crate::Db;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Objects read.
    pub objects: u64,
    /// Rows read.
    pub rows: u64,
    /// Blocks of metrics compared with their rows.
    pub blocks: u64,
    /// What is wrong, one entry for each object and sensor.
    pub damages: Vec<Error>,
}

impl Db {
    /// Reads every object that the manifest names and checks it.
    ///
    /// # Errors
    /// `Io` when the disk fails; damage is no error but is listed in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        for table in self.engine().tables() {
            let objects = table.live().objects.clone();
            for object in objects {
                report.objects += 1;
                crate::segment::verify_segment(&object.entry, &object.segment, &mut report);
            }
        }
        Ok(report)
    }
}
