//! A question to a table: its sensors and its field, and the ways to read them.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_cast::cast;
use arrow_schema::DataType;
use tidefall_storage::{
    AggregateRequest, Bin, Extreme, Frame, Keep, ReadStats, SensorValues, TableSnapshot, cores,
    spread,
};
use tidefall_types::{Error, FieldId, FieldType, Result, TagId, TimeRange};

use crate::array::Array;
use crate::stream::arrow_error;

/// The tags of some sensors: for each tag its name and the value of each sensor.
pub(crate) type Tags = Vec<(String, Vec<Option<String>>)>;
/// Times, values (a line for each sensor, a place for each time), and how many are missing.
pub(crate) type Block = (Array, Array, usize);

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
type Column = (Vec<i64>, Vec<f64>);

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
        let wanted = match name {
            Some(name) => format!("no field {name:?}"),
            None => "several fields; name one".to_owned(),
        };
        Error::not_found(format!("table {} has {wanted}: {}", schema.name, names.join(", ")))
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

    /// The sensors side by side.
    pub(crate) fn frame(&self, time: &TimeRange, keep: Option<&Keep>) -> Result<Block> {
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
                    return self.frame_of_doubles(time, keep);
                }
                let values = Array::matrix(frame.values, self.sensors.len(), rows);
                Ok((Array::times(frame.time.into()), values, missing))
            }};
        }
        for_number!(self, read)
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

    fn not_numeric(&self) -> Error {
        let schema = self.snapshot.schema();
        let name = &schema.fields[self.field.index()].name;
        Error::unsupported(format!("field {name:?} holds no numbers; read it with SQL"))
    }

    fn doubles(&self, values: &ArrayRef) -> Result<Vec<f64>> {
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
    ) -> Result<(Tags, Array, Array)> {
        macro_rules! read {
            ($native:ty) => {{
                let (snapshot, sensors) = (&self.snapshot, &self.sensors);
                let found = snapshot.extremes::<$native>(sensors, time, self.field, which)?;
                let has = |place: &usize| found[*place].is_some();
                let sensors = (0..found.len()).filter(has).map(|place| sensors[place]);
                let tags = self.tags(&sensors.collect::<Vec<_>>());
                let (times, values) = found.iter().flatten().copied().unzip();
                Ok((tags, Array::times(times), Array::new::<$native>(values)))
            }};
        }
        for_number!(self, read)
    }

    pub(crate) fn moments(&self, found: SensorValues) -> Result<(Tags, Array, Array)> {
        let values = Array::new(self.doubles(&found.values)?);
        Ok((self.tags(&found.sensors), Array::times(found.time), values))
    }

    /// The sensors side by side in bins, of each of which one aggregate is made.
    pub(crate) fn resample(&self, time: TimeRange, bin: Bin, what: Aggregate) -> Result<Block> {
        let bins_of = |sensor, _: &mut ()| self.bins_of(sensor, time, bin, what);
        block(&spread(cores(), self.sensors.clone(), bins_of)?)
    }

    fn bins_of(&self, sensor: u32, time: TimeRange, bin: Bin, what: Aggregate) -> Result<Column> {
        let request = AggregateRequest {
            groups: vec![0],
            group_count: 1,
            sensors: vec![sensor],
            time,
            bin: Some(bin),
            fields: vec![self.field],
        };
        let found = self.snapshot.aggregate(&request, &Arc::new(ReadStats::default()))?;
        let metrics =
            found.fields.first().ok_or_else(|| Error::invalid("an aggregate without a field"))?;
        let count = |line: usize| metrics.count[line] as f64;
        let lines = 0..found.group.len();
        let values = match what {
            Aggregate::Mean => lines.map(|line| metrics.sum_f64[line] / count(line)).collect(),
            Aggregate::Count => lines.map(count).collect(),
            Aggregate::Std => lines.map(|line| deviation(metrics.m2[line], count(line))).collect(),
            Aggregate::Sum => self.doubles(&metrics.sum)?,
            Aggregate::Min => self.doubles(&metrics.min)?,
            Aggregate::Max => self.doubles(&metrics.max)?,
            Aggregate::First => self.doubles(&metrics.first)?,
            Aggregate::Last => self.doubles(&metrics.last)?,
        };
        Ok((found.bin_start_ns, values))
    }
}

/// What is made of the values of a bin.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aggregate {
    Mean,
    Count,
    Std,
    Sum,
    Min,
    Max,
    First,
    Last,
}

impl Aggregate {
    pub(crate) fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "mean" => Self::Mean,
            "count" => Self::Count,
            "std" => Self::Std,
            "sum" => Self::Sum,
            "min" => Self::Min,
            "max" => Self::Max,
            "first" => Self::First,
            "last" => Self::Last,
            other => {
                return Err(Error::invalid(format!(
                    "there is no aggregate {other:?}; there are mean, count, std, sum, min, max, \
                     first and last"
                )));
            }
        })
    }
}

/// Lays columns side by side.
fn block(columns: &[Column]) -> Result<Block> {
    let missing =
        columns.iter().flat_map(|(_, values)| values).filter(|value| value.is_nan()).count();
    let slices: Vec<(&[i64], &[f64])> = columns.iter().map(|(t, v)| (&t[..], &v[..])).collect();
    let Frame { time, values, missing } = Frame::side_by_side(&slices, missing)?;
    let values = Array::matrix(values, columns.len(), time.len());
    Ok((Array::times(time.into()), values, missing))
}

/// The deviation of a sample, as in SQL and pandas.
fn deviation(m2: f64, count: f64) -> f64 {
    if count > 1.0 { (m2 / (count - 1.0)).sqrt() } else { f64::NAN }
}
