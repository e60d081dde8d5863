//! The rounds: which process runs, what it does, and when it is killed.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_types::{NS_PER_DAY, NS_PER_HOUR, format_time};

use crate::check::{check_lane, check_nothing_else};
use crate::clients::{Client, World, now_ns};
use crate::follower::Follower;
use crate::http::{Connection, Stop};
use crate::ledger::{Change, Grain, Lane};
use crate::process::{Ended, Process};
use crate::records::{self, Records};
use crate::report::{Report, Tally};
use crate::values::{Key, Row, as_csv};

/// Rounds that take about a minute on two cores.
const ROUNDS: u32 = 150;
const CLIENTS: usize = 4;
/// Everything is read and compared in every so many rounds; else what changed, and a part.
const FULL_CHECK_ROUNDS: u32 = 10;
/// A verification that is not killed comes in every so many rounds.
const VERIFY_ROUNDS: u32 = 25;
/// A server that is not ready to be killed after so long hangs.
const READY_TIME_MAX: Duration = Duration::from_secs(120);
/// Between two looks of somebody who reads beside.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// The part of these looks before which it is killed, and of the checks behind which it is. Now and then it stays for some rounds.
const LOOKS_KILLED: f64 = 0.05;
const CHECKS_KILLED: f64 = 0.5;
/// The least budget, so that memory is full often.
const MEMORY: &str = "64MiB";

const STARTING: &str = "the server started";
const CHECKING: &str = "the server was read";
const WRITING: &str = "clients wrote";

/// What the environment says.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub rounds: u32,
    pub seed: u64,
}

impl Settings {
    /// `TIDEFALL_KILL_ROUNDS` and `TIDEFALL_KILL_SEED`.
    pub fn from_env() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let rounds = number("TIDEFALL_KILL_ROUNDS").and_then(|rounds| rounds.try_into().ok());
        Self {
            rounds: rounds.unwrap_or(ROUNDS),
            // Moments are never the same again, so there is no point in choices that are.
            seed: number("TIDEFALL_KILL_SEED").unwrap_or(now_ns() as u64 % 1_000_000),
        }
    }
}

/// When and how a server ends.
#[derive(Debug, Clone, Copy)]
enum Plan {
    /// Killed so long after its start.
    KillAtAge(Duration),
    /// Killed so long after the clients began.
    KillAfterWriting(Duration),
    /// Asked to stop so long after the clients began.
    StopAfterWriting(Duration),
    /// Asked to stop after everything was read.
    StopAfterCheck,
}

/// How a server shall end, and when.
#[derive(Debug, Clone, Copy)]
struct Order {
    at: Instant,
    is_kill: bool,
}

/// A database, the ledger of it, and the rounds that it has gone through.
#[derive(Debug)]
pub struct Run {
    pub report: Report,
    pub round: u32,
    settings: Settings,
    dir: PathBuf,
    /// For each client its lane of the table that they share, and one of its own table.
    lanes: Vec<[Lane; 2]>,
    /// Acknowledged from memory.
    fleeting: Lane,
    imported: Lane,
    records: Records,
    /// A file whose import was killed.
    unfinished: Option<Vec<(Key, Row)>>,
    /// Who reads it in a process of its own: while there is one, what is replaced stays for a minute.
    follower: Option<Follower>,
    numbers: AtomicU32,
    /// How long a command took when nobody killed it.
    times: HashMap<&'static str, Duration>,
    rng: SmallRng,
}

