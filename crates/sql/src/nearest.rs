//! Names that look like one that is not there.

use datafusion::common::utils::datafusion_strsim::levenshtein;

/// Names that are suggested at most: more would be a list to read.
const SUGGESTED_MAX: usize = 3;

/// Nobody misspells a longer name; comparing it with others takes the product of both lengths.
const CHARS_MAX: usize = 128;

/// The names that are close to one, whatever the case: the closest first, those that are as close in order of their
/// letters. No more than half of the letters of the longer of both may differ, and one more than of the closest.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let small = name.to_lowercase();
    if small.chars().count() > CHARS_MAX {
        return Vec::new();
    }
    let rank = |other: &'a str| {
        let other_small = other.to_lowercase();
        let longer = small.chars().count().max(other_small.chars().count());
        if longer > CHARS_MAX {
            return None;
        }
        let changes = levenshtein(&small, &other_small);
        (changes * 2 <= longer).then_some((changes, other))
    };
    let mut ranked: Vec<_> = known.into_iter().filter_map(rank).collect();
    ranked.sort_unstable();
    ranked.dedup();
    let closest = ranked.first().map_or(0, |(changes, _)| *changes);
    let is_close = |(changes, _): &(usize, &str)| *changes <= closest + 1;
    ranked.into_iter().take_while(is_close).take(SUGGESTED_MAX).map(|(_, other)| other).collect()
}

/// The question whether one of them was meant, if there are any.
pub(crate) fn did_you_mean(names: &[impl AsRef<str>]) -> Option<String> {
    (!names.is_empty()).then(|| format!("did you mean {}?", any_of(names)))
}

/// Names with an "or" before the last.
pub(crate) fn any_of(names: &[impl AsRef<str>]) -> String {
    joined(names, " or ")
}

/// Names with commas between them, and something else before the last.
pub(crate) fn joined(names: &[impl AsRef<str>], last: &str) -> String {
    match names {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [before @ .., end] => {
            let before: Vec<&str> = before.iter().map(AsRef::as_ref).collect();
            format!("{}{last}{}", before.join(", "), end.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_come_first_and_what_is_far_not_at_all() {
        let known = ["stddev", "sum", "count", "substr", "min", "sqrt"];
        assert_eq!(nearest("sumx", known), ["sum"]);
        assert_eq!(nearest("SUM", known), ["sum"]);
        assert_eq!(nearest("percentil", ["percentile_cont", "percentile"]), ["percentile"]);
        assert_eq!(nearest("stdev", known), ["stddev"]);
        assert!(nearest("zzzzzz", known).is_empty() && nearest("", known).is_empty());
        assert!(nearest(&"s".repeat(CHARS_MAX + 1), known).is_empty());
    }

    #[test]
    fn names_that_are_as_close_are_in_order_whatever_order_they_come_in() {
        let mut known = vec!["level_d", "level_b", "level_a", "level_c", "level", "level_a"];
        for _ in 0..known.len() {
            known.rotate_left(1);
            assert_eq!(nearest("level_", known.clone()), ["level", "level_a", "level_b"]);
        }
    }

    #[test]
    fn questions_name_all() {
        assert_eq!(did_you_mean(&["a"]).as_deref(), Some("did you mean a?"));
        assert_eq!(did_you_mean(&["a", "b", "c"]).as_deref(), Some("did you mean a, b or c?"));
        let none: [&str; 0] = [];
        assert_eq!(did_you_mean(&none), None);
    }
}
