//! `tidefall cascade`

use std::time::Instant;

use tidefall_storage::CascadeRequest;

use crate::args::{CascadeArgs, Missing};
use crate::output::{Outcome, say};
use crate::size::{show_bytes, show_count, show_number_of};

pub(crate) fn run(args: CascadeArgs) -> Outcome {
    let db = args.db.open(Missing::Refuse)?;
    let start = Instant::now();
    let request = CascadeRequest { table: args.table, target: args.to.into() };
    let report = db.cascade(&request)?;
    let seconds = start.elapsed().as_secs_f64();
    match report.steps {
        0 => say!("nothing is due: all readings are in the models of their age")?,
        steps => say!(
            "{} moved {} rows into {} in {seconds:.2} s; {} rows were replaced, deleted or too old",
            show_number_of(steps, "step"),
            show_count(report.rows),
            show_bytes(report.bytes),
            show_count(report.rows_dropped),
        )?,
    }
    Ok(db.close()?)
}
