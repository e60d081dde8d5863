//! Rows on their way in.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_buffer::ScalarBuffer;

use crate::{Error, Result};

/// The key in [`TagColumn::keys`] of a row that has no value for the tag.
pub const NO_TAG: u32 = u32::MAX;

/// The bytes of the texts of some rows of a column, from its offsets; 0 for a column of anything else.
///
/// # Panics
/// When the column does not have these rows.
pub fn text_bytes(column: &dyn Array, rows: Range<usize>) -> usize {
    let texts = column.as_string_opt::<i32>().map(StringArray::value_offsets);
    texts.map_or(0, |ends| (ends[rows.end] - ends[rows.start]) as usize)
}

/// A tag of every row of a batch, dictionary-encoded.
#[derive(Debug, Clone)]
pub struct TagColumn {
    /// The name of the tag.
    pub name: String,
    /// The distinct values that `keys` point to; repeats are allowed, nulls mean no value.
    pub values: StringArray,
    /// For each row the position of its value in `values`, or [`NO_TAG`].
    pub keys: ScalarBuffer<u32>,
}

/// A field of every row of a batch. A null means that the row says nothing about this field.
#[derive(Debug, Clone)]
pub struct FieldColumn {
    /// The name of the field.
    pub name: String,
    /// One value a row, of a type that [`crate::FieldType::from_arrow`] knows.
    pub values: ArrayRef,
}

/// Rows for one table, before their sensors are looked up. Every way in (line protocol, SQL, CSV,
/// data frames) builds these, and `ingest` takes nothing else; only loads of whole columns have a [`SeriesBatch`].
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    /// The time of each row in nanoseconds since 1970 UTC, in any order.
    pub time: ScalarBuffer<i64>,
    /// The tags; a tag of the table that is missing here has no value in any row.
    pub tags: Vec<TagColumn>,
    /// The fields; a field of the table that is missing here is null in every row.
    pub fields: Vec<FieldColumn>,
}

impl WriteBatch {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.time.len()
    }

    /// Some of the rows. They share the memory of all.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        let tags = self.tags.iter().map(|tag| TagColumn {
            name: tag.name.clone(),
            values: tag.values.clone(),
            keys: tag.keys.slice(rows.start, rows.len()),
        });
        let fields = self.fields.iter().map(|field| FieldColumn {
            name: field.name.clone(),
            values: field.values.slice(rows.start, rows.len()),
        });
        Self {
            tags: tags.collect(),
            fields: fields.collect(),
            time: self.time.slice(rows.start, rows.len()),
        }
    }

    /// The rows in parts whose texts have at most `text_bytes_max` bytes, but for single rows that have more.
    pub fn parts(&self, text_bytes_max: usize) -> Vec<Self> {
        let mut parts = Vec::new();
        self.cut(0..self.rows(), text_bytes_max, &mut parts);
        parts
    }

    fn cut(&self, rows: Range<usize>, text_bytes_max: usize, parts: &mut Vec<Self>) {
        let texts = self.fields.iter().map(|field| text_bytes(&field.values, rows.clone()));
        if rows.len() <= 1 || texts.sum::<usize>() <= text_bytes_max {
            return parts.push(self.slice(rows));
        }
        // Halves: as deep as the logarithm of the rows.
        let middle = rows.start + rows.len() / 2;
        self.cut(rows.start..middle, text_bytes_max, parts);
        self.cut(middle..rows.end, text_bytes_max, parts);
    }

    /// Checks that all columns have the same length, that names are unique and that tag keys
    /// point into their dictionaries.
    ///
    /// # Errors
    /// `Invalid`, naming the column.
    pub fn check(&self) -> Result<()> {
        let rows = self.rows();
        let mut names: Vec<&str> = Vec::with_capacity(self.tags.len() + self.fields.len());
        for tag in &self.tags {
            check_length(&tag.name, tag.keys.len(), rows)?;
            let values = tag.values.len();
            if tag.keys.iter().any(|&key| key != NO_TAG && key as usize >= values) {
                return Err(Error::invalid(format!(
                    "tag {:?}: a key points outside of its {values} values",
                    tag.name
                )));
            }
            names.push(&tag.name);
        }
        for field in &self.fields {
            check_length(&field.name, field.values.len(), rows)?;
            names.push(&field.name);
        }
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(Error::invalid(format!("column {:?} appears twice in one batch", pair[0])))
            }
            None => Ok(()),
        }
    }
}

