//! How many bytes a function makes of its arguments at most.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use tidefall_types::{Error, NS_PER_DAY, NS_PER_HOUR, NS_PER_MILLI};

use crate::error::to_datafusion;
use crate::repeat::Widths;
use crate::types::unit_ns;

/// Bytes of texts that are compared in the time of a step.
const BYTES_SEARCHED_A_STEP: i64 = 64;
/// Letters that are compared in the time of a step.
const LETTERS_TRIMMED_A_STEP: i64 = 4;
/// Steps that a comparison of texts, letter by letter, may take for a batch: some seconds, in which nothing stops it.
pub(super) const STEPS_MAX: i64 = 1 << 31;

/// Bytes of a character at most.
const CHARACTER_BYTES: i64 = 4;
/// Bytes of a number or a time, in a list.
const NUMBER_BYTES: i64 = 8;
/// Bytes of a number or a time as text.
const NUMBER_TEXT_BYTES: i64 = 32;
/// Bytes that two characters of a format for times become at most, such as `%c` and `%+`.
const FORMAT_FACTOR: i64 = 24;

/// What a function makes of a row, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// The first argument as many times as the second says.
    Repeat,
    /// As many characters as the second argument says.
    Pad,
    /// The first argument with each of the second in it as the third.
    Replace,
    /// The same for what matches an expression; the third may repeat what matched.
    ReplaceRegex,
    /// All arguments.
    Join,
    /// All arguments, with the first between them.
    JoinWith,
    /// The elements of the first argument as text, with the others between them.
    JoinElements,
    /// The first argument with each of its elements as the third.
    ReplaceElements,
    /// All lists, each as long as the longest.
    Zip,
    /// The first argument with as many elements as the second says.
    Resize,
    /// Numbers or times from one to another.
    Series,
    /// A time in the format that the second argument gives.
    Format,
    /// Nothing, in as many steps as the letters of one argument times those of the other.
    Compare,
    /// Nothing, but for each place of one text the other one may be compared, which is fast.
    Search,
    /// Nothing, but each letter of one text is looked for in the other.
    Trim,
    /// Nothing, but each element of one list is looked for in the other.
    CompareElements,
}

impl Growth {
    /// Whether time is what must be bounded.
    pub(super) fn is_counted_in_steps(self) -> bool {
        matches!(self, Self::Compare | Self::Search | Self::Trim | Self::CompareElements)
    }

    /// What [`Growth::bounds`] counts.
    pub(super) fn unit(self) -> &'static str {
        match self {
            _ if self.is_counted_in_steps() => "steps",
            _ => "bytes",
        }
    }

    /// The most that is made of each of `rows`.
    pub(super) fn bounds(self, args: &[ColumnarValue], rows: usize) -> Result<Vec<i64>> {
        if let Self::Series = self {
            return Series::of(args)?.bounds(rows);
        }
        let columns = args.iter().map(Argument::of).collect::<Result<Vec<_>>>()?;
        let bytes = columns.iter().map(Argument::bytes).collect::<Result<Vec<_>>>()?;
        let elements = match (self, columns.as_slice()) {
            (Self::JoinElements | Self::ReplaceElements | Self::Resize, [list, ..]) => {
                vec![list.elements()?]
            }
            (Self::Zip | Self::CompareElements, lists) => {
                lists.iter().map(Argument::elements).collect::<Result<_>>()?
            }
            _ => Vec::new(),
        };
        let nulls = columns.iter().map(Argument::null_bytes).collect::<Vec<_>>();
        let amounts = match (self, columns.get(1)) {
            (Self::Repeat | Self::Pad | Self::Resize, Some(amounts)) => amounts.numbers()?,
            _ => PerRow(vec![0]),
        };
        let row = |at: usize| Row {
            at,
            bytes: &bytes,
            elements: &elements,
            nulls: &nulls,
            amounts: &amounts,
        };
        Ok((0..rows).map(|at| self.bound(&row(at))).collect())
    }

    fn bound(self, row: &Row<'_>) -> i64 {
        let of = |arg: usize| row.bytes(arg);
        let args = row.bytes.len();
        let all = || (0..args).map(of).fold(0, i64::saturating_add);
        match self {
            Self::Repeat => row.amount().saturating_mul(of(0)),
            Self::Pad => row.amount().saturating_mul(CHARACTER_BYTES),
            Self::Replace => {
                let (text, from, to) = (of(0), of(1), of(2));
                let (matches, more) = match from {
                    0 => (text + 1, to),
                    _ => (text / from, (to - from).max(0)),
                };
                text.saturating_add(matches.saturating_mul(more))
            }
            Self::ReplaceRegex => {
                let (text, to) = (of(0), of(2));
                let between = (text + 1).saturating_mul(to);
                let repeated = text.saturating_mul(to / 2 + 1);
                between.saturating_add(repeated)
            }
            Self::Join => all(),
            Self::JoinWith => {
                let between = i64::try_from(args).unwrap_or(i64::MAX).saturating_mul(of(0));
                all().saturating_add(between)
            }
            Self::JoinElements => {
                // Lists of lists have more elements than the outer one, and at most one a byte.
                let elements = row.elements(0).saturating_add(of(0));
                let each = NUMBER_TEXT_BYTES.saturating_add(of(1)).saturating_add(of(2));
                of(0).saturating_add(elements.saturating_mul(each))
            }
            Self::ReplaceElements => of(0).saturating_add(row.elements(0).saturating_mul(of(2))),
            Self::Zip => {
                // What is short is filled up with nulls.
                let longest = (0..args).map(|arg| row.elements(arg)).max().unwrap_or(0);
                let nulls = row.nulls.iter().copied().fold(0, i64::saturating_add);
                all().saturating_add(longest.saturating_mul(nulls))
            }
            Self::Resize => {
                let null = row.nulls.first().copied().unwrap_or(0);
                of(0).saturating_add(row.amount().saturating_mul(null.max(of(2))))
            }
            Self::Compare => of(0).saturating_mul(of(1)),
            Self::Search => of(0).saturating_mul(of(1)) / BYTES_SEARCHED_A_STEP,
            Self::Trim => of(0).saturating_mul(of(1)) / LETTERS_TRIMMED_A_STEP,
            Self::CompareElements => row.elements(0).saturating_mul(row.elements(1)),
            Self::Format => of(1).saturating_mul(FORMAT_FACTOR).saturating_add(NUMBER_TEXT_BYTES),
            Self::Series => 0,
        }
    }
}

