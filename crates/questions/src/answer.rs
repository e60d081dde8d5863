//! An answer as a client gets it: record batches of Arrow.

use std::sync::Arc;

use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{
    Array, ArrayRef, LargeListArray, PrimitiveArray, RecordBatch, StringArray, new_empty_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::concat::concat;
use tidefall_storage::{Db, Extreme, Keep};
use tidefall_types::{FieldType, Result, TimeRange};

use crate::ask::{Ask, Asked, Kept, aggregates, range_of};
use crate::pieces::Pieces;
use crate::question::{Block, Points, Question, Tags, arrow_error, check_values};

/// Values of a piece of an answer at most, about: more make nothing faster.
const PIECE_VALUES: usize = 2 << 20;

/// How many values may be computed at once.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Of what cannot be sent piece by piece, at most.
    pub max: usize,
    /// Of a piece, about.
    pub piece: usize,
}

/// The batches of an answer. Each is computed when it is asked for.
pub struct Answer {
    /// Their columns.
    pub schema: SchemaRef,
    /// The batches themselves.
    pub batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send>,
}

impl Asked {
    /// Whether it asks for rows or bins, which may be many, and not for a value a sensor.
    pub fn has_pieces(&self) -> bool {
        matches!(self.ask, Ask::Frame(_) | Ask::Series | Ask::Resample(..))
    }

    /// Answers it.
    ///
    /// # Errors
    /// Those of [`Question`], also in the batches; `Limit` for more values.
    pub fn answer(self, db: &Db, sizes: Sizes) -> Result<Answer> {
        let values_max = sizes.max;
        let (time, field) = (range_of(self.start, self.end), self.field.as_deref());
        let question = match self.ask {
            Ask::Sensors | Ask::Extent | Ask::FrameEnd(_) => {
                Question::of_sensors(db, &self.table, self.sensors)?
            }
            _ => Question::new(db, &self.table, self.sensors, field)?,
        };
        match self.ask {
            Ask::Sensors => one(tag_columns(question.all_tags())),
            Ask::Extent => extent(&question, &time),
            Ask::FrameEnd(rows) => {
                check_values(rows_max(&question, &time)?, values_max)?;
                let end_ns =
                    question.snapshot.frame_end(&question.sensors, &time, rows.min(values_max))?;
                one(vec![("time".into(), times(vec![end_ns]))])
            }
            Ask::Frame(keep) => frame(question, time, keep.map(Kept::keep), sizes),
            Ask::Series => series(question, time, sizes),
            Ask::At(time_ns) => points(question.at(time_ns)?),
            Ask::Latest => points(question.latest()?),
            Ask::Lowest => points(question.extremes(&time, Extreme::Lowest)?),
            Ask::Highest => points(question.extremes(&time, Extreme::Highest)?),
            Ask::Resample(bins, names) => {
                let (bins, what) = (bins.bins()?, aggregates(&names)?);
                let block = question.resample(time, bins, &what, values_max)?;
                let columns = Columns::of_frame(&question, &DataType::Float64);
                let batch = columns.batch(question.all_tags(), &[block])?;
                Ok(Answer { schema: columns.schema, batches: Box::new([Ok(batch)].into_iter()) })
            }
        }
    }
}

/// An answer of one batch.
fn one(columns: Vec<(String, ArrayRef)>) -> Result<Answer> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, values)| Field::new(name, values.data_type().clone(), true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let columns: Vec<ArrayRef> = columns.into_iter().map(|(_, values)| values).collect();
    // Without columns there is nothing to be told.
    let batch = match columns.is_empty() {
        true => RecordBatch::new_empty(Arc::clone(&schema)),
        false => RecordBatch::try_new(Arc::clone(&schema), columns).map_err(arrow_error)?,
    };
    Ok(Answer { schema, batches: Box::new([Ok(batch)].into_iter()) })
}

fn times(values: Vec<i64>) -> ArrayRef {
    Arc::new(PrimitiveArray::<TimestampNanosecondType>::new(values.into(), None))
}

fn tag_columns(tags: Tags) -> Vec<(String, ArrayRef)> {
    let column = |values: Vec<Option<String>>| Arc::new(StringArray::from(values)) as ArrayRef;
    tags.into_iter().map(|(name, values)| (name, column(values))).collect()
}

fn extent(question: &Question, time: &TimeRange) -> Result<Answer> {
    let found = question.snapshot.extent(&question.sensors, time)?;
    let (first, last) = found.iter().map(|(time, _)| (time.first_ns, time.last_ns)).unzip();
    let count = |of: &dyn Fn(usize) -> usize| -> ArrayRef {
        let counts = found.iter().map(|(_, rows)| of(*rows) as i64);
        Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(counts))
    };
    one(vec![
        ("first".into(), times(first)),
        ("last".into(), times(last)),
        ("rows".into(), count(&|rows| rows)),
        ("sensors".into(), count(&|_| question.sensors.len())),
    ])
}

fn points(Points { tags, time, values }: Points) -> Result<Answer> {
    let mut columns = tag_columns(tags);
    columns.push(("time".into(), times(time)));
    columns.push(("value".into(), values));
    one(columns)
}

/// The most rows of a sensor, no less than there are.
fn rows_max(question: &Question, time: &TimeRange) -> Result<usize> {
    let found = question.snapshot.extent(&question.sensors, time)?;
    Ok(found.map_or(0, |(_, rows)| rows))
}

/// A batch for each piece, of one row: the tags of all sensors, the times, and the values line behind line.
fn frame(question: Question, time: TimeRange, keep: Option<Keep>, sizes: Sizes) -> Result<Answer> {
    let columns = Columns::of_frame(&question, &question.sent_type());
    let schema = Arc::clone(&columns.schema);
    let tags = question.all_tags();
    let pieces = Pieces::new(question, time, keep, sizes.piece.min(PIECE_VALUES), sizes.max);
    let batches = pieces.map(move |block| columns.batch(tags.clone(), &[block?]));
    Ok(Answer { schema, batches: Box::new(batches) })
}

