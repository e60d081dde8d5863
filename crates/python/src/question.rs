//! A question to a table: its sensors and its field, and the ways to read them.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array as _, ArrayRef, UInt64Array, new_empty_array};
use arrow_buffer::ArrowNativeType;
use arrow_cast::cast;
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;
use pyo3::IntoPyObject;
use tidefall_storage::{Extreme, Frame, Keep, SensorValues, TableSnapshot};
use tidefall_types::{Error, FieldId, FieldType, Result, TagId, TimeRange};

use crate::array::Array;
use crate::stream::{Batch, arrow_error};

/// The tags of some sensors: for each tag its name and the value of each sensor.
pub(crate) type Tags = Vec<(String, Vec<Option<String>>)>;
/// Times, values (a line for each sensor, a place for each time), and how many are missing.
pub(crate) type Block = (Array, Values, usize);
/// The times and values of one sensor.
pub(crate) type Line = (Array, Values);

/// Values on their way to Python: numbers as memory that numpy views, text and booleans as a column of Arrow, line
/// behind line.
#[derive(IntoPyObject)]
pub(crate) enum Values {
    Numbers(Array),
    Others(Batch),
}

/// Expands `$read!(native type)` for the type of a question's field, which must hold numbers.
macro_rules! for_number {
    ($question:expr, $read:ident) => {
        match $question.ty {
            FieldType::I8 => $read!(i8),
            FieldType::I16 => $read!(i16),
            FieldType::I32 => $read!(i32),
            FieldType::I64 => $read!(i64),
            FieldType::U8 => $read!(u8),
            FieldType::U16 => $read!(u16),
            FieldType::U32 => $read!(u32),
            FieldType::U64 => $read!(u64),
            FieldType::F32 => $read!(f32),
            FieldType::F64 => $read!(f64),
            FieldType::Bool | FieldType::Text | FieldType::Timestamp => {
                Err($question.not_numeric())
            }
        }
    };
}

/// The times and values of a sensor; NaN stands for none.
pub(crate) type Column = (Vec<i64>, Vec<f64>);

/// What is asked of a table.
pub(crate) struct Question {
    pub(crate) snapshot: TableSnapshot,
    pub(crate) sensors: Vec<u32>,
    pub(crate) field: FieldId,
    pub(crate) ty: FieldType,
}

pub(crate) fn find_field(
    snapshot: &TableSnapshot,
    name: Option<&str>,
) -> Result<(FieldId, FieldType)> {
    let schema = snapshot.schema();
    let place = match name {
        Some(name) => schema.fields.iter().position(|field| field.name == name),
        None if schema.fields.len() == 1 => Some(0),
        None => None,
    };
    let place = place.ok_or_else(|| {
        let names: Vec<&str> = schema.fields.iter().map(|field| field.name.as_str()).collect();
        let (table, names) = (&schema.name, names.join(", "));
        match name {
            Some(name) => Error::not_found(format!("table {table} has no field {name:?}: {names}")),
            None => Error::invalid(format!("table {table} has several fields; name one: {names}")),
        }
    })?;
    Ok((FieldId(place as u16), schema.fields[place].ty))
}

impl Question {
    /// The tags of some sensors.
    pub(crate) fn tags(&self, sensors: &[u32]) -> Tags {
        let names = &self.snapshot.schema().tags;
        let of = |place: usize| {
            let tag = self.snapshot.tag(TagId(place as u16));
            let value = |sensor: &u32| tag.of(*sensor).map(str::to_owned);
            sensors.iter().map(value).collect()
        };
        names.iter().enumerate().map(|(place, name)| (name.clone(), of(place))).collect()
    }

    /// The sensors side by side. Integers with gaps become floats.
    pub(crate) fn frame(&self, time: &TimeRange, keep: Option<&Keep>) -> Result<Block> {
        match self.frame_of_type(time, keep)? {
            Some(block) => Ok(block),
            None => self.frame_of_doubles(time, keep),
        }
    }

    /// The only sensor, by itself. Integers with gaps become floats, or a column of Arrow where floats cannot hold them.
    pub(crate) fn line(&self, time: &TimeRange) -> Result<Line> {
        let (times, values, _) = match self.frame_of_type(time, None)? {
            Some(block) => block,
            None if matches!(self.ty, FieldType::I64 | FieldType::U64) => {
                self.frame_of_others(time)?
            }
            None => self.frame_of_doubles(time, None)?,
        };
        Ok((times, values))
    }

    /// The sensors side by side, with values of the field's type; none if these are integers with gaps.
    fn frame_of_type(&self, time: &TimeRange, keep: Option<&Keep>) -> Result<Option<Block>> {
        macro_rules! read {
            ($native:ty) => {{
                let (snapshot, sensors) = (&self.snapshot, &self.sensors);
                let frame = match keep {
                    None => snapshot.read_frame::<$native>(sensors, time, self.field)?,
                    Some(keep) => {
                        snapshot.read_frame_where::<$native>(sensors, time, self.field, keep)?
                    }
                };
                let (rows, missing) = (frame.time.len(), frame.missing);
                if missing > 0 && !matches!(self.ty, FieldType::F32 | FieldType::F64) {
                    return Ok(None);
                }
                let values = Array::matrix(frame.values, self.sensors.len(), rows);
                Ok(Some((Array::times(frame.time.into()), Values::Numbers(values), missing)))
            }};
        }
        match keep {
            None if !self.ty.is_numeric() => self.frame_of_others(time).map(Some),
            _ => for_number!(self, read),
        }
    }

