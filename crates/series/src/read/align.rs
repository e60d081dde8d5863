//! Columns with different times, laid on the rows of all of them.

use tidefall_codec::PageValue;
use tidefall_types::Result;

use super::frame::{Frame, memory_for};

impl<T: PageValue> Frame<T> {
    /// Lays columns side by side, each of them given by ascending times and a value for each. Of these values
    /// `missing` stand for none.
    ///
    /// # Errors
    /// `Limit` when the frame would be larger than the memory of the machine.
    pub fn side_by_side(columns: &[(&[i64], &[T])], missing: usize) -> Result<Self> {
        let lists: Vec<&[i64]> = columns.iter().map(|(times, _)| *times).collect();
        let union = union_of_times(&lists);
        let rows = union.len();
        let (mut aligned, count) = memory_for(rows, columns.len())?;
        aligned.resize(count, T::NULL);
        for (out, (times, values)) in aligned.chunks_mut(rows.max(1)).zip(columns) {
            if times.len() == rows {
                out.copy_from_slice(values);
                continue;
            }
            let mut given = times.iter().zip(*values).peekable();
            for (time, place) in union.iter().zip(out) {
                if let Some((_, value)) = given.next_if(|(given, _)| *given == time) {
                    *place = *value;
                }
            }
        }
        let given: usize = lists.iter().map(|times| times.len()).sum();
        let missing = missing + rows * columns.len() - given;
        Ok(Self { time: union.into(), values: aligned, missing })
    }
}

/// All times of ascending lists, ascending, each once. Takes memory for about three times as many.
pub fn union_of_times(lists: &[&[i64]]) -> Vec<i64> {
    let mut all: Vec<i64> = Vec::new();
    // How many of `all` are in order; those behind wait for a merge that is worth it.
    let mut settled = 0;
    let mut last: &[i64] = &[];
    for &list in lists {
        // Most sensors have the times of the one before.
        if list == last || list == &all[..settled] {
            continue;
        }
        all.extend_from_slice(list);
        last = list;
        if all.len() >= 2 * settled {
            settle(&mut all);
            settled = all.len();
        }
    }
    settle(&mut all);
    all.shrink_to_fit();
    all
}

fn settle(times: &mut Vec<i64>) {
    // Stable sorting makes use of lists that are in order.
    times.sort();
    times.dedup();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::union_of_times;

    #[test]
    fn the_union_holds_every_time_once_and_no_more_memory() {
        let mut rng = SmallRng::seed_from_u64(3);
        for round in 0..200 {
            let kinds: Vec<Vec<i64>> = (0..rng.random_range(1..4))
                .map(|_| {
                    let times = (0..rng.random_range(0..50)).map(|_| rng.random_range(-60..60));
                    BTreeSet::from_iter(times).into_iter().collect()
                })
                .collect();
            let lists: Vec<&[i64]> = (0..rng.random_range(0..40))
                .map(|_| &kinds[rng.random_range(0..kinds.len())][..])
                .collect();
            let expected: BTreeSet<i64> = lists.iter().copied().flatten().copied().collect();
            let union = union_of_times(&lists);
            assert!(union.iter().eq(&expected), "round {round}");
            assert_eq!(union.capacity(), union.len(), "round {round}");
        }
    }
}
