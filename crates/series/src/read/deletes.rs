//! The deletes of a table, found by the times that they hide.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidefall_ground::manifest::series::ObjectEntry;
use tidefall_ground::manifest::{TableState, Tombstone};
use tidefall_types::{Error, Result, Seq, TimeRange};

/// A delete as readers apply it.
#[derive(Debug, Clone)]
pub struct LiveTombstone {
    /// Its place among the writes.
    pub seq: Seq,
    /// The times that it hides.
    pub time: TimeRange,
    /// All sensors when absent.
    pub sensors: Option<Arc<RoaringBitmap>>,
}

impl LiveTombstone {
    /// As it is stored.
    ///
    /// # Errors
    /// None that is known.
    pub fn to_stored(&self) -> Result<Tombstone> {
        let sensors = match &self.sensors {
            None => None,
            Some(sensors) => {
                let mut bytes = Vec::with_capacity(sensors.serialized_size());
                sensors
                    .serialize_into(&mut bytes)
                    .map_err(|error| Error::io("a bitmap", &error))?;
                Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
            }
        };
        Ok(Tombstone { seq: self.seq, time: self.time, sensors, boxes: Vec::new() })
    }

    /// As readers apply it.
    ///
    /// # Errors
    /// `Corrupt` when its sensors are damaged.
    pub fn of_stored(tombstone: &Tombstone) -> Result<Self> {
        let damaged = || Error::corrupt("the sensors of a delete are damaged");
        let sensors = match &tombstone.sensors {
            None => None,
            Some(hex) => {
                let bytes = (0..hex.len() / 2)
                    .map(|i| hex.get(2 * i..2 * i + 2).and_then(|d| u8::from_str_radix(d, 16).ok()))
                    .collect::<Option<Vec<u8>>>()
                    .ok_or_else(damaged)?;
                let bitmap = RoaringBitmap::deserialize_from(&bytes[..]).map_err(|_| damaged())?;
                Some(Arc::new(bitmap))
            }
        };
        Ok(Self { seq: tombstone.seq, time: tombstone.time, sensors })
    }

    pub(crate) fn hides(&self, sensor: u32) -> bool {
        self.sensors.as_ref().is_none_or(|sensors| sensors.contains(sensor))
    }

    fn hides_one_of(&self, range: RangeInclusive<u32>) -> bool {
        self.sensors.as_ref().is_none_or(|sensors| sensors.range_cardinality(range) > 0)
    }

    /// Whether it may hide rows of an object.
    pub(crate) fn may_hide_in(&self, entry: &ObjectEntry) -> bool {
        self.seq > entry.deletes_upto()
            && self.time.overlaps(&entry.time)
            && self.hides_one_of(entry.first_sensor..=entry.last_sensor)
    }
}

/// Deletes in the order of the first times that they hide, so that those within a stretch of time are found without
/// a look at all others: a query asks for every chunk that it reads.
#[derive(Debug, Clone, Default)]
pub struct Deletes {
    all: Vec<LiveTombstone>,
    /// For each, the last time that it or one before it hides.
    last_ns: Vec<i64>,
}

impl Deletes {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveTombstone> {
        self.all.iter()
    }

    /// The place of the latest among the writes.
    pub(crate) fn last_seq(&self) -> Seq {
        self.all.iter().map(|delete| delete.seq).max().unwrap_or_default()
    }

    /// Those that hide some time of a range, in no order.
    pub(crate) fn within(&self, range: TimeRange) -> impl Iterator<Item = &LiveTombstone> {
        let TimeRange { first_ns, last_ns } = range;
        let end = self.all.partition_point(|delete| delete.time.first_ns <= last_ns);
        let backwards = self.all[..end].iter().zip(&self.last_ns[..end]).rev();
        backwards
            .take_while(move |(_, latest)| **latest >= first_ns)
            .map(|(delete, _)| delete)
            .filter(move |delete| delete.time.last_ns >= first_ns)
    }

    pub(crate) fn insert(&mut self, delete: LiveTombstone) {
        let first_ns = delete.time.first_ns;
        let place = self.all.partition_point(|other| other.time.first_ns <= first_ns);
        self.all.insert(place, delete);
        self.note_last_times(place);
    }

