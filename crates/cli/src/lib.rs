//! `tidefall`: the database for sensor readings, on the command line.
//!
//! A library, so that the Python package installs the same command.

// Both panic when nobody reads; `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod commands;
mod interrupt;
mod output;
mod size;

use std::ffi::OsString;
use std::io::Write;

use clap::Parser;
use tracing::level_filters::LevelFilter;

use args::{Cli, Command};
use output::{Outcome, Stop, note};

/// Runs a command line, whose first part is the program's name, and returns the status to exit with: 0, or 1
/// when the command failed, 2 when it could not be understood. Answers go to standard output, errors to
/// standard error.
pub fn run(line: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(line) {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to do if it cannot be told.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    start_logging(matches!(cli.command, Command::Serve(_)));
    let outcome = obey(cli.command);
    // A host that is not a Rust program does not do it at its end.
    let _ = std::io::stdout().flush();
    match outcome {
        Ok(()) | Err(Stop::Unread) => 0,
        Err(Stop::Failed(error)) => {
            note!("tidefall: {}: {error}", error.kind().name());
            1
        }
    }
}

fn obey(command: Command) -> Outcome {
    match command {
        Command::Import(args) => commands::import::run(*args),
        Command::Create(args) => commands::create::run(&args),
        Command::Query(args) => commands::query::run(args),
        Command::Shell(args) => commands::shell::run(args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Cascade(args) => commands::cascade::run(args),
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Verify(args) => commands::verify::run(args),
        Command::Repair(args) => commands::repair::run(&args),
        Command::Generate(args) => commands::generate::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Demo(args) => commands::demo::run(args),
    }
}

/// Logs go to standard error: as JSON lines from the server, as text from the other commands.
/// `TIDEFALL_LOG` sets how much is logged: error, warn, info, debug or trace.
fn start_logging(is_server: bool) {
    let default = if is_server { LevelFilter::INFO } else { LevelFilter::WARN };
    let chosen = std::env::var("TIDEFALL_LOG").ok().and_then(|level| level.parse().ok());
    let logger = tracing_subscriber::fmt()
        .with_max_level(chosen.unwrap_or(default))
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // In a process that runs several commands, the first one's way of logging stays.
    let _ = match is_server {
        true => logger.json().try_init(),
        false => logger.try_init(),
    };
}
