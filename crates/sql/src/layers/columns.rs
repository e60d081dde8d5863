//! `columns.plant`: a row for each sensor that has a reading, with lists of times and values.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions, TimestampNanosecondArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::ExecutionPlan;
use roaring::RoaringBitmap;
use tidefall_storage::{ReadStats, SensorSeries};
use tidefall_types::{ColumnKind, Error, FieldId, TagId, TimeRange, text_bytes};

use super::LAYER;
use crate::ahead::Batches;
use crate::arrange::split;
use crate::error::to_datafusion;
use crate::live::Live;
use crate::pushdown::{Conditions, looks_at_tags_only, select_among};
use crate::reads::Tally;
use crate::source::{Source, SourceNode};
use crate::view::View;

/// Values that a batch gathers before it goes on, texts by their bytes: a batch has one sensor at least.
const BATCH_VALUES: usize = 1 << 20;

/// What a column of this layer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Tag(TagId),
    Times,
    Values(FieldId),
}

/// A table with a row for each sensor.
#[derive(Debug)]
pub(super) struct ColumnsTable {
    view: Arc<View>,
    arrow: SchemaRef,
    held: Vec<Held>,
    /// The sensors that have a row, or all of them.
    chosen: Option<RoaringBitmap>,
    /// The times of the readings in the lists.
    time: TimeRange,
}

fn list_of(item: DataType) -> DataType {
    DataType::List(FieldRef::new(Field::new_list_field(item, true)))
}

impl ColumnsTable {
    /// The readings of the chosen sensors, or of all, within a stretch of time.
    pub(super) fn of(view: Arc<View>, chosen: Option<RoaringBitmap>, time: TimeRange) -> Self {
        let schema = view.schema();
        let mut times = "times".to_owned();
        while schema.column(&times).is_some() {
            times.push('_');
        }
        let (mut fields, mut held) = (Vec::new(), Vec::new());
        for (at, tag) in schema.tags.iter().enumerate() {
            let tag_id = TagId(at as u16);
            fields.push(Field::new(tag, schema.arrow_type(ColumnKind::Tag(tag_id)), true));
            held.push(Held::Tag(tag_id));
        }
        fields.push(Field::new(times, list_of(schema.arrow_type(ColumnKind::Time)), false));
        held.push(Held::Times);
        for (at, field) in schema.fields.iter().enumerate() {
            fields.push(Field::new(&field.name, list_of(field.ty.arrow()), false));
            held.push(Held::Values(FieldId(at as u16)));
        }
        Self { arrow: Arc::new(Schema::new(fields)), held, view, chosen, time }
    }
}

#[async_trait]
impl TableProvider for ColumnsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match looks_at_tags_only(filter, self.view.schema()) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.view.schema();
        let tags = filters.iter().filter(|filter| looks_at_tags_only(filter, schema));
        let mut conditions = Conditions::of(tags, schema);
        conditions.time = self.time;
        let sensors = select_among(&self.view, &conditions, self.chosen.as_ref())?;
        let columns: Vec<usize> =
            projection.cloned().unwrap_or_else(|| (0..self.held.len()).collect());
        let arrow = Arc::new(self.arrow.project(&columns)?);
        let parts = split(sensors.len(), state.config().target_partitions());
        let source = Lists {
            view: Arc::clone(&self.view),
            held: columns.iter().map(|at| self.held[*at]).collect(),
            arrow: Arc::clone(&arrow),
            sensors,
            parts,
            time: self.time,
        };
        let equivalence = EquivalenceProperties::new(arrow);
        Ok(Arc::new(SourceNode::new(Arc::new(source), equivalence, limit)))
    }
}

/// Reads sensors into lists.
#[derive(Debug)]
struct Lists {
    view: Arc<View>,
    held: Vec<Held>,
    arrow: SchemaRef,
    sensors: Vec<u32>,
    parts: Vec<Range<usize>>,
    time: TimeRange,
}

/// The lists of one column, as they grow.
#[derive(Default)]
struct Growing {
    parts: Vec<ArrayRef>,
}

