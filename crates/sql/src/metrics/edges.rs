//! First and last values where some are null.
//!
//! Block metrics keep the first value that is not null, but `first_value` without `IGNORE NULLS`
//! asks for the value of the first row, which may be null. The times of those rows are known from
//! the metrics, so the rows themselves are read.

use std::collections::HashMap;

use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use tidefall_storage::{FieldMetrics, RowBatch, ScanRequest};
use tidefall_types::{FieldId, TimeRange};

use super::columns::{Answer, of_edge};
use super::spec::Edge;
use crate::error::to_datafusion;

/// Up to so many lines with nulls, each row is looked up by its time; for more, one pass over all
/// rows costs less.
const LOOKUPS_MAX: usize = 16;

/// The value of the first or last row of each line.
pub(super) fn column(
    answer: &Answer<'_>,
    metrics: &FieldMetrics,
    id: FieldId,
    edge: Edge,
) -> Result<ArrayRef> {
    let result = answer.result;
    let times = match edge {
        Edge::First => &result.first_time_ns,
        Edge::Last => &result.last_time_ns,
    };
    let unclear: Vec<usize> =
        (0..times.len()).filter(|&line| metrics.count[line] != result.rows[line]).collect();
    let ranges = if unclear.len() <= LOOKUPS_MAX {
        unclear.iter().map(|&line| TimeRange::new(times[line], times[line])).collect()
    } else {
        vec![answer.request.time]
    };
    let mut rows = Rows::new(answer, times, edge, &unclear);
    for time in ranges {
        let request = ScanRequest {
            sensors: answer.request.sensors.to_list().into_owned(),
            time,
            fields: vec![id],
            conditions: Vec::new(),
            limit: None,
        };
        let scan = answer.view.snapshot().scan(&request).map_err(to_datafusion)?;
        answer.tally.add(scan.stats());
        for batch in scan {
            rows.look_at(&batch.map_err(to_datafusion)?)?;
        }
    }
    let known = of_edge(metrics, edge);
    let values = (0..times.len()).map(|line| match rows.found.remove(&line) {
        Some(value) => Ok(value),
        None => ScalarValue::try_from_array(known, line),
    });
    ScalarValue::iter_to_array(values.collect::<Result<Vec<_>>>()?)
}

/// Finds among rows those that stand at an end of their line.
struct Rows<'a> {
    answer: &'a Answer<'a>,
    times: &'a [i64],
    edge: Edge,
    group_of: HashMap<u32, u32>,
    line_of: HashMap<(u32, i64), usize>,
    found: HashMap<usize, ScalarValue>,
}

impl<'a> Rows<'a> {
    fn new(answer: &'a Answer<'a>, times: &'a [i64], edge: Edge, unclear: &[usize]) -> Self {
        let (request, result) = (answer.request, answer.result);
        let groups = request.groups.iter().copied().chain(std::iter::repeat(0));
        let group_of = request.sensors.iter().zip(groups);
        let line_of = unclear
            .iter()
            .map(|&line| ((result.group[line], result.bin_start_ns[line]), line))
            .collect();
        Self { answer, times, edge, group_of: group_of.collect(), line_of, found: HashMap::new() }
    }

    fn line(&self, sensor: u32, time_ns: i64) -> Option<usize> {
        let start = self.answer.request.bin.map_or(i64::MIN, |bin| bin.start_of(time_ns));
        let group = self.group_of.get(&sensor)?;
        self.line_of.get(&(*group, start)).copied()
    }

    /// Rows of a sensor come by time: only the first and the last of those that share a line can
    /// stand at its end, which saves looking up every row.
    fn look_at(&mut self, batch: &RowBatch) -> Result<()> {
        let mut at = 0;
        while at < batch.rows() {
            let (sensor, time_ns) = (batch.sensors[at], batch.time[at]);
            let bin = self.answer.request.bin;
            let last_ns =
                bin.map_or(i64::MAX, |bin| bin.start_of(time_ns).saturating_add(bin.width_ns - 1));
            let run = (at..batch.rows())
                .take_while(|&row| batch.sensors[row] == sensor && batch.time[row] <= last_ns)
                .count();
            let row = if self.edge == Edge::First { at } else { at + run - 1 };
            let line = self.line(sensor, time_ns);
            if let Some(line) = line.filter(|&line| self.times[line] == batch.time[row]) {
                let value = ScalarValue::try_from_array(&batch.fields[0], row)?;
                self.found.entry(line).or_insert(value);
            }
            at += run;
        }
        Ok(())
    }
}
