//! InfluxDB line protocol: bytes in, [`WriteBatch`]es out.
//!
//! ```text
//! cpu,host=a,region=eu usage=12.5,cores=4i,name="x y",on=t 1700000000000000000
//! └─ series key ─────┘ └─ fields ────────────────────────┘ └─ timestamp ─────┘
//! ```
//!
//! A body is read in one pass:
//!
//! 1. The series key (everything up to the first space that is not escaped) is looked up as it
//!    stands in the body. A key seen before costs one hash; a new one is taken apart once, and
//!    its tag values are interned.
//! 2. Fields go straight into the columns of the open batch of their table. The column of a field
//!    is guessed from the field that followed its predecessor last time; a hash is only computed
//!    when the guess is wrong.
//! 3. A line that turns out wrong is taken back from the columns it touched, reported, and read
//!    again from its beginning for its end: a newline inside of quotes is a part of it, and what
//!    follows there is text, never a line of its own.
//!
//! One batch of a table is open at a time and rows keep the order of the body, so that of two
//! readings of the same identity the later line wins. A line that does not fit the open batch (a
//! field of another type, a name that is now a tag and now a field) closes it and opens the next;
//! so do lines whose columns have so little in common that the batch would consist of nulls.
//!
//! The syntax and the reasons for refusing a line are those of InfluxDB 1.x, found by sending it
//! lines (a tag or field called `time` is one of them), with these differences: unsigned integers (`1u`) are read, a field that appears twice in
//! a line is refused, and so is a name that is a tag and a field in one line.

mod columns;
mod scan;
mod series;

use tidefall_types::{
    Error, NS_PER_HOUR, NS_PER_MICRO, NS_PER_MILLI, NS_PER_MINUTE, NS_PER_SECOND, Result,
    WriteBatch,
};

use columns::{Columns, Fault, RowOrigin};
use scan::Value;
use series::SeriesIndex;

/// The largest body that is read: offsets into it are kept in 31 bits.
pub const BODY_BYTES_MAX: usize = 1 << 30;

/// Errors of which the text is kept; the others are only counted, so that a body of rubbish does
/// not come back as an even longer answer.
pub const ERRORS_KEPT: usize = 100;

/// Bytes of a wrong line that its error repeats.
pub const ERROR_TEXT_BYTES_MAX: usize = 160;

/// Batches that one body may make. Each is a write of its own with a fixed cost; a body with more
/// tables than this is a mistake or an attack.
pub const BATCHES_MAX: usize = 16_384;

/// Cells without a value that the batches of one body may hold, 8 bytes each. Bounds the memory
/// of a body in which every line has other fields.
const EMPTY_CELLS_MAX: usize = 16 << 20;

/// The unit of the timestamps in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // The names say it all.
pub enum Precision {
    #[default]
    Nanosecond,
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
}

impl Precision {
    /// Reads the parameter `precision` of a write: `n`, `ns`, `u`, `us`, `ms`, `s`, `m` or `h`.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "" | "n" | "ns" => Self::Nanosecond,
            "u" | "us" | "µ" | "µs" => Self::Microsecond,
            "ms" => Self::Millisecond,
            "s" => Self::Second,
            "m" => Self::Minute,
            "h" => Self::Hour,
            _ => {
                return Err(Error::invalid(format!(
                    "invalid precision {text:?} (use ns, us, ms, s, m or h)"
                )));
            }
        })
    }

    /// Nanoseconds of one unit.
    pub const fn ns(self) -> i64 {
        match self {
            Self::Nanosecond => 1,
            Self::Microsecond => NS_PER_MICRO,
            Self::Millisecond => NS_PER_MILLI,
            Self::Second => NS_PER_SECOND,
            Self::Minute => NS_PER_MINUTE,
            Self::Hour => NS_PER_HOUR,
        }
    }
}

/// A line that was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// The line, counted from 1. A newline inside of a quoted string counts too.
    pub line: u32,
    /// How the line begins, at most [`ERROR_TEXT_BYTES_MAX`] bytes of it.
    pub text: String,
    /// Why it was refused.
    pub reason: String,
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unable to parse '{}': {} (line {})", self.text, self.reason, self.line)
    }
}

/// Rows for one table.
#[derive(Debug, Clone)]
pub struct TableBatch {
    /// The table: the measurement of the lines.
    pub table: String,
    /// The rows. Tags and fields are in the order in which they were first seen.
    pub batch: WriteBatch,
    /// The line of the body that each row came from, counted from 1.
    pub lines: Vec<u32>,
}

