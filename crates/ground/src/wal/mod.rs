//! The log: every acknowledged write is here until it is durable elsewhere.
//!
//! 1. Records gather in memory as one *group*; [`Wal::sync`] writes the group as one frame and
//!    waits for the disk, so that any number of writers share one fsync. A large group is several frames; a
//!    large record is cut into pieces, which are found again all of them or none.
//! 2. A file that has grown past its limit is *sealed* before the next group: its last frame says that it ended
//!    on purpose. Only then is the next one created, so that all files but the last are whole.
//! 3. [`Wal::cut`] deletes files all of whose records are durable elsewhere.
//! 4. [`Wal::open`] reads the last file, cuts off a torn tail, which nobody was told is durable, and
//!    seals it. New records go to a new file; no file is written again after a crash.
//!
//! A full disk is no failure, nor is a file that cannot be opened: all that was appended since the last sync is taken
//! back, the torn frame is cut off, and the log goes on. Any other failed write, and every failed fsync, ends the log until it is opened again.
//!
//! Torn tail or damage? Every frame carries the number of bytes of its file that were durable when
//! it was written. An invalid frame below that number was once whole: damage, and an error that
//! keeps the log as it is. Otherwise no later frame knew it to be durable, and it is dropped. One
//! case cannot be told apart: damage in the last synced group of a file that was neither sealed nor
//! written again.

mod format;
mod head;
mod id;
mod replay;
mod salvage;
mod scan;

use std::collections::VecDeque;
use std::sync::Arc;

use tidefall_store::names;
use tidefall_store::{Disk, DiskFile, final_error};
use tidefall_types::{Error, ErrorKind, Result, Seq};

pub use format::RECORD_BYTES_MAX;
pub use head::{split_table, table_head};
pub use id::{add_id, ids, remove_ids};
pub use replay::LogTail;
pub use replay::{Record, Replay};
pub use salvage::{Found, Gap, NewLog, salvage};

use format::{
    Content, FRAME_HEAD_BYTES, FileHeader, FrameStart, HEADER_BYTES, PIECE_BYTES_MAX, Part,
    RECORD_HEAD_BYTES, finish_frame, push_record_head,
};
use scan::{Frame, FrameReader, LogFile, Survey, Tail, survey};

/// A file is sealed when it has this many bytes. Larger files would be deleted later, smaller ones
/// cost more fsyncs; a scan of the last file at open takes a small part of a second. The group that passes the
/// limit still goes into the file as a whole.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A group is written, though not synced, when it has this many bytes, to bound its memory.
const GROUP_BYTES_MAX: usize = PIECE_BYTES_MAX;

/// The log of one database, for its one writer.
#[derive(Debug)]
pub struct Wal {
    disk: Arc<dyn Disk>,
    salt: u64,
    sealed: VecDeque<Sealed>,
    active: Option<Active>,
    next_number: u64,
    next_seq: Seq,
    // Behind the last record that is durable.
    synced_seq: Seq,
    // A frame without its head as yet; empty when nothing waits.
    group: Vec<u8>,
    group_records: u32,
    // Behind the last record of the last sealed file.
    sealed_end: Seq,
    file_bytes_max: u64,
    piece_bytes_max: usize,
    failed: bool,
}

#[derive(Debug)]
struct Sealed {
    number: u64,
    // Behind its last record.
    end_seq: Seq,
    // None of a file that is not wanted any more.
    bytes: u64,
}

#[derive(Debug)]
struct Active {
    file: Arc<dyn DiskFile>,
    header: FileHeader,
    written: u64,
    synced: u64,
    // Behind the last record in `written`, and in `synced`.
    end_seq: Seq,
    synced_seq: Seq,
    // What is to be done to a file that was found: it gets that and nothing else.
    found: Option<FoundFile>,
}

/// A file that another process has left, which may have died.
#[derive(Debug)]
struct FoundFile {
    log: LogFile,
    tail: Tail,
    /// Whether all of it is durable.
    is_durable: bool,
}

