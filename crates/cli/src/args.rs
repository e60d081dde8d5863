//! What the command line takes.

mod names;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidefall_storage::{Ack, Db, DbOptions, Target};
use tidefall_types::{Error, FieldType, Result, parse_duration};

pub(crate) use self::names::{Names, all_of, as_argument};
use crate::size::parse_bytes;

/// A database for sensor readings.
#[derive(Debug, Parser)]
#[command(name = "tidefall", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read CSV (also .gz and .zst), Parquet and Arrow files into a table
    Import(Box<ImportArgs>),
    /// Make a table of records as a record descriptor in XML says
    Create(CreateTableArgs),
    /// Run SQL and print the answer
    Query(QueryArgs),
    /// Run SQL interactively
    Shell(ShellArgs),
    /// Serve HTTP: line protocol in, SQL out
    Serve(ServeArgs),
    /// Move readings to the next storage models
    Cascade(CascadeArgs),
    /// Show tables, models, objects and bytes per reading
    Inspect(DbArgs),
    /// Read everything and check every checksum and invariant
    Verify(DbArgs),
    /// Find out what keeps a damaged database from opening, and give that up
    Repair(RepairArgs),
    /// Write the papers' sensor workload to a file
    Generate(GenerateArgs),
    /// Measure what this machine does with the papers' workloads
    Bench(BenchArgs),
    /// Import a small real data set, move it through the models, and ask a few questions
    Demo(DemoArgs),
}

/// Which database, and what it may use.
#[derive(Debug, Clone, Args)]
pub(crate) struct DbArgs {
    /// Directory of the database; import and serve create it
    #[arg(long, env = "TIDEFALL_DB", default_value = "tidefall-data")]
    pub(crate) db: PathBuf,
    /// Memory budget, as in 512MiB
    #[arg(long, default_value = "512MiB", value_parser = parse_bytes)]
    pub(crate) memory: usize,
    /// Threads; 0 for one per core
    #[arg(long, default_value_t = 0, value_parser = parse_threads)]
    pub(crate) threads: usize,
}

/// `repair`
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Give up what is lost, and keep the damaged files in damaged/; without it nothing is changed
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What to do where there is no database yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

impl DbArgs {
    pub(crate) fn options(&self) -> DbOptions {
        let mut options = DbOptions { memory_bytes: self.memory, ..DbOptions::default() };
        if self.threads > 0 {
            options.threads = self.threads;
        }
        options
    }

    /// Opens the database for reading and writing.
    pub(crate) fn open(&self, missing: Missing) -> Result<Db> {
        self.check_there(missing)?;
        Db::open(&self.db, self.options())
    }

    /// Opens the database, only for reading if it cannot be written from here.
    pub(crate) fn open_shared(&self, missing: Missing) -> Result<Db> {
        self.check_there(missing)?;
        Db::open_shared(&self.db, self.options())
    }

    fn check_there(&self, missing: Missing) -> Result<()> {
        if missing == Missing::Refuse && !Db::exists(&self.db) {
            return Err(Error::not_found(format!(
                "there is no database in {}; import and serve make one, as query and shell do with --create",
                self.db.display()
            )));
        }
        Ok(())
    }
}

