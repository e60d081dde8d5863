use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;

use tidefall_store::{Disk, DiskEntry, DiskFile, cut_short, exists, names};
use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, Result};

use super::random::Random;

/// What a real disk writes at once: after power loss any subset of the sectors that were written
/// but not synced may have arrived.
const SECTOR_BYTES: usize = 512;

/// A disk in memory that knows which bytes and names are durable, and can lose power.
///
/// It is stricter than most file systems: names that were not synced may or may not survive, each
/// by itself, and so may every sector of unsynced bytes.
#[derive(Debug, Clone, Default)]
pub struct MemDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    nodes: HashMap<u64, Node>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    next_node: u64,
    steps: u64,
    power_ends_at: Option<u64>,
}

#[derive(Debug, Default, Clone)]
struct Node {
    data: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { size: usize },
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The operations up to now that changed something or made it durable.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Lets `steps` more such operations succeed; the next one, and everything after it, fails.
    pub fn lose_power_after(&self, steps: u64) {
        let mut state = self.lock();
        state.power_ends_at = Some(state.steps + steps);
    }

    /// Ends the failure that [`MemDisk::lose_power_after`] began, with nothing lost: as if not the
    /// power had ended but the process that used the disk.
    pub fn go_on(&self) {
        self.lock().power_ends_at = None;
    }

    /// Forgets to write what was not made durable, as a system does whose fsync has failed: it can be read for as long as the power is there, and no later
    /// fsync makes it durable.
    pub fn forget_unsynced(&self) {
        self.lock().nodes.values_mut().for_each(|node| node.pending.clear());
    }

    /// The disk as it is found when the power is back: all that is durable, and an arbitrary part,
    /// chosen by `seed`, of what is not.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let state = self.lock();
        let mut random = Random::new(seed);
        let mut found = State { next_node: state.next_node, ..State::default() };
        let all: BTreeSet<&String> = state.names.keys().chain(state.durable_names.keys()).collect();
        for name in all {
            let (new, old) = (state.names.get(name), state.durable_names.get(name));
            if let Some(&node) = if random.below(2) == 0 { new } else { old } {
                found.names.insert(name.clone(), node);
            }
        }
        // Sorted, so that one seed always gives one outcome.
        let nodes: BTreeSet<u64> = found.names.values().copied().collect();
        for id in nodes {
            if let Some(node) = state.nodes.get(&id) {
                let data = node.after_power_loss(&mut random);
                let durable = data.clone();
                found.nodes.insert(id, Node { data, durable, pending: Vec::new() });
            }
        }
        found.durable_names = found.names.clone();
        Self { state: Arc::new(Mutex::new(found)) }
    }

    /// The bytes of a file, if it exists.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        state.names.get(name).and_then(|id| state.nodes.get(id)).map(|node| node.data.clone())
    }

    /// Puts a durable file on the disk, or replaces it: the way to bring in damage.
    pub fn place(&self, name: &str, bytes: &[u8]) {
        let mut state = self.lock();
        let id = state.new_node(bytes);
        state.names.insert(name.to_owned(), id);
        state.durable_names.insert(name.to_owned(), id);
    }

    // A test that panics must not turn every later access into a second panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_node(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        let state = self.lock();
        state.check_power(name)?;
        let node = *state.names.get(name).ok_or_else(|| missing(name))?;
        Ok(Arc::new(MemFile { disk: self.clone(), node, name: name.into() }))
    }
}

impl State {
    fn check_power(&self, name: &str) -> Result<()> {
        match self.power_ends_at {
            Some(end) if self.steps >= end => {
                Err(Error::io(name, &io::Error::other("the disk has lost power")))
            }
            _ => Ok(()),
        }
    }

    fn step(&mut self, name: &str) -> Result<()> {
        self.check_power(name)?;
        self.steps += 1;
        Ok(())
    }

    fn new_node(&mut self, bytes: &[u8]) -> u64 {
        let id = self.next_node;
        self.next_node += 1;
        let node = Node { data: bytes.to_vec(), durable: bytes.to_vec(), pending: Vec::new() };
        self.nodes.insert(id, node);
        id
    }
}

impl Node {
    /// All that is durable, or will be with the next fsync.
    fn all(&self) -> Vec<u8> {
        let mut all = self.durable.clone();
        self.pending.iter().for_each(|change| change.apply(&mut all));
        all
    }

    fn after_power_loss(&self, random: &mut Random) -> Vec<u8> {
        let (mut data, all) = (self.durable.clone(), self.all());
        match random.below(4) {
            // All arrived, though nobody waited for it.
            0 => return all,
            1 => return data,
            // The tail is torn at a byte.
            2 if all.starts_with(&self.durable) => {
                let tail = &all[self.durable.len()..];
                data.extend_from_slice(&tail[..random.below(tail.len() + 1)]);
                return data;
            }
            _ => {}
        }
        for change in &self.pending {
            change.apply_some_sectors(&mut data, random);
        }
        data
    }
}