/// A row for each sensor: its tags, its times and its values.
fn series(question: Question, time: TimeRange, sizes: Sizes) -> Result<Answer> {
    let most = rows_max(&question, &time)?;
    check_values(most, sizes.max)?;
    let columns = Columns::of_series(&question, &question.sent_type());
    let schema = Arc::clone(&columns.schema);
    let tags = question.all_tags();
    // Nobody knows how long texts are before they are read.
    let step = match question.ty {
        FieldType::Text => 1,
        _ => (sizes.piece.min(PIECE_VALUES) / most.max(1)).max(1),
    };
    let starts = (0..question.sensors.len()).step_by(step);
    let batches = starts.map(move |start| {
        let sensors = &question.sensors[start..question.sensors.len().min(start + step)];
        let part = Question { sensors: sensors.to_vec(), ..question.clone() };
        let blocks = match question.ty {
            FieldType::Text => vec![texts(part, time, sizes.max)?],
            _ => part.lines(&time).collect::<Result<Vec<Block>>>()?,
        };
        let of_part = |(name, values): &(String, Vec<Option<String>>)| {
            (name.clone(), values[start..start + sensors.len()].to_vec())
        };
        columns.batch(tags.iter().map(of_part).collect(), &blocks)
    });
    Ok(Answer { schema, batches: Box::new(batches) })
}

/// The texts of one sensor, which must not take more than so many values do.
fn texts(question: Question, time: TimeRange, values_max: usize) -> Result<Block> {
    let pieces = Pieces::new(question, time, None, PIECE_VALUES, values_max);
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for piece in pieces {
        let piece = piece?;
        bytes += piece.values.get_array_memory_size();
        check_values(bytes / size_of::<f64>(), values_max)?;
        parts.push(piece);
    }
    let values: Vec<&dyn Array> = parts.iter().map(|piece| &*piece.values).collect();
    let values = concat(&values).map_err(arrow_error)?;
    let time = parts.iter().flat_map(|piece| piece.time.iter().copied()).collect();
    Ok(Block { time, values, missing: parts.iter().map(|piece| piece.missing).sum() })
}

/// The columns of blocks, a row each: tags, times, values in the type of the field, those that are floats instead because some are missing, and how
/// many are.
struct Columns {
    schema: SchemaRef,
    /// Whether a row has the tags of all sensors, or those of its own.
    has_lists_of_tags: bool,
    values: DataType,
}

impl Columns {
    fn of_frame(question: &Question, values: &DataType) -> Self {
        Self::new(question, values, true)
    }

    fn of_series(question: &Question, values: &DataType) -> Self {
        Self::new(question, values, false)
    }

    fn new(question: &Question, values: &DataType, has_lists_of_tags: bool) -> Self {
        let tag_type = match has_lists_of_tags {
            true => list_of(&DataType::Utf8),
            false => DataType::Utf8,
        };
        let tags = question.snapshot.schema().tags.iter();
        let mut fields: Vec<Field> =
            tags.map(|tag| Field::new(tag, tag_type.clone(), true)).collect();
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        fields.push(Field::new("time", list_of(&time), true));
        fields.push(Field::new("values", list_of(values), true));
        fields.push(Field::new("floats", list_of(&DataType::Float64), true));
        fields.push(Field::new("missing", DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields));
        Self { schema, has_lists_of_tags, values: values.clone() }
    }

    fn batch(&self, tags: Tags, blocks: &[Block]) -> Result<RecordBatch> {
        let tags = tag_columns(tags).into_iter().map(|(_, values)| match self.has_lists_of_tags {
            true => lists(&DataType::Utf8, &[Some(values)]),
            false => Ok(values),
        });
        let mut columns: Vec<ArrayRef> = tags.collect::<Result<_>>()?;
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let of_time = |block: &Block| Some(times(block.time.to_vec()));
        columns.push(lists(&time, &blocks.iter().map(of_time).collect::<Vec<_>>())?);
        let of_type = |block: &Block| {
            let values = &block.values;
            (*values.data_type() == self.values).then(|| Arc::clone(values))
        };
        let values: Vec<Option<ArrayRef>> = blocks.iter().map(of_type).collect();
        let others = blocks.iter().zip(&values);
        let others: Vec<Option<ArrayRef>> = others
            .map(|(block, values)| values.is_none().then(|| Arc::clone(&block.values)))
            .collect();
        columns.push(lists(&self.values, &values)?);
        columns.push(lists(&DataType::Float64, &others)?);
        let missing = blocks.iter().map(|block| block.missing as i64);
        columns.push(Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(missing)));
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(arrow_error)
    }
}

fn list_of(item: &DataType) -> DataType {
    DataType::LargeList(Arc::new(Field::new_list_field(item.clone(), true)))
}

/// A column with a list in each row, or nothing.
fn lists(item: &DataType, rows: &[Option<ArrayRef>]) -> Result<ArrayRef> {
    let lengths = rows.iter().map(|row| row.as_ref().map_or(0, |values| values.len()));
    let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
    let nulls: NullBuffer = rows.iter().map(Option::is_some).collect();
    let there: Vec<&dyn Array> = rows.iter().flatten().map(|values| &**values).collect();
    let values = match there[..] {
        [] => new_empty_array(item),
        _ => concat(&there).map_err(arrow_error)?,
    };
    let field = Arc::new(Field::new_list_field(item.clone(), true));
    let list = LargeListArray::try_new(field, offsets, values, Some(nulls));
    Ok(Arc::new(list.map_err(arrow_error)?))
}
