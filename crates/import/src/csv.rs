//! CSV: a thread reads and cuts the input into blocks of whole records, others parse them, and
//! the reader hands the batches out in the order of the file.
//!
//! ```text
//! input ─ decompress ─ cut ──┬─ block ─ parse ─ batch ─┐
//!                            ├─ block ─ parse ─ batch ─┼─ in order ─ next()
//!                            └─ block ─ parse ─ batch ─┘
//! ```
//! For every block a one-place channel for its outcome is put into a bounded queue in the order
//! of the file; this keeps the order, and lets a slow consumer hold up the reading.

mod columns;
mod infer;
mod parse;
mod plan;
mod records;
mod scalar;
mod time;

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use tidefall_types::{Error, Result};

use crate::{CsvOptions, Input, ParsedBatch};
use parse::{BlockParser, ParsedBlock};
use plan::Plan;
use records::{RECORD_BYTES_MAX, Rest, count_lines, last_record_end};

pub use infer::CsvSchema;
pub use time::{TimeFormat, TimeUnit};

/// Bytes of text from which everything is inferred: enough for some 100,000 rows, and read in
/// under 50 ms.
const SAMPLE_BYTES: usize = 4 << 20;

/// Bytes of text of a block: some ten thousand rows, and small enough for the second-level cache.
const BLOCK_BYTES: usize = 512 << 10;

/// Blocks under way per parsing thread: one in work, one ready, one waiting.
const BLOCKS_PER_THREAD: usize = 3;

/// More threads than this wait for the one that reads.
const THREADS_MAX: usize = 16;

/// Opens a CSV file and infers what `options` leave open.
///
/// # Errors
/// `NotFound` or `Io` when the file cannot be read, `Invalid` when it is empty, has doubled column
/// names, lacks a column that `options` name, or no time can be found in it, `Corrupt` when its
/// compressed data is damaged before the first record, `Unsupported` for other kinds of files.
pub fn open_csv(path: &Path, options: &CsvOptions) -> Result<CsvReader> {
    read_csv(Input::open(path)?, options)
}

/// Reads CSV from a stream; see [`open_csv`].
///
/// # Errors
/// As [`open_csv`].
pub fn read_csv(mut input: Input, options: &CsvOptions) -> Result<CsvReader> {
    let name = input.name().to_owned();
    let in_file = |error: Error| error.context(&name);
    let mut sample = Sample::read(&mut input)?;
    sample.skip_lines(options.skip_lines);
    if sample.bytes.is_empty() {
        return Err(sample.end.failure().unwrap_or_else(|| {
            Error::invalid(format!("{name} is empty: there is nothing to import"))
        }));
    }
    let inferred = infer::infer(&sample.bytes[..sample.whole_records(options)], options);
    let inferred = match (inferred, sample.end.failure()) {
        (Ok(inferred), _) => inferred,
        // What is wrong with so little of the file is that there is no more of it.
        (Err(_), Some(failure)) => return Err(failure),
        (Err(error), None) => return Err(in_file(error)),
    };
    sample.skip_bytes(inferred.data_start);
    let lines_before = sample.lines_skipped;
    let stored_bytes = input.stored_bytes();
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let outcomes = start(input, sample, &inferred.plan, threads.min(THREADS_MAX))
        .map_err(|error| Error::io(format!("{name}: starting a thread"), &error))?;
    let schema = inferred.schema;
    Ok(CsvReader { name, schema, stored_bytes, outcomes: Some(outcomes), lines_before })
}

/// Batches of a CSV file, in the order of the file. After an error there are no more.
#[derive(Debug)]
pub struct CsvReader {
    name: String,
    schema: CsvSchema,
    stored_bytes: Option<u64>,
    outcomes: Option<Receiver<Outcome>>,
    lines_before: u64,
}

impl CsvReader {
    /// What was found out about the file.
    pub fn schema(&self) -> &CsvSchema {
        &self.schema
    }

    /// The length of the file as stored, if it has one; beside
    /// [`ParsedBatch::bytes_read`] it gives the progress.
    pub fn stored_bytes(&self) -> Option<u64> {
        self.stored_bytes
    }

    fn receive(&mut self) -> Option<Result<ParsedBatch>> {
        let outcome = self.outcomes.as_ref()?.recv().ok()?;
        let (parsed, bytes_read) = match outcome {
            Outcome::Block { parsed, bytes_read } => (parsed.recv(), bytes_read),
            Outcome::Failure(error) => {
                let line = self.lines_before;
                return Some(Err(error.context(format!("after line {line}"))));
            }
        };
        Some(match parsed {
            Ok(Ok(ParsedBlock { batch, mut bad, lines })) => {
                bad.iter_mut().for_each(|bad| bad.line += self.lines_before);
                self.lines_before += lines;
                Ok(ParsedBatch { batch, bad, bytes_read })
            }
            Ok(Err(error)) => Err(error.context(&self.name)),
            Err(_) => Err(Error::closed(format!("{}: a parsing thread stopped", self.name))),
        })
    }
}

impl Iterator for CsvReader {
    type Item = Result<ParsedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.receive();
        if !matches!(item, Some(Ok(_))) {
            self.outcomes = None;
        }
        item
    }
}

/// What follows the bytes that were read.
#[derive(Debug)]
enum End {
    /// More bytes.
    Open,
    /// Nothing.
    Reached,
    /// Something that cannot be read.
    Failed(Error),
}

impl End {
    fn rest(&self) -> Rest {
        match self {
            Self::Reached => Rest::Nothing,
            Self::Open | Self::Failed(_) => Rest::Unknown,
        }
    }