impl Wal {
    /// Opens the log on `disk`, or starts one, and gives the records from `from` on, which is the
    /// first that is not durable elsewhere. `salt` should be random: it keeps payloads from
    /// passing for frames of the log. A disk that is full is no obstacle: the first write is then, until there is room.
    ///
    /// # Errors
    /// `Corrupt`, with file and offset, when a needed file is missing or damaged other than by a
    /// torn tail; nothing is changed then.
    pub fn open(disk: Arc<dyn Disk>, from: Seq, salt: u64) -> Result<(Self, Replay)> {
        disk.create_dir(names::WAL_DIR)?;
        let survey = survey(&*disk, from)?;
        if survey.drops_something() {
            confirm(&*disk, from, &survey)?;
        }
        let mut unsealed = repair(&*disk, &survey)?;
        let replay = Replay::new(&disk, from, &survey);
        let mut sealed: VecDeque<Sealed> = survey
            .unwanted
            .iter()
            .map(|&number| Sealed { number, end_seq: from, bytes: 0 })
            .collect();
        let next_seq = survey.tail.map_or(from, |tail| from.max(tail.next_seq));
        for (i, file) in survey.files.iter().enumerate() {
            let next = survey.files.get(i + 1);
            let end_seq = next.map_or(next_seq, |next| next.header.first_seq);
            sealed.push_back(Sealed { number: file.header.number, end_seq, bytes: file.size });
        }
        let next_number = sealed.back().map_or(1, |last| last.number + 1);
        if let Some(last) = &mut unsealed {
            // It is sealed before anything else is written.
            sealed.pop_back();
            (last.end_seq, last.synced_seq) = (next_seq, next_seq);
        }
        let log =
            Self { sealed, next_number, active: unsealed, ..Self::empty(disk, salt, next_seq) };
        Ok((log, replay))
    }

    /// A log without files.
    fn empty(disk: Arc<dyn Disk>, salt: u64, next_seq: Seq) -> Self {
        Self {
            disk,
            salt,
            sealed: VecDeque::new(),
            active: None,
            next_number: 1,
            next_seq,
            synced_seq: next_seq,
            group: Vec::new(),
            group_records: 0,
            sealed_end: next_seq,
            file_bytes_max: FILE_BYTES_MAX,
            piece_bytes_max: PIECE_BYTES_MAX,
            failed: false,
        }
    }

    /// The least number that the next record may have: above all that the log has seen and not
    /// below the `from` that it was opened with.
    pub fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// Cuts records into pieces of this many bytes: fuzzers and tests cannot wait for large ones.
    pub fn cut_pieces_of(&mut self, bytes: usize) {
        self.piece_bytes_max = bytes.clamp(1, PIECE_BYTES_MAX);
    }

    /// Adds a record to the group; its payload is `parts` laid end to end. Nothing is durable until
    /// [`Wal::sync`]. A record is found again whole or not at all; records of one group may be
    /// torn apart when it is larger than a few MiB.
    ///
    /// # Errors
    /// `Limit` when the payload is longer than [`RECORD_BYTES_MAX`], `Closed` after a failure,
    /// `Io` when a large group is written and the disk fails, `Full` when it is full: all that was appended since
    /// the last [`Wal::sync`] is then taken back.
    ///
    /// # Panics
    /// When `seq` is below [`Wal::next_seq`].
    pub fn append(&mut self, seq: Seq, kind: u8, parts: &[&[u8]]) -> Result<()> {
        self.check_open()?;
        assert!(seq >= self.next_seq, "record {seq} comes behind record {}", self.next_seq);
        let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
        check_record_bytes(payload_bytes)?;
        if payload_bytes > self.piece_bytes_max {
            return self.guarded(|wal| wal.write_pieces(seq, kind, parts, payload_bytes));
        }
        let record_bytes = RECORD_HEAD_BYTES + payload_bytes;
        if self.group.len() + record_bytes > FRAME_HEAD_BYTES + GROUP_BYTES_MAX {
            self.guarded(Self::write_group)?;
        }
        if self.group.is_empty() {
            self.group.resize(FRAME_HEAD_BYTES, 0);
        }
        push_record_head(&mut self.group, seq, kind, payload_bytes as u32);
        for part in parts {
            self.group.extend_from_slice(part);
        }
        self.group_records += 1;
        self.next_seq = Seq(seq.0 + 1);
        Ok(())
    }

