//! What is read ahead of a store that is slow, and may fail.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_store::{LocalIo, ObjectIo, ObjectWriter, ReadAhead};
use tidefall_types::{Error, ErrorKind, Result};

/// Counts reads, and fails those that begin at some bytes.
#[derive(Debug)]
struct Counting {
    io: LocalIo,
    fails_at: Option<u64>,
    reads: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Counting {
    fn new(objects: &[(String, Vec<u8>)], fails_at: Option<u64>) -> Arc<Self> {
        let io = LocalIo::open(Arc::new(MemDisk::new()), &["objects"]).unwrap();
        objects.iter().for_each(|(name, bytes)| io.put_new(name, &[bytes]).unwrap());
        let [reads, now, most] = [(); 3].map(|()| AtomicUsize::new(0));
        Arc::new(Self { io, fails_at, reads, now, most })
    }
}

impl ObjectIo for Counting {
    fn put_new(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.io.put_new(name, parts)
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.io.writer(name)
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(300));
        self.now.fetch_sub(1, Ordering::SeqCst);
        if self.fails_at == Some(range.start) {
            return Err(Error::new(ErrorKind::Io, "the store is away"));
        }
        self.io.read_range(name, range)
    }

    fn read_into(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.read_range(name, offset..offset + out.len() as u64)?;
        out.copy_from_slice(&bytes);
        Ok(())
    }

    fn will_read(&self, _: &str, _: Range<u64>) {}

    fn size(&self, name: &str) -> Result<u64> {
        self.io.size(name)
    }

    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        self.io.list(dir)
    }

    fn let_go(&self, name: &str) {
        self.io.let_go(name);
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.io.delete(name)
    }
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
        let store = Counting::new(&objects, None);
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
        assert!(store.most.load(Ordering::SeqCst) <= 3 + 3);
    }
}

#[test]
fn what_is_announced_is_read_once_and_side_by_side() {
    let mut rng = SmallRng::seed_from_u64(1);
    let objects = objects(&mut rng);
    let store = Counting::new(&objects, None);
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
    assert_eq!(store.reads.load(Ordering::SeqCst), 40);
    assert!(store.most.load(Ordering::SeqCst) > 1);
}

#[test]
fn a_read_ahead_that_fails_is_made_again_by_who_asks() {
    let mut rng = SmallRng::seed_from_u64(2);
    let objects = objects(&mut rng);
    let store = Counting::new(&objects, Some(100));
    let ahead = ReadAhead::new(store, 2, 10_000);
    ahead.will_read(&objects[0].0, 100..200);
    let error = ahead.read_range(&objects[0].0, 100..200).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(ahead.read_range(&objects[0].0, 101..200).unwrap(), objects[0].1[101..200]);
}
