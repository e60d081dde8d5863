//! Numbers that numpy views without a copy.

use arrow_buffer::ArrowNativeType;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A block of numbers in memory that numpy takes as it is (`numpy.asarray`), writable, and that lives
/// as long as a numpy array shows it.
#[pyclass(frozen, module = "tidefall._tidefall")]
pub(crate) struct Array {
    memory: Memory,
    shape: Vec<usize>,
    typestr: &'static str,
}

/// A vector, taken apart: Python may write to it, so no reference to its numbers may be alive here.
struct Memory {
    start: *mut u8,
    count: usize,
    capacity: usize,
    free: unsafe fn(*mut u8, usize, usize),
}

// SAFETY: the memory is owned, like that of a vector, and this crate never reads or writes it between
// taking it apart and freeing it.
unsafe impl Send for Memory {}
// SAFETY: as above; shared references give access to the address alone.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the parts are those of the vector in `Memory::new`, and are put together once.
        unsafe { (self.free)(self.start, self.count, self.capacity) }
    }
}

impl Memory {
    fn new<T: ArrowNativeType>(values: Vec<T>) -> Self {
        unsafe fn free<T>(start: *mut u8, count: usize, capacity: usize) {
            // SAFETY: the caller gives the parts of a `Vec<T>`. Every bit pattern that Python may have
            // written is a number.
            drop(unsafe { Vec::from_raw_parts(start.cast::<T>(), count, capacity) });
        }
        let mut values = std::mem::ManuallyDrop::new(values);
        Self {
            start: values.as_mut_ptr().cast(),
            count: values.len(),
            capacity: values.capacity(),
            free: free::<T>,
        }
    }
}

/// A type of numbers as numpy names it.
pub(crate) trait NumpyType: ArrowNativeType {
    const TYPESTR: &'static str;
}

macro_rules! numpy_types {
    ($($native:ty => $name:literal),*) => {$(
        impl NumpyType for $native {
            const TYPESTR: &'static str = $name;
        }
    )*};
}
numpy_types!(i8 => "|i1", i16 => "<i2", i32 => "<i4", i64 => "<i8", u8 => "|u1", u16 => "<u2",
    u32 => "<u4", u64 => "<u8", f32 => "<f4", f64 => "<f8");

impl Array {
    /// One dimension.
    pub(crate) fn new<T: NumpyType>(values: Vec<T>) -> Self {
        let shape = vec![values.len()];
        Self { memory: Memory::new(values), shape, typestr: T::TYPESTR }
    }

    /// Times, which numpy shows as `datetime64[ns]`.
    pub(crate) fn times(values: Vec<i64>) -> Self {
        Self { typestr: "<M8[ns]", ..Self::new(values) }
    }

    /// Two dimensions: so many rows of the same length.
    pub(crate) fn matrix<T: NumpyType>(values: Vec<T>, rows: usize, columns: usize) -> Self {
        debug_assert_eq!(values.len(), rows * columns, "a matrix of another size");
        Self { shape: vec![rows, columns], ..Self::new(values) }
    }
}

#[pymethods]
impl Array {
    /// Numpy's array interface, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", self.typestr)?;
        let is_read_only = false;
        interface.set_item("data", (self.memory.start as usize, is_read_only))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.shape[0]
    }
}