impl Growing {
    fn finish(self, lengths: &[usize], item: DataType) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> = self.parts.iter().map(|part| &**part).collect();
        let values = match parts[..] {
            [_] => Arc::clone(&self.parts[0]),
            _ => arrow_select::concat::concat(&parts)?,
        };
        if i32::try_from(lengths.iter().sum::<usize>()).is_err() {
            return Err(to_datafusion(Error::limit(
                "a list of more than 2,147,483,647 readings; ask for a shorter time",
            )));
        }
        let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
        let field = FieldRef::new(Field::new_list_field(item, true));
        Ok(Arc::new(ListArray::try_new(field, offsets, values, None)?))
    }
}

impl Lists {
    fn fields(&self) -> Vec<FieldId> {
        let field = |held: &Held| if let Held::Values(id) = held { Some(*id) } else { None };
        self.held.iter().filter_map(field).collect()
    }

    /// Reads some of the sensors at the places `left`, which are fewer then.
    fn next_batch(
        &self,
        left: &mut Range<usize>,
        stats: &Arc<ReadStats>,
    ) -> Result<Option<RecordBatch>> {
        let fields = self.fields();
        let (mut sensors, mut series, mut values) = (Vec::new(), Vec::new(), 0);
        while values < BATCH_VALUES
            && let Some(sensor) = left.next().map(|place| self.sensors[place])
        {
            let snapshot = self.view.snapshot();
            let one = snapshot
                .read_sensor_counted(sensor, &self.time, &fields, stats)
                .map_err(to_datafusion)?;
            if !one.time.is_empty() {
                let texts = one.fields.iter().map(|values| text_bytes(values, 0..values.len()));
                let texts = texts.sum::<usize>() / size_of::<i64>();
                values += one.time.len() * (fields.len() + 1) + texts;
                sensors.push(sensor);
                series.push(one);
            }
        }
        match sensors.is_empty() {
            true => Ok(None),
            false => self.batch(&sensors, series).map(Some),
        }
    }

    fn batch(&self, sensors: &[u32], series: Vec<SensorSeries>) -> Result<RecordBatch> {
        let lengths: Vec<usize> = series.iter().map(|one| one.time.len()).collect();
        let schema = self.view.schema();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.held.len());
        let mut field = 0;
        for held in &self.held {
            columns.push(match held {
                Held::Tag(tag) => self.view.tag(*tag).of_sensors(sensors)?,
                Held::Times => {
                    let mut lists = Growing::default();
                    for one in &series {
                        let times = TimestampNanosecondArray::new(one.time.clone(), None);
                        lists.parts.push(Arc::new(times));
                    }
                    lists.finish(&lengths, schema.arrow_type(ColumnKind::Time))?
                }
                Held::Values(id) => {
                    let parts = series.iter().map(|one| Arc::clone(&one.fields[field])).collect();
                    field += 1;
                    Growing { parts }.finish(&lengths, schema.fields[id.index()].ty.arrow())?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(sensors.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.arrow), columns, &options)?)
    }
}

impl Source for Lists {
    fn name(&self) -> &'static str {
        LAYER
    }

    fn describe(&self) -> String {
        format!("columns of {}", self.view.text(self.sensors.len(), self.time))
    }

    fn partitions(&self) -> usize {
        self.parts.len()
    }

    fn rows_about(&self, partition: Option<usize>) -> Option<usize> {
        Some(partition.map_or(self.sensors.len(), |at| self.parts[at].len()))
    }

    fn row_bytes(&self) -> u64 {
        let snapshot = self.view.snapshot();
        let fields = self.fields();
        let reading = 8 * (fields.len() as u64 + 1) + snapshot.text_bytes_per_row(&fields);
        let readings = snapshot.rows_max() / u64::from(snapshot.sensor_count()).max(1);
        readings.saturating_mul(reading)
    }

    fn open(
        self: Arc<Self>,
        partition: usize,
        _limit: Option<usize>,
        _live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        let (stats, mut sensors) = (tally.start(), self.parts[partition].clone());
        Ok(Box::new(std::iter::from_fn(move || self.next_batch(&mut sensors, &stats).transpose())))
    }
}
