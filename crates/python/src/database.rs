//! An open database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::ArrowArrayStreamReader;
use pyo3::prelude::*;
use tidefall_import::{ArrowOptions, batch_from_arrow};
use tidefall_sql::Session;
use tidefall_storage::{
    Ack, Bin, CascadeRequest, Db, DbOptions, Extreme, Keep, TableSnapshot, TagFilter, Target,
    Unknown, WriteOptions,
};
use tidefall_types::{
    Error, FieldId, FieldType, Result, Series, SeriesBatch, TagColumn, TagId, TimeRange, WriteBatch,
};
use tokio::runtime::Runtime;

use crate::array::Array;
use crate::errors::to_python;
use crate::process::Owned;
use crate::question::{Aggregate, Block, Question, Tags, find_field};
use crate::stream::{Batches, Stream, arrow_error, reader};
use crate::wait::wait;

/// Which sensors: for each of some tags the values that it may have.
type Chosen = Vec<(String, Vec<String>)>;
/// The name of the time column, the tags, and the fields with their SQL types.
type Schema = (String, Vec<String>, Vec<(String, String)>);

/// A database in a directory of this machine.
#[pyclass(frozen, module = "tidefall._tidefall")]
pub(crate) struct Database {
    open: Owned<Open>,
}

struct Open {
    // None when it is closed.
    session: Mutex<Option<Session>>,
    runtime: Arc<Runtime>,
}

impl Database {
    fn session(&self) -> Result<Session> {
        let session = self.open.get()?.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.clone().ok_or_else(|| Error::closed("the database is closed"))
    }

    fn db(&self) -> Result<Db> {
        Ok(self.session()?.db().clone())
    }

    fn question(&self, table: &str, chosen: Chosen, field: Option<&str>) -> Result<Question> {
        let snapshot = self.db()?.snapshot(table)?;
        let (field, ty) = find_field(&snapshot, field)?;
        let sensors = choose(&snapshot, chosen)?;
        Ok(Question { snapshot, sensors, field, ty })
    }
}

/// The chosen sensors, ordered by their tags; when a single tag chooses, in the order of its values.
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
    let mut sensors = snapshot.sort_sensors(&found);
    if let Some((tag, places)) = order
        && places.len() > 1
    {
        let tag = snapshot.tag(TagId(tag as u16));
        let place = |sensor: &u32| tag.of(*sensor).and_then(|value| places.get(value));
        sensors.sort_by_key(place);
    }
    Ok(sensors)
}

fn time_range(start_ns: Option<i64>, end_ns: Option<i64>) -> TimeRange {
    // An end is exclusive; before the first nanosecond of time there is nothing.
    let last = end_ns.map_or(i64::MAX, |end| end.saturating_sub(1));
    TimeRange::new(start_ns.unwrap_or(i64::MIN), last)
}

/// Rows that are written at once, if their texts are not too long for that.
const WRITE_ROWS: usize = 1 << 17;
/// Bytes of texts that are written at once; the log takes as much with the least memory budget.
const WRITE_TEXT_BYTES: usize = 16 << 20;

/// Writes all rows of `batches`, and returns their number when they are on disk: those of a short table
/// in the log, those of a long one in objects.
fn write_all(
    db: &Db,
    table: &str,
    batches: ArrowArrayStreamReader,
    options: &ArrowOptions,
) -> Result<u64> {
    let with = |ack| WriteOptions { ack, unknown: Unknown::Create, ..WriteOptions::default() };
    let mut rows = 0;
    let mut before: Option<WriteBatch> = None;
    let mut is_long = false;
    for batch in batches {
        let batch = batch.map_err(arrow_error)?;
        for start in (0..batch.num_rows()).step_by(WRITE_ROWS) {
            let part = batch.slice(start, WRITE_ROWS.min(batch.num_rows() - start));
            let part = batch_from_arrow(&part, options)
                .map_err(|error| error.context(format_args!("rows from {start}")))?;
            for part in part.parts(WRITE_TEXT_BYTES) {
                if let Some(before) = before.replace(part) {
                    rows += db.write(table, &before, &with(Ack::Memory))?.rows as u64;
                    is_long = true;
                }
            }
        }
    }
    if let Some(last) = before {
        let ack = if is_long { Ack::Memory } else { Ack::Durable };
        rows += db.write(table, &last, &with(ack))?.rows as u64;
    }
    if is_long {
        db.flush()?;
    }
    Ok(rows)
}

