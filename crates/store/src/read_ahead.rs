//! Reads that are announced are made side by side: for stores on which each takes long.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tidefall_types::{Result, caught};

use super::{ObjectIo, ObjectWriter};

/// Objects on a store on which a read takes long, such as one behind a network. What [`ObjectIo::will_read`] announces is read by a few
/// threads, and kept until it is asked for. What nobody asks for makes way for what is announced later.
#[derive(Debug, Clone)]
pub struct ReadAhead {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    io: Arc<dyn ObjectIo>,
    parallel: usize,
    bytes_max: u64,
    state: Mutex<State>,
    /// Something was read.
    read: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By object and first byte.
    pieces: HashMap<String, BTreeMap<u64, Piece>>,
    /// All of them, with their numbers, in the order in which they were announced; some may be gone.
    order: VecDeque<(String, u64, u64)>,
    /// The number of the next one.
    next: u64,
    /// Those that nobody reads as yet; some may be gone.
    queue: VecDeque<(String, u64)>,
    bytes: u64,
    readers: usize,
    /// The length of `order` when it was last tidied.
    tidied: usize,
}

/// Pieces that come before it is looked which of all are gone.
const ORDER_FREE: usize = 1024;

/// Bytes that were announced.
#[derive(Debug)]
struct Piece {
    number: u64,
    end: u64,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    Waiting,
    Begun,
    Here(Vec<u8>),
    /// Whoever asks reads it anew, and learns why.
    Failed,
}

