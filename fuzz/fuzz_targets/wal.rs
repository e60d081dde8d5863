//! Log files of arbitrary bytes, and real ones with arbitrary damage: replay gives an error or
//! records in order, and a log that opens can be written.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tidefall_types::Seq;

// The log is no part of the public interface, so the target is built from its source.
#[allow(dead_code, unused_imports)]
#[path = "../../crates/storage/src/store/mod.rs"]
mod store;
#[allow(dead_code, unused_imports)]
#[path = "../../crates/storage/src/wal/mod.rs"]
mod wal;

use store::{Disk, MemDisk};
use wal::{Replay, Wal};

fuzz_target!(|data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else { return };
    let disk = MemDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let name = "wal/0000000000000001.log";
    if mode % 2 == 0 {
        disk.place(name, data);
    } else {
        let (mut log, _) = Wal::open(Arc::clone(&shared), Seq(1), 1).expect("an empty disk");
        for (i, payload) in data.chunks(50).enumerate() {
            log.append(Seq(i as u64 + 1), mode, &[payload]).expect("a healthy disk");
            if i % 3 == 0 {
                log.sync().expect("a healthy disk");
            }
        }
        drop(log);
        damage(&disk, name, data);
    }
    let _ = Replay::open(Arc::clone(&shared), Seq(0)).map(|replay| replay.count());
    let Ok((mut log, replay)) = Wal::open(shared, Seq(0), 2) else { return };
    let mut last = None;
    for record in replay.map_while(Result::ok) {
        assert!(last < Some(record.seq));
        last = Some(record.seq);
    }
    let next = log.next_seq();
    log.append(next, 0, &[data]).and_then(|()| log.sync()).expect("a healthy disk");
});

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
