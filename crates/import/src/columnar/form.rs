//! What kind a file is.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use tidefall_types::Result;

use super::damaged;
use super::int96::Int96;
use crate::input::is_parquet;
use crate::ipc::{CONTINUATION, FILE_MAGIC, IpcReader};

/// Whether a file is read as Parquet or Arrow: it begins as such files do, whatever it is called, or its name ends in
/// `.parquet`. Of a pipe there is only the name.
pub fn is_columnar(path: &Path) -> bool {
    let has_name = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet"));
    has_name || matches!(Kind::of(path), Some(Kind::Parquet | Kind::Arrow))
}

/// What a file is by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Parquet,
    Arrow,
}

impl Kind {
    fn of(path: &Path) -> Option<Self> {
        if !path.is_file() {
            return None;
        }
        let mut magic = Vec::new();
        let count = FILE_MAGIC.len() as u64;
        File::open(path).ok()?.take(count).read_to_end(&mut magic).ok()?;
        Self::of_bytes(&magic)
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if is_parquet(bytes) {
            return Some(Self::Parquet);
        }
        let is_arrow = bytes.starts_with(&FILE_MAGIC) || bytes.starts_with(&CONTINUATION);
        is_arrow.then_some(Self::Arrow)
    }
}

/// What a Parquet file says about itself.
#[derive(Debug)]
pub(super) struct Parquet {
    pub metadata: ArrowReaderMetadata,
    /// Its times of 96 bits, if it has some.
    pub int96: Option<Int96>,
}

impl Parquet {
    fn of(file: &File) -> parquet::errors::Result<Self> {
        let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::new())?;
        Ok(Self { int96: Int96::of(&metadata)?, metadata })
    }
}

/// What kind of file it is, and what it says about itself.
#[derive(Debug)]
pub(super) enum Form {
    Parquet(Parquet),
    Arrow {
        schema: SchemaRef,
        bytes_read: AtomicU64,
        /// To its end.
        is_read: AtomicBool,
    },
}

impl Form {
    /// # Errors
    /// `Corrupt` when it is no whole file of its kind.
    pub(super) fn of(path: &Path, file: &File) -> Result<Self> {
        if Kind::of(path) == Some(Kind::Arrow) {
            let schema = Arc::clone(IpcReader::open(path)?.schema());
            let (bytes_read, is_read) = (AtomicU64::new(0), AtomicBool::new(false));
            return Ok(Self::Arrow { schema, bytes_read, is_read });
        }
        Parquet::of(file)
            .map(Self::Parquet)
            .map_err(|error| damaged(&path.display().to_string(), error))
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        match self {
            Self::Parquet(parquet) => parquet.metadata.schema(),
            Self::Arrow { schema, .. } => schema,
        }
    }

    pub(super) fn groups(&self) -> usize {
        match self {
            Self::Parquet(parquet) => parquet.metadata.metadata().num_row_groups(),
            Self::Arrow { .. } => 1,
        }
    }
}
