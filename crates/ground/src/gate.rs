//! The gate of a table, which writes pass that wait to be committed. While it is shut none is on its way, so that the types of
//! its fields can change, as rows are brought into these types before they wait, and so that a write that must replace nothing sees all that
//! is there.

use tidefall_sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Where writers of a table pass. Those inside may wait for memory, and so for a flush: whoever shuts it holds neither
/// `flushing` nor what stands behind it in docs/order.md. All who wait when it opens get in before it is shut again.
#[derive(Debug, Default)]
pub struct Gate {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    writers: usize,
    waiting: usize,
    /// Those of the waiting who go in before it may be shut.
    called: usize,
    is_shut: bool,
}

/// A writer that is inside, until its rows are visible or refused.
#[derive(Debug)]
pub struct Pass(Arc<Gate>);

/// A gate that is shut, for as long as this is held.
#[derive(Debug)]
pub struct Shut(Arc<Gate>);

/// A writer that is inside, with others or alone.
#[derive(Debug)]
pub enum Inside {
    /// Others may be, too.
    WithOthers(Pass),
    /// Nobody else is.
    Alone(Shut),
}

impl Gate {
    /// Lets a writer in, which waits while the gate is shut.
    pub fn enter(self: &Arc<Self>) -> Pass {
        let mut inner = self.lock();
        if inner.is_shut {
            inner.waiting += 1;
            while inner.is_shut {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            inner.waiting -= 1;
            inner.called = inner.called.saturating_sub(1);
            self.changed.notify_all();
        }
        inner.writers += 1;
        Pass(Arc::clone(self))
    }

    /// Lets a writer in unless it would wait.
    pub fn try_enter(self: &Arc<Self>) -> Option<Pass> {
        let mut inner = self.lock();
        if inner.is_shut {
            return None;
        }
        inner.writers += 1;
        Some(Pass(Arc::clone(self)))
    }

    /// Whether a writer would not wait.
    pub fn is_open(&self) -> bool {
        !self.lock().is_shut
    }

    /// Lets nobody in any more, and waits until nobody is inside.
    pub fn shut(self: &Arc<Self>) -> Shut {
        let mut inner = self.lock();
        while inner.is_shut || inner.called > 0 {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.is_shut = true;
        while inner.writers > 0 {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        Shut(Arc::clone(self))
    }

    /// As [`Gate::shut`], unless it would wait.
    pub fn try_shut(self: &Arc<Self>) -> Option<Shut> {
        let mut inner = self.lock();
        if inner.is_shut || inner.called > 0 || inner.writers > 0 {
            return None;
        }
        inner.is_shut = true;
        Some(Shut(Arc::clone(self)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.lock().writers -= 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        (inner.is_shut, inner.called) = (false, inner.waiting);
        drop(inner);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn nobody_is_inside_while_it_is_shut() {
        let (gate, is_shut) = (Arc::<Gate>::default(), AtomicBool::new(false));
        let write = || {
            for _ in 0..2_000 {
                let _pass = gate.enter();
                assert!(!is_shut.load(Ordering::SeqCst));
            }
        };
        let shut = || {
            for _ in 0..200 {
                let _shut = gate.shut();
                assert!(!is_shut.swap(true, Ordering::SeqCst));
                std::thread::sleep(Duration::from_micros(50));
                is_shut.store(false, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(write);
            }
            for _ in 0..2 {
                scope.spawn(shut);
            }
        });
        assert!(gate.is_open());
    }

    #[test]
    fn who_waits_gets_in_before_it_is_shut_again() {
        let gate = Arc::<Gate>::default();
        let entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let shut = gate.shut();
            scope.spawn(|| {
                let _pass = gate.enter();
                entered.store(true, Ordering::SeqCst);
            });
            while gate.lock().waiting == 0 {
                std::thread::yield_now();
            }
            drop(shut);
            drop(gate.shut());
            assert!(entered.load(Ordering::SeqCst));
        });
    }
}
