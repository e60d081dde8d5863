//! The papers' sensor workload: S sensors, a reading a minute, N(mu, sigma) for each sensor with
//! 3 decimals.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StringArray};
use arrow_buffer::ScalarBuffer;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};
use tidefall_types::{
    Error, FieldColumn, NS_PER_DAY, NS_PER_MINUTE, Result, Series, SeriesBatch, TagColumn,
    WriteBatch,
};

/// 2000-01-01.
pub(crate) const START_NS: i64 = 10_957 * NS_PER_DAY;
pub(crate) const TABLE: &str = "plant";
pub(crate) const MINUTES_PER_DAY: usize = 1_440;
/// Minutes of all sensors in one batch of rows: some 60,000 rows, as a collector would send.
const BATCH_MINUTES: usize = 120;
/// Distinct days that are drawn; later ones repeat them, shifted by some thousandths each, so that
/// drawing does not take longer than what is measured.
const DAYS_DRAWN: u32 = 8;

/// Readings of `sensors` sensors, drawn from a seed.
pub(crate) struct Workload {
    sensors: u32,
    /// Days of values in thousandths, minute by minute, in each minute sensor by sensor.
    days: Vec<Vec<f64>>,
}

impl Workload {
    pub(crate) fn new(sensors: u32) -> Result<Self> {
        let mut rng = StdRng::seed_from_u64(42);
        let normals = (0..sensors)
            .map(|_| Normal::new(rng.random_range(200.0..400.0), rng.random_range(50.0..70.0)))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| Error::invalid(error.to_string()))?;
        let mut draw_day = || {
            let minutes = (0..MINUTES_PER_DAY).flat_map(|_| &normals);
            minutes.map(|normal: &Normal<f64>| (normal.sample(&mut rng) * 1e3).round()).collect()
        };
        Ok(Self { sensors, days: (0..DAYS_DRAWN).map(|_| draw_day()).collect() })
    }

    fn value(&self, day: u32, place: usize) -> f64 {
        let shift = f64::from(day / DAYS_DRAWN * 7_919 % 1_000);
        (self.days[(day % DAYS_DRAWN) as usize][place] + shift) / 1e3
    }

    fn names(&self) -> StringArray {
        StringArray::from_iter_values((0..self.sensors).map(sensor_name))
    }

    /// A day in the order of arrival: by time, then by sensor.
    pub(crate) fn arrivals(&self, day: u32) -> Vec<WriteBatch> {
        let batch_rows = BATCH_MINUTES * self.sensors as usize;
        let names = self.names();
        let keys: ScalarBuffer<u32> =
            (0..batch_rows as u32).map(|row| row % self.sensors).collect();
        (0..MINUTES_PER_DAY / BATCH_MINUTES)
            .map(|number| {
                let first = start_of(day) + (number * BATCH_MINUTES) as i64 * NS_PER_MINUTE;
                let minute = |row: usize| (row / self.sensors as usize) as i64;
                let values = (0..batch_rows).map(|row| self.value(day, number * batch_rows + row));
                WriteBatch {
                    time: (0..batch_rows).map(|row| first + minute(row) * NS_PER_MINUTE).collect(),
                    tags: vec![TagColumn {
                        name: "sensor".into(),
                        values: names.clone(),
                        keys: keys.clone(),
                    }],
                    fields: vec![FieldColumn {
                        name: "value".into(),
                        values: Arc::new(Float64Array::from_iter_values(values)),
                    }],
                }
            })
            .collect()
    }

    /// Some days as a wide frame: one column of times, one of values for each sensor.
    pub(crate) fn frame(&self, days: u32) -> SeriesBatch {
        let time: ScalarBuffer<i64> = (0..i64::from(days) * MINUTES_PER_DAY as i64)
            .map(|minute| START_NS + minute * NS_PER_MINUTE)
            .collect();
        let series = (0..self.sensors).map(|sensor| {
            let values = (0..days).flat_map(|day| {
                (0..MINUTES_PER_DAY).map(move |minute| {
                    self.value(day, minute * self.sensors as usize + sensor as usize)
                })
            });
            let values: ArrayRef = Arc::new(Float64Array::from_iter_values(values));
            Series { time: time.clone(), fields: vec![values] }
        });
        SeriesBatch {
            tags: vec![TagColumn {
                name: "sensor".into(),
                values: self.names(),
                keys: (0..self.sensors).collect(),
            }],
            fields: vec!["value".into()],
            series: series.collect(),
        }
    }
}

pub(crate) fn sensor_name(number: u32) -> String {
    format!("s{number:03}")
}

pub(crate) fn start_of(day: u32) -> i64 {
    START_NS + i64::from(day) * NS_PER_DAY
}
