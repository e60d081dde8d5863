//! Which places share no reading with others, so that each may be answered for by itself.
//!
//! Places that replace nothing never share one with each other (docs/order.md). Late ones may share some with any. Whether one does so with
//! a place that replaces nothing is looked up once, sensor by sensor, and remembered for as long as there are both.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tidefall_types::{Result, TimeRange};

use super::parts::{LiveObject, Sources};
use crate::kv::{Apart, PlaceId, Run};
use crate::parallel::spread;

/// Places by whether they share readings.
#[derive(Debug, Default)]
pub(super) struct Divided {
    /// Places that replace nothing, and that nothing else shares a reading with.
    pub(super) distinct: Sources,
    /// Late objects of which the same is true, one by one: they reach over the times of others.
    pub(super) late: Vec<Sources>,
    /// All others.
    pub(super) others: Sources,
}

impl Divided {
    /// Those of its parts that are not empty.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Sources> {
        let parts = [&self.distinct, &self.others].into_iter().chain(&self.late);
        parts.filter(|part| !part.is_empty())
    }
}

/// A place with readings.
#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    Run(&'a Arc<Run>),
    Object(&'a Arc<LiveObject>),
}

impl<'a> Place<'a> {
    fn id(self) -> PlaceId {
        match self {
            Self::Run(run) => PlaceId::Run(run.id),
            Self::Object(object) => PlaceId::Object(object.entry.id),
        }
    }

    fn is_late(self) -> bool {
        match self {
            Self::Run(run) => !run.is_distinct,
            Self::Object(object) => !object.entry.is_distinct,
        }
    }

    fn time(self) -> TimeRange {
        match self {
            Self::Run(run) => run.range,
            Self::Object(object) => object.entry.time,
        }
    }

    fn sensors(self) -> RangeInclusive<u32> {
        match self {
            Self::Run(run) => run.sensors.clone(),
            Self::Object(object) => object.sensors(),
        }
    }

    fn apart(self) -> &'a Apart {
        match self {
            Self::Run(run) => &run.apart,
            Self::Object(object) => &object.apart,
        }
    }

    /// Whether both may have readings of one sensor and one time within `range`, as far as their first and last ones tell.
    fn may_share(self, other: Self, range: &TimeRange) -> bool {
        let (sensors, others) = (self.sensors(), other.sensors());
        self.time().intersect(range).overlaps(&other.time())
            && sensors.start() <= others.end()
            && others.start() <= sensors.end()
    }

    fn alone(self) -> Sources {
        let mut sources = Sources::default();
        self.put_into(&mut sources);
        sources
    }

    fn put_into(self, sources: &mut Sources) {
        match self {
            Self::Run(run) => sources.runs.push(Arc::clone(run)),
            Self::Object(object) => sources.objects.push(Arc::clone(object)),
        }
    }

    /// Whether a late place shares no reading with another one, as far as both can be read.
    fn is_apart_from(self, other: Self) -> bool {
        let time = self.time().intersect(&other.time());
        let shares = self.alone().shares_readings(&other.alone(), &other.sensors(), &time);
        // Those who want what cannot be read will be told.
        shares.inspect(|shares| self.apart().note(other.id(), !shares)).is_ok_and(|shares| !shares)
    }
}

/// Pairs of places that are held against each other at most. Where there are more, all are read together.
const PAIRS_MAX: usize = 1 << 16;

impl Sources {
    /// Divides all that has rows within `range`. With `threads`, late places are looked at that nobody has looked at yet; else
    /// they count as places that share readings.
    pub(super) fn divided(&self, range: &TimeRange, threads: Option<usize>) -> Result<Divided> {
        let objects = self.objects.iter().map(Place::Object);
        let places = objects.chain(self.runs.iter().map(Place::Run));
        let places: Vec<Place<'_>> = places.filter(|place| place.time().overlaps(range)).collect();
        let (late, distinct): (Vec<usize>, Vec<usize>) =
            (0..places.len()).partition(|at| places[*at].is_late());
        if late.len().saturating_mul(places.len()) > PAIRS_MAX {
            let mut divided = Divided { others: self.without_places(), ..Divided::default() };
            places.into_iter().for_each(|place| place.put_into(&mut divided.others));
            return Ok(divided);
        }
        let mut shares = vec![false; places.len()];
        let mut unknown = Vec::new();
        for (number, &at) in late.iter().enumerate() {
            let place = places[at];
            for &other in &late[number + 1..] {
                if place.may_share(places[other], range) {
                    (shares[at], shares[other]) = (true, true);
                }
            }
            for &other in &distinct {
                if !place.may_share(places[other], range) {
                    continue;
                }
                match place.apart().is_apart(places[other].id()) {
                    Some(true) => {}
                    Some(false) => (shares[at], shares[other]) = (true, true),
                    None => unknown.push((at, other)),
                }
            }
        }
        let look = |(at, other): (usize, usize), _: &mut ()| {
            Ok((at, other, places[at].is_apart_from(places[other])))
        };
        let seen = match threads {
            Some(threads) => spread(threads, unknown, look)?,
            None => unknown.into_iter().map(|(at, other)| (at, other, false)).collect(),
        };
        for (at, other, is_apart) in seen {
            shares[at] |= !is_apart;
            shares[other] |= !is_apart;
        }
        let mut divided = Divided {
            distinct: self.without_places(),
            late: Vec::new(),
            others: self.without_places(),
        };
        for (place, shares) in places.into_iter().zip(shares) {
            match place {
                // A late run may have a reading twice.
                Place::Run(run) if !run.is_distinct => place.put_into(&mut divided.others),
                _ if shares => place.put_into(&mut divided.others),
                _ if !place.is_late() => place.put_into(&mut divided.distinct),
                _ => {
                    let mut alone = self.without_places();
                    place.put_into(&mut alone);
                    divided.late.push(alone);
                }
            }
        }
        Ok(divided)
    }

    fn without_places(&self) -> Self {
        Self { deletes: Arc::clone(&self.deletes), ..Self::default() }
    }

    /// Its objects one by one, without its runs.
    pub(super) fn each_object(&self) -> impl Iterator<Item = Self> {
        self.objects
            .iter()
            .map(|object| Self { objects: vec![Arc::clone(object)], ..self.without_places() })
    }

    /// Its runs without its objects.
    pub(super) fn only_runs(&self) -> Self {
        Self { objects: Vec::new(), ..self.clone() }
    }
}
