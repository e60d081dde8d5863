//! Reads a whole segment and checks that its parts agree.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use tidefall_codec::decode_page;
use tidefall_ground::manifest::series::ObjectEntry;
use tidefall_ground::options::VerifyReport;
use tidefall_types::{Error, FieldType, Result, TableId};

use super::Segment;
use super::encode::regular_time;
use super::filter::{self, Filter};
use super::index::{Chunk, IndexBlock};
use super::wanted::Wanted;

/// Adds what is wrong with a segment to the report.
pub fn verify_segment(
    table: TableId,
    entry: &ObjectEntry,
    segment: &Segment,
    report: &mut VerifyReport,
) {
    let mut rows = 0;
    let outcome = (|| -> Result<()> {
        segment.check_size()?;
        let found = segment.table()?;
        if found != table {
            let why = format!("it is a segment of table {found}, not of {table}");
            return Err(segment.locate(0, Error::corrupt(why)));
        }
        for position in 0..segment.index_block_count()? {
            let index = segment.index_block_at(position)?;
            rows += verify_index(segment, &index, report)?;
            verify_filters(segment, &index, report);
        }
        let mut counted = 0;
        let all = vec![Wanted::ALL; segment.field_count()?];
        for position in 0..segment.metrics_block_count()? {
            let blocks = segment.metrics_block_at(position, &all)?;
            report.blocks += blocks.len() as u64;
            counted += blocks.rows.iter().sum::<i64>() as u64;
        }
        if rows != entry.rows || counted != entry.rows {
            return Err(segment.locate(
                0,
                Error::corrupt(format!(
                    "it has {rows} rows, {counted} by its metrics, {} by the manifest",
                    entry.rows
                )),
            ));
        }
        Ok(())
    })();
    report.rows += rows;
    report.damages.extend(outcome.err());
}

/// Checks that the filters, if there are any, know all rows of an index frame.
fn verify_filters(segment: &Segment, index: &IndexBlock, report: &mut VerifyReport) {
    // Chunks come in the order of the filters: of each the last one is mostly that of the next.
    let mut last = LastFilter::default();
    for position in 0..index.sensors().len() {
        let (sensor, chunk) = (index.sensors()[position], index.chunk(position));
        report.damages.extend(last.check(segment, sensor, &chunk).err());
    }
}

/// A filter that was read.
#[derive(Debug, Default)]
struct LastFilter {
    offset: Option<u64>,
    frame: Vec<u8>,
}

impl LastFilter {
    /// Checks that the filters of a chunk know its rows. One whose times are damaged has been found already.
    fn check(&mut self, segment: &Segment, sensor: u32, chunk: &Chunk<'_>) -> Result<()> {
        let Some(filters) = segment.filters(sensor..=sensor, &chunk.time())? else {
            return Ok(());
        };
        let Ok(mut unknown) = times_of(segment, chunk) else { return Ok(()) };
        for fence in filters {
            let filter = match self.offset == Some(fence.offset) {
                true => Filter::decode(&self.frame)?,
                false => {
                    self.offset = None;
                    let filter = segment.filter(&fence, &mut self.frame)?;
                    self.offset = Some(fence.offset);
                    filter
                }
            };
            let is_known = |time_ns| filter.may_have(filter::key(sensor, time_ns));
            unknown.retain(|time_ns| !fence.time.contains(*time_ns) || !is_known(*time_ns));
        }
        let Some(time_ns) = unknown.first() else { return Ok(()) };
        let why = format!("its filters do not know the row of sensor {sensor} at {time_ns}");
        Err(segment.locate(0, Error::corrupt(why)))
    }
}

/// The times of the rows of a chunk.
fn times_of(segment: &Segment, chunk: &Chunk<'_>) -> Result<Vec<i64>> {
    let page = chunk.time_page();
    if page.is_empty() {
        let step_ns = chunk.meta.step_ns().unwrap_or_default();
        let time_ns = |row| regular_time(chunk.meta.first_ns, step_ns, row);
        return Ok((0..chunk.meta.rows as usize).map(time_ns).collect());
    }
    let start = page.start;
    let times = segment.read(page).and_then(|bytes| decode_page(&bytes, FieldType::I64));
    let times = times.map_err(|error| segment.locate(start, error))?;
    Ok(times.as_primitive::<Int64Type>().values().to_vec())
}

/// Decodes every page of the chunks of an index frame; damages are reported page by page.
fn verify_index(segment: &Segment, index: &IndexBlock, report: &mut VerifyReport) -> Result<u64> {
    let fields = segment.fields()?;
    let mut rows = 0;
    for position in 0..index.sensors().len() {
        let chunk = index.chunk(position);
        rows += u64::from(chunk.meta.rows);
        let time = std::iter::once((chunk.time_page(), FieldType::I64));
        let pages = time.chain(
            fields.iter().enumerate().map(|(place, (_, ty))| (chunk.field_page(place), *ty)),
        );
        for (page, ty) in pages.filter(|(page, _)| !page.is_empty()) {
            let start = page.start;
            let decoded = segment.read(page).and_then(|bytes| decode_page(&bytes, ty));
            let outcome =
                decoded.and_then(|values| match values.len() == chunk.meta.rows as usize {
                    true => Ok(()),
                    false => Err(Error::corrupt("a page has another number of rows")),
                });
            report.damages.extend(outcome.map_err(|error| segment.locate(start, error)).err());
        }
    }
    Ok(rows)
}