    fn failure(&self) -> Option<Error> {
        match self {
            Self::Failed(error) => Some(error.clone()),
            Self::Open | Self::Reached => None,
        }
    }
}

/// The beginning of the file, and then whatever was read and not yet cut off.
#[derive(Debug)]
struct Sample {
    bytes: Vec<u8>,
    end: End,
    lines_skipped: u64,
}

impl Sample {
    fn read(input: &mut Input) -> Result<Self> {
        let mut sample = Self { bytes: Vec::new(), end: End::Open, lines_skipped: 0 };
        sample.fill(input, SAMPLE_BYTES);
        if sample.bytes.starts_with(b"\xef\xbb\xbf") {
            sample.bytes.drain(..3);
        }
        Ok(sample)
    }

    fn fill(&mut self, input: &mut Input, bytes_max: usize) {
        if !matches!(self.end, End::Open) {
            return;
        }
        self.end = match input.fill(&mut self.bytes, bytes_max) {
            Ok(false) => End::Open,
            Ok(true) => End::Reached,
            Err(error) => End::Failed(error),
        };
        // The last line of a file need not have an end.
        if matches!(self.end, End::Reached) && self.bytes.last().is_some_and(|&b| b != b'\n') {
            self.bytes.push(b'\n');
        }
    }

    fn skip_lines(&mut self, lines: usize) {
        let mut at = 0;
        for _ in 0..lines {
            at += memchr::memchr(b'\n', &self.bytes[at..]).map_or(0, |found| found + 1);
        }
        self.skip_bytes(at);
    }

    fn skip_bytes(&mut self, count: usize) {
        self.lines_skipped += count_lines(&self.bytes[..count]);
        self.bytes.drain(..count);
    }

    fn whole_records(&self, options: &CsvOptions) -> usize {
        // Before the separator is known every candidate would do: it only tells which quotes open
        // a field.
        last_record_end(&self.bytes, options.separator.unwrap_or(b','), self.end.rest())
    }
}

/// What the reading thread puts into the queue.
#[derive(Debug)]
enum Outcome {
    Block { parsed: Receiver<Result<ParsedBlock>>, bytes_read: u64 },
    Failure(Error),
}

/// A block on its way to a parsing thread.
struct Job {
    block: Vec<u8>,
    done: SyncSender<Result<ParsedBlock>>,
}

fn start(
    input: Input,
    sample: Sample,
    plan: &Plan,
    threads: usize,
) -> std::io::Result<Receiver<Outcome>> {
    let blocks_max = threads * BLOCKS_PER_THREAD;
    let (queue, outcomes) = sync_channel(blocks_max);
    let (jobs, waiting) = sync_channel::<Job>(blocks_max);
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..threads {
        let waiting = Arc::clone(&waiting);
        let mut parser = BlockParser::new(plan.clone());
        std::thread::Builder::new().name("csv-parse".to_owned()).spawn(move || {
            while let Some(Job { block, done }) = next_job(&waiting) {
                // Nobody waits for it any more when the reader was dropped.
                let _ = done.send(parser.parse(&block));
            }
        })?;
    }
    let mut cutter = Cutter { input, pending: sample, separator: plan.separator, queue, jobs };
    std::thread::Builder::new().name("csv-read".to_owned()).spawn(move || cutter.run())?;
    Ok(outcomes)
}

fn next_job(waiting: &Mutex<Receiver<Job>>) -> Option<Job> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Reads the input and cuts it into blocks.
struct Cutter {
    input: Input,
    pending: Sample,
    separator: u8,
    queue: SyncSender<Outcome>,
    jobs: SyncSender<Job>,
}

impl Cutter {
    fn run(&mut self) {
        let mut bytes_wanted = BLOCK_BYTES;
        loop {
            self.pending.fill(&mut self.input, bytes_wanted);
            let window = self.window(bytes_wanted);
            let rest = match window == self.pending.bytes.len() {
                true => self.pending.end.rest(),
                false => Rest::Unknown,
            };
            let end = last_record_end(&self.pending.bytes[..window], self.separator, rest);
            if end > 0 {
                let rest = self.pending.bytes.split_off(end);
                let block = std::mem::replace(&mut self.pending.bytes, rest);
                if !self.send(block) {
                    return;
                }
                bytes_wanted = BLOCK_BYTES;
            } else if window == self.pending.bytes.len() && !matches!(self.pending.end, End::Open) {
                break;
            } else if bytes_wanted > 2 * RECORD_BYTES_MAX {
                self.fail(Error::limit(format!(
                    "{}: a line is longer than {} MiB; is this a text file?",
                    self.input.name(),
                    RECORD_BYTES_MAX >> 20
                )));
                return;
            } else {
                bytes_wanted *= 2;
            }
        }
        if let Some(error) = self.pending.end.failure() {
            self.fail(error);
        }
    }

    /// How much of what was read is looked at: the sample may be far larger than a block.
    fn window(&self, bytes_wanted: usize) -> usize {
        self.pending.bytes.len().min(bytes_wanted)
    }

    /// Hands a block to the parsing threads; false when nobody wants it any more.
    fn send(&self, block: Vec<u8>) -> bool {
        let (done, parsed) = sync_channel(1);
        let bytes_read = self.input.stored_bytes_read();
        self.queue.send(Outcome::Block { parsed, bytes_read }).is_ok()
            && self.jobs.send(Job { block, done }).is_ok()
    }

    fn fail(&self, error: Error) {
        // As in `send`.
        let _ = self.queue.send(Outcome::Failure(error));
    }
}

#[cfg(test)]
mod tests;
