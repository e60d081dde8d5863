//! Tables that cross between Python and Tidefall, by Arrow's C interface: no library of Arrow is needed
//! on the other side but one that speaks it, and nothing is copied.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, SchemaRef};
use futures::StreamExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tidefall_sql::{QueryStream, UniqueValues};
use tidefall_types::{Error, Result, caught};
use tokio::runtime::Runtime;

use crate::calls::{call, call_and_look, caught_here};
use crate::errors::{ClosedError, to_python};
use crate::process::Owned;
use crate::wait::wait;

/// Reads what a Python object offers by `__arrow_c_stream__`.
///
/// # Errors
/// `TypeError` when it offers nothing.
pub(crate) fn reader(data: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let capsule = data.call_method0("__arrow_c_stream__").map_err(|error| {
        match error.is_instance_of::<pyo3::exceptions::PyAttributeError>(data.py()) {
            true => PyTypeError::new_err("this is no data of Arrow"),
            false => error,
        }
    })?;
    let capsule = capsule.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds a stream of Arrow's C interface, which is moved out of it:
    // what is left there counts as released, as the interface demands.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.cast().as_ptr()) };
    ArrowArrayStreamReader::try_new(stream).map_err(|error| to_python(arrow_error(error)))
}

/// The answer to a query; its batches are computed as they are asked for.
#[pyclass(frozen, module = "tidefall._tidefall")]
pub(crate) struct Stream {
    schema: SchemaRef,
    // None when it is at its end, closed, or handed over. Locked without the interpreter's lock alone: who
    // holds it may wait for that one.
    batches: Owned<Mutex<Option<Batches>>>,
}

impl Stream {
    pub(crate) fn new(batches: Batches) -> Self {
        let schema = batches.stream.schema();
        Self { schema, batches: Owned::new(Mutex::new(Some(batches))) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Batches>>> {
        Ok(self.batches.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl Stream {
    /// The next batch; none at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        call_and_look(py, || {
            let mut batches = self.lock().map_err(to_python)?;
            let next = caught_here(|| batches.as_mut().map_or(Ok(None), Batches::wait_for_next));
            if !matches!(next, Ok(Some(_))) {
                *batches = None;
            }
            Ok(next?.map(Batch))
        })
    }

    /// Whether there may be batches that have not been read.
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        call(py, || Ok(self.lock()?.is_some()))
    }

    /// Stops the query.
    fn close(&self, py: Python<'_>) {
        // One that belongs to another process is left to it. What is dropped has no more to say.
        drop(call(py, || self.lock().map(|mut batches| drop(batches.take()))));
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema)
            .map_err(|error| to_python(arrow_error(error)))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Hands over the batches that have not been read.
    ///
    /// # Errors
    /// `Closed` when there are none any more.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows to offer another schema than the one that is wished for.
        let _ = requested_schema;
        let batches = call(py, || Ok(self.lock()?.take()))?;
        let batches = batches.ok_or_else(|| {
            ClosedError::new_err(
                "these rows were read; run the statement again, or keep to_arrow()",
            )
        })?;
        let schema = Arc::clone(&self.schema);
        let reader = Reader { schema, batches: Owned::new(batches), asker: thread::current().id() };
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// A part of an answer.
#[pyclass(frozen, module = "tidefall._tidefall")]
pub(crate) struct Batch(RecordBatch);

impl Batch {
    /// A single column, which is called "value".
    pub(crate) fn of(values: ArrayRef) -> Result<Self> {
        RecordBatch::try_from_iter([("value", values)]).map(Self).map_err(arrow_error)
    }
}

#[pymethods]
impl Batch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let rows = StructArray::from(self.0.clone());
        let (array, schema): (FFI_ArrowArray, FFI_ArrowSchema) =
            to_ffi(&rows.into_data()).map_err(|error| to_python(arrow_error(error)))?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        Ok((schema, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }
}

/// The batches of an answer, fit for Python.
pub(crate) struct Batches {
    runtime: Arc<Runtime>,
    first: Option<RecordBatch>,
    stream: QueryStream,
    unique: UniqueValues,
}

impl Batches {
    /// Waits for the first batch: statements that change something do so when their answer is asked for.
    pub(crate) async fn begin(runtime: Arc<Runtime>, mut stream: QueryStream) -> Result<Self> {
        let first = stream.next().await.transpose()?;
        let unique = UniqueValues::new(stream.schema().fields().len());
        Ok(Self { runtime, first, stream, unique })
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = match self.first.take() {
            Some(first) => Some(first),
            None => self.stream.next().await.transpose()?,
        };
        batch.map(|batch| self.unique.apply(&batch)).transpose()
    }

    fn wait_for_next(&mut self) -> PyResult<Option<RecordBatch>> {
        let runtime = Arc::clone(&self.runtime);
        wait(&runtime, self.next())?.map_err(to_python)
    }
}

/// Batches for Arrow's C interface.
struct Reader {
    schema: SchemaRef,
    batches: Owned<Batches>,
    /// The thread to which they were handed over.
    asker: ThreadId,
}

impl Reader {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let is_asker = thread::current().id() == self.asker;
        let batches = self.batches.get_mut()?;
        let runtime = Arc::clone(&batches.runtime);
        // Another thread may be waited for by one that holds the interpreter's lock.
        match is_asker {
            true => wait(&runtime, batches.next())
                .unwrap_or_else(|_| Err(Error::closed("the query was interrupted"))),
            false => runtime.block_on(batches.next()),
        }
    }
}

impl Iterator for Reader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // It is C that calls.
        caught(|| self.next_batch())
            .map_err(|error| ArrowError::ExternalError(Box::new(error)))
            .transpose()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

pub(crate) fn arrow_error(error: ArrowError) -> Error {
    Error::invalid(format!("Arrow: {error}"))
}
