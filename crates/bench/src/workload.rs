//! The sensor workload of the papers on PL-NagareDB: S sensors, a reading a minute, N(mu, sigma) for each sensor with
//! 3 decimals.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StringArray};
use arrow_buffer::ScalarBuffer;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};
use tidefall_types::{
    Error, FieldColumn, NS_PER_DAY, NS_PER_MINUTE, Result, Series, SeriesBatch, TagColumn,
    WriteBatch,
};

/// 2000-01-01.
pub const START_NS: i64 = 10_957 * NS_PER_DAY;
/// The table of the workload.
pub const TABLE: &str = "plant";
/// Readings of a sensor in a day.
pub const MINUTES_PER_DAY: usize = 1_440;
/// Minutes of all sensors in one batch of rows: some 60,000 rows, as a collector would send.
const BATCH_MINUTES: usize = 120;
/// What benchmarks draw from.
pub const SEED: u64 = 42;

/// Readings of `sensors` sensors, drawn from a seed. No day is like another: what repeats would
/// pack better than what is measured.
#[derive(Debug)]
pub struct Workload {
    normals: Vec<Normal<f64>>,
    seed: u64,
}

impl Workload {
    /// A workload of so many sensors, the same for the same seed.
    ///
    /// # Errors
    /// None that is known: the parameters of the distributions are in order.
    pub fn new(sensors: u32, seed: u64) -> Result<Self> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let normals = (0..sensors)
            .map(|_| Normal::new(rng.random_range(200.0..400.0), rng.random_range(50.0..70.0)))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| Error::invalid(error.to_string()))?;
        Ok(Self { normals, seed })
    }

    /// The values of a day, minute by minute, in each minute sensor by sensor.
    pub fn values(&self, day: u32) -> impl Iterator<Item = f64> + '_ {
        let mut rng = SmallRng::seed_from_u64(self.seed.wrapping_add(1 + u64::from(day)));
        let minutes = (0..MINUTES_PER_DAY).flat_map(|_| &self.normals);
        minutes.map(move |normal| (normal.sample(&mut rng) * 1e3).round() / 1e3)
    }

    /// The mean and the deviation of a sensor.
    pub fn normal_of(&self, sensor: u32) -> (f64, f64) {
        let normal = &self.normals[sensor as usize];
        (normal.mean(), normal.std_dev())
    }

    fn sensors(&self) -> u32 {
        self.normals.len() as u32
    }

    /// The names of all sensors.
    pub fn names(&self) -> StringArray {
        StringArray::from_iter_values((0..self.sensors()).map(sensor_name))
    }

    /// A day in the order of arrival: by time, then by sensor. No batch is made before it is asked
    /// for, so that the workload itself takes next to no memory.
    pub fn arrivals(&self, day: u32) -> impl Iterator<Item = WriteBatch> + '_ {
        let sensors = self.normals.len();
        let batch_rows = BATCH_MINUTES * sensors;
        let names = self.names();
        let keys: ScalarBuffer<u32> = (0..batch_rows).map(|row| (row % sensors) as u32).collect();
        let mut values = self.values(day);
        (0..MINUTES_PER_DAY).step_by(BATCH_MINUTES).map(move |first| {
            let minute = |row: usize| (first + row / sensors) as i64;
            let values = Float64Array::from_iter_values(values.by_ref().take(batch_rows));
            WriteBatch {
                time: (0..batch_rows)
                    .map(|row| start_of(day) + minute(row) * NS_PER_MINUTE)
                    .collect(),
                tags: vec![TagColumn {
                    name: "sensor".into(),
                    values: names.clone(),
                    keys: keys.clone(),
                }],
                fields: vec![FieldColumn { name: "value".into(), values: Arc::new(values) }],
            }
        })
    }

    /// Some days as a wide frame: one column of times, one of values for each sensor.
    pub fn frame(&self, days: u32) -> SeriesBatch {
        let time: ScalarBuffer<i64> = (0..i64::from(days) * MINUTES_PER_DAY as i64)
            .map(|minute| START_NS + minute * NS_PER_MINUTE)
            .collect();
        let mut columns = vec![Vec::with_capacity(time.len()); self.normals.len()];
        for day in 0..days {
            for (row, value) in self.values(day).enumerate() {
                columns[row % self.normals.len()].push(value);
            }
        }
        let series = columns.into_iter().map(|values| {
            let values: ArrayRef = Arc::new(Float64Array::from(values));
            Series { time: time.clone(), fields: vec![values] }
        });
        SeriesBatch {
            tags: vec![TagColumn {
                name: "sensor".into(),
                values: self.names(),
                keys: (0..self.sensors()).collect(),
            }],
            fields: vec!["value".into()],
            series: series.collect(),
        }
    }
}

/// The name of a sensor, the value of its tag.
pub fn sensor_name(number: u32) -> String {
    format!("s{number:03}")
}

/// The first moment of a day.
pub fn start_of(day: u32) -> i64 {
    START_NS + i64::from(day) * NS_PER_DAY
}
