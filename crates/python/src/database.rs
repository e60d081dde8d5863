//! An open database.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use tidefall_import::ArrowOptions;
use tidefall_questions::{Aggregate, Bins, Chosen, Question, Tags, range_of};
use tidefall_sql::{Parameter, Session};
use tidefall_storage::{CascadeRequest, Db, DbOptions, Extreme, Keep, Target};
use tidefall_types::{Error, Result, TableKind, caught};
use tokio::runtime::Runtime;

use crate::array::Array;
use crate::calls::{call, call_and_look};
use crate::errors::to_python;
use crate::process::Owned;
use crate::stream::{Batches, Stream, arrow_error, reader};
use crate::values::{Values, block_of, points_of};
use crate::wait::wait;
use crate::write::{existing_of, series_of, write_all, write_records, write_series};

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
        Question::new(&self.db()?, table, chosen, field)
    }

    fn sensors_of(&self, table: &str, chosen: Chosen) -> Result<Question> {
        Question::of_sensors(&self.db()?, table, chosen)
    }
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
        call(py, || {
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
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || {
            // One that belongs to another process is left to it.
            let Ok(open) = self.open.get() else { return Ok(()) };
            let session = open.session.lock().unwrap_or_else(PoisonError::into_inner).take();
            session.map_or(Ok(()), |session| session.db().close())
        })
    }

    /// Shows what another process has written since; whether there was anything.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        call(py, || self.db()?.refresh())
    }

    fn tables(&self) -> PyResult<Vec<String>> {
        let names = || Ok(self.db()?.tables().iter().map(|schema| schema.name.clone()).collect());
        caught(names).map_err(to_python)
    }

    fn schema(&self, table: &str) -> PyResult<Schema> {
        let schema = caught(|| self.db()?.schema(table)).map_err(to_python)?;
        let fields = schema.fields.iter();
        let fields = fields.map(|field| (field.name.clone(), field.ty.sql_name().to_owned()));
        Ok((schema.time_name().to_owned(), schema.tags.clone(), fields.collect()))
    }

    fn sql(
        &self,
        py: Python<'_>,
        query: &str,
        parameters: Vec<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<Stream> {
        let values: Vec<Parameter> = parameters
            .iter()
            .map(|(kind, value)| parameter(kind, value))
            .collect::<PyResult<_>>()?;
        call_and_look(py, || {
            let session = self.session().map_err(to_python)?;
            let runtime = &self.open.get().map_err(to_python)?.runtime;
            let begin = async {
                let stream = session.query_with(query, &values).await?;
                Batches::begin(Arc::clone(runtime), stream).await
            };
            wait(runtime, begin)?.map(Stream::new).map_err(to_python)
        })
    }

    /// Writes rows; waits until they are on disk. Returns how many, and how many of them replaced others.
    fn write(
        &self,
        py: Python<'_>,
        table: &str,
        data: &Bound<'_, PyAny>,
        time: Option<String>,
        tags: Vec<String>,
        existing: &str,
    ) -> PyResult<(u64, Option<u64>)> {
        let batches = reader(data)?;
        call(py, || {
            let (db, options) = (self.db()?, ArrowOptions { time, tags });
            if let Ok(known) = db.schema(table) {
                if known.kind == TableKind::Records {
                    options.refuse_for_records(table)?;
                    return write_records(&db, &known, batches);
                }
                options.check_tags(&known)?;
            }
            write_all(&db, table, batches, &options, existing_of(existing)?)
        })
    }

    /// Writes a wide frame: every column but that of time is a sensor. All of it or nothing. Returns how many
    /// values, and how many of them replaced others.
    fn write_wide(
        &self,
        py: Python<'_>,
        table: &str,
        data: &Bound<'_, PyAny>,
        time: Option<String>,
        names: (String, String),
        existing: &str,
    ) -> PyResult<(u64, Option<u64>)> {
        let batches = reader(data)?;
        call(py, || {
            let batches = batches.collect::<std::result::Result<Vec<_>, _>>();
            let series = series_of(&batches.map_err(arrow_error)?, time, &names.0, &names.1)?;
            write_series(&self.db()?, table, &series, existing_of(existing)?)
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.db()?.flush().map(drop))
    }

    /// Moves readings to the next models; returns how many.
    fn cascade(&self, py: Python<'_>, table: Option<String>, to: &str) -> PyResult<u64> {
        call(py, || {
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
    }

    fn sensors(&self, py: Python<'_>, table: &str, chosen: Chosen) -> PyResult<Tags> {
        call(py, || Ok(self.sensors_of(table, chosen)?.all_tags()))
    }

    fn frame(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time: (Option<i64>, Option<i64>),
        keep: Option<(bool, f64, f64)>,
    ) -> PyResult<(Tags, Array, Values, usize)> {
        call(py, || {
            let question = self.question(table, chosen, field)?;
            let keep = keep.map(|(is_between, low, high)| match is_between {
                true => Keep::Between(low, high),
                false => Keep::Outside(low, high),
            });
            let block = question.frame(&range_of(time.0, time.1), keep.as_ref())?;
            let missing = block.missing;
            let (times, values) = block_of(block, Some(question.line_count()))?;
            Ok((question.all_tags(), times, values, missing))
        })
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
        call(py, || {
            let Question { snapshot, sensors, .. } = self.sensors_of(table, chosen)?;
            let found = snapshot.extent(&sensors, &range_of(time.0, time.1))?;
            Ok(found.map(|(time, rows)| (time.first_ns, time.last_ns, rows, sensors.len())))
        })
    }

    /// The last nanosecond up to which a frame has at most so many rows.
    fn frame_end(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        time: (Option<i64>, Option<i64>),
        rows_max: usize,
    ) -> PyResult<i64> {
        call(py, || {
            let Question { snapshot, sensors, .. } = self.sensors_of(table, chosen)?;
            snapshot.frame_end(&sensors, &range_of(time.0, time.1), rows_max)
        })
    }

    /// The times and values of each sensor.
    fn series(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time: (Option<i64>, Option<i64>),
    ) -> PyResult<(Tags, Vec<(Array, Values)>)> {
        call(py, || {
            let question = self.question(table, chosen, field)?;
            let time = range_of(time.0, time.1);
            let lines = question.lines(&time);
            let lines = lines.map(|line| block_of(line?, None));
            let lines = lines.collect::<Result<_>>()?;
            Ok((question.all_tags(), lines))
        })
    }

    fn at(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time_ns: i64,
    ) -> PyResult<(Tags, Array, Values)> {
        call(py, || points_of(self.question(table, chosen, field)?.at(time_ns)?))
    }

    fn latest(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
    ) -> PyResult<(Tags, Array, Values)> {
        call(py, || points_of(self.question(table, chosen, field)?.latest()?))
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
    ) -> PyResult<(Tags, Array, Values)> {
        call(py, || {
            let question = self.question(table, chosen, field)?;
            let which = if is_lowest { Extreme::Lowest } else { Extreme::Highest };
            points_of(question.extremes(&range_of(time.0, time.1), which)?)
        })
    }

    /// Bins, in each of which some aggregates are made: for each sensor a line of each of them. A bin is so many
    /// nanoseconds wide, counted from an origin, or so many months.
    fn resample(
        &self,
        py: Python<'_>,
        table: &str,
        chosen: Chosen,
        field: Option<&str>,
        time: (Option<i64>, Option<i64>),
        asked: ((i64, bool, i64), Vec<String>),
    ) -> PyResult<(Tags, Array, Values, usize)> {
        call(py, || {
            let question = self.question(table, chosen, field)?;
            let (bins, what) = asked;
            let bins = Bins::new(bins.0, bins.1, bins.2)?;
            let what =
                what.iter().map(|name| Aggregate::parse(name)).collect::<Result<Vec<_>>>()?;
            let block = question.resample(range_of(time.0, time.1), bins, &what, usize::MAX)?;
            let (missing, lines) = (block.missing, question.line_count() * what.len());
            let (bins, values) = block_of(block, Some(lines))?;
            Ok((question.all_tags(), bins, values, missing))
        })
    }

    /// Reads a duration such as `1h` or `15m`.
    #[staticmethod]
    fn parse_duration(text: &str) -> PyResult<i64> {
        caught(|| tidefall_types::parse_duration(text)).map_err(to_python)
    }

    /// Reads a time as SQL does.
    #[staticmethod]
    fn parse_time(text: &str) -> PyResult<i64> {
        caught(|| tidefall_types::parse_time(text)).map_err(to_python)
    }
}

/// A value of a parameter, which is of a kind that `parameters.py` names.
fn parameter(kind: &str, value: &Bound<'_, PyAny>) -> PyResult<Parameter> {
    Ok(match kind {
        "bool" => Parameter::Bool(value.extract()?),
        "int" => Parameter::Int(value.extract()?),
        "uint" => Parameter::UInt(value.extract()?),
        "float" => Parameter::Float(value.extract()?),
        "text" => Parameter::Text(value.extract()?),
        "time" => Parameter::Time(value.extract()?),
        "date" => Parameter::Date(value.extract()?),
        "interval" => Parameter::Interval(value.extract()?),
        _ => Parameter::Null,
    })
}
