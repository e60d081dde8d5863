//! Which sensors count into which group.
//!
//! Tags are compared by the order of their values, which the catalogue knows, as numbers: no text is looked at for a
//! sensor, as there may be a million.

use std::ops::Range;

use datafusion::arrow::array::{ArrayRef, UInt32Array};
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::HashMap;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use tidefall_storage::{SensorTag, Sensors};
use tidefall_types::{ColumnKind, NO_TAG, TagId};

use super::question::Question;
use super::spec::Group;
use crate::pushdown::{column_kind, evaluate, sensors_in_order};
use crate::view::View;

/// The sensors of a question and their groups.
#[derive(Debug)]
pub(super) struct Grouped {
    /// The sensors in their order, or group after group.
    pub(super) sensors: Sensors,
    /// The group of each of them, where there are several; each group has a sensor.
    pub(super) groups: Vec<u32>,
    /// The number of groups.
    pub(super) count: u32,
    /// The group columns that look at tags.
    columns: Vec<GroupColumn>,
}

/// A value for each group.
#[derive(Debug)]
enum GroupColumn {
    /// Keys of a tag.
    Tag(TagId, Vec<u32>),
    Values(ArrayRef),
}

/// For each sensor the place of its value in the order of all values of a column.
struct Ranks {
    ranks: Vec<u32>,
    /// Above all ranks.
    bound: u32,
}

impl Grouped {
    /// Finds the sensors of a question, in their order, and groups them. Groups are ordered by their values, nulls
    /// last, the first column first.
    pub(super) fn of(question: &Question) -> Result<Self> {
        let view = &question.view;
        let sensors = sensors_in_order(view, &question.conditions)?;
        let exprs = question.groups.iter().filter_map(|group| match group {
            Group::Tags(expr) => Some(expr),
            Group::Bin(_) => None,
        });
        let (tags, exprs): (Vec<Option<TagId>>, Vec<&Expr>) =
            exprs.map(|expr| (bare_tag(expr, view), expr)).unzip();
        let computed = tags.iter().zip(&exprs).filter(|(tag, _)| tag.is_none());
        let computed: Vec<Expr> = computed.map(|(_, expr)| (*expr).clone()).collect();
        if tags.is_empty() || sensors.is_empty() {
            let count = u32::from(!sensors.is_empty());
            return Ok(Self { sensors, groups: Vec::new(), count, columns: Vec::new() });
        }
        if let [Some(tag)] = tags[..]
            && sensors.len() >= view.snapshot().tag(tag).value_count()
        {
            return Ok(Self::by_tag(view, sensors, tag));
        }
        let sensors = sensors.to_list().into_owned();
        let (sensors, computed) = evaluate(view, sensors, &computed, &question.conditions.time)?;
        let mut computed = computed.into_iter();
        let mut columns = Vec::with_capacity(tags.len());
        let mut ranks = Vec::with_capacity(tags.len());
        for tag in tags {
            if let Some(tag) = tag {
                let shown = view.tag(tag);
                let keys = shown.keys(&sensors);
                let (of_keys, bound) = shown.ranks(&keys);
                ranks.push(Ranks { ranks: of_keys, bound });
                columns.push(GroupColumn::Tag(tag, keys));
            } else if let Some(values) = computed.next() {
                ranks.push(Ranks::of_values(&values)?);
                columns.push(GroupColumn::Values(values));
            }
        }
        let (groups, firsts) = match &ranks[..] {
            [Ranks { ranks, bound }] => group(ranks, u64::from(*bound)),
            _ => {
                let Codes { codes, bound } = codes(ranks, sensors.len());
                group(&codes, bound)
            }
        };
        let columns = columns.iter().map(|column| column.at(&firsts)).collect::<Result<_>>()?;
        Ok(Self { sensors: sensors.into(), groups, count: firsts.len() as u32, columns })
    }

    /// Groups sensors by a tag that has no more values than there are sensors: the keys of its values become the groups.
    fn by_tag(view: &View, sensors: Sensors, tag: TagId) -> Self {
        const NONE: u32 = u32::MAX;
        let shown = view.snapshot().tag(tag);
        let (order, values) = (shown.order(), shown.value_count());
        // Those without a value come last.
        let place = |key: u32| (key as usize).min(values);
        let mut groups = keys_of(&shown, &sensors);
        let mut group_of = vec![NONE; values + 1];
        groups.iter().for_each(|key| group_of[place(*key)] = *key);
        let mut ordered = vec![NONE; values + 1];
        for key in (0..values as u32).filter(|key| group_of[*key as usize] != NONE) {
            ordered[order.rank(key) as usize] = key;
        }
        let has_missing = groups.contains(&NO_TAG);
        let mut keys: Vec<u32> = ordered.into_iter().filter(|key| *key != NONE).collect();
        if has_missing {
            keys.push(NO_TAG);
        }
        keys.iter().zip(0..).for_each(|(key, group)| group_of[place(*key)] = group);
        groups.iter_mut().for_each(|key| *key = group_of[place(*key)]);
        Self {
            sensors,
            groups,
            count: keys.len() as u32,
            columns: vec![GroupColumn::Tag(tag, keys)],
        }
    }

