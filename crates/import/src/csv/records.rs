//! Where records and fields begin and end.
//!
//! A quote opens a quoted field only as the first byte of the field; inside of it a doubled quote
//! is a quote, and separators and line ends are text. Behind the quote that closes a field of several
//! lines the field ends; if it does not, then that is the stray quote of another line, and the field is not
//! closed. A quote that is never closed spoils its own line only: the record then ends at the end of that
//! line.
//!
//! Both steps below follow this one rule, so that they always agree:
//! 1. [`last_record_end`] cuts the stream into blocks of whole records.
//! 2. [`Index::fill`] finds the fields of a block. A block without any quote, which is nearly
//!    every block of sensor data, is searched eight bytes at a time.

use memchr::{memchr, memchr_iter, memchr2, memrchr};

/// The byte that quotes.
pub(super) const QUOTE: u8 = b'"';

/// How far a quoted field may reach beyond its line. A closing quote further away than this is
/// taken for a missing one, so that one stray quote cannot swallow a file.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 20;

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    /// The byte between two fields.
    pub separator: u8,
    /// The byte with which lines start that are remarks.
    pub comment: Option<u8>,
}

impl Dialect {
    fn is_comment(self, line: &[u8]) -> bool {
        self.comment.is_some() && line.first().copied() == self.comment
    }
}

/// Whether more bytes may follow a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// More may follow.
    Unknown,
    /// It is the end of the input.
    Nothing,
}

/// The position behind the last record that is whole in `buffer`; 0 when none is.
pub(super) fn last_record_end(buffer: &[u8], dialect: Dialect, rest: Rest) -> usize {
    let newline_end =
        |from: usize| memrchr(b'\n', &buffer[from..]).map_or(from, |at| from + at + 1);
    if memchr(QUOTE, buffer).is_none() {
        return newline_end(0);
    }
    let mut record = 0;
    while record < buffer.len() {
        match record_end(buffer, record, dialect) {
            RecordEnd::At(end) => record = end,
            RecordEnd::Missing => break,
            RecordEnd::OpenQuote(Open::SoFar)
                if rest == Rest::Unknown && buffer.len() - record <= RECORD_BYTES_MAX =>
            {
                break;
            }
            RecordEnd::OpenQuote(_) => match memchr(b'\n', &buffer[record..]) {
                Some(at) => record += at + 1,
                None => break,
            },
        }
    }
    record
}

enum RecordEnd {
    /// Behind its line end.
    At(usize),
    /// There is no line end.
    Missing,
    /// A quoted field is not closed.
    OpenQuote(Open),
}

/// How long a quoted field is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// As far as was read.
    SoFar,
    /// Whatever follows.
    ForGood,
}

fn record_end(buffer: &[u8], record: usize, dialect: Dialect) -> RecordEnd {
    let mut at = record;
    if dialect.is_comment(&buffer[record..]) {
        let end = memchr(b'\n', &buffer[record..]);
        return end.map_or(RecordEnd::Missing, |end| RecordEnd::At(record + end + 1));
    }
    while let Some(found) = memchr2(QUOTE, b'\n', &buffer[at..]) {
        at += found;
        if buffer[at] == b'\n' {
            return RecordEnd::At(at + 1);
        }
        let opens = at == record || buffer[at - 1] == dialect.separator;
        at += 1;
        if opens {
            match behind_closing_quote(buffer, at, dialect.separator) {
                Ok(behind) => at = behind,
                Err(open) => return RecordEnd::OpenQuote(open),
            }
        }
    }
    RecordEnd::Missing
}

/// The position behind the quote that closes a field whose text starts at `start`. A quote as the
/// very last byte does not count: the next one may make it a doubled one.
fn behind_closing_quote(buffer: &[u8], start: usize, separator: u8) -> Result<usize, Open> {
    let mut at = start;
    while let Some(found) = memchr(QUOTE, &buffer[at..]) {
        let quote = at + found;
        at = quote + 1;
        match buffer.get(at) {
            Some(&QUOTE) => at += 1,
            Some(&next) if closes(&buffer[start..quote], next, separator) => return Ok(at),
            Some(_) => return Err(Open::ForGood),
            None => return Err(Open::SoFar),
        }
    }
    Err(Open::SoFar)
}

/// Whether the quote between the text of a field and the byte `next` closes the field. Within one line it does,
/// whatever comes next.
fn closes(text: &[u8], next: u8, separator: u8) -> bool {
    next == separator || matches!(next, b'\r' | b'\n') || memchr(b'\n', text).is_none()
}

