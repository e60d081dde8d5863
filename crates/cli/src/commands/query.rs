//! `tidefall query`

use std::time::Instant;

use tidefall_sql::{Parameter, Session};

use super::runtime;
use crate::args::QueryArgs;
use crate::output::{Outcome, Stop, note, print, show_reads};

pub(crate) fn run(args: QueryArgs) -> Outcome {
    let values: Vec<Parameter> = args.parameters.into_iter().map(Parameter::Text).collect();
    let db = args.db.open_shared(args.create.missing())?;
    let outcome = runtime()?.block_on(async {
        let session = Session::new(db.clone());
        let start = Instant::now();
        let mut answer = session.query_with(&args.sql, &values).await?;
        let rows = print(&mut answer, args.format).await?;
        if args.timing {
            let millis = start.elapsed().as_secs_f64() * 1e3;
            note!("{rows} rows in {millis:.1} ms; {}", show_reads(&answer.reads()));
        }
        Ok::<_, Stop>(())
    });
    db.close()?;
    outcome
}
