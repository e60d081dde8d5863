use std::collections::BTreeSet;

use datafusion::arrow::array::TimestampNanosecondArray;
use datafusion::arrow::datatypes::{Int64Type, TimeUnit};

use super::*;

/// Numbers that look random, and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn counts(array: &ArrayRef) -> Vec<i64> {
    array.as_primitive::<Int64Type>().values().to_vec()
}

/// A model of the accumulator: a set for each group.
#[derive(Default)]
struct Model(Vec<BTreeSet<i64>>);

impl Model {
    fn add(&mut self, rows: &Rows, group_count: usize) {
        self.0.resize_with(group_count, BTreeSet::new);
        for (row, group) in rows.groups.iter().enumerate() {
            let is_kept = rows.filter.as_ref().is_none_or(|filter| filter[row] == Some(true));
            if let Some(value) = rows.values[row].filter(|_| is_kept) {
                self.0[*group].insert(value);
            }
        }
    }

    fn take(&mut self, groups: usize) -> Vec<i64> {
        self.0.drain(..groups).map(|set| set.len() as i64).collect()
    }
}

struct Rows {
    values: Vec<Option<i64>>,
    groups: Vec<usize>,
    filter: Option<Vec<Option<bool>>>,
}

impl Rows {
    /// Rows of some groups, with values that follow each other or come as they may.
    fn random(numbers: &mut Numbers, groups: usize, values: u64, count: usize) -> Self {
        let in_order = numbers.below(2) == 0;
        let start = numbers.below(values);
        let value = |numbers: &mut Numbers, row: usize| {
            let any = if in_order { (start + row as u64) % values } else { numbers.below(values) };
            (numbers.below(9) > 0).then_some((any as i64).wrapping_mul(1_000_000_007))
        };
        Self {
            values: (0..count).map(|row| value(numbers, row)).collect(),
            groups: (0..count).map(|_| numbers.below(groups as u64) as usize).collect(),
            filter: (numbers.below(3) == 0).then(|| {
                (0..count)
                    .map(|_| [Some(true), Some(false), None][numbers.below(3) as usize])
                    .collect()
            }),
        }
    }

    fn column(&self) -> ArrayRef {
        // A column that begins behind the start of its buffer.
        let values = [Some(-1)].into_iter().chain(self.values.iter().copied());
        let whole = TimestampNanosecondArray::from_iter(values);
        Arc::new(whole.slice(1, self.values.len()))
    }

    fn filter(&self) -> Option<BooleanArray> {
        self.filter.clone().map(BooleanArray::from)
    }
}

fn times() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, None)
}

#[test]
fn counts_are_those_of_a_set_for_each_group() -> Result<()> {
    let mut numbers = Numbers(7);
    // Few values, values that groups share, and so many that they are listed.
    let mut was_listed = 0;
    for (groups_max, values, count) in [(5, 100, 300), (40, 3000, 2000), (3, 1 << 40, 90_000)] {
        for _ in 0..4 {
            let (mut direct, mut model) = (DistinctValues::new(&times()), Model::default());
            let mut merged = DistinctValues::new(&times());
            let mut groups = 1;
            for _ in 0..6 {
                groups = groups.max(1 + numbers.below(groups_max) as usize);
                let rows = Rows::random(&mut numbers, groups, values, count);
                let (columns, filter) = ([rows.column()], rows.filter());
                model.add(&rows, groups);
                direct.update_batch(&columns, &rows.groups, filter.as_ref(), groups)?;
                // Some rows come as they are, others have been counted before.
                let (states, of) = match numbers.below(2) {
                    0 => (merged.convert_to_state(&columns, filter.as_ref())?, rows.groups.clone()),
                    _ => {
                        let mut part = DistinctValues::new(&times());
                        part.update_batch(&columns, &rows.groups, filter.as_ref(), groups)?;
                        (part.state(EmitTo::All)?, (0..groups).collect())
                    }
                };
                merged.merge_batch(&states, &of, groups)?;
                was_listed += usize::from(matches!(direct.kept, Kept::Listed(_)));
                if groups > 1 && numbers.below(3) == 0 {
                    let first = 1 + numbers.below(groups as u64 - 1) as usize;
                    let expected = model.take(first);
                    groups -= first;
                    assert_eq!(counts(&direct.evaluate(EmitTo::First(first))?), expected);
                    assert_eq!(counts(&merged.evaluate(EmitTo::First(first))?), expected);
                }
            }
            let expected = model.take(groups);
            assert_eq!(counts(&merged.evaluate(EmitTo::All)?), expected);
            let states = direct.state(EmitTo::All)?;
            assert_eq!(states[0].data_type(), &DataType::new_list(times(), true));
            let mut last = DistinctValues::new(&times());
            for group in 0..groups {
                last.merge_batch(&[states[0].slice(group, 1)], &[group], group + 1)?;
            }
            assert_eq!(counts(&last.evaluate(EmitTo::All)?), expected);
            assert!(direct.size() < 400, "{direct:?} forgets all groups");
        }
    }
    assert!(was_listed > 0, "lists are tested, too");
    Ok(())
}

#[test]
fn times_that_sensors_share_take_bits() -> Result<()> {
    let mut shared = DistinctValues::new(&times());
    let column: ArrayRef = Arc::new(TimestampNanosecondArray::from_iter_values(0..10_000));
    for sensor in 0..100 {
        let groups: Vec<usize> = (0..10_000).map(|row| (row / 50 + sensor) % 100).collect();
        shared.update_batch(&[Arc::clone(&column)], &groups, None, 100)?;
    }
    // A million pairs.
    assert!(shared.size() < 2_000_000, "{}", shared.size());
    assert_eq!(counts(&shared.evaluate(EmitTo::All)?), vec![10_000; 100]);
    Ok(())
}
