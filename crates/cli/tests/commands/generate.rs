//! `tidefall generate`.

use crate::Place;

#[test]
fn impossible_amounts_are_refused_before_anything_is_written() {
    let place = Place::new();
    for (option, amount) in [("--days", "1000000000"), ("--days", "0"), ("--sensors", "0")] {
        let said = place.failed(&["generate", "x.csv", option, amount]);
        assert!(said.err.contains("--days"), "{said:?}");
    }
    assert!(!place.path("x.csv").exists());
}