/// A record that has no right number of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ragged {
    /// Where it starts in the block.
    pub start: u32,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a ragged record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It has so many fields instead.
    Fields(u32),
    /// A quoted field is not closed.
    OpenQuote,
}

/// The fields of a block. Kept and refilled from block to block.
#[derive(Debug, Default)]
pub(super) struct Index {
    columns: usize,
    /// The block without its quotes; unused when it has none.
    unquoted: Vec<u8>,
    has_quotes: bool,
    /// Where the first field of each record starts, in the bytes of the fields.
    starts: Vec<u32>,
    /// Where each field ends, `columns` for each record; the next field starts one byte behind.
    ends: Vec<u32>,
    /// The places in `ends` of empty texts in quotes, in order.
    empties: Vec<u32>,
    /// Where each record starts in the block.
    lines: Vec<u32>,
    /// Records that are not among the others.
    pub ragged: Vec<Ragged>,
}

impl Index {
    /// Finds the fields of `block`, which holds whole records, ends with a line end, and is
    /// smaller than 4 GiB. Blank lines and remarks are passed over.
    pub fn fill(&mut self, block: &[u8], dialect: Dialect, columns: usize) {
        assert!(block.last().is_none_or(|&byte| byte == b'\n'), "a block ends with a line end");
        assert!(u32::try_from(block.len()).is_ok(), "positions in a block are 32 bits wide");
        self.columns = columns;
        self.starts.clear();
        self.ends.clear();
        self.empties.clear();
        self.lines.clear();
        self.ragged.clear();
        self.unquoted.clear();
        self.has_quotes = memchr(QUOTE, block).is_some();
        if self.has_quotes {
            self.fill_quoted(block, dialect);
        } else {
            self.fill_plain(block, dialect);
        }
    }

    /// The records whose number of fields is right.
    pub fn records<'a>(&'a self, block: &'a [u8]) -> Records<'a> {
        let bytes = if self.has_quotes { &self.unquoted } else { block };
        let Self { starts, ends, empties, columns, .. } = self;
        Records { bytes, starts, ends, empties, columns: *columns }
    }

    /// Where a record starts in the block.
    pub fn line_start(&self, record: usize) -> u32 {
        self.lines[record]
    }

    fn fill_plain(&mut self, block: &[u8], dialect: Dialect) {
        let Dialect { separator, .. } = dialect;
        let mut record = 0_usize;
        let mut first = 0_usize;
        let mut take = |at: usize| {
            if block[at] != b'\n' {
                self.ends.push(at as u32);
                return;
            }
            let end = if at > record && block[at - 1] == b'\r' { at - 1 } else { at };
            let found = self.ends.len() - first + 1;
            let is_record = end > record && !dialect.is_comment(&block[record..]);
            if found == self.columns && is_record {
                self.ends.push(end as u32);
                self.starts.push(record as u32);
            } else {
                self.ends.truncate(first);
                if is_record {
                    let fault = Fault::Fields(found as u32);
                    self.ragged.push(Ragged { start: record as u32, fault });
                }
            }
            first = self.ends.len();
            record = at + 1;
        };
        let (words, tail) = block.as_chunks::<8>();
        for (word, bytes) in words.iter().enumerate() {
            let mut matches = matches(u64::from_le_bytes(*bytes), separator);
            while matches != 0 {
                take(word * 8 + matches.trailing_zeros() as usize / 8);
                matches &= matches - 1;
            }
        }
        for (at, &byte) in (block.len() - tail.len()..).zip(tail) {
            if byte == separator || byte == b'\n' {
                take(at);
            }
        }
        self.lines.extend_from_slice(&self.starts);
    }

    fn fill_quoted(&mut self, block: &[u8], dialect: Dialect) {
        let mut at = 0;
        while at < block.len() {
            if dialect.is_comment(&block[at..]) {
                at += memchr(b'\n', &block[at..]).map_or(block.len() - at, |n| n + 1);
                continue;
            }
            let (first, start) = (self.ends.len(), self.unquoted.len());
            let first_empty = self.empties.len();
            let (end, found) = match self.unquote_record(block, at, dialect.separator) {
                Some(end) => (end, Some(self.ends.len() - first)),
                None => (memchr(b'\n', &block[at..]).map_or(block.len(), |n| at + n + 1), None),
            };
            let blank = matches!(&block[at..end], b"\n" | b"\r\n");
            if found == Some(self.columns) && !blank {
                self.starts.push(start as u32);
                self.lines.push(at as u32);
            } else {
                self.ends.truncate(first);
                self.empties.truncate(first_empty);
                self.unquoted.truncate(start);
                if !blank {
                    let fault = found.map_or(Fault::OpenQuote, |n| Fault::Fields(n as u32));
                    self.ragged.push(Ragged { start: at as u32, fault });
                }
            }
            at = end;
        }
    }

