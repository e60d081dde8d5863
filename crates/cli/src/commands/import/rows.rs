//! Files of rows of bytes, as a record descriptor says.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use tidefall_import::Descriptor;
use tidefall_storage::{Ack, BadRows, Db, IfExists, WriteOptions};
use tidefall_types::{Error, Result};

use super::{Import, progress};
use crate::args::{ImportArgs, Missing};
use crate::commands::create::read_descriptor;
use crate::output::{Outcome, note};

/// Bytes of rows that are written together at most, ...
const PIECE_BYTES: usize = 64 << 20;
/// ... and which part of the memory they take: as columns some may take five times as much.
const PIECE_PART: usize = 32;

pub(super) fn run(args: &ImportArgs, descriptor: &Path) -> Outcome {
    let descriptor = read_descriptor(descriptor)?;
    // Before anything is written: no record can be told from a wrong one afterwards.
    args.files.iter().try_for_each(|file| check(file, &descriptor))?;
    let db = args.db.open(Missing::Create)?;
    let mut import = Import::new(args)?;
    let outcome =
        db.create_table(&descriptor.schema(&args.table)?, IfExists::Keep).and_then(|_| {
            args.files.iter().try_for_each(|file| import.rows(&db, args, &descriptor, file))
        });
    let closed = db.close();
    let is_kept = closed.is_ok();
    if let Err(error) = outcome.and(closed) {
        import.report_stop(&args.table, is_kept);
        return Err(error.into());
    }
    import.report(&args.table)
}

/// Whether a file may be one of such rows, as far as its length and its first bytes tell; of a pipe nothing is known.
fn check(path: &Path, descriptor: &Descriptor) -> Result<()> {
    let name = path.display();
    let failed = |error| Error::io(format!("reading {name}"), &error);
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Ok(());
    }
    let mut begin = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut begin));
    read.map_err(failed)?;
    if begin.starts_with(&[0x1f, 0x8b]) || begin == [0x28, 0xb5, 0x2f, 0xfd] {
        return Err(Error::unsupported(format!("{name} is compressed; unpack it first")));
    }
    match about.len() % descriptor.row_bytes() as u64 {
        0 => Ok(()),
        rest => Err(Error::invalid(format!(
            "{name}: the last row has {rest} bytes, and a row of the descriptor has {}",
            descriptor.row_bytes()
        ))),
    }
}

impl Import {
    fn rows(
        &mut self,
        db: &Db,
        args: &ImportArgs,
        descriptor: &Descriptor,
        path: &Path,
    ) -> Result<()> {
        let name = path.display();
        let failed = |error| Error::io(format!("reading {name}"), &error);
        let mut file = File::open(path).map_err(failed)?;
        let bar = progress(file.metadata().ok().map(|about| about.len()), args.quiet)?;
        bar.set_message(name.to_string());
        let row_bytes = descriptor.row_bytes();
        let piece_bytes = PIECE_BYTES.min(args.db.memory / PIECE_PART);
        let piece_bytes = (piece_bytes / row_bytes).max(1) * row_bytes;
        let options = WriteOptions {
            ack: Ack::Durable,
            bad_rows: BadRows::Reject,
            ..WriteOptions::default()
        };
        let (mut piece, mut first) = (Vec::new(), 1);
        loop {
            self.interrupt.check()?;
            piece.clear();
            let read = file.by_ref().take(piece_bytes as u64).read_to_end(&mut piece);
            if read.map_err(failed)? == 0 {
                break;
            }
            let columns =
                descriptor.columns(&piece, first).map_err(|error| error.context(&name))?;
            let report = db.write_records(&args.table, &columns, &options);
            let last = first + (piece.len() / row_bytes) as u64 - 1;
            let place = || format!("{name}, rows {first} to {last}");
            self.rows += report.map_err(|error| error.context(place()))?.rows as u64;
            first = last + 1;
            bar.inc(piece.len() as u64);
        }
        bar.finish_and_clear();
        if first == 1 {
            note!("{name}: no rows");
        }
        Ok(())
    }
}