    /// The same about one sensor.
    pub(crate) fn of_sensor(&self, sensor: u32) -> Self {
        let Self { snapshot, field, ty, .. } = self;
        Self { snapshot: snapshot.clone(), sensors: vec![sensor], field: *field, ty: *ty }
    }

    /// Values for which numpy has no type, or none with gaps: their places are laid side by side as if they were the values, and then exchanged
    /// for these.
    fn frame_of_others(&self, time: &TimeRange) -> Result<Block> {
        let mut columns = Vec::with_capacity(self.sensors.len());
        let mut arrays = Vec::with_capacity(self.sensors.len());
        let (mut behind, mut missing) = (0_i64, 0);
        for sensor in &self.sensors {
            let series = self.snapshot.read_sensor(*sensor, time, &[self.field])?;
            let values = self.without_limit(&series.fields[0])?;
            // 0 stands for none.
            let place = |row| if values.is_valid(row) { behind + row as i64 + 1 } else { 0 };
            columns.push((series.time, (0..values.len()).map(place).collect::<Vec<i64>>()));
            behind += values.len() as i64;
            missing += values.null_count();
            arrays.push(values);
        }
        let columns: Vec<(&[i64], &[i64])> =
            columns.iter().map(|(times, places)| (&times[..], &places[..])).collect();
        let Frame { time, values: places, missing } = Frame::side_by_side(&columns, missing)?;
        let places: UInt64Array =
            places.iter().map(|place| (*place > 0).then(|| *place as u64 - 1)).collect();
        let arrays: Vec<&dyn arrow_array::Array> = arrays.iter().map(|array| &**array).collect();
        let all = match arrays[..] {
            [] => new_empty_array(&self.ty.arrow()),
            _ => concat(&arrays).map_err(arrow_error)?,
        };
        let values = take(&all, &places, None).map_err(arrow_error)?;
        Ok((Array::times(time.into()), Values::Others(Batch::of(values)?), missing))
    }

    /// Text in the form that can take more than 2 GiB; other values as they are.
    fn without_limit(&self, values: &ArrayRef) -> Result<ArrayRef> {
        match self.ty {
            FieldType::Text => cast(values, &DataType::LargeUtf8).map_err(arrow_error),
            _ => Ok(values.clone()),
        }
    }

    /// Integers with gaps, which only floats can express.
    fn frame_of_doubles(&self, time: &TimeRange, keep: Option<&Keep>) -> Result<Block> {
        let read = |sensor: &u32| -> Result<Column> {
            let series = self.snapshot.read_sensor(*sensor, time, &[self.field])?;
            let values = self.doubles(&series.fields[0])?;
            let rows = series.time.iter().copied().zip(values);
            Ok(rows.filter(|(_, value)| keep.is_none_or(|keep| keep.keeps(*value))).unzip())
        };
        block(&self.sensors.iter().map(read).collect::<Result<Vec<_>>>()?)
    }

    pub(crate) fn not_numeric(&self) -> Error {
        let schema = self.snapshot.schema();
        let name = &schema.fields[self.field.index()].name;
        Error::unsupported(format!("field {name:?} holds no numbers; read it with SQL"))
    }

    pub(crate) fn doubles(&self, values: &ArrayRef) -> Result<Vec<f64>> {
        if !self.ty.is_numeric() {
            return Err(self.not_numeric());
        }
        let values = cast(values, &DataType::Float64).map_err(arrow_error)?;
        let values = values.as_primitive::<Float64Type>();
        Ok(values.iter().map(|value| value.unwrap_or(f64::NAN)).collect())
    }

    /// The least or greatest value of each sensor.
    pub(crate) fn extremes(
        &self,
        time: &TimeRange,
        which: Extreme,
    ) -> Result<(Tags, Array, Values)> {
        macro_rules! read {
            ($native:ty) => {{
                let (snapshot, sensors) = (&self.snapshot, &self.sensors);
                let found = snapshot.extremes::<$native>(sensors, time, self.field, which)?;
                let has = |place: &usize| found[*place].is_some();
                let sensors = (0..found.len()).filter(has).map(|place| sensors[place]);
                let tags = self.tags(&sensors.collect::<Vec<_>>());
                let (times, values) = found.iter().flatten().copied().unzip();
                let values = Values::Numbers(Array::new::<$native>(values));
                Ok((tags, Array::times(times), values))
            }};
        }
        for_number!(self, read)
    }

    pub(crate) fn points(&self, found: SensorValues) -> Result<(Tags, Array, Values)> {
        macro_rules! read {
            ($native:ty) => {
                Ok(Values::Numbers(Array::new(natives::<$native>(&found.values))))
            };
        }
        let values = match self.ty.is_numeric() {
            true => for_number!(self, read)?,
            false => Values::Others(Batch::of(self.without_limit(&found.values)?)?),
        };
        Ok((self.tags(&found.sensors), Array::times(found.time), values))
    }
}

/// The numbers of an array of which none is null.
fn natives<T: ArrowNativeType>(values: &ArrayRef) -> Vec<T> {
    debug_assert_eq!(values.null_count(), 0, "a value that is not there");
    values.to_data().buffer::<T>(0)[..values.len()].to_vec()
}

/// Lays columns side by side.
pub(crate) fn block(columns: &[Column]) -> Result<Block> {
    let missing =
        columns.iter().flat_map(|(_, values)| values).filter(|value| value.is_nan()).count();
    let slices: Vec<(&[i64], &[f64])> = columns.iter().map(|(t, v)| (&t[..], &v[..])).collect();
    let Frame { time, values, missing } = Frame::side_by_side(&slices, missing)?;
    let values = Array::matrix(values, columns.len(), time.len());
    Ok((Array::times(time.into()), Values::Numbers(values), missing))
}
