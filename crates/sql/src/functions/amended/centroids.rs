//! How many centroids approximate percentiles may have.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::physical_expr::expressions::Literal;
use tidefall_types::Error;

use crate::error::to_datafusion;

/// Centroids at most: beyond some hundreds answers are hardly better, and each group may have as many.
const CENTROIDS_MAX: i128 = 10_000;

/// Refuses more centroids than there is memory for.
pub(super) fn check_centroids(name: &str, args: &AccumulatorArgs<'_>) -> Result<()> {
    let place = match name {
        "approx_percentile_cont" => 2,
        "approx_percentile_cont_with_weight" => 3,
        _ => return Ok(()),
    };
    let literal = args.exprs.get(place).and_then(|expr| expr.downcast_ref::<Literal>());
    let Some(count) = literal.and_then(|literal| literal.value().cast_to(&COUNT).ok()) else {
        return Ok(());
    };
    match count {
        ScalarValue::Decimal128(Some(count), ..) if count > CENTROIDS_MAX => {
            Err(to_datafusion(Error::limit(format!(
                "{name} takes up to {CENTROIDS_MAX} centroids, not {count}; leave them out for 100"
            ))))
        }
        _ => Ok(()),
    }
}

/// Holds every integer.
const COUNT: DataType = DataType::Decimal128(20, 0);
