//! Manifest objects of arbitrary bytes, and whole ones with arbitrary bodies: opening gives a state
//! or an error.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;

// The manifest is no part of the public interface, so the target is built from its source.
#[allow(dead_code, unused_imports)]
#[path = "../../crates/storage/src/manifest/mod.rs"]
mod manifest;
#[allow(dead_code, unused_imports)]
#[path = "../../crates/storage/src/store/mod.rs"]
mod store;

use manifest::log::{LogState, ManifestLog};
use manifest::{Edit, State};
use store::{LocalIo, MemDisk, ObjectIo};

impl LogState for State {
    type Edit = Edit;

    fn apply(&mut self, edit: &Edit) {
        State::apply(self, edit);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else { return };
    let disk = MemDisk::new();
    let (name, kind) = match mode & 1 {
        0 => ("manifest/00000000000000000001.delta", 1),
        _ => ("manifest/00000000000000000001.checkpoint", 2),
    };
    if mode & 2 == 0 {
        disk.place(name, data);
    } else {
        disk.place(name, &framed(kind, data));
    }
    let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open_read_only(Arc::new(disk)));
    let _ = ManifestLog::<State>::open(io);
});

// A valid object around `body`, so that the text of the body is reached.
fn framed(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"TIDEFman".to_vec();
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    let mut rest = kind.to_le_bytes().to_vec();
    rest.extend_from_slice(&0_u32.to_le_bytes());
    rest.extend_from_slice(&1_u64.to_le_bytes());
    rest.extend_from_slice(&(body.len() as u64).to_le_bytes());
    rest.extend_from_slice(body);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &rest);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(&rest);
    bytes
}
