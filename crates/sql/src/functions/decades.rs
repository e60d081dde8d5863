//! Decades, centuries and millennia for `date_part` and `date_trunc`, which DataFusion has not. They are numbered and begin as in
//! DuckDB: the 21st century is that of the years 2001 to 2100, and `date_trunc` cuts 2024 off to 2020 and to 2000.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::{CastOptions, DatePart, cast, cast_with_options, date_part};
use datafusion::arrow::datatypes::{DataType, Date32Type, Int32Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use tidefall_types::NS_PER_DAY;

use crate::types::unit_ns;

const MONTHS_PER_YEAR: i32 = 12;
/// Where days are counted from.
const FIRST_YEAR: i32 = 1970;

/// A stretch of years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Decade,
    Century,
    Millennium,
}

impl Era {
    /// The stretch that an argument names.
    pub(super) fn of_argument(part: &ColumnarValue) -> Option<Self> {
        let ColumnarValue::Scalar(part) = part else { return None };
        part.try_as_str().flatten().and_then(Self::of)
    }

    /// The stretch that has a name.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name.trim_matches(['\'', '"']).to_ascii_lowercase().as_str() {
            "decade" | "decades" | "dec" | "decs" => Some(Self::Decade),
            "century" | "centuries" | "cent" | "c" => Some(Self::Century),
            "millennium" | "millennia" | "millenium" | "mil" | "mils" => Some(Self::Millennium),
            _ => None,
        }
    }

    /// How many years it has.
    pub(super) const fn count(self) -> i32 {
        match self {
            Self::Decade => 10,
            Self::Century => 100,
            Self::Millennium => 1_000,
        }
    }

    /// Its number in the year of a time.
    const fn number(self, year: i32) -> i32 {
        match self {
            Self::Decade => year / self.count(),
            _ if year > 0 => (year - 1) / self.count() + 1,
            _ => year / self.count() - 1,
        }
    }

    /// The numbers of years.
    pub(super) fn numbers(self, years: &ColumnarValue) -> Result<ColumnarValue> {
        Ok(match years {
            ColumnarValue::Array(years) => {
                let years = years.as_primitive::<Int32Type>();
                ColumnarValue::Array(Arc::new(
                    years.unary::<_, Int32Type>(|year| self.number(year)),
                ))
            }
            ColumnarValue::Scalar(ScalarValue::Int32(year)) => {
                let number = year.map(|year| self.number(year));
                ColumnarValue::Scalar(ScalarValue::Int32(number))
            }
            other => other.clone(),
        })
    }

    /// When the stretches begin in which times lie, on the clocks of their zone; the first one with the first time there is.
    pub(super) fn starts(self, times: &ArrayRef) -> Result<ArrayRef> {
        let DataType::Timestamp(unit, _) = times.data_type() else { return Ok(Arc::clone(times)) };
        let per_day = i128::from(NS_PER_DAY / unit_ns(*unit));
        let start = |year: i32| {
            let months = (year / self.count() * self.count() - FIRST_YEAR) * MONTHS_PER_YEAR;
            let days = Date32Type::add_year_months_opt(0, months)?;
            i64::try_from(i128::from(days) * per_day).ok()
        };
        let years = date_part(times, DatePart::Year)?;
        let years = years.as_primitive::<Int32Type>();
        let starts: Int64Array = years.iter().map(|year| year.and_then(start)).collect();
        let starts = cast(&starts, &DataType::Timestamp(*unit, None))?;
        let starts = cast_with_options(&starts, times.data_type(), &CastOptions::default())?;
        if starts.null_count() == times.null_count() {
            return Ok(starts);
        }
        let starts = cast(&starts, &DataType::Int64)?;
        let starts = starts.as_primitive::<Int64Type>();
        let all = starts.iter().enumerate();
        let all = all.map(|(row, start)| start.or(times.is_valid(row).then_some(i64::MIN)));
        Ok(cast(&all.collect::<Int64Array>(), times.data_type())?)
    }
}
