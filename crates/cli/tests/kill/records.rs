//! A table of records under kills: numbers, each of which is inserted once, and deleted by boxes. Equal records would all be kept, so that a number
//! that comes twice out of the log is seen.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::clients::World;
use crate::http::{Connection, Reply, Stop};
use crate::ledger::Fate;
use crate::report::Tally;

/// Its name.
pub const TABLE: &str = "trips";
/// How it is made.
pub const CREATE: &str = "CREATE TABLE trips (n BIGINT, x DOUBLE, kind TINYINT, note TEXT) WITH (model = 'records', index = '(x, n, kind)')";
/// Of a number what `x` and `kind` are.
const XS: u32 = 97;
const KINDS: u32 = 5;
/// Rows that one statement inserts as a whole: more come in pieces. From 500 on they go straight to segments, in tests.
const ROWS_MAX: u32 = 4_000;
/// Beyond so many rows much is deleted.
const ROWS_FULL: usize = 60_000;

/// A change of the table.
#[derive(Debug, Clone)]
enum Change {
    Insert(Range<u32>),
    /// Those in a stretch of numbers, of one kind or of all.
    Delete(Range<u32>, Option<u32>),
}

impl Change {
    fn apply(&self, numbers: &mut BTreeSet<u32>) {
        match self {
            Self::Insert(range) => numbers.extend(range.clone()),
            Self::Delete(range, kind) => numbers.retain(|number| {
                !range.contains(number) || kind.is_some_and(|kind| number % KINDS != kind)
            }),
        }
    }

    fn sql(&self) -> String {
        match self {
            Self::Insert(range) => format!(
                "INSERT INTO {TABLE} SELECT value, CAST(value % {XS} AS DOUBLE) / 4, value % {KINDS}, concat('note ', value) \
                 FROM generate_series({}, {})",
                range.start,
                range.end - 1
            ),
            Self::Delete(range, kind) => {
                let kind = kind.map_or(String::new(), |kind| format!(" AND kind = {kind}"));
                format!(
                    "DELETE FROM {TABLE} WHERE n >= {} AND n < {}{kind}",
                    range.start, range.end
                )
            }
        }
    }
}

/// What must be in the table, and what may be.
#[derive(Debug, Default)]
pub struct Records {
    numbers: BTreeSet<u32>,
    pending: Option<Change>,
}

impl Records {
    /// How many records there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Inserts and deletes until the server is gone.
    pub fn work(&mut self, world: &World<'_>, seed: u64) -> Stop {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut connection = match Connection::open(world.address) {
            Ok(connection) => connection,
            Err(stop) => return stop,
        };
        loop {
            if let Err(stop) = self.change(&mut connection, world, &mut rng) {
                return stop;
            }
        }
    }

    fn change(
        &mut self,
        connection: &mut Connection,
        world: &World<'_>,
        rng: &mut SmallRng,
    ) -> Result<(), Stop> {
        let change = match rng.random_range(0..100) {
            _ if self.len() > ROWS_FULL => Change::Delete(0..self.last() / 2, None),
            0..80 => {
                let count = match rng.random_range(0..10) {
                    0..6 => rng.random_range(1..30),
                    6..9 => rng.random_range(30..400),
                    _ => rng.random_range(500..ROWS_MAX),
                };
                let first = world.numbers.fetch_add(count, Ordering::Relaxed);
                Change::Insert(first..first + count)
            }
            80..95 => {
                let first = rng.random_range(0..=self.last());
                let kind = rng.random_bool(0.5).then(|| rng.random_range(0..KINDS));
                Change::Delete(first..first + rng.random_range(1..2_000), kind)
            }
            _ => return self.check(connection).map(drop),
        };
        let sql = change.sql();
        let before = self.len();
        self.pending = Some(change.clone());
        let reply: Reply = connection.post("/api/v1/sql?format=csv", &sql)?;
        if reply.status != 200 {
            let is_ending = world.process.is_ending();
            return Err(match is_ending {
                true => Stop::Gone,
                false => Stop::Failed(format!("{sql}: status {}: {}", reply.status, reply.body)),
            });
        }
        self.pending = None;
        change.apply(&mut self.numbers);
        match change {
            Change::Insert(range) => Tally::add(&world.tally.records, range.len()),
            Change::Delete(..) => Tally::add(&world.tally.records_deleted, before - self.len()),
        }
        Ok(())
    }

    fn last(&self) -> u32 {
        self.numbers.last().copied().unwrap_or(0)
    }

    /// Compares with what is there, which from now on must stay so, by rows and by totals.
    ///
    /// # Errors
    /// `Gone` with the server; `Failed` when something is there that must not be, or is not there that must be.
    pub fn check(&mut self, connection: &mut Connection) -> Result<Fate, Stop> {
        let sql = format!("SELECT n, x, kind, note FROM {TABLE} ORDER BY n");
        let answer = connection.sql(&sql)?.unwrap_or_default();
        let mut seen = BTreeSet::new();
        for line in answer.lines().skip(1) {
            let number = line.split(',').next().and_then(|text| text.parse::<u32>().ok());
            let number = number.ok_or_else(|| Stop::Failed(format!("{line:?} has no number")))?;
            let x = f64::from(number % XS) / 4.0;
            let wanted = format!("{number},{x:?},{},note {number}", number % KINDS);
            if line != wanted || !seen.insert(number) {
                let why = format!("{line:?} instead of {wanted:?}, or twice");
                return Err(Stop::Failed(why));
            }
        }
        let without = std::mem::take(&mut self.numbers);
        let mut with = without.clone();
        let pending = self.pending.take();
        if let Some(change) = &pending {
            change.apply(&mut with);
        }
        let fate = match (pending.is_some(), seen == without, seen == with) {
            (false, true, _) => Fate::Nothing,
            (true, true, true) => Fate::Traceless,
            (_, false, true) => Fate::Present,
            (_, true, false) => Fate::Absent,
            _ => {
                let lost: Vec<&u32> =
                    without.intersection(&with).filter(|one| !seen.contains(one)).take(8).collect();
                let more: Vec<&u32> = seen
                    .iter()
                    .filter(|one| !with.contains(one) && !without.contains(one))
                    .take(8)
                    .collect();
                return Err(Stop::Failed(format!(
                    "{TABLE}: {} records are there, {} without and {} with {pending:?}; lost {lost:?}, never written {more:?}",
                    seen.len(),
                    without.len(),
                    with.len()
                )));
            }
        };
        self.numbers = seen;
        self.check_totals(connection)?;
        Ok(fate)
    }

    /// Of all and of a box, from metrics where that can be.
    fn check_totals(&self, connection: &mut Connection) -> Result<(), Stop> {
        let middle = self.last() / 2;
        for (condition, from, kind) in [
            ("true".to_owned(), 0, None),
            (format!("n >= {middle} AND kind <= 2"), middle, Some(2)),
        ] {
            let is_meant = |number: &&u32| {
                **number >= from && kind.is_none_or(|kind| **number % KINDS <= kind)
            };
            let sql = format!("SELECT count(*), sum(n) FROM {TABLE} WHERE {condition}");
            let answer = connection.sql(&sql)?.unwrap_or_default();
            let meant = || self.numbers.iter().filter(is_meant);
            let sum = meant().map(|number| u64::from(*number)).sum::<u64>();
            let sum = if meant().next().is_some() { sum.to_string() } else { String::new() };
            let wanted = format!("{},{sum}", meant().count());
            if answer.lines().nth(1) != Some(wanted.as_str()) {
                return Err(Stop::Failed(format!("{sql}: {answer:?} instead of {wanted}")));
            }
        }
        Ok(())
    }
}
