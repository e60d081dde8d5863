//! `tidefall create`

use std::path::Path;

use tidefall_import::Descriptor;
use tidefall_storage::IfExists;
use tidefall_types::{Error, Result};

use crate::args::{CreateTableArgs, Missing};
use crate::output::{Outcome, say};

pub(crate) fn run(args: &CreateTableArgs) -> Outcome {
    let descriptor = read_descriptor(&args.descriptor)?;
    let db = args.db.open(Missing::Create)?;
    let schema = descriptor.schema(&args.table)?;
    let created = db.create_table(&schema, IfExists::Fail);
    created.and(db.close())?;
    say!(
        "table {} of records, with {} columns and {} dimensions",
        args.table,
        schema.columns.len(),
        schema.dimensions.len()
    )
}

/// A descriptor from its file.
pub(crate) fn read_descriptor(file: &Path) -> Result<Descriptor> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::io(format!("reading {name}"), &error))?;
    Descriptor::parse(&text).map_err(|error| error.context(name))
}
