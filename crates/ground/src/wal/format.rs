//! The bytes of a log file; `docs/format/wal.md` draws them.
//!
//! ```text
//! file    = header frame* seal?
//! header  = magic[8] version:u32 crc:u32 number:u64 salt:u64 first_seq:u64          (40 bytes)
//! frame   = magic[4] head_crc:u32 body_crc:u32 body_bytes:u32 records:u32 part:u32
//!           synced:u64 body                                                    (32 bytes + body)
//! body    = record+            record = seq:u64 payload_bytes:u32 kind:u8 payload
//! seal    = a frame without records: the file was ended on purpose
//! ```
//!
//! A payload of more than [`PIECE_BYTES_MAX`] is cut into pieces, each the only record of a frame of its
//! own, one frame behind the other in one file. The head of the frame says whether more pieces follow.
//!
//! All numbers are little-endian. Both checksums of a frame start from the salt of the file and the
//! offset of the frame, so that bytes which merely look like a frame, inside of a payload or left
//! over from another file, are never taken for one.

use tidefall_types::{Error, Result, Seq};

/// Bytes of a file header.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes of a frame in front of its body.
pub(super) const FRAME_HEAD_BYTES: usize = 32;
/// Bytes of a record in front of its payload.
pub(super) const RECORD_HEAD_BYTES: usize = 13;
/// The first bytes of every frame.
pub(super) const FRAME_MAGIC: [u8; 4] = *b"TFgr";

const FILE_MAGIC: [u8; 8] = *b"TIDEFwal";
/// In version 2 records had the tags of each new sensor in full; to the log itself it is the same.
const VERSION: u32 = 3;
/// The oldest version that is read: it had no pieces, and payloads of up to 32 MiB in one frame.
const VERSION_MIN: u32 = 1;

/// The longest payload of a record, in all its pieces. Whoever reads the log holds one record at a time, so
/// this bounds the memory that takes; the rows of a larger write would outgrow any budget many times over.
pub const RECORD_BYTES_MAX: usize = 1 << 30;
/// The longest payload that stays in one piece: as much as is written at once of small records, too.
pub(super) const PIECE_BYTES_MAX: usize = 4 << 20;
/// The longest body of a frame that a reader accepts: the longest of version 1.
pub(super) const BODY_BYTES_MAX: usize = (32 << 20) + RECORD_HEAD_BYTES;

/// What stands at the start of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) number: u64,
    pub(super) salt: u64,
    /// All records of earlier files are before it, none of this file is.
    pub(super) first_seq: Seq,
}

