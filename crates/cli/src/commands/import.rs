//! `tidefall import`

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tidefall_import::{
    BadLine, CsvOptions, Header, Layout, ParquetOptions, ParsedBatch, TimeFormat, TimeSource,
    open_csv, open_parquet,
};
use tidefall_storage::{BadRows, CascadeRequest, Db, Unknown, WriteOptions};
use tidefall_types::{Error, Result};

use crate::args::{AckArg, ImportArgs};
use crate::size::show_count;

/// Bad rows that are printed; the others are counted, and written to the file of bad rows.
const BAD_ROWS_SHOWN: u64 = 10;
/// Bytes of a bad row that are printed.
const BAD_TEXT_SHOWN: usize = 120;

pub(crate) fn run(args: ImportArgs) -> Result<()> {
    args.files.iter().try_for_each(|file| check_input(file))?;
    check_bad_file(&args)?;
    let db = args.db.open()?;
    let mut import = Import::new(&args)?;
    let outcome = args.files.iter().try_for_each(|file| import.file(&db, &args, file));
    // What was written before a failure is kept, so it must be made durable in any case.
    let flushed = match args.ack {
        AckArg::Memory => db.flush().map(drop),
        AckArg::Durable => Ok(()),
    };
    let outcome = outcome.and(flushed).and_then(|()| cascade(&db, &args));
    let outcome = outcome.and(import.end_bad_file()).and(db.close());
    match outcome {
        Ok(()) => import.report(&args.table),
        Err(_) => import.report_stop(&args.table),
    }
    outcome
}

fn cascade(db: &Db, args: &ImportArgs) -> Result<()> {
    let Some(target) = args.cascade else { return Ok(()) };
    db.cascade(&CascadeRequest { table: Some(args.table.clone()), target: target.into() })?;
    Ok(())
}

/// Whether a file can be read; a pipe can be opened only once, and is not.
fn check_input(file: &Path) -> Result<()> {
    let name = file.display();
    let failed = |error| Error::io(format!("opening {name}"), &error);
    let about = fs::metadata(file).map_err(failed)?;
    if about.is_dir() {
        return Err(Error::invalid(format!("{name} is a directory: name the files in it")));
    }
    if about.is_file() {
        File::open(file).map_err(failed)?;
    }
    Ok(())
}

/// Creating the file of bad rows empties it, which an input must not be.
fn check_bad_file(args: &ImportArgs) -> Result<()> {
    let place = |path: &PathBuf| path.canonicalize().ok();
    let Some(bad_rows) = &args.bad_rows else { return Ok(()) };
    let Some(bad_place) = place(bad_rows) else { return Ok(()) };
    match args.files.iter().any(|file| place(file).is_some_and(|file| file == bad_place)) {
        true => Err(Error::invalid(format!(
            "--bad-rows: {} is an input, and would be overwritten; name another file",
            bad_rows.display()
        ))),
        false => Ok(()),
    }
}

/// An import under way.
struct Import {
    start: Instant,
    rows: u64,
    bad: u64,
    bad_file: Option<BufWriter<File>>,
    sets_aside: bool,
}

impl Import {
    fn new(args: &ImportArgs) -> Result<Self> {
        let create = |path: &PathBuf| {
            File::create(path)
                .map(BufWriter::new)
                .map_err(|error| Error::io(format!("creating {}", path.display()), &error))
        };
        Ok(Self {
            start: Instant::now(),
            rows: 0,
            bad: 0,
            bad_file: args.bad_rows.as_ref().map(create).transpose()?,
            sets_aside: args.skip_bad_rows || args.bad_rows.is_some(),
        })
    }

    fn file(&mut self, db: &Db, args: &ImportArgs, path: &Path) -> Result<()> {
        let is_parquet = path.extension().is_some_and(|end| end == "parquet");
        if is_parquet {
            let reader = open_parquet(path, &parquet_options(args))?;
            let bytes = Some(reader.stored_bytes());
            self.batches(db, args, path, bytes, reader)
        } else {
            let reader = open_csv(path, &csv_options(args)?)?;
            let bytes = reader.stored_bytes();
            self.batches(db, args, path, bytes, reader)
        }
    }

