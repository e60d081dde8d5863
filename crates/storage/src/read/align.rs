//! Columns with different times, laid on the rows of all of them.

use tidefall_codec::PageValue;
use tidefall_types::Result;

use super::frame::{Frame, check_size};

impl<T: PageValue> Frame<T> {
    /// Lays columns side by side, each of them given by ascending times and a value for each. Of these values
    /// `missing` stand for none.
    ///
    /// # Errors
    /// When the frame would be larger than any machine's memory.
    pub fn side_by_side(columns: &[(&[i64], &[T])], missing: usize) -> Result<Self> {
        let lists: Vec<&[i64]> = columns.iter().map(|(times, _)| *times).collect();
        let union = union_of_times(&lists);
        let rows = union.len();
        let mut aligned = vec![T::NULL; check_size::<T>(rows, columns.len())?];
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

/// All times of ascending lists, ascending, each once.
pub fn union_of_times(lists: &[&[i64]]) -> Vec<i64> {
    let mut lists = lists.iter().filter(|list| !list.is_empty());
    let Some(first) = lists.next() else { return Vec::new() };
    let mut all = first.to_vec();
    // Lists that follow each other stay in order, which the sort makes use of.
    lists.filter(|list| *list != first).for_each(|list| all.extend_from_slice(list));
    if all.len() > first.len() {
        all.sort();
        all.dedup();
    }
    all
}
