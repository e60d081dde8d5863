//! In which order the rows of sensors are read, how they are shared out, and what a plan may rely on.
//!
//! 1. Sensors come ordered by all their tags. Where a tag that nobody wants stands before one that is wanted, they are
//!    ordered anew by the wanted ones, so that rows with the same wanted tags follow each other.
//! 2. They are cut into parts of about the same size: where the first of the wanted tags changes, if such places lie
//!    near enough to an even cut; else where one of the first two changes, and so on.
//! 3. Each part is then a range of these tags, and its rows are ordered by the wanted tags, and by time where these
//!    tell all sensors apart.
//!
//! Very many sensors with a few readings each, which are stored in another order than that of their tags, are read as they are
//! stored, and nothing is said of their order: each look at one of them would read what some hundred others have, too.
//!
//! With that, aggregates and windows by tags run part by part and group by group: nothing is sent across partitions,
//! and what belongs to a group is forgotten when the next one begins.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    ConstExpr, EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr,
    RangePartitioning, SplitPoint,
};
use tidefall_types::{ColumnKind, TagId, TimeRange};

use crate::view::{TagView, View};

/// How tags and times are ordered.
pub(crate) const ASCENDING: SortOptions = SortOptions { descending: false, nulls_first: false };

/// Sensors that are ordered anew at most: more would take longer than a small query.
const REORDERED_MAX: usize = 16 * 1024;

/// How far from an even cut a part may end, as a share of its size: one part of so many. A core that is done earlier
/// by as much costs less than sending all rows through another partitioning.
const UNEVEN_SHARE: usize = 4;

/// Fewer sensors than these are ordered by their tags in any case.
const SCATTERED_MIN: usize = 4 * 1024;
/// Sensors whose numbers differ by no more are stored near each other.
const NEAR: u32 = 256;
/// One pair of so many neighbours may be stored far from each other.
const FAR_SHARE: usize = 16;
/// A sensor with so many rows is worth its own look.
const FEW_ROWS: usize = 64;

/// Sensors in the order in which their rows are read.
pub(crate) struct Arrangement {
    pub(crate) sensors: Vec<u32>,
    /// The places of the sensors of each partition.
    pub(crate) parts: Vec<Range<usize>>,
    /// What is constant, and how the rows of each partition are ordered.
    pub(crate) equivalence: EquivalenceProperties,
    /// Which rows are in which partition.
    pub(crate) partitioning: Partitioning,
}

/// A wanted tag in which sensors differ.
struct WantedTag<'a> {
    view: TagView<'a>,
    column: Arc<dyn PhysicalExpr>,
}

impl WantedTag<'_> {
    fn ascending(&self) -> PhysicalSortExpr {
        PhysicalSortExpr::new(Arc::clone(&self.column), ASCENDING)
    }
}

/// The wanted tags by which sensors are ordered, the first counts most.
struct Order<'a> {
    tags: Vec<WantedTag<'a>>,
    /// Whether no two sensors have the same values of them all.
    tells_apart: bool,
}

impl Arrangement {
    /// Arranges `sensors`, which are ordered by all their tags, in at most `parts_max` parts. `schema` has the wanted
    /// `columns` of the table.
    pub(crate) fn of(
        view: &View,
        (schema, columns): (&SchemaRef, &[ColumnKind]),
        mut sensors: Vec<u32>,
        parts_max: usize,
    ) -> Result<Self> {
        if is_scattered(view, &sensors) {
            return Self::as_stored(view, (schema, columns), sensors, parts_max);
        }
        let column_of = |kind: ColumnKind| -> Option<Arc<dyn PhysicalExpr>> {
            let at = columns.iter().position(|column| *column == kind)?;
            Some(Arc::new(Column::new(schema.field(at).name(), at)))
        };
        let mut constants = Vec::new();
        let order = Order::of(view, column_of, &mut sensors, &mut constants);
        let (parts, depth) = order.cut(&sensors, parts_max);
        let mut sorts: Vec<PhysicalSortExpr> =
            order.tags.iter().map(WantedTag::ascending).collect();
        if order.tells_apart {
            let time = column_of(ColumnKind::Time);
            sorts.extend(time.map(|time| PhysicalSortExpr::new(time, ASCENDING)));
        }
        let mut equivalence =
            EquivalenceProperties::new_with_orderings(Arc::clone(schema), [sorts]);
        equivalence.add_constants(constants)?;
        let partitioning = order.partitioning(&sensors, &parts, depth)?;
        Ok(Self { sensors, parts, equivalence, partitioning })
    }

    fn as_stored(
        view: &View,
        (schema, columns): (&SchemaRef, &[ColumnKind]),
        mut sensors: Vec<u32>,
        parts_max: usize,
    ) -> Result<Self> {
        let constants = columns.iter().enumerate().filter_map(|(at, column)| match column {
            ColumnKind::Tag(tag) if view.tag(*tag).is_constant(&sensors) => {
                let column = Column::new(schema.field(at).name(), at);
                Some(ConstExpr::from(Arc::new(column) as Arc<dyn PhysicalExpr>))
            }
            _ => None,
        });
        let mut equivalence = EquivalenceProperties::new(Arc::clone(schema));
        equivalence.add_constants(constants.collect::<Vec<_>>())?;
        sensors.sort_unstable();
        let parts = split(sensors.len(), parts_max);
        let partitioning = Partitioning::UnknownPartitioning(parts.len());
        Ok(Self { sensors, parts, equivalence, partitioning })
    }
}

