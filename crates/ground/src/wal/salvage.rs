//! A damaged log: what can still be read of it, and a new one that holds just that.
//!
//! A frame is known by its checksums, which start from its place, so that behind damage the next whole frame is
//! found by looking at every byte. What lies between is lost; so are the pieces of a record that is not there as a
//! whole.

use std::ops::Range;
use std::sync::Arc;

use tidefall_store::{Disk, final_error, names};
use tidefall_types::{ErrorKind, Result, Seq};

use super::format::{FileHeader, HEADER_BYTES};
use super::replay::Record;
use super::scan::{Frame, FrameReader, LogFile, RecordCursor, log_numbers};
use super::{Active, Wal};

/// Something in a log.
#[derive(Debug)]
pub enum Found {
    /// A whole record.
    Record(Record),
    /// What cannot be read.
    Gap(Gap),
}

/// A part of a log that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The file.
    pub name: String,
    /// Its bytes that are lost; none of a file that is missing.
    pub bytes: Range<u64>,
    /// What is wrong with them.
    pub why: String,
}

/// Reads a log from record `from` on past all damage, and hands over what there is in its order. A torn tail is no
/// damage, as nobody was told that it is durable. Returns the files that there are.
///
/// # Errors
/// `Io` when the disk fails, and those of `take`.
pub fn salvage(
    disk: &dyn Disk,
    from: Seq,
    mut take: impl FnMut(Found) -> Result<()>,
) -> Result<Vec<u64>> {
    let numbers = log_numbers(disk)?;
    // Of a long log not all files can be open at once: the second time they are opened one by one.
    let mut wanted = numbers.len();
    while let Some(before) = wanted.checked_sub(1) {
        wanted = before;
        // Those before it are not wanted any more.
        if matches!(open(disk, numbers[wanted])?, Opened::File(file) if file.header.first_seq <= from)
        {
            break;
        }
    }
    let mut reader = Salvage { from, next_seq: Seq(0), take: &mut take };
    let mut expected = None;
    for &number in &numbers[wanted..] {
        let is_last = numbers.last() == Some(&number);
        match open(disk, number)? {
            Opened::File(file) => {
                let is_first_missing = number > 1 && file.header.first_seq > from;
                let before = expected.unwrap_or(number - u64::from(is_first_missing));
                for missing in before..number {
                    reader.lose(&names::wal_file(missing), 0..0, "the file is missing")?;
                }
                reader.file(disk, &file, is_last)?;
            }
            // A process died in its creation: it never held anything.
            Opened::Unborn if is_last => {}
            Opened::Unborn => {
                reader.lose(&names::wal_file(number), 0..0, "the file is cut short")?;
            }
            Opened::Headless(size, why) => {
                reader.lose(&names::wal_file(number), 0..size, &why)?;
            }
        }
        expected = Some(number + 1);
    }
    Ok(numbers)
}

enum Opened {
    File(LogFile),
    Unborn,
    // Its size, and what is wrong with its header, without which no frame can be told from other bytes.
    Headless(u64, String),
}

fn open(disk: &dyn Disk, number: u64) -> Result<Opened> {
    let file = disk.open(&names::wal_file(number))?;
    let size = file.size()?;
    if size < HEADER_BYTES as u64 {
        return Ok(Opened::Unborn);
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read_at(0, &mut bytes)?;
    match FileHeader::decode(&bytes, number) {
        Ok(header) => Ok(Opened::File(LogFile::new(header, size, file))),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(error.context(names::wal_file(number)))
        }
        Err(_) if size == HEADER_BYTES as u64 => Ok(Opened::Unborn),
        Err(error) => Ok(Opened::Headless(size, error.message().to_owned())),
    }
}

struct Salvage<'a> {
    from: Seq,
    next_seq: Seq,
    take: &'a mut dyn FnMut(Found) -> Result<()>,
}

/// A record of which pieces have come.
struct Pieces {
    at: u64,
    payload: Vec<u8>,
}