impl FileHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&FILE_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.salt.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_seq.0.to_le_bytes());
        let crc = header_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of the log file `number`.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported`, with the reason but without the name.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], number: u64) -> Result<Self> {
        if bytes[0..8] != FILE_MAGIC {
            return Err(Error::corrupt("it is no log file"));
        }
        let version = u32_at(bytes, 8);
        if header_crc(bytes) != u32_at(bytes, 12) {
            return Err(Error::corrupt("the checksum of its header is wrong"));
        }
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(Error::unsupported(format!(
                "it has format {version}, this program reads formats {VERSION_MIN} to {VERSION}; open it with \
                 the version of Tidefall that wrote it, or a newer one"
            )));
        }
        let header = Self {
            number: u64_at(bytes, 16),
            salt: u64_at(bytes, 24),
            first_seq: Seq(u64_at(bytes, 32)),
        };
        if header.number != number {
            return Err(Error::corrupt(format!(
                "its header says that it is file {}",
                header.number
            )));
        }
        Ok(header)
    }
}

fn header_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// What the body of a frame is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// Whole records; or none, in a seal.
    #[default]
    Whole = 0,
    /// A piece of a record that goes on in the next frame.
    Piece = 1,
    /// The last piece of a record.
    LastPiece = 2,
}

impl Part {
    fn from_u32(number: u32) -> Option<Self> {
        [Self::Whole, Self::Piece, Self::LastPiece].into_iter().find(|part| *part as u32 == number)
    }
}

/// What stands in front of the body of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) body_crc: u32,
    pub(super) body_bytes: usize,
    pub(super) records: u32,
    pub(super) part: Part,
    /// The bytes of the file that were known to be durable when the frame was written.
    pub(super) synced: u64,
}

/// Where a frame starts, which its checksums start from.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameStart {
    pub(super) salt: u64,
    pub(super) offset: u64,
}

impl FrameStart {
    fn seed(self) -> u32 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.salt.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        crc32c::crc32c(&bytes)
    }
}

/// What a frame holds, by its head.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Content {
    pub(super) records: u32,
    pub(super) part: Part,
}

impl Content {
    /// Nothing: the file ends here.
    pub(super) const SEAL: Self = Self { records: 0, part: Part::Whole };
}

/// Fills in the head of `frame`, whose body is complete.
pub(super) fn finish_frame(frame: &mut [u8], content: Content, synced: u64, start: FrameStart) {
    let body_bytes = frame.len() - FRAME_HEAD_BYTES;
    assert!(body_bytes <= BODY_BYTES_MAX, "a frame of {body_bytes} bytes could not be read again");
    let seed = start.seed();
    let (head, body) = frame.split_at_mut(FRAME_HEAD_BYTES);
    head[0..4].copy_from_slice(&FRAME_MAGIC);
    head[8..12].copy_from_slice(&crc32c::crc32c_append(seed, body).to_le_bytes());
    head[12..16].copy_from_slice(&(body_bytes as u32).to_le_bytes());
    head[16..20].copy_from_slice(&content.records.to_le_bytes());
    head[20..24].copy_from_slice(&(content.part as u32).to_le_bytes());
    head[24..32].copy_from_slice(&synced.to_le_bytes());
    let head_crc = crc32c::crc32c_append(seed, &head[8..]);
    head[4..8].copy_from_slice(&head_crc.to_le_bytes());
}

impl FrameHead {
    /// Reads the head of the frame at `start`; none when these bytes are no such head.
    pub(super) fn decode(bytes: &[u8; FRAME_HEAD_BYTES], start: FrameStart) -> Option<Self> {
        let valid = bytes[0..4] == FRAME_MAGIC
            && crc32c::crc32c_append(start.seed(), &bytes[8..]) == u32_at(bytes, 4);
        let head = Self {
            body_crc: u32_at(bytes, 8),
            body_bytes: u32_at(bytes, 12) as usize,
            records: u32_at(bytes, 16),
            part: Part::from_u32(u32_at(bytes, 20))?,
            synced: u64_at(bytes, 24),
        };
        (valid && head.body_bytes <= BODY_BYTES_MAX).then_some(head)
    }

    /// Whether `body` is the one that was written.
    pub(super) fn matches(&self, body: &[u8], start: FrameStart) -> bool {
        crc32c::crc32c_append(start.seed(), body) == self.body_crc
    }

    /// Whether this frame ends its file.
    pub(super) fn is_seal(&self) -> bool {
        self.records == 0
    }
}

/// Puts the head of a record at the end of `out`; its payload comes next.
pub(super) fn push_record_head(out: &mut Vec<u8>, seq: Seq, kind: u8, payload_bytes: u32) {
    out.extend_from_slice(&seq.0.to_le_bytes());
    out.extend_from_slice(&payload_bytes.to_le_bytes());
    out.push(kind);
}

/// The record at the start of `body` and what comes behind it; none when it is cut short.
pub(super) fn split_record(body: &[u8]) -> Option<(Seq, u8, &[u8], &[u8])> {
    let (head, rest) = body.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    let (payload, rest) = rest.split_at_checked(u32_at(head, 8) as usize)?;
    Some((Seq(u64_at(head, 0)), head[12], payload, rest))
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