/// Whether sensors have few readings each, and most of those that follow each other by their tags do not where they are stored.
fn is_scattered(view: &View, sensors: &[u32]) -> bool {
    if sensors.len() < SCATTERED_MIN {
        return false;
    }
    let far = sensors.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) > NEAR).count();
    far > sensors.len() / FAR_SHARE
        && view.snapshot().rows_about(sensors.len(), &TimeRange::ALL)
            < FEW_ROWS.saturating_mul(sensors.len())
}

impl<'a> Order<'a> {
    /// Brings `sensors` into the order of the wanted tags, and notes what is the same for all of them.
    fn of(
        view: &'a View,
        column_of: impl Fn(ColumnKind) -> Option<Arc<dyn PhysicalExpr>>,
        sensors: &mut [u32],
        constants: &mut Vec<ConstExpr>,
    ) -> Self {
        let mut tags: Vec<WantedTag<'_>> = Vec::new();
        // The tags that stand before all those that nobody wants.
        let mut in_order = None;
        for tag in (0..view.schema().tags.len()).map(|at| TagId(at as u16)) {
            let (view, column) = (view.tag(tag), column_of(ColumnKind::Tag(tag)));
            match column {
                column if view.is_constant(sensors) => {
                    constants.extend(column.map(ConstExpr::from));
                }
                Some(column) => tags.push(WantedTag { view, column }),
                None => in_order = in_order.or(Some(tags.len())),
            }
        }
        let Some(in_order) = in_order else { return Self { tags, tells_apart: true } };
        if in_order < tags.len() {
            match sensors.len() <= REORDERED_MAX {
                // Stable: the tags before are in order already, and those of the same tags keep theirs.
                true => sensors.sort_by(|one, other| compare(&tags, *one, *other)),
                false => tags.truncate(in_order),
            }
        }
        let tells_apart = sensors.windows(2).all(|pair| differ(&tags, pair[0], pair[1]));
        Self { tags, tells_apart }
    }

    /// Cuts sensors into at most `parts_max` parts. Sensors with the same values of the first so many tags, which are
    /// counted too, are in one part; none where parts would become too unequal.
    fn cut(&self, sensors: &[u32], parts_max: usize) -> (Vec<Range<usize>>, usize) {
        let even = split(sensors.len(), parts_max);
        if even.len() > 1 {
            for depth in 1..=self.tags.len() {
                let tags = &self.tags[..depth];
                let changes_at = |at: usize| differ(tags, sensors[at - 1], sensors[at]);
                if let Some(parts) = cut_near(&even, changes_at) {
                    return (parts, depth);
                }
            }
        }
        (even, 0)
    }

    /// States which values of the first `depth` tags are in which of `parts`.
    fn partitioning(
        &self,
        sensors: &[u32],
        parts: &[Range<usize>],
        depth: usize,
    ) -> Result<Partitioning> {
        let tags = &self.tags[..depth];
        let Some(ordering) = LexOrdering::new(tags.iter().map(WantedTag::ascending)) else {
            return Ok(Partitioning::UnknownPartitioning(parts.len()));
        };
        let first_of = |part: &Range<usize>| {
            let sensor = sensors[part.start];
            SplitPoint::new(tags.iter().map(|tag| tag.view.scalar(sensor)).collect())
        };
        let points = parts.iter().skip(1).map(first_of).collect();
        RangePartitioning::try_new(ordering, points).map(Partitioning::Range)
    }
}

fn compare(tags: &[WantedTag<'_>], one: u32, other: u32) -> Ordering {
    let orders = tags.iter().map(|tag| tag.view.compare(one, other));
    orders.fold(Ordering::Equal, Ordering::then)
}

fn differ(tags: &[WantedTag<'_>], one: u32, other: u32) -> bool {
    tags.iter().any(|tag| tag.view.key(one) != tag.view.key(other))
}

/// Moves the ends of even parts to the nearest places where something changes, if they are near enough.
fn cut_near(
    even: &[Range<usize>],
    changes_at: impl Fn(usize) -> bool,
) -> Option<Vec<Range<usize>>> {
    let mut parts: Vec<Range<usize>> = Vec::with_capacity(even.len());
    for part in even {
        if let Some(before) = parts.last_mut() {
            let far = before.len().min(part.len()) / UNEVEN_SHARE;
            let mut near = (0..=far).flat_map(|off| [part.start - off, part.start + off]);
            before.end = near.find(|at| changes_at(*at))?;
        }
        let start = parts.last().map_or(part.start, |before| before.end);
        parts.push(start..part.end);
    }
    Some(parts)
}

/// Splits `count` sensors into at most `parts_max` parts of about the same size; at least one.
pub(crate) fn split(count: usize, parts_max: usize) -> Vec<Range<usize>> {
    let parts = parts_max.min(count).max(1);
    (0..parts).map(|part| count * part / parts..count * (part + 1) / parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_where_something_changes() {
        let cut = |count, parts_max, changes: &[usize]| {
            cut_near(&split(count, parts_max), |at| changes.contains(&at))
        };
        assert_eq!(cut(10, 2, &[5]), Some(vec![0..5, 5..10]));
        assert_eq!(cut(10, 2, &[6]), Some(vec![0..6, 6..10]));
        assert_eq!(cut(10, 2, &[4, 9]), Some(vec![0..4, 4..10]));
        assert_eq!(cut(10, 2, &[2]), None);
        assert_eq!(cut(10, 2, &[]), None);
        assert_eq!(cut(3, 3, &[1, 2]), Some(vec![0..1, 1..2, 2..3]));
        assert_eq!(cut(40, 4, &[9, 22, 28]), Some(vec![0..9, 9..22, 22..28, 28..40]));
        assert_eq!(cut(40, 4, &[9, 22, 35]), None);
        assert_eq!(cut(7, 1, &[]), Some(split(7, 1)));
    }
}
