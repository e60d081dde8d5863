//! Sensors side by side in bins.

use std::sync::Arc;

use tidefall_storage::{AggregateRequest, AggregateResult, Bin, ReadStats, cores, spread};
use tidefall_types::{Error, Month, NS_PER_DAY, Result, TimeRange};

use crate::question::{Block, Column, Question, block, check_values};

/// A bin of more months would be longer than time itself, from 1677 to 2262.
const MONTHS_MAX: i64 = 12 * 600;

/// How time is cut.
#[derive(Debug, Clone, Copy)]
pub enum Bins {
    /// All bins are as wide as each other.
    Equal(Bin),
    /// So many months, above 0, counted from January 1970.
    Months(i32),
}

impl Bins {
    /// # Errors
    /// `Invalid` when a bin would be no wider than nothing.
    pub fn new(width: i64, is_months: bool, origin_ns: i64) -> Result<Self> {
        if width <= 0 {
            return Err(Error::invalid("bins must be wider than nothing"));
        }
        match is_months {
            true if width > MONTHS_MAX => {
                Err(Error::invalid(format!("bins have at most {MONTHS_MAX} months")))
            }
            true => Ok(Self::Months(width as i32)),
            false => Ok(Self::Equal(Bin { width_ns: width, origin_ns })),
        }
    }
}

impl Bins {
    /// So many bins may lie within a stretch of time.
    fn count_max(&self, time: &TimeRange) -> usize {
        let width_ns = match self {
            Self::Equal(bin) => bin.width_ns,
            Self::Months(months) => i64::from(*months) * 28 * NS_PER_DAY,
        };
        let length_ns = i128::from(time.last_ns) - i128::from(time.first_ns);
        usize::try_from(length_ns / i128::from(width_ns) + 2).unwrap_or(usize::MAX)
    }
}

/// What is made of the values of a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// The average.
    Mean,
    /// How many there are.
    Count,
    /// The deviation of a sample.
    Std,
    /// The sum, as a float.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// That of the earliest time.
    First,
    /// That of the latest time.
    Last,
}

impl Aggregate {
    /// An aggregate by its name.
    ///
    /// # Errors
    /// `Invalid` when there is none of that name.
    pub fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "mean" => Self::Mean,
            "count" => Self::Count,
            "std" => Self::Std,
            "sum" => Self::Sum,
            "min" => Self::Min,
            "max" => Self::Max,
            "first" => Self::First,
            "last" => Self::Last,
            other => {
                return Err(Error::invalid(format!(
                    "there is no aggregate {other:?}; there are mean, count, std, sum, min, max, \
                     first and last"
                )));
            }
        })
    }
}

impl Question {
    /// For each sensor a line of each aggregate, one behind the other; a place for each bin. At most so many values in all.
    ///
    /// # Errors
    /// `Unsupported` when the field holds no numbers; `Limit` when there are more values; those of [`TableSnapshot::aggregate`](tidefall_storage::TableSnapshot::aggregate).
    pub fn resample(
        &self,
        time: TimeRange,
        bins: Bins,
        what: &[Aggregate],
        values_max: usize,
    ) -> Result<Block> {
        if !self.ty.is_numeric() && what.iter().any(|what| *what != Aggregate::Count) {
            return Err(self.not_numeric());
        }
        // What all sensors have in bins of their own, before these are laid side by side.
        if values_max != usize::MAX {
            let extent = self.snapshot.extent(&self.sensors, &time)?;
            let bins_max = extent.map_or(0, |(time, rows)| bins.count_max(&time).min(rows));
            let lines = self.sensors.len().saturating_mul(what.len());
            check_values(bins_max.saturating_mul(lines), values_max)?;
        }
        let lines_of = |sensor, _: &mut ()| match bins {
            Bins::Equal(bin) => self.equal_bins(sensor, time, bin, what),
            Bins::Months(months) => self.months(sensor, time, months, what),
        };
        let columns = spread(cores(), self.sensors.clone(), lines_of)?;
        block(&columns.into_iter().flatten().collect::<Vec<_>>(), values_max)
    }

    fn equal_bins(
        &self,
        sensor: u32,
        time: TimeRange,
        bin: Bin,
        what: &[Aggregate],
    ) -> Result<Vec<Column>> {
        let found = self.aggregate(sensor, time, Some(bin))?;
        let line = |what| -> Result<Column> {
            Ok((found.bin_start_ns.clone(), self.values(&found, what)?))
        };
        what.iter().map(|what| line(*what)).collect()
    }

    /// Months are not equally long, so that each bin is a question of its own.
    fn months(
        &self,
        sensor: u32,
        time: TimeRange,
        months: i32,
        what: &[Aggregate],
    ) -> Result<Vec<Column>> {
        let mut lines: Vec<Column> = vec![Column::default(); what.len()];
        let Some((extent, _)) = self.snapshot.extent(&[sensor], &time)? else { return Ok(lines) };
        let within = extent.intersect(&time);
        let epoch = Month::of(0).0;
        let bin_of = |time_ns| (Month::of(time_ns).0 - epoch).div_euclid(months);
        for bin in bin_of(within.first_ns)..=bin_of(within.last_ns) {
            let month = |number: i32| Month(epoch.saturating_add(number)).range();
            let first = bin.saturating_mul(months);
            let start_ns = month(first).first_ns;
            // Bins may reach beyond the end of time.
            let last = first.saturating_add(months - 1).min(Month::of(i64::MAX).0 - epoch);
            let stretch = TimeRange::new(start_ns, month(last).last_ns).intersect(&within);
            let found = self.aggregate(sensor, stretch, None)?;
            if found.group.is_empty() {
                continue;
            }
            for (line, what) in lines.iter_mut().zip(what) {
                line.0.push(start_ns);
                line.1.extend(self.values(&found, *what)?);
            }
        }
        Ok(lines)
    }

    fn aggregate(&self, sensor: u32, time: TimeRange, bin: Option<Bin>) -> Result<AggregateResult> {
        let request = AggregateRequest {
            groups: vec![0],
            group_count: 1,
            sensors: vec![sensor].into(),
            time,
            bin,
            fields: vec![self.field],
            deviations: true,
            extremes: true,
            ends: true,
        };
        self.snapshot.aggregate(&request, &Arc::new(ReadStats::default()))
    }

    fn values(&self, found: &AggregateResult, what: Aggregate) -> Result<Vec<f64>> {
        let metrics =
            found.fields.first().ok_or_else(|| Error::internal("an aggregate without a field"))?;
        let count = |line: usize| metrics.count[line] as f64;
        let lines = 0..found.group.len();
        Ok(match what {
            Aggregate::Mean => lines.map(|line| metrics.sum_f64[line] / count(line)).collect(),
            Aggregate::Count => lines.map(count).collect(),
            Aggregate::Std => lines.map(|line| deviation(metrics.m2[line], count(line))).collect(),
            // Sums of integers would wrap around at 64 bits.
            Aggregate::Sum => lines
                .map(|line| if count(line) > 0.0 { metrics.sum_f64[line] } else { f64::NAN })
                .collect(),
            Aggregate::Min => self.doubles(&metrics.min)?,
            Aggregate::Max => self.doubles(&metrics.max)?,
            Aggregate::First => self.doubles(&metrics.first)?,
            Aggregate::Last => self.doubles(&metrics.last)?,
        })
    }
}

/// The deviation of a sample, as in SQL and pandas.
fn deviation(m2: f64, count: f64) -> f64 {
    if count > 1.0 { (m2 / (count - 1.0)).sqrt() } else { f64::NAN }
}
