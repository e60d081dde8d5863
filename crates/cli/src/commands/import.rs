//! `tidefall import`

mod advice;
mod inputs;
mod rows;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arrow_array::Array;
use arrow_cast::display::array_value_to_string;
use indicatif::{ProgressBar, ProgressStyle};
use tidefall_import::{BadLine, ParsedBatch, is_columnar, open_columnar, open_csv};
use tidefall_storage::{BadRows, CascadeRequest, Db, Existing, FieldTypes, Unknown, WriteOptions};
use tidefall_types::{
    Error, FieldColumn, FieldType, NO_TAG, Result, TableSchema, WriteBatch, format_time,
};

use crate::args::{AckArg, ImportArgs, Missing};
use crate::interrupt::Interrupt;
use crate::output::{Outcome, note, say};
use crate::size::show_count;
use advice::Imported;
use inputs::Inputs;

/// Bad rows that are printed; the others are counted, and written to the file of bad rows.
const BAD_ROWS_SHOWN: u64 = 10;
/// Bytes of a bad row that are printed.
const BAD_TEXT_SHOWN: usize = 120;
/// Rows that may replace others without advice: a logger repeats a line now and then.
const REPLACED_FEW: u64 = 10;

pub(crate) fn run(mut args: ImportArgs) -> Outcome {
    args.files.iter().try_for_each(|file| check_input(file))?;
    if let Some(descriptor) = &args.descriptor {
        return rows::run(&args, descriptor);
    }
    leave_out_empty(&mut args.files);
    check_bad_file(&args)?;
    let mut inputs = Inputs::new(&args)?;
    let db = args.db.open(Missing::Create)?;
    let mut import = Import::new(&args)?;
    let before = db.schema(&args.table).ok();
    let outcome = inputs.settle_types(&db).and_then(|notes| {
        notes.into_iter().for_each(|(file, text)| import.note(&file, &text));
        args.files.iter().try_for_each(|file| import.file(&db, &inputs, file))
    });
    // What was written before a failure is kept, so it must be made durable in any case.
    let outcome = match args.ack {
        AckArg::Memory => db.flush_after(outcome),
        AckArg::Durable => outcome,
    };
    let outcome = outcome.and_then(|()| cascade(&db, &args, &import.interrupt));
    let table = db.schema(&args.table).ok();
    if let (Some(before), Some(after)) = (&before, &table) {
        note_types(before, after);
    }
    let closed = db.close();
    let is_kept = closed.is_ok();
    let outcome = outcome.and(import.end_bad_file()).and(closed);
    if let Err(error) = outcome {
        import.report_stop(&args.table, is_kept);
        return Err(error.into());
    }
    import.report(&args.table)?;
    if import.replaced > REPLACED_FEW {
        let imported = Imported { rows: import.rows, replaced: import.replaced };
        note!("{}", inputs.advice(&imported, table.as_ref()));
    }
    Ok(())
}

fn cascade(db: &Db, args: &ImportArgs, interrupt: &Interrupt) -> Result<()> {
    let Some(target) = args.cascade else { return Ok(()) };
    interrupt.check()?;
    db.cascade(&CascadeRequest { table: Some(args.table.clone()), target: target.into() })?;
    Ok(())
}

/// Says which fields have got other types.
fn note_types(before: &TableSchema, after: &TableSchema) {
    for (before, after) in before.fields.iter().zip(&after.fields) {
        if before.ty != after.ty {
            let (name, old, new) = (&after.name, before.ty.sql_name(), after.ty.sql_name());
            note!("{name:?} was {old} and is {new} from now on");
        }
    }
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

/// Among several files those without a byte keep the others from nothing: a logger had nothing to write.
fn leave_out_empty(files: &mut Vec<PathBuf>) {
    let is_empty =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|about| about.is_file() && about.len() == 0);
    if files.iter().all(is_empty) {
        return;
    }
    for file in files.extract_if(.., |file| is_empty(file)) {
        note!("{}: the file is empty", file.display());
    }
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

/// A file and how its rows are counted.
struct Source<'a> {
    path: &'a Path,
    bytes: Option<u64>,
    unit: &'static str,
}

