//! The objects of a table at one moment.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, Range, RangeInclusive};
use std::sync::{Arc, Weak};

use tidefall_ground::manifest::series::{Model, ObjectEntry};
use tidefall_ground::obsolete::Watched;
use tidefall_types::{ObjectId, TimeRange};

use crate::segment::Segment;

/// A segment of a table as readers see it.
#[derive(Debug, Clone)]
pub struct LiveObject {
    /// What the manifest says of it.
    pub entry: ObjectEntry,
    /// Its bytes.
    pub segment: Segment,
    /// Since when it is there, or open where nobody knows; not later than when it was opened.
    pub since_ns: i64,
}

impl LiveObject {
    /// Tells for as long as it is read that it is.
    pub fn reader(self: &Arc<Self>) -> Weak<Watched> {
        Arc::downgrade(self) as Weak<Watched>
    }

    /// Its place among others.
    fn place(&self) -> (i64, ObjectId) {
        (self.entry.time.first_ns, self.entry.id)
    }

    /// From its first sensor to its last.
    pub(super) fn sensors(&self) -> RangeInclusive<u32> {
        self.entry.first_sensor..=self.entry.last_sensor
    }

    pub(super) fn shares_sensors_with(&self, other: &Self) -> bool {
        self.entry.first_sensor <= other.entry.last_sensor
            && other.entry.first_sensor <= self.entry.last_sensor
    }
}

/// Objects in the order of their first times. They never change: what comes and goes makes others, so that whoever reads a table
/// shares them with it.
#[derive(Debug, Clone, Default)]
pub struct Objects(Arc<Ordered>);

#[derive(Debug, Default)]
struct Ordered {
    all: Vec<Arc<LiveObject>>,
    /// For each, the last time of all up to it: those before a stretch of time are passed over by that.
    upto_ns: Vec<i64>,
}

impl Objects {
    /// What the manifest names as the objects of a table. Those of them that are here stay, others are opened; those that are
    /// here and that it does not name any more come back beside.
    pub(crate) fn following(
        &self,
        stored: &BTreeMap<ObjectId, ObjectEntry>,
        open: impl Fn(&ObjectEntry) -> Arc<LiveObject>,
    ) -> (Self, Vec<Arc<LiveObject>>) {
        let mut here: HashMap<ObjectId, &Arc<LiveObject>> =
            self.iter().map(|object| (object.entry.id, object)).collect();
        let named = stored.values().map(|entry| match here.get(&entry.id) {
            Some(object) if object.entry == *entry => {
                let stays = Arc::clone(object);
                here.remove(&entry.id);
                stays
            }
            _ => open(entry),
        });
        let following = named.collect();
        (following, here.into_values().cloned().collect())
    }

    /// Whether an object is one of them.
    pub(crate) fn have(&self, object: &LiveObject) -> bool {
        self.binary_search_by_key(&object.place(), |other| other.place()).is_ok()
    }

    /// Those of a model.
    pub(crate) fn of(&self, model: Model) -> Vec<Arc<LiveObject>> {
        self.iter().filter(|object| object.entry.model == model).cloned().collect()
    }

    /// Those that have times within `range`, as far as their first and last times tell.
    pub(crate) fn within(
        &self,
        range: &TimeRange,
    ) -> impl Iterator<Item = &Arc<LiveObject>> + Clone {
        let range = *range;
        let near = &self[self.places_within(&range)];
        near.iter().filter(move |object| object.entry.time.overlaps(&range))
    }

    /// The first time of so many of those that end last up to a time, as far as it counts; the beginning of time when there are no more of them.
    pub(super) fn newest_from(&self, upto_ns: i64, count: usize) -> i64 {
        let within = &self[self.places_within(&TimeRange::new(i64::MIN, upto_ns))];
        if within.len() <= count {
            return i64::MIN;
        }
        let mut times: Vec<TimeRange> = within.iter().map(|object| object.entry.time).collect();
        times.select_nth_unstable_by_key(count - 1, |time| {
            std::cmp::Reverse(time.last_ns.min(upto_ns))
        });
        times[..count].iter().map(|time| time.first_ns).min().unwrap_or(i64::MIN)
    }

    /// Between these places are all that have times within `range`, and few others.
    pub(super) fn places_within(&self, range: &TimeRange) -> Range<usize> {
        let start = self.0.upto_ns.partition_point(|upto_ns| *upto_ns < range.first_ns);
        let end = self.partition_point(|object| object.entry.time.first_ns <= range.last_ns);
        start.min(end)..end
    }
}