    /// The same with the sensors group after group.
    pub(super) fn group_after_group(self) -> Self {
        if self.groups.is_sorted() {
            return self;
        }
        let order = self.places();
        let of =
            |values: &[u32]| -> Vec<u32> { order.iter().map(|at| values[*at as usize]).collect() };
        let (sensors, groups) = (of(&self.sensors.to_list()).into(), of(&self.groups));
        Self { sensors, groups, ..self }
    }

    /// The places of the sensors, group after group.
    pub(super) fn places(&self) -> Vec<u32> {
        match self.groups.is_sorted() {
            true => (0..self.sensors.len() as u32).collect(),
            false => order_of(&self.groups, self.count as usize),
        }
    }

    /// The sensors of some groups, where they lie group after group, and the group of each, counted from the first of these.
    /// Only where they are all groups need the sensors lie in another order.
    pub(super) fn of_groups(&self, wanted: &Range<u32>) -> (Sensors, Vec<u32>) {
        if *wanted == (0..self.count) {
            return (self.sensors.clone(), self.groups.clone());
        }
        let (first, behind) = self.places_of(wanted);
        let sensors = self.sensors.to_list()[first..behind].to_vec();
        let groups = self.groups[first..behind].iter().map(|group| group - wanted.start);
        (sensors.into(), groups.collect())
    }

    /// How many sensors some groups have, which lie group after group.
    pub(super) fn len_of(&self, wanted: &Range<u32>) -> usize {
        let (first, behind) = self.places_of(wanted);
        if *wanted == (0..self.count) { self.sensors.len() } else { behind - first }
    }

    fn places_of(&self, wanted: &Range<u32>) -> (usize, usize) {
        let before = |end: u32| self.groups.partition_point(|group| *group < end);
        (before(wanted.start), before(wanted.end))
    }

    /// The values of some groups, a column for each group column that looks at tags.
    pub(super) fn values(&self, view: &View, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let of = |column: &GroupColumn| match column {
            GroupColumn::Tag(tag, keys) => {
                view.tag(*tag).of_keys(groups.iter().map(|group| keys[*group as usize]))
            }
            GroupColumn::Values(values) => {
                Ok(take(values, &UInt32Array::from(groups.to_vec()), None)?)
            }
        };
        self.columns.iter().map(of).collect()
    }
}

impl GroupColumn {
    /// The values of some sensors.
    fn at(&self, sensors: &[u32]) -> Result<Self> {
        Ok(match self {
            Self::Tag(tag, keys) => {
                Self::Tag(*tag, sensors.iter().map(|at| keys[*at as usize]).collect())
            }
            Self::Values(values) => {
                Self::Values(take(values, &UInt32Array::from(sensors.to_vec()), None)?)
            }
        })
    }
}

/// The keys of the values that some sensors have of a tag.
pub(super) fn keys_of(tag: &SensorTag<'_>, sensors: &Sensors) -> Vec<u32> {
    match sensors {
        Sensors::Range(range) => tag.keys_within(range.clone()),
        Sensors::List(list) => tag.keys(list),
    }
}

/// The tag that an expression is under some name, if it is nothing else.
pub(super) fn bare_tag(expr: &Expr, view: &View) -> Option<TagId> {
    if let Expr::Alias(alias) = expr {
        return bare_tag(&alias.expr, view);
    }
    match column_kind(expr, view.schema())? {
        ColumnKind::Tag(tag) => Some(tag),
        _ => None,
    }
}

impl Ranks {
    fn of_values(values: &ArrayRef) -> Result<Self> {
        let order = SortOptions { descending: false, nulls_first: false };
        let field = SortField::new_with_options(values.data_type().clone(), order);
        let rows = RowConverter::new(vec![field])?.convert_columns(std::slice::from_ref(values))?;
        // Only values that differ are ordered, as there may be few.
        let mut places = HashMap::new();
        let mut distinct = Vec::new();
        let places: Vec<u32> = rows
            .iter()
            .map(|row| {
                *places.entry(row).or_insert_with(|| {
                    distinct.push(row);
                    distinct.len() as u32 - 1
                })
            })
            .collect();
        let mut ordered: Vec<u32> = (0..distinct.len() as u32).collect();
        ordered.sort_unstable_by_key(|place| distinct[*place as usize]);
        let mut rank = vec![0; ordered.len()];
        for (place, at) in ordered.iter().zip(0..) {
            rank[*place as usize] = at;
        }
        let ranks = places.iter().map(|place| rank[*place as usize]).collect();
        Ok(Self { ranks, bound: rank.len() as u32 })
    }
}