/// A row that cannot be taken.
struct BadRow<'a> {
    place: String,
    text: &'a str,
    reason: &'a Error,
}

/// An import under way.
struct Import {
    start: Instant,
    interrupt: Interrupt,
    rows: u64,
    /// Rows that took the place of others.
    replaced: u64,
    /// Whether this import makes a table without tags, in which rows of equal time replace each other.
    makes_untagged: bool,
    /// Rows that took values away from others, which rows with other fields do not.
    lost: u64,
    /// Whether all of those could be counted.
    counted: bool,
    bad: u64,
    /// What was said of the files before.
    notes: HashSet<String>,
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
            interrupt: Interrupt::listen()?,
            rows: 0,
            replaced: 0,
            makes_untagged: false,
            lost: 0,
            counted: true,
            bad: 0,
            notes: HashSet::new(),
            bad_file: args.bad_rows.as_ref().map(create).transpose()?,
            sets_aside: args.skip_bad_rows || args.bad_rows.is_some(),
        })
    }

    fn file(&mut self, db: &Db, inputs: &Inputs<'_>, path: &Path) -> Result<()> {
        // Looked up for each file: the one before may have made the table or given it columns.
        let table = db.schema(&inputs.args.table).ok();
        let is_new = table.is_none();
        if is_columnar(path) {
            let reader = open_columnar(path, &inputs.columnar(path, table)?)?;
            if is_new && reader.tags().next().is_none() {
                hint_at_tags(path, reader.fields().iter().map(|(name, ty)| (name, *ty)));
            }
            self.makes_untagged |= is_new && reader.tags().next().is_none();
            let bytes = Some(reader.stored_bytes());
            self.batches(db, inputs, &Source { path, bytes, unit: "row" }, reader)
        } else {
            let reader = open_csv(path, &inputs.csv(path, table)?)?;
            let schema = reader.schema();
            schema.notes.iter().for_each(|text| self.note(path, text));
            if is_new && schema.tags.is_empty() {
                let names = schema.fields.iter().filter(|field| !inputs.is_mixed(&field.name));
                hint_at_tags(path, names.map(|field| (&field.name, field.ty)));
            }
            self.makes_untagged |= is_new && schema.tags.is_empty();
            let bytes = reader.stored_bytes();
            self.batches(db, inputs, &Source { path, bytes, unit: "line" }, reader)
        }
    }

    /// Says something about a file, unless it was said of another.
    fn note(&mut self, file: &Path, text: &str) {
        if self.notes.insert(text.to_owned()) {
            note!("{}: {text}", file.display());
        }
    }

    fn batches(
        &mut self,
        db: &Db,
        inputs: &Inputs<'_>,
        source: &Source<'_>,
        batches: impl Iterator<Item = Result<ParsedBatch>>,
    ) -> Result<()> {
        let args = inputs.args;
        let is_watched = self.makes_untagged && !args.replace && !args.no_replace;
        let path = source.path.display();
        let bar = progress(source.bytes, args.quiet)?;
        bar.set_message(path.to_string());
        let (mut file_rows, mut twice) = (0, 0);
        let options = WriteOptions {
            ack: args.ack.into(),
            bad_rows: if self.sets_aside { BadRows::SetAside } else { BadRows::Reject },
            unknown: Unknown::Create,
            existing: if args.no_replace { Existing::Refuse } else { Existing::Count },
            field_types: FieldTypes::Widen,
        };
        for parsed in batches {
            self.interrupt.check()?;
            let parsed = parsed?;
            for BadLine { line, text, reason } in &parsed.bad {
                let place = format!("{path}, {} {line}", source.unit);
                self.set_aside(&BadRow { place, text, reason }, &bar)?;
            }
            let (first, last) = parsed.lines.clone().into_inner();
            let place = || format!("{path}, {}s {first} to {last}", source.unit);
            let among = if is_watched { Among::of(&parsed.batch) } else { Among::default() };
            if self.loses_many(among.lost, parsed.batch.rows()) {
                let stop = self.stop(db, inputs, (among.lost, parsed.batch.rows()));
                return Err(stop.context(place()));
            }
            let report = inputs
                .write(db, &parsed.batch, &options)
                .map_err(|error| error.context(place()))?;
            let replaced = report.replaced.unwrap_or(0);
            let lost = if is_watched { replaced.saturating_sub(among.completed) } else { 0 };
            let loses_many = self.loses_many(lost, report.rows);
            for bad in &report.bad {
                let row = row_number(file_rows, &parsed.bad, bad.row);
                let text = row_text(&parsed.batch, bad.row);
                let place = format!("{path}, row {row}");
                self.set_aside(&BadRow { place, text: &text, reason: &bad.error }, &bar)?;
            }
            twice += parsed.twice;
            file_rows += (parsed.batch.rows() + parsed.bad.len()) as u64;
            self.rows += report.rows as u64;
            self.replaced += replaced;
            self.lost += lost;
            if loses_many {
                return Err(self.stop(db, inputs, (0, 0)).context(place()));
            }
            self.counted &= report.replaced.is_some() || report.rows == 0;
            bar.set_position(parsed.bytes_read);
        }
        bar.finish_and_clear();
        if file_rows == 0 {
            note!("{path}: no rows");
        }
        if twice > 0 {
            note!(
                "{path}: {} times were shown twice by clocks in {}, as they went back; each was taken for the first of both",
                show_count(twice),
                args.timezone.as_deref().unwrap_or("the zones that they name")
            );
        }
        Ok(())
    }

    /// Whether a quarter of the rows of the import or more, with some more of which so many take values away from others, would be
    /// lost: in a table without tags that is hardly meant.
    fn loses_many(&self, lost: u64, rows: usize) -> bool {
        let lost = self.lost + lost;
        lost > 0 && lost * 4 >= self.rows + rows as u64
    }

    /// Why the import stops, with some more rows that are not written. The table that it has made without tags is taken away if
    /// all rows can be read again.
    fn stop(&mut self, db: &Db, inputs: &Inputs<'_>, (lost, rows): (u64, usize)) -> Error {
        let (all_lost, all) = (self.lost + lost, self.rows + rows as u64);
        let mut files = inputs.args.files.iter();
        let is_made = db.schema(&inputs.args.table).is_ok();
        let made = if is_made && files.all(|file| file.is_file()) {
            if let Err(error) = db.drop_table(&inputs.args.table) {
                return error;
            }
            (self.rows, self.replaced) = (0, 0);
            "; the table was not kept"
        } else {
            ""
        };
        Error::conflict(format!(
            "{} of {} rows have the time of another one, and would replace it, as no column is a tag; {}, or --replace to \
             keep the last row of each time{made}",
            show_count(all_lost),
            show_count(all),
            inputs.advice_on_tags(all)
        ))
    }

    fn set_aside(&mut self, bad: &BadRow<'_>, bar: &ProgressBar) -> Result<()> {
        let place = &bad.place;
        let mut text: String = bad.text.chars().take(BAD_TEXT_SHOWN).collect();
        if text.len() < bad.text.len() {
            text.push_str(" ...");
        }
        if !self.sets_aside {
            let reason = bad.reason.clone().context(place);
            return Err(Error::invalid(format!(
                "{reason}\n  {text}\nNothing more was read; --bad-rows FILE or --skip-bad-rows go on without such rows"
            )));
        }
        self.bad += 1;
        if self.bad <= BAD_ROWS_SHOWN {
            bar.suspend(|| note!("{place}: {}\n  {text}", bad.reason));
        }
        if let Some(file) = &mut self.bad_file {
            let text = bad.text.trim_end_matches(['\r', '\n']);
            writeln!(file, "# {place}: {}\n{text}", bad.reason)
                .map_err(|error| Error::io("writing the file of bad rows", &error))?;
        }
        Ok(())
    }

    fn end_bad_file(&mut self) -> Result<()> {
        let Some(file) = &mut self.bad_file else { return Ok(()) };
        file.flush().map_err(|error| Error::io("writing the file of bad rows", &error))
    }

    fn report(&self, table: &str) -> Outcome {
        let seconds = self.start.elapsed().as_secs_f64();
        say!(
            "{} rows imported into {table}, {} of them replaced earlier ones, {} bad rows set \
             aside; {seconds:.2} s, {} rows/s",
            show_count(self.rows),
            self.show_replaced(),
            show_count(self.bad),
            show_count((self.rows as f64 / seconds) as u64),
        )
    }

    fn show_replaced(&self) -> String {
        let least = if self.counted { "" } else { "at least " };
        format!("{least}{}", show_count(self.replaced))
    }

    /// Says what an import that failed has left; `is_kept` tells whether all that was written is on the disk.
    fn report_stop(&self, table: &str, is_kept: bool) {
        if !is_kept {
            return note!(
                "{} rows were read for {table} before the import stopped, and those that were still in memory are \
                 lost: import the files again",
                show_count(self.rows)
            );
        }
        note!(
            "{} rows were written to {table} before the import stopped, {} of them replaced earlier ones",
            show_count(self.rows),
            self.show_replaced(),
        );
    }
}

