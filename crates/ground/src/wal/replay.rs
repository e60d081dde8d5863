use std::collections::VecDeque;
use std::sync::Arc;

use tidefall_store::Disk;
use tidefall_types::{Result, Seq};

use super::scan::{Frame, FrameReader, LogFile, RecordCursor, Survey, damaged, survey};

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its position in the order of all writes; each is higher than the one before.
    pub seq: Seq,
    /// What the payload is, behind the [table](super::split_table) in front of it; the log gives it no meaning.
    pub kind: u8,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// What a log ends with. Two that end with the same have the same records: a writer on a full disk takes records back, and
/// writes others in their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogTail {
    /// The number of its last file.
    file: u64,
    /// Where the valid part of that ends.
    end: u64,
    /// A checksum of that part.
    crc: u32,
}

/// The records of a log from a given one on, in order. It holds one frame and one record in memory at a time,
/// and ends after the first error.
#[derive(Debug)]
pub struct Replay {
    disk: Arc<dyn Disk>,
    from: Seq,
    files: VecDeque<(LogFile, FileEnd)>,
    frames: Option<(FrameReader, FileEnd)>,
    body: Vec<u8>,
    body_at: usize,
    // The pieces of a record that has not ended yet.
    pieces: Vec<u8>,
    cursor: RecordCursor,
    tail: Option<LogTail>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileEnd {
    // A file with another behind it was ended on purpose, and says so.
    Seal,
    // The last file ends where the survey found it to.
    At(u64),
}

impl Replay {
    /// The records from `from` on of the log on `disk`, without changing it: a torn tail is left
    /// out and left there. They are the records that there are now, whatever a writer appends before they are read; what
    /// it deletes meanwhile of a long log is an error when it comes to that.
    ///
    /// # Errors
    /// `Corrupt` when a needed file is missing or damaged before the last frame that is whole.
    pub fn open(disk: &Arc<dyn Disk>, from: Seq) -> Result<Self> {
        Ok(Self::new(disk, from, &survey(&**disk, from)?))
    }

    /// Where the log ended when it was looked at; nowhere when there was none.
    pub fn tail(&self) -> Option<LogTail> {
        self.tail
    }

    pub(super) fn new(disk: &Arc<dyn Disk>, from: Seq, survey: &Survey) -> Self {
        let last = survey.files.last().map(|file| file.header.number);
        let mut files: VecDeque<_> =
            survey.files.iter().map(|file| (file.clone(), FileEnd::Seal)).collect();
        if let (Some((_, end)), Some(tail)) = (files.back_mut(), survey.tail) {
            *end = FileEnd::At(tail.end);
        }
        Self {
            disk: Arc::clone(disk),
            from,
            files,
            frames: None,
            body: Vec::new(),
            body_at: 0,
            pieces: Vec::new(),
            cursor: RecordCursor::new(Seq(0)),
            tail: last.zip(survey.tail).map(|(file, tail)| LogTail {
                file,
                end: tail.end,
                crc: tail.crc,
            }),
        }
    }

    fn try_next(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some((frames, _)) = &self.frames
                && self.body_at < self.body.len()
            {
                let left = &self.body[self.body_at..];
                let (record, rest) = self.cursor.next(&frames.name, left)?;
                self.body_at = self.body.len() - rest.len();
                if record.seq < self.from {
                    continue;
                }
                self.pieces.extend_from_slice(record.payload);
                if record.is_last {
                    let payload = std::mem::take(&mut self.pieces);
                    return Ok(Some(Record { seq: record.seq, kind: record.kind, payload }));
                }
            } else if !self.next_body()? {
                return Ok(None);
            }
        }
    }

    // Moves on to the next frame with records, or the next file; false behind the last.
    fn next_body(&mut self) -> Result<bool> {
        self.body.clear();
        self.body_at = 0;
        let Some((frames, end)) = &mut self.frames else { return self.next_file() };
        match frames.next_frame(&mut self.body)? {
            Some(Frame::Valid { head, offset }) => {
                self.cursor.enter(&frames.name, &head, offset)?;
                if head.is_seal() { self.next_file() } else { Ok(true) }
            }
            Some(Frame::Invalid { why }) => Err(damaged(&frames.name, frames.offset, why)),
            None if *end == FileEnd::Seal => {
                Err(damaged(&frames.name, frames.offset, "its end is missing"))
            }
            None => self.next_file(),
        }
    }

    fn next_file(&mut self) -> Result<bool> {
        self.frames = None;
        let Some((file, end)) = self.files.pop_front() else { return Ok(false) };
        let end_at = match end {
            FileEnd::Seal => file.size,
            FileEnd::At(end) => end,
        };
        self.frames = Some((FrameReader::new(&*self.disk, &file, end_at)?, end));
        self.cursor.next_seq = self.cursor.next_seq.max(file.header.first_seq);
        Ok(true)
    }
}

impl Iterator for Replay {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.try_next().transpose();
        if matches!(next, Some(Err(_)) | None) {
            self.frames = None;
            self.files.clear();
            self.body = Vec::new();
            self.body_at = 0;
            self.pieces = Vec::new();
        }
        next
    }
}
