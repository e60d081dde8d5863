//! Reading log files: what is valid, where it ends, and whether the end is a torn tail or damage.

use std::sync::Arc;

use tidefall_store::names;
use tidefall_store::{ADVICE, Disk, DiskEntry, DiskFile};
use tidefall_types::{Error, ErrorKind, Result, Seq};

use super::format::{
    BODY_BYTES_MAX, FRAME_HEAD_BYTES, FRAME_MAGIC, FileHeader, FrameHead, FrameStart, HEADER_BYTES,
    Part, RECORD_BYTES_MAX, split_record,
};

/// Bytes looked at together in search of a frame behind damage.
const SEARCH_BYTES: usize = 1 << 20;

/// Files of a log that are held open at once, the first that will be read and the last: as many as the log has of a
/// database with the usual memory, so that who reads beside its writer has all of them, and few beside the 1,024 files
/// that a process may usually hold open. One that was cut before it is opened again is an error for that reader, who
/// then begins anew with what the manifest has become.
const OPEN_FILES_MAX: usize = 16;

/// What the log directory holds.
#[derive(Debug)]
pub(super) struct Survey {
    /// The files that may hold wanted records, in order, without a gap.
    pub(super) files: Vec<LogFile>,
    /// Where the valid part of the last of them ends.
    pub(super) tail: Option<Tail>,
    /// Files before those, wholly behind the first wanted record.
    pub(super) unwanted: Vec<u64>,
    /// A last file in whose creation the process died.
    pub(super) unborn: Option<u64>,
}

impl Survey {
    /// Whether opening the log for writing drops bytes.
    pub(super) fn drops_something(&self) -> bool {
        let is_torn = |last: &LogFile| self.tail.is_some_and(|tail| tail.end < last.size);
        self.unborn.is_some() || self.files.last().is_some_and(is_torn)
    }
}

/// A file of the log. As long as it is open it can be read to its end also when the writer deletes it meanwhile.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    pub(super) header: FileHeader,
    /// Its length when it was opened: of a file with another one behind it, all that it will ever have.
    pub(super) size: u64,
    /// None while it is closed.
    file: Option<Arc<dyn DiskFile>>,
}

impl LogFile {
    pub(super) fn new(header: FileHeader, size: u64, file: Arc<dyn DiskFile>) -> Self {
        Self { header, size, file: Some(file) }
    }