/// The columns of wide batches, one for each sensor, as series of the field `field`.
fn series_of(
    batches: &[RecordBatch],
    time: Option<String>,
    tag: &str,
    field: &str,
) -> Result<SeriesBatch> {
    let Some(first) = batches.first() else { return Ok(SeriesBatch::default()) };
    let options = ArrowOptions { time, tags: Vec::new() };
    let batches: Vec<WriteBatch> =
        batches.iter().map(|batch| batch_from_arrow(batch, &options)).collect::<Result<_>>()?;
    let mut times: Vec<i64> = Vec::new();
    batches.iter().for_each(|batch| times.extend_from_slice(&batch.time));
    let time: arrow_buffer::ScalarBuffer<i64> = times.into();
    let names: Vec<String> = batches[0].fields.iter().map(|field| field.name.clone()).collect();
    let mut series = Vec::with_capacity(names.len());
    for place in 0..names.len() {
        let parts: Vec<&dyn arrow_array::Array> =
            batches.iter().map(|batch| &*batch.fields[place].values).collect();
        let values = match parts[..] {
            [_] => Arc::clone(&batches[0].fields[place].values),
            _ => arrow_select::concat::concat(&parts).map_err(arrow_error)?,
        };
        series.push(Series { time: time.clone(), fields: vec![values] });
    }
    debug_assert!(first.num_columns() > names.len(), "no time column");
    let keys: arrow_buffer::ScalarBuffer<u32> = (0..names.len() as u32).collect();
    let values = arrow_array::StringArray::from(names);
    let tags = vec![TagColumn { name: tag.to_owned(), values, keys }];
    Ok(SeriesBatch { tags, fields: vec![field.to_owned()], series })
}

