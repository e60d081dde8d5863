//! Damage to every file of a database, byte by byte: what is read then is right or a typed error
//! that names the file, everything else stays readable, and `verify` finds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::Db;
use tidefall_types::{Error, ErrorKind, ManualClock};

use crate::asking::open;
use crate::image::{AGES, Answer, End, Image, NOW_NS, TABLES, answers};
use crate::rounds;

/// What is done to a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// A bit is another.
    Flip { byte: usize, bit: u8 },
    /// Only so many bytes are left.
    Cut(usize),
    /// A byte is too many.
    Longer,
    /// It is gone.
    Gone,
}

/// What became of it.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    damages: u64,
    /// The database did not open.
    refused: u64,
    /// Some answers were errors.
    errors: u64,
    /// All answers were right.
    harmless: u64,
}

/// A file and what may suffer with it.
struct Target<'a> {
    image: &'a Image,
    name: &'a str,
    bytes: &'a [u8],
}

impl Target<'_> {
    fn extension(&self) -> &str {
        self.name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// The table that the file is of.
    fn table(&self) -> Option<&'static str> {
        let of_table = |table: &&&str| self.image.files_of[**table].contains(self.name);
        TABLES.iter().find(of_table).copied()
    }

    /// Where the pieces of a segment end and its index begins.
    fn pieces_end(&self) -> Option<usize> {
        if !matches!(self.extension(), "kv" | "short" | "long") {
            return None;
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
        let tail = self.bytes.len() - 24;
        let footer = &self.bytes[number(&self.bytes[tail..tail + 8])..tail];
        let parts = number(&footer[footer.len() - 8..footer.len() - 4]);
        let table = &footer[footer.len() - 8 - 4 * parts..];
        let description = number(&table[..4]);
        Some(number(&footer[description..description + 8]))
    }

    fn disk(&self, damage: Damage) -> MemDisk {
        let disk = MemDisk::new();
        for (name, bytes) in self.image.files.iter().filter(|(name, _)| *name != self.name) {
            disk.place(name, bytes);
        }
        let mut bytes = self.bytes.to_vec();
        match damage {
            Damage::Flip { byte, bit } => bytes[byte] ^= 1 << bit,
            Damage::Cut(length) => bytes.truncate(length),
            Damage::Longer => bytes.push(0),
            Damage::Gone => return disk,
        }
        disk.place(self.name, &bytes);
        disk
    }

    fn check(&self, damage: Damage, counts: &mut Counts) {
        counts.damages += 1;
        let what = format!("{} of {}, {damage:?}", self.name, self.bytes.len());
        let clock = Arc::new(ManualClock::new(NOW_NS));
        match open(self.disk(damage), &clock) {
            Err(error) => {
                counts.refused += 1;
                let may_refuse =
                    self.name.starts_with("wal/") || self.name.starts_with("manifest/");
                assert!(may_refuse, "{what}: the database does not open: {error}");
                self.check_error(&error, &what);
            }
            Ok(db) => {
                let errors = self.check_answers(&db, damage, &what);
                match errors {
                    0 => counts.harmless += 1,
                    _ => counts.errors += 1,
                }
                self.check_verify(&db, damage, &what);
            }
        }
    }

    fn check_error(&self, error: &Error, what: &str) {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
        // Of the last file of the log only its folder is known when it is gone.
        let place = if self.name.starts_with("wal/") { "wal" } else { self.name };
        assert!(error.message().contains(place), "{what}: {error}");
    }

    /// Compares all answers with those without damage. Returns the number of errors.
    fn check_answers(&self, db: &Db, damage: Damage, what: &str) -> usize {
        let (mut errors, found) = (Vec::new(), answers(db));
        for (question, (answer, right)) in found.iter().zip(&self.image.answers).enumerate() {
            assert_eq!((&answer.table, &answer.sensor), (&right.table, &right.sensor), "{what}");
            match (&answer.columns, &right.columns) {
                (Ok(found), Ok(right)) => assert!(found == right, "{what}: {question} is wrong"),
                (Err(error), _) => {
                    self.check_error(error, what);
                    errors.push(answer);
                }
                (_, Err(error)) => panic!("without damage there is an error: {error}"),
            }
        }
        self.check_extent(&errors, damage, what);
        errors.len()
    }

    /// No more than must be is lost with a damaged place.
    fn check_extent(&self, errors: &[&Answer], damage: Damage, what: &str) {
        let table = self.table();
        for answer in errors {
            assert_eq!(Some(answer.table), table, "{what}: another table suffers");
            let age = AGES.iter().find(|age| age.model == self.extension());
            let is_near = age.is_none_or(|age| answer.time.overlaps(&age.time));
            assert!(is_near, "{what}: {} suffers", answer.time);
        }
        let is_in_page = match (damage, self.pieces_end()) {
            (Damage::Flip { byte, .. }, Some(end)) => (24..end).contains(&byte),
            _ => false,
        };
        if is_in_page {
            let one = errors.first().map(|answer| &answer.sensor);
            let others = errors.iter().find(|answer| Some(&answer.sensor) != one);
            assert!(one.is_some() && others.is_none(), "{what}: not just one sensor suffers");
        }
    }

    fn check_verify(&self, db: &Db, damage: Damage, what: &str) {
        let report = db.verify().unwrap_or_else(|error| panic!("{what}: {error}"));
        let names_it = |damage: &&Error| damage.message().contains(self.name);
        let is_found = report.damages.iter().any(|damage| names_it(&damage));
        // The log is checked when it is opened, and of the manifest old objects are deleted.
        let is_in = |dir: &str| self.name.starts_with(dir);
        let may_be_overlooked =
            is_in("wal/") || is_in("manifest/") && matches!(damage, Damage::Gone);
        assert!(is_found || may_be_overlooked, "{what}: verify finds {report:?}");
    }

    /// The damages to try: all bytes of a small file, some of a large one.
    fn damages(&self, most: usize) -> Vec<Damage> {
        let mut rng = SmallRng::seed_from_u64(self.bytes.len() as u64);
        let length = self.bytes.len();
        let mut places: Vec<usize> = (0..length).collect();
        while places.len() > most {
            places.swap_remove(rng.random_range(0..places.len()));
        }
        let flips = places.iter().map(|&byte| Damage::Flip { byte, bit: rng.random_range(0..8) });
        let mut damages: Vec<Damage> = flips.collect();
        let cuts = places.iter().step_by(16).chain([&0, &1]).filter(|cut| **cut < length);
        damages.extend(cuts.map(|&cut| Damage::Cut(cut)));
        damages.extend([Damage::Cut(length - 1), Damage::Longer, Damage::Gone]);
        damages
    }
}

