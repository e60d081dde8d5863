//! Boxes: for each dimension the ordinals from one to another.

/// A stretch of ordinals; both ends are in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// The least in it.
    pub first: i64,
    /// The greatest in it.
    pub last: i64,
}

impl Side {
    /// All ordinals.
    pub const ALL: Self = Self { first: i64::MIN, last: i64::MAX };

    /// Those from `first` to `last`.
    pub const fn new(first: i64, last: i64) -> Self {
        Self { first, last }
    }

    /// Whether no ordinal is in it.
    pub const fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// Whether it leaves any ordinal out.
    pub fn is_bound(&self) -> bool {
        *self != Self::ALL
    }

    /// Whether an ordinal is in it.
    pub const fn contains(&self, ordinal: i64) -> bool {
        self.first <= ordinal && ordinal <= self.last
    }

    /// Those that are in both.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        Self { first: self.first.max(other.first), last: self.last.min(other.last) }
    }

    /// Whether all of another one is in it.
    fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// A box: a side for each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    sides: Box<[Side]>,
}

impl Region {
    /// One of these sides, in the order of the dimensions.
    pub fn new(sides: impl Into<Box<[Side]>>) -> Self {
        Self { sides: sides.into() }
    }

    /// All that there is in so many dimensions.
    pub fn all(dimensions: usize) -> Self {
        Self::new(vec![Side::ALL; dimensions])
    }

    /// Its sides.
    pub fn sides(&self) -> &[Side] {
        &self.sides
    }

    /// The dimensions in which it leaves something out, with the sides.
    pub fn bounds(&self) -> impl Iterator<Item = (usize, Side)> + '_ {
        let sides = self.sides.iter().copied().enumerate();
        sides.filter(|(_, side)| side.is_bound())
    }

    /// Whether nothing can be in it.
    pub fn is_empty(&self) -> bool {
        self.sides.iter().any(Side::is_empty)
    }

    /// Whether a point is in it.
    pub fn contains(&self, point: &[i64]) -> bool {
        self.sides.iter().zip(point).all(|(side, ordinal)| side.contains(*ordinal))
    }

    /// Whether all of another box is in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.sides.iter().zip(&other.sides).all(|(side, of_other)| side.covers(of_other))
    }

    /// What it has in common with another box.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        Self::new(
            self.sides
                .iter()
                .zip(&other.sides)
                .map(|(side, of_other)| side.within(of_other))
                .collect::<Vec<_>>(),
        )
    }
}

/// A union of boxes: what is in any of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Regions {
    boxes: Vec<Region>,
}

impl Regions {
    /// The union of some boxes. Those that add nothing to a single other one are left out.
    pub fn of(boxes: impl IntoIterator<Item = Region>) -> Self {
        let mut kept: Vec<Region> = Vec::new();
        for region in boxes.into_iter().filter(|region| !region.is_empty()) {
            if kept.iter().any(|other| other.covers(&region)) {
                continue;
            }
            kept.retain(|other| !region.covers(other));
            kept.push(region);
        }
        Self { boxes: kept }
    }

    /// All that there is in so many dimensions.
    pub fn all(dimensions: usize) -> Self {
        Self { boxes: vec![Region::all(dimensions)] }
    }

    /// Its boxes, none of which is empty.
    pub fn boxes(&self) -> &[Region] {
        &self.boxes
    }

    /// Whether nothing can be in it.
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// Whether a point is in it.
    pub fn contains(&self, point: &[i64]) -> bool {
        self.boxes.iter().any(|region| region.contains(point))
    }

    /// Whether any of its boxes reaches into another one.
    pub fn reaches(&self, region: &Region) -> bool {
        self.boxes.iter().any(|own| !own.within(region).is_empty())
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn any_region(rng: &mut SmallRng) -> Region {
        let side = |rng: &mut SmallRng| match rng.random_range(0..4) {
            0 => Side::ALL,
            1 => Side::new(i64::MIN, rng.random_range(0..5)),
            _ => Side::new(rng.random_range(0..5), rng.random_range(0..5)),
        };
        Region::new(vec![side(rng), side(rng)])
    }

    #[test]
    fn a_union_has_what_any_of_its_boxes_has() {
        let mut rng = SmallRng::seed_from_u64(1);
        let points = || (0..6).flat_map(|x| (0..6).map(move |y| [x, y]));
        for _ in 0..2000 {
            let boxes: Vec<Region> =
                (0..rng.random_range(0..5)).map(|_| any_region(&mut rng)).collect();
            let union = Regions::of(boxes.clone());
            let bound = any_region(&mut rng);
            let reached = union.reaches(&bound);
            for point in points() {
                let expected = boxes.iter().any(|region| region.contains(&point));
                assert_eq!(union.contains(&point), expected, "{boxes:?} {point:?}");
                assert!(reached || !expected || !bound.contains(&point), "{boxes:?} {bound:?}");
            }
            assert!(!union.boxes().iter().any(Region::is_empty));
            assert!(union.boxes().len() <= boxes.len());
        }
    }
}