impl Salvage<'_> {
    fn lose(&mut self, name: &str, bytes: Range<u64>, why: &str) -> Result<()> {
        (self.take)(Found::Gap(Gap { name: name.to_owned(), bytes, why: why.to_owned() }))
    }

    fn file(&mut self, disk: &dyn Disk, log: &LogFile, is_last: bool) -> Result<()> {
        let mut frames = FrameReader::new(disk, log, log.size)?;
        let mut cursor = RecordCursor::new(self.next_seq.max(log.header.first_seq));
        let mut pieces: Option<Pieces> = None;
        let mut body = Vec::new();
        let (mut is_sealed, mut is_end_lost) = (false, false);
        while !is_sealed {
            let at = frames.offset;
            let why = match frames.next_frame(&mut body)? {
                None => break,
                Some(Frame::Valid { head, .. }) => {
                    is_sealed = head.is_seal();
                    let read = cursor.enter(&frames.name, &head, at).and_then(|()| {
                        self.records(&mut cursor, &frames.name, (at, &body), &mut pieces)
                    });
                    match read {
                        Ok(()) => continue,
                        Err(error) if error.kind() == ErrorKind::Corrupt => {
                            error.message().to_owned()
                        }
                        Err(error) => return Err(error),
                    }
                }
                Some(Frame::Invalid { why }) => {
                    let first = pieces.as_ref().map_or(at, |pieces| pieces.at);
                    if is_last && frames.durable_claim_behind(first)?.is_none() {
                        break;
                    }
                    frames.offset = frames.next_head()?.unwrap_or(log.size);
                    why.to_owned()
                }
            };
            // With the pieces of a record that cannot become whole any more.
            let first = pieces.take().map_or(at, |pieces| pieces.at);
            self.lose(&frames.name, first..frames.offset, &why)?;
            is_end_lost = frames.offset == log.size;
            cursor = RecordCursor::new(cursor.next_seq);
        }
        if !is_last && !is_sealed && !is_end_lost {
            let first = pieces.map_or(frames.offset, |pieces| pieces.at);
            self.lose(&frames.name, first..frames.offset, "its end is missing")?;
        }
        self.next_seq = cursor.next_seq;
        Ok(())
    }

    /// The records of a frame.
    fn records(
        &mut self,
        cursor: &mut RecordCursor,
        name: &str,
        (at, body): (u64, &[u8]),
        pieces: &mut Option<Pieces>,
    ) -> Result<()> {
        let mut rest = body;
        while !rest.is_empty() {
            let record;
            (record, rest) = cursor.next(name, rest)?;
            let mut whole = pieces.take().unwrap_or(Pieces { at, payload: Vec::new() });
            whole.payload.extend_from_slice(record.payload);
            if !record.is_last {
                *pieces = Some(whole);
            } else if record.seq >= self.from {
                let (seq, kind, payload) = (record.seq, record.kind, whole.payload);
                (self.take)(Found::Record(Record { seq, kind, payload }))?;
            }
        }
        Ok(())
    }
}

/// A log that is written anew, and takes the place of the old one when it is finished.
#[derive(Debug)]
pub struct NewLog {
    wal: Wal,
    disk: Arc<dyn Disk>,
    number: u64,
}

impl NewLog {
    /// Begins a log of one file, the number of which is above those of the old ones, and of records from `from` on.
    /// Until it is finished it has a name that nobody reads.
    ///
    /// # Errors
    /// `Io` when the disk fails, `Full` when it is full.
    pub fn begin(disk: Arc<dyn Disk>, number: u64, from: Seq, salt: u64) -> Result<Self> {
        let name = temp_name(number);
        disk.create_dir(names::WAL_DIR)?;
        match disk.remove(&name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let header = FileHeader { number, salt, first_seq: from };
        let file = disk.create(&name)?;
        file.write_at(0, &header.encode())?;
        file.sync()?;
        let active = Some(Active::new(file, header, HEADER_BYTES as u64, from));
        // It has one file.
        let file_bytes_max = u64::MAX;
        let wal = Wal { active, file_bytes_max, ..Wal::empty(Arc::clone(&disk), salt, from) };
        Ok(Self { wal, disk, number })
    }

    /// As [`Wal::append`].
    pub fn wal(&mut self) -> &mut Wal {
        &mut self.wal
    }

    /// Makes the log durable and gives it its name: from then on older files are not read any more. Returns the
    /// number that its next record may have.
    pub fn finish(self) -> Result<Seq> {
        let Self { wal, disk, number } = self;
        let next_seq = wal.next_seq();
        wal.close()?;
        let (temp, name) = (temp_name(number), names::wal_file(number));
        disk.link(&temp, &name)?;
        disk.remove(&temp).map_err(final_error)?;
        disk.sync_dir(names::WAL_DIR).map_err(final_error)?;
        Ok(next_seq)
    }
}

fn temp_name(number: u64) -> String {
    format!("{}{}", names::wal_file(number), names::TEMP_SUFFIX)
}
