//! The deletes of a table: boxes, and the place among the writes before which they hide.

use std::sync::Arc;

use tidefall_ground::manifest::{TableState, Tombstone};
use tidefall_types::{Error, Result, Seq, TimeRange};

use crate::region::{Region, Regions, Side};

/// A delete as readers apply it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// Its place among the writes: it hides what was written before.
    pub seq: Seq,
    /// What it hides.
    pub regions: Regions,
}

impl Delete {
    /// As it is stored.
    pub fn to_stored(&self) -> Tombstone {
        let sides =
            |region: &Region| region.sides().iter().map(|side| (side.first, side.last)).collect();
        let boxes = self.regions.boxes().iter().map(sides).collect();
        Tombstone { seq: self.seq, time: TimeRange::ALL, sensors: None, boxes }
    }

    /// As readers apply it, of a table with so many dimensions.
    ///
    /// # Errors
    /// `Corrupt` when it is not one of such a table.
    pub fn of_stored(tombstone: &Tombstone, dimensions: usize) -> Result<Self> {
        if tombstone.boxes.iter().any(|sides| sides.len() != dimensions) {
            return Err(Error::corrupt("a delete of records has another number of dimensions"));
        }
        let region = |sides: &Vec<(i64, i64)>| {
            Region::new(
                sides.iter().map(|(first, last)| Side::new(*first, *last)).collect::<Vec<_>>(),
            )
        };
        Ok(Self { seq: tombstone.seq, regions: Regions::of(tombstone.boxes.iter().map(region)) })
    }
}

/// All deletes of a table that may hide something, in the order of the writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletes(Vec<Delete>);

impl Deletes {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Delete> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many boxes they have.
    pub fn boxes(&self) -> usize {
        self.0.iter().map(|delete| delete.regions.boxes().len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last of them; the first place among the writes where there is none.
    pub fn last_seq(&self) -> Seq {
        self.0.last().map_or(Seq::default(), |delete| delete.seq)
    }

    /// What those behind a place among the writes hide within a box.
    pub fn hiding(&self, behind: Seq, bounds: &Region) -> Regions {
        let later = &self.0[self.0.partition_point(|delete| delete.seq <= behind)..];
        let boxes = later.iter().flat_map(|delete| delete.regions.boxes());
        Regions::of(boxes.filter(|region| !region.within(bounds).is_empty()).cloned())
    }

    /// Adds one behind all others.
    pub(crate) fn push(&mut self, delete: Delete) {
        debug_assert!(
            self.0.last().is_none_or(|last| last.seq < delete.seq),
            "deletes in their order"
        );
        self.0.push(delete);
    }

    /// Those of which the manifest has come to know so; the log has what was written from `wal_from` on.
    pub(crate) fn following(
        self: &Arc<Self>,
        state: &TableState,
        wal_from: Seq,
    ) -> Result<Arc<Self>> {
        let dimensions = state.schema.dimensions.len();
        let mut all: Vec<Delete> = self
            .iter()
            .filter(|delete| delete.seq >= wal_from || state.has_delete(delete.seq))
            .cloned()
            .collect();
        for tombstone in &state.tombstones {
            if let Err(place) = all.binary_search_by_key(&tombstone.seq, |delete| delete.seq) {
                all.insert(place, Delete::of_stored(tombstone, dimensions)?);
            }
        }
        match all == self.0 {
            true => Ok(Arc::clone(self)),
            false => Ok(Arc::new(Self(all))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletes_hide_what_was_written_before_them() {
        let side = |first, last| Region::new(vec![Side::new(first, last)]);
        let mut deletes = Deletes::default();
        for (seq, region) in [(3, side(0, 9)), (7, side(20, 29)), (9, side(5, 25))] {
            let delete = Delete { seq: Seq(seq), regions: Regions::of([region]) };
            assert_eq!(Delete::of_stored(&delete.to_stored(), 1).unwrap(), delete);
            assert!(Delete::of_stored(&delete.to_stored(), 2).is_err());
            deletes.push(delete);
        }
        let all = Region::all(1);
        assert_eq!(deletes.hiding(Seq(9), &all), Regions::default());
        assert_eq!(deletes.hiding(Seq(3), &all), Regions::of([side(20, 29), side(5, 25)]));
        assert_eq!(deletes.hiding(Seq(0), &side(0, 4)), Regions::of([side(0, 9)]));
        assert_eq!(deletes.last_seq(), Seq(9));
    }
}