    /// Its bytes.
    fn open(&self, disk: &dyn Disk) -> Result<Arc<dyn DiskFile>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        disk.open(&names::wal_file(self.header.number)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => missing(self.header.number),
            _ => error,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// The offset behind the last valid frame that ends a record.
    pub(super) end: u64,
    /// Whether that frame is a seal.
    pub(super) sealed: bool,
    /// The bytes that were durable when the frames up to there were written, as they say.
    pub(super) synced: u64,
    /// Behind the last record.
    pub(super) next_seq: Seq,
    /// A checksum of all valid frames up to the end.
    pub(super) crc: u32,
}

/// Looks at all headers that matter for records from `from` on, and at all of the last file.
///
/// # Errors
/// `Corrupt` when a file is damaged or missing that is needed.
pub(super) fn survey(disk: &dyn Disk, from: Seq) -> Result<Survey> {
    let mut listed = log_numbers(disk)?;
    let mut survey = Survey { files: Vec::new(), tail: None, unwanted: Vec::new(), unborn: None };
    // From the last to the first, and no further than to the file that holds `from`.
    while let Some(number) = listed.pop() {
        let is_last = survey.files.is_empty() && survey.unborn.is_none();
        let Some(file) = open_file(disk, number, is_last)? else {
            survey.unborn = Some(number);
            continue;
        };
        check_follows(&survey.files, &file.header)?;
        let is_first = file.header.first_seq <= from;
        survey.files.push(file);
        // The last one, which comes first here, stays open.
        if let Some(place @ 1..) = survey.files.len().checked_sub(OPEN_FILES_MAX) {
            survey.files[place].file = None;
        }
        if is_first {
            survey.unwanted = listed;
            break;
        }
    }
    if let Some(first) = survey.files.last()
        && first.header.first_seq > from
        && first.header.number > 1
    {
        return Err(missing(first.header.number - 1));
    }
    survey.files.reverse();
    if let Some(last) = survey.files.last() {
        survey.tail = Some(find_tail(disk, last)?);
    }
    Ok(survey)
}

/// The numbers of the files that there are, in order.
pub(super) fn log_numbers(disk: &dyn Disk) -> Result<Vec<u64>> {
    let mut listed = Vec::new();
    for entry in disk.list(names::WAL_DIR)? {
        if let DiskEntry::File { name, .. } = entry
            && let Some(number) = names::parse_wal_file(&name)
        {
            listed.push(number);
        }
    }
    listed.sort_unstable();
    Ok(listed)
}

fn check_follows(later: &[LogFile], header: &FileHeader) -> Result<()> {
    let Some(next) = later.last() else { return Ok(()) };
    if next.header.number != header.number + 1 {
        return Err(missing(next.header.number - 1));
    }
    if header.first_seq > next.header.first_seq {
        return Err(damaged(
            &names::wal_file(header.number),
            0,
            "its records come later than those of the next file",
        ));
    }
    Ok(())
}

fn missing(number: u64) -> Error {
    Error::corrupt(format!(
        "{} is missing, and with it readings that are nowhere else; {ADVICE}",
        names::wal_file(number)
    ))
}

pub(super) fn damaged(name: &str, offset: u64, why: &str) -> Error {
    Error::corrupt(format!("{name} is damaged at offset {offset}: {why}; {ADVICE}"))
}

// None for a last file that was still being created: the header is made durable before anything is
// written behind it, so only a file that is no longer than its header may have a bad one.
fn open_file(disk: &dyn Disk, number: u64, is_last: bool) -> Result<Option<LogFile>> {
    let name = names::wal_file(number);
    let file = disk.open(&name)?;
    let size = file.size()?;
    let unborn = is_last && size <= HEADER_BYTES as u64;
    if size < HEADER_BYTES as u64 {
        return if unborn { Ok(None) } else { Err(damaged(&name, size, "it is cut short")) };
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read_at(0, &mut bytes)?;
    match FileHeader::decode(&bytes, number) {
        Ok(header) => Ok(Some(LogFile::new(header, size, file))),
        Err(_) if unborn => Ok(None),
        Err(error) if error.kind() == ErrorKind::Corrupt => Err(damaged(&name, 0, error.message())),
        Err(error) => Err(error.context(format!("{name}, offset 0"))),
    }
}

/// Finds where the last file ends.
///
/// The first frame that is not valid is a torn tail, unless a later frame of the file says that
/// the place was durable when that frame was written: then it was damaged afterwards, and what
/// follows must not be thrown away. A record of which not all pieces are there is torn as a whole.
fn find_tail(disk: &dyn Disk, log: &LogFile) -> Result<Tail> {
    let mut frames = FrameReader::new(disk, log, log.size)?;
    let start = HEADER_BYTES as u64;
    let next_seq = log.header.first_seq;
    let mut tail = Tail { end: start, sealed: false, synced: start, next_seq, crc: 0 };
    let (mut crc, mut synced) = (0, start);
    let mut records = RecordCursor::new(tail.next_seq);
    let mut body = Vec::new();
    while !tail.sealed {
        match frames.next_frame(&mut body)? {
            Some(Frame::Valid { head, offset }) => {
                records.enter(&frames.name, &head, offset)?;
                crc = crc32c::crc32c_append(crc, &head.body_crc.to_le_bytes());
                synced = synced.max(head.synced);
                let mut rest = &body[..];
                while !rest.is_empty() {
                    (_, rest) = records.next(&frames.name, rest)?;
                }
                if !records.is_within_a_record() {
                    tail = Tail {
                        end: frames.offset,
                        sealed: head.is_seal(),
                        synced,
                        next_seq: records.next_seq,
                        crc,
                    };
                }
            }
            Some(Frame::Invalid { .. }) | None => break,
        }
    }
    if let Some(synced) = frames.durable_claim_behind(tail.end)? {
        return Err(damaged(
            &frames.name,
            tail.end,
            &format!("its first {synced} bytes had been written safely"),
        ));
    }
    Ok(tail)
}

/// Checks the order of the records of a file, and of their pieces, as they are split off.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordCursor {
    // The offset of the frame, for errors.
    offset: u64,
    part: Part,
    // The record of which pieces have come, and more must.
    unfinished: Option<Unfinished>,
    /// The least number that the next record may have.
    pub(super) next_seq: Seq,
}

#[derive(Debug, Clone, Copy)]
struct Unfinished {
    seq: Seq,
    kind: u8,
    bytes: usize,
}

/// A record where it lies, or a piece of one.
pub(super) struct RecordRef<'a> {
    pub(super) seq: Seq,
    pub(super) kind: u8,
    pub(super) payload: &'a [u8],
    /// Whether the record ends here.
    pub(super) is_last: bool,
}