/// What a body held.
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    /// The rows; batches of one table follow one another in the order of the body.
    pub batches: Vec<TableBatch>,
    /// The first [`ERRORS_KEPT`] wrong lines, in order.
    pub errors: Vec<LineError>,
    /// All wrong lines.
    pub lines_bad: usize,
    /// Whether some of these are right and more than one body may have: in parts it would be taken.
    pub is_too_much: bool,
}

impl Parsed {
    /// The rows of all batches.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(|table| table.batch.rows()).sum()
    }
}

/// Reads a body. Lines without a timestamp are given `now_ns`, cut down to `precision`.
///
/// # Errors
/// `Limit` when the body is longer than [`BODY_BYTES_MAX`]. Wrong lines are no error of the body:
/// they are in [`Parsed::errors`].
pub fn parse(body: &[u8], precision: Precision, now_ns: i64) -> Result<Parsed> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Error::limit(format!(
            "a body of {} bytes is too long for line protocol (at most {BODY_BYTES_MAX}): \
             send it in pieces",
            body.len()
        )));
    }
    let unit_ns = precision.ns();
    let mut parser = Parser {
        body,
        pos: 0,
        line: 1,
        newlines_in_strings: 0,
        unit_ns,
        default_time_ns: now_ns.div_euclid(unit_ns).saturating_mul(unit_ns),
        series: SeriesIndex::default(),
        open: Vec::new(),
        empty_cells: 0,
        generations: 0,
        exhausted: false,
        parsed: Parsed::default(),
    };
    parser.run()?;
    Ok(parser.parsed)
}

