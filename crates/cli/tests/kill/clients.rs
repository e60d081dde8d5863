//! What clients do: they write, overwrite and delete, one request at a time, until the server is
//! gone.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use tidefall_types::{
    Clock, NS_PER_DAY, NS_PER_HOUR, NS_PER_MILLI, NS_PER_SECOND, SystemClock, TimeRange,
    format_time,
};

use crate::check::check_lane;
use crate::http::{Connection, Reply, Stop};
use crate::ledger::{Change, Grain, Lane};
use crate::process::Process;
use crate::report::Tally;
use crate::values::{Key, NOTE, Row, SENSORS, as_csv, line, within};

/// The age of the oldest readings that are today's; less than that at midnight.
const TODAY_S: i64 = 300;
/// Readings of so many days go to short columns, of the default options at least.
const DAYS: i64 = 20;
/// Older readings go to long columns.
const OLD_DAYS: std::ops::Range<i64> = 65..400;
/// Rows of the table that is written from memory beyond which they are deleted.
const FLEETING_ROWS_MAX: usize = 3_000;
/// Between two writes that are acknowledged from memory: they need not be many.
const FLEETING_PAUSE: Duration = Duration::from_millis(10);

/// What all clients of a round share.
#[derive(Debug)]
pub struct World<'a> {
    pub address: SocketAddr,
    pub process: &'a Process,
    pub tally: &'a Tally,
    /// The next number to make a value from.
    pub numbers: &'a AtomicU32,
    pub round: u32,
}

/// A client with its own part of the tables.
#[derive(Debug)]
pub struct Client<'a> {
    world: &'a World<'a>,
    rng: SmallRng,
    connection: Connection,
}

/// Which rows a batch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Many, of few bytes.
    Plain,
    /// Few, with long notes.
    Noted,
}

impl<'a> Client<'a> {
    /// Connects.
    ///
    /// # Errors
    /// `Gone` when the server is.
    pub fn new(world: &'a World<'a>, seed: u64) -> Result<Self, Stop> {
        let connection = Connection::open(world.address)?;
        Ok(Self { world, rng: SmallRng::seed_from_u64(seed), connection })
    }

    /// Works on a lane of a table that clients share and on one of its own, until the server is
    /// gone.
    ///
    /// # Errors
    /// When the server does what it must not.
    pub fn work(&mut self, [shared, own]: &mut [Lane; 2]) -> Stop {
        loop {
            let step = match self.rng.random_range(0..1_000) {
                0..600 => self.write(&mut [(shared, Kind::Plain)]),
                600..620 => self.insert(shared),
                620..780 => self.write(&mut [(own, Kind::Noted)]),
                780..865 => self.write(&mut [(shared, Kind::Plain), (own, Kind::Noted)]),
                865..873 => self.look(shared),
                873..880 => self.look(own),
                880..960 => self.delete(shared),
                960..995 => self.delete(own),
                _ => self.drop_table(own),
            };
            if let Err(stop) = step {
                return stop;
            }
        }
    }

    /// Writes rows that are acknowledged from memory until the server is gone.
    ///
    /// # Errors
    /// When the server does what it must not.
    pub fn work_in_memory(&mut self, lane: &mut Lane) -> Stop {
        if lane.rows.len() > FLEETING_ROWS_MAX
            && let Err(stop) = self.delete_within(lane, None, TimeRange::ALL)
        {
            return stop;
        }
        loop {
            if let Err(stop) = self.write_in_memory(lane) {
                return stop;
            }
            thread::sleep(FLEETING_PAUSE);
        }
    }

    /// One request with rows for some lanes, each of which gets its own whole or not at all.
    fn write(&mut self, lanes: &mut [(&mut Lane, Kind)]) -> Result<(), Stop> {
        let mut body = String::new();
        for (lane, kind) in lanes.iter_mut() {
            let rows = self.rows(*kind);
            add_lines(&mut body, lane, &rows);
            lane.begin(Change::Write(rows), Grain::Whole);
        }
        let reply = self.connection.post("/write", &body)?;
        self.expect(&reply, 204)?;
        Tally::add(&self.world.tally.writes, 1);
        for (lane, _) in lanes {
            Tally::add(&self.world.tally.rows, lane.acknowledge());
        }
        Ok(())
    }

