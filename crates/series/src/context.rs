//! What the series tables of one open database have in common.

use std::sync::Arc;

use tidefall_ground::Ground;
use tidefall_ground::manifest::series::{Model, ObjectEntry};
use tidefall_store::{ObjectWriter, names};
use tidefall_types::{ObjectId, Result};

use crate::read::LiveObject;
use crate::segment::{Segment, SegmentCaches};

/// Of the memory budget: decoded footers, indexes and metrics.
const CACHE_SHARE: f64 = 0.15;

/// What the series tables of one open database have in common.
#[derive(Debug, Clone)]
pub struct Context {
    /// What all tables have in common.
    pub(crate) ground: Arc<Ground>,
    /// What was decoded of segments.
    pub caches: Arc<SegmentCaches>,
}

impl Context {
    /// That of a database.
    pub fn new(ground: Arc<Ground>) -> Self {
        let caches = SegmentCaches::new(ground.memory.share(CACHE_SHARE));
        Self { ground, caches: Arc::new(caches) }
    }

    /// Begins a segment.
    ///
    /// # Errors
    /// `Io` and `Full` from the disk.
    pub(crate) fn create_object(
        &self,
        id: ObjectId,
        model: Model,
    ) -> Result<Box<dyn ObjectWriter>> {
        self.ground.io.writer(&names::object(id, self.ground.writer(), model.name()))
    }

    /// A segment that the manifest names, which is opened when it is first read.
    pub(crate) fn live_object(&self, entry: &ObjectEntry) -> Arc<LiveObject> {
        let (entry, name, now_ns) = (entry.clone(), entry.name(), self.ground.now_ns());
        let since_ns = if entry.since_ns == 0 { now_ns } else { entry.since_ns.min(now_ns) };
        let (io, caches) = (Arc::clone(&self.ground.io), Arc::clone(&self.caches));
        let segment = Segment::new(io, caches, entry.id, name.into(), entry.bytes);
        Arc::new(LiveObject { entry, segment, since_ns })
    }
}
