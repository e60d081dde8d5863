#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on should stop.
//! Tests of the engine through its public face.

mod apart;
mod asking;
mod away;
mod bins;
mod blocks;
mod closing;
mod counting;
mod damage;
mod deletes;
mod failed;
mod faults;
mod files;
mod floats;
mod following;
mod formats;
mod full;
mod fuzz;
mod history;
mod hooks;
mod image;
mod kept;
mod lacking;
mod late;
mod log;
mod long;
mod many;
mod model;
mod order;
mod panics;
mod power;
mod reached;
mod reading;
mod records;
mod recovery;
mod repair;
mod retention;
mod schema;
mod sensors;
mod sharing;
mod slow;
mod small;
mod snapshots;
mod steady;
mod times;
mod types;
mod upkeep;

use arrow_array::StringArray;
use tidefall_types::TagColumn;

/// How often a test with random histories starts over: more with `TIDEFALL_ROUNDS`.
fn rounds(few: u64) -> u64 {
    std::env::var("TIDEFALL_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

/// Checks, and says where that was if it panics.
fn checked(check: impl FnOnce(), place: impl FnOnce() -> String) {
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
        eprintln!("{}", place());
        std::panic::resume_unwind(panic);
    }
}

/// The tag `sensor` with values `s0`, `s1` ..., of rows with these keys.
fn sensor_tag(sensors: u32, keys: Vec<u32>) -> TagColumn {
    let values = StringArray::from_iter_values((0..sensors).map(|sensor| format!("s{sensor}")));
    TagColumn { name: "sensor".into(), values, keys: keys.into() }
}
