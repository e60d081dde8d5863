//! The bodies of the fuzz targets with some thousand inputs each: real files with damage, drawn from a
//! seed. `cargo xtask fuzz` lets real fuzzers run for longer, from the same files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_fuzzing::{TARGETS, record_seeds};
use tidefall_simulation::MemDisk;
use tidefall_storage::{Ack, Target};
use tidefall_types::{ManualClock, NS_PER_SECOND};

use crate::asking::{ask, open};
use crate::history::{Op, Rows, START_NS};
use crate::image::{End, Image, files};
use crate::rounds;

/// Inputs of each target in a round.
const INPUTS: u64 = 3_000;
/// Where fuzzers shall find the real files, if anybody asks for them.
const CORPUS: &str = "TIDEFALL_CORPUS";
/// What programmers forget.
const ODD_BYTES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

/// Inputs of each target that make sense.
fn seeds() -> BTreeMap<&'static str, Vec<Vec<u8>>> {
    let mut seeds: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    let mut add = |target, mode: u8, bytes: &[u8]| {
        seeds.entry(target).or_default().push([&[mode], bytes].concat());
    };
    for (name, bytes) in Image::new(End::Closed).files {
        match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
            "kv" | "short" | "long" => add("segment", 1, &bytes),
            "sensors" => add("sensors", 1, &bytes),
            "log" => {
                add("wal", 0, &bytes);
                add("wal", 1, &bytes[..400]);
            }
            // A body, of which the fuzzer makes an object.
            "delta" => add("manifest", 2, &bytes[40..]),
            "checkpoint" => add("manifest", 3, &bytes[40..]),
            _ => {}
        }
    }
    seeds.entry("segment").or_default().extend(segments_with_blocks());
    seeds.insert("forged", single_lies());
    seeds.insert("record", record_seeds());
    seeds.insert("records", crate::records::seeds());
    seeds
}

/// Every way to replace one number, in every part of the frames, and of some frames of a segment with many.
fn single_lies() -> Vec<Vec<u8>> {
    let mut lies = Vec::new();
    for frame in 0..3 {
        for part in 0..40 {
            for row in [0, 4] {
                lies.extend((0..12).map(|how| vec![frame, part, row, 0, how]));
                lies.extend((0..12).map(|how| vec![5 * frame, part, row, 0, how, 0]));
            }
        }
    }
    lies
}

/// Segments with so many readings in an hour that each hour has its metrics, which in the second lie between the pieces.
fn segments_with_blocks() -> Vec<Vec<u8>> {
    [segments_of(800), segments_of(16_000)].concat()
}

fn segments_of(rows: i64) -> Vec<Vec<u8>> {
    let disk = MemDisk::new();
    let db = open(disk.clone(), &Arc::new(ManualClock::new(START_NS))).unwrap();
    let row = |row: i64| {
        // One sensor with a step, one without.
        let sensor = (row % 2) as u8;
        let late_ns = i64::from(sensor) * (row * row % 1_000);
        let value = ((row * 7_919 % 613) as f64 / 4.0, row / 3);
        (
            (sensor, START_NS - (row / 2) * 40 * NS_PER_SECOND + late_ns),
            (Some(value.0), Some(value.1)),
        )
    };
    let rows: Rows = (0..rows).map(row).collect();
    for op in [Op::Write("plant", rows, Ack::Durable), Op::Flush, Op::Cascade(Target::Long)] {
        ask(&db, &op).unwrap().unwrap();
    }
    let files = files(&disk).into_iter().filter(|(name, _)| name.starts_with("objects/"));
    files
        .filter(|(name, _)| !name.ends_with("sensors"))
        .map(|(_, b)| [&[1], &b[..]].concat())
        .collect()
}

/// Changes some bytes, in the ways in which mistakes hide.
fn damage(input: &mut Vec<u8>, other: &[u8], rng: &mut SmallRng) {
    for _ in 0..rng.random_range(1..6) {
        if input.is_empty() {
            return;
        }
        let at = rng.random_range(0..input.len());
        match rng.random_range(0..12) {
            0..4 => input[at] ^= 1 << rng.random_range(0..8),
            4..6 => input[at] = rng.random(),
            6..8 => input[at] = ODD_BYTES[rng.random_range(0..ODD_BYTES.len())],
            8 => {
                // A number of four bytes, at some length or count.
                let number = [u32::MAX, 0, 1 << 31, rng.random()][rng.random_range(0..4)];
                let bytes = number.to_le_bytes();
                input.iter_mut().skip(at).zip(bytes).for_each(|(old, new)| *old = new);
            }
            9 => input.truncate(at),
            10 => input.insert(at, rng.random()),
            _ => {
                // A stretch of another input.
                let from = rng.random_range(0..other.len());
                let length = rng.random_range(0..200).min(other.len() - from);
                let end = (at + length).min(input.len());
                input.splice(at..end, other[from..from + length].iter().copied());
            }
        }
    }
}

#[test]
fn the_seeds_of_the_fuzzers_with_damage_do_no_harm() {
    let seeds = seeds();
    if let Some(dir) = std::env::var_os(CORPUS) {
        return write_corpus(Path::new(&dir), &seeds);
    }
    for (name, target) in TARGETS {
        let seeds = &seeds[name];
        seeds.iter().for_each(|seed| target(seed));
        let mut rng = SmallRng::seed_from_u64(seeds.len() as u64);
        for number in 0..INPUTS * rounds(1) {
            let mut input = seeds[rng.random_range(0..seeds.len())].clone();
            let other = &seeds[rng.random_range(0..seeds.len())];
            damage(&mut input, other, &mut rng);
            let done = std::panic::catch_unwind(|| target(&input));
            assert!(done.is_ok(), "{name}, input {number}: {input:?}");
        }
        println!("{name}: {} inputs from {} seeds", INPUTS * rounds(1), seeds.len());
    }
}

fn write_corpus(dir: &Path, seeds: &BTreeMap<&'static str, Vec<Vec<u8>>>) {
    for (name, seeds) in seeds {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), seed).unwrap();
        }
    }
}