/// `create`
#[derive(Debug, Args)]
pub(crate) struct CreateTableArgs {
    /// The table
    #[arg(long)]
    pub(crate) table: String,
    /// The file with the descriptor
    #[arg(long, value_name = "FILE")]
    pub(crate) descriptor: PathBuf,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

/// What an import can be told of files that describe themselves, or of text, and not of rows of bytes.
const OF_TEXT: [&str; 23] = [
    "time",
    "time_columns",
    "time_format",
    "timezone",
    "tags",
    "fields",
    "skip",
    "null_texts",
    "constant_tags",
    "tag_from_file",
    "types",
    "wide",
    "separator",
    "decimal",
    "thousands",
    "comment",
    "no_header",
    "skip_lines",
    "bad_rows",
    "skip_bad_rows",
    "no_replace",
    "replace",
    "cascade",
];

/// `import`
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Files, in the order in which they count as written
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// The table; created when it is missing
    #[arg(long)]
    pub(crate) table: String,
    /// The files are rows of bytes, as this record descriptor in XML says; the table is one of records, and made when it is missing
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_TEXT)]
    pub(crate) descriptor: Option<PathBuf>,
    /// The time column; found by its values when absent
    #[arg(long)]
    pub(crate) time: Option<String>,
    /// Columns that make up the time: date,time or year[,month[,day[,hour[,minute[,second]]]]]
    #[arg(long, value_name = "COLUMNS", conflicts_with = "time")]
    pub(crate) time_columns: Vec<Names>,
    /// iso, s, ms, us, ns (since 1970), excel (days), or a pattern such as "%d.%m.%Y %H:%M"; found out when absent
    #[arg(long)]
    pub(crate) time_format: Option<String>,
    /// The time zone of times that name none, as in Europe/Berlin; UTC when absent. Times that clocks showed twice, as they
    /// went back, are taken for the first of both, and counted; those that they never showed make bad rows
    #[arg(long, value_name = "ZONE")]
    pub(crate) timezone: Option<String>,
    /// Columns that name the sensor; a column may be given as #3, and one with a comma in its name in quotation marks, as in
    /// '"site, room",id'. When absent, the tags of the table
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) tags: Vec<Names>,
    /// Columns that are measured; all others when absent
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) fields: Vec<Names>,
    /// Columns to leave out, and tags of the table that the rows do not have
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) skip: Vec<Names>,
    /// A text that stands for a missing value in every column, as nothing between separators does; may be repeated. "" in
    /// quotes is a text without letters, but for --null "". NA, N/A, null and NULL stand for a missing value among numbers,
    /// and among the texts of a file that has them among its numbers
    #[arg(long = "null")]
    pub(crate) null_texts: Vec<String>,
    /// A tag that every row gets, as name=value; may be repeated
    #[arg(long = "constant-tag", value_parser = parse_pair)]
    pub(crate) constant_tags: Vec<(String, String)>,
    /// A tag that the rows of each file get from its name: a.csv is a. With a pattern, as in
    /// "site=^([a-z]+)_", what the pattern or its first group finds in the name; may be repeated
    #[arg(long, value_name = "TAG[=PATTERN]")]
    pub(crate) tag_from_file: Vec<String>,
    /// The type of a field, as in v=DOUBLE; found by the values of all files when absent; may be repeated
    #[arg(long = "type", value_name = "FIELD=TYPE", value_parser = parse_type)]
    pub(crate) types: Vec<(String, FieldType)>,
    /// Every column beside the time and the tags is a sensor, named by this tag
    #[arg(long, value_name = "TAG")]
    pub(crate) wide: Option<String>,
    /// The character between columns; found out when absent
    #[arg(long)]
    pub(crate) separator: Option<char>,
    /// What stands before the decimals of numbers: a point or a comma; found out when absent
    #[arg(long)]
    pub(crate) decimal: Option<char>,
    /// What stands between the thousands of numbers, as in 1.234.567
    #[arg(long)]
    pub(crate) thousands: Option<char>,
    /// The character with which lines begin that are remarks; when absent # above the data
    #[arg(long)]
    pub(crate) comment: Option<char>,
    /// The first line is data, not names
    #[arg(long)]
    pub(crate) no_header: bool,
    /// Lines to pass over before the header
    #[arg(long, default_value_t = 0)]
    pub(crate) skip_lines: usize,
    /// Set bad rows aside instead of stopping at the first, and write them to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) bad_rows: Option<PathBuf>,
    /// Set bad rows aside instead of stopping at the first
    #[arg(long)]
    pub(crate) skip_bad_rows: bool,
    /// Stop at the first batch of rows of which one has tags and time that are there already or come twice, instead
    /// of replacing it; batches before it stay
    #[arg(long)]
    pub(crate) no_replace: bool,
    /// Let rows replace each other even where many of them do, in a new table without tags
    #[arg(long, conflicts_with = "no_replace")]
    pub(crate) replace: bool,
    /// When a batch counts as written: at the end of the import (memory), or once it is in the log
    #[arg(long, value_enum, default_value_t = AckArg::Memory)]
    pub(crate) ack: AckArg,
    /// Move all readings of the table this far afterwards
    #[arg(long, value_enum)]
    pub(crate) cascade: Option<TargetArg>,
    /// No progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AckArg {
    /// From memory; all is made durable at the end
    Memory,
    /// From the log on disk
    Durable,
}

impl From<AckArg> for Ack {
    fn from(ack: AckArg) -> Self {
        match ack {
            AckArg::Memory => Self::Memory,
            AckArg::Durable => Self::Durable,
        }
    }
}

/// How far readings move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetArg {
    /// As their ages ask
    Age,
    /// To short columns at least
    Short,
    /// To long columns
    Long,
}

impl From<TargetArg> for Target {
    fn from(target: TargetArg) -> Self {
        match target {
            TargetArg::Age => Self::ByAge,
            TargetArg::Short => Self::Short,
            TargetArg::Long => Self::Long,
        }
    }
}

/// `query`
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// SQL; several statements may be separated by semicolons
    pub(crate) sql: String,
    /// A text for $1, the next one for $2, and so on; cast it where a number is meant: `$1::DOUBLE`
    #[arg(long = "param", value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) parameters: Vec<String>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
    #[command(flatten)]
    pub(crate) create: CreateArgs,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Print the time taken and what was read to standard error
    #[arg(long)]
    pub(crate) timing: bool,
}

