//! How many values of a tag there are in each group: the sensors with a reading are found, and the numbers of their values
//! counted. No text is looked at.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::AggregateRequest;
use tidefall_types::{NO_TAG, TagId};

use super::groups::{Grouped, keys_of};
use super::question::Question;
use crate::ahead::Batches;
use crate::error::to_datafusion;
use crate::live::Live;
use crate::reads::Tally;
use crate::source::{Source, SourceNode, sliced};

/// So many sensors are asked for at once, which bounds the memory of the answer.
const SENSORS_TOGETHER: usize = 256 * 1024;

/// Counts the values of a tag in each group of a question.
#[derive(Debug)]
struct DistinctValues {
    question: Arc<Question>,
    tag: TagId,
    arrow: SchemaRef,
    grouped: Grouped,
    threads: usize,
}

/// A plan for `question`, whose columns behind the groups all count the values of `tag`.
pub(super) fn plan(
    question: Arc<Question>,
    tag: TagId,
    arrow: SchemaRef,
    equivalence: EquivalenceProperties,
    threads: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let grouped = Grouped::of(&question)?;
    let source = DistinctValues { question, tag, arrow, grouped, threads };
    Ok(Arc::new(SourceNode::new(Arc::new(source), equivalence, None)))
}

impl DistinctValues {
    /// Whether each of the sensors has a reading.
    fn with_reading(&self, tally: &Tally) -> Result<Vec<bool>> {
        let mut found = Vec::with_capacity(self.grouped.sensors.len());
        for sensors in self.grouped.sensors.to_list().chunks(SENSORS_TOGETHER) {
            let request = AggregateRequest {
                sensors: sensors.to_vec().into(),
                groups: (0..sensors.len() as u32).collect(),
                group_count: sensors.len() as u32,
                time: self.question.conditions.time,
                bin: None,
                fields: Vec::new(),
                deviations: false,
                extremes: false,
                ends: false,
            };
            let snapshot = self.question.view.snapshot();
            let answer = snapshot.aggregate_on(self.threads, &request, &tally.start());
            let start = found.len();
            found.resize(start + sensors.len(), false);
            for group in answer.map_err(to_datafusion)?.group {
                found[start + group as usize] = true;
            }
        }
        Ok(found)
    }

    fn answer(&self, tally: &Tally) -> Result<RecordBatch> {
        let Grouped { sensors, groups, count, .. } = &self.grouped;
        let tag = self.question.view.snapshot().tag(self.tag);
        let (keys, with_reading) = (keys_of(&tag, sensors), self.with_reading(tally)?);
        let mut values: Vec<Option<i64>> = vec![None; *count as usize];
        // The group in which each value was found last.
        let mut found_in: Vec<Option<u32>> = vec![None; tag.value_count()];
        for at in self.grouped.places() {
            let at = at as usize;
            if !with_reading[at] {
                continue;
            }
            let (key, group) = (keys[at], groups.get(at).copied().unwrap_or(0));
            let value = values[group as usize].get_or_insert(0);
            if key != NO_TAG && found_in[key as usize].replace(group) != Some(group) {
                *value += 1;
            }
        }
        if self.question.groups.is_empty() {
            // SQL: without GROUP BY there is one group, even if nothing is in it.
            let value = values.first().copied().flatten().unwrap_or(0);
            return self.batch(&[], vec![value]);
        }
        if self.grouped.sensors.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.arrow)));
        }
        let (groups, values): (Vec<u32>, Vec<i64>) =
            (0..).zip(values).filter_map(|(group, value)| Some((group, value?))).unzip();
        self.batch(&groups, values)
    }

    fn batch(&self, groups: &[u32], values: Vec<i64>) -> Result<RecordBatch> {
        let mut columns = match self.question.groups.is_empty() {
            true => Vec::new(),
            false => self.grouped.values(&self.question.view, groups)?,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(values.len()));
        let values: ArrayRef = Arc::new(Int64Array::from(values));
        columns.resize(self.arrow.fields().len(), values);
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.arrow), columns, &options)?)
    }
}

impl Source for DistinctValues {
    fn name(&self) -> &'static str {
        "TidefallDistinct"
    }

    fn describe(&self) -> String {
        let view = &self.question.view;
        let shown = view.text(self.grouped.sensors.len(), self.question.conditions.time);
        let tag = &view.schema().tags[self.tag.index()];
        format!("table={shown}, groups={}, tag={tag}", self.grouped.count)
    }

    fn partitions(&self) -> usize {
        1
    }

    fn rows_about(&self, _partition: Option<usize>) -> Option<usize> {
        Some(self.grouped.count as usize)
    }

    fn open(
        self: Arc<Self>,
        _partition: usize,
        _limit: Option<usize>,
        _live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        let tally = tally.clone();
        Ok(sliced(std::iter::once_with(move || self.answer(&tally))))
    }
}
