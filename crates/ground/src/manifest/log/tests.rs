use std::collections::BTreeMap;
use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_store::{Disk, DiskEntry, DiskFile, LocalIo};

use super::*;
use crate::manifest::object::{FORMAT, HEADER_BYTES, checksum, encode};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Model {
    live: BTreeMap<u32, String>,
    writers: Writers,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Change {
    Put(u32, String),
    Remove(u32),
    Begun(Writer),
}

impl LogState for Model {
    type Edit = Change;

    fn apply(&mut self, edit: &Change) {
        match edit {
            Change::Put(key, value) => drop(self.live.insert(*key, value.clone())),
            Change::Remove(key) => drop(self.live.remove(key)),
            Change::Begun(writer) => self.writers.add(*writer),
        }
    }

    fn begun_by(writer: Writer) -> Change {
        Change::Begun(writer)
    }

    fn writers(&self) -> &Writers {
        &self.writers
    }
}

type Log = ManifestLog<Model>;

fn io(disk: Arc<dyn Disk>) -> Arc<dyn ObjectIo> {
    Arc::new(LocalIo::open(disk, &[names::MANIFEST_DIR]).unwrap())
}

fn mem(disk: &MemDisk) -> Arc<dyn ObjectIo> {
    io(Arc::new(disk.clone()))
}

fn changes(random: &mut StdRng) -> Vec<Change> {
    (0..random.random_range(1..5))
        .map(|_| match random.random_range(0..20) {
            key if random.random() => Change::Remove(key),
            key => Change::Put(key, format!("object {}", random.random::<u16>())),
        })
        .collect()
}

// A manifest with this many versions, and the state at each of them.
fn committed(disk: &MemDisk, versions: u64) -> Vec<Model> {
    let mut random = StdRng::seed_from_u64(versions);
    let mut log = Log::open(mem(disk)).unwrap();
    let mut states = vec![Model::default()];
    for version in 1..=versions {
        assert_eq!(log.commit(&changes(&mut random)).unwrap(), version);
        states.push(Model::clone(log.state()));
    }
    states
}

#[test]
fn a_manifest_agrees_with_a_map() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = MemDisk::new();
        let mut log = Log::open(mem(&disk)).unwrap();
        let mut reader = Log::open(mem(&disk)).unwrap();
        let (mut model, mut version) = (Model::default(), 0);
        for _ in 0..random.random_range(1..400) {
            match random.random_range(0..30) {
                0 => log = Log::open(mem(&disk)).unwrap(),
                1 => drop(log.gc(random.random_range(0..100)).unwrap()),
                2 => {
                    let behind = reader.version() < version;
                    assert_eq!(reader.refresh().unwrap(), behind);
                    assert_eq!((&reader.state().live, reader.version()), (&model.live, version));
                }
                _ => {
                    let edits = changes(&mut random);
                    version += 1;
                    assert_eq!(log.commit(&edits).unwrap(), version);
                    edits.iter().for_each(|edit| model.apply(edit));
                }
            }
            assert_eq!((&log.state().live, log.version()), (&model.live, version));
        }
    }
}

#[test]
fn a_held_state_does_not_change() {
    let mut log = Log::open(mem(&MemDisk::new())).unwrap();
    log.commit(&[Change::Put(1, "a".into())]).unwrap();
    let held = Arc::clone(log.state());
    log.commit(&[Change::Remove(1)]).unwrap();
    assert_eq!((held.live.len(), log.state().live.len()), (1, 0));
    assert_eq!(log.commit(&[]).unwrap(), 2);
}

