//! The log and the manifest.

use std::sync::Arc;

use tidefall_ground::manifest::State;
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::object::{Kind, encode};
use tidefall_ground::wal::{Replay, Wal};
use tidefall_simulation::MemDisk;
use tidefall_store::{Disk, LocalIo, ObjectIo, names};
use tidefall_types::Seq;

use crate::check_error;

/// A log file of arbitrary bytes, or a real one with arbitrary damage: replay gives an error or
/// records in order, and a log that opens can be written.
pub fn wal(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let disk = MemDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let name = names::wal_file(1);
    if mode % 2 == 0 {
        disk.place(&name, data);
    } else {
        write_log(&shared, mode, data);
        damage(&disk, &name, data);
    }
    let read = Replay::open(&shared, Seq(0)).map(|replay| replay.count());
    read.map_or_else(|error| check_error(&error), drop);
    let (mut log, replay) = match Wal::open(shared, Seq(0), 2) {
        Ok(opened) => opened,
        Err(error) => return check_error(&error),
    };
    let mut last = None;
    for record in replay {
        match record {
            Ok(record) => {
                assert!(last < Some(record.seq), "records are out of order");
                last = Some(record.seq);
            }
            Err(error) => check_error(&error),
        }
    }
    let next = log.next_seq();
    assert!(last < Some(next), "the next record comes before the last");
    let written = log.append(next, 0, &[data]).and_then(|()| log.sync());
    assert!(written.is_ok(), "the disk is well: {written:?}");
}

fn write_log(disk: &Arc<dyn Disk>, mode: u8, data: &[u8]) {
    let Ok((mut log, _)) = Wal::open(Arc::clone(disk), Seq(1), 1) else { return };
    if mode & 2 == 2 {
        // Most records are in pieces then.
        log.cut_pieces_of(20);
    }
    for (number, payload) in data.chunks(50).enumerate() {
        let appended = log.append(Seq(number as u64 + 1), mode, &[payload]);
        let synced = if number % 3 == 0 { log.sync() } else { Ok(()) };
        assert!(appended.and(synced).is_ok(), "the disk is well");
    }
}

// Four bytes of `data` are one change: where, and what.
fn damage(disk: &MemDisk, name: &str, data: &[u8]) {
    let Some(mut bytes) = disk.contents(name) else { return };
    for change in data.chunks_exact(4).take(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len().max(1);
        match change[2] % 4 {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_slice(change),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= change[3]),
        }
    }
    disk.place(name, &bytes);
}

/// An object of the manifest of arbitrary bytes, or a whole one with an arbitrary body: opening
/// gives a state or an error.
pub fn manifest(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let disk = MemDisk::new();
    let (kind, name) = match mode & 1 {
        0 => (Kind::Delta, names::manifest_delta(1)),
        _ => (Kind::Checkpoint, names::manifest_checkpoint(1)),
    };
    match mode & 2 {
        0 => disk.place(&name, data),
        _ => disk.place(&name, &encode(kind, 7, 1, data)),
    }
    let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open_read_only(Arc::new(disk)));
    match ManifestLog::<State>::open(io) {
        Ok(log) => assert!(log.verify().is_ok_and(|(_, damages)| damages.is_empty())),
        Err(error) => check_error(&error),
    }
}
