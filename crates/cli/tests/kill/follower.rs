//! The database as somebody sees it who has it open for reading while its processes come and go: a process of its own, which is this program again and is
//! killed, too. What it is asked comes as lines, and so do its answers.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tidefall_storage::record_tables::read::Touched;
use tidefall_storage::record_tables::region::Regions;
use tidefall_storage::{AggregateRequest, Db, DbOptions, ReadStats, Snapshot};
use tidefall_types::{ErrorKind, TimeRange};

use crate::ledger::Lane;
use crate::records;

/// Tells this program that it is the process that follows, and where the database is.
const FOLLOWED: &str = "TIDEFALL_KILL_FOLLOWED";
/// What each answer begins with. What runs tests says something, too.
const ANSWER: &str = "answer: ";
/// In which the process comes up, opens the database and looks at it.
const KILLED_WITHIN_MS: u64 = 30;
/// A writer may be so often too fast for an open.
const OPENS_MAX: usize = 100;

/// A process that has a database open only for reading.
#[derive(Debug)]
pub struct Follower {
    dir: PathBuf,
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Follower {
    /// Starts a process, and waits until it has opened the database.
    ///
    /// # Errors
    /// When that cannot be opened.
    pub fn open(dir: &Path) -> Result<Self, String> {
        let mut follower = Self::start(dir)?;
        follower.answer()?;
        Ok(follower)
    }

    fn start(dir: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("starting who reads: {error}");
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["--exact", "follower::follows", "--nocapture"])
            .env(FOLLOWED, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (questions, answers) = pipes.ok_or("who reads has no pipes")?;
        Ok(Self { dir: dir.to_owned(), child, questions, answers: BufReader::new(answers) })
    }

    /// Kills the process while it looks, maybe another one while that opens the database, and starts one that stays.
    ///
    /// # Errors
    /// When the database cannot be opened.
    pub fn die_and_come_back(&mut self, rng: &mut SmallRng) -> Result<(), String> {
        let mut live = || {
            thread::sleep(Duration::from_micros(rng.random_range(0..KILLED_WITHIN_MS * 1_000)));
        };
        self.send("look")?;
        live();
        self.kill();
        let other = Self::start(&self.dir)?;
        live();
        drop(other);
        *self = Self::open(&self.dir)?;
        Ok(())
    }

    /// Looks what is new, and whether it can be read.
    ///
    /// # Errors
    /// What is wrong. A writer may be too fast for it, which is not.
    pub fn look(&mut self) -> Result<(), String> {
        self.ask("look").map(drop)
    }

    /// Compares what is there with lanes that are settled, while nobody writes.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check<'a>(
        &mut self,
        lanes: impl Iterator<Item = &'a Lane> + Clone,
        records: usize,
    ) -> Result<(), String> {
        self.ask("refresh")?;
        self.check_shown(lanes, records)
    }

    /// As [`Follower::check`], without a look what is new.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_shown<'a>(
        &mut self,
        lanes: impl Iterator<Item = &'a Lane> + Clone,
        records: usize,
    ) -> Result<(), String> {
        let found = self.ask(records::TABLE)?;
        if found != records as u64 {
            return Err(format!("{}: a reader sees {found} of {records}", records::TABLE));
        }
        for lane in lanes.clone() {
            let of_table = lanes.clone().filter(|other| other.table == lane.table);
            let wanted: usize = of_table.map(|lane| lane.rows.len()).sum();
            let found = self.ask(&lane.table)?;
            if found != wanted as u64 {
                let table = &lane.table;
                return Err(format!("{table}: a reader sees {found} rows of {wanted}"));
            }
        }
        Ok(())
    }

    fn ask(&mut self, question: &str) -> Result<u64, String> {
        self.send(question)?;
        self.answer()
    }

    fn send(&mut self, question: &str) -> Result<(), String> {
        let sent = writeln!(self.questions, "{question}");
        sent.map_err(|error| format!("who reads takes no question: {error}"))
    }

    fn answer(&mut self) -> Result<u64, String> {
        for line in (&mut self.answers).lines() {
            let line = line.map_err(|error| format!("who reads: {error}"))?;
            if let Some(answer) = line.strip_prefix(ANSWER) {
                return answer.parse().map_err(|_| answer.to_owned());
            }
        }
        Err("who reads has ended, and nobody had killed it".to_owned())
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the process does: it answers until nobody asks any more.
#[test]
fn follows() {
    let Some(dir) = std::env::var_os(FOLLOWED) else { return };
    let reader = Reader::open(Path::new(&dir));
    tell(reader.as_ref().map(|_| 0).map_err(String::clone));
    let Ok(reader) = reader else { return };
    for question in std::io::stdin().lines() {
        tell(question.map_err(|error| error.to_string()).and_then(|it| reader.answer(&it)));
    }
}

fn tell(answer: Result<u64, String>) {
    // On a line of its own.
    match answer {
        Ok(rows) => println!("\n{ANSWER}{rows}"),
        Err(why) => println!("\n{ANSWER}{why:?}"),
    }
}

/// A database that is opened only for reading.
struct Reader {
    db: Db,
}

impl Reader {
    fn open(dir: &Path) -> Result<Self, String> {
        let mut error = None;
        for _ in 0..OPENS_MAX {
            match Db::open_read_only(dir, DbOptions::default()) {
                Ok(db) => return Ok(Self { db }),
                Err(busy) if busy.kind() == ErrorKind::Limit => error = Some(busy),
                Err(other) => return Err(format!("opened for reading: {other}")),
            }
        }
        Err(format!("opened for reading {OPENS_MAX} times: {error:?}"))
    }

    /// The answer to a question, which else is the name of a table.
    fn answer(&self, question: &str) -> Result<u64, String> {
        match question {
            "look" => self.look().map(|()| 0),
            "refresh" => {
                self.db.refresh().map(|_| 0).map_err(|error| format!("refreshed: {error}"))
            }
            table => self.rows(table),
        }
    }

    fn look(&self) -> Result<(), String> {
        match self.db.refresh() {
            Err(error) if error.kind() == ErrorKind::Limit => Ok(()),
            Err(error) => Err(format!("refreshed: {error}")),
            Ok(_) => {
                let tables = self.db.tables();
                tables.iter().try_for_each(|table| self.rows(&table.name).map(drop))
            }
        }
    }

    /// The rows of a table; none if it is not there.
    fn rows(&self, table: &str) -> Result<u64, String> {
        let failed = |error| format!("{table}, opened for reading: {error}");
        let snapshot = match self.db.snapshot_of_any(table) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            snapshot => snapshot.map_err(failed)?,
        };
        let snapshot = match snapshot {
            Snapshot::Series(snapshot) => snapshot,
            Snapshot::Records(records) => {
                let all = [Regions::all(records.schema().dimensions.len())];
                let places = records.places(&all).map_err(failed)?;
                let counted = places.iter().map(|(place, hidden)| {
                    Touched::new(place, &all, hidden).totals(&[]).map(|(rows, _)| rows)
                });
                return counted.sum::<tidefall_types::Result<u64>>().map_err(failed);
            }
        };
        let sensors: Vec<u32> = (0..snapshot.sensor_count()).collect();
        let request = AggregateRequest {
            sensors: sensors.into(),
            groups: Vec::new(),
            group_count: 1,
            time: TimeRange::ALL,
            bin: None,
            fields: Vec::new(),
            deviations: false,
            extremes: false,
            ends: false,
        };
        let counted = snapshot.aggregate(&request, &ReadStats::default().into()).map_err(failed)?;
        Ok(counted.rows.iter().sum())
    }
}
