//! Files and streams, decompressed on the fly.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidefall_types::{Error, Result};

/// Stored bytes that a decompressor reads at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The longest magic number that is looked for.
const MAGIC_BYTES_MAX: u64 = 8;

/// A stream of bytes that is decompressed by its magic number: gzip, also of several members, and
/// Zstandard, also of several frames.
pub struct Input {
    name: String,
    reader: Box<dyn Read + Send>,
    stored_bytes_read: Arc<AtomicU64>,
    stored_bytes: Option<u64>,
    /// Where it can be opened once more.
    path: Option<PathBuf>,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Input {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound` or `Io` when it cannot be opened, `Unsupported` when it is compressed in a way
    /// that is not known here.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file =
            File::open(path).map_err(|error| Error::io(format!("opening {name}"), &error))?;
        let about = file.metadata().map_err(|error| Error::io(&name, &error))?;
        if about.is_dir() {
            return Err(Error::invalid(format!("{name} is a directory: name the files in it")));
        }
        // A pipe or a device has no length.
        let stored_bytes = about.is_file().then_some(about.len());
        let input = Self::from_reader(name, Box::new(file), stored_bytes)?;
        Ok(Self { path: stored_bytes.map(|_| path.to_owned()), ..input })
    }

    /// The same input from its beginning; `None` when it can only be read once.
    pub(crate) fn reopen(&self) -> Result<Option<Self>> {
        self.path.as_deref().map(Self::open).transpose()
    }

    /// Reads from a stream; `name` stands for it in messages, and `stored_bytes` is its length,
    /// if known.
    ///
    /// # Errors
    /// `Io` when its first bytes cannot be read, `Unsupported` as in [`Input::open`].
    pub fn from_reader(
        name: impl Into<String>,
        reader: Box<dyn Read + Send>,
        stored_bytes: Option<u64>,
    ) -> Result<Self> {
        let name = name.into();
        let stored_bytes_read = Arc::new(AtomicU64::new(0));
        let mut counted = Counted { reader, count: Arc::clone(&stored_bytes_read) };
        let mut magic = Vec::new();
        counted
            .by_ref()
            .take(MAGIC_BYTES_MAX)
            .read_to_end(&mut magic)
            .map_err(|error| Error::io(format!("reading {name}"), &error))?;
        let format = Format::of(&magic);
        let stored = Cursor::new(magic).chain(counted);
        let reader: Box<dyn Read + Send> = match format {
            Format::Plain => Box::new(stored),
            Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(
                BufReader::with_capacity(BUFFER_BYTES, stored),
            )),
            Format::Zstd => Box::new(
                zstd::stream::read::Decoder::with_buffer(BufReader::with_capacity(
                    BUFFER_BYTES,
                    stored,
                ))
                .map_err(|error| Error::io(format!("reading {name}"), &error))?,
            ),
            Format::Other(what) => {
                return Err(Error::unsupported(format!("{name} is {what}")));
            }
        };
        Ok(Self { name, reader, stored_bytes_read, stored_bytes, path: None })
    }

    /// The name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stored length, if known.
    pub fn stored_bytes(&self) -> Option<u64> {
        self.stored_bytes
    }

    /// Stored bytes read so far.
    pub(crate) fn stored_bytes_read(&self) -> u64 {
        self.stored_bytes_read.load(Ordering::Relaxed)
    }

    /// Reads until `into` holds `bytes_max` bytes or the input ends; returns whether it ended.
    /// What came before an error stays in `into`.
    pub(crate) fn fill(&mut self, into: &mut Vec<u8>, bytes_max: usize) -> Result<bool> {
        let mut used = into.len();
        into.resize(bytes_max.max(used), 0);
        let mut outcome = Ok(false);
        while used < bytes_max {
            match self.reader.read(&mut into[used..]) {
                Ok(0) => {
                    outcome = Ok(true);
                    break;
                }
                Ok(count) => used += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    outcome = Err(self.failure(&error));
                    break;
                }
            }
        }
        into.truncate(used);
        outcome
    }

    fn failure(&self, error: &std::io::Error) -> Error {
        let at = self.stored_bytes_read();
        let place = format!("reading {}, at about byte {at}", self.name);
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::corrupt(format!(
                "{place}: the compressed data is cut short; fetch the file again"
            )),
            std::io::ErrorKind::InvalidInput
            | std::io::ErrorKind::InvalidData
            | std::io::ErrorKind::Other => {
                Error::corrupt(format!("{place}: the compressed data is damaged ({error})"))
            }
            _ => Error::io(place, error),
        }
    }
}

enum Format {
    Plain,
    Gzip,
    Zstd,
    Other(&'static str),
}

impl Format {
    fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // The second form is a skippable frame, with which seekable files may begin.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => binary(magic).map_or(Self::Plain, Self::Other),
        }
    }
}

/// Whether a file that begins so is Parquet. A column of a CSV file may be called `PAR1`, too.
pub(crate) fn is_parquet(magic: &[u8]) -> bool {
    let is_binary = |byte: u8| !matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
    matches!(magic, [b'P', b'A', b'R', b'1', next, ..] if is_binary(*next))
}

/// What bytes are the first of that are no text, and what to do about it.
pub(crate) fn binary(magic: &[u8]) -> Option<&'static str> {
    Some(match magic {
        _ if is_parquet(magic) => {
            "a Parquet file, which is read from a plain file only: unpack it, or give its name instead of a pipe"
        }
        [b'A', b'R', b'R', b'O', b'W', b'1', 0, 0] | [0xff, 0xff, 0xff, 0xff, ..] => {
            "an Arrow file, which is read from a plain file only: unpack it, or give its name instead of a pipe"
        }
        [b'P', b'K', 3, 4, ..] => "a zip archive: unpack it first",
        [b'B', b'Z', b'h', ..] => "compressed with bzip2: unpack it first",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "compressed with xz: unpack it first",
        [0x1f, 0x8b, 8, ..] => "compressed with gzip: unpack it first",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "text in UTF-16: convert it to UTF-8 first",
        [b'F', b'E', b'A', b'1', 0, ..] => {
            "a Feather file of version 1: write it in version 2, or as Parquet"
        }
        [b'O', b'b', b'j', 1, ..] => "an Avro file: write it as Parquet",
        [0x89, b'H', b'D', b'F', ..] => "an HDF5 file: write its table as Parquet or CSV",
        [b'S', b'Q', b'L', b'i', b't', b'e', b' ', b'f'] => {
            "a SQLite database: write its table as CSV"
        }
        [0xd0, 0xcf, 0x11, 0xe0, ..] => "an Excel file: write it as CSV",
        _ => return None,
    })
}

/// Whether text begins with an object of JSON, or with a list of them.
pub(crate) fn is_json(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"[").unwrap_or(text).trim_ascii_start();
    let name = text.strip_prefix(b"{").and_then(|text| text.trim_ascii_start().strip_prefix(b"\""));
    let end = |text: &[u8]| memchr::memchr(b'"', text);
    let behind = name.and_then(|text| text.get(end(text)? + 1..));
    behind.is_some_and(|text| text.trim_ascii_start().starts_with(b":"))
}

struct Counted {
    reader: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(into)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