    /// Appends the text of the fields of the record at `at` and returns where the next record
    /// starts; `None` when a quoted field is not closed.
    fn unquote_record(&mut self, block: &[u8], mut at: usize, separator: u8) -> Option<usize> {
        loop {
            let (start, is_quoted) = (self.unquoted.len(), block.get(at) == Some(&QUOTE));
            if is_quoted {
                at = self.unquote_field(block, at + 1, separator)?;
            }
            let plain = at;
            at += memchr2(separator, b'\n', &block[at..])?;
            let last = block[at] == b'\n';
            let carriage_return = last && at > plain && block[at - 1] == b'\r';
            self.unquoted.extend_from_slice(&block[plain..at - usize::from(carriage_return)]);
            if is_quoted && self.unquoted.len() == start {
                self.empties.push(self.ends.len() as u32);
            }
            self.ends.push(self.unquoted.len() as u32);
            self.unquoted.push(separator);
            at += 1;
            if last {
                return Some(at);
            }
        }
    }

    fn unquote_field(&mut self, block: &[u8], start: usize, separator: u8) -> Option<usize> {
        let mut at = start;
        loop {
            let quote = at + memchr(QUOTE, &block[at..])?;
            self.unquoted.extend_from_slice(&block[at..quote]);
            at = quote + 1;
            match *block.get(at)? {
                QUOTE => {
                    self.unquoted.push(QUOTE);
                    at += 1;
                }
                next => return closes(&block[start..quote], next, separator).then_some(at),
            }
        }
    }
}

/// The top bit of each byte of `word` that is a separator or a line end. Exact for every byte,
/// unlike the shorter formula, which may also mark the byte above a match.
fn matches(word: u64, separator: u8) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const EACH: u64 = 0x0101_0101_0101_0101;
    let different = |byte: u8| {
        let x = word ^ (EACH * u64::from(byte));
        ((x & LOW) + LOW) | x
    };
    !(different(separator) & different(b'\n')) & !LOW
}

/// Records of the same number of fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    starts: &'a [u32],
    ends: &'a [u32],
    empties: &'a [u32],
    columns: usize,
}

impl<'a> Records<'a> {
    /// The number of records.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The text of a column in every record.
    pub fn column(self, column: usize) -> impl Iterator<Item = &'a [u8]> {
        assert!(column < self.columns, "the column is one of the file's");
        (0..self.len()).map(move |record| self.field(record, column))
    }

    /// Whether a field is an empty text in quotes, and not nothing at all.
    pub fn is_quoted_empty(&self, record: usize, column: usize) -> bool {
        let at = (record * self.columns + column) as u32;
        self.empties.binary_search(&at).is_ok()
    }

    /// The text of one field, without its quotes.
    #[inline]
    pub fn field(&self, record: usize, column: usize) -> &'a [u8] {
        let at = record * self.columns + column;
        let start = if column == 0 { self.starts[record] } else { self.ends[at - 1] + 1 };
        &self.bytes[start as usize..self.ends[at] as usize]
    }
}

/// The fields of the first record of `block` that is neither blank nor a remark, and where the next one starts;
/// `None` when there is no such record.
pub(super) fn first_record(block: &[u8], dialect: Dialect) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut index = Index::default();
    let mut at = 0;
    while at < block.len() {
        let line_end = || Some(at + memchr(b'\n', &block[at..])? + 1);
        let is_comment = dialect.is_comment(&block[at..]);
        let unquoted = match is_comment {
            true => None,
            false => index.unquote_record(block, at, dialect.separator),
        };
        let end = match unquoted {
            Some(end) => end,
            None => line_end()?,
        };
        let is_blank = matches!(&block[at..end], b"\n" | b"\r\n");
        if !is_comment && !is_blank && !index.ends.is_empty() {
            let starts = std::iter::once(0).chain(index.ends.iter().map(|end| *end as usize + 1));
            let fields = starts
                .zip(&index.ends)
                .map(|(start, &end)| index.unquoted[start..end as usize].to_vec());
            return Some((fields.collect(), end));
        }
        index = Index::default();
        at = end;
    }
    None
}

/// The number of line ends in `bytes`.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}
