use std::io;
use std::ops::Range;

use tidefall_store::{Disk, DiskEntry, DiskFile};
use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, Result};

use super::random::Random;

// The numbers that Linux gives these errors, so that messages read as they would in earnest.
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// What goes wrong, and in which operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A write fails and leaves nothing.
    WriteError,
    /// A write fails after some of its bytes.
    ShortWrite,
    /// A write or the creation of a name finds the disk full.
    DiskFull,
    /// An fsync of a file or a directory fails.
    SyncError,
    /// An fsync finds the disk full, as where room is only looked for then.
    SyncFull,
    /// Creating, linking, removing or listing names fails.
    NameError,
    /// A read fails.
    ReadError,
    /// A read succeeds with one bit of its bytes wrong.
    FlippedBit,
    /// A file that is opened is not there.
    MissingFile,
    /// A file or a directory cannot be opened, because the process has too many open.
    TooManyFiles,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 10] = [
        Self::WriteError,
        Self::ShortWrite,
        Self::DiskFull,
        Self::SyncError,
        Self::SyncFull,
        Self::NameError,
        Self::ReadError,
        Self::FlippedBit,
        Self::MissingFile,
        Self::TooManyFiles,
    ];
}

/// How often an armed fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// Once.
    Once,
    /// At every operation from then on.
    Always,
}

/// A disk on which chosen operations of another disk fail.
#[derive(Debug, Clone)]
pub struct FaultDisk {
    inner: Arc<dyn Disk>,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    state: Mutex<PlanState>,
}

#[derive(Debug)]
struct PlanState {
    armed: Option<Armed>,
    fired: u64,
    random: Random,
}

#[derive(Debug)]
struct Armed {
    fault: Fault,
    skip: u64,
    times: Times,
}

impl FaultDisk {
    /// `inner` without faults as yet; `seed` chooses flipped bits and lengths of short writes.
    pub fn new(inner: Arc<dyn Disk>, seed: u64) -> Self {
        let state = PlanState { armed: None, fired: 0, random: Random::new(seed) };
        Self { inner, plan: Arc::new(Plan { state: Mutex::new(state) }) }
    }

    /// Lets `skip` operations that `fault` applies to pass, then makes it strike. It takes the
    /// place of what was armed before.
    pub fn arm(&self, fault: Fault, skip: u64, times: Times) {
        let mut state = self.plan.lock();
        state.armed = Some(Armed { fault, skip, times });
        state.fired = 0;
    }

    /// Ends all faults.
    pub fn disarm(&self) {
        self.plan.lock().armed = None;
    }

    /// How often the fault armed last has struck.
    pub fn fired(&self) -> u64 {
        self.plan.lock().fired
    }

    fn wrap(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultFile { inner: file, plan: Arc::clone(&self.plan), name: name.into() })
    }

    fn fail(&self, name: &str, faults: &[Fault]) -> Result<()> {
        self.plan.fail(name, faults)
    }
}

impl Plan {
    fn lock(&self) -> MutexGuard<'_, PlanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Whether the operation at hand, which `faults` apply to, is struck by one of them.
    fn strike(&self, faults: &[Fault]) -> Option<Fault> {
        let mut state = self.lock();
        let armed = state.armed.as_mut()?;
        if !faults.contains(&armed.fault) {
            return None;
        }
        if armed.skip > 0 {
            armed.skip -= 1;
            return None;
        }
        let fault = armed.fault;
        if armed.times == Times::Once {
            state.armed = None;
        }
        state.fired += 1;
        Some(fault)
    }

    fn fail(&self, name: &str, faults: &[Fault]) -> Result<()> {
        self.strike(faults).map_or(Ok(()), |fault| Err(failure(name, fault)))
    }
}

fn failure(name: &str, fault: Fault) -> Error {
    let source = match fault {
        Fault::DiskFull | Fault::SyncFull => io::Error::from_raw_os_error(ENOSPC),
        Fault::TooManyFiles => io::Error::from_raw_os_error(EMFILE),
        Fault::MissingFile => io::Error::from(io::ErrorKind::NotFound),
        _ => io::Error::from_raw_os_error(EIO),
    };
    Error::io(name, &source)
}

impl Disk for FaultDisk {
    fn create_dir(&self, dir: &str) -> Result<()> {
        // One that is there needs no room. Disks in memory keep no empty ones, which a database makes all at once.
        let known = if dir.contains('/') { dir } else { "" };
        let is_there = self.inner.list(known).is_ok_and(|entries| !entries.is_empty());
        let faults = [Fault::NameError, Fault::DiskFull];
        self.fail(dir, if is_there { &faults[..1] } else { &faults })?;
        self.inner.create_dir(dir)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.fail(name, &[Fault::NameError, Fault::DiskFull, Fault::TooManyFiles])?;
        Ok(self.wrap(name, self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.fail(name, &[Fault::MissingFile, Fault::TooManyFiles])?;
        Ok(self.wrap(name, self.inner.open(name)?))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.fail(name, &[Fault::MissingFile, Fault::TooManyFiles])?;
        Ok(self.wrap(name, self.inner.open_write(name)?))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.fail(to, &[Fault::NameError, Fault::DiskFull])?;
        self.inner.link(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.fail(name, &[Fault::NameError])?;
        self.inner.remove(name)
    }

    fn list(&self, dir: &str) -> Result<Vec<DiskEntry>> {
        self.fail(dir, &[Fault::NameError, Fault::TooManyFiles])?;
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.fail(dir, &[Fault::SyncError, Fault::SyncFull])?;
        self.inner.sync_dir(dir)
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn DiskFile>,
    plan: Arc<Plan>,
    name: Box<str>,
}

impl DiskFile for FaultFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let struck = self.plan.strike(&[Fault::ReadError, Fault::FlippedBit]);
        if struck == Some(Fault::ReadError) {
            return Err(failure(&self.name, Fault::ReadError));
        }
        self.inner.read_at(offset, out)?;
        if struck == Some(Fault::FlippedBit) && !out.is_empty() {
            let bit = self.plan.lock().random.below(out.len() * 8);
            out[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn will_read(&self, range: Range<u64>) {
        self.inner.will_read(range);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let faults = [Fault::WriteError, Fault::ShortWrite, Fault::DiskFull];
        let Some(fault) = self.plan.strike(&faults) else {
            return self.inner.write_at(offset, bytes);
        };
        // A disk that fills up takes what fits, as a short write does.
        if fault != Fault::WriteError {
            let length = self.plan.lock().random.below(bytes.len() + 1);
            self.inner.write_at(offset, &bytes[..length])?;
        }
        Err(failure(&self.name, fault))
    }

    fn sync(&self) -> Result<()> {
        self.plan.fail(&self.name, &[Fault::SyncError, Fault::SyncFull])?;
        self.inner.sync()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.plan.fail(&self.name, &[Fault::WriteError])?;
        self.inner.truncate(size_bytes)
    }
}
