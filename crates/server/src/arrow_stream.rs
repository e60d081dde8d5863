//! A body in Arrow's stream format, from whoever sent it.
//!
//! ```text
//! 0xFFFFFFFF │ length u32 │ message │ body │ 0xFFFFFFFF │ length u32 │ ... │ 0xFFFFFFFF │ 0
//! ```
//!
//! A message is a flatbuffer that gives the length of its body and where the buffers lie in there. arrow-ipc believes
//! such lengths and takes memory for them. So they are held against the bytes that are there first.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::{CompressionType, Message, MessageHeader, root_as_message};
use axum::body::Bytes;
use tidefall_types::{Error, Result};

/// Stands before the length of a message; streams of Arrow before 0.15 lack it.
const CONTINUATION: u32 = u32::MAX;

/// The length before a packed buffer of which the bytes are not packed after all.
const NOT_PACKED: i64 = -1;

/// Bytes of the length before a packed buffer.
const PACKED_HEAD_BYTES: usize = 8;

/// The bytes that all buffers of a stream take when they are unpacked.
///
/// # Errors
/// `Invalid` when a length reaches beyond the bytes that are there, `Unsupported` for buffers packed with LZ4.
pub(crate) fn unpacked_bytes(stream: &[u8]) -> Result<usize> {
    let mut rest = stream;
    let mut sum = 0_usize;
    while let Some(length) = message_length(&mut rest)? {
        let message = root_as_message(take(&mut rest, length)?).map_err(damaged)?;
        let body_bytes = usize::try_from(message.bodyLength()).map_err(damaged)?;
        let bytes = unpacked_bytes_of(&message, take(&mut rest, body_bytes)?)?;
        sum = sum.checked_add(bytes).ok_or_else(cut_off)?;
    }
    Ok(sum)
}

/// The batches of a stream of which [`unpacked_bytes`] has checked the lengths.
///
/// # Errors
/// `Invalid` when it is damaged.
pub(crate) fn read(stream: Bytes) -> Result<Vec<RecordBatch>> {
    // arrow-ipc panics where numbers within a batch contradict each other, such as offsets that fall or an unknown
    // unit of time. Nothing outlives the decoder, so that nothing half done is left behind.
    catch_unwind(AssertUnwindSafe(|| decode(stream)))
        .unwrap_or_else(|_| Err(damaged("its numbers contradict each other")))
}

fn decode(stream: Bytes) -> Result<Vec<RecordBatch>> {
    let mut rest = Buffer::from(stream);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !rest.is_empty() {
        batches.extend(decoder.decode(&mut rest).map_err(damaged)?);
    }
    decoder.finish().map_err(damaged)?;
    if decoder.schema().is_none() {
        return Err(damaged("it has no schema"));
    }
    Ok(batches)
}

/// The length of the message at the start of `rest`, which moves on behind it; none at the end.
fn message_length(rest: &mut &[u8]) -> Result<Option<usize>> {
    if rest.is_empty() {
        return Ok(None);
    }
    let mut length = take_u32(rest)?;
    if length == CONTINUATION {
        length = take_u32(rest)?;
    }
    Ok((length != 0).then_some(length as usize))
}

fn take_u32(rest: &mut &[u8]) -> Result<u32> {
    let (bytes, after) = rest.split_first_chunk().ok_or_else(cut_off)?;
    *rest = after;
    Ok(u32::from_le_bytes(*bytes))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(length).ok_or_else(cut_off)?;
    *rest = after;
    Ok(bytes)
}

/// The bytes that the buffers of a message take when they are unpacked.
fn unpacked_bytes_of(message: &Message<'_>, body: &[u8]) -> Result<usize> {
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => {
            message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data())
        }
        _ => None,
    };
    let Some(batch) = batch else { return Ok(0) };
    let codec = batch.compression().map(|compression| compression.codec());
    // The unpacker for LZ4 goes on beyond the length that it was told.
    if codec == Some(CompressionType::LZ4_FRAME) {
        return Err(Error::unsupported(
            "buffers packed with LZ4 are not read: pack the Arrow stream with zstd, or not at all",
        ));
    }
    let (mut stored, mut unpacked) = (0_usize, 0_usize);
    for buffer in batch.buffers().into_iter().flatten() {
        let start = usize::try_from(buffer.offset()).map_err(damaged)?;
        let length = usize::try_from(buffer.length()).map_err(damaged)?;
        let bytes = start.checked_add(length).and_then(|end| body.get(start..end));
        let bytes = bytes.ok_or_else(cut_off)?;
        stored = stored.saturating_add(length);
        let length = if codec.is_some() { unpacked_length(bytes)? } else { length };
        unpacked = unpacked.checked_add(length).ok_or_else(cut_off)?;
    }
    // Each buffer may be copied, so that many over the same bytes would take many times the body.
    if stored > body.len() {
        return Err(damaged("its buffers overlap"));
    }
    Ok(unpacked)
}

/// The length of a packed buffer as it was before, which stands in front of it.
fn unpacked_length(bytes: &[u8]) -> Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let (head, packed) = bytes.split_first_chunk::<PACKED_HEAD_BYTES>().ok_or_else(cut_off)?;
    match i64::from_le_bytes(*head) {
        NOT_PACKED => Ok(packed.len()),
        length => usize::try_from(length).map_err(damaged),
    }
}

fn cut_off() -> Error {
    damaged("it announces more bytes than there are")
}

fn damaged(why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("the body is a damaged Arrow stream: {why}"))
}
