//! Decimals beside floats are floats, as in PostgreSQL and DuckDB. DataFusion makes decimals of both, of 15 digits before their
//! point and 15 behind it, which NaN, an infinity and large floats do not fit.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

use super::together::Mixture;

/// Decimals beside floats.
pub(super) const BESIDE_FLOATS: Mixture = Mixture { is: mixes, amend: as_float };

fn mixes(types: &[DataType]) -> bool {
    types.iter().any(DataType::is_floating) && types.iter().any(DataType::is_decimal)
}

fn as_float(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr.get_type(schema)?.is_decimal() {
        true => Transformed::yes(cast(expr, DataType::Float64)),
        false => Transformed::no(expr),
    })
}
