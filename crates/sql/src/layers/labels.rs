//! The names of sensors as columns.

use std::collections::{HashMap, HashSet};

use tidefall_storage::SensorTag;
use tidefall_types::TagId;

use crate::view::View;

/// The tags of a sensor, with commas in between; a table without tags has one sensor, `value`.
pub(super) struct Labels<'a> {
    tags: Vec<SensorTag<'a>>,
}

impl<'a> Labels<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        let tags = 0..view.schema().tags.len();
        Self { tags: tags.map(|tag| view.snapshot().tag(TagId(tag as u16))).collect() }
    }

    pub(super) fn of(&self, sensor: u32) -> String {
        if self.tags.is_empty() {
            return "value".to_owned();
        }
        let mut label = String::new();
        for (at, tag) in self.tags.iter().enumerate() {
            if at > 0 {
                label.push(',');
            }
            label.push_str(tag.of(sensor).unwrap_or_default());
        }
        label
    }
}

/// Makes names unique by a number behind all but the first that are the same. Names that were unique stay.
pub(super) fn make_unique(names: &mut [String]) {
    let mut taken: HashSet<String> = names.iter().cloned().collect();
    let mut counts: HashMap<String, usize> = HashMap::with_capacity(names.len());
    for name in names {
        let count = counts.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == 1 {
            continue;
        }
        // Each number is tried once for a name, and taken by another name at most.
        while !taken.insert(format!("{name}#{count}")) {
            *count += 1;
        }
        *name = format!("{name}#{count}");
    }
}

#[cfg(test)]
mod tests {
    use super::make_unique;

    #[test]
    fn names_become_unique_also_beside_names_that_look_numbered() {
        let mut names = ["time", "time", "a", "time#2", "a", "time", "a#2"].map(str::to_owned);
        make_unique(&mut names);
        assert_eq!(names, ["time", "time#3", "a", "time#2", "a#3", "time#4", "a#2"]);
    }
}
