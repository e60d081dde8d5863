//! Reads that are announced are made side by side: for stores on which each takes long.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use tidefall_sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, ErrorKind, Result, caught};

use super::{ObjectIo, ObjectWriter};

/// Objects on a store on which a read takes long, such as one behind a network. What [`ObjectIo::will_read`] announces is read by a few
/// threads, and kept until it is asked for. What nobody asks for makes way for what is announced later.
/// As yet there is no such store but those of tests.
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

    /// Reads from the store below, which may be anybody's.
    fn read_exactly(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let (start, wanted) = (range.start, range.end.saturating_sub(range.start));
        let bytes = self.io.read_range(name, range)?;
        match bytes.len() as u64 == wanted {
            true => Ok(bytes),
            // What is damaged, or ends before, is an error of the store already.
            false => Err(Error::new(
                ErrorKind::Io,
                format!(
                    "{name}: the store gave {} bytes where {wanted} were asked for, from byte {start} on; try again",
                    bytes.len()
                ),
            )),
        }
    }

    fn read_piece(&self, name: &str, range: Range<u64>) {
        let read = caught(|| self.read_exactly(name, range.clone()));
        self.lock().finish(name, &range, read);
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

    /// Takes note of bytes that will be read, unless that is known or there is no memory for them.
    fn announce(&mut self, name: &str, range: Range<u64>, bytes_max: u64) -> bool {
        let bytes = range.end.saturating_sub(range.start);
        let is_known = self.piece(name, &range).is_some();
        if bytes == 0 || bytes > bytes_max || is_known || !self.free_memory(bytes, bytes_max) {
            return false;
        }
        if self.order.len() >= self.tidied + ORDER_FREE {
            self.tidy();
        }
        let number = self.next;
        self.next += 1;
        let piece = Piece { number, end: range.end, progress: Progress::Waiting };
        let pieces = self.pieces.entry(name.to_owned()).or_default();
        if let Some(shorter) = pieces.insert(range.start, piece) {
            self.bytes -= shorter.end - range.start;
        }
        self.bytes += bytes;
        self.order.push_back((name.to_owned(), range.start, number));
        self.queue.push_back((name.to_owned(), range.start));
        true
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

    /// Keeps what was read of a piece, which may have been let go of, and announced anew, meanwhile.
    fn finish(&mut self, name: &str, range: &Range<u64>, read: Result<Vec<u8>>) {
        let piece = self.pieces.get_mut(name).and_then(|pieces| pieces.get_mut(&range.start));
        if let Some(piece) = piece
            && matches!(piece.progress, Progress::Begun)
            && piece.end == range.end
        {
            piece.progress = read.map_or(Progress::Failed, Progress::Here);
        }
    }

    /// Lets go of what was announced first, until there is memory for so many bytes. What is being read stays.
    fn free_memory(&mut self, bytes: u64, bytes_max: u64) -> bool {
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
            None => self.shared.read_exactly(name, range),
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

    fn recovers(&self) -> bool {
        self.shared.io.recovers()
    }

    fn will_read(&self, name: &str, range: Range<u64>) {
        let shared = &self.shared;
        let mut state = shared.lock();
        if !state.announce(name, range, shared.bytes_max) || state.readers == shared.parallel {
            return;
        }
        state.readers += 1;
        drop(state);
        let reader = Arc::clone(shared);
        let reader = tidefall_sync::thread::Builder::new()
            .name("tidefall-read".into())
            .spawn(move || reader.run());
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
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const NAME: &str = "objects/1";

    /// Reads one of the pieces that were begun, which fails now and then.
    fn finish_one(state: &mut State, begun: &mut Vec<(String, Range<u64>)>, rng: &mut SmallRng) {
        if begun.is_empty() {
            return;
        }
        let (name, range) = begun.swap_remove(rng.random_range(0..begun.len()));
        let read = match rng.random_range(0..10) {
            0 => Err(Error::new(ErrorKind::Io, "the store is away")),
            _ => Ok(vec![0; (range.end - range.start) as usize]),
        };
        state.finish(&name, &range, read);
    }

    /// Whatever is announced, read, asked for and let go of, in whichever order.
    #[test]
    fn few_bytes_are_held() {
        const BYTES_MAX: u64 = 700;
        for seed in 0..10 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut state, mut begun, mut most) = (State::default(), Vec::new(), 0);
            for _ in 0..2_000 {
                let name = format!("objects/{}", rng.random_range(0..3));
                // Often the same ones.
                let start = rng.random_range(0..10) * 90;
                let range = start..start + rng.random_range(1..4) * 30;
                match rng.random_range(0..20) {
                    0..8 => drop(state.announce(&name, range, BYTES_MAX)),
                    8..12 => begun.extend(state.begin()),
                    12..16 => finish_one(&mut state, &mut begun, &mut rng),
                    16 => state.forget(&name),
                    _ => {
                        let read = state.piece(&name, &range).filter(|(_, piece)| {
                            matches!(piece.progress, Progress::Here(_) | Progress::Failed)
                        });
                        if let Some(start) = read.map(|(start, _)| start) {
                            state.remove(&name, start).unwrap();
                        }
                    }
                }
                let mut held = 0;
                for (start, piece) in state.pieces.values().flatten() {
                    held += piece.end - start;
                    if let Progress::Here(bytes) = &piece.progress {
                        assert_eq!(bytes.len() as u64, piece.end - start);
                    }
                }
                assert_eq!(held, state.bytes);
                assert!(held <= BYTES_MAX, "{held}");
                most = most.max(held);
            }
            assert!(most > BYTES_MAX - 30, "only {most} bytes were held");
        }
    }

    #[test]
    fn what_nobody_asks_for_makes_way_but_not_what_is_being_read() {
        let mut state = State::default();
        assert!(state.announce(NAME, 0..60, 100));
        assert!(state.announce(NAME, 60..100, 100));
        assert!(state.announce(NAME, 100..150, 100));
        assert!(state.piece(NAME, &(0..60)).is_none());
        assert_eq!(state.begin(), Some((NAME.to_owned(), 60..100)));
        assert!(state.announce(NAME, 200..260, 100));
        assert!(state.piece(NAME, &(100..150)).is_none());
        assert!(!state.announce(NAME, 300..400, 100));
        assert!(state.piece(NAME, &(60..100)).is_some());
    }

    /// Of what was announced and read nothing is remembered, though something always waits.
    #[test]
    fn what_was_read_is_forgotten() {
        let mut state = State::default();
        for _ in 0..3 * ORDER_FREE {
            state.announce(NAME, 0..1, 10_000);
            assert!(state.announce(NAME, 10..20, 10_000));
            while let Some((name, range)) = state.begin() {
                state.finish(&name, &range, Ok(vec![0; (range.end - range.start) as usize]));
            }
            state.remove(NAME, 10).unwrap();
            assert!(state.order.len() <= ORDER_FREE + 2 && state.bytes == 1);
        }
    }
}
