//! Variances, correlations and regressions over a window that slides.

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Accumulator;

/// What is computed from moments.
#[derive(Debug, Clone, Copy)]
pub(super) enum Statistic {
    Variance { is_sample: bool },
    Deviation { is_sample: bool },
    Covariance { is_sample: bool },
    Correlation,
    Regression(Line),
}

/// What is asked of the line through points.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    Slope,
    Intercept,
    Fit,
    MeanX,
    MeanY,
    SquaresX,
    SquaresY,
    Products,
}

impl Statistic {
    /// The statistic that a function of this name computes.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "var" => Self::Variance { is_sample: true },
            "var_pop" => Self::Variance { is_sample: false },
            "stddev" => Self::Deviation { is_sample: true },
            "stddev_pop" => Self::Deviation { is_sample: false },
            "covar_samp" => Self::Covariance { is_sample: true },
            "covar_pop" => Self::Covariance { is_sample: false },
            "corr" => Self::Correlation,
            "regr_slope" => Self::Regression(Line::Slope),
            "regr_intercept" => Self::Regression(Line::Intercept),
            "regr_r2" => Self::Regression(Line::Fit),
            "regr_avgx" => Self::Regression(Line::MeanX),
            "regr_avgy" => Self::Regression(Line::MeanY),
            "regr_sxx" => Self::Regression(Line::SquaresX),
            "regr_syy" => Self::Regression(Line::SquaresY),
            "regr_sxy" => Self::Regression(Line::Products),
            _ => return None,
        })
    }

    /// Its value, as without a window.
    fn value(self, moments: &Moments) -> Option<f64> {
        let count = moments.count as f64;
        if moments.count == 0 {
            return None;
        }
        match self {
            Self::Variance { is_sample } => match (moments.count, is_sample) {
                (1, true) => None,
                (1, false) => Some(0.0),
                (_, true) => Some(moments.squares[0] / (count - 1.0)),
                (_, false) => Some(moments.squares[0] / count),
            },
            Self::Deviation { is_sample } => {
                Self::Variance { is_sample }.value(moments).map(f64::sqrt)
            }
            Self::Covariance { is_sample } => match (moments.count, is_sample) {
                (1, true) => None,
                (_, true) => Some(moments.products / (count - 1.0)),
                (_, false) => Some(moments.products / count),
            },
            Self::Correlation => correlation(moments),
            Self::Regression(line) => line.of(moments),
        }
    }
}

fn correlation(moments: &Moments) -> Option<f64> {
    let count = moments.count as f64;
    match moments.means.map(f64::is_nan) {
        [true, true] => return Some(f64::NAN),
        [false, false] if moments.count > 1 => {}
        _ => return None,
    }
    let [left, right] = moments.squares.map(|squares| (squares / count).sqrt());
    (left != 0.0 && right != 0.0).then(|| moments.products / count / left / right)
}

impl Line {
    /// The first of two columns is `y`.
    fn of(self, moments: &Moments) -> Option<f64> {
        let ([mean_y, mean_x], [squares_y, squares_x]) = (moments.means, moments.squares);
        let is_steep = moments.count <= 1 || squares_x == 0.0;
        let slope = moments.products / squares_x;
        match self {
            Self::Slope => (!is_steep).then_some(slope),
            Self::Intercept => (!is_steep).then_some(mean_y - slope * mean_x),
            Self::Fit if is_steep || squares_y == 0.0 => None,
            Self::Fit => {
                let count = moments.count as f64;
                let products = moments.products / count;
                Some(products * products / ((squares_x / count) * (squares_y / count)))
            }
            Self::MeanX => Some(mean_x),
            Self::MeanY => Some(mean_y),
            Self::SquaresX => Some(squares_x),
            Self::SquaresY => Some(squares_y),
            Self::Products => Some(moments.products),
        }
    }
}

/// The moments of some pairs of values; of single values both are the same.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    count: u64,
    means: [f64; 2],
    /// Sums of the squares of what lies between values and their mean.
    squares: [f64; 2],
    /// The sum of the products of both.
    products: f64,
}

impl Moments {
    /// Those of one pair.
    fn of(values: [f64; 2]) -> Self {
        // Nothing lies between a value and itself, if it is finite.
        let squares = values.map(|value| if value.is_finite() { 0.0 } else { f64::NAN });
        Self { count: 1, means: values, squares, products: squares[0] + squares[1] }
    }

    /// Those of both. Nothing is subtracted from what is summed up.
    fn with(self, other: Self) -> Self {
        if self.count == 0 || other.count == 0 {
            return if self.count == 0 { other } else { self };
        }
        let count = self.count + other.count;
        let share = other.count as f64 / count as f64;
        let weight = self.count as f64 * share;
        let between = [0, 1].map(|at| other.means[at] - self.means[at]);
        Self {
            count,
            means: [0, 1].map(|at| self.means[at] + between[at] * share),
            squares: [0, 1].map(|at| {
                self.squares[at] + other.squares[at] + between[at] * between[at] * weight
            }),
            products: self.products + other.products + between[0] * between[1] * weight,
        }
    }
}

/// A statistic of the values in a window that slides: a queue of two stacks, as for sums. Nothing is taken
/// from moments again, so that a NaN, or a value beside which others are lost, leaves with its row.
#[derive(Debug)]
pub(super) struct SlidingMoments {
    statistic: Statistic,
    /// Moments of the older pairs: the last ones of all of them, the ones before of all but the next to leave.
    older: Vec<Moments>,
    newer: Vec<[f64; 2]>,
    /// The moments of the newer pairs.
    newer_moments: Moments,
}

impl SlidingMoments {
    pub(super) fn new(statistic: Statistic) -> Self {
        Self { statistic, older: Vec::new(), newer: Vec::new(), newer_moments: Moments::default() }
    }

    fn push(&mut self, pair: [f64; 2]) {
        self.newer.push(pair);
        self.newer_moments = self.newer_moments.with(Moments::of(pair));
    }

    fn pop(&mut self) {
        if self.older.is_empty() {
            let mut moments = Moments::default();
            self.older.extend(self.newer.drain(..).rev().map(|pair| {
                moments = moments.with(Moments::of(pair));
                moments
            }));
            self.newer_moments = Moments::default();
        }
        self.older.pop();
    }
}

/// The pairs of two columns, or of one with itself, that have both values.
fn pairs(columns: &[ArrayRef]) -> impl Iterator<Item = [f64; 2]> {
    let column = |at: usize| -> &Float64Array { columns[at].as_primitive::<Float64Type>() };
    let (left, right) = (column(0), column(columns.len() - 1));
    left.iter().zip(right).filter_map(|(left, right)| Some([left?, right?]))
}

impl Accumulator for SlidingMoments {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        pairs(columns).for_each(|pair| self.push(pair));
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        pairs(columns).for_each(|_| self.pop());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let older = self.older.last().copied().unwrap_or_default();
        Ok(ScalarValue::Float64(self.statistic.value(&older.with(self.newer_moments))))
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.older.capacity() * size_of::<Moments>()
            + self.newer.capacity() * size_of::<[f64; 2]>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(never_merged())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(never_merged())
    }
}

/// Windows are not computed in parts.
fn never_merged() -> DataFusionError {
    DataFusionError::Internal("sliding moments were to be merged".into())
}
