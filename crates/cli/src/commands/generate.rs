//! `tidefall generate`: the sensor workload of papers 1 and 2.
//!
//! Each sensor reports once a minute; its values are normally distributed around a mean of
//! 200..400 with a standard deviation of 50..70, both drawn once, and rounded to three decimals.
//! Rows come in the order of time, as they would arrive.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, RecordBatch, StringArray, TimestampNanosecondArray,
    UInt32Array,
};
use parquet::arrow::ArrowWriter;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};
use tidefall_types::{Error, NS_PER_DAY, NS_PER_MINUTE, Result};

use crate::args::GenerateArgs;
use crate::size::show_count;

/// 2000-01-01, where the papers' data begins.
const START_NS: i64 = 10_957 * NS_PER_DAY;
/// Minutes that are written at once.
const BATCH_MINUTES: u32 = 240;

pub(crate) fn run(args: GenerateArgs) -> Result<()> {
    let mut workload = Workload::new(&args)?;
    let mut out = Output::create(&args)?;
    let minutes = args.days * 24 * 60;
    let mut rows = 0;
    for first in (0..minutes).step_by(BATCH_MINUTES as usize) {
        let batch = workload.next(first, BATCH_MINUTES.min(minutes - first))?;
        rows += batch.num_rows() as u64;
        out.write(&batch)?;
    }
    out.finish()?;
    println!("{} rows written to {}", show_count(rows), args.file.display());
    Ok(())
}

struct Workload {
    rng: StdRng,
    sensors: Vec<Normal<f64>>,
    names: Arc<StringArray>,
}

impl Workload {
    fn new(args: &GenerateArgs) -> Result<Self> {
        let mut rng = StdRng::seed_from_u64(args.seed);
        let sensors = (0..args.sensors)
            .map(|_| Normal::new(rng.random_range(200.0..400.0), rng.random_range(50.0..70.0)))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| Error::invalid(format!("a distribution: {error}")))?;
        let names = (0..args.sensors).map(|sensor| format!("s{sensor:03}"));
        Ok(Self { rng, sensors, names: Arc::new(StringArray::from_iter_values(names)) })
    }

    fn next(&mut self, first_minute: u32, minutes: u32) -> Result<RecordBatch> {
        let rows = minutes as usize * self.sensors.len();
        let mut time = Vec::with_capacity(rows);
        let mut keys = Vec::with_capacity(rows);
        let mut values = Vec::with_capacity(rows);
        for minute in first_minute..first_minute + minutes {
            let time_ns = START_NS + i64::from(minute) * NS_PER_MINUTE;
            for (key, sensor) in self.sensors.iter().enumerate() {
                time.push(time_ns);
                keys.push(key as u32);
                values.push((sensor.sample(&mut self.rng) * 1e3).round() / 1e3);
            }
        }
        let sensors = DictionaryArray::<UInt32Type>::try_new(
            UInt32Array::from(keys),
            Arc::clone(&self.names) as ArrayRef,
        );
        let sensors = sensors.map_err(|error| failed(&error))?;
        RecordBatch::try_from_iter([
            ("time", Arc::new(TimestampNanosecondArray::from(time)) as ArrayRef),
            ("sensor", Arc::new(sensors) as ArrayRef),
            ("value", Arc::new(Float64Array::from(values)) as ArrayRef),
        ])
        .map_err(|error| failed(&error))
    }
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
