use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_store::DiskEntry;
use tidefall_store::{Disk, LocalDisk};
use tidefall_types::{ErrorKind, Result, Seq};

use super::format::HEADER_BYTES;
use super::*;

const SMALL_FILE_BYTES: u64 = 2_000;
/// Some records are in two pieces, some in twenty.
const SMALL_PIECE_BYTES: usize = 150;

fn open(disk: &dyn CloneDisk, from: u64) -> Result<(Wal, Vec<Record>)> {
    let (mut wal, replay) = Wal::open(disk.shared(), Seq(from), 42)?;
    wal.file_bytes_max = SMALL_FILE_BYTES;
    wal.cut_pieces_of(SMALL_PIECE_BYTES);
    Ok((wal, replay.collect::<Result<_>>()?))
}

trait CloneDisk {
    fn shared(&self) -> Arc<dyn Disk>;
}

impl<D: Disk + Clone + 'static> CloneDisk for D {
    fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
}

fn record(seq: u64, random: &mut StdRng) -> Record {
    let length = if random.random_ratio(1, 20) { 3_000 } else { random.random_range(0..200) };
    let mut payload = vec![0; length];
    random.fill(&mut payload[..]);
    Record { seq: Seq(seq), kind: random.random(), payload }
}

fn append(wal: &mut Wal, record: &Record) -> Result<()> {
    let (a, b) = record.payload.split_at(record.payload.len() / 3);
    wal.append(record.seq, record.kind, &[a, b])
}

// A log with `groups` synced groups, not closed, and what is in it.
fn written(disk: &dyn CloneDisk, groups: u64) -> Vec<Record> {
    let mut random = StdRng::seed_from_u64(groups);
    let (mut wal, _) = open(disk, 1).unwrap();
    let mut records = Vec::new();
    for _ in 0..groups {
        for _ in 0..random.random_range(1..4) {
            records.push(record(records.len() as u64 + 1, &mut random));
            append(&mut wal, &records[records.len() - 1]).unwrap();
        }
        wal.sync().unwrap();
    }
    records
}

