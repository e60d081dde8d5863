//! Values in lists.

/// The capacity of a list that gets its first value.
const CAPACITY_FIRST: usize = 4;

/// Lists grow by one part of so many.
const GROWTH: usize = 4;

/// A list of values for each group. Values that are in it more than once leave it when it is full.
#[derive(Debug, Default)]
pub(super) struct Listed {
    lists: Vec<Vec<u64>>,
    /// The capacity of all lists together.
    capacity: usize,
}

impl Listed {
    /// What lists of so many values of so many groups take, about.
    pub(super) fn bytes_about(groups: usize, values: usize) -> usize {
        let list = size_of::<Vec<u64>>() + CAPACITY_FIRST * size_of::<u64>() / 2;
        let value = size_of::<u64>() + size_of::<u64>() / GROWTH;
        groups.saturating_mul(list).saturating_add(values.saturating_mul(value))
    }

    /// Lists of distinct values with these lengths, which lie one behind the other.
    pub(super) fn of(lengths: &[usize], mut values: &[u64]) -> Self {
        let mut listed = Self::default();
        for length in lengths {
            let (list, others) = values.split_at(*length);
            let list = list.to_vec();
            listed.capacity += list.capacity();
            listed.lists.push(list);
            values = others;
        }
        listed
    }

    pub(super) fn begin(&mut self, group_count: usize) {
        self.lists.resize_with(group_count, Vec::new);
    }

    #[inline]
    pub(super) fn add(&mut self, group: usize, value: u64) {
        let list = &mut self.lists[group];
        if list.len() == list.capacity() {
            self.capacity += grow(list);
        }
        list.push(value);
    }

    /// How many values each of the first groups has, and the values, one group behind the other, if they are wanted;
    /// forgets these groups.
    pub(super) fn take(&mut self, groups: usize, with_values: bool) -> (Vec<usize>, Vec<u64>) {
        let (mut lengths, mut values) = (Vec::with_capacity(groups), Vec::new());
        for mut list in self.lists.drain(..groups) {
            self.capacity -= list.capacity();
            make_distinct(&mut list);
            lengths.push(list.len());
            if with_values {
                values.append(&mut list);
            }
        }
        (lengths, values)
    }

    pub(super) fn bytes(&self) -> usize {
        self.capacity * size_of::<u64>() + self.lists.capacity() * size_of::<Vec<u64>>()
    }
}

fn make_distinct(list: &mut Vec<u64>) {
    // The stable sort finds that most of the list is in order already.
    list.sort();
    list.dedup();
}

/// Lets a full list hold some more values; answers for how many more than before.
fn grow(list: &mut Vec<u64>) -> usize {
    let before = list.capacity();
    make_distinct(list);
    let more = (before / GROWTH).max(CAPACITY_FIRST);
    if before - list.len() < more {
        list.reserve_exact(before + more - list.len());
    }
    list.capacity() - before
}