/// The arguments of a row.
struct Row<'a> {
    at: usize,
    bytes: &'a [PerRow],
    elements: &'a [PerRow],
    /// The bytes of a null among the elements of each argument.
    nulls: &'a [i64],
    amounts: &'a PerRow,
}

impl Row<'_> {
    fn bytes(&self, arg: usize) -> i64 {
        self.bytes.get(arg).map_or(0, |bytes| bytes.at(self.at))
    }

    fn elements(&self, arg: usize) -> i64 {
        self.elements.get(arg).map_or(0, |elements| elements.at(self.at))
    }

    /// The second argument, if it is a number.
    fn amount(&self) -> i64 {
        self.amounts.at(self.at).max(0)
    }
}

/// A number for each row, or one for all.
struct PerRow(Vec<i64>);

impl PerRow {
    fn at(&self, row: usize) -> i64 {
        let at = if self.0.len() == 1 { 0 } else { row };
        self.0.get(at).copied().unwrap_or(0)
    }
}

/// The values of an argument, of which there is only one if it is the same in all rows: making it once for each of
/// them is what is to be avoided.
struct Argument(ArrayRef);

impl Argument {
    fn of(arg: &ColumnarValue) -> Result<Self> {
        Ok(Self(match arg {
            ColumnarValue::Array(array) => array.clone(),
            ColumnarValue::Scalar(value) => value.to_array_of_size(1)?,
        }))
    }

    fn bytes(&self) -> Result<PerRow> {
        let array = &self.0;
        let of = array.data_type();
        if (of.is_string() || of.is_binary() || matches!(of, DataType::Dictionary(..)))
            && let Ok(lengths) = length(array)
        {
            return Ok(PerRow(numbers(&lengths)?));
        }
        let widths = Widths::with_ends(&**array);
        let of_row = |row| i64::try_from(widths.of(row)).unwrap_or(i64::MAX).max(NUMBER_BYTES);
        Ok(PerRow((0..array.len()).map(of_row).collect()))
    }

    /// The bytes of a null among the elements of a list.
    fn null_bytes(&self) -> i64 {
        match self.0.data_type() {
            DataType::List(of) | DataType::LargeList(of) => null_bytes(of.data_type()),
            _ => NUMBER_BYTES,
        }
    }

    /// How many elements the lists have.
    fn elements(&self) -> Result<PerRow> {
        match length(&self.0) {
            Ok(lengths) => Ok(PerRow(numbers(&lengths)?)),
            Err(_) => Ok(PerRow(vec![0; self.0.len()])),
        }
    }

    fn numbers(&self) -> Result<PerRow> {
        numbers(&self.0).map(PerRow)
    }
}

/// Numbers, and 0 for each that is missing.
fn numbers(array: &ArrayRef) -> Result<Vec<i64>> {
    let numbers = cast(array, &DataType::Int64)?;
    Ok(numbers.as_primitive::<Int64Type>().iter().map(Option::unwrap_or_default).collect())
}