/// Whole columns of some sensors of one table: the form in which data frames and exports have them.
#[derive(Debug, Clone, Default)]
pub struct SeriesBatch {
    /// The tags, with one row for each series.
    pub tags: Vec<TagColumn>,
    /// The names of the fields, which all series have.
    pub fields: Vec<String>,
    /// The readings, sensor by sensor.
    pub series: Vec<Series>,
}

/// Readings of one sensor. Series of a frame share their times by cloning the buffer.
#[derive(Debug, Clone)]
pub struct Series {
    /// The times in nanoseconds since 1970 UTC, in any order; of equal ones the later row wins.
    pub time: ScalarBuffer<i64>,
    /// One column for each name in [`SeriesBatch::fields`], of a type that
    /// [`crate::FieldType::from_arrow`] knows.
    pub fields: Vec<ArrayRef>,
}

impl SeriesBatch {
    /// A batch whose rows are the first rows of the series: it names all columns of this one.
    pub fn heads(&self) -> WriteBatch {
        let fields = self.fields.iter().enumerate().map(|(place, name)| {
            let first = self.series.iter().find_map(|series| series.fields.get(place));
            let values = match first {
                Some(values) => arrow_array::new_null_array(values.data_type(), self.series.len()),
                None => arrow_array::new_null_array(&arrow_schema::DataType::Float64, 0),
            };
            FieldColumn { name: name.clone(), values }
        });
        WriteBatch {
            time: vec![0; self.series.len()].into(),
            tags: self.tags.clone(),
            fields: fields.collect(),
        }
    }

    /// Checks that every series has all fields, and that all columns have the right length.
    ///
    /// # Errors
    /// `Invalid`, naming the series and the column.
    pub fn check(&self) -> Result<()> {
        self.heads().check()?;
        for (number, series) in self.series.iter().enumerate() {
            let lengths = series.fields.iter().map(|values| values.len());
            if series.fields.len() != self.fields.len()
                || lengths.clone().any(|length| length != series.time.len())
            {
                return Err(Error::invalid(format!(
                    "series {number} has {} times and columns of {:?} values; it needs one value \
                     for each time in each of the fields {:?}",
                    series.time.len(),
                    lengths.collect::<Vec<_>>(),
                    self.fields
                )));
            }
        }
        Ok(())
    }
}

fn check_length(name: &str, found: usize, rows: usize) -> Result<()> {
    if found == rows {
        return Ok(());
    }
    Err(Error::invalid(format!("column {name:?} has {found} values, the batch has {rows} rows")))
}

/// Why one row of a batch was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowError {
    /// The row, counted from 0 in its batch.
    pub row: usize,
    /// The reason.
    pub error: Error,
}

impl RowError {
    /// The row as messages name it, counted from 1 as those of statements and files are.
    pub const fn number(&self) -> usize {
        self.row + 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn parts_of_a_batch_are_its_rows() {
        let lengths = [10_usize, 0, 500, 3, 3, 3, 90, 1];
        let texts = StringArray::from_iter_values(lengths.iter().map(|length| "x".repeat(*length)));
        let field = |name: &str| FieldColumn { name: name.into(), values: Arc::new(texts.clone()) };
        let batch = WriteBatch {
            time: (0..lengths.len() as i64).collect(),
            tags: vec![TagColumn {
                name: "tag".into(),
                values: StringArray::from(vec!["a", "b"]),
                keys: lengths.iter().map(|length| (*length % 2) as u32).collect(),
            }],
            fields: vec![field("one"), field("other")],
        };
        for text_bytes_max in [0, 1, 20, 200, 1_000, usize::MAX] {
            let parts = batch.parts(text_bytes_max);
            let times: Vec<i64> = parts.iter().flat_map(|part| part.time.iter().copied()).collect();
            assert_eq!(times, batch.time[..]);
            for part in parts {
                part.check().unwrap();
                let bytes: usize =
                    part.fields.iter().map(|f| text_bytes(&f.values, 0..part.rows())).sum();
                assert!(bytes <= text_bytes_max || part.rows() == 1);
                let first = part.time[0] as usize;
                let texts = part.fields[1].values.as_string::<i32>();
                for row in 0..part.rows() {
                    assert_eq!(texts.value(row).len(), lengths[first + row]);
                    assert_eq!(part.tags[0].keys[row], (lengths[first + row] % 2) as u32);
                }
            }
        }
    }
}