impl RecordCursor {
    /// In front of a file, none of whose records is before `next_seq`.
    pub(super) fn new(next_seq: Seq) -> Self {
        Self { offset: 0, part: Part::Whole, unfinished: None, next_seq }
    }

    /// Whether a record has begun and not ended.
    pub(super) fn is_within_a_record(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Goes on to a frame.
    pub(super) fn enter(&mut self, name: &str, head: &FrameHead, offset: u64) -> Result<()> {
        self.offset = offset;
        self.part = head.part;
        if let Some(unfinished) = self.unfinished.filter(|_| head.part == Part::Whole) {
            return Err(self.lacks_its_end(name, unfinished.seq));
        }
        Ok(())
    }

    /// The record, or piece of one, at the start of `body`, and what is behind it.
    pub(super) fn next<'a>(
        &mut self,
        name: &str,
        body: &'a [u8],
    ) -> Result<(RecordRef<'a>, &'a [u8])> {
        let damaged = |why: &str| Err(damaged(name, self.offset, why));
        let Some((seq, kind, payload, rest)) = split_record(body) else {
            return damaged("a record is longer than its frame");
        };
        if self.part != Part::Whole && !rest.is_empty() {
            return damaged(&format!("a piece of record {seq} is not alone in its frame"));
        }
        let before = match self.unfinished {
            Some(unfinished) if (unfinished.seq, unfinished.kind) != (seq, kind) => {
                return Err(self.lacks_its_end(name, unfinished.seq));
            }
            None if seq < self.next_seq || seq.0 == u64::MAX => {
                return damaged(&format!("record {seq} is out of order"));
            }
            unfinished => unfinished.map_or(0, |unfinished| unfinished.bytes),
        };
        let bytes = before + payload.len();
        if bytes > RECORD_BYTES_MAX {
            return damaged(&format!("record {seq} is longer than {RECORD_BYTES_MAX} bytes"));
        }
        let is_last = self.part != Part::Piece;
        self.unfinished = (!is_last).then_some(Unfinished { seq, kind, bytes });
        if is_last {
            self.next_seq = Seq(seq.0 + 1);
        }
        Ok((RecordRef { seq, kind, payload, is_last }, rest))
    }

    fn lacks_its_end(&self, name: &str, seq: Seq) -> Error {
        damaged(name, self.offset, &format!("record {seq} lacks its end"))
    }
}

/// Reads the frames of one file in order.
#[derive(Debug)]
pub(super) struct FrameReader {
    pub(super) name: String,
    file: Arc<dyn DiskFile>,
    salt: u64,
    /// Where the next frame starts.
    pub(super) offset: u64,
    end: u64,
}