struct Parser<'a> {
    body: &'a [u8],
    /// The next byte to read; where reading stopped when a line turns out wrong.
    pos: usize,
    /// The line in which `pos` was when the current line began.
    line: u32,
    newlines_in_strings: u32,
    unit_ns: i64,
    default_time_ns: i64,
    series: SeriesIndex<'a>,
    /// The open batch of each table, by the table's number in `series`.
    open: Vec<Columns<'a>>,
    /// Cells without a value in the closed batches.
    empty_cells: usize,
    /// The batches opened so far.
    generations: u32,
    /// Whether the limits of the body are reached; then its remaining lines are refused.
    exhausted: bool,
    parsed: Parsed,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<()> {
        loop {
            self.pos = scan::skip_blanks(self.body, self.pos);
            match self.body.get(self.pos) {
                None => break,
                Some(b'\n') => {}
                Some(b'#') => self.pos = scan::newline(self.body, self.pos),
                Some(_) if scan::is_line_end(self.body, self.pos) => self.pos += 1,
                Some(_) => self.line()?,
            }
            self.pos += 1;
            self.line += 1 + std::mem::take(&mut self.newlines_in_strings);
        }
        for (table, columns) in std::mem::take(&mut self.open).into_iter().enumerate() {
            self.parsed.batches.extend(columns.finish(table, &self.series)?);
        }
        Ok(())
    }

    /// Reads one line, and leaves `pos` at the newline behind it.
    fn line(&mut self) -> Result<()> {
        let start = self.pos;
        let mut read = if self.exhausted { Err(Fault::Misfit) } else { self.point(start) };
        if read == Err(Fault::Misfit) && !self.exhausted {
            self.close_current()?;
            self.newlines_in_strings = 0;
            read = self.point(start);
        }
        match read {
            Ok(table) if self.open[table].is_sparse() => self.exhausted = !self.close(table)?,
            Ok(_) => {}
            Err(fault) => {
                self.skip_line(start);
                self.report(start, fault);
            }
        }
        Ok(())
    }

    /// Reads series key, fields and timestamp from `start` on, and says which table got the row.
    /// When that fails, nothing of the line stays in the columns.
    fn point(&mut self, start: usize) -> Result<usize, Fault> {
        let key_end = scan::key_end(self.body, start);
        self.pos = key_end;
        let series = self.series.find(&self.body[start..key_end])?;
        let table = self.series.table_of(series);
        self.ensure_open(table)?;
        self.open[table].admit(series, &mut self.series)?;
        let read = self.fields(table, series).and_then(|()| self.time());
        let columns = &mut self.open[table];
        match read {
            Ok(time_ns) => {
                let tag_count = self.series.tags_of(series).len();
                columns.push_row(time_ns, RowOrigin { series, line: self.line }, tag_count);
                Ok(table)
            }
            Err(fault) => {
                columns.take_back();
                Err(fault)
            }
        }
    }

    /// Makes sure that the table has an open batch.
    #[inline]
    fn ensure_open(&mut self, table: usize) -> Result<(), Fault> {
        if table < self.open.len() {
            return Ok(());
        }
        if self.generations as usize >= BATCHES_MAX {
            self.parsed.is_too_much = true;
            return Err(Fault::Bad("too many tables in one body: send them in several"));
        }
        while self.open.len() <= table {
            self.open.push(Columns::new(self.generations));
            self.generations += 1;
        }
        Ok(())
    }

    fn fields(&mut self, table: usize, series: u32) -> Result<(), Fault> {
        self.pos = scan::skip_blanks(self.body, self.pos);
        if scan::is_line_end(self.body, self.pos) {
            return Err(Fault::Bad("missing fields"));
        }
        let columns = &mut self.open[table];
        loop {
            let (field, name_bytes) = match columns.guess(&self.body[self.pos..]) {
                Some(guessed) => guessed,
                None => {
                    let name = scan::field_name(self.body, self.pos)?;
                    (columns.find(name, series, &self.series)?, name.len())
                }
            };
            self.pos += name_bytes + "=".len();
            let (value, end) = scan::value(self.body, self.pos)?;
            columns.push(field, value)?;
            if let Value::Text { newlines, .. } = value {
                self.newlines_in_strings += newlines;
            }
            self.pos = end;
            match self.body.get(end) {
                Some(b',') => self.pos += 1,
                Some(b' ' | b'\t') | None => return Ok(()),
                Some(_) if scan::is_line_end(self.body, end) => return Ok(()),
                Some(_) => return Err(Fault::Bad("invalid field format")),
            }
        }
    }

    fn time(&mut self) -> Result<i64, Fault> {
        self.pos = scan::skip_blanks(self.body, self.pos);
        let time_ns = if scan::is_line_end(self.body, self.pos) {
            self.default_time_ns
        } else {
            let (time, end) = scan::timestamp(self.body, self.pos)?;
            self.pos = scan::skip_blanks(self.body, end);
            scan::scale(time, self.unit_ns)?
        };
        if !scan::is_line_end(self.body, self.pos) {
            return Err(Fault::Bad("bad timestamp"));
        }
        if self.body.get(self.pos) == Some(&b'\r') {
            self.pos += 1;
        }
        Ok(time_ns)
    }

    /// Closes the open batch of the table that the current line names.
    fn close_current(&mut self) -> Result<()> {
        if let Some(series) = self.series.current() {
            self.close(self.series.table_of(series))?;
        }
        Ok(())
    }

    /// Closes a batch and opens the next one of its table, unless the body has made too many; says
    /// which.
    fn close(&mut self, table: usize) -> Result<bool> {
        self.empty_cells += self.open[table].empty_cells();
        if self.generations as usize >= BATCHES_MAX || self.empty_cells > EMPTY_CELLS_MAX {
            return Ok(false);
        }
        let next = Columns::new(self.generations);
        self.generations += 1;
        let columns = std::mem::replace(&mut self.open[table], next);
        self.parsed.batches.extend(columns.finish(table, &self.series)?);
        Ok(true)
    }

    /// Leaves `pos` at the end of the line that begins at `start`.
    fn skip_line(&mut self, start: usize) {
        self.pos = scan::line_end(self.body, start);
        self.newlines_in_strings = scan::newlines(&self.body[start..self.pos]);
    }

    fn report(&mut self, start: usize, fault: Fault) {
        let reason = match fault {
            Fault::Bad(reason) => reason,
            Fault::Misfit => {
                self.parsed.is_too_much = true;
                "the columns of the lines differ too much: send them in several bodies"
            }
        };
        self.parsed.lines_bad += 1;
        if self.parsed.errors.len() >= ERRORS_KEPT {
            return;
        }
        let line = &self.body[start..self.pos];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut text =
            String::from_utf8_lossy(&line[..line.len().min(ERROR_TEXT_BYTES_MAX)]).into_owned();
        if line.len() > ERROR_TEXT_BYTES_MAX {
            text.push('…');
        }
        self.parsed.errors.push(LineError { line: self.line, text, reason: reason.to_owned() });
    }
}

#[cfg(test)]
mod tests;