    fn batches(
        &mut self,
        db: &Db,
        args: &ImportArgs,
        path: &Path,
        bytes: Option<u64>,
        batches: impl Iterator<Item = Result<ParsedBatch>>,
    ) -> Result<()> {
        let bar = progress(bytes, args.quiet)?;
        bar.set_message(path.display().to_string());
        let options = WriteOptions {
            ack: args.ack.into(),
            bad_rows: if self.sets_aside { BadRows::SetAside } else { BadRows::Reject },
            unknown: Unknown::Create,
        };
        for parsed in batches {
            let parsed = parsed?;
            for bad in &parsed.bad {
                self.set_aside(path, bad, &bar)?;
            }
            let report = db.write(&args.table, &parsed.batch, &options).map_err(|error| {
                error.context(format_args!("{}, behind row {}", path.display(), self.rows))
            })?;
            for bad in &report.bad {
                let line = self.rows + bad.row as u64 + 1;
                let text = String::new();
                self.set_aside(path, &BadLine { line, text, reason: bad.error.clone() }, &bar)?;
            }
            self.rows += report.rows as u64;
            bar.set_position(parsed.bytes_read);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn set_aside(&mut self, path: &Path, bad: &BadLine, bar: &ProgressBar) -> Result<()> {
        let mut text: String = bad.text.chars().take(BAD_TEXT_SHOWN).collect();
        if text.len() < bad.text.len() {
            text.push_str(" ...");
        }
        let place = format!("{}, line {}", path.display(), bad.line);
        if !self.sets_aside {
            let reason = bad.reason.clone().context(place);
            return Err(Error::invalid(format!(
                "{reason}\n  {text}\nNothing more was read; --bad-rows FILE or --skip-bad-rows go on without such rows"
            )));
        }
        self.bad += 1;
        if self.bad <= BAD_ROWS_SHOWN {
            bar.suspend(|| eprintln!("{place}: {}\n  {text}", bad.reason));
        }
        if let Some(file) = &mut self.bad_file {
            writeln!(
                file,
                "# {place}: {}\n{}",
                bad.reason,
                bad.text.trim_end_matches(['\r', '\n'])
            )
            .map_err(|error| Error::io("writing the file of bad rows", &error))?;
        }
        Ok(())
    }

    fn end_bad_file(&mut self) -> Result<()> {
        let Some(file) = &mut self.bad_file else { return Ok(()) };
        file.flush().map_err(|error| Error::io("writing the file of bad rows", &error))
    }

    fn report(&self, table: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        println!(
            "{} rows imported into {table} in {seconds:.2} s ({} rows/s), {} bad rows set aside",
            show_count(self.rows),
            show_count((self.rows as f64 / seconds) as u64),
            show_count(self.bad),
        );
    }

    /// Says what an import that failed has left.
    fn report_stop(&self, table: &str) {
        eprintln!(
            "{} rows were written to {table} before the import stopped",
            show_count(self.rows)
        );
    }
}

fn progress(bytes: Option<u64>, quiet: bool) -> Result<ProgressBar> {
    if quiet {
        return Ok(ProgressBar::hidden());
    }
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{msg} [{bar:30}] {percent}% {binary_bytes_per_sec}, {eta} left",
        ),
        None => (ProgressBar::new_spinner(), "{msg} {binary_bytes} {binary_bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template)
        .map_err(|error| Error::invalid(format!("the progress bar: {error}")))?;
    bar.set_style(style.progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}

fn csv_options(args: &ImportArgs) -> Result<CsvOptions> {
    let mut options = CsvOptions {
        separator: args.separator.map(separator).transpose()?,
        header: if args.no_header { Header::No } else { Header::Auto },
        tags: args.tags.clone(),
        fields: (!args.fields.is_empty()).then(|| args.fields.clone()),
        skip: args.skip.clone(),
        constant_tags: args.constant_tags.clone(),
        skip_lines: args.skip_lines,
        threads: args.db.threads,
        ..CsvOptions::default()
    };
    options.null_texts.extend(args.null_texts.iter().cloned());
    if let Some(format) = &args.time_format {
        options.time_format = Some(TimeFormat::from_name(format)?);
    }
    if let Some(time) = &args.time {
        options.time = TimeSource::Columns(vec![time.clone()]);
    } else if !args.time_columns.is_empty() {
        options.time = TimeSource::Columns(args.time_columns.clone());
    }
    if let Some(tag) = &args.wide {
        options.layout = Layout::Wide { tag: tag.clone() };
    }
    Ok(options)
}

fn separator(c: char) -> Result<u8> {
    u8::try_from(c)
        .ok()
        .filter(u8::is_ascii)
        .ok_or_else(|| Error::invalid(format!("the separator {c:?} is not an ASCII character")))
}

fn parquet_options(args: &ImportArgs) -> ParquetOptions {
    ParquetOptions {
        time: args.time.clone(),
        tags: args.tags.clone(),
        fields: (!args.fields.is_empty()).then(|| args.fields.clone()),
        skip: args.skip.clone(),
        threads: args.db.threads,
    }
}