fn log_files(disk: &MemDisk) -> Vec<String> {
    let mut names: Vec<String> = disk
        .list(names::WAL_DIR)
        .unwrap()
        .into_iter()
        .map(|entry| match entry {
            DiskEntry::File { name, .. } => name,
            dir @ DiskEntry::Dir(_) => panic!("{dir:?} is no log file"),
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_log_agrees_with_a_list() {
    for seed in 0..150 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = MemDisk::new();
        let (mut wal, _) = open(&disk, 1).unwrap();
        let (mut model, mut written, mut from): (Vec<Record>, usize, u64) = (Vec::new(), 0, 1);
        let mut next = 1;
        for _ in 0..random.random_range(1..200) {
            match random.random_range(0..20) {
                0..12 => {
                    next += u64::from(random.random_ratio(1, 10)) * random.random_range(0..50);
                    model.push(record(next, &mut random));
                    append(&mut wal, &model[model.len() - 1]).unwrap();
                    if model[model.len() - 1].payload.len() > SMALL_PIECE_BYTES {
                        // Pieces are written at once, behind what waited.
                        written = model.len();
                    }
                    next += 1;
                }
                12..15 => {
                    wal.sync().unwrap();
                    written = model.len();
                }
                15 => {
                    wal.guarded(Wal::write_group).unwrap();
                    written = model.len();
                }
                16 => {
                    from = random.random_range(from..=next);
                    wal.cut(Seq(from)).unwrap();
                }
                _ => {
                    if random.random() {
                        wal.close().unwrap();
                        written = model.len();
                    }
                    let (again, found) = open(&disk, from).unwrap();
                    wal = again;
                    // A group that was only in memory is gone with its process.
                    model.truncate(written);
                    let wanted: Vec<Record> =
                        model.iter().filter(|record| record.seq.0 >= from).cloned().collect();
                    assert!(found == wanted, "seed {seed}: {} of {}", found.len(), wanted.len());
                    next = wal.next_seq().0;
                    let behind = model.last().map_or(1, |last| last.seq.0 + 1);
                    assert!(next >= from && next <= behind.max(from));
                }
            }
        }
    }
}

// Writes, cuts and reopens until something fails for good: (acknowledged, sent, cut before).
fn work(disk: &dyn CloneDisk, seed: u64) -> (usize, Vec<Record>, u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut sent, mut acknowledged, mut from) = (Vec::new(), 0, 1);
    let Ok((mut wal, _)) = open(disk, 1) else { return (0, sent, 1) };
    for _ in 0..40 {
        let done = match random.random_range(0..10) {
            0..5 => {
                sent.push(record(sent.len() as u64 + 1, &mut random));
                append(&mut wal, &sent[sent.len() - 1])
            }
            5 => wal.guarded(Wal::write_group),
            6 => {
                from = random.random_range(from..=acknowledged as u64 + 1);
                wal.cut(Seq(from)).map(|_| ())
            }
            7 if random.random() => match wal.sync() {
                Ok(()) => {
                    acknowledged = sent.len();
                    let Ok((again, _)) = open(disk, from) else { break };
                    wal = again;
                    Ok(())
                }
                failed => failed,
            },
            _ => wal.sync().map(|()| acknowledged = sent.len()),
        };
        match done {
            Err(error) if error.kind() == ErrorKind::Full => {
                // All of it is taken back, and the log goes on.
                sent.truncate(acknowledged);
                assert_eq!(wal.next_seq().0, acknowledged as u64 + 1);
            }
            Err(_) => {
                assert_eq!(wal.sync().unwrap_err().kind(), ErrorKind::Closed);
                break;
            }
            Ok(()) => {}
        }
    }
    (acknowledged, sent, from)
}

fn check_found(found: &[Record], (acknowledged, sent, from): &(usize, Vec<Record>, u64)) {
    let skipped = (*from - 1) as usize;
    assert!(found.len() + skipped >= *acknowledged, "acknowledged records are lost");
    let wanted = sent.get(skipped..skipped + found.len()).expect("there are more than were sent");
    assert!(found == wanted, "a record is wrong");
}

#[test]
fn power_loss_at_any_step_keeps_what_was_synced() {
    let mut rounds = 0;
    for seed in 0..12 {
        for step in 0.. {
            let disk = MemDisk::new();
            disk.lose_power_after(step);
            let history = work(&disk, seed);
            let finished = disk.steps() < step;
            for crash in [step * 3, step * 3 + 1, step * 3 + 2] {
                let found_disk = disk.crash(crash);
                let (mut wal, found) = open(&found_disk, history.2).unwrap();
                check_found(&found, &history);
                rounds += 1;
                // The log goes on, and a second crash in its repair or use is no worse.
                let seq = wal.next_seq();
                wal.append(seq, 7, &[b"on"]).unwrap();
                wal.sync().unwrap();
                let (_, again) = open(&found_disk.crash(crash), history.2).unwrap();
                assert!(again.len() == found.len() + 1 && again[..found.len()] == found[..]);
            }
            if finished {
                break;
            }
        }
    }
    assert!(rounds > 1_000, "only {rounds} crashes");
}

/// Of two files that were never begun the earlier one was taken for one that had been cut short.
#[test]
fn power_that_goes_twice_before_a_log_is_begun_is_no_damage() {
    let mut random = StdRng::seed_from_u64(14);
    for round in 0..3_000 {
        let disk = MemDisk::new();
        let (mut wal, _) = open(&disk, 1).unwrap();
        append(&mut wal, &record(1, &mut random)).unwrap();
        wal.sync().unwrap();
        let from = wal.next_seq();
        wal.cut(from).unwrap();
        let write = |disk: &MemDisk, mut wal: Wal, steps: u64, seed: u64| {
            disk.lose_power_after(steps);
            let next = Record { seq: wal.next_seq(), kind: 7, payload: vec![1; 60] };
            let _ = append(&mut wal, &next).and_then(|()| wal.sync());
            disk.crash(seed)
        };
        let disk = write(&disk, wal, random.random_range(0..5), random.random());
        let (wal, found) = open(&disk, from.0).unwrap();
        let disk = write(&disk, wal, random.random_range(0..5), random.random());
        let again = open(&disk, from.0).map(|(_, again)| again);
        let again = again.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(again.len() >= found.len(), "round {round}: a record is gone");
    }
}

#[test]
fn a_kill_followed_by_power_loss_keeps_what_was_found() {
    for seed in 0..12 {
        for step in 0.. {
            let disk = MemDisk::new();
            disk.lose_power_after(step);
            let history = work(&disk, seed);
            let finished = disk.steps() < step;
            disk.go_on();
            let (mut wal, mut found) = open(&disk, history.2).unwrap();
            check_found(&found, &history);
            for _ in 0..2 {
                let on = Record { seq: wal.next_seq(), kind: 7, payload: vec![1; 600] };
                append(&mut wal, &on).unwrap();
                wal.sync().unwrap();
                found.push(on);
            }
            for crash in [step * 3, step * 3 + 1, step * 3 + 2] {
                let (_, again) = open(&disk.crash(crash), history.2).unwrap();
                assert!(again == found, "seed {seed}, step {step}, crash {crash}");
            }
            if finished {
                break;
            }
        }
    }
}

/// What had been written by an fsync that failed was read again, and no later fsync made it durable: what names of sensors were in it, later records did
/// not repeat. On a full disk it is written again with the first write.
#[test]
fn what_is_found_after_a_failed_fsync_is_durable() {
    let (mut failed, mut kept) = (0, 0);
    for (seed, is_full) in (0..12).flat_map(|seed| [(seed, false), (seed, true)]) {
        for skip in 0.. {
            let disk = MemDisk::new();
            let faulty = FaultDisk::new(Arc::new(disk.clone()), skip);
            faulty.arm(Fault::SyncError, skip, Times::Once);
            let history = work(&faulty, seed);
            if faulty.fired() == 0 {
                break;
            }
            failed += 1;
            disk.forget_unsynced();
            let full = FaultDisk::new(Arc::new(disk.clone()), skip);
            if is_full {
                full.arm(Fault::DiskFull, 0, Times::Once);
            }
            let (mut wal, mut found) = open(&full, history.2).unwrap();
            check_found(&found, &history);
            kept += usize::from(found.len() + history.2 as usize - 1 > history.0);
            let on = Record { seq: wal.next_seq(), kind: 7, payload: vec![1; 600] };
            append(&mut wal, &on).unwrap();
            wal.sync().unwrap();
            found.push(on);
            for crash in 0..4 {
                let (_, again) = open(&disk.crash(crash), history.2).unwrap();
                assert!(again == found, "seed {seed}, skip {skip}, crash {crash}, full {is_full}");
            }
        }
    }
    assert!(failed > 100 && kept > 40, "{failed} failed, of which {kept} left something");
}

/// The end of the log is read once more to be written again, and what came back was written whatever it was.
#[test]
fn a_read_that_goes_wrong_at_open_damages_nothing() {
    for groups in 1..8 {
        let disk = MemDisk::new();
        let records = written(&disk, groups);
        for skip in 0.. {
            let copy = disk.crash(0);
            let faulty = FaultDisk::new(Arc::new(copy.clone()), skip);
            faulty.arm(Fault::FlippedBit, skip, Times::Once);
            // It may be refused.
            drop(open(&faulty, 1));
            let has_struck = faulty.fired() > 0;
            let (_, found) = open(&copy, 1).unwrap();
            assert!(found == records, "{groups} groups, read {skip}");
            if !has_struck {
                break;
            }
        }
    }
}

#[test]
fn power_loss_during_repair_loses_nothing() {
    let disk = MemDisk::new();
    let records = written(&disk, 6);
    let name = log_files(&disk).pop().unwrap();
    let mut torn = disk.contents(&name).unwrap();
    torn.extend_from_slice(&[0xAB; 1_500]);
    for step in 0..6 {
        for seed in 0..20 {
            let disk = disk.crash(0);
            disk.place(&name, &torn);
            disk.lose_power_after(step);
            let opened = open(&disk, 1).is_ok();
            let (_, found) = open(&disk.crash(seed), 1).unwrap();
            assert!(found == records, "step {step}, opened {opened}");
        }
    }
}

#[test]
fn every_fault_closes_the_log_and_keeps_what_was_synced() {
    for fault in Fault::ALL {
        for seed in 0..6 {
            for skip in 0.. {
                let disk = MemDisk::new();
                let faulty = FaultDisk::new(Arc::new(disk.clone()), skip);
                faulty.arm(fault, skip, Times::Once);
                let history = work(&faulty, seed);
                let fired = faulty.fired() > 0;
                // A bit flipped in reading may end in an error, and in nothing worse; but a
                // repair that believed it would.
                if fault != Fault::FlippedBit {
                    let (_, found) = open(&disk, history.2).unwrap();
                    check_found(&found, &history);
                }
                if !fired {
                    break;
                }
            }
        }
    }
}

#[test]
fn power_loss_after_a_full_disk_finds_what_was_synced_and_nothing_that_was_refused() {
    const FULL_ROUNDS: u64 = 20;
    let mut refused = 0;
    for (seed, skip) in (0..10).flat_map(|seed| (0..12).map(move |skip| (seed, skip))) {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = MemDisk::new();
        let faulty = FaultDisk::new(Arc::new(disk.clone()), seed * 100 + skip);
        let (mut wal, _) = open(&faulty, 1).unwrap();
        let mut acknowledged = Vec::new();
        faulty.arm(Fault::DiskFull, skip, Times::Always);
        for round in 0..FULL_ROUNDS + 10 {
            if round == FULL_ROUNDS {
                faulty.disarm();
            }
            let group: Vec<Record> = (0..random.random_range(1..4))
                .map(|i| record(wal.next_seq().0 + i, &mut random))
                .collect();
            let appended = group.iter().try_for_each(|record| append(&mut wal, record));
            match appended.and_then(|()| wal.sync()) {
                Ok(()) => acknowledged.extend(group),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                    assert!(round < FULL_ROUNDS, "there is room: {error}");
                    refused += 1;
                }
            }
            let (_, found) = open(&disk.crash(round), 1).unwrap();
            assert!(found == acknowledged, "seed {seed}, skip {skip}, round {round}");
        }
        let from = acknowledged.len() as u64 / 2;
        wal.cut(acknowledged[from as usize].seq).unwrap();
        let (_, found) = open(&disk, acknowledged[from as usize].seq.0).unwrap();
        assert!(found == acknowledged[from as usize..]);
    }
    assert!(refused > 1_000, "only {refused} groups were refused");
}

