//! How many bytes the rows of a batch have.

use std::ops::Range;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericByteArray, OffsetSizeTrait, RecordBatch,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, DataType, LargeBinaryType,
    LargeUtf8Type, StringViewType, Utf8Type,
};

/// Bytes of a value of which nothing is known: a key, a null.
const KEY_BYTES: u64 = 8;

/// The bytes of each row.
#[derive(Debug, PartialEq)]
pub(crate) enum Widths {
    /// The same for all.
    Same(u64),
    Each(Vec<u64>),
}

impl Widths {
    /// Those of the rows of a batch.
    pub(crate) fn of_batch(batch: &RecordBatch) -> Self {
        Self::of_columns(batch.columns())
    }

    pub(crate) fn of_columns<'a>(columns: impl IntoIterator<Item = &'a ArrayRef>) -> Self {
        columns.into_iter().fold(Self::Same(0), |sum, column| sum.and(Self::of_array(&**column)))
    }

    /// Those of a column with where each text and list in it ends.
    pub(crate) fn with_ends(array: &dyn Array) -> Self {
        Self::with_end(array, KEY_BYTES)
    }

    fn of_array(array: &dyn Array) -> Self {
        Self::with_end(array, 0)
    }

    /// The bytes of each row, with so many for the end of each text and list.
    fn with_end(array: &dyn Array, end: u64) -> Self {
        let values = Self::of_values(array, end);
        let has_end = array.data_type().is_nested()
            || array.data_type().is_string()
            || array.data_type().is_binary();
        match has_end && end > 0 {
            true => values.and(Self::Same(end)),
            false => values,
        }
    }

    fn of_values(array: &dyn Array, end: u64) -> Self {
        match array.data_type() {
            DataType::Utf8 => of_bytes(array.as_bytes::<Utf8Type>()),
            DataType::LargeUtf8 => of_bytes(array.as_bytes::<LargeUtf8Type>()),
            DataType::Binary => of_bytes(array.as_bytes::<BinaryType>()),
            DataType::LargeBinary => of_bytes(array.as_bytes::<LargeBinaryType>()),
            DataType::Utf8View => of_views::<StringViewType>(array),
            DataType::BinaryView => of_views::<BinaryViewType>(array),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                of_lists(list.offsets(), &**list.values(), end)
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                of_lists(list.offsets(), &**list.values(), end)
            }
            DataType::Map(..) => {
                let map = array.as_map();
                of_lists(map.offsets(), map.entries(), end)
            }
            DataType::FixedSizeList(_, size) => {
                let list = array.as_fixed_size_list();
                let offsets = OffsetBuffer::<i64>::from_repeated_length(
                    usize::try_from(*size).unwrap_or(0),
                    list.len(),
                );
                of_lists(&offsets, &**list.values(), end)
            }
            DataType::ListView(_) => {
                let list = array.as_list_view::<i32>();
                of_places(list.offsets(), list.sizes(), &**list.values(), end)
            }
            DataType::LargeListView(_) => {
                let list = array.as_list_view::<i64>();
                of_places(list.offsets(), list.sizes(), &**list.values(), end)
            }
            DataType::Struct(_) => {
                let columns = array.as_struct().columns().iter();
                columns.fold(Self::Same(0), |sum, column| sum.and(Self::with_end(&**column, end)))
            }
            DataType::FixedSizeBinary(size) => Self::Same(u64::try_from(*size).unwrap_or(0)),
            other => Self::Same(other.primitive_width().map_or(KEY_BYTES, |width| width as u64)),
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Same(one), Self::Same(other)) => Self::Same(one.saturating_add(other)),
            (Self::Each(mut each), Self::Same(same)) | (Self::Same(same), Self::Each(mut each)) => {
                each.iter_mut().for_each(|bytes| *bytes = bytes.saturating_add(same));
                Self::Each(each)
            }
            (Self::Each(mut one), Self::Each(other)) => {
                one.iter_mut().zip(other).for_each(|(sum, bytes)| *sum = sum.saturating_add(bytes));
                Self::Each(one)
            }
        }
    }

    /// The bytes of a row.
    pub(crate) fn of(&self, row: usize) -> u64 {
        match self {
            Self::Same(bytes) => *bytes,
            Self::Each(each) => each.get(row).copied().unwrap_or(0),
        }
    }

    /// The bytes of the longest row.
    pub(crate) fn longest(&self) -> u64 {
        match self {
            Self::Same(bytes) => *bytes,
            Self::Each(each) => each.iter().copied().max().unwrap_or(0),
        }
    }

    /// The bytes of so many rows, all that there are.
    pub(crate) fn total(&self, rows: usize) -> u64 {
        self.sums(rows)(rows)
    }

    /// So many rows, all that there are, in parts of at most so many bytes, or of one row.
    pub(crate) fn parts(&self, rows: usize, most_bytes: u64) -> Vec<Range<usize>> {
        let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0_u64);
        for row in 0..rows {
            let width = self.of(row);
            if row > start && bytes.saturating_add(width) > most_bytes {
                parts.push(start..row);
                (start, bytes) = (row, 0);
            }
            bytes = bytes.saturating_add(width);
        }
        if start < rows {
            parts.push(start..rows);
        }
        parts
    }

    /// The bytes before each element, and of all at the end.
    fn sums(&self, elements: usize) -> impl Fn(usize) -> u64 + use<> {
        let (same, sums) = match self {
            Self::Same(bytes) => (*bytes, Vec::new()),
            Self::Each(each) => {
                let mut sum = 0_u64;
                let mut sums = Vec::with_capacity(elements + 1);
                sums.push(0);
                sums.extend(each.iter().map(|bytes| {
                    sum = sum.saturating_add(*bytes);
                    sum
                }));
                (0, sums)
            }
        };
        move |at| match sums.get(at) {
            Some(sum) => *sum,
            None => same.saturating_mul(at as u64),
        }
    }
}

