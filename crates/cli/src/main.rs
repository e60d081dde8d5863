//! `tidefall`: the database for sensor readings, on the command line.

mod args;
mod commands;
mod output;
mod size;

use std::process::ExitCode;

use clap::Parser;
use tracing::level_filters::LevelFilter;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(matches!(cli.command, Command::Serve(_)));
    let outcome = match cli.command {
        Command::Import(args) => commands::import::run(args),
        Command::Query(args) => commands::query::run(args),
        Command::Shell(args) => commands::shell::run(args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Cascade(args) => commands::cascade::run(args),
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Verify(args) => commands::verify::run(args),
        Command::Generate(args) => commands::generate::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Demo(args) => commands::demo::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidefall: {}: {error}", error.kind().name());
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard error: as JSON lines from the server, as text from the other commands.
/// `TIDEFALL_LOG` sets how much is logged: error, warn, info, debug or trace.
fn start_logging(is_server: bool) {
    let default = if is_server { LevelFilter::INFO } else { LevelFilter::WARN };
    let chosen = std::env::var("TIDEFALL_LOG").ok().and_then(|level| level.parse().ok());
    let logger = tracing_subscriber::fmt()
        .with_max_level(chosen.unwrap_or(default))
        .with_writer(std::io::stderr);
    if is_server {
        logger.json().init();
    } else {
        logger.init();
    }
}