impl Run {
    /// Starts with an empty database below `dir`.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn new(settings: &Settings, dir: &Path) -> Result<Self, String> {
        fs::create_dir(dir.join("logs")).map_err(|error| error.to_string())?;
        let lanes = (0..CLIENTS).map(|client| {
            let shared = Lane::new("plant".to_owned(), Some(format!("c{client}")));
            [shared, Lane::new(format!("own{client}"), None)]
        });
        Ok(Self {
            report: Report { seed: settings.seed, ..Report::default() },
            round: 0,
            settings: *settings,
            dir: dir.to_owned(),
            lanes: lanes.collect(),
            fleeting: Lane::new("fleeting".to_owned(), None),
            imported: Lane::new("imported".to_owned(), None),
            records: Records::default(),
            unfinished: None,
            follower: None,
            numbers: AtomicU32::new(1),
            times: HashMap::new(),
            rng: SmallRng::seed_from_u64(settings.seed),
        })
    }

    /// All rounds, and a last look at everything.
    ///
    /// # Errors
    /// What is wrong.
    pub fn all_rounds(&mut self) -> Result<(), String> {
        let start = Instant::now();
        let outcome = self.rounds();
        self.report.time = start.elapsed();
        self.report.rounds = self.round.into();
        outcome
    }

    fn rounds(&mut self) -> Result<(), String> {
        // Whatever comes first: a cascade and a verification ask for a database.
        self.command("query", &["--create", records::CREATE], None)?;
        for round in 1..=self.settings.rounds {
            self.round = round;
            // A round can be planned again without those before it.
            let seed = self.settings.seed.wrapping_mul(1_000_003).wrapping_add(round.into());
            self.rng = SmallRng::seed_from_u64(seed);
            if self.rng.random_bool(0.1) {
                self.follower = match self.follower.take() {
                    Some(_) => None,
                    None => Some(Follower::open(&self.dir.join("db"))?),
                };
            }
            match self.rng.random_range(0..100) {
                0..74 => {
                    let plan = self.plan();
                    self.serve(plan)?;
                }
                74..88 => self.cascade()?,
                88..96 => self.import()?,
                _ => self.command("verify", &[], Some(1.2)).map(drop)?,
            }
            if round.is_multiple_of(VERIFY_ROUNDS) {
                self.command("verify", &[], None)?;
            }
        }
        self.serve(Plan::StopAfterCheck)?;
        self.command("verify", &[], None)?;
        self.command("cascade", &["--to", "long"], None)?;
        self.command("verify", &[], None)?;
        self.serve(Plan::StopAfterCheck)?;
        self.report.rows_at_end = self.all_lanes().map(|lane| lane.rows.len() as u64).sum();
        Ok(())
    }

    fn plan(&mut self) -> Plan {
        let mut within = |ms: std::ops::Range<u64>| {
            Duration::from_micros(self.rng.random_range(ms.start * 1_000..ms.end * 1_000))
        };
        let (early, late, writing) = (within(0..60), within(30..200), within(0..600));
        match self.rng.random_range(0..100) {
            0..15 => Plan::KillAtAge(early),
            15..30 => Plan::KillAtAge(late),
            30..95 => Plan::KillAfterWriting(writing),
            _ => Plan::StopAfterWriting(writing),
        }
    }

    fn all_lanes(&self) -> impl Iterator<Item = &Lane> + Clone {
        self.lanes.iter().flatten().chain([&self.fleeting, &self.imported])
    }

    // ---- the server ----

    /// A server from its start to its end.
    fn serve(&mut self, plan: Plan) -> Result<(), String> {
        let (threads, pause) = (["1", "2"], ["20ms", "100ms", "500ms", "60s"]);
        let threads = threads[self.rng.random_range(0..threads.len())];
        let pause = pause[self.rng.random_range(0..pause.len())];
        let own = ["--listen", "127.0.0.1:0", "--cascade-every", pause, "--threads", threads];
        let process = self.start("serve", &own)?;
        let phase = Mutex::new(STARTING);
        let (orders, for_killer) = channel();
        let (outcome, phase_at_end) = thread::scope(|scope| {
            let killer = scope.spawn(|| end_on_order(&process, &phase, for_killer));
            if let Plan::KillAtAge(age) = plan {
                // It cannot be gone: it waits for this.
                let _ = orders.send(Order { at: Instant::now() + age, is_kill: true });
            }
            let order = |order: Order| _ = orders.send(order);
            let outcome = self.use_server(&process, &phase, plan, order);
            drop(orders);
            (outcome, killer.join())
        });
        let ended = process.end();
        self.report.add_log(&process.log());
        match outcome {
            Err(Stop::Failed(why)) => return Err(format!("{why}\n{}", process.log())),
            Ok(()) | Err(Stop::Gone) => {}
        }
        let phase_at_end = phase_at_end.map_err(|_| "the thread that kills panicked")??;
        if ended? == Ended::Killed {
            *self.report.kills.entry(phase_at_end).or_default() += 1;
            self.fleeting.killed();
        } else {
            *self.report.ends.entry("server").or_default() += 1;
            self.fleeting.closed();
        }
        Ok(())
    }

    /// Checks the server and lets clients write, until it is gone.
    fn use_server(
        &mut self,
        process: &Process,
        phase: &Mutex<&'static str>,
        plan: Plan,
        order: impl Fn(Order),
    ) -> Result<(), Stop> {
        let enter = |name| *phase.lock().unwrap_or_else(PoisonError::into_inner) = name;
        let judge = |stop| process.judge_stop(stop);
        let address = process.address().map_err(judge)?;
        enter(CHECKING);
        let is_last = matches!(plan, Plan::StopAfterCheck);
        let mut connection = Connection::open(address).map_err(judge)?;
        self.check(&mut connection, is_last).map_err(judge)?;
        drop(connection);
        enter(WRITING);
        let now = Instant::now();
        match plan {
            Plan::KillAtAge(_) => {}
            Plan::KillAfterWriting(time) => order(Order { at: now + time, is_kill: true }),
            Plan::StopAfterWriting(time) => order(Order { at: now + time, is_kill: false }),
            Plan::StopAfterCheck => {
                order(Order { at: now, is_kill: false });
                return Ok(());
            }
        }
        let mut stops = self.write_until_gone(address, process).into_iter();
        stops.find(|stop| matches!(stop, Stop::Failed(_))).map_or(Ok(()), Err)
    }

    /// Why each client stopped.
    fn write_until_gone(&mut self, address: SocketAddr, process: &Process) -> Vec<Stop> {
        let world = World {
            address,
            process,
            tally: &self.report.tally,
            numbers: &self.numbers,
            round: self.round,
        };
        let seeds: Vec<u64> = (0..=CLIENTS + 1).map(|_| self.rng.random()).collect();
        let mut rng = SmallRng::seed_from_u64(self.rng.random());
        let (world, lanes, fleeting) = (&world, &mut self.lanes, &mut self.fleeting);
        let records = &mut self.records;
        let (follower, is_over) = (&mut self.follower, &AtomicBool::new(false));
        thread::scope(|scope| {
            let looks = scope.spawn(move || {
                while let Some(follower) = follower.as_mut()
                    && !is_over.load(Ordering::Relaxed)
                {
                    if rng.random_bool(LOOKS_KILLED) {
                        follower.die_and_come_back(&mut rng)?;
                        Tally::add(&world.tally.readers_killed, 1);
                    }
                    follower.look()?;
                    thread::sleep(LOOK_PAUSE);
                }
                Ok::<(), String>(())
            });
            let writers = lanes.iter_mut().zip(&seeds).map(|(lanes, seed)| {
                scope.spawn(move || match Client::new(world, *seed) {
                    Ok(mut client) => process.judge_stop(client.work(lanes)),
                    Err(stop) => process.judge_stop(stop),
                })
            });
            let mut threads: Vec<_> = writers.collect();
            threads.push(scope.spawn(|| match Client::new(world, seeds[CLIENTS]) {
                Ok(mut client) => process.judge_stop(client.work_in_memory(fleeting)),
                Err(stop) => process.judge_stop(stop),
            }));
            let seed = seeds[CLIENTS + 1];
            threads.push(scope.spawn(move || process.judge_stop(records.work(world, seed))));
            let failed = |_| Stop::Failed("a client panicked".to_owned());
            let stops = threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed));
            let mut stops: Vec<Stop> = stops.collect();
            is_over.store(true, Ordering::Relaxed);
            stops.push(match looks.join() {
                Ok(Ok(())) => Stop::Gone,
                Ok(Err(why)) => Stop::Failed(why),
                Err(_) => Stop::Failed("the reader panicked".to_owned()),
            });
            stops
        })
    }

    /// Compares what is there with the ledger: all that is unsettled, and some of the rest.
    fn check(&mut self, connection: &mut Connection, is_last: bool) -> Result<(), Stop> {
        let is_full = is_last || self.round.is_multiple_of(FULL_CHECK_ROUNDS);
        let Self { lanes, fleeting, imported, records, rng, report, .. } = self;
        for lane in lanes.iter_mut().flatten().chain([fleeting, imported]) {
            if is_full || lane.is_pending() || rng.random_bool(0.3) {
                let fate = check_lane(connection, lane)?;
                report.add_fate(fate);
                report.rows_read += lane.rows.len() as u64;
            }
        }
        report.add_fate(records.check(connection)?);
        report.rows_read += records.len() as u64;
        if is_full {
            check_nothing_else(connection, self.all_lanes())?;
            self.report.full_checks += 1;
        }
        self.check_follower(is_full).map_err(Stop::Failed)?;
        self.report.checks += 1;
        Ok(())
    }

    /// Compares what somebody sees who follows, in full checks and when it has just come back. All lanes are settled, and nobody writes.
    fn check_follower(&mut self, is_full: bool) -> Result<(), String> {
        let Some(mut follower) = self.follower.take() else { return Ok(()) };
        if is_full {
            follower.check(self.all_lanes(), self.records.len())?;
        }
        if self.rng.random_bool(CHECKS_KILLED) {
            follower.die_and_come_back(&mut self.rng)?;
            Tally::add(&self.report.tally.readers_killed, 1);
            follower.check_shown(self.all_lanes(), self.records.len())?;
        }
        self.follower = Some(follower);
        Ok(())
    }

    // ---- other commands ----

    fn cascade(&mut self) -> Result<(), String> {
        let to = ["age", "short", "long"][self.rng.random_range(0..3)];
        let mut args = vec!["--to", to];
        if self.rng.random_bool(0.3) && self.lanes.iter().any(|[shared, _]| !shared.rows.is_empty())
        {
            args.extend(["--table", "plant"]);
        }
        self.command("cascade", &args, Some(1.2)).map(drop)
    }

    /// Imports a file; it counts as written when the command says so, and a file that did not get
    /// so far is imported again.
    fn import(&mut self) -> Result<(), String> {
        let rows = self.unfinished.take().unwrap_or_else(|| self.rows_to_import());
        let file = self.dir.join("import.csv");
        fs::write(&file, csv_file(&rows)).map_err(|error| error.to_string())?;
        let file = file.display().to_string();
        let ack = if self.rng.random_bool(0.5) { "memory" } else { "durable" };
        let mut args = vec![file.as_str(), "--table", "imported", "--time", "time"];
        args.extend(["--tags", "sensor", "--quiet", "--ack", ack]);
        if self.rng.random_bool(0.3) {
            args.extend(["--cascade", "long"]);
        }
        self.imported.begin(Change::Write(rows.clone()), Grain::EachRow);
        match self.command("import", &args, Some(1.5))? {
            Ended::Done => {
                self.imported.acknowledge();
                self.report.imported += rows.len() as u64;
            }
            Ended::Killed => self.unfinished = Some(rows),
        }
        Ok(())
    }

    fn rows_to_import(&mut self) -> Vec<(Key, Row)> {
        let today_ns = now_ns() / NS_PER_DAY * NS_PER_DAY;
        let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
        for _ in 0..self.rng.random_range(100..8_000) {
            let days = match self.rng.random_range(0..10) {
                0..3 => 0,
                3..6 => self.rng.random_range(1..15),
                _ => self.rng.random_range(60..400) / 7 * 7,
            };
            let hour_ns = self.rng.random_range(0..24) * NS_PER_HOUR;
            let key = (self.rng.random_range(0..6), today_ns - days * NS_PER_DAY + hour_ns);
            let mut number = || Some(*self.numbers.get_mut());
            let mut row = Row::default();
            row[0] = number();
            row[1] = number().filter(|number| number % 5 != 0);
            *self.numbers.get_mut() += 1;
            rows.insert(key, row);
        }
        rows.into_iter().collect()
    }

    /// Runs a command, and kills it at a random moment up to so many times its usual time.
    fn command(
        &mut self,
        name: &'static str,
        args: &[&str],
        kill_within: Option<f64>,
    ) -> Result<Ended, String> {
        let process = self.start(name, args)?;
        let usual = self.times.get(name).copied().unwrap_or(Duration::from_millis(200));
        let ended = match kill_within {
            Some(times) => process.end_by(usual.mul_f64(self.rng.random_range(0.0..times))),
            None => process.end(),
        };
        self.report.add_log(&process.log());
        match ended? {
            Ended::Killed => {
                // Only the quick ones come to their end; the others show it by being killed often.
                self.times.insert(name, usual.mul_f64(1.2));
                *self.report.kills.entry(name).or_default() += 1;
                Ok(Ended::Killed)
            }
            Ended::Done => {
                self.times.insert(name, process.age());
                *self.report.ends.entry(name).or_default() += 1;
                Ok(Ended::Done)
            }
        }
    }

    fn start(&self, name: &str, args: &[&str]) -> Result<Process, String> {
        let db = self.dir.join("db").display().to_string();
        let log = self.dir.join("logs").join(format!("{:05}-{name}.log", self.round));
        let all = [&[name, "--db", &db, "--memory", MEMORY], args].concat();
        Process::start(&all, &log)
    }
}

/// Waits for the order to end the server, carries it out, and says what the server was doing then.
fn end_on_order(
    process: &Process,
    phase: &Mutex<&'static str>,
    orders: Receiver<Order>,
) -> Result<&'static str, String> {
    let phase = || *phase.lock().unwrap_or_else(PoisonError::into_inner);
    match orders.recv_timeout(READY_TIME_MAX) {
        Ok(Order { at, is_kill }) => {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            let during = phase();
            if is_kill {
                process.kill()
            } else {
                process.terminate()
            }
            Ok(during)
        }
        Err(RecvTimeoutError::Disconnected) => {
            process.kill();
            Ok(phase())
        }
        Err(RecvTimeoutError::Timeout) => {
            process.kill();
            Err(format!("it hung while {}\n{}", phase(), process.log()))
        }
    }
}

fn csv_file(rows: &[(Key, Row)]) -> String {
    let mut text = "time,sensor,f0,f1\n".to_owned();
    for ((sensor, time_ns), row) in rows {
        let cell = |field: usize| row[field].map_or(String::new(), |n| as_csv(field, n));
        let time = format_time(*time_ns);
        text.push_str(&format!("{time},s{sensor},{},{}\n", cell(0), cell(1)));
    }
    text
}