#[test]
fn the_second_of_two_writers_is_refused() {
    let disk = MemDisk::new();
    let mut first = Log::open(mem(&disk)).unwrap();
    let mut second = Log::open(mem(&disk)).unwrap();
    first.commit(&[Change::Put(1, "first".into())]).unwrap();
    let error = second.commit(&[Change::Put(1, "second".into())]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let error = second.commit(&[Change::Put(1, "second".into())]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(Log::open(mem(&disk)).unwrap().state().live[&1], "first");
}

#[test]
fn a_writer_that_begins_ends_those_before_it() {
    let disk = MemDisk::new();
    let mut first = Log::open(mem(&disk)).unwrap();
    first.commit(&[Change::Put(1, "first".into())]).unwrap();
    let mut second = Log::open(mem(&disk)).unwrap();
    second.begin(7, &[]).unwrap();
    assert_eq!(second.state().writers().last_log(), 7);
    assert_eq!((second.version(), second.writer() == first.writer()), (2, false));
    let error = first.commit(&[Change::Put(1, "late".into())]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    second.commit(&[Change::Put(2, "second".into())]).unwrap();
    let found = Log::open(mem(&disk)).unwrap();
    assert_eq!((&found.state().live[&1][..], &found.state().live[&2][..]), ("first", "second"));
    let numbers: Vec<u32> = found.state().writers().0.iter().map(|it| it.number).collect();
    assert_eq!(numbers, [first.writer(), second.writer()]);
}

#[test]
fn power_loss_at_any_step_leaves_a_whole_version() {
    // The last of these commits writes a checkpoint.
    let (before, after) = (CHECKPOINT_DELTAS - 2, CHECKPOINT_DELTAS + 1);
    let base = MemDisk::new();
    let states = committed(&base, before);
    for step in 0.. {
        let disk = base.crash(0);
        let mut log = Log::open(mem(&disk)).unwrap();
        let mut states = states.clone();
        disk.lose_power_after(step);
        let mut acknowledged = before;
        for version in before + 1..=after {
            let edit = Change::Put(99, format!("version {version}"));
            let mut next = states[states.len() - 1].clone();
            next.apply(&edit);
            states.push(next);
            if log.commit(&[edit]).is_ok() {
                acknowledged = version;
            }
        }
        let lost_power = disk.create_dir("").is_err();
        for seed in 0..20 {
            let found_disk = disk.crash(seed);
            let mut found = Log::open(mem(&found_disk)).unwrap();
            assert!((acknowledged..=acknowledged + 1).contains(&found.version()), "step {step}");
            assert_eq!(found.state().live, states[found.version() as usize].live);
            found.commit(&[Change::Remove(99)]).unwrap();
            let again = Log::open(mem(&found_disk.crash(seed))).unwrap();
            assert_eq!(again.state(), found.state());
        }
        if !lost_power {
            assert!(step > 15, "only {step} steps");
            break;
        }
    }
}

#[test]
fn a_kill_followed_by_power_loss_keeps_what_was_found() {
    for step in 0..12 {
        let disk = MemDisk::new();
        let mut log = Log::open(mem(&disk)).unwrap();
        disk.lose_power_after(step);
        while log.commit(&[Change::Remove(1)]).is_ok() {}
        disk.go_on();
        let found = Log::open(mem(&disk)).unwrap().version();
        for seed in 0..20 {
            assert_eq!(Log::open(mem(&disk.crash(seed))).unwrap().version(), found);
        }
    }
}

#[test]
fn every_fault_of_a_commit_is_an_error_or_harmless() {
    for fault in Fault::ALL {
        for skip in 0.. {
            let disk = MemDisk::new();
            committed(&disk, CHECKPOINT_DELTAS - 1);
            let faulty = FaultDisk::new(Arc::new(disk.clone()), skip);
            let mut log = Log::open(io(Arc::new(faulty.clone()))).unwrap();
            faulty.arm(fault, skip, Times::Once);
            let committed = log.commit(&[Change::Put(50, "new".into())]);
            let fired = faulty.fired() > 0;
            let found = Log::open(mem(&disk)).unwrap();
            match committed {
                Ok(version) => assert_eq!((version, found.state()), (found.version(), log.state())),
                // It is not in the manifest, and may be committed when there is room again.
                Err(error) if matches!(fault, Fault::DiskFull | Fault::TooManyFiles) => {
                    assert!(fired && error.kind() == ErrorKind::Full, "{error}");
                    assert_eq!((found.version(), found.state()), (log.version(), log.state()));
                    assert!(!found.state().live.contains_key(&50));
                    let version = log.commit(&[Change::Put(50, "again".into())]).unwrap();
                    let found = Log::open(mem(&disk)).unwrap();
                    assert_eq!((version, found.state()), (found.version(), log.state()));
                }
                Err(error) => {
                    assert!(fired && error.kind() == ErrorKind::Io, "{error}");
                    let error = log.commit(&[Change::Remove(1)]).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Closed);
                }
            }
            if !fired {
                break;
            }
        }
    }
}

#[test]
fn a_failed_checkpoint_is_tried_again() {
    let disk = MemDisk::new();
    committed(&disk, CHECKPOINT_DELTAS - 1);
    let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
    let mut log = Log::open(io(Arc::new(faulty.clone()))).unwrap();
    // The first write is the delta.
    faulty.arm(Fault::DiskFull, 3, Times::Once);
    log.commit(&[Change::Remove(1)]).unwrap();
    assert_eq!((faulty.fired(), log.checkpoint), (1, 0));
    log.commit(&[Change::Remove(1)]).unwrap();
    assert_eq!(log.checkpoint, CHECKPOINT_DELTAS + 1);
}

#[test]
fn damage_is_named_or_made_good_by_an_older_checkpoint() {
    let disk = MemDisk::new();
    let versions = 2 * CHECKPOINT_DELTAS + 5;
    let states = committed(&disk, versions);
    let mut random = StdRng::seed_from_u64(4);
    for version in 1..=versions {
        for name in [names::manifest_delta(version), names::manifest_checkpoint(version)] {
            let Some(whole) = disk.contents(&name) else { continue };
            let damaged = disk.crash(0);
            let mut bytes = whole.clone();
            match random.random_range(0..3) {
                0 => bytes.truncate(random.random_range(0..whole.len())),
                1 => bytes.push(0),
                _ => bytes[random.random_range(0..whole.len())] ^= 1 << random.random_range(0..8),
            }
            damaged.place(&name, &bytes);
            match Log::open(mem(&damaged)) {
                Ok(log) => {
                    let needed = version > 2 * CHECKPOINT_DELTAS;
                    assert!(!needed, "damage in {name} was not seen");
                    assert_eq!(**log.state(), states[versions as usize]);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    assert!(error.message().contains(&name), "{error}");
                }
            }
        }
    }
    // Without both its checkpoints it is read from the start.
    for version in [CHECKPOINT_DELTAS, 2 * CHECKPOINT_DELTAS] {
        disk.place(&names::manifest_checkpoint(version), b"gone");
    }
    assert_eq!(**Log::open(mem(&disk)).unwrap().state(), states[versions as usize]);
}

#[test]
fn a_damaged_checkpoint_is_written_anew() {
    let disk = MemDisk::new();
    let states = committed(&disk, 5);
    let name = names::manifest_checkpoint(5);
    Log::open(mem(&disk)).unwrap().checkpoint().unwrap();
    let whole = disk.contents(&name).unwrap();
    for damaged in [&b""[..], b"gone", &whole[..whole.len() - 1]] {
        disk.place(&name, damaged);
        let mut log = Log::open(mem(&disk)).unwrap();
        assert_eq!(**log.state(), states[5]);
        log.checkpoint().unwrap();
        assert_eq!(read_checkpoint::<Model>(&*mem(&disk), 5).unwrap(), states[5]);
    }
}

#[test]
fn missing_and_misplaced_objects_are_named() {
    let disk = MemDisk::new();
    committed(&disk, 10);
    let gap = disk.crash(0);
    gap.remove(&names::manifest_delta(7)).unwrap();
    let error = Log::open(mem(&gap)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(&names::manifest_delta(7)), "{error}");
    let third = disk.contents(&names::manifest_delta(3)).unwrap();
    disk.place(&names::manifest_delta(4), &third);
    let error = Log::open(mem(&disk)).unwrap_err();
    assert!(error.message().contains("another object"), "{error}");
}

#[test]
fn a_later_format_is_refused() {
    let disk = MemDisk::new();
    committed(&disk, 3);
    let name = names::manifest_delta(3);
    let mut bytes = disk.contents(&name).unwrap();
    bytes[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().unwrap();
    let crc = checksum(head, body).to_le_bytes();
    bytes[12..16].copy_from_slice(&crc);
    disk.place(&name, &bytes);
    let error = Log::open(mem(&disk)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let told = format!("written in format {}; this program reads up to {FORMAT}", FORMAT + 1);
    assert!(error.message().contains(&told) && error.message().contains(&name), "{error}");
}

/// A disk that lists what there was at one moment and, of what came since, only the last: so may a directory that
/// changes while it is read.
#[derive(Debug)]
struct LateListing {
    disk: MemDisk,
    writer: Mutex<Log>,
    commits: u64,
}

impl Disk for LateListing {
    fn create_dir(&self, dir: &str) -> Result<()> {
        self.disk.create_dir(dir)
    }
    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.disk.create(name)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.disk.open(name)
    }
    fn open_write(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.disk.open_write(name)
    }
    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.disk.link(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.disk.remove(name)
    }
    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.disk.sync_dir(dir)
    }
    fn list(&self, dir: &str) -> Result<Vec<DiskEntry>> {
        let mut listed = self.disk.list(dir)?;
        let mut writer = self.writer.lock().unwrap();
        for _ in 0..self.commits {
            writer.commit(&[Change::Put(1, "late".into())]).unwrap();
        }
        let last = names::manifest_delta(writer.version());
        let is_last =
            |entry: &DiskEntry| matches!(entry, DiskEntry::File { name, .. } if *name == last);
        listed.extend(self.disk.list(dir)?.into_iter().filter(is_last));
        Ok(listed)
    }
}

#[test]
fn a_listing_that_lacks_what_came_meanwhile_is_no_damage() {
    for commits in [2, CHECKPOINT_DELTAS + 3] {
        let disk = MemDisk::new();
        let before = 10;
        committed(&disk, before);
        let writer = Mutex::new(Log::open(mem(&disk)).unwrap());
        let late = LateListing { disk: disk.clone(), writer, commits };
        let found = Log::open(Arc::new(LocalIo::open_read_only(Arc::new(late)))).unwrap();
        let latest = Log::open(mem(&disk)).unwrap();
        assert!(found.version() >= before + commits, "version {}", found.version());
        assert_eq!((found.version(), found.state()), (latest.version(), latest.state()));
    }
}

#[test]
fn gc_keeps_the_versions_asked_for() {
    let disk = MemDisk::new();
    let versions = 5 * CHECKPOINT_DELTAS;
    let states = committed(&disk, versions);
    let log = Log::open(mem(&disk)).unwrap();
    assert_eq!(log.gc(versions).unwrap(), 0);
    // The first run takes the older checkpoints away, the second what stood behind them.
    assert!(log.gc(CHECKPOINT_DELTAS).unwrap() > 0);
    assert!(log.gc(CHECKPOINT_DELTAS).unwrap() > 0);
    let left = Listing::read(&*mem(&disk)).unwrap();
    assert!((left.deltas.len() as u64) < 2 * CHECKPOINT_DELTAS, "{left:?}");
    assert_eq!(**Log::open(mem(&disk)).unwrap().state(), states[versions as usize]);
    // The oldest version that was to be kept can still be put together.
    let listing = Listing::read(&*mem(&disk)).unwrap();
    let oldest = versions + 1 - CHECKPOINT_DELTAS;
    let base = *listing.checkpoints.first().unwrap();
    assert!(base <= oldest && (base + 1..=versions).all(|v| listing.deltas.contains(&v)));
}

#[test]
fn power_loss_at_any_step_of_a_gc_damages_nothing() {
    let base = MemDisk::new();
    let versions = 3 * CHECKPOINT_DELTAS;
    let states = committed(&base, versions);
    let whole = |disk: &MemDisk| {
        let log = Log::open(mem(disk)).unwrap();
        assert_eq!(**log.state(), states[versions as usize]);
        assert_eq!(log.verify().unwrap().1, []);
        log
    };
    for step in 0.. {
        let disk = base.crash(0);
        let log = Log::open(mem(&disk)).unwrap();
        disk.lose_power_after(step);
        let is_done = log.gc(1).is_ok() && log.gc(1).is_ok();
        disk.go_on();
        for seed in 0..10 {
            // Killed only, and with the power gone.
            whole(&disk);
            let found = disk.crash(seed);
            whole(&found).gc(1).unwrap();
            whole(&found.crash(seed)).gc(1).unwrap();
            whole(&found);
        }
        if is_done {
            assert!(step > 2 * CHECKPOINT_DELTAS, "only {step} steps");
            break;
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut random = StdRng::seed_from_u64(5);
    for _ in 0..2_000 {
        let mut body = vec![0; random.random_range(0..60)];
        random.fill(&mut body[..]);
        let disk = MemDisk::new();
        disk.place(&names::manifest_delta(1), &encode(Kind::Delta, 7, 1, &body));
        let error = Log::open(mem(&disk)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

/// However much of either is deleted meanwhile, and whoever has written it.
#[test]
fn a_reader_follows_its_history_and_no_other() {
    let mut random = StdRng::seed_from_u64(7);
    let (mut followed, mut refused) = (0, 0);
    for round in 0..300 {
        let disk = MemDisk::new();
        let mut go_on = |disk: &MemDisk, versions: u64| {
            let mut log = Log::open(mem(disk)).unwrap();
            for _ in 0..versions {
                // The same edits in both.
                log.commit(&[Change::Put(1, "the same".into())]).unwrap();
                if random.random_range(0..50) == 0 {
                    log.gc(random.random_range(1..100)).unwrap();
                }
                if random.random_range(0..20) == 0 {
                    log = Log::open(mem(disk)).unwrap();
                }
            }
            log.gc(1).unwrap();
        };
        go_on(&disk, 1 + round % 90);
        let other = copy(&disk);
        go_on(&disk, 1 + round % 7);
        let mut reader = Log::unread(Arc::new(LocalIo::open_read_only(Arc::new(disk.clone()))));
        reader.refresh().unwrap();
        let (version, state) = (reader.version(), Arc::clone(reader.state()));
        go_on(&other, round * 37 % 300 + 1);
        go_on(&disk, round * 53 % 300 + 1);
        let mut misled = reader.clone();
        misled.io = Arc::new(LocalIo::open_read_only(Arc::new(other.clone())));
        let error = misled.refresh().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{round}: {error}");
        assert_eq!((misled.version(), misled.state()), (version, &state), "{round}");
        refused += 1;
        assert!(reader.refresh().unwrap(), "{round}");
        let now = Log::open(mem(&disk)).unwrap();
        assert_eq!((reader.version(), reader.state()), (now.version(), now.state()), "{round}");
        followed += usize::from(reader.version() > version + CHECKPOINT_DELTAS);
    }
    assert!(followed > 100, "{refused} {followed}");
}

fn copy(disk: &MemDisk) -> MemDisk {
    let copy = MemDisk::new();
    for (name, _) in mem(disk).list(names::MANIFEST_DIR).unwrap() {
        copy.place(&name, &disk.contents(&name).unwrap());
    }
    copy
}

/// Many short lives of a writer between two looks are usual: an import each minute.
#[test]
fn a_reader_goes_on_though_its_writer_is_forgotten() {
    let disk = MemDisk::new();
    let go_on = |disk: &MemDisk, opens: usize| {
        for open in 0..opens {
            let mut log = Log::open(mem(disk)).unwrap();
            log.commit(&[Change::Put(1, "the same".into())]).unwrap();
            log.checkpoint().unwrap();
            log.gc(if open % 8 == 0 { 16 } else { 256 }).unwrap();
        }
    };
    go_on(&disk, 3);
    let mut reader = Log::unread(mem(&disk));
    reader.refresh().unwrap();
    go_on(&disk, 2 * WRITERS_MAX);
    let mut misled = reader.clone();
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.state(), Log::open(mem(&disk)).unwrap().state());
    let other = MemDisk::new();
    go_on(&other, 2 * WRITERS_MAX);
    misled.io = mem(&other);
    assert_eq!(misled.refresh().unwrap_err().kind(), ErrorKind::Conflict);
    // What it has read now it knows the writer of.
    go_on(&disk, 3);
    let copy = copy(&disk);
    go_on(&disk, 3);
    reader.refresh().unwrap();
    go_on(&copy, 100);
    reader.io = mem(&copy);
    assert_eq!(reader.refresh().unwrap_err().kind(), ErrorKind::Conflict);
}

/// The checkpoint beside it says the same.
#[test]
fn a_last_delta_that_cannot_be_read_keeps_no_reader_out() {
    let disk = MemDisk::new();
    let states = committed(&disk, 5);
    Log::open(mem(&disk)).unwrap().checkpoint().unwrap();
    disk.place(&names::manifest_delta(5), b"gone");
    let mut reader = Log::unread(mem(&disk));
    assert!(reader.refresh().unwrap());
    assert_eq!(**reader.state(), states[5]);
    assert!(!reader.refresh().unwrap());
}