    /// Makes everything appended durable.
    ///
    /// # Errors
    /// `Io` when the disk fails, and `Closed` from then on: what was appended since the last
    /// `sync` that succeeded may then be in the log or not. `Full` when the disk is full: what was appended since
    /// then is taken back, and the log goes on.
    pub fn sync(&mut self) -> Result<()> {
        self.guarded(|wal| {
            wal.write_group()?;
            wal.sync_active()?;
            wal.synced_seq = wal.next_seq;
            Ok(())
        })
    }

    /// Deletes files that hold no record from `before` on; all records before it must be durable
    /// elsewhere. Returns the number of files deleted.
    ///
    /// # Errors
    /// `Io` when the disk fails, and `Closed` from then on.
    pub fn cut(&mut self, before: Seq) -> Result<usize> {
        self.guarded(|wal| {
            // The disk may be too full for a seal, and needs none: what comes back after power loss is unwanted.
            if let Some(active) = wal.active.take_if(|active| active.end_seq <= before) {
                wal.leave(&active);
            }
            let mut removed = 0;
            // Not waited for: a file that is back after power loss is known to be unwanted.
            while let Some(file) = wal.sealed.front().filter(|file| file.end_seq <= before) {
                wal.disk.remove(&names::wal_file(file.number))?;
                wal.sealed.pop_front();
                removed += 1;
            }
            Ok(removed)
        })
    }

    /// Where the log is to be cut when it has more than so many bytes, so that at most half as many stay: it is then a
    /// while until it has too many again.
    pub fn place_to_cut(&self, bytes_max: u64) -> Option<Seq> {
        let sealed = self.sealed.iter().map(|file| (file.bytes, file.end_seq));
        let active = self.active.iter().map(|file| (file.written, file.end_seq));
        let mut left: u64 = sealed.clone().chain(active.clone()).map(|(bytes, _)| bytes).sum();
        if left <= bytes_max {
            return None;
        }
        let ends = sealed.chain(active).map(|(bytes, end_seq)| {
            left -= bytes;
            (left, end_seq)
        });
        let mut few = ends.filter(|(left, _)| *left <= bytes_max / 2);
        few.next().map(|(_, end_seq)| end_seq)
    }

    /// Makes everything durable and seals the log, so that the next open finds it whole.
    ///
    /// # Errors
    /// As [`Wal::sync`].
    pub fn close(mut self) -> Result<()> {
        self.sync()?;
        self.guarded(Self::seal_active)
    }

