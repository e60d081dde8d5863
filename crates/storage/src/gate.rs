//! The gate of a table, which its writers pass. While it is shut no rows are on their way, so that the types of its fields
//! can change: rows are brought into these types before they wait to be committed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Where writers of a table pass. Whoever shuts it holds none of the locks of docs/order.md as yet: a writer that is inside
/// may wait for each of them.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    writers: usize,
    is_shut: bool,
}

/// A writer that is inside, until its rows are visible or refused.
#[derive(Debug)]
pub(crate) struct Pass(Arc<Gate>);

/// A gate that is shut, for as long as this is held.
#[derive(Debug)]
pub(crate) struct Shut(Arc<Gate>);

impl Gate {
    /// Lets a writer in, which waits while the gate is shut.
    pub(crate) fn enter(self: &Arc<Self>) -> Pass {
        let mut inner = self.lock();
        while inner.is_shut {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.writers += 1;
        Pass(Arc::clone(self))
    }

    /// Lets a writer in unless it would wait.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Pass> {
        let mut inner = self.lock();
        if inner.is_shut {
            return None;
        }
        inner.writers += 1;
        Some(Pass(Arc::clone(self)))
    }

    /// Whether a writer would not wait.
    pub(crate) fn is_open(&self) -> bool {
        !self.lock().is_shut
    }

    /// Lets nobody in any more, and waits until nobody is inside.
    pub(crate) fn shut(self: &Arc<Self>) -> Shut {
        let mut inner = self.lock();
        while inner.is_shut {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.is_shut = true;
        while inner.writers > 0 {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        Shut(Arc::clone(self))
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
        self.0.lock().is_shut = false;
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
}