#[test]
fn a_log_that_is_not_wanted_goes_also_from_a_full_disk() {
    let disk = MemDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
    let (mut wal, _) = open(&faulty, 1).unwrap();
    wal.append(Seq(1), 1, &[&[1; 300]]).unwrap();
    wal.sync().unwrap();
    faulty.arm(Fault::DiskFull, 0, Times::Always);
    assert_eq!(wal.cut(Seq(2)).unwrap(), 1);
    assert_eq!(log_files(&disk), Vec::<String>::new());
    // It comes back when the power goes before the directory is durable.
    for seed in 0..8 {
        let (_, found) = open(&disk.crash(seed), 2).unwrap();
        assert_eq!(found, Vec::new());
    }
    faulty.disarm();
    wal.append(Seq(2), 1, &[&[2; 300]]).unwrap();
    wal.sync().unwrap();
    for seed in 0..8 {
        let (_, found) = open(&disk.crash(seed), 2).unwrap();
        assert_eq!(found.len(), 1);
    }
}

/// A writer on a full disk takes records back that a reader may have seen, and writes others in their place, maybe as long.
#[test]
fn logs_of_other_records_do_not_end_alike() {
    let tail = |payload: &[u8]| {
        let disk = MemDisk::new();
        let (mut wal, _) = open(&disk, 1).unwrap();
        for seq in 1..4 {
            wal.append(Seq(seq), 1, &[if seq == 2 { payload } else { b"always" }]).unwrap();
            wal.sync().unwrap();
        }
        let disk: Arc<dyn Disk> = Arc::new(disk);
        Replay::open(&disk, Seq(1)).unwrap().tail().unwrap()
    };
    assert_eq!(tail(b"one"), tail(b"one"));
    assert_ne!(tail(b"one"), tail(b"two"));
    assert_ne!(tail(b"one"), tail(b"three"));
}

