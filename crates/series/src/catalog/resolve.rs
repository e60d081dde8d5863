//! From a condition on tags to the sensors that meet it: a value is looked up, a pattern is tried on each distinct value
//! once, not on each sensor. Then the keys of the sensors are compared, as numbers.

use regex::RegexBuilder;
use roaring::RoaringBitmap;
use tidefall_types::{Error, NO_TAG, Result, TableSchema};

use super::filter::{Case, TagFilter};
use super::sensors::SensorsView;
use super::tag::TagValues;

/// The sensors for which a condition is true, and those for which it is false; it is unknown for
/// the others, as SQL has it.
struct Truth {
    yes: RoaringBitmap,
    no: RoaringBitmap,
}

impl SensorsView {
    /// The sensors for which `filter` is true.
    ///
    /// # Errors
    /// `NotFound` for a tag that the table does not have, `Invalid` for a wrong pattern.
    pub fn resolve(&self, schema: &TableSchema, filter: &TagFilter) -> Result<RoaringBitmap> {
        Ok(self.truth(schema, filter)?.yes)
    }

    fn truth(&self, schema: &TableSchema, filter: &TagFilter) -> Result<Truth> {
        Ok(match filter {
            TagFilter::All => Truth { yes: self.all(), no: RoaringBitmap::new() },
            TagFilter::Eq { tag, value } => {
                self.values_truth(schema, tag, |values| values.key(value).into_iter().collect())?
            }
            TagFilter::In { tag, values: wanted } => self.values_truth(schema, tag, |values| {
                wanted.iter().filter_map(|value| values.key(value)).collect()
            })?,
            TagFilter::Like { tag, pattern, case } => {
                let regex = build(&like_to_regex(pattern), pattern, *case)?;
                self.values_truth(schema, tag, |values| matching(values, &regex))?
            }
            TagFilter::Regex { tag, pattern, case } => {
                let regex = build(pattern, pattern, *case)?;
                self.values_truth(schema, tag, |values| matching(values, &regex))?
            }
            TagFilter::IsNull { tag } => {
                let yes = match self.tag(find_tag(schema, tag)?) {
                    Some(values) => values.sensors_with(vec![NO_TAG]).into_iter().collect(),
                    None => self.all(),
                };
                Truth { no: self.all() - &yes, yes }
            }
            TagFilter::Not(inner) => {
                let Truth { yes, no } = self.truth(schema, inner)?;
                Truth { yes: no, no: yes }
            }
            TagFilter::And(parts) => {
                let mut truth = Truth { yes: self.all(), no: RoaringBitmap::new() };
                for part in parts {
                    let part = self.truth(schema, part)?;
                    truth.yes &= part.yes;
                    truth.no |= part.no;
                }
                truth
            }
            TagFilter::Or(parts) => {
                let mut truth = Truth { yes: RoaringBitmap::new(), no: self.all() };
                for part in parts {
                    let part = self.truth(schema, part)?;
                    truth.yes |= part.yes;
                    truth.no &= part.no;
                }
                truth
            }
        })
    }

    fn all(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..self.count);
        all
    }

    fn values_truth(
        &self,
        schema: &TableSchema,
        tag: &str,
        keys: impl Fn(&TagValues) -> Vec<u32>,
    ) -> Result<Truth> {
        let Some(values) = self.tag(find_tag(schema, tag)?) else {
            return Ok(Truth { yes: RoaringBitmap::new(), no: RoaringBitmap::new() });
        };
        let yes: RoaringBitmap = values.sensors_with(keys(values)).into_iter().collect();
        let mut no = self.all() - &yes;
        for sensor in values.sensors_with(vec![NO_TAG]) {
            no.remove(sensor);
        }
        Ok(Truth { yes, no })
    }
}

/// The keys of the values that match.
fn matching(tag: &TagValues, regex: &regex::Regex) -> Vec<u32> {
    let matching = tag.values().zip(0..).filter(|(value, _)| regex.is_match(value));
    matching.map(|(_, key)| key).collect()
}

fn find_tag(schema: &TableSchema, name: &str) -> Result<usize> {
    schema.tags.iter().position(|tag| tag == name).ok_or_else(|| {
        Error::not_found(format!(
            "table {} has no tag {name:?}; its tags are {}",
            schema.name,
            schema.tags.join(", ")
        ))
    })
}

fn build(regex: &str, pattern: &str, case: Case) -> Result<regex::Regex> {
    RegexBuilder::new(regex)
        .case_insensitive(case == Case::Insensitive)
        .build()
        .map_err(|error| Error::invalid(format!("the pattern {pattern:?} is wrong: {error}")))
}

fn like_to_regex(pattern: &str) -> String {
    let mut regex = String::from("(?s)^");
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '\\' => {
                let literal = chars.next().unwrap_or('\\');
                regex.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4])));
            }
            c => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push('$');
    regex
}
