//! `tidefall repair`

use tidefall_storage::{Db, Repair};
use tidefall_types::Error;

use crate::args::RepairArgs;
use crate::output::{Outcome, say};
use crate::size::show_count;

pub(crate) fn run(args: &RepairArgs) -> Outcome {
    let how = if args.yes { Repair::Mend } else { Repair::Look };
    let report = Db::repair(&args.db.db, args.db.options(), how)?;
    for loss in &report.losses {
        say!("lost: {loss}")?;
    }
    for damage in &report.left {
        say!("damaged, and left as it is: {damage}")?;
    }
    say!(
        "of the log {} records with {} rows can be read",
        show_count(report.records),
        show_count(report.rows)
    )?;
    match (&report.kept_in, report.losses.len()) {
        (_, 0) => say!("nothing keeps the database from opening; verify looks into every object"),
        (Some(kept_in), _) => say!(
            "repaired: the database opens without what is lost; the damaged files are in {}",
            args.db.db.join(kept_in).display()
        ),
        (None, losses) => {
            say!(
                "nothing was changed. If there is a copy of these files, put it back; with --yes the database \
                 gives up what is lost, and the damaged files are kept"
            )?;
            Err(Error::corrupt(format!("{losses} losses; the first: {}", report.losses[0])).into())
        }
    }
}