    /// Those that the manifest has of a table, and those of these that only the log has, which begins at `wal_from`: a delete is forgotten
    /// when neither has it.
    pub(super) fn following(
        self: &Arc<Self>,
        stored: &TableState,
        wal_from: Seq,
    ) -> Result<Arc<Self>> {
        let stays =
            |delete: &&LiveTombstone| delete.seq >= wal_from || stored.has_delete(delete.seq);
        let here: HashSet<Seq> = self.iter().map(|delete| delete.seq).collect();
        let came = stored.tombstones.iter().filter(|stored| !here.contains(&stored.seq));
        let came: Vec<LiveTombstone> = came.map(LiveTombstone::of_stored).collect::<Result<_>>()?;
        if came.is_empty() && self.iter().all(|delete| stays(&delete)) {
            return Ok(Arc::clone(self));
        }
        Ok(Arc::new(self.iter().filter(stays).cloned().chain(came).collect()))
    }

    fn note_last_times(&mut self, from: usize) {
        self.last_ns.truncate(from);
        let mut latest = self.last_ns.last().copied().unwrap_or(i64::MIN);
        self.last_ns.extend(self.all[from..].iter().map(|delete| {
            latest = latest.max(delete.time.last_ns);
            latest
        }));
    }
}

impl FromIterator<LiveTombstone> for Deletes {
    fn from_iter<I: IntoIterator<Item = LiveTombstone>>(deletes: I) -> Self {
        let mut all: Vec<LiveTombstone> = deletes.into_iter().collect();
        all.sort_by_key(|delete| delete.time.first_ns);
        let mut deletes = Self { all, last_ns: Vec::new() };
        deletes.note_last_times(0);
        deletes
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use tidefall_ground::manifest::OfKind;
    use tidefall_ground::manifest::series::Stored;
    use tidefall_types::{TableId, TableSchema};

    use super::*;

    fn some_range(rng: &mut StdRng) -> TimeRange {
        let first_ns = match rng.random_range(0..20) {
            0 => i64::MIN,
            _ => rng.random_range(-500..500),
        };
        let last_ns = match rng.random_range(0..20) {
            0 => i64::MAX,
            1 => first_ns.saturating_add(400),
            _ => first_ns.saturating_add(rng.random_range(0..20)),
        };
        TimeRange::new(first_ns, last_ns)
    }

    /// What the manifest says of a table with deletes, and from where on the log has them.
    fn stored() -> (TableState, Seq) {
        let stored = TableState {
            schema: TableSchema::new(TableId(0), "plant", "time"),
            of_kind: OfKind::Series(Stored::default()),
            tombstones: Vec::new(),
            flushed: Vec::new(),
        };
        (stored, Seq(1))
    }

    /// Held against a look at each delete, while the log has them, the manifest gets them, the log is cut, and they are forgotten.
    #[test]
    fn those_within_a_range_are_found() {
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..200 {
            let mut model: Vec<LiveTombstone> = Vec::new();
            let mut deletes: Arc<Deletes> = Arc::default();
            let (mut stored, mut wal_from) = stored();
            for seq in 1..rng.random_range(2..80) {
                let time = some_range(&mut rng);
                let delete = LiveTombstone { seq: Seq(seq), time, sensors: None };
                model.push(delete.clone());
                Arc::make_mut(&mut deletes).insert(delete);
                if rng.random_range(0..5) == 0 {
                    let all = model.iter().map(|delete| delete.to_stored().unwrap());
                    stored.tombstones = all.collect();
                    wal_from = Seq(rng.random_range(wal_from.0..=seq + 1));
                }
                if rng.random_range(0..5) == 0 {
                    let gone = Seq(rng.random_range(0..wal_from.0));
                    stored.tombstones.retain(|other| other.seq != gone);
                    model.retain(|other| other.seq != gone);
                }
                if rng.random_range(0..10) == 0 {
                    // As when it is opened.
                    deletes = Arc::<Deletes>::default().following(&stored, Seq(0)).unwrap();
                    let logged = model.iter().filter(|delete| !stored.has_delete(delete.seq));
                    let open = Arc::make_mut(&mut deletes);
                    logged.for_each(|delete| open.insert(delete.clone()));
                }
                let before = Arc::clone(&deletes);
                deletes = before.following(&stored, wal_from).unwrap();
                assert_eq!(Arc::ptr_eq(&deletes, &before), before.len() == model.len());
                let asked = some_range(&mut rng);
                let mut found: Vec<Seq> = deletes.within(asked).map(|other| other.seq).collect();
                found.sort_unstable();
                let expected: Vec<Seq> = model
                    .iter()
                    .filter(|other| other.time.overlaps(&asked))
                    .map(|other| other.seq)
                    .collect();
                assert_eq!(found, expected, "{asked} of {model:?}");
                let last_seq = model.iter().map(|other| other.seq).max().unwrap_or_default();
                assert_eq!((deletes.len(), deletes.last_seq()), (model.len(), last_seq));
            }
        }
    }
}