/// How answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people
    Table,
    /// CSV with a header
    Csv,
    /// One JSON array of objects
    Json,
}

/// Whether statements may begin a database.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Create the database if it is missing
    #[arg(long)]
    create: bool,
}

impl CreateArgs {
    pub(crate) fn missing(&self) -> Missing {
        if self.create { Missing::Create } else { Missing::Refuse }
    }
}

/// `shell`
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    #[command(flatten)]
    pub(crate) create: CreateArgs,
}

/// `serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Address and port to listen on; there is no access control yet, so keep it local
    #[arg(long, default_value = "127.0.0.1:8527", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Largest body of a request
    #[arg(long, default_value = "64MiB", value_parser = parse_body_max)]
    pub(crate) body_max: usize,
    /// How often to look for readings that have come of age, and to move them
    #[arg(long, default_value = "60s", value_parser = parse_pause)]
    pub(crate) cascade_every: Duration,
}

impl ServeArgs {
    /// Opens the database for reading and writing.
    pub(crate) fn open(&self) -> Result<Db> {
        let options = DbOptions { cascade_pause: self.cascade_every, ..self.db.options() };
        Db::open(&self.db.db, options)
    }
}

/// `cascade`
#[derive(Debug, Args)]
pub(crate) struct CascadeArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// One table instead of all
    #[arg(long)]
    pub(crate) table: Option<String>,
    /// How far
    #[arg(long, value_enum, default_value_t = TargetArg::Age)]
    pub(crate) to: TargetArg,
}

/// `generate`
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// The file; its name ends in .csv or .parquet
    pub(crate) file: PathBuf,
    /// Sensors, each with its own mean and spread
    #[arg(long, default_value_t = 500)]
    pub(crate) sensors: u32,
    /// Days of one reading a minute, from 2000-01-01 on
    #[arg(long, default_value_t = 1)]
    pub(crate) days: u32,
    /// The same seed gives the same file
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}

/// `bench`
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

/// What `bench` measures.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// Ingest by parallel shippers, the speed of each step, bytes per reading, and twelve queries on each model
    Cascade(BenchCascadeArgs),
}

/// `bench cascade`
#[derive(Debug, Args)]
pub(crate) struct BenchCascadeArgs {
    /// Sensors, each with one reading a minute
    #[arg(long, default_value_t = 100)]
    pub(crate) sensors: u32,
    /// Days in the long columns
    #[arg(long, default_value_t = 366)]
    pub(crate) days: u32,
    /// Memory budget in MiB; what is to leave memory has as much as it needs
    #[arg(long, default_value_t = 512)]
    pub(crate) memory: usize,
    /// Seconds that each number of shippers ships
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Scratch folder; what is measured depends on its disk
    #[arg(long, default_value_os_t = std::env::temp_dir().join("tidefall-bench"))]
    pub(crate) work: PathBuf,
    /// Print lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `demo`
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the demo's database here instead of throwing it away
    #[arg(long)]
    pub(crate) keep: Option<PathBuf>,
}

fn parse_pause(text: &str) -> Result<Duration> {
    parse_duration(text).map(|ns| Duration::from_nanos(ns.unsigned_abs()))
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not name=value")),
    }
}

/// A field and its type, as in `v=DOUBLE`.
fn parse_type(text: &str) -> Result<(String, FieldType), String> {
    let (name, ty) = parse_pair(text)?;
    match FieldType::from_sql_name(&ty) {
        Some(ty) => Ok((name, ty)),
        None => {
            let names: Vec<&str> = FieldType::ALL.iter().map(|ty| ty.sql_name()).collect();
            Err(format!("{ty:?} is not a type; there are {}", names.join(", ")))
        }
    }
}

/// More threads than any machine has cores.
const THREADS_MAX: usize = 1_024;

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if threads <= THREADS_MAX => Ok(threads),
        Ok(_) => Err(format!("at most {THREADS_MAX} threads can be started")),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_body_max(text: &str) -> Result<usize> {
    match parse_bytes(text)? {
        0 => Err(Error::invalid("no request would fit: write 64MiB")),
        bytes => Ok(bytes),
    }
}

/// An address and a port, or a name and a port; of the addresses of a name the first of IPv4.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let help = "write an address and a port, such as 127.0.0.1:8527";
    if text.starts_with(':') {
        return Err(format!("the address is missing: {help}"));
    }
    let addresses: Vec<SocketAddr> =
        text.to_socket_addrs().map_err(|error| format!("{error}: {help}"))?.collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| format!("{text:?} has no address: {help}"))
}

#[cfg(test)]
mod tests;
