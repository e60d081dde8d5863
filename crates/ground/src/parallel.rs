//! Work on many items by several threads, results in the order of the items.

use std::collections::BTreeMap;

use tidefall_sync::{Condvar, Mutex, OnceLock, PoisonError};
use tidefall_types::{Error, Result, caught};

/// Results that each thread may be ahead of the consumer: bounds the memory.
const AHEAD_PER_THREAD: usize = 4;

/// Up to so many items are handed over one by one; of more, several at once, or threads would spend
/// their time waking each other: a million sensors have a reading or two each.
const ITEMS_SINGLE_MAX: usize = 4096;
/// Items that are handed over together at most.
const ITEMS_TOGETHER_MAX: usize = 64;

struct Shared<R> {
    next: usize,
    consumed: usize,
    ready: BTreeMap<usize, Result<R>>,
    is_over: bool,
}

/// How many threads run at once on this machine. The system is asked once, as its answer takes longer than a
/// small read does.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| tidefall_sync::thread::available_parallelism().map_or(1, usize::from))
}

/// Below so many values a second thread costs more than it saves.
const VALUES_PER_THREAD_MIN: usize = 1 << 16;

/// On how many threads it pays to read so many values.
pub fn threads_for(values: usize) -> usize {
    cores().min(values / VALUES_PER_THREAD_MIN).max(1)
}

/// Does each of some pieces of work, on up to `threads` threads with a state of their own, and returns the
/// results in the order of the pieces.
///
/// # Errors
/// The first that a piece of work ends with.
pub fn spread<W: Send, S: Default, R: Send>(
    threads: usize,
    mut work: Vec<W>,
    act: impl Fn(W, &mut S) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let share = work.len().div_ceil(threads.max(1));
    let act = |part: Vec<W>| {
        let mut state = S::default();
        part.into_iter().map(|piece| act(piece, &mut state)).collect::<Result<Vec<R>>>()
    };
    if work.len() <= share {
        return act(work);
    }
    let mut parts = Vec::new();
    while work.len() > share {
        let part = work.split_off(work.len() - share);
        parts.push(Mutex::new(Some(part)));
    }
    let act_on = |part: &Mutex<Option<Vec<W>>>| {
        let part = part.lock().unwrap_or_else(PoisonError::into_inner).take();
        act(part.unwrap_or_default())
    };
    tidefall_sync::thread::scope(|scope| {
        let start =
            |part| tidefall_sync::thread::Builder::new().spawn_scoped(scope, move || act_on(part));
        let others: Vec<_> = parts.iter().map(start).collect();
        let mut done = act(work)?;
        for (part, other) in parts.iter().zip(others).rev() {
            done.extend(match other {
                Ok(other) => other.join().map_err(|panic| Error::of_panic(&*panic))??,
                // The system has no more threads for us.
                Err(_) => act_on(part)?,
            });
        }
        Ok(done)
    })
}

/// Calls `work` for each item on `threads` threads, and `consume` with the results in the order of
/// the items on the calling thread. Stops at the first error.
///
/// # Errors
/// The first one of `work` or `consume`; `Internal` for a panic of `work`.
pub fn ordered<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
    mut consume: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    let together = (items.len() / ITEMS_SINGLE_MAX).min(ITEMS_TOGETHER_MAX);
    if together <= 1 {
        return ordered_singly(threads, items, work, consume);
    }
    let groups: Vec<&[T]> = items.chunks(together).collect();
    let work = |group: &&[T]| group.iter().map(&work).collect::<Result<Vec<R>>>();
    ordered_singly(threads, &groups, work, |results| results.into_iter().try_for_each(&mut consume))
}