#[pymethods]
impl Database {
    #[new]
    #[pyo3(signature = (path, read_only, memory_mib))]
    fn new(
        py: Python<'_>,
        path: String,
        read_only: bool,
        memory_mib: Option<usize>,
    ) -> PyResult<Self> {
        py.detach(|| {
            let mut options = DbOptions::default();
            if let Some(memory_mib) = memory_mib {
                options.memory_bytes = memory_mib.saturating_mul(1 << 20);
            }
            let db = match read_only {
                true => Db::open_read_only(&path, options.clone())?,
                false => Db::open(&path, options.clone())?,
            };
            let runtime = Runtime::new().map_err(|error| Error::io("starting threads", &error))?;
            let session = Session::with_options(db, &options);
            let session = Mutex::new(Some(session));
            Ok(Self { open: Owned::new(Open { session, runtime: Arc::new(runtime) }) })
        })
        .map_err(to_python)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            // One that belongs to another process is left to it.
            let Ok(open) = self.open.get() else { return Ok(()) };
            let session = open.session.lock().unwrap_or_else(PoisonError::into_inner).take();
            session.map_or(Ok(()), |session| session.db().close())
        })
        .map_err(to_python)
    }

    fn tables(&self) -> PyResult<Vec<String>> {
        let db = self.db().map_err(to_python)?;
        Ok(db.tables().iter().map(|schema| schema.name.clone()).collect())
    }

    fn schema(&self, table: &str) -> PyResult<Schema> {
        let schema = self.db().and_then(|db| db.schema(table)).map_err(to_python)?;
        let fields = schema.fields.iter();
        let fields = fields.map(|field| (field.name.clone(), field.ty.sql_name().to_owned()));
        Ok((schema.time_name().to_owned(), schema.tags.clone(), fields.collect()))
    }

    fn sql(&self, py: Python<'_>, query: &str) -> PyResult<Stream> {
        py.detach(|| {
            let session = self.session().map_err(to_python)?;
            let runtime = &self.open.get().map_err(to_python)?.runtime;
            let begin = async {
                let stream = session.query(query).await?;
                Batches::begin(Arc::clone(runtime), stream).await
            };
            wait(runtime, begin)?.map(Stream::new).map_err(to_python)
        })
    }

    /// Writes rows; waits until they are on disk.
    fn write(
        &self,
        py: Python<'_>,
        table: &str,
        data: &Bound<'_, PyAny>,
        time: Option<String>,
        tags: Vec<String>,
    ) -> PyResult<u64> {
        let batches = reader(data)?;
        py.detach(|| write_all(&self.db()?, table, batches, &ArrowOptions { time, tags }))
            .map_err(to_python)
    }

    /// Writes a wide frame: every column but that of time is a sensor. All of it or nothing.
    fn write_wide(
        &self,
        py: Python<'_>,
        table: &str,
        data: &Bound<'_, PyAny>,
        time: Option<String>,
        names: (String, String),
    ) -> PyResult<u64> {
        let batches = reader(data)?;
        py.detach(|| {
            let batches = batches.collect::<std::result::Result<Vec<_>, _>>();
            let series = series_of(&batches.map_err(arrow_error)?, time, &names.0, &names.1)?;
            Ok(self.db()?.load(table, &series, Unknown::Create)?.rows as u64)
        })
        .map_err(to_python)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.db()?.flush().map(drop)).map_err(to_python)
    }

    /// Lets readings fall; returns how many moved.
    fn cascade(&self, py: Python<'_>, table: Option<String>, to: &str) -> PyResult<u64> {
        py.detach(|| {
            let target = match to {
                "age" => Target::ByAge,
                "short" => Target::Short,
                "long" => Target::Long,
                other => {
                    let why = format!("there is no model {other:?}; say age, short or long");
                    return Err(Error::invalid(why));
                }
            };
            Ok(self.db()?.cascade(&CascadeRequest { table, target })?.rows)
        })
        .map_err(to_python)
    }

    fn sensors(&self, py: Python<'_>, table: &str, chosen: Chosen) -> PyResult<Tags> {
        py.detach(|| {
            let snapshot = self.db()?.snapshot(table)?;
            let (field, ty) = (FieldId(0), FieldType::F64);
            let sensors = choose(&snapshot, chosen)?;
            let question = Question { snapshot, sensors, field, ty };
            Ok(question.tags(&question.sensors))
        })
        .map_err(to_python)
    }

    fn frame(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time: (Option<i64>, Option<i64>),
        keep: Option<(bool, f64, f64)>,
    ) -> PyResult<(Tags, Array, Array, usize)> {
        py.detach(|| {
            let question = self.question(table, chosen, field)?;
            let keep = keep.map(|(is_between, low, high)| match is_between {
                true => Keep::Between(low, high),
                false => Keep::Outside(low, high),
            });
            let time = time_range(time.0, time.1);
            let (times, values, missing) = question.frame(&time, keep.as_ref())?;
            Ok((question.tags(&question.sensors), times, values, missing))
        })
        .map_err(to_python)
    }

    /// The first and the last time of the chosen sensors, the most rows that one of them has, and how many
    /// sensors there are; from the index, so neither time nor rows are less than they are.
    fn extent(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        time: (Option<i64>, Option<i64>),
    ) -> PyResult<Option<(i64, i64, usize, usize)>> {
        py.detach(|| {
            let snapshot = self.db()?.snapshot(table)?;
            let sensors = choose(&snapshot, chosen)?;
            let found = snapshot.extent(&sensors, &time_range(time.0, time.1))?;
            Ok(found.map(|(time, rows)| (time.first_ns, time.last_ns, rows, sensors.len())))
        })
        .map_err(to_python)
    }

    /// The times and values of each sensor.
    fn series(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time: (Option<i64>, Option<i64>),
    ) -> PyResult<(Tags, Vec<Block>)> {
        py.detach(|| {
            let mut question = self.question(table, chosen, field)?;
            let tags = question.tags(&question.sensors);
            let time = time_range(time.0, time.1);
            let mut series = Vec::with_capacity(question.sensors.len());
            for sensor in std::mem::take(&mut question.sensors) {
                question.sensors = vec![sensor];
                series.push(question.frame(&time, None)?);
            }
            Ok((tags, series))
        })
        .map_err(to_python)
    }

    fn at(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time_ns: i64,
    ) -> PyResult<(Tags, Array, Array)> {
        py.detach(|| {
            let question = self.question(table, chosen, field)?;
            let found = question.snapshot.at(&question.sensors, time_ns, question.field)?;
            question.moments(found)
        })
        .map_err(to_python)
    }

    fn latest(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
    ) -> PyResult<(Tags, Array, Array)> {
        py.detach(|| {
            let question = self.question(table, chosen, field)?;
            let found = question.snapshot.latest(&question.sensors, question.field)?;
            question.moments(found)
        })
        .map_err(to_python)
    }

    /// The least or greatest value of each sensor, with its time.
    fn extremes(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time: (Option<i64>, Option<i64>),
        is_lowest: bool,
    ) -> PyResult<(Tags, Array, Array)> {
        py.detach(|| {
            let question = self.question(table, chosen, field)?;
            let which = if is_lowest { Extreme::Lowest } else { Extreme::Highest };
            question.extremes(&time_range(time.0, time.1), which)
        })
        .map_err(to_python)
    }

    /// Bins of equal width that begin at 1970, in which one aggregate is made.
    fn resample(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time: (Option<i64>, Option<i64>),
        bin: (i64, String),
    ) -> PyResult<(Tags, Array, Array, usize)> {
        py.detach(|| {
            let question = self.question(table, chosen, field)?;
            if bin.0 <= 0 {
                return Err(Error::invalid("bins must be wider than nothing"));
            }
            let width = Bin { width_ns: bin.0, origin_ns: 0 };
            let time = time_range(time.0, time.1);
            let what = Aggregate::parse(&bin.1)?;
            let (bins, values, missing) = question.resample(time, width, what)?;
            Ok((question.tags(&question.sensors), bins, values, missing))
        })
        .map_err(to_python)
    }

    /// Reads a duration such as `1h` or `15m`.
    #[staticmethod]
    fn parse_duration(text: &str) -> PyResult<i64> {
        tidefall_types::parse_duration(text).map_err(to_python)
    }

    /// Reads a time as SQL does.
    #[staticmethod]
    fn parse_time(text: &str) -> PyResult<i64> {
        tidefall_types::parse_time(text).map_err(to_python)
    }
}