#[test]
fn damage_anywhere_is_named_and_hurts_nothing_else() {
    let all = damage_everywhere(End::Closed, |_| true);
    for kind in ["kv", "short", "long", "sensors", "delta", "checkpoint", "log"] {
        assert!(all.contains_key(kind), "there was no {kind} file");
    }
    for kind in ["delta", "checkpoint"] {
        assert_eq!(all[kind].refused, 0, "the manifest stands on storage twice");
    }
}

#[test]
fn damage_to_the_manifest_of_a_killed_process_is_named() {
    let all = damage_everywhere(End::Killed, |name| name.starts_with("manifest/"));
    assert!(all["delta"].refused > 100, "{all:?}");
}

fn damage_everywhere(end: End, is_hit: impl Fn(&str) -> bool) -> BTreeMap<String, Counts> {
    let image = Image::new(end);
    let last_delta = image.files.keys().rfind(|name| name.ends_with(".delta")).cloned();
    let mut all: BTreeMap<String, Counts> = BTreeMap::new();
    for (name, bytes) in image.files.iter().filter(|(name, _)| is_hit(name)) {
        let target = Target { image: &image, name, bytes };
        let most = if target.extension() == "delta" { 4 } else { 250 };
        let counts = all.entry(target.extension().to_owned()).or_default();
        for damage in target.damages(most * rounds(1) as usize) {
            let is_gone = matches!(damage, Damage::Gone) && last_delta.as_ref() == Some(name);
            // Of a killed process nothing else speaks of its last commit.
            if end == End::Closed || !is_gone {
                target.check(damage, counts);
            }
        }
    }
    for (kind, counts) in &all {
        println!("{end:?}, {kind}: {counts:?}");
    }
    all
}
