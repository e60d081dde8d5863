//! Any bytes are a body: they never panic, every batch is well-formed, and no line is both a row
//! and an error, or two rows.

#![no_main]

use libfuzzer_sys::fuzz_target;

// Built from its source: the server would bring all of DataFusion.
#[allow(dead_code)]
#[path = "../../crates/server/src/line_protocol/mod.rs"]
mod line_protocol;

use line_protocol::{Precision, parse};

const NOW_NS: i64 = 1_700_000_000_000_000_000;

fuzz_target!(|body: &[u8]| {
    let Ok(parsed) = parse(body, Precision::Millisecond, NOW_NS) else { return };
    let mut lines = std::collections::BTreeSet::new();
    for table in &parsed.batches {
        assert!(table.batch.check().is_ok(), "a batch is malformed");
        assert_eq!(table.lines.len(), table.batch.rows(), "a row has no line");
        assert!(!table.batch.fields.is_empty(), "a row without a field");
        for line in &table.lines {
            assert!(lines.insert(*line), "line {line} became two rows");
        }
    }
    for error in &parsed.errors {
        assert!(!lines.contains(&error.line), "line {} is a row and an error", error.line);
    }
    let newlines = body.iter().filter(|&&byte| byte == b'\n').count();
    assert!(parsed.rows() + parsed.lines_bad <= newlines + 1, "more rows than lines");
});
