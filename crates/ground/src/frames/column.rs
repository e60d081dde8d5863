//! Columns of metrics. Sensors with few readings have most of them alike, such as the number of rows, and then these take the
//! memory of one.

use std::ops::{Index, Range};

/// Values, of which only one is kept while all are the same.
#[derive(Debug, Clone, Default)]
pub struct Column<T> {
    values: Vec<T>,
    len: usize,
}

impl<T: Copy + PartialEq> Column<T> {
    /// The same value so many times.
    pub fn constant(value: T, len: usize) -> Self {
        Self { values: vec![value; len.min(1)], len }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many values are kept.
    pub fn kept(&self) -> usize {
        self.values.len()
    }

    /// Adds a value.
    pub fn push(&mut self, value: T) {
        self.push_times(value, 1);
    }

    /// Adds the same value so many times.
    pub fn push_times(&mut self, value: T, times: usize) {
        if times == 0 {
            return;
        }
        let is_same = self.is_constant() && self.values.first().is_none_or(|first| *first == value);
        if is_same {
            self.values.resize(1, value);
        } else {
            self.spread_out();
            self.values.resize(self.len + times, value);
        }
        self.len += times;
    }

    /// Adds some values of another column.
    pub fn extend_from(&mut self, other: &Self, range: Range<usize>) {
        if other.is_constant() {
            if let Some(value) = other.values.first() {
                self.push_times(*value, range.len());
            }
            return;
        }
        let values = &other.values[range];
        match values {
            [] => {}
            // What they have in common may be what all of these have.
            [first, rest @ ..] if rest.iter().all(|value| value == first) => {
                self.push_times(*first, values.len());
            }
            _ => {
                self.spread_out();
                self.values.extend_from_slice(values);
                self.len += values.len();
            }
        }
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len).map(|at| self[at])
    }

    /// The values that differ, if it knows of some.
    pub fn distinct(&self) -> &[T] {
        &self.values
    }

    /// All values, laid out.
    pub fn into_vec(mut self) -> Vec<T> {
        self.spread_out();
        self.values
    }

    fn is_constant(&self) -> bool {
        self.values.len() <= 1
    }

    fn spread_out(&mut self) {
        if let [value] = self.values[..] {
            self.values.resize(self.len, value);
        }
    }
}

impl<T: Copy + PartialEq> From<Vec<T>> for Column<T> {
    fn from(values: Vec<T>) -> Self {
        let len = values.len();
        match values.first() {
            Some(first) if values.iter().all(|value| value == first) => Self::constant(*first, len),
            _ => Self { values, len },
        }
    }
}

impl<T> Index<usize> for Column<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        debug_assert!(at < self.len, "there are {} values, not one at {at}", self.len);
        &self.values[if self.values.len() == 1 { 0 } else { at }]
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn columns_have_the_values_that_were_added() {
        let mut rng = SmallRng::seed_from_u64(4);
        for round in 0..400 {
            let (mut column, mut model) = (Column::default(), Vec::new());
            let kinds = 1 + round % 3;
            for _ in 0..rng.random_range(0..8) {
                let value = rng.random_range(0..kinds);
                match rng.random_range(0..4) {
                    0 => {
                        let times = rng.random_range(0..4);
                        column.push_times(value, times);
                        model.resize(model.len() + times, value);
                    }
                    1 => {
                        let more: Vec<_> = (0..rng.random_range(0..4))
                            .map(|_| rng.random_range(0..kinds))
                            .collect();
                        let start = rng.random_range(0..=more.len());
                        let range = start..rng.random_range(start..=more.len());
                        column.extend_from(&more.clone().into(), range.clone());
                        model.extend_from_slice(&more[range]);
                    }
                    2 => column = Column::from(model.clone()),
                    _ => {
                        column.push(value);
                        model.push(value);
                    }
                }
                assert_eq!(
                    (column.len(), column.iter().collect::<Vec<_>>()),
                    (model.len(), model.clone())
                );
                let are_same = model.windows(2).all(|pair| pair[0] == pair[1]);
                let kept = if are_same { model.len().min(1) } else { model.len() };
                assert_eq!(column.kept(), kept, "{model:?}");
            }
            assert_eq!(column.into_vec(), model);
        }
    }
}