#[test]
fn an_fsync_that_finds_the_disk_full_is_final() {
    for skip in 0..4 {
        let disk = MemDisk::new();
        let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
        let (mut wal, _) = open(&faulty, 1).unwrap();
        faulty.arm(Fault::SyncFull, skip, Times::Once);
        let failed = (1..9).find_map(|seq| {
            let done = wal.append(Seq(seq), 1, &[b"x"]).and_then(|()| wal.sync());
            done.err()
        });
        assert_eq!(failed.map(|error| error.kind()), Some(ErrorKind::Io));
        assert_eq!(wal.sync().unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[test]
fn damage_is_an_error_except_in_the_last_group() {
    let disk = MemDisk::new();
    let records = written(&disk, 25);
    let files = log_files(&disk);
    assert!(files.len() > 2, "{files:?}");
    let mut random = StdRng::seed_from_u64(1);
    let (mut errors, mut shortened) = (0, 0);
    for name in &files {
        let whole = disk.contents(name).unwrap();
        for _ in 0..300 {
            let mut bytes = whole.clone();
            bytes[random.random_range(0..whole.len())] ^= 1 << random.random_range(0..8);
            let damaged = disk.crash(0);
            damaged.place(name, &bytes);
            match open(&damaged, 1) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    assert!(error.message().contains(name), "{error}");
                    assert_eq!(damaged.contents(name).unwrap(), bytes, "the evidence is gone");
                    errors += 1;
                }
                Ok((_, found)) => {
                    assert!(Some(name) == files.last(), "damage in {name} was not seen");
                    assert!(found.len() + 3 >= records.len() && records.starts_with(&found));
                    shortened += 1;
                }
            }
        }
    }
    assert!(errors > 600 && shortened > 0, "{errors} errors, {shortened} shortened");
}

#[test]
fn a_closed_log_shows_all_damage() {
    let disk = MemDisk::new();
    written(&disk, 3);
    open(&disk, 1).unwrap().0.close().unwrap();
    let name = log_files(&disk).pop().unwrap();
    let whole = disk.contents(&name).unwrap();
    for at in 0..whole.len() - FRAME_HEAD_BYTES {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let damaged = disk.crash(0);
        damaged.place(&name, &bytes);
        assert!(open(&damaged, 1).is_err(), "byte {at} of {}", whole.len());
    }
}

#[test]
fn missing_and_shortened_files_are_errors() {
    let disk = MemDisk::new();
    let records = written(&disk, 25);
    let files = log_files(&disk);
    let last_seq = records.len() as u64;
    for (i, name) in files.iter().enumerate() {
        let is_last = i + 1 == files.len();
        let without = disk.crash(0);
        without.remove(name).unwrap();
        match open(&without, 1) {
            // With its last file a log loses its end without a trace.
            Ok(_) => assert!(is_last),
            Err(error) => assert!(error.message().contains(name), "{error}"),
        }
        assert!(is_last || open(&without, last_seq).is_ok(), "{name} is not needed");
        let whole = disk.contents(name).unwrap();
        for length in [0, 1, HEADER_BYTES, HEADER_BYTES + 7, whole.len() / 2, whole.len() - 1] {
            let short = disk.crash(0);
            short.place(name, &whole[..length]);
            match open(&short, 1) {
                Ok((_, found)) => {
                    assert!(is_last && records.starts_with(&found), "{name} {length}")
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
            }
        }
    }
}

#[test]
fn readers_leave_the_log_alone() {
    let disk = MemDisk::new();
    let records = written(&disk, 10);
    let name = log_files(&disk).pop().unwrap();
    let mut torn = disk.contents(&name).unwrap();
    torn.extend_from_slice(b"torn");
    disk.place(&name, &torn);
    let steps = disk.steps();
    let replay = Replay::open(&disk.shared(), Seq(5)).unwrap();
    let found: Vec<Record> = replay.collect::<Result<_>>().unwrap();
    assert!(found == records[4..]);
    assert_eq!(disk.steps(), steps);
    assert_eq!(disk.contents(&name).unwrap(), torn);
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut random = StdRng::seed_from_u64(3);
    let base = MemDisk::new();
    written(&base, 12);
    for round in 0..2_000 {
        let disk = base.crash(0);
        for name in log_files(&base) {
            let mut bytes = base.contents(&name).unwrap();
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(0..bytes.len());
                match random.random_range(0..4) {
                    0 => bytes[at] = random.random(),
                    1 => bytes.truncate(at + 1),
                    2 => bytes.rotate_left(at),
                    _ => bytes.extend_from_within(..at),
                }
            }
            disk.place(&name, &bytes);
        }
        if let Ok((mut wal, found)) = open(&disk, 1) {
            assert!(found.windows(2).all(|pair| pair[0].seq < pair[1].seq), "round {round}");
            let next = wal.next_seq();
            wal.append(next, 0, &[]).unwrap();
            wal.sync().unwrap();
        }
    }
}

#[test]
fn large_records_and_groups_keep_to_their_bounds() {
    let disk = MemDisk::new();
    let (mut wal, _) = Wal::open(disk.shared(), Seq(1), 42).unwrap();
    let large: Vec<u8> = (0..41_u32 << 20).map(|i| (i % 251) as u8).collect();
    wal.append(Seq(1), 1, &[&large[..7], &[], &large[7..]]).unwrap();
    assert!(wal.group.capacity() <= 2 * GROUP_BYTES_MAX);
    let mib = &large[..1 << 20];
    let too_large = vec![mib; (RECORD_BYTES_MAX >> 20) + 1];
    let error = wal.append(Seq(2), 1, &too_large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    for seq in 2..20 {
        wal.append(Seq(seq), 1, &[mib]).unwrap();
        assert!(wal.group.capacity() <= 2 * GROUP_BYTES_MAX);
    }
    wal.sync().unwrap();
    let (_, found) = open(&disk, 1).unwrap();
    assert_eq!(found.len(), 19);
    assert!(found[0].payload == large);
}

#[test]
fn a_record_in_pieces_is_found_whole_or_not_at_all() {
    let disk = MemDisk::new();
    let mut records = written(&disk, 3);
    let (mut wal, _) = open(&disk, 1).unwrap();
    let acknowledged = records.len();
    // Behind one that is whole, so that pieces come behind a frame that is not durable either.
    for length in [30, 10 * SMALL_PIECE_BYTES + 7] {
        let payload = (0..length).map(|i| i as u8).collect();
        records.push(Record { seq: wal.next_seq(), kind: 2, payload });
        append(&mut wal, &records[records.len() - 1]).unwrap();
    }
    wal.guarded(Wal::write_group).unwrap();
    let name = log_files(&disk).pop().unwrap();
    let whole = disk.contents(&name).unwrap();
    let check = |bytes: &[u8], what: &str| {
        let torn = disk.crash(0);
        torn.place(&name, bytes);
        let (mut wal, found) = open(&torn, 1).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(found.len() >= acknowledged && records.starts_with(&found), "{what}");
        assert_eq!(found.len() == records.len(), bytes == whole, "{what}");
        // What comes next is not taken for a part of it.
        let next = Record { seq: wal.next_seq(), kind: 2, payload: vec![7; 1_000] };
        append(&mut wal, &next).unwrap();
        wal.sync().unwrap();
        let (_, again) = open(&torn, 1).unwrap();
        assert_eq!((again.len(), again.last()), (found.len() + 1, Some(&next)), "{what}");
    };
    for length in HEADER_BYTES..=whole.len() {
        check(&whole[..length], &format!("cut to {length} of {}", whole.len()));
    }
    for at in (HEADER_BYTES..whole.len()).step_by(40) {
        let mut bytes = whole.clone();
        bytes.iter_mut().skip(at).take(40).for_each(|byte| *byte = !*byte);
        check(&bytes, &format!("not arrived at {at}"));
    }
}

#[test]
fn pieces_that_do_not_belong_together_are_damage() {
    let disk = MemDisk::new();
    let (mut wal, _) = open(&disk, 1).unwrap();
    let payload = vec![1; 3 * SMALL_PIECE_BYTES];
    let piece = |wal: &mut Wal, seq: u64, content| {
        wal.group.resize(FRAME_HEAD_BYTES, 0);
        push_record_head(&mut wal.group, Seq(seq), 1, payload.len() as u32);
        wal.group.extend_from_slice(&payload);
        wal.write_frame(content).unwrap();
    };
    let first = Content { records: 1, part: Part::Piece };
    for (seq, part) in [(2, Part::LastPiece), (2, Part::Piece), (2, Part::Whole), (1, Part::Whole)]
    {
        piece(&mut wal, 1, first);
        piece(&mut wal, seq, Content { records: 1, part });
        wal.sync_active().unwrap();
        let error = open(&disk, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("record 1 lacks its end"), "{error}");
        let name = log_files(&disk).pop().unwrap();
        disk.remove(&name).unwrap();
        wal = open(&disk, 1).unwrap().0;
    }
}

#[test]
fn a_cut_leaves_only_needed_files() {
    let disk = MemDisk::new();
    let records = written(&disk, 30);
    let (mut wal, _) = open(&disk, 1).unwrap();
    let files = log_files(&disk).len();
    assert_eq!(wal.cut(Seq(records.len() as u64 / 2)).unwrap() + log_files(&disk).len(), files);
    let next = wal.next_seq();
    wal.append(next, 0, &[b"last"]).unwrap();
    wal.sync().unwrap();
    wal.cut(Seq(next.0 + 1)).unwrap();
    assert_eq!(log_files(&disk), Vec::<String>::new());
    let (wal, found) = open(&disk, next.0 + 1).unwrap();
    assert_eq!((wal.next_seq(), found), (Seq(next.0 + 1), Vec::new()));
}

#[test]
fn a_real_directory_works_too() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(LocalDisk::new(dir.path()));
    for round in 0..5_u64 {
        let (mut wal, replay) = Wal::open(Arc::clone(&disk), Seq(1), round).unwrap();
        assert_eq!(replay.count() as u64, round * 2);
        for _ in 0..2 {
            let next = wal.next_seq();
            wal.append(next, 3, &[b"some ", b"bytes"]).unwrap();
        }
        wal.sync().unwrap();
    }
}

/// How many files below a directory this process holds open.
#[cfg(target_os = "linux")]
fn open_below(dir: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(dir) && target.extension().is_some()).count()
}

