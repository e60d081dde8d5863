//! Chunks of segments, read in the form that is asked for: rows, columns that grow, or the pages
//! themselves.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_buffer::ScalarBuffer;
use tidefall_codec::{ColumnBuilder, PageValue, decode_rows_into, find_ascending, page_info};
use tidefall_types::{Error, FieldId, FieldType, Result, TimeRange};

use super::fetch::Fetched;
use super::objects::LiveObject;
use super::request::ReadStats;
use crate::rows::SensorRows;
use crate::segment::encode::{WholeChunk, regular_time};
use crate::segment::{Chunk, IndexBlock};

/// A chunk and the segment in which it lies.
#[derive(Debug)]
pub(crate) struct PlacedChunk {
    pub(super) object: Arc<LiveObject>,
    pub(super) index: Arc<IndexBlock>,
    pub(super) position: usize,
    /// Behind the last chunk that the same question asks for: what to read ahead.
    pub(super) end: usize,
}

/// A chunk whose bytes are at hand.
struct Opened<'a> {
    placed: &'a PlacedChunk,
    chunk: Chunk<'a>,
    /// Where each of the wanted fields stands in the segment.
    places: Vec<Option<usize>>,
    fetched: &'a Fetched,
    stats: &'a ReadStats,
}

/// Times of some rows of a chunk.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Times {
    /// With one step.
    Regular {
        first_ns: i64,
        step_ns: i64,
        rows: usize,
    },
    Listed(ScalarBuffer<i64>),
}

impl PlacedChunk {
    pub(crate) fn object(&self) -> &Arc<LiveObject> {
        &self.object
    }

    /// The first and the last time.
    pub(crate) fn time(&self) -> TimeRange {
        self.meta().time()
    }

