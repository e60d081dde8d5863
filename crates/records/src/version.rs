//! What is stored of a table at one moment.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tidefall_ground::manifest::TableState;
use tidefall_ground::manifest::records::{SegmentEntry, Stored};
use tidefall_ground::obsolete::Watched;
use tidefall_types::{ObjectId, Result, Seq, TableSchema};

use crate::deletes::{Delete, Deletes};
use crate::packed::Layout;
use crate::region::{Region, Side};
use crate::segment::Segment;

/// A segment of a table as readers see it.
#[derive(Debug)]
pub struct LiveSegment {
    /// What the manifest says of it.
    pub entry: SegmentEntry,
    /// The box that its rows are in.
    pub bounds: Region,
    /// Its bytes.
    pub segment: Segment,
    /// Since when it is there, or open where nobody knows.
    pub since_ns: i64,
}

impl LiveSegment {
    /// One that the manifest names.
    pub(crate) fn new(entry: &SegmentEntry, segment: Segment, now_ns: i64) -> Self {
        let sides = entry.bounds.iter().map(|(first, last)| Side::new(*first, *last));
        let bounds = Region::new(sides.collect::<Vec<_>>());
        let since_ns = if entry.since_ns == 0 { now_ns } else { entry.since_ns.min(now_ns) };
        Self { entry: entry.clone(), bounds, segment, since_ns }
    }

    /// Tells for as long as it is read that it is.
    pub fn reader(self: &Arc<Self>) -> Weak<Watched> {
        Arc::downgrade(self) as Weak<Watched>
    }
}

/// What is stored of a table at one moment, and the deletes that only the log has as yet. It never changes: each commit of the manifest and
/// each delete makes another one, which shares with it what stays. Its segments stay on the disk for as long as somebody holds it.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its columns.
    pub schema: Arc<TableSchema>,
    /// Those columns as rows that come now have them.
    pub layout: Arc<Layout>,
    /// Its segments, by id.
    pub segments: Arc<Vec<Arc<LiveSegment>>>,
    /// Its deletes.
    pub deletes: Arc<Deletes>,
}

impl Version {
    /// That of a table without rows.
    pub fn new(schema: TableSchema) -> Self {
        let layout = Arc::new(Layout::of(&schema));
        Self { schema: Arc::new(schema), layout, segments: Arc::default(), deletes: Arc::default() }
    }

    /// The version that comes behind this one of a table which the manifest has come to know so. The log has what was written from `wal_from` on.
    /// The segments that are not stored any more come back beside.
    ///
    /// # Errors
    /// `Corrupt` when a delete is damaged that is not here.
    pub(crate) fn following(
        &self,
        (state, stored): (&TableState, &Stored),
        wal_from: Seq,
        open: impl Fn(&SegmentEntry) -> Arc<LiveSegment>,
    ) -> Result<(Self, Vec<Arc<LiveSegment>>)> {
        let (schema, layout) = match *self.schema == state.schema {
            true => (Arc::clone(&self.schema), Arc::clone(&self.layout)),
            false => (Arc::new(state.schema.clone()), Arc::new(Layout::of(&state.schema))),
        };
        let mut here: HashMap<ObjectId, &Arc<LiveSegment>> =
            self.segments.iter().map(|segment| (segment.entry.id, segment)).collect();
        let named = stored.segments.values().map(|entry| match here.get(&entry.id) {
            Some(segment) if segment.entry == *entry => {
                let stays = Arc::clone(segment);
                here.remove(&entry.id);
                stays
            }
            _ => open(entry),
        });
        let segments = Arc::new(named.collect());
        let replaced = here.into_values().cloned().collect();
        let deletes = self.deletes.following(state, wal_from)?;
        Ok((Self { schema, layout, segments, deletes }, replaced))
    }

    /// Adds a delete, which the log has.
    pub(crate) fn add_delete(&mut self, delete: Delete) {
        Arc::make_mut(&mut self.deletes).push(delete);
    }

    /// Whether a segment is one of them.
    pub(crate) fn has(&self, segment: &LiveSegment) -> bool {
        self.segments.binary_search_by_key(&segment.entry.id, |other| other.entry.id).is_ok()
    }
}
