//! `tidefall verify`

use tidefall_types::Error;

use crate::args::{DbArgs, Missing};
use crate::output::{Outcome, say};
use crate::size::show_count;

pub(crate) fn run(args: DbArgs) -> Outcome {
    let db = args.open_shared(Missing::Refuse)?;
    let report = db.verify()?;
    say!(
        "read {} objects with {} rows and {} blocks of metrics: {} damages",
        report.objects,
        show_count(report.rows),
        show_count(report.blocks),
        report.damages.len()
    )?;
    for damage in &report.damages {
        say!("  {damage}")?;
    }
    db.close()?;
    match report.damages.first() {
        None => Ok(()),
        Some(first) => Err(Error::corrupt(format!(
            "{} damages; the first: {first}; restore these objects from a copy, the others are whole",
            report.damages.len()
        ))
        .into()),
    }
}