    pub(super) fn meta(&self) -> Chunk<'_> {
        self.index.chunk(self.position)
    }

    pub(crate) fn rows(&self) -> usize {
        self.meta().meta.rows as usize
    }

    /// The bytes of the pages that hold texts of some fields.
    pub(crate) fn text_bytes(&self, fields: &[(FieldId, FieldType)]) -> Result<u64> {
        if fields.iter().all(|(_, ty)| *ty != FieldType::Text) {
            return Ok(0);
        }
        let places = self.object.segment.places(fields)?;
        let chunk = self.meta();
        let texts = fields.iter().zip(places).filter(|((_, ty), _)| *ty == FieldType::Text);
        let pages = texts.filter_map(|(_, place)| place).map(|place| chunk.field_page(place));
        Ok(pages.map(|page| page.end - page.start).sum())
    }

    fn open<'a>(
        &'a self,
        fields: &[(FieldId, FieldType)],
        fetched: &'a mut Fetched,
        stats: &'a ReadStats,
    ) -> Result<Opened<'a>> {
        let places = self.object.segment.places(fields)?;
        let chunks = self.position..self.end;
        fetched.want(&self.object.segment, &self.index, chunks, &places, stats)?;
        Ok(Opened { placed: self, chunk: self.meta(), places, fetched, stats })
    }

    /// Reads the rows within `time`.
    pub(super) fn read(
        &self,
        time: &TimeRange,
        fields: &[(FieldId, FieldType)],
        fetched: &mut Fetched,
        stats: &ReadStats,
    ) -> Result<SensorRows> {
        let opened = self.open(fields, fetched, stats)?;
        let times = opened.times()?;
        let rows = times.within(time);
        opened.rows(fields, times, rows)
    }

    /// Which of some ascending times it has: for these `found` becomes true.
    pub(super) fn find(
        &self,
        times: &[i64],
        found: &mut [bool],
        fetched: &mut Fetched,
        stats: &ReadStats,
    ) -> Result<()> {
        let (segment, page) = (&self.object.segment, self.meta().time_page());
        if page.is_empty() {
            let regular = Times::regular(&self.meta()).map_err(|error| segment.locate(0, error))?;
            times.iter().zip(found).for_each(|(time, found)| *found |= regular.have(*time));
            return Ok(());
        }
        let opened = self.open(&[], fetched, stats)?;
        ReadStats::add(&stats.pages, 1);
        let found = find_ascending(opened.fetched.page(segment, &page)?, times, found);
        found.map_err(|error| segment.locate(page.start, error))
    }

    /// Reads the rows together with their pages.
    pub(crate) fn read_whole(
        &self,
        fields: &[(FieldId, FieldType)],
        fetched: &mut Fetched,
        stats: &ReadStats,
    ) -> Result<WholeChunk> {
        let opened = self.open(fields, fetched, stats)?;
        let segment = &self.object.segment;
        let bytes = |page: Range<u64>| match page.is_empty() {
            true => Ok(Vec::new()),
            false => opened.fetched.page(segment, &page).map(<[u8]>::to_vec),
        };
        Ok(WholeChunk {
            rows: opened.rows(fields, opened.times()?, 0..self.rows())?,
            time_page: bytes(opened.chunk.time_page())?,
            field_pages: (0..fields.len())
                .map(|field| bytes(opened.field_page(field)))
                .collect::<Result<_>>()?,
        })
    }

    /// Appends the rows within `time` to columns, decoding straight into them, and their times where these are
    /// asked for. Returns how many rows there are.
    pub(crate) fn append_to(
        &self,
        time: &TimeRange,
        fields: &[(FieldId, FieldType)],
        (times_to, columns): (Option<&mut Vec<i64>>, &mut [ColumnBuilder]),
        fetched: &mut Fetched,
        stats: &ReadStats,
    ) -> Result<usize> {
        let opened = self.open(fields, fetched, stats)?;
        let rows = if times_to.is_none() && time.covers(&self.time()) {
            0..self.rows()
        } else {
            let times = opened.times()?;
            let rows = times.within(time);
            if let Some(to) = times_to {
                times.append_to(rows.clone(), to);
            }
            rows
        };
        for (field, column) in columns.iter_mut().enumerate() {
            let page = opened.field_page(field);
            if page.is_empty() {
                column.append_nulls(rows.len());
                continue;
            }
            ReadStats::add(&stats.pages, 1);
            let segment = &self.object.segment;
            let bytes = opened.fetched.page(segment, &page)?;
            let appended = match rows.len() == self.rows() {
                true => column.append_page(bytes).and_then(|found| opened.check_rows(found)),
                false => column.append_page_rows(bytes, rows.clone()),
            };
            appended.map_err(|error| segment.locate(page.start, error))?;
        }
        Ok(rows.len())
    }

    /// Decodes the first of the fields, whose native type is `T`, for the rows within `time` to the
    /// start of `out`. Returns the times of these rows, and how many have no value.
    pub(super) fn read_into<T: PageValue>(
        &self,
        time: &TimeRange,
        fields: &[(FieldId, FieldType)],
        out: &mut [T],
        fetched: &mut Fetched,
        stats: &ReadStats,
    ) -> Result<(Times, usize)> {
        let opened = self.open(fields, fetched, stats)?;
        let times = opened.times()?;
        let rows = times.within(time);
        let segment = &self.object.segment;
        let too_many = || segment.locate(0, Error::corrupt("a chunk has more rows than its index"));
        let out = out.get_mut(..rows.len()).ok_or_else(too_many)?;
        let page = opened.field_page(0);
        let missing = if page.is_empty() {
            copy_nulls(out)
        } else {
            ReadStats::add(&stats.pages, 1);
            let bytes = opened.fetched.page(segment, &page)?;
            page_info(bytes)
                .and_then(|info| opened.check_rows(info.rows))
                .and_then(|()| decode_rows_into(bytes, rows.start, out))
                .map_err(|error| segment.locate(page.start, error))?
        };
        Ok((times.slice(rows), missing))
    }

    /// About the rows within `time`: those of times that are not regular are taken for evenly spread.
    pub(super) fn rows_about(&self, time: &TimeRange) -> usize {
        let chunk = self.meta();
        if chunk.time_page().is_empty() {
            return self.rows_within(time);
        }
        let (all, found) = (chunk.time(), chunk.time().intersect(time));
        if found.is_empty() {
            return 0;
        }
        let length = |range: TimeRange| i128::from(range.last_ns) - i128::from(range.first_ns) + 1;
        let rows = self.rows() as i128 * length(found) / length(all);
        usize::try_from(rows).map_or(self.rows(), |rows| rows.max(1))
    }

    /// The rows within `time`; at most, where the times are not regular.
    pub(super) fn rows_within(&self, time: &TimeRange) -> usize {
        let chunk = self.meta();
        match chunk.time_page().is_empty() {
            true => Times::regular(&chunk).map_or(self.rows(), |times| times.within(time).len()),
            false => self.rows(),
        }
    }
}

