//! The sensors of a question: as a range where they lie side by side, so that a question about all sensors of a table
//! costs the same for a million as for a few.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

/// Sensors, none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sensors {
    /// All sensors with these numbers.
    Range(Range<u32>),
    /// Some sensors.
    List(Vec<u32>),
}

impl From<Vec<u32>> for Sensors {
    fn from(sensors: Vec<u32>) -> Self {
        Self::List(sensors)
    }
}

impl From<Range<u32>> for Sensors {
    fn from(sensors: Range<u32>) -> Self {
        Self::Range(sensors)
    }
}

impl Sensors {
    /// How many they are.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.as_slice().into_iter()
    }

    /// A list of them, which is made for a range.
    pub fn to_list(&self) -> Cow<'_, [u32]> {
        self.as_slice().into_list()
    }

    pub(crate) fn as_slice(&self) -> SensorSlice<'_> {
        match self {
            Self::Range(range) => SensorSlice::Range(range.clone()),
            Self::List(list) => SensorSlice::List(list),
        }
    }
}

/// Some of the sensors of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SensorSlice<'a> {
    Range(Range<u32>),
    List(&'a [u32]),
}

impl<'a> From<&'a [u32]> for SensorSlice<'a> {
    fn from(sensors: &'a [u32]) -> Self {
        Self::List(sensors)
    }
}

impl<'a> SensorSlice<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::List(list) => list.len(),
        }
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = u32> {
        let (range, list) = match self {
            Self::Range(range) => (range, &[][..]),
            Self::List(list) => (0..0, list),
        };
        range.chain(list.iter().copied())
    }

    pub(crate) fn into_list(self) -> Cow<'a, [u32]> {
        match self {
            Self::Range(range) => Cow::Owned(range.collect()),
            Self::List(list) => Cow::Borrowed(list),
        }
    }

    pub(crate) fn is_sorted(&self) -> bool {
        match self {
            Self::Range(_) => true,
            Self::List(list) => list.is_sorted(),
        }
    }

    pub(crate) fn max(&self) -> Option<u32> {
        match self {
            Self::Range(_) => self.last(),
            Self::List(list) => list.iter().max().copied(),
        }
    }

    pub(super) fn first(&self) -> Option<u32> {
        match self {
            Self::Range(range) => range.clone().next(),
            Self::List(list) => list.first().copied(),
        }
    }

    pub(super) fn last(&self) -> Option<u32> {
        match self {
            Self::Range(range) => range.clone().next_back(),
            Self::List(list) => list.last().copied(),
        }
    }

    /// The sensors at some places.
    pub(super) fn at(&self, places: Range<usize>) -> Self {
        match self {
            Self::Range(range) => {
                let place = |at: usize| range.start + at as u32;
                Self::Range(place(places.start)..place(places.end))
            }
            Self::List(list) => Self::List(&list[places]),
        }
    }

    /// The places of those that lie among some, where they ascend.
    pub(super) fn places_within(&self, known: &RangeInclusive<u32>) -> Range<usize> {
        match self {
            Self::Range(range) => {
                let place =
                    |sensor: u32| (sensor.clamp(range.start, range.end) - range.start) as usize;
                let start = place(*known.start());
                let end = known.end().checked_add(1).map_or(range.len(), place);
                start..end.max(start)
            }
            Self::List(list) => {
                let start = list.partition_point(|sensor| sensor < known.start());
                start..start + list[start..].partition_point(|sensor| sensor <= known.end())
            }
        }
    }

    /// Whether all of some are among them, where they ascend.
    pub(super) fn has_all_of(&self, wanted: &RangeInclusive<u32>) -> bool {
        let all = u64::from(*wanted.end()) - u64::from(*wanted.start()) + 1;
        self.places_within(wanted).len() as u64 == all
    }

    /// Whether one of them lies among some.
    pub(super) fn has_one_of(&self, known: &RangeInclusive<u32>) -> bool {
        match self {
            Self::Range(_) => !self.places_within(known).is_empty(),
            Self::List(list) => list.iter().any(|sensor| known.contains(sensor)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_list_of_its_sensors() {
        for range in [0..0, 0..1, 3..9, u32::MAX - 4..u32::MAX] {
            let (of_range, list) =
                (Sensors::from(range.clone()), range.clone().collect::<Vec<_>>());
            let of_list = Sensors::from(list.clone());
            let (one, other) = (of_range.as_slice(), of_list.as_slice());
            assert_eq!(
                (of_range.len(), of_range.to_list()),
                (list.len(), Cow::Borrowed(&list[..]))
            );
            assert!(of_range.iter().eq(of_list.iter()) && one.is_sorted());
            assert_eq!(one.max(), other.max());
            for first in [0, 1, 4, 7, 12, u32::MAX - 3, u32::MAX] {
                for known in [0, 2, 30].map(|more: u32| first..=first.saturating_add(more)) {
                    let places = other.places_within(&known);
                    // Where there are none, it does not matter where.
                    let found = one.places_within(&known);
                    assert!(
                        found == places || (found.is_empty() && places.is_empty()),
                        "{known:?}"
                    );
                    assert_eq!(one.has_one_of(&known), other.has_one_of(&known), "{known:?}");
                    assert_eq!(one.at(places.clone()).into_list(), other.at(places).into_list());
                }
            }
        }
    }
}