    /// The same as a statement, with the one field that is there from the beginning.
    fn insert(&mut self, lane: &mut Lane) -> Result<(), Stop> {
        let Some(client) = lane.client.clone().filter(|_| !lane.rows.is_empty()) else {
            return Ok(());
        };
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.random_range(1..30) {
            let key = (self.rng.random_range(0..SENSORS), self.time(Kind::Plain).0);
            let mut row = Row::default();
            row[0] = Some(self.number());
            rows.push((key, row));
            let value = row[0].map_or(String::new(), |number| as_csv(0, number));
            let time = format_time(key.1);
            values.push(format!("('{time}', '{client}', 's{}', {value})", key.0));
        }
        let (table, values) = (&lane.table, values.join(", "));
        let sql = format!("INSERT INTO {table} (time, client, sensor, f0) VALUES {values}");
        lane.begin(Change::Write(rows), Grain::Whole);
        let reply = self.connection.post("/api/v1/sql?format=csv", &sql)?;
        self.expect(&reply, 200)?;
        Tally::add(&self.world.tally.inserts, 1);
        Tally::add(&self.world.tally.rows, lane.acknowledge());
        Ok(())
    }

    /// Reads everything while other clients write and readings move.
    fn look(&mut self, lane: &mut Lane) -> Result<(), Stop> {
        check_lane(&mut self.connection, lane)?;
        Tally::add(&self.world.tally.looks, 1);
        Ok(())
    }

    fn write_in_memory(&mut self, lane: &mut Lane) -> Result<(), Stop> {
        // Each key is written once, so that any of these rows may be lost without the others.
        let today_ns = now_ns() / NS_PER_DAY * NS_PER_DAY;
        let mut rows = Vec::new();
        for _ in 0..self.rng.random_range(1..8) {
            let number = self.number();
            let day_ns = i64::from(number) % OLD_DAYS.end * NS_PER_DAY;
            let time_ns = today_ns - day_ns + i64::from(number) * NS_PER_MILLI;
            let mut row = Row::default();
            row[..2].fill(Some(number));
            rows.push(((number % SENSORS, time_ns), row));
        }
        let mut body = String::new();
        add_lines(&mut body, lane, &rows);
        lane.begin(Change::Write(rows.clone()), Grain::EachRow);
        let reply = self.connection.post("/write?ack=memory", &body)?;
        self.expect(&reply, 204)?;
        lane.acknowledge_from_memory(rows);
        Ok(())
    }

    fn delete(&mut self, lane: &mut Lane) -> Result<(), Stop> {
        let Some((sensor, time_ns)) = lane.rows.keys().choose(&mut self.rng).copied() else {
            return Ok(());
        };
        let sensors = match self.rng.random_range(0..10) {
            0..6 => Some(vec![sensor]),
            6..8 => Some((0..SENSORS).filter(|other| (other + sensor).is_multiple_of(3)).collect()),
            _ => None,
        };
        let reach_ns = match self.rng.random_range(0..20) {
            0..9 => 0,
            9..15 => self.rng.random_range(0..20 * NS_PER_SECOND),
            15..19 => self.rng.random_range(0..NS_PER_DAY),
            _ => self.rng.random_range(0..60 * NS_PER_DAY),
        };
        self.delete_within(lane, sensors, TimeRange::new(time_ns - reach_ns, time_ns + reach_ns))
    }