pub(super) enum Frame {
    Valid { head: FrameHead, offset: u64 },
    Invalid { why: &'static str },
}

impl FrameReader {
    /// A reader of the frames up to `end`.
    ///
    /// # Errors
    /// Those of opening the file, if it is closed.
    pub(super) fn new(disk: &dyn Disk, log: &LogFile, end: u64) -> Result<Self> {
        let name = names::wal_file(log.header.number);
        let file = log.open(disk)?;
        Ok(Self { name, file, salt: log.header.salt, offset: HEADER_BYTES as u64, end })
    }

    /// Reads the body of the next frame into `body`; none at the end. After an invalid frame the
    /// reader stays where it is.
    pub(super) fn next_frame(&mut self, body: &mut Vec<u8>) -> Result<Option<Frame>> {
        let invalid = |why| Ok(Some(Frame::Invalid { why }));
        let left = self.end.saturating_sub(self.offset);
        if left == 0 {
            return Ok(None);
        }
        if left < FRAME_HEAD_BYTES as u64 {
            return invalid("a frame is cut short");
        }
        let start = FrameStart { salt: self.salt, offset: self.offset };
        let mut bytes = [0; FRAME_HEAD_BYTES];
        self.file.read_at(self.offset, &mut bytes)?;
        let Some(head) = FrameHead::decode(&bytes, start) else {
            return invalid("there is no frame");
        };
        if head.body_bytes as u64 > left - FRAME_HEAD_BYTES as u64 {
            return invalid("a frame is cut short");
        }
        body.clear();
        body.resize(head.body_bytes, 0);
        self.file.read_at(self.offset + FRAME_HEAD_BYTES as u64, body)?;
        if !head.matches(body, start) {
            return invalid("the checksum of a frame is wrong");
        }
        let offset = self.offset;
        self.offset += (FRAME_HEAD_BYTES + head.body_bytes) as u64;
        Ok(Some(Frame::Valid { head, offset }))
    }

    /// How many bytes were durable by the word of a frame behind `offset`, if that is more than
    /// `offset`. The head of a frame is enough: it is true also when its body is torn.
    pub(super) fn durable_claim_behind(&self, offset: u64) -> Result<Option<u64>> {
        let found = self.find_head(offset, |head| head.synced > offset)?;
        Ok(found.map(|(_, head)| head.synced))
    }

    /// Where the next frame begins behind this place, at which there is none.
    pub(super) fn next_head(&self) -> Result<Option<u64>> {
        Ok(self.find_head(self.offset + 1, |_| true)?.map(|(at, _)| at))
    }

    // The first head from `offset` on that is looked for.
    fn find_head(
        &self,
        offset: u64,
        is_it: impl Fn(&FrameHead) -> bool,
    ) -> Result<Option<(u64, FrameHead)>> {
        let mut bytes = vec![0; SEARCH_BYTES.min(self.end.saturating_sub(offset) as usize)];
        let mut at = offset;
        while self.end.saturating_sub(at) >= FRAME_HEAD_BYTES as u64 {
            let length = bytes.len().min((self.end - at) as usize);
            let window = &mut bytes[..length];
            self.file.read_at(at, window)?;
            for (i, candidate) in window.windows(FRAME_HEAD_BYTES).enumerate() {
                if candidate[..FRAME_MAGIC.len()] != FRAME_MAGIC {
                    continue;
                }
                let Some(head) = candidate.first_chunk() else { continue };
                let start = FrameStart { salt: self.salt, offset: at + i as u64 };
                if let Some(head) = FrameHead::decode(head, start).filter(&is_it) {
                    return Ok(Some((start.offset, head)));
                }
            }
            // Heads that lie across the edge of two windows are seen in the second.
            at += (length - (FRAME_HEAD_BYTES - 1)) as u64;
        }
        Ok(None)
    }
}

// A window must hold more than one head for the search to move on.
const _: () = assert!(SEARCH_BYTES > FRAME_HEAD_BYTES && BODY_BYTES_MAX <= u32::MAX as usize);
