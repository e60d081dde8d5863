//! `tidefall generate`: the sensor workload of the papers on PL-NagareDB.
//!
//! Each sensor reports once a minute; its values are normally distributed around a mean of
//! 200..400 with a standard deviation of 50..70, both drawn once, and rounded to three decimals.
//! Rows come in the order of time, as they would arrive.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use arrow_array::{ArrayRef, DictionaryArray, RecordBatch, TimestampNanosecondArray, UInt32Array};
use parquet::arrow::ArrowWriter;
use tidefall_bench::workload::{START_NS, Workload};
use tidefall_types::{Error, NS_PER_DAY, Result, WriteBatch};

use crate::args::GenerateArgs;
use crate::output::{Outcome, say};
use crate::size::show_count;

pub(crate) fn run(args: GenerateArgs) -> Outcome {
    check_amount(&args)?;
    let workload = Workload::new(args.sensors, args.seed)?;
    let mut out = Output::create(&args)?;
    let mut rows = 0;
    for batch in (0..args.days).flat_map(|day| workload.arrivals(day)) {
        let batch = record_batch(&batch)?;
        rows += batch.num_rows() as u64;
        out.write(&batch)?;
    }
    out.finish()?;
    say!("{} rows written to {}", show_count(rows), args.file.display())
}

fn check_amount(args: &GenerateArgs) -> Result<()> {
    let days_max = (i64::MAX - START_NS) / NS_PER_DAY;
    if args.sensors == 0 || args.days == 0 {
        return Err(Error::invalid("--sensors and --days must be above 0"));
    }
    if i64::from(args.days) > days_max {
        return Err(Error::invalid(format!(
            "--days {}: at most {days_max}, as times end on 2262-04-11",
            args.days
        )));
    }
    Ok(())
}

/// The same rows as columns of a file.
fn record_batch(batch: &WriteBatch) -> Result<RecordBatch> {
    let sensor = &batch.tags[0];
    let keys = UInt32Array::new(sensor.keys.clone(), None);
    let sensors = DictionaryArray::try_new(keys, Arc::new(sensor.values.clone()));
    let sensors = sensors.map_err(|error| failed(&error))?;
    RecordBatch::try_from_iter([
        ("time", Arc::new(TimestampNanosecondArray::new(batch.time.clone(), None)) as ArrayRef),
        ("sensor", Arc::new(sensors) as ArrayRef),
        ("value", batch.fields[0].values.clone()),
    ])
    .map_err(|error| failed(&error))
}

enum Output {
    Csv(Box<arrow_csv::Writer<BufWriter<File>>>),
    Parquet(Box<Option<ArrowWriter<File>>>, File),
}

impl Output {
    fn create(args: &GenerateArgs) -> Result<Self> {
        let file = File::create(&args.file)
            .map_err(|error| Error::io(format!("creating {}", args.file.display()), &error))?;
        match args.file.extension().and_then(|end| end.to_str()) {
            Some("csv") => {
                let builder = arrow_csv::WriterBuilder::new()
                    .with_header(true)
                    .with_timestamp_format("%Y-%m-%d %H:%M:%S".into());
                Ok(Self::Csv(Box::new(builder.build(BufWriter::new(file)))))
            }
            Some("parquet") => Ok(Self::Parquet(Box::new(None), file)),
            _ => Err(Error::invalid("the name of the file must end in .csv or .parquet")),
        }
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Csv(writer) => writer.write(batch).map_err(|error| failed(&error)),
            Self::Parquet(writer, file) => {
                let writer = match &mut **writer {
                    Some(writer) => writer,
                    none => {
                        let file = file.try_clone().map_err(|e| Error::io("the file", &e))?;
                        let writer = ArrowWriter::try_new(file, batch.schema(), None);
                        none.insert(writer.map_err(|e| Error::invalid(e.to_string()))?)
                    }
                };
                writer.write(batch).map_err(|error| Error::invalid(error.to_string()))
            }
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Csv(writer) => {
                writer.into_inner().flush().map_err(|error| Error::io("writing the file", &error))
            }
            Self::Parquet(writer, _) => match *writer {
                Some(writer) => {
                    writer.close().map(drop).map_err(|error| Error::invalid(error.to_string()))
                }
                None => Ok(()),
            },
        }
    }
}

fn failed(error: &arrow_schema::ArrowError) -> Error {
    Error::invalid(format!("the workload cannot be written: {error}"))
}
