//! A question to a table: its sensors and its field, and the ways to read them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, UInt64Array, new_empty_array};
use arrow_buffer::ScalarBuffer;
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat;
use arrow_select::take::take;
use tidefall_storage::{
    Db, Extreme, Frame, Keep, SensorValues, TableSnapshot, TagFilter, union_of_times,
};
use tidefall_types::{Error, FieldId, FieldType, Result, TagId, TimeRange};

/// Which sensors: for each of some tags the values that it may have.
pub type Chosen = Vec<(String, Vec<String>)>;
/// The tags of some sensors: for each tag its name and the value of each sensor.
pub type Tags = Vec<(String, Vec<Option<String>>)>;

/// Values line behind line, all at the same times.
#[derive(Debug, Clone)]
pub struct Block {
    /// The times in nanoseconds since 1970 UTC, ascending.
    pub time: ScalarBuffer<i64>,
    /// The values of each line, one for each time. Of numbers none is null: NaN stands for none.
    pub values: ArrayRef,
    /// How many of them stand for none.
    pub missing: usize,
}

/// A value of each of some sensors.
#[derive(Debug, Clone)]
pub struct Points {
    /// The tags of these.
    pub tags: Tags,
    /// The time of each value in nanoseconds since 1970 UTC.
    pub time: Vec<i64>,
    /// The values; none is null.
    pub values: ArrayRef,
}

/// Expands `$read!(Arrow type)` for the type of a question's field, which must hold numbers.
macro_rules! for_number {
    ($question:expr, $read:ident) => {
        match $question.ty {
            FieldType::I8 => $read!(Int8Type),
            FieldType::I16 => $read!(Int16Type),
            FieldType::I32 => $read!(Int32Type),
            FieldType::I64 => $read!(Int64Type),
            FieldType::U8 => $read!(UInt8Type),
            FieldType::U16 => $read!(UInt16Type),
            FieldType::U32 => $read!(UInt32Type),
            FieldType::U64 => $read!(UInt64Type),
            FieldType::F32 => $read!(Float32Type),
            FieldType::F64 => $read!(Float64Type),
            FieldType::Bool | FieldType::Text | FieldType::Timestamp => {
                Err($question.not_numeric())
            }
        }
    };
}

/// The times and values of a sensor; NaN stands for none.
pub(crate) type Column = (Vec<i64>, Vec<f64>);

/// What is asked of a table: some of its sensors and one of its fields, as they are now.
#[derive(Debug, Clone)]
pub struct Question {
    /// The table at this time.
    pub snapshot: TableSnapshot,
    /// Those that have readings, in the order in which they are answered.
    pub sensors: Vec<u32>,
    /// The field ...
    pub field: FieldId,
    /// ... and its type.
    pub ty: FieldType,
}

/// The chosen sensors that have readings, ordered by their tags; when a single tag chooses, in the order of its values.
fn choose(snapshot: &TableSnapshot, chosen: Chosen) -> Result<Vec<u32>> {
    let order = match &chosen[..] {
        [(tag, values)] => {
            let mut places: HashMap<String, usize> = HashMap::with_capacity(values.len());
            for (place, value) in values.iter().enumerate() {
                places.entry(value.clone()).or_insert(place);
            }
            snapshot.schema().tags.iter().position(|known| known == tag).zip(Some(places))
        }
        _ => None,
    };
    let filters = chosen.into_iter().map(|(tag, values)| TagFilter::In { tag, values });
    let found = snapshot.resolve(&TagFilter::And(filters.collect()))?;
    let mut sensors = snapshot.with_readings(snapshot.sort_sensors(&found))?;
    if let Some((tag, places)) = order
        && places.len() > 1
    {
        let tag = snapshot.tag(TagId(tag as u16));
        let place = |sensor: &u32| tag.of(*sensor).and_then(|value| places.get(value));
        sensors.sort_by_key(place);
    }
    Ok(sensors)
}