impl FromIterator<Arc<LiveObject>> for Objects {
    fn from_iter<T: IntoIterator<Item = Arc<LiveObject>>>(objects: T) -> Self {
        let mut all: Vec<Arc<LiveObject>> = objects.into_iter().collect();
        all.sort_by_key(|object| object.place());
        let upto = |upto_ns: &mut i64, object: &Arc<LiveObject>| {
            *upto_ns = object.entry.time.last_ns.max(*upto_ns);
            Some(*upto_ns)
        };
        let upto_ns = all.iter().scan(i64::MIN, upto).collect();
        Self(Arc::new(Ordered { all, upto_ns }))
    }
}

impl Deref for Objects {
    type Target = [Arc<LiveObject>];

    fn deref(&self) -> &Self::Target {
        &self.0.all
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tidefall_simulation::MemDisk;
    use tidefall_store::{LocalIo, ObjectIo};
    use tidefall_types::Seq;

    use super::*;
    use crate::segment::SegmentCaches;

    fn entry(id: u64, time: TimeRange) -> ObjectEntry {
        ObjectEntry {
            id: ObjectId(id),
            writer: 0,
            since_ns: 0,
            model: Model::Kv,
            last_seq: Seq(id),
            last_delete: Seq::default(),
            is_distinct: true,
            time,
            first_sensor: 0,
            last_sensor: 0,
            rows: 1,
            bytes: 1,
        }
    }

    /// Held against a list that is looked through, whatever comes, goes and is asked for.
    #[test]
    fn objects_are_those_that_are_named_and_are_found_by_time() {
        let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open_read_only(Arc::new(MemDisk::new())));
        let caches = Arc::new(SegmentCaches::new(0));
        let open = |entry: &ObjectEntry| {
            let (io, caches) = (Arc::clone(&io), Arc::clone(&caches));
            let segment = Segment::new(io, caches, entry.id, entry.name().into(), entry.bytes);
            Arc::new(LiveObject { entry: entry.clone(), segment, since_ns: 0 })
        };
        let mut rng = SmallRng::seed_from_u64(5);
        let (mut objects, mut stored) = (Objects::default(), BTreeMap::new());
        for id in 0..2_000 {
            let first_ns = rng.random_range(-100..100);
            let time =
                TimeRange::new(first_ns, first_ns + rng.random_range(0..20) * (id % 2) as i64);
            stored.insert(ObjectId(id), entry(id, time));
            let gone: Vec<ObjectId> =
                stored.keys().filter(|_| rng.random_bool(0.02)).copied().collect();
            stored.retain(|id, _| !gone.contains(id));
            let before = objects.clone();
            let (after, let_go) = before.following(&stored, open);
            assert!(
                after.iter().map(|object| &object.entry).is_sorted_by_key(|it| it.time.first_ns)
            );
            let mut ids: Vec<ObjectId> = after.iter().map(|object| object.entry.id).collect();
            ids.sort_unstable();
            assert!(ids.iter().eq(stored.keys()));
            for object in before.iter() {
                let is_let_go = let_go.iter().any(|other| Arc::ptr_eq(other, object));
                let stays = after.iter().any(|other| Arc::ptr_eq(other, object));
                assert!(is_let_go != stays, "{:?}", object.entry.id);
                assert_eq!(after.have(object), stays, "{:?}", object.entry.id);
            }
            objects = after;
            let first_ns = rng.random_range(-130..130);
            let range = TimeRange::new(first_ns, first_ns + rng.random_range(-1..30));
            let overlaps = |object: &&Arc<LiveObject>| object.entry.time.overlaps(&range);
            let expected = objects.iter().filter(overlaps);
            assert!(objects.within(&range).map(Arc::as_ptr).eq(expected.map(Arc::as_ptr)));
        }
        // Whatever is newer than the newest ones, as many as are asked for begin at that time or later.
        for count in [1, 2, 7, objects.len() - 1, objects.len()] {
            let upto_ns = rng.random_range(-90..130);
            let from_ns = objects.newest_from(upto_ns, count);
            let begun = objects.iter().filter(|object| object.entry.time.first_ns <= upto_ns);
            let from_then = begun.clone().filter(|it| it.entry.time.first_ns >= from_ns).count();
            assert!(from_then >= count.min(begun.clone().count()), "{count} up to {upto_ns}");
            let newer = begun.filter(|it| it.entry.time.last_ns >= upto_ns).count();
            assert!(newer < count || from_ns <= upto_ns);
        }
        // One of this number that is not the same is another one.
        let id = *stored.keys().next().unwrap();
        stored.get_mut(&id).unwrap().rows = 2;
        let (after, let_go) = objects.following(&stored, open);
        assert_eq!(let_go.iter().map(|object| object.entry.id).collect::<Vec<_>>(), [id]);
        assert_eq!(after.len(), objects.len());
    }
}
