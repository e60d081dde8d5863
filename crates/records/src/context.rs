//! What the tables of records of one open database have in common.

use std::sync::Arc;

use tidefall_ground::Ground;
use tidefall_ground::manifest::records::SegmentEntry;

use crate::segment::{Caches, Segment};
use crate::version::LiveSegment;

/// Of the memory budget: indexes, metrics and columns of segments.
const CACHE_SHARE: f64 = 0.15;

/// What the tables of records of one open database have in common.
#[derive(Debug, Clone)]
pub struct Context {
    /// What all tables have in common.
    pub(crate) ground: Arc<Ground>,
    /// What was decoded of segments.
    pub caches: Arc<Caches>,
}

impl Context {
    /// That of a database.
    pub fn new(ground: Arc<Ground>) -> Self {
        let caches = Caches::new(ground.memory.share(CACHE_SHARE));
        Self { ground, caches: Arc::new(caches) }
    }

    /// A segment that the manifest names, which is opened when it is first read.
    pub(crate) fn live_segment(&self, entry: &SegmentEntry) -> Arc<LiveSegment> {
        let (io, caches) = (Arc::clone(&self.ground.io), Arc::clone(&self.caches));
        let segment = Segment::new(io, caches, entry.id, entry.name().into(), entry.bytes);
        Arc::new(LiveSegment::new(entry, segment, self.ground.now_ns()))
    }
}
