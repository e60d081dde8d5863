//! `tidefall demo`: a year of weather at New York's airports moves through the three models.

use std::sync::Arc;
use std::time::Instant;

use tidefall_import::{CsvOptions, Input, TimeSource, read_csv};
use tidefall_sql::Session;
use tidefall_storage::{Ack, CascadeRequest, Db, DbOptions, Model, Target, Unknown, WriteOptions};
use tidefall_types::{Error, ManualClock, Result, format_time, parse_time};

use super::runtime;
use crate::args::{DemoArgs, Format};
use crate::output::{Outcome, print, say, show_reads};
use crate::size::{show_bytes, show_count};

const FILE: &str = "weather_nyc.csv.gz";
/// Carried in the program, which is all that a user may have.
const DATA: &[u8] = include_bytes!("../../../../examples/data/weather_nyc.csv.gz");
const TABLE: &str = "weather";
/// The demo's "now": the last hours of the data are then young, the last month is of middle age.
const NOW: &str = "2013-12-31T12:00:00Z";

const QUESTIONS: [(&str, &str); 5] = [
    (
        "What were the latest temperatures?",
        "SELECT origin, last_value(temp ORDER BY time) AS temp, max(time) AS at \
         FROM weather GROUP BY origin ORDER BY origin",
    ),
    (
        "How warm was each month at JFK? (from block metrics)",
        "SELECT date_trunc('month', day) AS month, min(low) AS low, max(high) AS high FROM \
         (SELECT date_bin(INTERVAL '1 day', time) AS day, min(temp) AS low, max(temp) AS high \
          FROM weather WHERE origin = 'JFK' GROUP BY 1) GROUP BY 1 ORDER BY 1",
    ),
    (
        "Which days had the strongest gusts?",
        "SELECT date_bin(INTERVAL '1 day', time) AS day, origin, max(wind_gust) AS gust \
         FROM weather WHERE wind_gust > 50 GROUP BY 1, 2 ORDER BY gust DESC LIMIT 5",
    ),
    (
        "What did the February blizzard look like at LGA?",
        "SELECT time, temp, wind_speed, visib, pressure FROM weather WHERE origin = 'LGA' \
         AND time BETWEEN '2013-02-09 00:00' AND '2013-02-09 05:00' ORDER BY time",
    ),
    (
        "How would the yearly means be found?",
        "EXPLAIN SELECT origin, avg(temp), avg(humid), count(*) FROM weather \
         WHERE time < '2013-12-01' GROUP BY origin",
    ),
];

pub(crate) fn run(args: DemoArgs) -> Outcome {
    let temporary;
    let dir = match &args.keep {
        Some(dir) if Db::exists(dir) => {
            return Err(Error::conflict(format!(
                "there is a database in {} already; name another directory to --keep",
                dir.display()
            ))
            .into());
        }
        Some(dir) => dir.as_path(),
        None => {
            temporary = TemporaryDir::new()?;
            temporary.0.as_path()
        }
    };
    let clock = Arc::new(ManualClock::new(parse_time(NOW)?));
    let db = Db::open(dir, DbOptions { clock, ..DbOptions::default() })?;
    import(&db)?;
    let start = Instant::now();
    let report = db.cascade(&CascadeRequest { table: None, target: Target::ByAge })?;
    say!(
        "Moved {} readings to the next models by their age, as if it were {NOW}, in {:.0} ms:\n",
        show_count(report.rows),
        start.elapsed().as_secs_f64() * 1e3
    )?;
    show_models(&db)?;
    runtime()?.block_on(ask(&db))?;
    Ok(db.close()?)
}

fn import(db: &Db) -> Outcome {
    let start = Instant::now();
    let options = CsvOptions {
        time: TimeSource::Columns(vec!["time_hour".into()]),
        tags: vec!["origin".into()],
        skip: ["year", "month", "day", "hour"].map(str::to_owned).to_vec(),
        ..CsvOptions::default()
    };
    let write =
        WriteOptions { ack: Ack::Durable, unknown: Unknown::Create, ..WriteOptions::default() };
    let mut rows = 0;
    let input = Input::from_reader(FILE, Box::new(DATA), Some(DATA.len() as u64))?;
    for batch in read_csv(input, &options)? {
        rows += db.write(TABLE, &batch?.batch, &write)?.rows;
    }
    say!(
        "Imported {} hourly readings of 9 measures at 3 airports from {FILE}, each acknowledged from \
         the log on disk, in {:.0} ms.",
        show_count(rows as u64),
        start.elapsed().as_secs_f64() * 1e3
    )
}

fn show_models(db: &Db) -> Outcome {
    for table in db.inspect()? {
        say!("  kv     {:>6} rows in memory", show_count(table.rows_in_memory))?;
        for model in table.models.iter().filter(|model| model.model != Model::Kv) {
            say!(
                "  {:<6} {:>6} rows in {} objects, {}, {}",
                model.model.name(),
                show_count(model.rows),
                model.objects,
                show_bytes(model.bytes),
                model.time.map_or_else(String::new, |time| format!(
                    "{} to {}",
                    format_time(time.first_ns),
                    format_time(time.last_ns)
                ))
            )?;
        }
    }
    Ok(())
}

async fn ask(db: &Db) -> Outcome {
    let session = Session::new(db.clone());
    for (question, sql) in QUESTIONS {
        say!("\n{question}\n  {sql}")?;
        let start = Instant::now();
        let mut answer = session.query(sql).await?;
        print(&mut answer, Format::Table).await?;
        let millis = start.elapsed().as_secs_f64() * 1e3;
        say!("  {millis:.1} ms; {}", show_reads(&answer.reads()))?;
    }
    Ok(())
}

/// A directory that goes when the demo ends.
struct TemporaryDir(std::path::PathBuf);

impl TemporaryDir {
    fn new() -> Result<Self> {
        let name = format!("tidefall-demo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)
            .map_err(|error| Error::io(format!("creating {}", path.display()), &error))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // Left behind, it is only in the way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