/// The bytes of a null: as many as each value has, where all have as many.
fn null_bytes(of: &DataType) -> i64 {
    match of {
        DataType::Struct(fields) => {
            let each = fields.iter().map(|field| null_bytes(field.data_type()));
            each.fold(NUMBER_BYTES, i64::saturating_add)
        }
        DataType::FixedSizeList(of, size) => {
            null_bytes(of.data_type()).saturating_mul((*size).into())
        }
        other => {
            other.primitive_width().map_or(NUMBER_BYTES, |width| width as i64).max(NUMBER_BYTES)
        }
    }
}

/// The arguments of a series.
struct Series {
    start: PerRow,
    stop: PerRow,
    step: PerRow,
}

impl Series {
    fn of(args: &[ColumnarValue]) -> Result<Self> {
        let columns = args.iter().map(Argument::of).collect::<Result<Vec<_>>>()?;
        let null = columns.iter().any(|column| column.0.data_type().is_null());
        Ok(match columns.as_slice() {
            _ if null => Self::numbers(PerRow(vec![0]), PerRow(vec![0])),
            [stop] => Self::numbers(PerRow(vec![0]), stop.numbers()?),
            [start, stop] => Self::numbers(start.numbers()?, stop.numbers()?),
            [start, stop, step, ..] => match step.0.data_type() {
                DataType::Interval(_) => Self {
                    start: start.numbers()?,
                    stop: stop.numbers()?,
                    step: steps(&step.0, one_ns(start.0.data_type()))?,
                },
                _ => Self { start: start.numbers()?, stop: stop.numbers()?, step: step.numbers()? },
            },
            [] => Self::numbers(PerRow(vec![0]), PerRow(vec![0])),
        })
    }

    fn numbers(start: PerRow, stop: PerRow) -> Self {
        Self { start, stop, step: PerRow(vec![1]) }
    }

    fn bounds(&self, rows: usize) -> Result<Vec<i64>> {
        let bound = |row: usize| {
            let (start, stop, step) = (self.start.at(row), self.stop.at(row), self.step.at(row));
            let way = if step > 0 { stop > start } else { stop < start };
            let steps = if way { start.abs_diff(stop) / step.unsigned_abs().max(1) } else { 0 };
            let bytes = steps.saturating_add(1).saturating_mul(NUMBER_BYTES.unsigned_abs());
            i64::try_from(bytes).unwrap_or(i64::MAX)
        };
        Ok((0..rows).map(bound).collect())
    }
}

/// A day in which clocks are put forward, as far as any are.
const DAY_NS_MIN: i64 = 21 * NS_PER_HOUR;
const MONTH_DAYS_MIN: i64 = 28;

/// The nanoseconds of one in the numbers of a type of times.
const fn one_ns(time: &DataType) -> i64 {
    match time {
        DataType::Date32 => NS_PER_DAY,
        DataType::Date64 => NS_PER_MILLI,
        DataType::Timestamp(unit, _) => unit_ns(*unit),
        _ => 1,
    }
}

/// How far intervals go at least, in units of so many nanoseconds.
///
/// # Errors
/// `Invalid` for one that goes forward and back, such as a month less 31 days: it may never arrive.
fn steps(intervals: &ArrayRef, one_ns: i64) -> Result<PerRow> {
    let month_day_nano =
        DataType::Interval(datafusion::arrow::datatypes::IntervalUnit::MonthDayNano);
    let intervals = cast(intervals, &month_day_nano)?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let mut steps = Vec::with_capacity(intervals.len());
    for interval in intervals.iter() {
        let Some(interval) = interval else {
            steps.push(1);
            continue;
        };
        let parts = [i64::from(interval.months), i64::from(interval.days), interval.nanoseconds];
        check_direction(parts)?;
        let days = parts[0].saturating_mul(MONTH_DAYS_MIN).saturating_add(parts[1]);
        let ns = days.saturating_mul(DAY_NS_MIN).saturating_add(parts[2]);
        let step = ns / one_ns;
        steps.push(if step == 0 { ns.signum() } else { step });
    }
    Ok(PerRow(steps))
}

/// Refuses an interval of months, days and nanoseconds that goes forward and back.
pub(crate) fn check_direction(parts: [i64; 3]) -> Result<()> {
    let is_mixed = parts.iter().any(|part| *part > 0) && parts.iter().any(|part| *part < 0);
    match is_mixed {
        true => Err(to_datafusion(Error::invalid(
            "the step of a series goes forward and back: months, days and hours must have the same sign",
        ))),
        false => Ok(()),
    }
}