fn ordered_singly<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
    mut consume: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    if threads <= 1 || items.len() <= 1 {
        return items.iter().try_for_each(|item| consume(work(item)?));
    }
    let window = threads * AHEAD_PER_THREAD;
    let shared =
        Mutex::new(Shared { next: 0, consumed: 0, ready: BTreeMap::new(), is_over: false });
    let changed = Condvar::new();
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || {
        loop {
            let mut state = lock();
            while state.next >= state.consumed + window && !state.is_over {
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let item = state.next;
            if state.is_over || item >= items.len() {
                return;
            }
            state.next += 1;
            drop(state);
            // A panic must not leave the consumer waiting for ever.
            let result = caught(|| work(&items[item]));
            lock().ready.insert(item, result);
            changed.notify_all();
        }
    };
    tidefall_sync::thread::scope(|scope| {
        // Nor must one of the consumer leave the workers so, from the first of them on.
        let _over = Over { shared: &shared, changed: &changed };
        let start = || tidefall_sync::thread::Builder::new().spawn_scoped(scope, worker);
        // When the system has no more threads for us, those that there are do it.
        let workers = (0..threads).take_while(|_| start().is_ok()).count();
        if workers == 0 {
            return items.iter().try_for_each(|item| consume(work(item)?));
        }
        (0..items.len()).try_for_each(|item| {
            let mut state = lock();
            let result = loop {
                match state.ready.remove(&item) {
                    Some(result) => break result,
                    None => state = changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            state.consumed = item + 1;
            drop(state);
            changed.notify_all();
            consume(result?)
        })
    })
}

/// Tells the workers that it is over when it goes.
struct Over<'a, R> {
    shared: &'a Mutex<Shared<R>>,
    changed: &'a Condvar,
}

impl<R> Drop for Over<'_, R> {
    fn drop(&mut self) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use tidefall_types::ErrorKind;

    use super::*;

    const ITEMS: usize = 1000;

    #[test]
    fn a_panic_of_a_worker_is_an_error() {
        let items: Vec<usize> = (0..ITEMS).collect();
        let work = |item: &usize| {
            assert!(*item != 300, "a panic for a test");
            Ok(*item)
        };
        let error = ordered(4, &items, work, |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        let error = spread(4, items, |item, _: &mut ()| work(&item)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    }

    #[test]
    fn a_panic_of_the_consumer_ends_the_workers() {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let items: Vec<usize> = (0..ITEMS).collect();
            let consume = |item: usize| {
                assert!(item != 3, "a panic for a test");
                Ok(())
            };
            let outcome = caught(|| ordered(4, &items, |item| Ok(*item), consume));
            send.send(outcome.map_err(|error| error.kind()))
        });
        let outcome = receive.recv_timeout(Duration::from_secs(60));
        assert_eq!(outcome, Ok(Err(ErrorKind::Internal)), "the workers wait for ever");
    }

    /// In a process that has room for the stacks of a few threads only.
    #[test]
    fn threads_that_cannot_be_had_are_done_without() {
        const CHILD: &str = "TIDEFALL_TEST_FEW_THREADS";
        if std::env::var_os(CHILD).is_some() {
            return do_with_few_threads();
        }
        let name = "parallel::tests::threads_that_cannot_be_had_are_done_without";
        let mut child = Command::new("sh")
            .args(["-c", r#"ulimit -v 2097152 && exec "$0" "$@""#])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .envs([(CHILD, "1"), ("RUST_MIN_STACK", "268435456")])
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > end => {
                    child.kill().unwrap();
                    panic!("it hangs: {}", child.wait().unwrap());
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert!(status.success(), "{status}");
    }

    fn do_with_few_threads() {
        const THREADS: usize = 64;
        let shut = Mutex::new(());
        std::thread::scope(|scope| {
            let _guard = shut.lock();
            let wait = || drop(shut.lock());
            let thread = |_| std::thread::Builder::new().spawn_scoped(scope, wait).is_ok();
            let threads = (0..THREADS).map(thread).filter(|is_there| *is_there).count();
            assert!((1..THREADS).contains(&threads), "{threads} threads can be had");
        });
        let items: Vec<usize> = (0..ITEMS).collect();
        let mut consumed = Vec::new();
        let consume = |item| {
            consumed.push(item);
            Ok(())
        };
        ordered(THREADS, &items, |item| Ok(*item), consume).unwrap();
        assert_eq!(consumed, items);
        let done = spread(THREADS, items.clone(), |item, _: &mut ()| Ok(item)).unwrap();
        assert_eq!(done, items);
    }
}
