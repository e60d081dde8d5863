//! Runs a scenario in many orders.

use std::path::PathBuf;
use std::sync::Once;
use std::time::{Duration, Instant};

use tidefall_sync::shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Scheduler,
    UncontrolledNondeterminismCheckScheduler,
};
use tidefall_sync::shuttle::{Config, FailurePersistence, Runner};

/// Orders that each scheduler tries of a scenario at once, unless `TIDEFALL_INTERLEAVINGS` says how many.
const INTERLEAVINGS: usize = 200;
/// The depth of faults that are looked for by priorities, which change once less. Most faults have one or two.
const DEPTH: usize = 3;
/// Orders that are run twice: the second time must go as the first, or no order could be repeated.
const REPEATED: usize = 20;
const STACK_BYTES: usize = 1 << 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Tries a scenario in orders that are drawn step by step, and in such where one thread goes on until it waits, but for a few moments: some of each, and
/// again for `TIDEFALL_SECONDS`. An order that fails is kept in a file, whose name is printed; with that in `TIDEFALL_REPLAY` it is the only one.
pub fn explore(name: &str, scenario: impl Fn() + Copy + Send + Sync + 'static) {
    prepare();
    if let Some(file) = std::env::var_os("TIDEFALL_REPLAY") {
        run(ReplayScheduler::new_from_file(PathBuf::from(file)).unwrap(), scenario);
        return;
    }
    run(UncontrolledNondeterminismCheckScheduler::new(RandomScheduler::new(REPEATED)), scenario);
    let some = number("TIDEFALL_INTERLEAVINGS").map_or(INTERLEAVINGS, |some| some as usize);
    let time = Duration::from_secs(number("TIDEFALL_SECONDS").unwrap_or(0));
    let (start, mut drawn, mut by_priority) = (Instant::now(), 0, 0);
    while drawn == 0 || start.elapsed() < time {
        drawn += run(RandomScheduler::new(some), scenario);
        by_priority += run(PctScheduler::new(DEPTH, some), scenario);
    }
    println!("{name}: {drawn} interleavings drawn, {by_priority} by priorities");
}

fn run(
    scheduler: impl Scheduler + 'static,
    scenario: impl Fn() + Copy + Send + Sync + 'static,
) -> usize {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    // That effects of weak memory are not seen is said in docs/testing.md.
    config.silence_warnings = true;
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    config.failure_persistence = FailurePersistence::File(Some(folder));
    Runner::new(scheduler, config).run(scenario)
}

/// What the process finds out once must not make the first order another one than the same order later.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        run(RandomScheduler::new(1), || assert!(tidefall_storage::cores() > 0));
    });
}