fn find_field(snapshot: &TableSnapshot, name: Option<&str>) -> Result<(FieldId, FieldType)> {
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
    /// A question about a field of the chosen sensors; without a name the only one.
    ///
    /// # Errors
    /// `NotFound` when there is no such table, tag or field, `Invalid` when there are several fields and none is named; those of
    /// [`TableSnapshot::with_readings`].
    pub fn new(db: &Db, table: &str, chosen: Chosen, field: Option<&str>) -> Result<Self> {
        let snapshot = db.snapshot(table)?;
        let (field, ty) = find_field(&snapshot, field)?;
        let sensors = choose(&snapshot, chosen)?;
        Ok(Self { snapshot, sensors, field, ty })
    }

    /// A question about the chosen sensors, whatever their fields are.
    ///
    /// # Errors
    /// As [`Question::new`].
    pub fn of_sensors(db: &Db, table: &str, chosen: Chosen) -> Result<Self> {
        let snapshot = db.snapshot(table)?;
        let sensors = choose(&snapshot, chosen)?;
        Ok(Self { snapshot, sensors, field: FieldId(0), ty: FieldType::F64 })
    }

    /// How many lines a frame has. A table without tags has one sensor, be there readings or not.
    pub fn line_count(&self) -> usize {
        match self.snapshot.schema().tags.is_empty() {
            true => 1,
            false => self.sensors.len(),
        }
    }

    /// The tags of all sensors.
    pub fn all_tags(&self) -> Tags {
        self.tags(&self.sensors)
    }

    /// The tags of some sensors.
    fn tags(&self, sensors: &[u32]) -> Tags {
        let names = &self.snapshot.schema().tags;
        let of = |place: usize| {
            let tag = self.snapshot.tag(TagId(place as u16));
            let value = |sensor: &u32| tag.of(*sensor).map(str::to_owned);
            sensors.iter().map(value).collect()
        };
        names.iter().enumerate().map(|(place, name)| (name.clone(), of(place))).collect()
    }

    /// The sensors side by side. Integers with gaps become floats.
    ///
    /// # Errors
    /// `Unsupported` when values are kept by their size and are no numbers; those of [`TableSnapshot::read_sensor`].
    pub fn frame(&self, time: &TimeRange, keep: Option<&Keep>) -> Result<Block> {
        match self.frame_of_type(time, keep)? {
            Some(block) => Ok(block),
            None => self.frame_of_doubles(time, keep),
        }
    }

    /// Each sensor by itself. Integers with gaps become floats, or have nulls where floats cannot hold them.
    ///
    /// # Errors
    /// Those of [`TableSnapshot::read_sensor`].
    pub fn lines(&self, time: &TimeRange) -> impl Iterator<Item = Result<Block>> {
        self.sensors.iter().map(|sensor| self.of_sensor(*sensor).line(time))
    }

    fn line(&self, time: &TimeRange) -> Result<Block> {
        match self.frame_of_type(time, None)? {
            Some(block) => Ok(block),
            None if matches!(self.ty, FieldType::I64 | FieldType::U64) => {
                self.frame_of_others(time)
            }
            None => self.frame_of_doubles(time, None),
        }
    }

    /// The sensors side by side, with values of the field's type; none if these are integers with gaps.
    fn frame_of_type(&self, time: &TimeRange, keep: Option<&Keep>) -> Result<Option<Block>> {
        macro_rules! read {
            ($of:ty) => {{
                let (snapshot, sensors) = (&self.snapshot, &self.sensors);
                let Frame { time, values, missing } = match keep {
                    None => snapshot.read_frame(sensors, time, self.field)?,
                    Some(keep) => snapshot.read_frame_where(sensors, time, self.field, keep)?,
                };
                if missing > 0 && !matches!(self.ty, FieldType::F32 | FieldType::F64) {
                    return Ok(None);
                }
                let values = Arc::new(PrimitiveArray::<$of>::new(values.into(), None));
                Ok(Some(Block { time, values, missing }))
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
        let arrays: Vec<&dyn Array> = arrays.iter().map(|array| &**array).collect();
        let all = match arrays[..] {
            [] => new_empty_array(&self.sent_type()),
            _ => concat(&arrays).map_err(arrow_error)?,
        };
        let values = take(&all, &places, None).map_err(arrow_error)?;
        Ok(Block { time, values, missing })
    }

    /// The type of values of the field: of text that which can take more than 2 GiB.
    pub(crate) fn sent_type(&self) -> DataType {
        match self.ty {
            FieldType::Text => DataType::LargeUtf8,
            ty => ty.arrow(),
        }
    }

    /// Values in that type.
    fn without_limit(&self, values: &ArrayRef) -> Result<ArrayRef> {
        cast(values, &self.sent_type()).map_err(arrow_error)
    }

    /// Integers with gaps, which only floats can express.
    fn frame_of_doubles(&self, time: &TimeRange, keep: Option<&Keep>) -> Result<Block> {
        let read = |sensor: &u32| -> Result<Column> {
            let series = self.snapshot.read_sensor(*sensor, time, &[self.field])?;
            let values = self.doubles(&series.fields[0])?;
            let rows = series.time.iter().copied().zip(values);
            Ok(rows.filter(|(_, value)| keep.is_none_or(|keep| keep.keeps(*value))).unzip())
        };
        block(&self.sensors.iter().map(read).collect::<Result<Vec<_>>>()?, usize::MAX)
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

    /// The least or greatest value of each sensor that has one, and its time.
    ///
    /// # Errors
    /// `Unsupported` when the field holds no numbers; those of [`TableSnapshot::read_sensor`].
    pub fn extremes(&self, time: &TimeRange, which: Extreme) -> Result<Points> {
        macro_rules! read {
            ($of:ty) => {{
                let (snapshot, sensors) = (&self.snapshot, &self.sensors);
                type Native = <$of as ArrowPrimitiveType>::Native;
                let found = snapshot.extremes::<Native>(sensors, time, self.field, which)?;
                let has = |place: &usize| found[*place].is_some();
                let sensors = (0..found.len()).filter(has).map(|place| sensors[place]);
                let tags = self.tags(&sensors.collect::<Vec<_>>());
                let (time, values): (_, Vec<_>) = found.iter().flatten().copied().unzip();
                let values = Arc::new(PrimitiveArray::<$of>::new(values.into(), None));
                Ok(Points { tags, time, values })
            }};
        }
        for_number!(self, read)
    }

    /// The value of each sensor that has one at exactly this time.
    ///
    /// # Errors
    /// Those of [`TableSnapshot::at`].
    pub fn at(&self, time_ns: i64) -> Result<Points> {
        self.points(self.snapshot.at(&self.sensors, time_ns, self.field)?)
    }

    /// The latest value of each sensor that has one.
    ///
    /// # Errors
    /// Those of [`TableSnapshot::latest`].
    pub fn latest(&self) -> Result<Points> {
        self.points(self.snapshot.latest(&self.sensors, self.field)?)
    }

    fn points(&self, found: SensorValues) -> Result<Points> {
        let values = self.without_limit(&found.values)?;
        Ok(Points { tags: self.tags(&found.sensors), time: found.time, values })
    }
}

pub(crate) fn arrow_error(error: ArrowError) -> Error {
    Error::limit(format!("columns cannot be put together: {error}"))
}

/// Refuses to compute more values at once.
pub(crate) fn check_values(values: usize, values_max: usize) -> Result<()> {
    if values <= values_max {
        return Ok(());
    }
    Err(Error::limit(format!(
        "the answer may have {values} values, and with this memory budget {values_max} are computed at once; ask for less \
         time, fewer sensors or wider bins"
    )))
}

/// Lays columns side by side, if that makes at most so many values.
pub(crate) fn block(columns: &[Column], values_max: usize) -> Result<Block> {
    if values_max != usize::MAX {
        let times: Vec<&[i64]> = columns.iter().map(|(times, _)| &times[..]).collect();
        check_values(union_of_times(&times).len().saturating_mul(columns.len()), values_max)?;
    }
    let missing =
        columns.iter().flat_map(|(_, values)| values).filter(|value| value.is_nan()).count();
    let slices: Vec<(&[i64], &[f64])> = columns.iter().map(|(t, v)| (&t[..], &v[..])).collect();
    let Frame { time, values, missing } = Frame::side_by_side(&slices, missing)?;
    let values = Arc::new(PrimitiveArray::<Float64Type>::new(values.into(), None));
    Ok(Block { time, values, missing })
}
