//! Arrow's own files: the form with a footer (also called Feather), and the stream without one.
//!
//! ```text
//! stream = message* [0xFFFFFFFF 0]; several of the same columns may lie behind each other
//! message = 0xFFFFFFFF │ length u32 │ flatbuffer of that length │ body
//! file = "ARROW1" 0 0 │ messages │ footer │ length u32 │ "ARROW1"
//! ```
//!
//! The footer of a file has the schema, and where the messages lie: dictionaries may be behind what needs them. arrow-ipc
//! believes the lengths in footers and messages and takes memory for them, so that they are held against the bytes that
//! are there first.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::{FileDecoder, StreamDecoder, read_footer_length};
use arrow_ipc::{Block, CompressionType, Message, MessageHeader, root_as_footer, root_as_message};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use tidefall_types::{Error, Result};

/// With what a file begins.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"ARROW1\0\0";
/// Stands before the length of a message; with it a stream begins.
pub(crate) const CONTINUATION: [u8; 4] = [0xff; 4];
/// The end of a stream, which may be missing.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Bytes at the end of a file: the length of the footer, and the magic.
const TAIL_BYTES: usize = 10;
/// Bytes of a batch when it is unpacked; it is in memory as a whole.
const UNPACKED_BYTES_MAX: usize = 2 << 30;
/// The length before a packed buffer of which the bytes are not packed after all.
const NOT_PACKED: i64 = -1;
/// Bytes of the length before a packed buffer.
const PACKED_HEAD_BYTES: usize = 8;

/// The batches of an Arrow file, in order. After an error there are no more.
pub(crate) struct IpcReader {
    input: Input,
    form: Form,
    schema: SchemaRef,
}

enum Form {
    File { decoder: FileDecoder, blocks: std::vec::IntoIter<Block> },
    Stream(Stream),
    Done,
}

impl IpcReader {
    /// Opens a file and reads its schema.
    ///
    /// # Errors
    /// `NotFound` or `Io` when it cannot be read, `Corrupt` when it is no whole Arrow file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut input = Input::open(path)?;
        if input.is_next(&FILE_MAGIC)? {
            return Self::open_file(input);
        }
        let stream = Stream::open(&mut input)?;
        let schema = stream.schema().ok_or_else(|| input.damaged("it has no schema"))?;
        Ok(Self { input, form: Form::Stream(stream), schema })
    }

    fn open_file(mut input: Input) -> Result<Self> {
        let tail_at = input.bytes.saturating_sub(TAIL_BYTES as u64);
        input.seek(tail_at)?;
        let mut tail = [0; TAIL_BYTES];
        input.fill(&mut tail)?;
        let footer_bytes = read_footer_length(tail).map_err(|error| input.damaged(error))?;
        let footer_at = tail_at.checked_sub(footer_bytes as u64);
        input.seek(footer_at.ok_or_else(|| input.damaged("its footer is cut short"))?)?;
        let bytes = input.take(footer_bytes)?;
        let footer = root_as_footer(&bytes).map_err(|error| input.damaged(error))?;
        let schema = footer.schema().ok_or_else(|| input.damaged("it has no schema"))?;
        let schema: Schema = input.guarded(|| Ok(fb_to_schema(schema)))?;
        let schema = Arc::new(schema);
        let mut decoder = FileDecoder::new(Arc::clone(&schema), footer.version());
        for block in footer.dictionaries().into_iter().flatten() {
            let bytes = input.block(block)?;
            input.guarded(|| decoder.read_dictionary(block, &bytes))?;
        }
        let blocks: Vec<Block> = footer.recordBatches().into_iter().flatten().copied().collect();
        // Of the file as far as its batches go, which are read now.
        input.seek(FILE_MAGIC.len() as u64)?;
        Ok(Self { input, form: Form::File { decoder, blocks: blocks.into_iter() }, schema })
    }

    /// The columns of all batches.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Bytes that were not read yet.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.input.left
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.form {
            Form::File { decoder, blocks } => {
                for block in blocks {
                    let bytes = self.input.block(&block)?;
                    let batch = self.input.guarded(|| decoder.read_record_batch(&block, &bytes))?;
                    if batch.is_some() {
                        return Ok(batch);
                    }
                }
                Ok(None)
            }
            Form::Stream(stream) => loop {
                let batch = stream.next_batch(&mut self.input)?;
                if batch.is_some() || self.input.left == 0 {
                    return Ok(batch);
                }
                *stream = Stream::behind(&mut self.input, &self.schema)?;
            },
            Form::Done => Ok(None),
        }
    }
}

