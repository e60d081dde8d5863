//! The times of a page. Most sensors report at a fixed step, and then times take no bytes.

use std::ops::Range;

use tidefall_types::{Error, Result};

/// How the times of one sensor's rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimePage {
    /// Row `i` is at `start_ns + i * step_ns`.
    Regular {
        /// The time of the first row, in nanoseconds since 1970 UTC.
        start_ns: i64,
        /// The distance between rows; 0 when there are fewer than two.
        step_ns: i64,
        /// The number of rows.
        rows: usize,
    },
    /// The times are a page of 64-bit integers.
    Irregular,
}

impl TimePage {
    /// The form that `times` take.
    pub fn of(times: &[i64]) -> Self {
        match regular_step(times) {
            Some(step_ns) => {
                let start_ns = times.first().copied().unwrap_or(0);
                Self::Regular { start_ns, step_ns, rows: times.len() }
            }
            None => Self::Irregular,
        }
    }

    /// Stores the times of `rows` into `out`, which has one place for each.
    ///
    /// # Errors
    /// `Invalid` when the times are not regular, `rows` reaches beyond the last row, or `out` has
    /// another length.
    pub fn fill(&self, rows: Range<usize>, out: &mut [i64]) -> Result<()> {
        match *self {
            Self::Regular { start_ns, step_ns, rows: count }
                if rows.end <= count && rows.len() == out.len() =>
            {
                let first = start_ns.wrapping_add(step_ns.wrapping_mul(rows.start as i64));
                for (index, time) in out.iter_mut().enumerate() {
                    *time = first.wrapping_add(step_ns.wrapping_mul(index as i64));
                }
                Ok(())
            }
            _ => Err(Error::invalid(format!(
                "times of rows {rows:?} into {} places of {self:?}",
                out.len()
            ))),
        }
    }
}

/// The step of ascending, evenly spaced times; 0 for fewer than two, nothing if they are uneven, equal or
/// descending.
pub fn regular_step(times: &[i64]) -> Option<i64> {
    let [first, second, ..] = times else { return Some(0) };
    let step = second.checked_sub(*first).filter(|&step| step > 0)?;
    // A difference that wraps around makes the later time the smaller one.
    let even =
        times.windows(2).all(|pair| (pair[1].wrapping_sub(pair[0]) == step) & (pair[1] > pair[0]));
    even.then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_times_come_back() {
        let times: Vec<i64> = (0..1440).map(|minute| -5_000 + minute * 60_000_000_000).collect();
        let page = TimePage::of(&times);
        assert_eq!(
            page,
            TimePage::Regular { start_ns: -5_000, step_ns: 60_000_000_000, rows: 1440 }
        );
        let mut out = vec![0; 40];
        page.fill(100..140, &mut out).unwrap();
        assert_eq!(out, times[100..140]);
        assert!(page.fill(1_430..1_441, &mut [0; 11]).is_err());
        assert!(page.fill(0..10, &mut [0; 9]).is_err());
    }

    #[test]
    fn uneven_times_are_irregular() {
        assert_eq!(regular_step(&[]), Some(0));
        assert_eq!(regular_step(&[7]), Some(0));
        assert_eq!(regular_step(&[7, 7]), None);
        assert_eq!(regular_step(&[7, 6]), None);
        assert_eq!(regular_step(&[1, 2, 4]), None);
        assert_eq!(regular_step(&[i64::MIN, i64::MAX]), None);
        assert_eq!(regular_step(&[i64::MAX - 1, i64::MAX, i64::MIN]), None);
        assert_eq!(TimePage::of(&[1, 2, 4]), TimePage::Irregular);
        assert!(TimePage::Irregular.fill(0..0, &mut []).is_err());
    }
}
