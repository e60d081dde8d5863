//! `lead` and `lag` over whole partitions: with `IGNORE NULLS`, which DataFusion counts wrongly where rows come piece by
//! piece, and with an offset that is NULL, which has no answer.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, UInt64Array};
use datafusion::arrow::compute::{interleave, take};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::PartitionEvaluatorArgs;
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use tidefall_types::Error;

use crate::error::to_datafusion;
use crate::over::watch;

/// Rows that are more than a partition has.
const ROWS_MAX: u64 = 1 << 40;

/// By how many rows a call looks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offset {
    /// Nowhere: it is NULL.
    Null,
    Back(i128),
}

impl Offset {
    /// That of a call of `name` with such arguments; none if it is no constant.
    fn of(name: &str, args: &[Arc<dyn PhysicalExpr>]) -> Option<Self> {
        let rows = match args.get(1) {
            Some(arg) => arg.downcast_ref::<Literal>()?.value(),
            None => &ScalarValue::Int64(Some(1)),
        };
        if rows.is_null() {
            return Some(Self::Null);
        }
        let rows: i128 = rows.to_string().parse().ok()?;
        Some(Self::Back(if name == "lag" { rows } else { -rows }))
    }
}

/// Which rows `lead` and `lag` need beside those that are asked for. Nobody says whether they run in reverse, where `lag`
/// looks ahead.
pub(super) fn limit_effect(name: &str, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
    match Offset::of(name, args) {
        Some(Offset::Back(0) | Offset::Null) => LimitEffect::None,
        Some(Offset::Back(rows)) => match usize::try_from(rows.unsigned_abs()) {
            Ok(rows) if rows as u64 <= ROWS_MAX => LimitEffect::Relative(rows),
            _ => LimitEffect::Unknown,
        },
        None => LimitEffect::Unknown,
    }
}

/// Answers of `lead` or `lag` for one partition.
#[derive(Debug)]
pub(super) struct Shift {
    offset: Offset,
    /// The answer where there is no such row.
    default: ScalarValue,
}

impl Shift {
    /// What computes a call that DataFusion does not; none if it does.
    pub(super) fn of(name: &str, args: &PartitionEvaluatorArgs<'_>) -> Result<Option<Self>> {
        let Some(offset) = Offset::of(name, args.input_exprs()) else {
            return Err(to_datafusion(Error::invalid(format!(
                "{name} wants an offset that is a constant whole number, as in {name}(value, 2)"
            ))));
        };
        let offset = match offset {
            Offset::Back(rows) if args.is_reversed() => Offset::Back(-rows),
            offset => offset,
        };
        if !args.ignore_nulls() && offset != Offset::Null {
            return Ok(None);
        }
        let default = match args.input_exprs().get(2) {
            Some(default) => match default.downcast_ref::<Literal>() {
                Some(default) => default.value().clone(),
                None => {
                    return Err(to_datafusion(Error::invalid(format!(
                        "{name} wants a default that is a constant, as in {name}(value, 1, 0)"
                    ))));
                }
            },
            None => ScalarValue::Null,
        };
        Ok(Some(Self { offset, default }))
    }
}

impl PartitionEvaluator for Shift {
    fn evaluate_all(&mut self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let values = &columns[0];
        let null = ScalarValue::try_from(values.data_type())?;
        let back = match self.offset {
            Offset::Null => return null.to_array_of_size(rows),
            Offset::Back(0) => return Ok(Arc::clone(values)),
            Offset::Back(back) => back,
        };
        // Places of values, of the rows, and of what is taken for them.
        watch::took(rows.saturating_mul(size_of::<[usize; 3]>()))?;
        let found = places(values, back);
        if self.default.is_null() {
            let found = found.map(|place| place.map(|place| place as u64));
            return Ok(take(values, &found.collect::<UInt64Array>(), None)?);
        }
        let default = self.default.cast_to(values.data_type())?.to_array_of_size(1)?;
        let found: Vec<(usize, usize)> =
            found.map(|place| place.map_or((1, 0), |place| (0, place))).collect();
        Ok(interleave(&[&**values, &*default], &found)?)
    }
}

/// For each row the place of the value that stands so many values before it, or behind it.
fn places(values: &ArrayRef, back: i128) -> impl Iterator<Item = Option<usize>> {
    let nulls = values.logical_nulls();
    let is_valid = move |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let valid: Vec<usize> = (0..values.len()).filter(|row| is_valid(*row)).collect();
    let mut before = 0;
    (0..values.len()).map(move |row| {
        while valid.get(before).is_some_and(|place| *place < row) {
            before += 1;
        }
        let here = valid.get(before) == Some(&row);
        let first_behind = before + usize::from(here);
        let wanted = match back > 0 {
            true => before as i128 - back,
            false => first_behind as i128 - back - 1,
        };
        usize::try_from(wanted).ok().and_then(|wanted| valid.get(wanted).copied())
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    #[test]
    fn nulls_are_passed_over() {
        let values: ArrayRef =
            Arc::new(Int64Array::from(vec![None, Some(2), None, Some(4), Some(5)]));
        let of = |back| places(&values, back).collect::<Vec<_>>();
        assert_eq!(of(1), [None, None, Some(1), Some(1), Some(3)]);
        assert_eq!(of(2), [None, None, None, None, Some(1)]);
        assert_eq!(of(-1), [Some(1), Some(3), Some(3), Some(4), None]);
        assert_eq!(of(-2), [Some(3), Some(4), Some(4), None, None]);
        assert_eq!(of(i128::from(i64::MIN)), [None; 5]);
        assert_eq!(of(i128::from(i64::MAX)), [None; 5]);
    }
}
