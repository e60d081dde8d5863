//! From a stream of bytes to blocks of whole records, worked on by several threads.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use tidefall_types::{Error, Result};

use super::records::{Dialect, RECORD_BYTES_MAX, Rest, count_lines, last_record_end};
use crate::{CsvOptions, Input};

/// Blocks under way per parsing thread: one in work, one ready, one waiting.
const BLOCKS_PER_THREAD: usize = 3;

/// What follows the bytes that were read.
#[derive(Debug)]
pub(super) enum End {
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

    pub fn failure(&self) -> Option<Error> {
        match self {
            Self::Failed(error) => Some(error.clone()),
            Self::Open | Self::Reached => None,
        }
    }
}

/// The beginning of the file, and then whatever was read and not yet cut off.
#[derive(Debug)]
pub(super) struct Sample {
    pub bytes: Vec<u8>,
    pub end: End,
    pub lines_skipped: u64,
}

impl Sample {
    /// Reads at least one whole record, if the input has one.
    pub fn read(input: &mut Input, options: &CsvOptions, mut bytes_wanted: usize) -> Self {
        let mut sample = Self { bytes: Vec::new(), end: End::Open, lines_skipped: 0 };
        loop {
            sample.fill(input, bytes_wanted);
            let open = matches!(sample.end, End::Open);
            let lines = count_lines(&sample.bytes) > options.skip_lines as u64;
            let enough = lines && sample.whole_records(options) > 0;
            if enough || !open || bytes_wanted > 2 * RECORD_BYTES_MAX {
                break;
            }
            bytes_wanted *= 2;
        }
        if sample.bytes.starts_with(b"\xef\xbb\xbf") {
            sample.bytes.drain(..3);
        }
        sample.skip_lines(options.skip_lines);
        sample
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
        if matches!(self.end, End::Reached) {
            self.cut_empty_lines();
        }
        // The last line of a file need not have an end.
        if matches!(self.end, End::Reached) && self.bytes.last().is_some_and(|&b| b != b'\n') {
            self.bytes.push(b'\n');
        }
    }

    /// Cuts off the lines without any text with which spreadsheets end their files.
    fn cut_empty_lines(&mut self) {
        self.bytes.truncate(text_lines_end(&self.bytes));
    }

    fn skip_lines(&mut self, lines: usize) {
        let mut at = 0;
        for _ in 0..lines {
            at += memchr::memchr(b'\n', &self.bytes[at..]).map_or(0, |found| found + 1);
        }
        self.skip_bytes(at);
    }

    pub fn skip_bytes(&mut self, count: usize) {
        self.lines_skipped += count_lines(&self.bytes[..count]);
        self.bytes.drain(..count);
    }

    pub fn whole_records(&self, options: &CsvOptions) -> usize {
        // Before the separator is known every candidate would do: it only tells which quotes open or
        // close a field, and what is cut wrongly is one line of a large sample.
        let separator = options.separator.unwrap_or(b',');
        let dialect = Dialect { separator, comment: options.comment };
        last_record_end(&self.bytes, dialect, self.end.rest())
    }
}

/// Where the last line with text in some field ends; 0 where there is none.
fn text_lines_end(bytes: &[u8]) -> usize {
    let is_empty = |byte: &u8| matches!(byte, b',' | b';' | b'\t' | b'|' | b'\r' | b'\n');
    let Some(text_end) = bytes.iter().rposition(|byte| !is_empty(byte)) else { return 0 };
    // It stays whole: its last fields may be empty.
    let line_end = memchr::memchr(b'\n', &bytes[text_end..]).map(|at| text_end + at + 1);
    line_end.unwrap_or(bytes.len())
}

/// What the reading thread puts into the queue.
#[derive(Debug)]
pub(super) enum Outcome<T> {
    /// A block, and where what becomes of it will arrive.
    Block { done: Receiver<T>, bytes_read: u64 },
    /// The input cannot be read any further.
    Failure(Error),
}

/// A block on its way to a parsing thread.
struct Job<T> {
    block: Vec<u8>,
    done: SyncSender<T>,
}

/// How the work on a file is divided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Division {
    pub dialect: Dialect,
    pub threads: usize,
    pub block_bytes: usize,
}

/// Starts the threads that read the input and work on its blocks, each with a worker of its own.
/// They end when the input does, or when the receiver is dropped.
pub(super) fn start<T: Send + 'static, W: FnMut(&[u8]) -> T + Send + 'static>(
    input: Input,
    sample: Sample,
    division: Division,
    worker: impl Fn() -> W,
) -> Result<Receiver<Outcome<T>>> {
    let failed = |error| Error::io("starting a thread", &error);
    let blocks_max = division.threads * BLOCKS_PER_THREAD;
    let (queue, outcomes) = sync_channel(blocks_max);
    let (jobs, waiting) = sync_channel::<Job<T>>(blocks_max);
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..division.threads {
        let waiting = Arc::clone(&waiting);
        let mut work = worker();
        let run = move || {
            while let Some(Job { block, done }) = next_job(&waiting) {
                // Nobody waits for it any more when the receiver was dropped.
                let _ = done.send(work(&block));
            }
        };
        std::thread::Builder::new().name("csv-parse".to_owned()).spawn(run).map_err(failed)?;
    }
    let mut cutter = Cutter { input, pending: sample, division, queue, jobs };
    let run = move || cutter.run();
    std::thread::Builder::new().name("csv-read".to_owned()).spawn(run).map_err(failed)?;
    Ok(outcomes)
}

fn next_job<T>(waiting: &Mutex<Receiver<Job<T>>>) -> Option<Job<T>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Reads the input and cuts it into blocks.
struct Cutter<T> {
    input: Input,
    pending: Sample,
    division: Division,
    queue: SyncSender<Outcome<T>>,
    jobs: SyncSender<Job<T>>,
}

impl<T> Cutter<T> {
    fn run(&mut self) {
        let mut bytes_wanted = self.division.block_bytes;
        loop {
            self.pending.fill(&mut self.input, bytes_wanted);
            let window = self.window(bytes_wanted);
            let rest = match window == self.pending.bytes.len() {
                true => self.pending.end.rest(),
                false => Rest::Unknown,
            };
            let mut end =
                last_record_end(&self.pending.bytes[..window], self.division.dialect, rest);
            // Lines without text wait for what comes behind them, as they may be the end of the file.
            if rest == Rest::Unknown && bytes_wanted <= RECORD_BYTES_MAX {
                end = text_lines_end(&self.pending.bytes[..end]).min(end);
            }
            if end > 0 {
                let rest = self.pending.bytes.split_off(end);
                let block = std::mem::replace(&mut self.pending.bytes, rest);
                if !self.send(block) {
                    return;
                }
                bytes_wanted = self.division.block_bytes;
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
        let (sender, done) = sync_channel(1);
        let bytes_read = self.input.stored_bytes_read();
        self.queue.send(Outcome::Block { done, bytes_read }).is_ok()
            && self.jobs.send(Job { block, done: sender }).is_ok()
    }

    fn fail(&self, error: Error) {
        // As in `send`.
        let _ = self.queue.send(Outcome::Failure(error));
    }
}
