//! How often something is tried in a store that may fail for a moment.

use std::time::Duration;

/// With the first one. The pauses between take 13 s, beside what the tries take.
const TRIES_MAX: u32 = 8;

/// The pause behind the first try; each one is twice as long as the one before. Tests have less.
const PAUSE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 5 } else { 100 });

/// The pauses between the tries.
pub fn pauses() -> impl Iterator<Item = Duration> {
    (0..TRIES_MAX - 1).map(|tries| PAUSE * 2_u32.pow(tries))
}