/// Rows of a batch without tags that have the time of another one.
#[derive(Debug, Default)]
struct Among {
    /// Those that take a value away.
    lost: u64,
    /// Those that only have values of other fields.
    completed: u64,
}

impl Among {
    fn of(batch: &WriteBatch) -> Self {
        let repeated = |rows: &mut dyn Iterator<Item = usize>| {
            let mut times = HashSet::new();
            rows.filter(|row| !times.insert(batch.time[*row])).count() as u64
        };
        let all = repeated(&mut (0..batch.rows()));
        if all == 0 {
            return Self::default();
        }
        let of_field = |field: &FieldColumn| {
            let is_there = |row: &usize| field.values.is_valid(*row);
            repeated(&mut (0..batch.rows()).filter(is_there))
        };
        let lost = batch.fields.iter().map(of_field).max().unwrap_or(all);
        Self { lost, completed: all - lost }
    }
}

/// Tells that all rows will be of one sensor, where a column may well name several.
fn hint_at_tags<'a>(path: &Path, fields: impl Iterator<Item = (&'a String, FieldType)>) {
    let texts = fields.filter(|(_, ty)| *ty == FieldType::Text).map(|(name, _)| name.as_str());
    let texts = texts.collect::<Vec<_>>().join(",");
    if !texts.is_empty() {
        note!(
            "{}: no column is a tag, so rows of equal time replace each other; --tags names those that tell sensors \
             apart, perhaps some of {texts}",
            path.display()
        );
    }
}

/// The number that a good row has among all rows of a file, from 1; `bad` are the numbers of those
/// that its batch lacks.
fn row_number(rows_before: u64, bad: &[BadLine], row: usize) -> u64 {
    bad.iter()
        .fold(rows_before + row as u64 + 1, |number, bad| number + u64::from(bad.line <= number))
}

/// A row of which there is no line of text.
fn row_text(batch: &WriteBatch, row: usize) -> String {
    let tags = batch.tags.iter().filter(|tag| tag.keys[row] != NO_TAG);
    let tags = tags.map(|tag| format!("{}={}", tag.name, tag.values.value(tag.keys[row] as usize)));
    let fields = batch.fields.iter().filter(|field| field.values.is_valid(row));
    let fields = fields.map(|field| {
        let value = array_value_to_string(&field.values, row).unwrap_or_default();
        format!("{}={value}", field.name)
    });
    let time = format_time(batch.time[row]);
    std::iter::once(time).chain(tags).chain(fields).collect::<Vec<_>>().join(",")
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
