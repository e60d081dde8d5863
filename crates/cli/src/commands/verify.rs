//! `tidefall verify`

use tidefall_types::{Error, Result};

use crate::args::DbArgs;
use crate::size::show_count;

pub(crate) fn run(args: DbArgs) -> Result<()> {
    let db = args.open_shared()?;
    let report = db.verify()?;
    println!(
        "read {} objects with {} rows and {} blocks of metrics: {} damages",
        report.objects,
        show_count(report.rows),
        show_count(report.blocks),
        report.damages.len()
    );
    for damage in &report.damages {
        println!("  {damage}");
    }
    db.close()?;
    match report.damages.first() {
        None => Ok(()),
        Some(first) => Err(Error::corrupt(format!(
            "{} damages; the first: {first}; restore these objects from a copy, the others are whole",
            report.damages.len()
        ))),
    }
}
