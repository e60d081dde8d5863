//! What is read ahead of a store that is slow, and may fail.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{MemDisk, RemoteIo};
use tidefall_store::{LocalIo, ObjectIo, ReadAhead};
use tidefall_types::ErrorKind;

/// A store with some objects, whose reads take a moment.
fn store_of(objects: &[(String, Vec<u8>)]) -> Arc<RemoteIo> {
    let io = LocalIo::open(Arc::new(MemDisk::new()), &["objects"]).unwrap();
    objects.iter().for_each(|(name, bytes)| io.put_new(name, &[bytes]).unwrap());
    let store = RemoteIo::new(Arc::new(io));
    store.delay_reads(Duration::from_micros(300));
    Arc::new(store)
}

fn objects(rng: &mut SmallRng) -> Vec<(String, Vec<u8>)> {
    (0..3)
        .map(|object| {
            let bytes = (0..1_000).map(|_| rng.random()).collect();
            (format!("objects/{object}"), bytes)
        })
        .collect()
}

/// Whatever is announced, by whom and in which order: bytes are those of the store.
#[test]
fn what_is_read_is_what_is_stored() {
    const BYTES_MAX: u64 = 700;
    for seed in 0..10 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let objects = objects(&mut rng);
        let store = store_of(&objects);
        let ahead = ReadAhead::new(Arc::clone(&store) as Arc<dyn ObjectIo>, 3, BYTES_MAX);
        let reader = |seed: u64| {
            let mut rng = SmallRng::seed_from_u64(seed);
            for _ in 0..200 {
                let (name, bytes) = &objects[rng.random_range(0..objects.len())];
                // Often the same ones.
                let start = rng.random_range(0..10) * 90;
                let range = start..start + rng.random_range(1..4) * 30;
                match rng.random_range(0..10) {
                    0..5 => ahead.will_read(name, range),
                    9 => ahead.let_go(name),
                    _ => {
                        let expected = &bytes[range.start as usize..range.end as usize];
                        assert_eq!(ahead.read_range(name, range).unwrap(), expected);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|thread| drop(scope.spawn(move || reader(10 * seed + thread))));
        });
        // Those who ask may read, too.
        assert!(store.take_reads().most <= 3 + 3);
    }
}

#[test]
fn what_is_announced_is_read_once_and_side_by_side() {
    let mut rng = SmallRng::seed_from_u64(1);
    let objects = objects(&mut rng);
    let store = store_of(&objects);
    let ahead = ReadAhead::new(Arc::clone(&store) as Arc<dyn ObjectIo>, 8, 10_000);
    for start in 0..40 {
        ahead.will_read(&objects[0].0, start * 25..start * 25 + 25);
    }
    for start in 0..40 {
        // Also in parts.
        let parts = [start * 25..start * 25 + 10, start * 25..start * 25 + 25];
        for range in parts {
            let expected = &objects[0].1[range.start as usize..range.end as usize];
            assert_eq!(ahead.read_range(&objects[0].0, range).unwrap(), expected);
        }
    }
    let reads = store.take_reads();
    assert!(reads.count == 40 && reads.most > 1, "{reads:?}");
}

/// A store that gives less than it was asked for is told from damage, whether it was read ahead or not.
#[test]
fn reads_that_are_cut_short_are_errors() {
    let mut rng = SmallRng::seed_from_u64(3);
    let objects = objects(&mut rng);
    let store = store_of(&objects);
    store.cut_reads_at(100);
    let ahead = ReadAhead::new(Arc::clone(&store) as Arc<dyn ObjectIo>, 2, 10_000);
    let name = &objects[0].0;
    ahead.will_read(name, 100..200);
    for range in [100..200, 100..150, 120..130] {
        match ahead.read_range(name, range.clone()) {
            Ok(bytes) => assert_eq!(bytes, objects[0].1[120..130], "{range:?}"),
            Err(error) => {
                assert!(error.message().contains("the store gave"), "{error}");
                assert_eq!(error.kind(), ErrorKind::Io, "nothing is damaged: {error}");
            }
        }
    }
    ahead.will_read(name, 100..200);
    let mut bytes = [0; 100];
    ahead.read_into(name, 100, &mut bytes).unwrap();
    assert_eq!(bytes, objects[0].1[100..200]);
}

#[test]
fn a_read_ahead_that_fails_is_made_again_by_who_asks() {
    let mut rng = SmallRng::seed_from_u64(2);
    let objects = objects(&mut rng);
    let store = store_of(&objects);
    store.fail_reads_at(100);
    let ahead = ReadAhead::new(store, 2, 10_000);
    ahead.will_read(&objects[0].0, 100..200);
    let error = ahead.read_range(&objects[0].0, 100..200).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(ahead.read_range(&objects[0].0, 101..200).unwrap(), objects[0].1[101..200]);
}
