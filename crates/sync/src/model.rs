//! What stands for the standard library while a test chooses whose turn it is.
//!
//! **Time stands still**, but for those who wait: a wait that runs out moves the clock on by as much as was waited for. So what depends on instants depends on
//! the order of threads alone, and comes again with it.
//!
//! **A wait of a day and more never runs out**; a shorter one may at any time, as there is a thread that wakes whoever waits once the scheduler lets it.
//! So nobody sleeps for ever who would have woken up, and who waits in vain for a call is found.

use std::cell::Cell;
use std::ops::Add;
use std::sync::LockResult;
use std::time::Duration;

pub use shuttle::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc,
};

use self::atomic::{AtomicBool, Ordering};

/// A wait that is as long never runs out.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);

std::thread_local! {
    /// All threads of a test are one to the system, and other tests have others.
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn let_pass(time: Duration) {
    NOW.set(NOW.get().saturating_add(time));
}

/// As [`std::time::Instant`], on a clock that moves when somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// What the clock shows.
    pub fn now() -> Self {
        Self(NOW.get())
    }

    /// The time since then.
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// The time from an earlier instant to this one; none if it is not earlier.
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

/// As [`std::sync::Condvar`]. That of shuttle knows no end of a wait.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

/// Whether a wait has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it has.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A lock that is held again after a wait, and whether that has run out.
type Waited<'a, T> = LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>;

impl Condvar {
    /// One that nobody waits for.
    #[track_caller]
    pub const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    /// Waits until it is called.
    ///
    /// # Errors
    /// When a panic poisoned the lock.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    /// Waits until it is called, or for a time.
    ///
    /// # Errors
    /// When a panic poisoned the lock.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, time: Duration) -> Waited<'a, T> {
        let is_over = |guard, has_run_out| (guard, WaitTimeoutResult(has_run_out));
        if time >= FOREVER {
            return both(self.wait(guard), |guard| is_over(guard, false));
        }
        let (is_waiting, has_run_out) = (AtomicBool::new(true), AtomicBool::new(false));
        let guard = shuttle::thread::scope(|scope| {
            scope.spawn(|| {
                // Again, if the wait had not begun yet.
                while is_waiting.load(Ordering::Acquire) {
                    has_run_out.store(true, Ordering::Release);
                    self.notify_all();
                    thread::yield_now();
                }
            });
            let guard = self.wait(guard);
            is_waiting.store(false, Ordering::Release);
            guard
        });
        let has_run_out = has_run_out.into_inner();
        if has_run_out {
            let_pass(time);
        }
        both(guard, |guard| is_over(guard, has_run_out))
    }

    /// Waits as long as a condition holds, or for a time.
    ///
    /// # Errors
    /// When a panic poisoned the lock.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Waited<'a, T> {
        let mut waited = (guard, WaitTimeoutResult(false));
        while condition(&mut waited.0) {
            if waited.1.timed_out() {
                return Ok(waited);
            }
            waited = self.wait_timeout(waited.0, time)?;
        }
        Ok((waited.0, WaitTimeoutResult(false)))
    }

    /// Calls one of those who wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Calls all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Changes what a lock holds, poisoned or not.
fn both<T, U>(locked: LockResult<T>, change: impl Fn(T) -> U) -> LockResult<U> {
    match locked {
        Ok(held) => Ok(change(held)),
        Err(poisoned) => Err(super::PoisonError::new(change(poisoned.into_inner()))),
    }
}

/// As [`std::sync::OnceLock`], of which shuttle has none: who makes the value may lose its turn while others come for it.
#[derive(Debug)]
pub struct OnceLock<T> {
    making: Mutex<()>,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    /// One without a value.
    #[track_caller]
    pub const fn new() -> Self {
        Self { making: Mutex::new(()), value: std::sync::OnceLock::new() }
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<&T> {
        let_others();
        self.value.get()
    }

    /// The value, which is made if there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _making = self.making.lock().unwrap_or_else(super::PoisonError::into_inner);
        self.value.get_or_init(make)
    }

    /// Puts a value where there is none.
    ///
    /// # Errors
    /// The value, where there is one.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _making = self.making.lock().unwrap_or_else(super::PoisonError::into_inner);
        self.value.set(value)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        Self { making: Mutex::new(()), value: value.into() }
    }
}

/// Lets the scheduler choose whose turn it is.
fn let_others() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// As [`std::thread`].
pub mod thread {
    use std::io;
    use std::num::NonZero;
    use std::sync::Arc;
    use std::time::Duration;

    pub use shuttle::thread::{
        JoinHandle, Scope, ScopedJoinHandle, Thread, ThreadId, current, panicking, spawn, yield_now,
    };

    /// As [`std::thread::scope`]. When no thread of a scope is left, that of shuttle wakes who began it, also if that waits for something else within it, such as the
    /// end of a scope of its own. So there is a thread that is left until the scope is over.
    pub fn scope<'env, T>(run: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
        let is_on = Arc::new(super::Mutex::new(()));
        shuttle::thread::scope(|scope| {
            let _until_it_is_over = is_on.lock();
            let stays = Arc::clone(&is_on);
            scope.spawn(move || drop(stays.lock()));
            run(scope)
        })
    }

    /// Lets others go on. Whoever sleeps in a loop waits for one of them.
    pub fn sleep(time: Duration) {
        super::let_pass(time);
        yield_now();
    }

    /// Two, on every machine.
    ///
    /// # Errors
    /// None.
    pub fn available_parallelism() -> io::Result<NonZero<usize>> {
        NonZero::new(2).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// As [`std::thread::Builder`]. That of shuttle knows no scopes.
    #[derive(Debug, Default)]
    pub struct Builder(shuttle::thread::Builder);

    impl Builder {
        /// One for a thread without a name.
        pub fn new() -> Self {
            Self::default()
        }

        /// Gives the thread a name.
        #[must_use]
        pub fn name(self, name: String) -> Self {
            Self(self.0.name(name))
        }

        /// Starts the thread.
        ///
        /// # Errors
        /// None.
        #[track_caller]
        pub fn spawn<T: Send + 'static>(
            self,
            run: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            self.0.spawn(run)
        }

        /// Starts a thread that ends before a scope does. It has no name.
        ///
        /// # Errors
        /// None.
        #[track_caller]
        pub fn spawn_scoped<'scope, T: Send + 'scope>(
            self,
            scope: &'scope Scope<'scope, '_>,
            run: impl FnOnce() -> T + Send + 'scope,
        ) -> io::Result<ScopedJoinHandle<'scope, T>> {
            Ok(scope.spawn(run))
        }
    }
}
