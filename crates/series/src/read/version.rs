//! What is stored of a table at one moment.

use std::sync::Arc;

use tidefall_ground::manifest::TableState;
use tidefall_ground::manifest::series::{ObjectEntry, Stored};
use tidefall_types::{Result, Seq, TableSchema};

use super::deletes::{Deletes, LiveTombstone};
use super::objects::{LiveObject, Objects};

/// What is stored of a table at one moment, and the deletes that only the log has as yet. It never changes: each commit of the manifest and
/// each delete makes another one, which shares with it what stays. Its objects stay on the disk for as long as somebody holds it.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its columns.
    pub schema: Arc<TableSchema>,
    /// Its segments.
    pub objects: Objects,
    pub(crate) deletes: Arc<Deletes>,
}

impl Version {
    /// That of a table without rows.
    pub fn new(schema: TableSchema) -> Self {
        Self { schema: Arc::new(schema), objects: Objects::default(), deletes: Arc::default() }
    }

    /// The version that comes behind this one of a table which the manifest has come to know so. The log has what was written from `wal_from` on.
    /// The objects that are not stored any more come back beside.
    ///
    /// # Errors
    /// `Corrupt` when a delete is damaged that is not here.
    pub(crate) fn following(
        &self,
        (state, stored): (&TableState, &Stored),
        wal_from: Seq,
        open: impl Fn(&ObjectEntry) -> Arc<LiveObject>,
    ) -> Result<(Self, Vec<Arc<LiveObject>>)> {
        let schema = match *self.schema == state.schema {
            true => Arc::clone(&self.schema),
            false => Arc::new(state.schema.clone()),
        };
        let (objects, replaced) = self.objects.following(&stored.objects, open);
        let deletes = self.deletes.following(state, wal_from)?;
        Ok((Self { schema, objects, deletes }, replaced))
    }

    /// Adds a delete, which the log has.
    pub(crate) fn add_delete(&mut self, delete: LiveTombstone) {
        Arc::make_mut(&mut self.deletes).insert(delete);
    }

    /// This one with some of its objects alone: the others need not stay for who reads these.
    pub(crate) fn with_objects(&self, objects: impl IntoIterator<Item = Arc<LiveObject>>) -> Self {
        let (schema, deletes) = (Arc::clone(&self.schema), Arc::clone(&self.deletes));
        Self { schema, objects: objects.into_iter().collect(), deletes }
    }

    /// This one with what its deletes hide.
    pub(crate) fn undeleted(&self) -> Self {
        Self { deletes: Arc::default(), ..self.clone() }
    }
}