impl Change {
    fn apply(&self, data: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write_at(data, *offset, bytes),
            Self::Truncate { size } => data.resize(*size, 0),
        }
    }

    fn apply_some_sectors(&self, data: &mut Vec<u8>, random: &mut Random) {
        let Self::Write { offset, bytes } = self else {
            if random.below(2) == 0 {
                self.apply(data);
            }
            return;
        };
        let mut at = 0;
        while at < bytes.len() {
            let sector_end = (offset + at) / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES - offset;
            let end = sector_end.min(bytes.len());
            if random.below(2) == 0 {
                write_at(data, offset + at, &bytes[at..end]);
            }
            at = end;
        }
    }
}

fn write_at(data: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if data.len() < offset + bytes.len() {
        data.resize(offset + bytes.len(), 0);
    }
    data[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn missing(name: &str) -> Error {
    Error::io(name, &io::Error::from(io::ErrorKind::NotFound))
}

impl Disk for MemDisk {
    // Directories are there as soon as something is in them.
    fn create_dir(&self, dir: &str) -> Result<()> {
        self.lock().check_power(dir)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.step(name)?;
        if state.names.contains_key(name) {
            return Err(exists(name));
        }
        let node = state.new_node(&[]);
        state.names.insert(name.to_owned(), node);
        Ok(Arc::new(MemFile { disk: self.clone(), node, name: name.into() }))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open_node(name)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open_node(name)
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        let mut state = self.lock();
        state.step(to)?;
        if state.names.contains_key(to) {
            return Err(exists(to));
        }
        let node = *state.names.get(from).ok_or_else(|| missing(from))?;
        state.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut state = self.lock();
        state.step(name)?;
        state.names.remove(name).map(|_| ()).ok_or_else(|| missing(name))
    }

    fn list(&self, dir: &str) -> Result<Vec<DiskEntry>> {
        let state = self.lock();
        state.check_power(dir)?;
        let mut found = Vec::new();
        for (name, id) in &state.names {
            let prefix = if dir.is_empty() { Some(name.as_str()) } else { below(name, dir) };
            let Some(rest) = prefix else { continue };
            match rest.split_once('/') {
                Some((sub, _)) => {
                    let full = DiskEntry::Dir(name[..name.len() - rest.len()].to_owned() + sub);
                    if found.last() != Some(&full) {
                        found.push(full);
                    }
                }
                None => {
                    let size_bytes = state.nodes.get(id).map_or(0, |node| node.data.len()) as u64;
                    found.push(DiskEntry::File { name: name.clone(), size_bytes });
                }
            }
        }
        Ok(found)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        let mut state = self.lock();
        state.step(dir)?;
        let State { names, durable_names, .. } = &mut *state;
        durable_names.retain(|name, _| names::parent(name) != dir);
        let now = names.iter().filter(|(name, _)| names::parent(name) == dir);
        durable_names.extend(now.map(|(name, node)| (name.clone(), *node)));
        Ok(())
    }
}

fn below<'a>(name: &'a str, dir: &str) -> Option<&'a str> {
    name.strip_prefix(dir)?.strip_prefix('/')
}

#[derive(Debug)]
struct MemFile {
    disk: MemDisk,
    node: u64,
    name: Box<str>,
}

impl MemFile {
    fn change(&self, change: Change) -> Result<()> {
        let mut state = self.disk.lock();
        let stepped = state.step(&self.name);
        let Some(node) = state.nodes.get_mut(&self.node) else { return Err(missing(&self.name)) };
        // Of the write in which the power fails, some sectors may still arrive.
        change.apply(&mut node.data);
        node.pending.push(change);
        stepped
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let state = self.disk.lock();
        state.check_power(&self.name)?;
        let data = state.nodes.get(&self.node).map_or(&[][..], |node| &node.data);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = data.get(start..).and_then(|tail| tail.get(..out.len()));
        out.copy_from_slice(bytes.ok_or_else(|| cut_short(&self.name, offset, out.len()))?);
        Ok(())
    }

    fn will_read(&self, _range: Range<u64>) {}

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.change(Change::Write { offset: offset as usize, bytes: bytes.to_vec() })
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.disk.lock();
        state.step(&self.name)?;
        if let Some(node) = state.nodes.get_mut(&self.node) {
            node.durable = node.all();
            node.pending.clear();
        }
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        let state = self.disk.lock();
        state.check_power(&self.name)?;
        Ok(state.nodes.get(&self.node).map_or(0, |node| node.data.len()) as u64)
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.change(Change::Truncate { size: size_bytes as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_synced_is_kept_and_only_that() {
        let mut lost = 0;
        for seed in 0..100 {
            let disk = MemDisk::new();
            let file = disk.create("a").unwrap();
            file.write_at(0, &[8; 2_000]).unwrap();
            file.sync().unwrap();
            disk.sync_dir("").unwrap();
            file.write_at(2_000, &[9; 2_000]).unwrap();
            disk.create("b").unwrap();
            let found = disk.crash(seed);
            let now = found.contents("a").unwrap();
            assert_eq!(now[..2_000], [8; 2_000]);
            lost += usize::from(now.len() < 4_000 || found.contents("b").is_none());
        }
        assert!(lost > 50, "power loss did too little harm: {lost}");
    }
}
