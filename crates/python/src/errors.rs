//! Errors as Python exceptions: one class for each kind, all of them `tidefall.Error`.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tidefall_types::ErrorKind;

create_exception!(tidefall, Error, PyException, "Something that Tidefall could not do.");
create_exception!(tidefall, InvalidError, Error, "The input is wrong.");
create_exception!(tidefall, NotFoundError, Error, "What was named does not exist.");
create_exception!(tidefall, ConflictError, Error, "It exists already, or differently.");
create_exception!(tidefall, CorruptError, Error, "Stored bytes are damaged.");
create_exception!(tidefall, IoError, Error, "The disk or the network failed.");
create_exception!(
    tidefall,
    FullError,
    Error,
    "The disk is full, or no more files can be opened: make room and try again."
);
create_exception!(tidefall, LimitError, Error, "A limit of memory, time or size was reached.");
create_exception!(tidefall, LockedError, Error, "Another process writes this database.");
create_exception!(tidefall, ClosedError, Error, "The database is closed for writing.");
create_exception!(tidefall, UnsupportedError, Error, "This version cannot do it.");

/// The exception for an error.
pub(crate) fn to_python(error: tidefall_types::Error) -> PyErr {
    let message = error.message().to_owned();
    match error.kind() {
        ErrorKind::Invalid => InvalidError::new_err(message),
        ErrorKind::NotFound => NotFoundError::new_err(message),
        ErrorKind::Conflict => ConflictError::new_err(message),
        ErrorKind::Corrupt => CorruptError::new_err(message),
        ErrorKind::Io => IoError::new_err(message),
        ErrorKind::Full => FullError::new_err(message),
        ErrorKind::Limit => LimitError::new_err(message),
        ErrorKind::Locked => LockedError::new_err(message),
        ErrorKind::Closed => ClosedError::new_err(message),
        ErrorKind::Unsupported => UnsupportedError::new_err(message),
        ErrorKind::Internal => Error::new_err(message),
    }
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("InvalidError", py.get_type::<InvalidError>())?;
    module.add("NotFoundError", py.get_type::<NotFoundError>())?;
    module.add("ConflictError", py.get_type::<ConflictError>())?;
    module.add("CorruptError", py.get_type::<CorruptError>())?;
    module.add("IoError", py.get_type::<IoError>())?;
    module.add("FullError", py.get_type::<FullError>())?;
    module.add("LimitError", py.get_type::<LimitError>())?;
    module.add("LockedError", py.get_type::<LockedError>())?;
    module.add("ClosedError", py.get_type::<ClosedError>())?;
    module.add("UnsupportedError", py.get_type::<UnsupportedError>())
}
