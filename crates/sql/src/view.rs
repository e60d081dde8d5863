//! A snapshot of a table in Arrow's terms.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, DictionaryArray, StringBuilder, UInt32Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion::common::{HashMap, ScalarValue};
use datafusion::error::Result;
use tidefall_storage::{BATCH_ROWS, SensorTag, TableSnapshot};
use tidefall_types::{
    Column, ColumnKind, FieldId, NO_TAG, TableSchema, TagId, TimeRange, format_time,
};

use crate::fit::Slot;

/// A snapshot of a table with its columns in Arrow's terms.
pub(crate) struct View {
    snapshot: TableSnapshot,
    arrow: SchemaRef,
}

/// Up to so many values, all arrays made of a tag share one dictionary. Of more, each has those that it needs:
/// DataFusion looks at all values of the dictionary of each batch.
const SHARED_VALUES_MAX: usize = BATCH_ROWS;

/// Where so many times fewer keys are wanted than there are values, they are ordered alone.
const RANKED_SHARE_MAX: usize = 8;

/// A tag of the sensors of a snapshot.
pub(crate) struct TagView<'a> {
    tag: SensorTag<'a>,
}

impl TagView<'_> {
    /// The tag of each of `sensors`.
    pub(crate) fn of_sensors(&self, sensors: &[u32]) -> Result<ArrayRef> {
        self.of_keys(sensors.iter().map(|sensor| self.key(*sensor)))
    }

    /// The values with some keys, null for [`NO_TAG`].
    pub(crate) fn of_keys(&self, keys: impl Iterator<Item = u32>) -> Result<ArrayRef> {
        if self.tag.value_count() > SHARED_VALUES_MAX {
            return self.of_few_keys(keys);
        }
        let keys: Vec<u32> = keys.collect();
        let values = Arc::new(self.tag.dictionary());
        let keys = if keys.contains(&NO_TAG) {
            keys.into_iter().map(|key| (key != NO_TAG).then_some(key)).collect()
        } else {
            UInt32Array::from(keys)
        };
        Ok(Arc::new(DictionaryArray::<UInt32Type>::try_new(keys, values)?))
    }

    /// As [`Self::of_keys`], with a dictionary of the values that occur.
    fn of_few_keys(&self, keys: impl Iterator<Item = u32>) -> Result<ArrayRef> {
        let mut places: HashMap<u32, u32> = HashMap::new();
        let mut values = StringBuilder::new();
        let mut last = (NO_TAG, None);
        let place = |key: u32| {
            // Rows of one sensor follow each other.
            if key != last.0 {
                let next = places.len() as u32;
                let place = self.tag.value(key).map(|value| {
                    *places.entry(key).or_insert_with(|| {
                        values.append_value(value);
                        next
                    })
                });
                last = (key, place);
            }
            last.1
        };
        let keys: UInt32Array = keys.map(place).collect();
        let values = Arc::new(values.finish());
        Ok(Arc::new(DictionaryArray::<UInt32Type>::try_new(keys, values)?))
    }

    /// How many values the tag has among all sensors of the table.
    pub(crate) fn value_count(&self) -> usize {
        self.tag.value_count()
    }

    /// The key of the value that a sensor has, or [`NO_TAG`].
    pub(crate) fn key(&self, sensor: u32) -> u32 {
        self.tag.key(sensor)
    }

    /// The keys of the values that some sensors have, best in their order.
    pub(crate) fn keys(&self, sensors: &[u32]) -> Vec<u32> {
        self.tag.keys(sensors)
    }

    /// The place of each of some keys in the order of their values, and a bound of these places; [`NO_TAG`] comes last.
    pub(crate) fn ranks(&self, keys: &[u32]) -> (Vec<u32>, u32) {
        let count = self.tag.value_count();
        if keys.len() >= count / RANKED_SHARE_MAX {
            let order = self.tag.order();
            let behind = count as u32;
            return (keys.iter().map(|key| order.rank(*key).min(behind)).collect(), behind + 1);
        }
        let mut known: Vec<u32> = keys.to_vec();
        known.sort_unstable();
        known.dedup();
        known.sort_by_key(|key| (*key == NO_TAG, self.tag.value(*key)));
        let places: HashMap<u32, u32> = known.iter().copied().zip(0..).collect();
        (keys.iter().map(|key| places[key]).collect(), known.len() as u32)
    }

    /// The order of two sensors by this tag; those without a value come last.
    pub(crate) fn compare(&self, one: u32, other: u32) -> Ordering {
        match [self.key(one), self.key(other)] {
            [one, other] if one == other => Ordering::Equal,
            [NO_TAG, _] => Ordering::Greater,
            [_, NO_TAG] => Ordering::Less,
            [one, other] => self.tag.value(one).cmp(&self.tag.value(other)),
        }
    }

    /// The tag of a sensor, in the type of its column.
    pub(crate) fn scalar(&self, sensor: u32) -> ScalarValue {
        let value = Box::new(ScalarValue::Utf8(self.tag.of(sensor).map(str::to_owned)));
        ScalarValue::Dictionary(Box::new(DataType::UInt32), value)
    }

    /// Whether all of `sensors` have the same value, or all have none.
    pub(crate) fn is_constant(&self, sensors: &[u32]) -> bool {
        let mut keys = sensors.iter().map(|&sensor| self.key(sensor));
        match keys.next() {
            Some(first) => keys.all(|key| key == first),
            None => true,
        }
    }
}