impl Opened<'_> {
    /// Where the page of a wanted field lies; empty when all is null.
    fn field_page(&self, field: usize) -> Range<u64> {
        self.places[field].map_or(0..0, |place| self.chunk.field_page(place))
    }

    fn check_rows(&self, found: usize) -> Result<()> {
        match found == self.placed.rows() {
            true => Ok(()),
            false => Err(Error::corrupt("a page has another number of rows")),
        }
    }

    fn times(&self) -> Result<Times> {
        let segment = &self.placed.object.segment;
        let page = self.chunk.time_page();
        if page.is_empty() {
            return Times::regular(&self.chunk).map_err(|error| segment.locate(0, error));
        }
        let times = self.fetched.decode(segment, &page, FieldType::I64, self.stats)?;
        let times = times.as_primitive::<Int64Type>();
        self.check_rows(times.len()).map_err(|error| segment.locate(page.start, error))?;
        let ends = (times.values().first(), times.values().last());
        if ends != (Some(&self.chunk.meta.first_ns), Some(&self.chunk.meta.last_ns)) {
            let why = "the times of a chunk are not those of the index";
            return Err(segment.locate(page.start, Error::corrupt(why)));
        }
        // Readers search in them and merge them.
        if !times.values().is_sorted_by(|time, next| time < next) {
            let why = "the times of a chunk are out of order";
            return Err(segment.locate(page.start, Error::corrupt(why)));
        }
        Ok(Times::Listed(times.values().clone()))
    }

    /// Some of the rows of the chunk, whose times are `times`.
    fn rows(
        &self,
        fields: &[(FieldId, FieldType)],
        times: Times,
        rows: Range<usize>,
    ) -> Result<SensorRows> {
        let segment = &self.placed.object.segment;
        let mut columns = Vec::with_capacity(fields.len());
        for (field, (_, ty)) in fields.iter().enumerate() {
            let page = self.field_page(field);
            if page.is_empty() {
                columns.push(None);
                continue;
            }
            ReadStats::add(&self.stats.pages, 1);
            let bytes = self.fetched.page(segment, &page)?;
            let mut column = ColumnBuilder::new(*ty, rows.len());
            page_info(bytes)
                .and_then(|info| self.check_rows(info.rows))
                .and_then(|()| column.append_page_rows(bytes, rows.clone()))
                .map_err(|error| segment.locate(page.start, error))?;
            columns.push(Some(column.finish()));
        }
        Ok(SensorRows { times: times.slice(rows).into_buffer(), fields: columns })
    }
}

impl Times {
    /// Times with one step, from their ends and their count.
    fn regular(chunk: &Chunk<'_>) -> Result<Self> {
        let (first_ns, rows) = (chunk.meta.first_ns, chunk.meta.rows as usize);
        let step_ns = chunk.meta.step_ns();
        let step_ns =
            step_ns.ok_or_else(|| Error::corrupt("regular times without a whole step"))?;
        Ok(Self::Regular { first_ns, step_ns, rows })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Regular { rows, .. } => *rows,
            Self::Listed(times) => times.len(),
        }
    }

    /// The time of a row.
    #[inline]
    pub(super) fn at(&self, row: usize) -> i64 {
        match self {
            Self::Regular { first_ns, step_ns, .. } => regular_time(*first_ns, *step_ns, row),
            Self::Listed(times) => times[row],
        }
    }

    fn slice(self, rows: Range<usize>) -> Self {
        match self {
            Self::Regular { first_ns, step_ns, .. } => Self::Regular {
                first_ns: regular_time(first_ns, step_ns, rows.start),
                step_ns,
                rows: rows.len(),
            },
            Self::Listed(times) => Self::Listed(times.slice(rows.start, rows.len())),
        }
    }

    /// Whether one of the times is this.
    fn have(&self, time_ns: i64) -> bool {
        match self {
            Self::Listed(times) => times.binary_search(&time_ns).is_ok(),
            Self::Regular { first_ns, step_ns, rows } => {
                // The distance may be more than i64 holds.
                let distance = time_ns.abs_diff(*first_ns);
                let step = step_ns.unsigned_abs().max(1);
                time_ns >= *first_ns && distance % step == 0 && distance / step < *rows as u64
            }
        }
    }

    /// The rows whose times lie in a range.
    fn within(&self, time: &TimeRange) -> Range<usize> {
        match self {
            Self::Listed(times) => {
                let first = times.partition_point(|&t| t < time.first_ns);
                first..times.partition_point(|&t| t <= time.last_ns).max(first)
            }
            Self::Regular { first_ns, step_ns, rows } => {
                // How many of the times are not above a bound.
                let up_to = |bound_ns: i128| match bound_ns - i128::from(*first_ns) {
                    ..0 => 0,
                    distance => (distance / i128::from(*step_ns).max(1) + 1).min(*rows as i128),
                };
                let first = up_to(i128::from(time.first_ns) - 1) as usize;
                first..(up_to(i128::from(time.last_ns)) as usize).max(first)
            }
        }
    }

    pub(super) fn append_to(&self, rows: Range<usize>, out: &mut Vec<i64>) {
        match self {
            Self::Listed(times) => out.extend_from_slice(&times[rows]),
            Self::Regular { first_ns, step_ns, .. } => {
                out.extend(rows.map(|row| regular_time(*first_ns, *step_ns, row)));
            }
        }
    }

    fn into_buffer(self) -> ScalarBuffer<i64> {
        match self {
            Self::Listed(times) => times,
            Self::Regular { rows, .. } => {
                let mut times = Vec::with_capacity(rows);
                self.append_to(0..rows, &mut times);
                times.into()
            }
        }
    }
}

/// Fills with nulls, and returns how many.
pub(super) fn copy_nulls<T: PageValue>(out: &mut [T]) -> usize {
    out.fill(T::NULL);
    out.len()
}
