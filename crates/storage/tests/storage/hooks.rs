//! A disk that says what is about to be done, so that a test can do something else first.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use tidefall_storage::store::{Disk, DiskEntry, DiskFile};
use tidefall_types::Result;

/// What is about to be done to a file, or to a directory in the case of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Create,
    Open,
    Link,
    Remove,
    List,
    Read,
    Write,
    Sync,
}

type Hook = dyn Fn(Does, &str) + Send + Sync;

/// Calls a hook before each operation of another disk.
#[derive(Clone)]
pub struct HookDisk {
    inner: Arc<dyn Disk>,
    hook: Arc<Hook>,
}

impl HookDisk {
    pub fn new(
        inner: impl Disk + 'static,
        hook: impl Fn(Does, &str) + Send + Sync + 'static,
    ) -> Self {
        Self { inner: Arc::new(inner), hook: Arc::new(hook) }
    }

    fn wrap(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(HookFile { inner: file, hook: Arc::clone(&self.hook), name: name.into() })
    }
}

impl std::fmt::Debug for HookDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HookDisk").field(&self.inner).finish()
    }
}

impl Disk for HookDisk {
    fn create_dir(&self, dir: &str) -> Result<()> {
        self.inner.create_dir(dir)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        (self.hook)(Does::Create, name);
        Ok(self.wrap(name, self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        (self.hook)(Does::Open, name);
        Ok(self.wrap(name, self.inner.open(name)?))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        (self.hook)(Does::Open, name);
        Ok(self.wrap(name, self.inner.open_write(name)?))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        (self.hook)(Does::Link, to);
        self.inner.link(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        (self.hook)(Does::Remove, name);
        self.inner.remove(name)
    }

    fn list(&self, dir: &str) -> Result<Vec<DiskEntry>> {
        (self.hook)(Does::List, dir);
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        (self.hook)(Does::Sync, dir);
        self.inner.sync_dir(dir)
    }
}

struct HookFile {
    inner: Arc<dyn DiskFile>,
    hook: Arc<Hook>,
    name: Box<str>,
}

impl std::fmt::Debug for HookFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HookFile").field(&self.name).finish()
    }
}

impl DiskFile for HookFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        (self.hook)(Does::Read, &self.name);
        self.inner.read_at(offset, out)
    }

    fn will_read(&self, range: Range<u64>) {
        self.inner.will_read(range);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        (self.hook)(Does::Write, &self.name);
        self.inner.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        (self.hook)(Does::Sync, &self.name);
        self.inner.sync()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        (self.hook)(Does::Write, &self.name);
        self.inner.truncate(size_bytes)
    }
}

/// Where threads wait while it is shut.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_shut: bool,
    waiting: usize,
}

impl Gate {
    pub fn shut(&self) {
        self.state.lock().unwrap().is_shut = true;
    }

    pub fn open(&self) {
        self.state.lock().unwrap().is_shut = false;
        self.changed.notify_all();
    }

    /// Goes through, when it is open.
    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        while state.is_shut {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
    }

    /// Waits until somebody stands in front of it.
    pub fn wait_for_one(&self) {
        let mut state = self.state.lock().unwrap();
        while !(state.is_shut && state.waiting > 0) {
            state = self.changed.wait(state).unwrap();
        }
    }
}

/// Does something that must not take for ever.
pub fn within_a_minute<R: Send + 'static>(
    what: &str,
    act: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || drop(send.send(act())));
    receive.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what} hangs"))
}

/// A hook that panics, when it is armed, before an operation on certain files.
pub fn panics(
    is_armed: &Arc<AtomicBool>,
    does: Does,
    directory: &'static str,
) -> impl Fn(Does, &str) + Send + Sync + 'static {
    let is_armed = Arc::clone(is_armed);
    move |what, name| {
        let is_hit = what == does && name.starts_with(directory);
        assert!(!(is_hit && is_armed.load(Ordering::SeqCst)), "a panic for a test");
    }
}
