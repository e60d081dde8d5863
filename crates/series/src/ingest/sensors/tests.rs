use std::collections::{BTreeMap, BTreeSet};

use arrow_array::StringArray;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// So many values of eight tags have more combinations than a u64 can tell apart.
const VALUES: usize = 1000;
const TAGS: usize = 8;

#[test]
fn each_combination_of_many_tags_is_looked_up_once() {
    let mut random = SmallRng::seed_from_u64(7);
    let sensors: Vec<Vec<u32>> = (0..300)
        .map(|_| (0..TAGS).map(|_| random.random_range(0..VALUES as u32)).collect())
        .collect();
    let rows: Vec<usize> = (0..5000).map(|_| random.random_range(0..sensors.len())).collect();
    let values = StringArray::from_iter_values((0..VALUES).map(|value| format!("v{value}")));
    let tags: Vec<TagColumn> = (0..TAGS)
        .map(|tag| TagColumn {
            name: format!("tag{tag}"),
            values: values.clone(),
            keys: rows
                .iter()
                .map(|&row| match sensors[row][tag] {
                    none if none % 10 == 0 => NO_TAG,
                    key => key,
                })
                .collect(),
        })
        .collect();
    let mut wanted: BTreeMap<Vec<Option<String>>, BTreeSet<u64>> = BTreeMap::new();
    let present: Vec<&TagColumn> = tags.iter().collect();
    let found = Combinations::of(&present, rows.len());
    for (row, &code) in found.codes.iter().enumerate() {
        assert!(code < found.bound, "{code} of {}", found.bound);
        let texts = tags.iter().map(|tag| tag_value(tag, tag.keys[row]).map(str::to_owned));
        wanted.entry(texts.collect()).or_default().insert(code);
    }
    assert!(wanted.values().all(|codes| codes.len() == 1), "one combination has two codes");
    let codes: BTreeSet<u64> = wanted.values().flatten().copied().collect();
    assert_eq!(codes.len(), wanted.len(), "two combinations share a code");
}

#[test]
fn few_combinations_have_small_codes() {
    let values = StringArray::from(vec!["a", "b"]);
    let keys = vec![0, 1, NO_TAG, 1].into();
    let tag = TagColumn { name: "tag".into(), values, keys };
    let found = Combinations::of(&[&tag, &tag], 4);
    assert_eq!((found.codes, found.bound), (vec![4, 8, 0, 8], 9));
    let none = Combinations::of(&[], 2);
    assert_eq!((none.codes, none.bound), (vec![0, 0], 1));
}

#[test]
fn sensors_from_before_the_limit_may_be_written() {
    let mut schema = TableSchema::new(Default::default(), "plant", "time");
    schema.add_tag("site").unwrap();
    let long = ["a", "b"].map(|letter| letter.repeat(TAG_BYTES_MAX + 1));
    let batch = WriteBatch {
        time: vec![1, 2, 3].into(),
        tags: vec![TagColumn {
            name: "site".into(),
            values: StringArray::from_iter_values(&long),
            keys: vec![0, 1, NO_TAG].into(),
        }],
        fields: Vec::new(),
    };
    let mut sensors = SensorDictionary::default();
    sensors.find_or_add(&[Some(&long[0])]).unwrap();
    let mut bad = Vec::new();
    refuse_long_tags(&schema, &batch, &sensors, &mut bad);
    assert_eq!(bad.iter().map(|error| error.row).collect::<Vec<_>>(), [1]);
    assert!(bad[0].error.message().contains("\"bbb"), "{}", bad[0].error);
}