    /// Whether nothing was written since it was opened on a disk that was too full for the seal of the last file.
    pub fn is_as_found(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.found.is_some())
    }

    fn check_open(&self) -> Result<()> {
        if self.failed {
            return Err(Error::closed(
                "the log takes no more writes, because the disk failed; open the database again \
                 when the disk is well",
            ));
        }
        Ok(())
    }

    // After a failed write or fsync nobody knows what is on disk, and trying again can hide the
    // loss: only reading it again from the start tells. Of a full disk that is known, when nothing is kept of what
    // was written since the last fsync.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check_open()?;
        self.failed = true;
        let done = act(self);
        let is_whole = match &done {
            Err(error) if error.kind() == ErrorKind::Full => self.take_back(),
            Err(_) => return done,
            Ok(_) => Ok(()),
        };
        is_whole.map_err(|error| {
            final_error(error.context("the log cannot be brought back into order on a full disk"))
        })?;
        self.failed = false;
        done
    }

    /// Forgets what was appended since the last sync, and cuts off what is in the file of it.
    fn take_back(&mut self) -> Result<()> {
        self.group.clear();
        self.group_records = 0;
        self.next_seq = self.synced_seq;
        self.active.as_mut().map_or(Ok(()), Active::take_back)
    }

    /// Writes a record in pieces behind the group: one frame for each, so that they need no more memory than a
    /// group.
    fn write_pieces(
        &mut self,
        seq: Seq,
        kind: u8,
        parts: &[&[u8]],
        payload_bytes: usize,
    ) -> Result<()> {
        self.write_group()?;
        self.next_seq = Seq(seq.0 + 1);
        let mut parts = parts.iter().copied();
        let mut rest: &[u8] = &[];
        let mut left = payload_bytes;
        while left > 0 {
            let piece_bytes = left.min(self.piece_bytes_max);
            left -= piece_bytes;
            self.group.resize(FRAME_HEAD_BYTES, 0);
            push_record_head(&mut self.group, seq, kind, piece_bytes as u32);
            let end = self.group.len() + piece_bytes;
            while self.group.len() < end {
                let (taken, behind) = rest.split_at(rest.len().min(end - self.group.len()));
                self.group.extend_from_slice(taken);
                // The lengths of the parts add up to that of the payload.
                rest = if behind.is_empty() { parts.next().unwrap_or_default() } else { behind };
            }
            let part = if left > 0 { Part::Piece } else { Part::LastPiece };
            self.write_frame(Content { records: 1, part })?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<()> {
        if self.group.is_empty() {
            return Ok(());
        }
        self.write_frame(Content { records: self.group_records, part: Part::Whole })
    }

    /// Writes what is gathered as one frame. A file ends only between what is durable and what comes next, so
    /// that all pieces of a record, and all that is acknowledged together, lie in one.
    fn write_frame(&mut self, content: Content) -> Result<()> {
        let is_full = |active: &Active| {
            active.found.is_some()
                || (active.written >= self.file_bytes_max && active.written == active.synced)
        };
        if self.active.as_ref().is_some_and(is_full) {
            self.seal_active()?;
        }
        let active = match &mut self.active {
            Some(active) => active,
            none => {
                none.insert(create_file(&*self.disk, self.salt, self.next_number, self.sealed_end)?)
            }
        };
        active.write_frame(&mut self.group, content)?;
        active.end_seq = self.next_seq;
        self.group.clear();
        self.group_records = 0;
        Ok(())
    }

    fn sync_active(&mut self) -> Result<()> {
        match &mut self.active {
            Some(active) => active.sync(),
            None => Ok(()),
        }
    }

    fn seal_active(&mut self) -> Result<()> {
        let Some(active) = &mut self.active else { return Ok(()) };
        active.seal(&*self.disk)?;
        if let Some(active) = self.active.take() {
            self.leave(&active);
        }
        Ok(())
    }

    /// Writes no more to a file; what comes next goes to another.
    fn leave(&mut self, active: &Active) {
        let (number, end_seq) = (active.header.number, active.end_seq);
        self.sealed.push_back(Sealed { number, end_seq, bytes: active.written });
        self.sealed_end = active.end_seq;
        self.next_number = active.header.number + 1;
    }
}

impl Active {
    /// A file of which all is durable: so many bytes, with records before `end_seq`.
    fn new(file: Arc<dyn DiskFile>, header: FileHeader, bytes: u64, end_seq: Seq) -> Self {
        Self {
            file,
            header,
            written: bytes,
            synced: bytes,
            end_seq,
            synced_seq: end_seq,
            found: None,
        }
    }

    /// Ends the file.
    fn seal(&mut self, disk: &dyn Disk) -> Result<()> {
        if let Some(found) = &mut self.found {
            // The seal says of all before it that it is durable.
            found.make_durable(disk, &*self.file)?;
            if found.tail.sealed {
                return Ok(());
            }
        }
        self.write_frame(&mut [0; FRAME_HEAD_BYTES], Content::SEAL)?;
        self.sync()
    }

    fn write_frame(&mut self, frame: &mut [u8], content: Content) -> Result<()> {
        let start = FrameStart { salt: self.header.salt, offset: self.written };
        finish_frame(frame, content, self.synced, start);
        self.file.write_at(self.written, frame)?;
        self.written += frame.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if self.synced < self.written {
            self.file.sync().map_err(final_error)?;
            self.synced = self.written;
            self.synced_seq = self.end_seq;
        }
        Ok(())
    }

    /// Cuts off what is not durable. That is made so: what is written next in its place could else be followed by
    /// some of it after power loss.
    fn take_back(&mut self) -> Result<()> {
        self.file.truncate(self.synced)?;
        self.file.sync().map_err(final_error)?;
        self.written = self.synced;
        self.end_seq = self.synced_seq;
        Ok(())
    }
}

/// Refuses a record that the log would not take, which is to be done before it is one of a group.
///
/// # Errors
/// `Limit`.
pub fn check_record_bytes(bytes: usize) -> Result<()> {
    if bytes <= RECORD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::limit(format!(
        "a write of {bytes} bytes is too large for the log, which takes up to {RECORD_BYTES_MAX} at once; send \
         it in parts"
    )))
}