/// Numbers that are ordered as the ranks of all columns are, the first column first, and a bound of them.
struct Codes {
    codes: Vec<u64>,
    bound: u64,
}

fn codes(columns: Vec<Ranks>, sensors: usize) -> Codes {
    let mut all = Codes { codes: vec![0; sensors], bound: 1 };
    for Ranks { ranks, bound } in columns {
        let bound = u64::from(bound.max(1));
        if all.bound.checked_mul(bound).is_none() {
            all.close_gaps();
        }
        all.codes.iter_mut().zip(&ranks).for_each(|(code, rank)| {
            *code = *code * bound + u64::from(*rank);
        });
        all.bound = all.bound.saturating_mul(bound);
    }
    all
}

impl Codes {
    /// Numbers the codes that there are. Then they are fewer than 2^32, as sensors are.
    fn close_gaps(&mut self) {
        let mut distinct = self.codes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        for code in &mut self.codes {
            *code = distinct.partition_point(|other| other < code) as u64;
        }
        self.bound = distinct.len() as u64;
    }
}

/// Up to so many codes for each sensor are counted; of more, counting would take longer than sorting.
const CODES_PER_SENSOR_MAX: u64 = 4;

/// A group for each code, in the order of the codes, and the place of the first code of each group.
fn group<C: Copy + Into<u64>>(codes: &[C], bound: u64) -> (Vec<u32>, Vec<u32>) {
    let code_at = |at: u32| -> u64 { codes[at as usize].into() };
    let mut firsts = Vec::new();
    if bound > CODES_PER_SENSOR_MAX * codes.len() as u64 {
        let mut by_code: Vec<u32> = (0..codes.len() as u32).collect();
        by_code.sort_by_key(|at| code_at(*at));
        let (mut groups, mut last) = (vec![0; codes.len()], None);
        for at in by_code {
            let code = code_at(at);
            if last != Some(code) {
                firsts.push(at);
                last = Some(code);
            }
            groups[at as usize] = firsts.len() as u32 - 1;
        }
        return (groups, firsts);
    }
    const NONE: u32 = u32::MAX;
    let place = |code: &C| -> usize { (*code).into() as usize };
    let mut group_of = vec![NONE; bound as usize];
    for (code, at) in codes.iter().zip(0..) {
        let first = &mut group_of[place(code)];
        *first = at.min(*first);
    }
    for first in group_of.iter_mut().filter(|first| **first != NONE) {
        firsts.push(std::mem::replace(first, firsts.len() as u32));
    }
    (codes.iter().map(|code| group_of[place(code)]).collect(), firsts)
}

/// The places of some numbers below `bound` in the order of the numbers.
fn order_of(numbers: &[u32], bound: usize) -> Vec<u32> {
    let mut ends = vec![0_u32; bound];
    numbers.iter().for_each(|number| ends[*number as usize] += 1);
    let mut start = 0;
    for end in &mut ends {
        start += std::mem::replace(end, start);
    }
    let mut order = vec![0; numbers.len()];
    for (number, at) in numbers.iter().zip(0..) {
        let place = &mut ends[*number as usize];
        order[*place as usize] = at;
        *place += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_in_the_order_of_their_columns() {
        for bounds in [[2_u32, 3, 1], [4, 4, 4], [u32::MAX, u32::MAX, u32::MAX]] {
            let sensors = 500_u32;
            let rank = |column: u32, at: u32| {
                // Spread over all that the bound allows.
                let bound = bounds[column as usize];
                let step = at.wrapping_mul(2_654_435_761).rotate_left(column * 7) % 5;
                u64::from(bound - 1).min(u64::from(step) * (u64::from(bound) / 5).max(1)) as u32
            };
            let columns = (0..3).map(|column| Ranks {
                ranks: (0..sensors).map(|at| rank(column, at)).collect(),
                bound: bounds[column as usize],
            });
            let Codes { codes, bound } = codes(columns.collect(), sensors as usize);
            let (groups, firsts) = group(&codes, bound);
            let by_group = order_of(&groups, firsts.len());
            let tuple = |at: u32| [rank(0, at), rank(1, at), rank(2, at)];
            let mut expected: Vec<u32> = (0..sensors).collect();
            expected.sort_by_key(|at| tuple(*at));
            assert_eq!(by_group, expected, "{bounds:?}");
            let mut tuples: Vec<[u32; 3]> = expected.iter().map(|at| tuple(*at)).collect();
            let of_groups: Vec<[u32; 3]> =
                by_group.iter().map(|at| tuple(firsts[groups[*at as usize] as usize])).collect();
            assert_eq!(of_groups, tuples, "{bounds:?}");
            tuples.dedup();
            assert_eq!(firsts.len(), tuples.len(), "{bounds:?}");
        }
    }
}