/// A view is equal to itself alone: what two snapshots show may differ.
impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for View {}

impl Hash for View {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

impl View {
    /// A view of `snapshot`.
    pub(crate) fn new(snapshot: TableSnapshot) -> Self {
        let schema = snapshot.schema();
        let fields: Vec<Field> = schema
            .columns
            .iter()
            .map(|column| {
                let nullable = column.kind != ColumnKind::Time;
                Field::new(&column.name, schema.arrow_type(column.kind), nullable)
            })
            .collect();
        let arrow = Arc::new(Schema::new(fields));
        Self { snapshot, arrow }
    }

    /// The table's schema in this snapshot.
    pub(crate) fn schema(&self) -> &TableSchema {
        self.snapshot.schema()
    }

    /// The columns, in the order of declaration.
    pub(crate) fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }

    /// The snapshot.
    pub(crate) fn snapshot(&self) -> &TableSnapshot {
        &self.snapshot
    }

    /// What is read of the table, for `EXPLAIN`.
    pub(crate) fn text(&self, sensors: usize, time: TimeRange) -> String {
        let (name, all) = (&self.schema().name, self.snapshot.sensor_count());
        format!("{name}, sensors={sensors} of {all}, time=[{}]", TimeText(time))
    }

    /// The names of fields, for `EXPLAIN`.
    pub(crate) fn names(&self, fields: &[FieldId]) -> String {
        let name = |id: &FieldId| self.schema().fields[id.index()].name.as_str();
        fields.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// The values of a tag.
    pub(crate) fn tag(&self, tag: TagId) -> TagView<'_> {
        TagView { tag: self.snapshot.tag(tag) }
    }
}

/// The columns of a table as those that take values, in the order of declaration.
pub(crate) fn slots_of(schema: &TableSchema) -> Vec<Slot> {
    let slot = |column: &Column| Slot {
        column: column.name.clone(),
        type_name: schema.sql_type(column),
        data_type: schema.arrow_type(column.kind),
        is_time: column.kind == ColumnKind::Time,
    };
    schema.columns.iter().map(slot).collect()
}

/// A time range as `EXPLAIN` shows it.
struct TimeText(TimeRange);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(range) = self;
        match (range.first_ns, range.last_ns) {
            (i64::MIN, i64::MAX) => f.write_str("all"),
            _ if range.is_empty() => f.write_str("none"),
            (i64::MIN, last) => write!(f, ".. {}", format_time(last)),
            (first, i64::MAX) => write!(f, "{} ..", format_time(first)),
            _ => range.fmt(f),
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("table", &self.schema().name).finish_non_exhaustive()
    }
}
