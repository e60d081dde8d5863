use std::ops::Range;
use std::time::Duration;

use tidefall_store::{ObjectIo, ObjectWriter};
use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, ErrorKind, Result};

/// Objects of another store as if they lay behind a network: reads take long, may fail, and are counted; what is put may fail, too.
#[derive(Debug)]
pub struct RemoteIo {
    io: Arc<dyn ObjectIo>,
    state: Arc<Mutex<State>>,
}

/// What a put leaves that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// Nothing.
    Nothing,
    /// The object: only the answer was lost.
    Object,
}

/// What was read.
#[derive(Debug, Default, Clone, Copy)]
pub struct Reads {
    /// The reads that were begun.
    pub count: usize,
    /// How many of them went on at once, at most.
    pub most: usize,
    /// The most of them of which each began when the one before had ended: rounds, however long a busy machine makes one.
    pub rounds: usize,
}

#[derive(Debug, Default)]
struct State {
    delay: Duration,
    fails_at: Option<u64>,
    cuts_at: Option<u64>,
    failing: Option<Failing>,
    reads: Reads,
    /// Those that go on.
    now: usize,
    /// The rounds that have ended, and those of them that were asked for before.
    ended: usize,
    told: usize,
}

#[derive(Debug)]
struct Failing {
    part: &'static str,
    times: usize,
    leaves: Leaves,
}

impl RemoteIo {
    /// Objects of `io`, which takes no longer and does not fail as yet.
    pub fn new(io: Arc<dyn ObjectIo>) -> Self {
        Self { io, state: Arc::default() }
    }

    /// Makes each read take this long.
    pub fn delay_reads(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Makes reads fail that begin at this byte of any object.
    pub fn fail_reads_at(&self, offset: u64) {
        self.lock().fails_at = Some(offset);
    }

    /// Gives half of what is asked for where a read begins at this byte of any object, as a store that keeps its contract never does.
    pub fn cut_reads_at(&self, offset: u64) {
        self.lock().cuts_at = Some(offset);
    }

    /// Makes the next so many puts of objects fail whose names have this part, in the place of what was to fail before.
    pub fn fail_puts(&self, part: &'static str, times: usize, leaves: Leaves) {
        self.lock().failing = Some(Failing { part, times, leaves });
    }

    /// What was read since this was asked last.
    pub fn take_reads(&self) -> Reads {
        let mut state = self.lock();
        let rounds = state.ended - state.told;
        state.told = state.ended;
        Reads { rounds, ..std::mem::take(&mut state.reads) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn read<T>(&self, offset: u64, read: impl FnOnce() -> Result<T>) -> Result<T> {
        let (delay, round) = self.lock().begin();
        tidefall_sync::thread::sleep(delay);
        let fails = self.lock().end(offset, round);
        if fails { Err(away()) } else { read() }
    }
}

// A test that panics must not turn every later access into a second panic.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn away() -> Error {
    Error::new(ErrorKind::Io, "the store is away")
}

/// Puts an object, unless that is to fail.
fn put(state: &Mutex<State>, name: &str, put: impl FnOnce() -> Result<()>) -> Result<()> {
    let failing = lock(state).fail(name);
    match failing {
        None => put(),
        Some(Leaves::Nothing) => Err(away()),
        Some(Leaves::Object) => put().and(Err(away())),
    }
}

/// An object on its way to the store.
#[derive(Debug)]
struct RemoteWriter {
    writer: Box<dyn ObjectWriter>,
    name: String,
    state: Arc<Mutex<State>>,
}

impl ObjectWriter for RemoteWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.append(bytes)
    }

    fn bytes_written(&self) -> u64 {
        self.writer.bytes_written()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { writer, name, state } = *self;
        put(&state, &name, || writer.finish())
    }
}

impl State {
    /// What a put leaves, if it is to fail.
    fn fail(&mut self, name: &str) -> Option<Leaves> {
        let failing = self.failing.as_mut()?;
        if failing.times == 0 || !name.contains(failing.part) {
            return None;
        }
        failing.times -= 1;
        Some(failing.leaves)
    }

    /// A read begins, takes as long as is returned, and is of this round.
    fn begin(&mut self) -> (Duration, usize) {
        self.now += 1;
        self.reads.count += 1;
        self.reads.most = self.reads.most.max(self.now);
        (self.delay, self.ended + 1)
    }

    /// A read of a round ends; whether it fails.
    fn end(&mut self, offset: u64, round: usize) -> bool {
        self.now -= 1;
        self.ended = self.ended.max(round);
        self.fails_at == Some(offset)
    }
}

impl ObjectIo for RemoteIo {
    fn put_new(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        put(&self.state, name, || self.io.put_new(name, parts))
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        let (writer, state) = (self.io.writer(name)?, Arc::clone(&self.state));
        Ok(Box::new(RemoteWriter { writer, name: name.to_owned(), state }))
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = self.read(range.start, || self.io.read_range(name, range.clone()))?;
        if self.lock().cuts_at == Some(range.start) {
            bytes.truncate(bytes.len() / 2);
        }
        Ok(bytes)
    }

    fn read_into(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read(offset, || self.io.read_into(name, offset, out))
    }

    // Each read takes its time, whether it was announced or not.
    fn will_read(&self, _name: &str, _range: Range<u64>) {}

    fn recovers(&self) -> bool {
        true
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.io.size(name)
    }

    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        self.io.list(dir)
    }

    fn let_go(&self, name: &str) {
        self.io.let_go(name);
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.io.delete(name)
    }
}
