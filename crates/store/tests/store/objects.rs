use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_store::{Disk, LocalDisk, LocalIo, ObjectIo};
use tidefall_types::ErrorKind;

const SMALL: usize = 10_000;

fn local() -> (tempfile::TempDir, LocalIo) {
    let dir = tempfile::tempdir().unwrap();
    let io = LocalIo::open(Arc::new(LocalDisk::new(dir.path())), &["objects", "manifest"]).unwrap();
    (dir, io)
}

fn mem(disk: &MemDisk) -> LocalIo {
    LocalIo::open(Arc::new(disk.clone()), &["objects", "manifest"]).unwrap()
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

#[test]
fn objects_are_written_once_and_read_in_ranges() {
    let (_dir, real) = local();
    for io in [&real as &dyn ObjectIo, &mem(&MemDisk::new())] {
        let body = bytes(1, SMALL);
        io.put_new("objects/deep/er/a", &[&body[..10], &[], &body[10..]]).unwrap();
        io.put_new("objects/b", &[]).unwrap();
        assert_eq!(io.read_all("objects/deep/er/a").unwrap(), body);
        assert_eq!(io.read_range("objects/deep/er/a", 7..99).unwrap(), &body[7..99]);
        let mut out = [0; 5];
        io.read_into("objects/deep/er/a", 9_995, &mut out).unwrap();
        assert_eq!(out, body[9_995..]);
        let error = io.put_new("objects/b", &[b"other"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(io.size("objects/b").unwrap(), 0);
        let listed = io.list("objects").unwrap();
        assert_eq!(listed, [("objects/b".into(), 0), ("objects/deep/er/a".into(), SMALL as u64)]);
        for range in [0..SMALL as u64 + 1, SMALL as u64 + 1..SMALL as u64 + 2, 5..u64::MAX] {
            let error = io.read_range("objects/deep/er/a", range).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
        io.delete("objects/b").unwrap();
        io.delete("objects/b").unwrap();
        assert_eq!(io.size("objects/b").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(io.list("nowhere").unwrap(), []);
    }
}

#[test]
fn names_cannot_leave_the_directory() {
    let (_dir, io) = local();
    for name in ["../a", "/etc/a", "objects/../../a", "objects//a", "./a"] {
        assert_eq!(io.put_new(name, &[b"x"]).unwrap_err().kind(), ErrorKind::Invalid, "{name}");
    }
}

#[test]
fn streamed_objects_appear_when_finished() {
    let (_dir, real) = local();
    let disk = MemDisk::new();
    for io in [&real as &dyn ObjectIo, &mem(&disk)] {
        let body = bytes(2, 5 << 20);
        let mut writer = io.writer("objects/big").unwrap();
        let mut at = 0;
        for (i, size) in [1, 100, 3 << 20, 1 << 20, 500].into_iter().cycle().enumerate() {
            let end = (at + size).min(body.len());
            writer.append(&body[at..end]).unwrap();
            at = end;
            assert_eq!(writer.bytes_written(), at as u64);
            assert!(io.size("objects/big").is_err());
            if i == 8 || at == body.len() {
                break;
            }
        }
        writer.finish().unwrap();
        assert_eq!(io.read_all("objects/big").unwrap(), body[..at]);

        let mut dropped = io.writer("objects/dropped").unwrap();
        dropped.append(&body).unwrap();
        drop(dropped);
        let mut late = io.writer("objects/big").unwrap();
        late.append(b"late").unwrap();
        assert_eq!(late.finish().unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(io.list("objects").unwrap(), [("objects/big".into(), at as u64)]);
    }
    assert_eq!(disk.list("objects").unwrap().len(), 1, "a temporary file stayed");
}

#[test]
fn leftovers_are_removed_at_open() {
    let (dir, io) = local();
    io.put_new("objects/a", &[b"a"]).unwrap();
    let leftover = dir.path().join("objects/b.7.tmp");
    std::fs::write(&leftover, "half").unwrap();
    assert_eq!(io.list("objects").unwrap().len(), 1);
    drop(io);
    LocalIo::open(Arc::new(LocalDisk::new(dir.path())), &["objects"]).unwrap();
    assert!(!leftover.exists());
}

fn bodies() -> [(&'static str, Vec<u8>); 2] {
    [("objects/a", bytes(3, 6_000)), ("objects/b", bytes(5, 3 << 20))]
}

// The first object is put, the second one streamed; the number that was acknowledged.
fn write_bodies(io: &dyn ObjectIo) -> usize {
    let [(a, a_body), (b, b_body)] = bodies();
    let put = io.put_new(a, &[&a_body[..10], &a_body[10..]]);
    let streamed = io.writer(b).and_then(|mut writer| {
        b_body.chunks(1 << 20).try_for_each(|part| writer.append(part))?;
        writer.finish()
    });
    usize::from(put.is_ok()) + usize::from(streamed.is_ok())
}

#[test]
fn power_loss_at_any_step_leaves_objects_whole() {
    for step in 0.. {
        let disk = MemDisk::new();
        let io = mem(&disk);
        disk.lose_power_after(step);
        let acknowledged = write_bodies(&io);
        for seed in 0..20 {
            let found = disk.crash(seed);
            for (i, (name, body)) in bodies().into_iter().enumerate() {
                match found.contents(name) {
                    None => assert!(i >= acknowledged, "step {step}: {name} is gone"),
                    Some(now) => assert!(now == body, "step {step}: {name} is torn"),
                }
            }
            let listed = mem(&found).list("objects").unwrap().len();
            assert_eq!(found.list("objects").unwrap().len(), listed, "a leftover stayed");
        }
        if acknowledged == 2 {
            assert!(step > 10, "only {step} steps were tried");
            break;
        }
    }
}

#[test]
fn every_fault_is_an_error_and_leaves_no_half_object() {
    for fault in Fault::ALL {
        for skip in 0..20 {
            let disk = MemDisk::new();
            let faulty = FaultDisk::new(Arc::new(disk.clone()), skip);
            let io = LocalIo::open(Arc::new(faulty.clone()), &["objects"]).unwrap();
            io.put_new("objects/old", &[b"old"]).unwrap();
            faulty.arm(fault, skip, Times::Once);
            let put = io.put_new("objects/a", &[&bytes(7, 100)]);
            let read = io.read_all("objects/old");
            let fired = faulty.fired() > 0;
            faulty.disarm();
            match disk.contents("objects/a") {
                Some(now) => assert_eq!(now, bytes(7, 100)),
                None => assert!(put.is_err(), "{fault:?} {skip}"),
            }
            match (fault, &read) {
                (Fault::FlippedBit, Ok(now)) => assert_eq!(fired, now != b"old"),
                (_, Ok(now)) => assert!(now == b"old" && put.is_err() == fired),
                (_, Err(_)) => assert!(fired && put.is_ok(), "{fault:?}"),
            }
            assert_eq!(io.read_all("objects/old").unwrap(), b"old");
            if !fired {
                break;
            }
        }
    }
}

#[test]
fn a_local_disk_does_not_follow_the_working_directory() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(LocalDisk::new("a/b").root(), here.join("a/b"));
    assert_eq!(LocalDisk::new("/a/b").root(), std::path::Path::new("/a/b"));
}
