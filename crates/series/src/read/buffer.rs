//! Memory for a large result that is filled by several threads, without a pass that clears all of it
//! first: what a page is decoded to is cleared just before, while it is in the processor's cache.
//! Clearing everything at once took a quarter of the time of reading ten sensors for a year.

use std::mem::MaybeUninit;

use tidefall_codec::PageValue;
use tidefall_sync::atomic::{AtomicUsize, Ordering};

use super::huge::prefer_huge_pages;

/// Memory for some values.
pub(super) struct Buffer<T> {
    values: Vec<T>,
    count: usize,
    /// Values in columns that are closed, all of which are initialised.
    closed: AtomicUsize,
}

/// A column of a [`Buffer`] that is being filled.
pub(super) struct BufferColumn<'a, T> {
    places: &'a mut [MaybeUninit<T>],
    /// All places before this one are initialised.
    cleared: usize,
    closed: &'a AtomicUsize,
}

impl<T: PageValue> Buffer<T> {
    /// So many values in empty memory that has room for them.
    pub(super) fn new(mut values: Vec<T>, count: usize) -> Self {
        prefer_huge_pages(&mut values.spare_capacity_mut()[..count]);
        Self { values, count, closed: AtomicUsize::new(0) }
    }

    /// Columns of `rows` values each, which divide all of it, and empty ones behind the last.
    pub(super) fn columns(&mut self, rows: usize) -> impl Iterator<Item = BufferColumn<'_, T>> {
        let places = &mut self.values.spare_capacity_mut()[..self.count];
        let columns = places.chunks_mut(rows.max(1));
        let columns = columns.chain(std::iter::repeat_with(|| &mut [][..]));
        columns.map(|places| BufferColumn { places, cleared: 0, closed: &self.closed })
    }

    /// All values. Every column must have been closed.
    pub(super) fn finish(mut self) -> Vec<T> {
        assert_eq!(*self.closed.get_mut(), self.count, "a column was not closed");
        // SAFETY: `new` has seen that there is room for `count` values behind none. A column adds its length to
        // `closed` once, when it is consumed, and has then initialised all of its places; columns do
        // not overlap, so when the lengths add up to `count` every value is initialised.
        unsafe { self.values.set_len(self.count) };
        self.values
    }
}

impl<T: PageValue> BufferColumn<'_, T> {
    /// The places from `start` on for `rows` values, fewer where the column ends. They hold any values.
    pub(super) fn at(&mut self, start: usize, rows: usize) -> &mut [T] {
        let end = start.saturating_add(rows).min(self.places.len());
        self.clear_to(end);
        let places = &mut self.places[start.min(end)..end];
        // SAFETY: all places before `end` are initialised now, and a `MaybeUninit<T>` that is has the
        // layout of a `T`.
        unsafe { &mut *(std::ptr::from_mut(places) as *mut [T]) }
    }

    /// Says that nothing more comes.
    pub(super) fn close(mut self) {
        self.clear_to(self.places.len());
        self.closed.fetch_add(self.places.len(), Ordering::Relaxed);
    }

    fn clear_to(&mut self, end: usize) {
        if self.cleared < end {
            self.places[self.cleared..end].fill(MaybeUninit::new(T::default()));
            self.cleared = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_hold_what_was_written_and_zeros() {
        let mut buffer = Buffer::<i64>::new(Vec::with_capacity(6), 6);
        let mut columns = buffer.columns(3);
        let mut first = columns.next().unwrap();
        let (second, mut none) = (columns.next().unwrap(), columns.next().unwrap());
        drop(columns);
        assert_eq!(first.at(0, 1), [0]);
        first.at(1, 9).copy_from_slice(&[5, 6]);
        first.at(0, 1)[0] = 4;
        assert!(none.at(0, 1).is_empty());
        first.close();
        second.close();
        none.close();
        assert_eq!(buffer.finish(), [4, 5, 6, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "a column was not closed")]
    fn an_open_column_is_noticed() {
        let mut buffer = Buffer::<f64>::new(Vec::with_capacity(4), 4);
        let columns: Vec<_> = buffer.columns(2).take(2).collect();
        columns.into_iter().next().unwrap().close();
        buffer.finish();
    }
}
