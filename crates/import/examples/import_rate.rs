//! Reads a CSV or Parquet file, throws the batches away, and prints how fast that was:
//!
//! `cargo run --release -p tidefall-import --example import_rate -- FILE [TAG,TAG... [THREADS]]`
//!
//! `import_rate --generate ROWS FILE` writes a file of `time,sensor,value` lines to measure with.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use tidefall_import::{BadLine, ColumnarOptions, CsvOptions, ParsedBatch, open_columnar, open_csv};
use tidefall_types::{Error, Result, format_time};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [flag, rows, path] if flag == "--generate" => {
            let rows = rows.parse().map_err(|_| Error::invalid("ROWS is a number"))?;
            generate(rows, Path::new(path)).map_err(|error| Error::io(path, &error))
        }
        [path, rest @ ..] => measure(Path::new(path), rest),
        [] => Err(Error::invalid("usage: import_rate FILE [TAG,TAG... [THREADS]]")),
    }
}

/// Readings of 500 sensors once a minute, time after time, with three decimals.
fn generate(rows: i64, path: &Path) -> std::io::Result<()> {
    const SENSORS: i64 = 500;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "time,sensor,value")?;
    for row in 0..rows {
        let time_ns = (1_704_067_200 + row / SENSORS * 60) * 1_000_000_000;
        let sensor = row % SENSORS;
        let wave = (row as f64 / 50_000.0 + sensor as f64).sin() * 5.0 + 20.0;
        let noise = (row * 7_919 % 1_009) as f64 / 1_000.0;
        writeln!(file, "{},s{sensor:03},{:.3}", format_time(time_ns), wave + noise)?;
    }
    file.flush()
}

fn measure(path: &Path, arguments: &[String]) -> Result<()> {
    let tags = arguments.first().filter(|tags| !tags.is_empty());
    let tags: Vec<String> =
        tags.map_or(Vec::new(), |tags| tags.split(',').map(str::to_owned).collect());
    let threads = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let begin = Instant::now();
    let batches: Box<dyn Iterator<Item = Result<ParsedBatch>>> =
        if path.extension().is_some_and(|extension| extension == "parquet") {
            let options = ColumnarOptions { tags, threads, ..ColumnarOptions::default() };
            Box::new(open_columnar(path, &options)?)
        } else {
            let options = CsvOptions { tags, threads, ..CsvOptions::default() };
            let reader = open_csv(path, &options)?;
            println!("{:?}", reader.schema());
            Box::new(reader)
        };
    let (mut rows, mut bad) = (0, 0);
    for batch in batches {
        let batch = batch?;
        rows += batch.batch.rows();
        for BadLine { line, reason, .. } in batch.bad.iter().take(3_usize.saturating_sub(bad)) {
            println!("line {line}: {reason}");
        }
        bad += batch.bad.len();
    }
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(path).map_or(0, |about| about.len());
    println!(
        "{rows} rows, {bad} bad, {seconds:.3} s: {:.2} M rows/s, {:.0} MB/s stored",
        rows as f64 / seconds / 1e6,
        bytes as f64 / seconds / 1e6
    );
    Ok(())
}