impl Iterator for IpcReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch().transpose();
        if matches!(batch, None | Some(Err(_))) {
            self.form = Form::Done;
        }
        batch
    }
}

/// A stream of batches, as far as its end.
struct Stream {
    decoder: StreamDecoder,
    /// A batch that was read with the schema.
    ahead: Option<RecordBatch>,
    is_done: bool,
}

impl Stream {
    /// Reads the schema of a stream, if it has one.
    fn open(input: &mut Input) -> Result<Self> {
        let mut stream = Self { decoder: StreamDecoder::new(), ahead: None, is_done: false };
        while stream.decoder.schema().is_none() && !stream.is_done {
            // The decoder looks at a message without body when it gets the next one.
            stream.ahead = stream.step(input)?;
        }
        Ok(stream)
    }

    /// Opens the stream behind the end of another one.
    fn behind(input: &mut Input, schema: &Schema) -> Result<Self> {
        let left = input.left;
        let is_stream = input.is_next(&CONTINUATION)?;
        let stream = if is_stream { Some(Self::open(input)?) } else { None };
        let Some(found) = stream.as_ref().and_then(Self::schema) else {
            return Err(input.damaged(format_args!(
                "{left} bytes are left behind the end of the stream, and are no other one"
            )));
        };
        match stream {
            Some(stream) if have_same_columns(&found, schema) => Ok(stream),
            _ => Err(Error::invalid(format!(
                "{}: the stream in its last {left} bytes has other columns than the one before: cut them off, \
                 and import them as a file of their own",
                input.name
            ))),
        }
    }

    fn schema(&self) -> Option<SchemaRef> {
        self.decoder.schema()
    }

    fn next_batch(&mut self, input: &mut Input) -> Result<Option<RecordBatch>> {
        let mut batch = self.ahead.take();
        while batch.is_none() && !self.is_done {
            batch = self.step(input)?;
        }
        Ok(batch)
    }

    /// Reads one message: the batch that the decoder makes of it, if it does.
    fn step(&mut self, input: &mut Input) -> Result<Option<RecordBatch>> {
        let message = input.message()?;
        self.is_done = message.is_none();
        let mut rest = Buffer::from_vec(message.unwrap_or_else(|| END.to_vec()));
        input.guarded(|| {
            let mut batch = None;
            while !rest.is_empty() {
                batch = self.decoder.decode(&mut rest)?.or(batch);
            }
            Ok(batch)
        })
    }
}

