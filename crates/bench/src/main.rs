//! Measures the engine without SQL and without a parser, on the papers' sensor workload.
//!
//! Every benchmark prints a line of JSON in the form of the drivers of other databases in `peers/`,
//! whose benchmarks have the same names.

mod load;
mod log;
mod memory;
mod read;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use tidefall_types::Result;

/// Benchmarks of the engine; one line of JSON each.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
    /// Sensors of the workload.
    #[arg(long, global = true, default_value_t = 500)]
    sensors: u32,
    /// Days of the workload, a reading a minute.
    #[arg(long, global = true, default_value_t = 14)]
    days: u32,
    /// Runs of which the median is taken, after one to warm up.
    #[arg(long, global = true, default_value_t = 3)]
    runs: usize,
    /// Memory budget of the database in MiB.
    #[arg(long, global = true, default_value_t = 512)]
    memory: usize,
    /// Scratch folder.
    #[arg(long, global = true, default_value_os_t = std::env::temp_dir().join("tidefall-bench"))]
    work: PathBuf,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum What {
    /// Bulk loads of rows in the order of arrival, durable and fallen to long columns.
    Load,
    /// Bulk loads of columns: a wide frame, and sensor by sensor.
    LoadColumns,
    /// Reads of one sensor, without SQL.
    Read,
    /// Bringing rows back from the log after a crash.
    Log,
    /// The most memory that a long import and its cascade take.
    Memory,
    /// Fills a log and dies; a part of `log`.
    #[command(hide = true)]
    FillLog,
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.what {
        What::Load => load::rows(&args),
        What::LoadColumns => load::columns(&args),
        What::Read => read::run(&args),
        What::Log => log::run(&args),
        What::Memory => memory::run(&args),
        What::FillLog => log::fill(&args),
    }
}