fn create_file(disk: &dyn Disk, salt: u64, number: u64, first_seq: Seq) -> Result<Active> {
    let name = names::wal_file(number);
    // An odd multiplier, so that no two files of one log have the same salt.
    let salt = salt.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let header = FileHeader { number, salt, first_seq };
    let file = disk.create(&name)?;
    if let Err(error) = file.write_at(0, &header.encode()) {
        if error.kind() == ErrorKind::Full {
            // The next try shall find the name free.
            disk.remove(&name).map_err(final_error)?;
        }
        return Err(error);
    }
    // Durable before the first frame: a bad header in front of frames is then always damage.
    file.sync().map_err(final_error)?;
    disk.sync_dir(names::WAL_DIR).map_err(final_error)?;
    Ok(Active::new(file, header, HEADER_BYTES as u64, first_seq))
}

// What is cut off is gone for good, so one read that went wrong must not be the reason.
fn confirm(disk: &dyn Disk, from: Seq, first: &Survey) -> Result<()> {
    let second = survey(disk, from)?;
    if (second.tail, second.unborn) == (first.tail, first.unborn) {
        return Ok(());
    }
    Err(two_answers())
}

// Ends the last file where its valid part ends, and seals it. When the disk is too full for a seal the file is returned.
fn repair(disk: &dyn Disk, survey: &Survey) -> Result<Option<Active>> {
    if let Some(number) = survey.unborn {
        tracing::warn!(file = names::wal_file(number), "removed a log file that was never begun");
        disk.remove(&names::wal_file(number))?;
        // Durable before there is another: of two that were never begun, the earlier one would be taken for one that was cut short.
        disk.sync_dir(names::WAL_DIR)?;
    }
    let (Some(last), Some(tail)) = (survey.files.last(), survey.tail) else { return Ok(None) };
    let name = names::wal_file(last.header.number);
    let dropped = last.size - tail.end;
    let file = disk.open_write(&name)?;
    if dropped > 0 {
        tracing::warn!(
            file = name,
            offset = tail.end,
            bytes = dropped,
            "cut off the torn end of the log, which was never acknowledged"
        );
        file.truncate(tail.end)?;
    }
    let found = FoundFile { log: last.clone(), tail, is_durable: false };
    let active = Active::new(file, last.header, tail.end, tail.next_seq);
    let mut active = Active { found: Some(found), ..active };
    let sealed = active.seal(disk);
    // Its name may not be durable either, and must be before there is a next file.
    disk.sync_dir(names::WAL_DIR)?;
    match sealed {
        Err(error) if error.kind() == ErrorKind::Full => {
            tracing::warn!(file = name, "the disk is full: the log is sealed with the first write");
            active.take_back()?;
            Ok(Some(active))
        }
        sealed => sealed.map(|()| None),
    }
}

impl FoundFile {
    /// Writes once more what may not be durable, and waits for the disk. A process that was killed, or an fsync that failed, leaves
    /// bytes that can be seen but are not durable. They must be before later records count on them. The system takes those of a failed fsync
    /// for written: so they are written again, each frame only as its checksum says that it is.
    fn make_durable(&mut self, disk: &dyn Disk, file: &dyn DiskFile) -> Result<()> {
        if self.is_durable {
            return Ok(());
        }
        let header = &self.log.header;
        if self.tail.end == HEADER_BYTES as u64 {
            // Behind a header that was made durable there is a frame.
            file.write_at(0, &header.encode())?;
        }
        let mut frames = FrameReader::new(disk, &self.log, self.tail.end)?;
        frames.offset = self.tail.synced;
        let (mut body, mut frame) = (Vec::new(), Vec::new());
        while let Some(read) = frames.next_frame(&mut body)? {
            let Frame::Valid { head, offset } = read else { return Err(two_answers()) };
            frame.clear();
            frame.resize(FRAME_HEAD_BYTES, 0);
            frame.extend_from_slice(&body);
            let content = Content { records: head.records, part: head.part };
            let start = FrameStart { salt: header.salt, offset };
            finish_frame(&mut frame, content, head.synced, start);
            file.write_at(offset, &frame)?;
        }
        file.sync().map_err(final_error)?;
        self.is_durable = true;
        Ok(())
    }
}

fn two_answers() -> Error {
    let why = std::io::Error::other("it gave two answers; the disk or the memory fails");
    Error::io("reading the log twice", &why)
}

#[cfg(test)]
mod tests;