/// Whether batches of both may follow each other: remarks about columns do not matter.
fn have_same_columns(one: &Schema, other: &Schema) -> bool {
    let columns = |schema: &Schema| -> Vec<(String, DataType)> {
        let fields = schema.fields().iter();
        fields.map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    columns(one) == columns(other)
}

/// The bytes of a file, of which no more are read than there are.
struct Input {
    name: String,
    file: BufReader<File>,
    bytes: u64,
    left: u64,
}

impl Input {
    fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let failed = |error| Error::io(format!("opening {name}"), &error);
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Self { name, file: BufReader::new(file), bytes, left: bytes })
    }

    fn seek(&mut self, to: u64) -> Result<()> {
        self.left = self.bytes.checked_sub(to).ok_or_else(|| self.damaged("it is cut short"))?;
        let sought = self.file.seek(SeekFrom::Start(to));
        sought.map(drop).map_err(|error| Error::io(format!("reading {}", self.name), &error))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| self.damaged("it is cut short"))?;
        let read = self.file.read_exact(bytes);
        read.map_err(|error| Error::io(format!("reading {}", self.name), &error))
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>> {
        if count as u64 > self.left {
            return Err(self.damaged("it is cut short"));
        }
        let mut bytes = vec![0; count];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether the next bytes are `expected`; they are still to be read.
    fn is_next(&mut self, expected: &[u8]) -> Result<bool> {
        let at = self.bytes - self.left;
        let is_next = self.left >= expected.len() as u64 && self.take(expected.len())? == expected;
        self.seek(at)?;
        Ok(is_next)
    }

    /// The bytes of the next message of a stream, whose lengths are right; `None` at the end.
    fn message(&mut self) -> Result<Option<Vec<u8>>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut bytes = self.take(4)?;
        if bytes == CONTINUATION {
            bytes.extend(self.take(4)?);
        }
        let start = bytes.len();
        let length = le_u32(&bytes[start - 4..]) as usize;
        if length == 0 {
            return Ok(None);
        }
        bytes.extend(self.take(length)?);
        let message = root_as_message(&bytes[start..]).map_err(|error| self.damaged(error))?;
        let body_bytes = usize::try_from(message.bodyLength()).map_err(|e| self.damaged(e))?;
        let body = bytes.len();
        bytes.extend(self.take(body_bytes)?);
        let message = root_as_message(&bytes[start..body]).map_err(|error| self.damaged(error))?;
        check_unpacked(&message, &bytes[body..]).map_err(|error| error.context(&self.name))?;
        Ok(Some(bytes))
    }

    /// A message of a file and its body, whose lengths are right.
    fn block(&mut self, block: &Block) -> Result<Buffer> {
        let cut = || self.damaged("a batch lies outside of it");
        let at = u64::try_from(block.offset()).map_err(|_| cut())?;
        let head = usize::try_from(block.metaDataLength()).map_err(|_| cut())?;
        let body = usize::try_from(block.bodyLength()).map_err(|_| cut())?;
        let bytes = head.checked_add(body).ok_or_else(cut)?;
        self.seek(at)?;
        let bytes = self.take(bytes)?;
        let (head, body) = bytes.split_at(head);
        let start = if head.starts_with(&CONTINUATION) { 8 } else { 4 };
        let message = head.get(start..).ok_or_else(|| self.damaged("a batch is too short"))?;
        let message = root_as_message(message).map_err(|error| self.damaged(error))?;
        check_unpacked(&message, body).map_err(|error| error.context(&self.name))?;
        Ok(Buffer::from_vec(bytes))
    }

    /// What arrow-ipc makes of bytes. It panics where numbers contradict each other; it is not asked again then.
    fn guarded<T>(&self, decode: impl FnOnce() -> std::result::Result<T, ArrowError>) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(decode)) {
            Ok(decoded) => decoded.map_err(|error| self.damaged(error)),
            Err(_) => Err(self.damaged("its numbers contradict each other")),
        }
    }

    fn damaged(&self, why: impl std::fmt::Display) -> Error {
        Error::corrupt(format!("{}: the Arrow file is damaged: {why}", self.name))
    }
}

fn le_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Checks that the buffers of a message lie in its body and are not too large when they are unpacked.
fn check_unpacked(message: &Message<'_>, body: &[u8]) -> Result<()> {
    let damaged =
        || Error::corrupt("the Arrow file is damaged: a buffer lies outside of its batch");
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => {
            message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data())
        }
        _ => None,
    };
    let Some(batch) = batch else { return Ok(()) };
    let is_packed = batch.compression().is_some_and(|compression| {
        [CompressionType::LZ4_FRAME, CompressionType::ZSTD].contains(&compression.codec())
    });
    let (mut stored, mut unpacked) = (0_usize, 0_usize);
    for buffer in batch.buffers().into_iter().flatten() {
        let place =
            usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let place = place.and_then(|(start, length)| Some(start..start.checked_add(length)?));
        let bytes = place.and_then(|place| body.get(place)).ok_or_else(damaged)?;
        stored = stored.saturating_add(bytes.len());
        let length = match bytes.first_chunk::<PACKED_HEAD_BYTES>().filter(|_| is_packed) {
            Some(head) => match i64::from_le_bytes(*head) {
                NOT_PACKED => bytes.len(),
                length => usize::try_from(length).map_err(|_| damaged())?,
            },
            None => bytes.len(),
        };
        unpacked = unpacked.saturating_add(length);
    }
    // Each buffer may be copied, so that many over the same bytes would take many times the body.
    if stored > body.len() {
        return Err(damaged());
    }
    match unpacked <= UNPACKED_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::limit(format!(
            "a batch of {unpacked} bytes; up to {UNPACKED_BYTES_MAX} can be read: write the file in smaller batches"
        ))),
    }
}