/// A log of a thousand files could not be opened, as all of them were open at once, and so it could not be repaired.
#[cfg(target_os = "linux")]
#[test]
fn few_files_of_a_long_log_are_open_at_once() {
    const FILES: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(LocalDisk::new(dir.path()));
    let (mut wal, _) = Wal::open(Arc::clone(&disk), Seq(1), 42).unwrap();
    wal.file_bytes_max = 1;
    for seq in 1..=FILES {
        wal.append(Seq(seq), 1, &[b"payload"]).unwrap();
        wal.sync().unwrap();
    }
    drop(wal);
    let few = |what: &str| {
        let open = open_below(dir.path());
        assert!(open < 40, "{what}: {open} files are open");
    };
    let (_, replay) = Wal::open(Arc::clone(&disk), Seq(1), 42).unwrap();
    few("after the open");
    let records = replay.map(Result::unwrap).inspect(|_| few("replay")).count() as u64;
    assert_eq!(records, FILES);
    let mut found = 0;
    let take = |what| {
        few("salvage");
        found += u64::from(matches!(what, Found::Record(_)));
        Ok(())
    };
    salvage(&*disk, Seq(1), take).unwrap();
    assert_eq!(found, FILES);
}

#[test]
fn a_log_is_too_long_until_half_of_it_is_cut() {
    let disk = MemDisk::new();
    let (mut wal, _) = open(&disk, 1).unwrap();
    wal.file_bytes_max = 1;
    for seq in 1..=20 {
        wal.append(Seq(seq), 1, &[&[0; 100]]).unwrap();
        wal.sync().unwrap();
    }
    let bytes = |disk: &MemDisk| -> u64 {
        log_files(disk).iter().map(|name| disk.contents(name).unwrap().len() as u64).sum()
    };
    let all = bytes(&disk);
    assert_eq!(wal.place_to_cut(all), None);
    let place = wal.place_to_cut(all - 1).unwrap();
    assert_eq!(wal.place_to_cut(1), Some(Seq(21)));
    drop(wal);
    let (mut wal, _) = open(&disk, 1).unwrap();
    assert_eq!(wal.place_to_cut(all - 1), Some(place));
    wal.cut(place).unwrap();
    // It was sealed when it was opened.
    let left = bytes(&disk) - FRAME_HEAD_BYTES as u64;
    assert!((all / 3..=all / 2).contains(&left), "{left} of {all}");
    assert_eq!(wal.place_to_cut(all - 1), None);
}

/// It holds as many files as it may; others are an error, not passed over.
#[test]
fn a_reader_notices_what_is_cut_of_a_long_log() {
    for (files, is_whole) in [(16, true), (40, false)] {
        let disk = MemDisk::new();
        let (mut wal, _) = open(&disk, 1).unwrap();
        wal.file_bytes_max = 1;
        for seq in 1..=files {
            wal.append(Seq(seq), 1, &[b"payload"]).unwrap();
            wal.sync().unwrap();
        }
        let replay = Replay::open(&disk.shared(), Seq(1)).unwrap();
        assert_eq!(wal.cut(Seq(files + 1)).unwrap() as u64, files);
        let mut found: Vec<Result<Record>> = replay.collect();
        let end = found.pop_if(|last| last.is_err());
        let seqs: Vec<u64> = found.into_iter().map(|record| record.unwrap().seq.0).collect();
        assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
        assert_eq!((end.is_none(), seqs.len() as u64 == files), (is_whole, is_whole), "{end:?}");
    }
}