fn of_bytes<T: ByteArrayType>(array: &GenericByteArray<T>) -> Widths {
    Widths::Each(lengths(array.offsets()))
}

fn of_views<T: ByteViewType>(array: &dyn Array) -> Widths {
    // The length is in the lowest four bytes of a view.
    let views = array.as_byte_view::<T>().views().iter();
    Widths::Each(views.map(|view| u64::from(*view as u32)).collect())
}

fn lengths<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<u64> {
    offsets.lengths().map(|length| length as u64).collect()
}

fn of_lists<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &dyn Array, end: u64) -> Widths {
    let (first, last) = match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (first.as_usize(), last.as_usize()),
        _ => (0, 0),
    };
    // A part of a column has all elements of the whole.
    let values = values.slice(first, last - first);
    match Widths::with_end(&*values, end) {
        Widths::Same(bytes) => Widths::Each(
            offsets.lengths().map(|length| bytes.saturating_mul(length as u64)).collect(),
        ),
        each => {
            let sums = each.sums(values.len());
            let bytes = offsets.windows(2).map(|ends| {
                sums(ends[1].as_usize() - first).saturating_sub(sums(ends[0].as_usize() - first))
            });
            Widths::Each(bytes.collect())
        }
    }
}

fn of_places<O: OffsetSizeTrait>(
    offsets: &[O],
    sizes: &[O],
    values: &dyn Array,
    end: u64,
) -> Widths {
    let sums = Widths::with_end(values, end).sums(values.len());
    let bytes = offsets.iter().zip(sizes).map(|(start, size)| {
        sums(start.as_usize() + size.as_usize()).saturating_sub(sums(start.as_usize()))
    });
    Widths::Each(bytes.collect())
}

/// The elements of each list of a column, those of inner lists if it is unnested more than once.
pub(super) fn elements(array: &dyn Array, depth: usize) -> Widths {
    if depth > 1 {
        // An element has a byte at least, or is a null of eight bytes at most.
        return Widths::of_array(array).and(Widths::Same(1));
    }
    match array.data_type() {
        DataType::List(_) => Widths::Each(lengths(array.as_list::<i32>().offsets())),
        DataType::LargeList(_) => Widths::Each(lengths(array.as_list::<i64>().offsets())),
        DataType::Map(..) => Widths::Each(lengths(array.as_map().offsets())),
        DataType::FixedSizeList(_, size) => Widths::Same(u64::try_from(*size).unwrap_or(0)),
        _ => Widths::of_array(array),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, ListArray, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::{Field, Int64Type};

    use super::*;

    #[test]
    fn parts_have_all_rows_and_no_more_bytes_than_one_needs() {
        let widths = Widths::Each(vec![3, 4, 9, 0, 0, 1]);
        assert_eq!(widths.parts(6, 7), [0..2, 2..3, 3..6]);
        assert_eq!(widths.parts(6, 0), [0..1, 1..2, 2..3, 3..5, 5..6]);
        assert_eq!(widths.parts(6, u64::MAX).first(), Some(&(0..6)));
        assert_eq!(Widths::Same(4).parts(5, 8), [0..2, 2..4, 4..5]);
        assert!(widths.parts(0, 7).is_empty());
    }

    #[test]
    fn rows_have_the_bytes_of_their_values() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("abc"), None, Some("")]));
        let views: ArrayRef =
            Arc::new(StringViewArray::from(vec!["a", "longer than twelve letters", ""]));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![None]),
        ]));
        assert_eq!(Widths::of_columns([&numbers]), Widths::Same(8));
        assert_eq!(Widths::of_columns([&texts, &views]), Widths::Each(vec![4, 26, 0]));
        assert_eq!(Widths::of_columns([&lists, &numbers]), Widths::Each(vec![24, 8, 16]));
        // A part of a column has the bytes of its own rows.
        let part = lists.slice(2, 1);
        assert_eq!(Widths::of_columns([&part]), Widths::Each(vec![8]));
        assert_eq!(elements(&*lists, 1), Widths::Each(vec![2, 0, 1]));
        let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let offsets = OffsetBuffer::<i32>::from_lengths([1, 2]);
        let nested: ArrayRef = Arc::new(ListArray::new(item, offsets, texts, None));
        assert_eq!(Widths::of_columns([&nested]).longest(), 3);
        // The ends of the list and of its one or two texts.
        assert_eq!(Widths::with_ends(&*nested), Widths::Each(vec![3 + 2 * 8, 3 * 8]));
        assert_eq!(Widths::with_ends(&*numbers), Widths::Same(8));
        assert_eq!(Widths::of_columns([&nested.slice(1, 1)]).longest(), 0);
    }
}