impl ReadAhead {
    /// Objects of `io`, of which `parallel` threads at most read what was announced, `bytes_max` bytes at most.
    pub fn new(io: Arc<dyn ObjectIo>, parallel: usize, bytes_max: u64) -> Self {
        let (state, read) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { io, parallel: parallel.max(1), bytes_max, state, read }) }
    }

    /// What was announced of some bytes, once it is here.
    fn take(&self, name: &str, range: &Range<u64>) -> Option<Vec<u8>> {
        let shared = &self.shared;
        let mut state = shared.lock();
        loop {
            let (start, piece) = state.piece(name, range)?;
            match piece.progress {
                Progress::Begun => {
                    state = shared.read.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Progress::Waiting => {
                    // Nobody else comes sooner.
                    piece.progress = Progress::Begun;
                    let piece = start..piece.end;
                    drop(state);
                    shared.read_piece(name, piece);
                    state = shared.lock();
                }
                Progress::Failed => {
                    state.remove(name, start);
                    return None;
                }
                Progress::Here(ref bytes) => {
                    let within = (range.start - start) as usize..(range.end - start) as usize;
                    if within.len() < bytes.len() {
                        return Some(bytes[within].to_vec());
                    }
                    return match state.remove(name, start)?.progress {
                        Progress::Here(bytes) => Some(bytes),
                        _ => None,
                    };
                }
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_piece(&self, name: &str, range: Range<u64>) {
        let read = caught(|| self.io.read_range(name, range.clone()));
        let mut state = self.lock();
        let piece = state.pieces.get_mut(name).and_then(|pieces| pieces.get_mut(&range.start));
        // It may have been let go of, and announced anew, meanwhile.
        if let Some(piece) = piece
            && matches!(piece.progress, Progress::Begun)
            && piece.end == range.end
        {
            piece.progress = read.map_or(Progress::Failed, Progress::Here);
        }
        drop(state);
        self.read.notify_all();
    }

    /// Reads what is announced until there is nothing left.
    fn run(&self) {
        loop {
            let mut state = self.lock();
            let Some((name, range)) = state.begin() else {
                state.readers -= 1;
                return;
            };
            drop(state);
            self.read_piece(&name, range);
        }
    }
}

impl State {
    /// The piece that has all of some bytes.
    fn piece(&mut self, name: &str, range: &Range<u64>) -> Option<(u64, &mut Piece)> {
        let pieces = self.pieces.get_mut(name)?;
        let (start, piece) = pieces.range_mut(..=range.start).next_back()?;
        (range.end <= piece.end).then_some((*start, piece))
    }

    /// The piece of an announcement, if it is not gone.
    fn announced(&self, name: &str, start: u64, number: u64) -> Option<&Piece> {
        self.pieces.get(name)?.get(&start).filter(|piece| piece.number == number)
    }

    fn remove(&mut self, name: &str, start: u64) -> Option<Piece> {
        let pieces = self.pieces.get_mut(name)?;
        let piece = pieces.remove(&start)?;
        if pieces.is_empty() {
            self.pieces.remove(name);
        }
        self.bytes -= piece.end - start;
        Some(piece)
    }

    /// Takes the next piece that nobody reads.
    fn begin(&mut self) -> Option<(String, Range<u64>)> {
        loop {
            let (name, start) = self.queue.pop_front()?;
            let pieces = self.pieces.get_mut(&name);
            if let Some(piece) = pieces.and_then(|pieces| pieces.get_mut(&start))
                && matches!(piece.progress, Progress::Waiting)
            {
                piece.progress = Progress::Begun;
                return Some((name, start..piece.end));
            }
        }
    }

    /// Lets go of what was announced first, until there is room for so many bytes. What is being read stays.
    fn make_room(&mut self, bytes: u64, bytes_max: u64) -> bool {
        for _ in 0..self.order.len() {
            if self.bytes + bytes <= bytes_max {
                break;
            }
            let Some((name, start, number)) = self.order.pop_front() else { break };
            match self.announced(&name, start, number) {
                Some(Piece { progress: Progress::Begun, .. }) => {
                    self.order.push_back((name, start, number));
                }
                Some(_) => drop(self.remove(&name, start)),
                None => {}
            }
        }
        self.bytes + bytes <= bytes_max
    }

    /// Forgets the order of pieces that are gone, which are most of them as a rule.
    fn tidy(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.retain(|(name, start, number)| self.announced(name, *start, *number).is_some());
        self.order = order;
        self.tidied = self.order.len();
    }

    fn forget(&mut self, name: &str) {
        for (start, piece) in self.pieces.remove(name).unwrap_or_default() {
            self.bytes -= piece.end - start;
        }
    }
}

impl ObjectIo for ReadAhead {
    fn put_new(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.shared.io.put_new(name, parts)
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.shared.io.writer(name)
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        match self.take(name, &range) {
            Some(bytes) => Ok(bytes),
            None => self.shared.io.read_range(name, range),
        }
    }

    fn read_into(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.take(name, &(offset..offset + out.len() as u64)) {
            Some(bytes) => {
                out.copy_from_slice(&bytes);
                Ok(())
            }
            None => self.shared.io.read_into(name, offset, out),
        }
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn will_read(&self, name: &str, range: Range<u64>) {
        let shared = &self.shared;
        let mut state = shared.lock();
        let bytes = range.end.saturating_sub(range.start);
        let is_known = state.piece(name, &range).is_some();
        if bytes == 0
            || bytes > shared.bytes_max
            || is_known
            || !state.make_room(bytes, shared.bytes_max)
        {
            return;
        }
        if state.order.len() >= state.tidied + ORDER_FREE {
            state.tidy();
        }
        let number = state.next;
        state.next += 1;
        let piece = Piece { number, end: range.end, progress: Progress::Waiting };
        let pieces = state.pieces.entry(name.to_owned()).or_default();
        if let Some(shorter) = pieces.insert(range.start, piece) {
            state.bytes -= shorter.end - range.start;
        }
        state.bytes += bytes;
        state.order.push_back((name.to_owned(), range.start, number));
        state.queue.push_back((name.to_owned(), range.start));
        if state.readers == shared.parallel {
            return;
        }
        state.readers += 1;
        drop(state);
        let reader = Arc::clone(shared);
        let reader =
            std::thread::Builder::new().name("tidefall-read".into()).spawn(move || reader.run());
        if reader.is_err() {
            // Whoever asks reads it then.
            shared.lock().readers -= 1;
        }
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.shared.io.size(name)
    }

    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        self.shared.io.list(dir)
    }

    fn let_go(&self, name: &str) {
        self.shared.lock().forget(name);
        self.shared.io.let_go(name);
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.shared.lock().forget(name);
        self.shared.io.delete(name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tidefall_types::{Error, ErrorKind};

    use super::*;
    use crate::{LocalIo, MemDisk};

    /// Counts reads, and fails those that begin at some bytes.
    #[derive(Debug)]
    struct Counting {
        io: LocalIo,
        fails_at: Option<u64>,
        reads: AtomicUsize,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Counting {
        fn new(objects: &[(String, Vec<u8>)], fails_at: Option<u64>) -> Arc<Self> {
            let io = LocalIo::open(Arc::new(MemDisk::new()), &["objects"]).unwrap();
            objects.iter().for_each(|(name, bytes)| io.put_new(name, &[bytes]).unwrap());
            let [reads, now, most] = [(); 3].map(|()| AtomicUsize::new(0));
            Arc::new(Self { io, fails_at, reads, now, most })
        }
    }

    impl ObjectIo for Counting {
        fn put_new(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
            self.io.put_new(name, parts)
        }

        fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
            self.io.writer(name)
        }

        fn read_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(300));
            self.now.fetch_sub(1, Ordering::SeqCst);
            if self.fails_at == Some(range.start) {
                return Err(Error::new(ErrorKind::Io, "the store is away"));
            }
            self.io.read_range(name, range)
        }

        fn read_into(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()> {
            let bytes = self.read_range(name, offset..offset + out.len() as u64)?;
            out.copy_from_slice(&bytes);
            Ok(())
        }

        fn will_read(&self, _: &str, _: Range<u64>) {}

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

    fn objects(rng: &mut SmallRng) -> Vec<(String, Vec<u8>)> {
        (0..3)
            .map(|object| {
                let bytes = (0..1_000).map(|_| rng.random()).collect();
                (format!("objects/{object}"), bytes)
            })
            .collect()
    }

    /// Whatever is announced, by whom and in which order: bytes are those of the store, and few of them are held.
    #[test]
    fn what_is_read_is_what_is_stored() {
        const BYTES_MAX: u64 = 700;
        for seed in 0..10 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let objects = objects(&mut rng);
            let store = Counting::new(&objects, None);
            let ahead = ReadAhead::new(Arc::clone(&store) as Arc<dyn ObjectIo>, 3, BYTES_MAX);
            let reader = |seed: u64| {
                let mut rng = SmallRng::seed_from_u64(seed);
                for _ in 0..200 {
                    let (name, bytes) = &objects[rng.random_range(0..objects.len())];
                    // Often the same ones.
                    let start = rng.random_range(0..10) * 90;
                    let range = start..start + rng.random_range(1..4) * 30;
                    match rng.random_range(0..10) {
                        0..5 => ahead.will_read(name, range),
                        9 => ahead.let_go(name),
                        _ => {
                            let expected = &bytes[range.start as usize..range.end as usize];
                            assert_eq!(ahead.read_range(name, range).unwrap(), expected);
                        }
                    }
                    assert!(ahead.shared.lock().bytes <= BYTES_MAX);
                }
            };
            std::thread::scope(|scope| {
                (0..3).for_each(|thread| drop(scope.spawn(move || reader(10 * seed + thread))));
            });
            // Those who ask may read, too.
            assert!(store.most.load(Ordering::SeqCst) <= 3 + 3);
            let state = ahead.shared.lock();
            let held: u64 = state.pieces.values().flatten().map(|(start, it)| it.end - start).sum();
            assert_eq!(held, state.bytes);
        }
    }

    #[test]
    fn what_is_announced_is_read_once_and_side_by_side() {
        let mut rng = SmallRng::seed_from_u64(1);
        let objects = objects(&mut rng);
        let store = Counting::new(&objects, None);
        let ahead = ReadAhead::new(Arc::clone(&store) as Arc<dyn ObjectIo>, 8, 10_000);
        for start in 0..40 {
            ahead.will_read(&objects[0].0, start * 25..start * 25 + 25);
        }
        for start in 0..40 {
            // Also in parts.
            let parts = [start * 25..start * 25 + 10, start * 25..start * 25 + 25];
            for range in parts {
                let expected = &objects[0].1[range.start as usize..range.end as usize];
                assert_eq!(ahead.read_range(&objects[0].0, range).unwrap(), expected);
            }
        }
        assert_eq!(store.reads.load(Ordering::SeqCst), 40);
        assert!(store.most.load(Ordering::SeqCst) > 1);
        assert_eq!(ahead.shared.lock().bytes, 0);
    }

    /// Of what was announced and read nothing is remembered, though something always waits.
    #[test]
    fn what_was_read_is_forgotten() {
        let mut rng = SmallRng::seed_from_u64(3);
        let objects = objects(&mut rng);
        let store = Counting::new(&objects, None);
        let ahead = ReadAhead::new(store, 2, 10_000);
        let name = &objects[0].0;
        for round in 0..3 * ORDER_FREE as u64 {
            let (one, other) = (round % 2, (round + 1) % 2);
            ahead.will_read(name, one..one + 1);
            ahead.read_range(name, other..other + 1).unwrap();
            ahead.will_read(name, 10..20);
            ahead.read_range(name, 10..20).unwrap();
            let state = ahead.shared.lock();
            assert!(state.order.len() <= ORDER_FREE + 2 && state.bytes <= 12);
        }
    }

    #[test]
    fn a_read_ahead_that_fails_is_made_again_by_who_asks() {
        let mut rng = SmallRng::seed_from_u64(2);
        let objects = objects(&mut rng);
        let store = Counting::new(&objects, Some(100));
        let ahead = ReadAhead::new(store, 2, 10_000);
        ahead.will_read(&objects[0].0, 100..200);
        let error = ahead.read_range(&objects[0].0, 100..200).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(ahead.read_range(&objects[0].0, 101..200).unwrap(), objects[0].1[101..200]);
        assert_eq!(ahead.shared.lock().bytes, 0);
    }
}
