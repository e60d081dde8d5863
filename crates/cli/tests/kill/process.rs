//! The real process: starting it, killing it, and what it said.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::http::Stop;

/// A process that does not end for so long hangs.
const END_TIME_MAX: Duration = Duration::from_secs(120);
/// How exactly a process is killed in time.
const PAUSE: Duration = Duration::from_micros(300);
const SIGKILL: i32 = 9;
/// What no log may hold, in either of its formats.
const SIGNS_OF_FAILURE: [&str; 3] = ["panicked at", "\"level\":\"ERROR\"", " ERROR "];

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By this test.
    Killed,
    /// By itself or on request, and successfully.
    Done,
}

/// What the test has done to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Running,
    Stopping,
    Killed,
}

/// A running `tidefall`.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    stdout: Mutex<Option<ChildStdout>>,
    state: AtomicU8,
    log: PathBuf,
    start: Instant,
}

impl Process {
    /// Starts `tidefall` with these arguments; what it logs goes to the file `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(args: &[&str], log: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("starting {args:?}: {error}");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidefall"))
            .args(args)
            .env("TIDEFALL_LOG", "info")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let stdout = Mutex::new(child.stdout.take());
        let state = AtomicU8::new(State::Running as u8);
        let start = Instant::now();
        Ok(Self { child: Mutex::new(child), stdout, state, log: log.to_owned(), start })
    }

    /// The time since the start.
    pub fn age(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until the server says where it listens.
    ///
    /// # Errors
    /// `Gone` when it is killed before, `Failed` when it says something else.
    pub fn address(&self) -> Result<SocketAddr, Stop> {
        let stdout = self.stdout.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(stdout) = stdout else { return Err(Stop::Gone) };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(Stop::Gone);
        }
        let address = line.trim().rsplit_once("http://").and_then(|(_, text)| text.parse().ok());
        address.ok_or_else(|| Stop::Failed(format!("the server said {line:?}")))
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&self) {
        // Noted first: whoever sees a broken connection then sees the reason too.
        self.state.store(State::Killed as u8, Ordering::SeqCst);
        // It may have ended already, which `end` finds out.
        let _ = self.child().kill();
    }

    /// Asks it to stop, as `kill` does.
    pub fn terminate(&self) {
        self.state.store(State::Stopping as u8, Ordering::SeqCst);
        let pid = self.child().id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
    }

    /// Whether connections may break.
    pub fn is_ending(&self) -> bool {
        self.state.load(Ordering::SeqCst) != State::Running as u8
    }

    /// Why a client stopped: connections break only when the process ends.
    pub fn judge_stop(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Gone if !self.is_ending() => {
                Stop::Failed("the connection broke, and nobody had ended the process".to_owned())
            }
            stop => stop,
        }
    }

    /// Waits for the end, and says what it was.
    ///
    /// # Errors
    /// With the log when the process failed, hung, or logged an error.
    pub fn end(&self) -> Result<Ended, String> {
        let deadline = Instant::now() + END_TIME_MAX;
        loop {
            if let Some(ended) = self.ended()? {
                return Ok(ended);
            }
            if Instant::now() > deadline {
                let _ = self.child().kill();
                return Err(format!("it did not end\n{}", self.log()));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Waits for the end, and kills the process when it is so old.
    ///
    /// # Errors
    /// As [`Process::end`].
    pub fn end_by(&self, age: Duration) -> Result<Ended, String> {
        while self.age() < age {
            if let Some(ended) = self.ended()? {
                return Ok(ended);
            }
            thread::sleep(PAUSE);
        }
        self.kill();
        self.end()
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn ended(&self) -> Result<Option<Ended>, String> {
        let status = self.child().try_wait().map_err(|error| error.to_string())?;
        status.map(|status| self.judge_status(status)).transpose()
    }

    fn judge_status(&self, status: ExitStatus) -> Result<Ended, String> {
        let log = self.log();
        if SIGNS_OF_FAILURE.iter().any(|sign| log.contains(sign)) {
            return Err(format!("it ended with {status} and an error in its log\n{log}"));
        }
        let is_killed = self.state.load(Ordering::SeqCst) == State::Killed as u8;
        match status.signal() {
            Some(SIGKILL) if is_killed => Ok(Ended::Killed),
            None if status.success() => Ok(Ended::Done),
            _ => Err(format!("it ended with {status}\n{log}")),
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failed test must not leave a server behind.
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }
}
