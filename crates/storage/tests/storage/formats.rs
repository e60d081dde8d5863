//! Databases that earlier versions wrote are read by this one. Each file in `formats` holds all files of a database
//! whose process was killed: its log, objects of every model, and the manifest.
//!
//! When a format changes, `TIDEFALL_FORMAT=n cargo test -p tidefall-storage --test storage formats -- --ignored`,
//! run before the change, adds the file of what is the old format then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidefall_simulation::MemDisk;
use tidefall_types::ManualClock;

use crate::asking::open;
use crate::image::{End, Image, NOW_NS, answers};

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/storage/formats")
}

/// The files of a database, one behind the other: lengths of name and bytes, name, bytes.
fn pack(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, bytes) in files {
        packed.extend_from_slice(&(name.len() as u32).to_le_bytes());
        packed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        packed.extend_from_slice(name.as_bytes());
        packed.extend_from_slice(bytes);
    }
    packed
}

fn unpack(mut packed: &[u8]) -> MemDisk {
    let disk = MemDisk::new();
    let mut take = |length: usize| {
        let (taken, rest) = packed.split_at(length);
        packed = rest;
        (taken.to_vec(), rest.len())
    };
    let length = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
    loop {
        let (name, bytes) = (length(&take(4).0), length(&take(4).0));
        let name = String::from_utf8(take(name).0).unwrap();
        let (bytes, left) = take(bytes);
        disk.place(&name, &bytes);
        if left == 0 {
            return disk;
        }
    }
}

#[test]
fn databases_of_earlier_formats_answer_as_one_of_today() {
    let expected = Image::new(End::Killed).answers;
    let mut found = 0;
    for entry in dir().read_dir().unwrap() {
        let path = entry.unwrap().path();
        let disk = unpack(&std::fs::read(&path).unwrap());
        let clock = Arc::new(ManualClock::new(NOW_NS));
        // Once as it was left, once as this version leaves it.
        for _ in 0..2 {
            let db = open(disk.clone(), &clock).unwrap();
            for (found, expected) in answers(&db).iter().zip(&expected) {
                let of = format!("{}: {} sensor {}", path.display(), found.table, found.sensor);
                assert_eq!(found.columns, expected.columns, "{of} in {}", found.time);
            }
            assert_eq!(db.verify().unwrap().damages, []);
            db.close().unwrap();
        }
        found += 1;
    }
    assert!(found > 0, "no fixtures");
}

#[test]
#[ignore = "writes into the checkout"]
fn write_a_database_of_this_format() {
    let format = std::env::var("TIDEFALL_FORMAT").unwrap();
    let packed = pack(&Image::new(End::Killed).files);
    std::fs::create_dir_all(dir()).unwrap();
    std::fs::write(dir().join(format!("{format}.files")), packed).unwrap();
}
