//! Histories: what was asked of a database and what it said, and from that the readings that it may
//! hold, now or after it was opened again.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{Ack, Target};
use tidefall_types::{FieldType, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, TimeRange};

/// 2024-03-10: the last 70 days reach into all three models.
pub const START_NS: i64 = 19_792 * NS_PER_DAY;
/// What tables that forget keep.
pub const RETENTION_NS: i64 = 50 * NS_PER_DAY;

pub const TABLES: [&str; 2] = ["plant", "yard"];
const SENSORS: u8 = 3;

pub type Values = (Option<f64>, Option<i64>);
/// The readings of a table, by sensor and time.
pub type Rows = BTreeMap<(u8, i64), Values>;

/// One request to a database.
#[derive(Debug, Clone)]
pub enum Op {
    /// The table forgets old readings if asked to.
    Create(&'static str, Forgets),
    Drop(&'static str),
    Write(&'static str, Rows, Ack),
    Load(&'static str, Rows),
    Delete(&'static str, Option<u8>, TimeRange),
    Flush,
    /// As when memory is full.
    FreeMemory,
    Cascade(Target),
    /// The field `count` gets another type.
    Retype(&'static str, FieldType),
    /// Time passes.
    Wait(i64),
    /// An orderly close, and an open.
    Reopen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgets {
    Nothing,
    OldReadings,
}

/// Requests drawn from a seed. They reach into all models, and every table is dropped and created
/// now and then.
pub fn requests(seed: u64, length: usize) -> Vec<Op> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut now_ns = START_NS;
    (0..length)
        .map(|_| {
            let table = TABLES[rng.random_range(0..TABLES.len())];
            match rng.random_range(0..42) {
                0..13 => Op::Write(table, rows(&mut rng, now_ns), Ack::Durable),
                13..18 => Op::Write(table, rows(&mut rng, now_ns), Ack::Memory),
                18..21 => Op::Load(table, rows(&mut rng, now_ns)),
                21..25 => {
                    let sensor = rng.random_bool(0.7).then(|| rng.random_range(0..SENSORS));
                    let first = time(&mut rng, now_ns);
                    let length = rng.random_range(0..5 * NS_PER_DAY);
                    Op::Delete(table, sensor, TimeRange::new(first, first + length))
                }
                25..27 => Op::Flush,
                27 => Op::FreeMemory,
                28..34 => Op::Cascade(match rng.random_range(0..4) {
                    0..2 => Target::ByAge,
                    2 => Target::Short,
                    _ => Target::Long,
                }),
                34 => Op::Drop(table),
                35 => Op::Create(table, Forgets::OldReadings),
                36 => Op::Create(table, Forgets::Nothing),
                37 => {
                    let pause = rng.random_range(0..3 * NS_PER_DAY);
                    now_ns += pause;
                    Op::Wait(pause)
                }
                38..40 => {
                    let types = [FieldType::I16, FieldType::I64, FieldType::F64];
                    Op::Retype(table, types[rng.random_range(0..types.len())])
                }
                _ => Op::Reopen,
            }
        })
        .collect()
}

fn time(rng: &mut SmallRng, now_ns: i64) -> i64 {
    let back = match rng.random_range(0..10) {
        0..5 => rng.random_range(0..2 * 24 * 60),
        5..9 => rng.random_range(0..70 * 24 * 60),
        _ => rng.random_range(0..20 * 365 * 24 * 60),
    };
    now_ns - back * NS_PER_MINUTE
}

fn rows(rng: &mut SmallRng, now_ns: i64) -> Rows {
    let first = time(rng, now_ns);
    let step = [NS_PER_MINUTE, NS_PER_HOUR, NS_PER_DAY][rng.random_range(0..3)];
    let count = rng.random_range(1..25);
    (0..count)
        .map(|row| {
            let time = if rng.random_bool(0.8) { first + row * step } else { time(rng, now_ns) };
            let float = f64::from(rng.random_range(-9_999..9_999)) / 100.0;
            let int = rng.random_range(-1_000..1_000);
            let values =
                (rng.random_bool(0.9).then_some(float), rng.random_bool(0.7).then_some(int));
            ((rng.random_range(0..SENSORS), time), values)
        })
        .collect()
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Done, and durable.
    Sure,
    /// Done in memory: a crash may take any of its rows away.
    InMemory,
    /// It failed or its answer never came: done as a whole or not at all.
    Open,
}

/// Where the readings are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In the process that was asked.
    Now,
    /// After the database was opened again.
    Reopened,
}

/// What was asked of a database and what it said.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The tables and readings at the start.
    base: BTreeMap<&'static str, Rows>,
    asked: Vec<(Op, Fate)>,
    forgetful: BTreeSet<&'static str>,
    /// Readings of forgetful tables that are older may be there or not.
    forgotten_ns: i64,
}

impl History {
    /// Takes note of a request that was done.
    pub fn done(&mut self, op: &Op) {
        let fate = match op {
            Op::Write(.., Ack::Memory) => Fate::InMemory,
            _ => Fate::Sure,
        };
        match op {
            Op::Create(table, Forgets::OldReadings) => {
                self.forgetful.insert(table);
            }
            // By age only a part moves, and what stays is still in memory.
            Op::Flush | Op::Reopen | Op::Cascade(Target::Short | Target::Long) => {
                self.asked
                    .iter_mut()
                    .filter(|(_, fate)| *fate == Fate::InMemory)
                    .for_each(|(_, fate)| *fate = Fate::Sure);
            }
            _ => {}
        }
        self.asked.push((op.clone(), fate));
    }

    /// Takes note of a request that failed.
    pub fn failed(&mut self, op: &Op) {
        if let Op::Create(table, Forgets::OldReadings) = op {
            self.forgetful.insert(table);
        }
        self.asked.push((op.clone(), Fate::Open));
    }

    /// Takes note of the time at which readings may move and old ones be dropped.
    pub fn may_forget(&mut self, now_ns: i64) {
        self.forgotten_ns = self.forgotten_ns.max(now_ns - RETENTION_NS);
    }

    /// Goes on from what was found.
    pub fn settle(&mut self, found: &BTreeMap<&'static str, Rows>) {
        self.base = found.clone();
        self.asked.clear();
    }

    /// Whether a table exists: true, false, or unknown.
    pub fn has_table(&self, table: &str, when: When) -> Option<bool> {
        let mut exists = BTreeSet::from([self.base.contains_key(table)]);
        for (op, fate) in &self.asked {
            let now = match op {
                Op::Create(name, _) | Op::Write(name, ..) | Op::Load(name, _) if *name == table => {
                    true
                }
                Op::Drop(name) if *name == table => false,
                _ => continue,
            };
            match (fate, when) {
                // In the process itself a failed drop has dropped nothing.
                (Fate::Open, When::Now) if !now => continue,
                (Fate::Open, _) => {}
                _ => exists.clear(),
            }
            exists.insert(now);
        }
        if exists.len() > 1 { None } else { exists.pop_first() }
    }

    /// Checks that the readings of a table can be what was asked for and answered.
    pub fn check(&self, table: &str, found: &Rows, when: When) -> Result<(), String> {
        let mut keys: BTreeSet<(u8, i64)> = found.keys().copied().collect();
        keys.extend(self.base.get(table).into_iter().flat_map(|rows| rows.keys()));
        for (op, _) in &self.asked {
            if let Op::Write(name, rows, _) | Op::Load(name, rows) = op
                && *name == table
            {
                keys.extend(rows.keys());
            }
        }
        for key in &keys {
            let possible = self.possible(table, *key, when, None);
            if !possible.contains(&found.get(key).copied()) {
                return Err(format!(
                    "{table}, sensor {}, time {}: found {:?}, possible are {possible:?}",
                    key.0,
                    key.1,
                    found.get(key)
                ));
            }
        }
        self.check_whole(table, &keys, found, when)
    }

    /// Checks that each request whose fate is open was done as a whole or not at all.
    fn check_whole(
        &self,
        table: &str,
        keys: &BTreeSet<(u8, i64)>,
        found: &Rows,
        when: When,
    ) -> Result<(), String> {
        if when == When::Now {
            return Ok(());
        }
        for (place, (op, fate)) in self.asked.iter().enumerate() {
            if *fate != Fate::Open {
                continue;
            }
            let speaks_against = |is_done: bool| {
                keys.iter().find(|key| {
                    let possible = self.possible(table, **key, when, Some((place, is_done)));
                    !possible.contains(&found.get(*key).copied())
                })
            };
            if let (Some(with), Some(without)) = (speaks_against(true), speaks_against(false)) {
                return Err(format!(
                    "{op:?} was done in part: {with:?} says that it was not, {without:?} that it was"
                ));
            }
        }
        Ok(())
    }

    /// The values that a reading may have. `decided` says of one request whether it was done.
    fn possible(
        &self,
        table: &str,
        key: (u8, i64),
        when: When,
        decided: Option<(usize, bool)>,
    ) -> Vec<Option<Values>> {
        let base = self.base.get(table).and_then(|rows| rows.get(&key)).copied();
        // What was forgotten is gone, and not what it was before; what is written later is laid over nothing.
        let may_be_gone = self.forgetful.contains(table) && key.1 < self.forgotten_ns;
        let forget = |possible: &mut Vec<Option<Values>>| {
            if may_be_gone && !possible.contains(&None) {
                possible.push(None);
            }
        };
        let mut possible = vec![base];
        forget(&mut possible);
        for (place, (op, fate)) in self.asked.iter().enumerate() {
            let Some(change) = change(op, table, key) else { continue };
            let changed: Vec<Option<Values>> =
                possible.iter().map(|before| change.apply(*before)).collect();
            let (may_be_done, may_be_not) = match (decided, fate, when) {
                (Some((decided, is_done)), ..) if decided == place => (is_done, !is_done),
                (_, Fate::Sure, _) | (_, Fate::InMemory, When::Now) => (true, false),
                (_, Fate::Open, When::Now) => (false, true),
                _ => (true, true),
            };
            if !may_be_not {
                possible.clear();
            }
            if may_be_done {
                possible.extend(changed);
                possible.dedup();
            }
            forget(&mut possible);
        }
        possible
    }
}

/// What a request does to one reading.
enum Change {
    Put(Values),
    Remove,
}

impl Change {
    fn apply(&self, before: Option<Values>) -> Option<Values> {
        match self {
            Self::Remove => None,
            Self::Put(values) => {
                let before = before.unwrap_or_default();
                Some((values.0.or(before.0), values.1.or(before.1)))
            }
        }
    }
}

fn change(op: &Op, table: &str, key: (u8, i64)) -> Option<Change> {
    match op {
        Op::Drop(name) => (*name == table).then_some(Change::Remove),
        Op::Write(name, rows, _) | Op::Load(name, rows) if *name == table => {
            rows.get(&key).map(|values| Change::Put(*values))
        }
        Op::Delete(name, sensor, time) => {
            let is_hit = *name == table
                && sensor.is_none_or(|sensor| sensor == key.0)
                && time.contains(key.1);
            is_hit.then_some(Change::Remove)
        }
        _ => None,
    }
}