    fn delete_within(
        &mut self,
        lane: &mut Lane,
        sensors: Option<Vec<u32>>,
        time: TimeRange,
    ) -> Result<(), Stop> {
        let mut conditions = Vec::new();
        if lane.client.is_some() {
            conditions.push(lane.condition());
        }
        if let Some(sensors) = &sensors {
            let names: Vec<String> = sensors.iter().map(|sensor| format!("'s{sensor}'")).collect();
            conditions.push(format!("sensor IN ({})", names.join(", ")));
        }
        if time != TimeRange::ALL {
            conditions.push(within(&time));
        }
        let mut sql = format!("DELETE FROM {}", lane.table);
        if !conditions.is_empty() {
            sql.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        lane.begin(Change::Delete(sensors, time), Grain::Whole);
        let reply = self.connection.post("/api/v1/sql?format=csv", &sql)?;
        self.expect(&reply, 200)?;
        let count = lane.acknowledge();
        if reply.body.trim() != format!("count\n{count}") {
            return Err(Stop::Failed(format!(
                "{sql}: there should have been {count} rows, and the answer is {:?}",
                reply.body
            )));
        }
        Tally::add(&self.world.tally.deletes, 1);
        Tally::add(&self.world.tally.rows_deleted, count);
        Ok(())
    }

    /// Drops the table, and creates it anew with other options, unless the next write shall.
    fn drop_table(&mut self, lane: &mut Lane) -> Result<(), Stop> {
        let table = &lane.table;
        let drop = format!("DROP TABLE IF EXISTS {table}");
        let cascade = ["kv 1d, short 30d, long", "kv 1h, long", "kv 1m, short 300d, long"]
            [self.rng.random_range(0..3)];
        let create = format!(
            "CREATE TABLE {table} (time TIMESTAMP, sensor TEXT, f0 BIGINT, note TEXT, \
             PRIMARY KEY (sensor, time)) WITH (cascade = '{cascade}', block = '10m')"
        );
        lane.begin(Change::Delete(None, TimeRange::ALL), Grain::Whole);
        let reply = self.connection.post("/api/v1/sql?format=csv", &drop)?;
        self.expect(&reply, 200)?;
        lane.acknowledge();
        Tally::add(&self.world.tally.drops, 1);
        if self.rng.random_bool(0.7) {
            let reply = self.connection.post("/api/v1/sql?format=csv", &create)?;
            self.expect(&reply, 200)?;
        }
        Ok(())
    }

    /// A server that stops may refuse; otherwise there is only one right answer.
    fn expect(&self, reply: &Reply, status: u16) -> Result<(), Stop> {
        match reply.status == status {
            true => Ok(()),
            false if self.world.process.is_ending() => Err(Stop::Gone),
            false => Err(Stop::Failed(format!("status {}: {}", reply.status, reply.body))),
        }
    }

    // ---- rows ----

    fn rows(&mut self, kind: Kind) -> Vec<(Key, Row)> {
        let count = match (kind, self.rng.random_range(0..100)) {
            (Kind::Noted, 0..80) => self.rng.random_range(1..60),
            (Kind::Noted, _) => self.rng.random_range(100..400),
            (_, 0..60) => self.rng.random_range(1..20),
            (_, 60..98) => self.rng.random_range(20..400),
            // Enough for a run of its own.
            _ => self.rng.random_range(4_000..6_000),
        };
        let is_regular = self.rng.random_bool(0.5);
        let is_full = self.rng.random_bool(0.6);
        let sensors = if kind == Kind::Noted { SENSORS / 2 } else { SENSORS };
        let (mut time_ns, mut step_ns) = self.time(kind);
        let mut rows = Vec::with_capacity(count);
        for place in 0..count as u32 {
            let sensor = match self.rng.random_range(0..100) {
                // Sensors that are seen for the first time, now and then.
                0 if !is_regular => SENSORS + self.rng.random_range(0..=self.world.round / 4),
                _ => place % sensors,
            };
            if !is_regular {
                (time_ns, step_ns) = self.time(kind);
            } else if sensor == 0 {
                time_ns -= step_ns;
            }
            rows.push(((sensor, time_ns), self.row(kind, is_full)));
        }
        rows
    }

    fn row(&mut self, kind: Kind, is_full: bool) -> Row {
        // Columns come to the tables as the rounds go on.
        let plain_fields = (2 + self.world.round as usize / 20).min(NOTE);
        let last = self.rng.random_range(0..plain_fields);
        let mut row = Row::default();
        for (field, value) in row.iter_mut().enumerate() {
            let is_wanted = match (kind, field) {
                (Kind::Plain, NOTE) => false,
                (Kind::Noted, NOTE) => is_full || self.rng.random_bool(0.5),
                _ => field < plain_fields && (is_full || self.rng.random_bool(0.5)),
            };
            if is_wanted || field == last {
                *value = Some(self.number());
            }
        }
        row
    }

    /// A time of any model, and the step to the one before it. They are few, so that many rows are
    /// written more than once.
    fn time(&mut self, kind: Kind) -> (i64, i64) {
        let now_ns = now_ns();
        let (second_ns, hours) = match kind {
            Kind::Plain => (NS_PER_SECOND, 24),
            Kind::Noted => (10 * NS_PER_SECOND, 1),
        };
        let today_ns = now_ns / NS_PER_DAY * NS_PER_DAY;
        match self.rng.random_range(0..10) {
            0..5 => {
                let back_ns = self.rng.random_range(0..TODAY_S) * NS_PER_SECOND;
                ((now_ns - back_ns) / second_ns * second_ns, second_ns)
            }
            5..8 => {
                let day_ns = today_ns - self.rng.random_range(1..DAYS) * NS_PER_DAY;
                let step_ns = 24 / hours * NS_PER_HOUR;
                (day_ns + self.rng.random_range(0..hours) * NS_PER_HOUR, step_ns)
            }
            _ => {
                let days = self.rng.random_range(OLD_DAYS) / 5 * 5;
                (today_ns - days * NS_PER_DAY, 5 * NS_PER_DAY)
            }
        }
    }

    fn number(&self) -> u32 {
        self.world.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// The lines of rows for a lane.
fn add_lines(body: &mut String, lane: &Lane, rows: &[(Key, Row)]) {
    let tags = lane.client.as_ref().map_or(String::new(), |client| format!(",client={client}"));
    for (key, row) in rows {
        body.push_str(&line(&lane.table, &tags, *key, row));
    }
}

/// Now, by the clock that the server uses too.
pub fn now_ns() -> i64 {
    SystemClock.now_ns()
}
