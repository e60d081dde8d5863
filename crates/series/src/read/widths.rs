//! How long texts are, from what is known of runs and segments without reading them.

use tidefall_types::FieldId;

use super::objects::LiveObject;
use super::parts::Sources;

/// Objects that are asked at most: those that take most bytes for a row.
const OBJECTS_ASKED_MAX: usize = 8;
/// So many times smaller texts are taken to be in segments that do not say how long theirs were.
const PACKED: u64 = 4;

impl Sources {
    /// About how many bytes the texts of some fields have in a row, where they are longest: in the rows that are in
    /// memory, or in one of the objects.
    pub(super) fn text_bytes_per_row(&self, texts: &[FieldId]) -> u64 {
        let (mut bytes, mut rows) = (0, 0);
        for run in &self.runs {
            bytes += run.text_bytes_of(texts) as u64;
            rows += run.rows() as u64;
        }
        let in_memory = bytes / rows.max(1);
        let packed = |object: &LiveObject| object.entry.bytes / object.entry.rows.max(1);
        let mut objects: Vec<&LiveObject> =
            self.version.objects.iter().map(|object| &**object).collect();
        objects.sort_by_key(|object| std::cmp::Reverse(packed(object)));
        let in_object = |object: &LiveObject| match object.segment.text_bytes(texts) {
            Ok(Some(bytes)) => bytes / object.entry.rows.max(1),
            Ok(None) => packed(object) * PACKED,
            // Whoever reads it will meet the error.
            Err(_) => 0,
        };
        let asked = objects.into_iter().take(OBJECTS_ASKED_MAX);
        asked.map(in_object).max().unwrap_or(0).max(in_memory)
    }
}
