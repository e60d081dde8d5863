//! Records that are older than a table keeps them, by the first of its dimensions that is a time, are dropped: segments that are too old as a whole by the
//! clock, and what is too old of others when they are written anew. One that reaches far over the limit is written anew for that.

use tidefall_types::{FieldId, FieldType, NS_PER_DAY, TableSchema};

use crate::region::{Region, Regions, Side};
use crate::version::LiveSegment;

/// How far a segment may reach over the limit before it is written anew without its oldest rows: at most so long, ...
const SLACK_NS: i64 = 31 * NS_PER_DAY;
/// ... and this part of the age.
const SLACK_PART: i64 = 8;

/// What is too old.
#[derive(Debug, Clone)]
pub(crate) struct Old {
    /// Where it lies.
    region: Region,
    dimension: usize,
    /// A segment that begins earlier is cut.
    cut_before_ns: i64,
}

impl Old {
    /// Of a table now; nothing of one that keeps all, or has no time to tell.
    pub(crate) fn of(schema: &TableSchema, now_ns: i64) -> Option<Self> {
        let age_ns = schema.options.retention_ns?;
        let dimension = time_dimension(schema)?;
        let limit_ns = now_ns.saturating_sub(age_ns);
        let mut sides = vec![Side::ALL; schema.dimensions.len()];
        sides[dimension] = Side::new(i64::MIN, limit_ns.saturating_sub(1));
        let slack_ns = SLACK_NS.min(age_ns / SLACK_PART);
        Some(Self {
            region: Region::new(sides),
            dimension,
            cut_before_ns: limit_ns.saturating_sub(slack_ns),
        })
    }

    /// What is hidden, and beside it what is too old.
    pub(crate) fn with(hidden: Regions, old: Option<&Self>) -> Regions {
        match old {
            None => hidden,
            Some(old) => Regions::of(hidden.boxes().iter().chain([&old.region]).cloned()),
        }
    }

    /// Whether all of a segment is.
    pub(crate) fn has(&self, segment: &LiveSegment) -> bool {
        self.region.covers(&segment.bounds)
    }

    /// Whether rows in a box reach so far over the limit that they are written anew without it.
    pub(crate) fn cuts(&self, bounds: &Region) -> bool {
        bounds.sides()[self.dimension].first < self.cut_before_ns
    }
}

/// Which of the dimensions tells the age of a record.
pub fn time_dimension(schema: &TableSchema) -> Option<usize> {
    let is_time = |id: &FieldId| schema.fields[id.index()].ty == FieldType::Timestamp;
    schema.dimensions.iter().position(is_time)
}
