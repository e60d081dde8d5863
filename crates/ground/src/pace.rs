//! How fast rows may come while memory is being emptied.
//!
//! A flush gives memory back when it ends. Were writers to go on at full speed until memory is full, all of them would stop for the rest
//! of it. So from the moment it is called for rows come about as fast as flushes have taken them of late, and slower as it fills, down to nothing
//! where none is left. Writers take turns, so that none waits for ever while others come.

use std::time::Duration;

use tidefall_sync::{Instant, Mutex, MutexGuard, PoisonError};

/// What flushes are taken to free in a second before the first has ended.
const BYTES_PER_S: f64 = 256e6;
/// Waits that are shorter are put off to the next write, as threads sleep longer than that.
const SLACK: Duration = Duration::from_millis(1);
/// A longer wait is one for memory, and instants end somewhere.
const PAUSE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How fast rows may come.
#[derive(Debug, Default)]
pub struct Pace {
    turn: Mutex<Option<Instant>>,
    freed: Mutex<Freed>,
}

/// What flushes have freed of late, and how long they took.
#[derive(Debug, Default, Clone, Copy)]
struct Freed {
    bytes: f64,
    seconds: f64,
}

/// Held by the writer whose turn it is: until when the writers before it have used up what may come.
#[derive(Debug)]
pub struct Turn<'a> {
    until: MutexGuard<'a, Option<Instant>>,
    came: Instant,
}

impl Pace {
    /// Takes note of a flush. Of each as much counts as of all before it.
    pub fn freed(&self, bytes: usize, time: Duration) {
        let mut freed = self.freed.lock().unwrap_or_else(PoisonError::into_inner);
        freed.bytes = freed.bytes / 2.0 + bytes as f64;
        freed.seconds = freed.seconds / 2.0 + time.as_secs_f64();
    }

    /// Waits for the writers before this one.
    pub fn turn(&self) -> Turn<'_> {
        let came = Instant::now();
        Turn { until: self.turn.lock().unwrap_or_else(PoisonError::into_inner), came }
    }

    /// Whether nobody has the turn, and a pause would be over.
    pub fn is_free(&self, pause: Duration) -> bool {
        let turn = self.turn.try_lock().map(|until| Turn { until, came: Instant::now() });
        turn.is_ok_and(|turn| turn.left(pause).is_none())
    }

    /// How long so many bytes take to come at a part of the speed of flushes.
    pub fn pause(&self, bytes: usize, part: f64) -> Duration {
        let freed = *self.freed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = freed.bytes > 0.0 && freed.seconds > 0.0;
        let bytes_per_s = if is_known { freed.bytes / freed.seconds } else { BYTES_PER_S };
        let seconds = bytes as f64 / (bytes_per_s * part);
        Duration::try_from_secs_f64(seconds).unwrap_or(PAUSE_MAX).min(PAUSE_MAX)
    }
}

/// The part of full speed at which more comes when some of a limit is taken: little less at first, and nothing in the end.
pub fn part_left(taken: usize, limit: usize) -> f64 {
    1.0 - (taken as f64 / limit.max(1) as f64).min(1.0).powi(3)
}

impl Turn<'_> {
    /// How much of a pause is left; nothing once it is over or not worth waiting for.
    pub fn left(&self, pause: Duration) -> Option<Duration> {
        let left = self.due(pause).saturating_duration_since(Instant::now());
        (left > SLACK).then_some(left)
    }

    /// Ends a turn: what comes next waits for the end of this pause, too.
    pub fn end(mut self, pause: Duration) {
        *self.until = Some(self.due(pause));
    }

    fn due(&self, pause: Duration) -> Instant {
        self.until.map_or(self.came, |until| until.max(self.came)) + pause
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Writers that could come ten times as fast as flushes free memory: none waits long, though flushes take more or less time.
    #[test]
    fn no_write_waits_for_a_whole_flush() {
        const LIMIT: f64 = 100e6;
        const WRITE: usize = 2_000_000;
        for seed in 0..50 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let pace = Pace::default();
            let flush_s = rng.random_range(0.2..2.0);
            let (mut now_s, mut came, mut longest_s) = (0.0, 0, 0.0_f64);
            for flush in 0..200 {
                let takes_s = flush_s * rng.random_range(0.7..1.4);
                let (start_s, mut filled) = (now_s, 0.0);
                while now_s < start_s + takes_s {
                    let pause = pace.pause(WRITE, part_left(filled as usize, LIMIT as usize));
                    let pause_s = pause.as_secs_f64();
                    let at_full_speed_s = WRITE as f64 / (10.0 * LIMIT / flush_s);
                    let next_s = now_s + pause_s.max(at_full_speed_s);
                    if next_s > start_s + takes_s {
                        // The flush has ended: its memory is free.
                        longest_s =
                            longest_s.max(if flush > 20 { start_s + takes_s - now_s } else { 0.0 });
                        break;
                    }
                    longest_s = longest_s.max(if flush > 20 { pause_s } else { 0.0 });
                    (now_s, came) = (next_s, came + WRITE);
                    filled += WRITE as f64;
                    assert!(filled < LIMIT + WRITE as f64, "more than the limit");
                }
                now_s = now_s.max(start_s + takes_s);
                pace.freed(LIMIT as usize, Duration::from_secs_f64(takes_s));
            }
            assert!(longest_s < flush_s / 4.0, "{longest_s} s of {flush_s} s");
            // As much as flushes free, but for a quarter.
            let freed = now_s / flush_s * LIMIT;
            assert!(came as f64 > freed * 0.7, "{came} of {freed}");
        }
    }

    #[test]
    fn what_comes_is_what_flushes_take_and_nothing_where_memory_is_full() {
        let pace = Pace::default();
        const LIMIT: usize = 10_000_000;
        let pause = |bytes, taken| pace.pause(bytes, part_left(taken, LIMIT));
        assert_eq!(pause(0, LIMIT / 2), Duration::ZERO);
        assert_eq!(pause(1_000_000, LIMIT), PAUSE_MAX);
        assert_eq!(pause(usize::MAX, 2 * LIMIT), PAUSE_MAX);
        assert_eq!(pace.pause(1, part_left(1, 0)), PAUSE_MAX);
        pace.freed(10_000_000, Duration::from_secs(1));
        assert_eq!(pause(1_000_000, 0), Duration::from_millis(100));
        assert!(pause(1_000_000, LIMIT / 2) < Duration::from_millis(120));
        // One that freed next to nothing changes next to nothing.
        pace.freed(1, Duration::from_millis(10));
        assert!(pause(1_000_000, 0) < Duration::from_millis(110));
    }

    #[test]
    fn short_pauses_add_up_and_pauses_of_the_past_are_over() {
        let pace = Pace::default();
        let turn = pace.turn();
        assert!(turn.left(Duration::from_micros(100)).is_none());
        turn.end(Duration::from_secs(1));
        let turn = pace.turn();
        let left = turn.left(Duration::from_micros(100)).expect("a pause");
        assert!(left > Duration::from_millis(500), "{left:?}");
        assert!(!pace.is_free(Duration::ZERO), "somebody has the turn");
        drop(turn);
        assert!(!pace.is_free(Duration::ZERO), "a pause is not over");
        *pace.turn().until = Some(Instant::now() - Duration::from_millis(1));
        assert!(pace.turn().left(Duration::from_micros(100)).is_none());
        assert!(pace.is_free(Duration::ZERO));
        assert!(!pace.is_free(Duration::from_secs(1)));
    }
}
