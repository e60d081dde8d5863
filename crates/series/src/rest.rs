//! What is written anew for few readings is so now and then: how long none of a table is.

use tidefall_sync::{Mutex, PoisonError};

/// When segments of a table may be written anew for few readings.
#[derive(Debug, Default)]
pub(crate) struct Rest(Mutex<Option<Pause>>);

#[derive(Debug, Clone, Copy)]
struct Pause {
    since_ns: i64,
    length_ns: i64,
}

impl Rest {
    /// Whether none is written meanwhile. A clock that is set back ends it.
    pub(crate) fn is_over(&self, now_ns: i64) -> bool {
        let pause = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pause.is_none_or(|pause| {
            let age_ns = now_ns.saturating_sub(pause.since_ns);
            !(0..pause.length_ns).contains(&age_ns)
        })
    }

    /// Begins when one was written.
    pub(crate) fn begin(&self, now_ns: i64, length_ns: i64) {
        let pause = Pause { since_ns: now_ns, length_ns };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_after_its_time_and_when_the_clock_is_set_back() {
        let rest = Rest::default();
        assert!(rest.is_over(i64::MIN));
        rest.begin(1_000, 10);
        assert_eq!(
            [999, 1_000, 1_009, 1_010].map(|now_ns| rest.is_over(now_ns)),
            [true, false, false, true]
        );
        rest.begin(2_000, 0);
        assert!(rest.is_over(2_000));
        rest.begin(i64::MAX, i64::MAX);
        assert_eq!([i64::MIN, i64::MAX].map(|now_ns| rest.is_over(now_ns)), [true, false]);
    }
}
