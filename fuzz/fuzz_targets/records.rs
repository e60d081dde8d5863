//! Segments of records; what is checked stands in `crates/fuzzing`, and runs in the test suite, too.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tidefall_fuzzing::records(data));
