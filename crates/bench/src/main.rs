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
use tidefall_bench::sustained::{self, SustainedOptions};
use tidefall_storage::Ack;
use tidefall_types::Result;

// That of the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Bulk loads of rows in the order of arrival, durable and moved to long columns.
    Load,
    /// Bulk loads of columns: a wide frame, and sensor by sensor.
    LoadColumns,
    /// Reads of one sensor, without SQL.
    Read,
    /// Bringing rows back from the log after a crash.
    Log,
    /// The most memory that a long import and its cascade take.
    Memory,
    /// Writers that send as fast as they are taken, for minutes.
    Sustained {
        /// Writers that send at once.
        #[arg(long, default_value_t = 1)]
        writers: u32,
        /// The part of rows that is late.
        #[arg(long, default_value_t = 0.0)]
        late: f64,
        /// How long they write.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// Acknowledge from memory.
        #[arg(long)]
        unlogged: bool,
        /// Where a line of figures is written for each second, as CSV.
        #[arg(long)]
        timeline: Option<PathBuf>,
    },
    /// Fills a log and dies; a part of `log`.
    #[command(hide = true)]
    FillLog,
}

fn main() -> Result<()> {
    let args = Args::parse();
    match &args.what {
        What::Load => load::rows(&args),
        What::LoadColumns => load::columns(&args),
        What::Read => read::run(&args),
        What::Log => log::run(&args),
        What::Memory => memory::run(&args),
        What::Sustained { writers, late, seconds, unlogged, timeline } => {
            let options = SustainedOptions {
                sensors: args.sensors,
                writers: *writers,
                late: *late,
                ack: if *unlogged { Ack::Memory } else { Ack::Durable },
                seconds: *seconds,
                memory_mib: args.memory,
                work: args.work.clone(),
                timeline: timeline.clone(),
            };
            sustained::run(&options, &mut |report| report.print())
        }
        What::FillLog => log::fill(&args),
    }
}
