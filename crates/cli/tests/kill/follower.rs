//! The database as somebody sees it who has it open for reading while its processes come and go.

use std::path::Path;

use tidefall_storage::{AggregateRequest, Db, DbOptions, ReadStats};
use tidefall_types::{ErrorKind, TimeRange};

use crate::ledger::Lane;

/// A database that is opened only for reading, by this process, which nobody kills.
#[derive(Debug)]
pub struct Follower {
    db: Db,
}

impl Follower {
    /// # Errors
    /// When it cannot be opened.
    pub fn open(dir: &Path) -> Result<Self, String> {
        let db = Db::open_read_only(dir, DbOptions::default());
        db.map(|db| Self { db }).map_err(|error| format!("opened for reading: {error}"))
    }

    /// Looks what is new, and whether it can be read.
    ///
    /// # Errors
    /// What is wrong. A writer may be too fast for it, which is not.
    pub fn look(&self) -> Result<(), String> {
        match self.db.refresh() {
            Err(error) if error.kind() == ErrorKind::Limit => Ok(()),
            Err(error) => Err(format!("refreshed: {error}")),
            Ok(_) => {
                let tables = self.db.tables();
                tables.iter().try_for_each(|table| self.rows(&table.name).map(drop))
            }
        }
    }

    /// Compares what is there with lanes that are settled, while nobody writes.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check<'a>(&self, lanes: impl Iterator<Item = &'a Lane> + Clone) -> Result<(), String> {
        self.db.refresh().map_err(|error| format!("refreshed: {error}"))?;
        for lane in lanes.clone() {
            let of_table = lanes.clone().filter(|other| other.table == lane.table);
            let wanted: usize = of_table.map(|lane| lane.rows.len()).sum();
            let found = self.rows(&lane.table)?;
            if found != wanted as u64 {
                let table = &lane.table;
                return Err(format!("{table}: a reader sees {found} rows of {wanted}"));
            }
        }
        Ok(())
    }

    /// The rows of a table; none if it is not there.
    fn rows(&self, table: &str) -> Result<u64, String> {
        let failed = |error| format!("{table}, opened for reading: {error}");
        let snapshot = match self.db.snapshot(table) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            snapshot => snapshot.map_err(failed)?,
        };
        let sensors: Vec<u32> = (0..snapshot.sensor_count()).collect();
        let request = AggregateRequest {
            sensors: sensors.into(),
            groups: Vec::new(),
            group_count: 1,
            time: TimeRange::ALL,
            bin: None,
            fields: Vec::new(),
            deviations: false,
            extremes: false,
            ends: false,
        };
        let counted = snapshot.aggregate(&request, &ReadStats::default().into()).map_err(failed)?;
        Ok(counted.rows.iter().sum())
    }
}
