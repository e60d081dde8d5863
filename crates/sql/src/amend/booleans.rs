//! Booleans beside texts: `b IN ('true', 'f')`, where the texts are cast, as beside all other types.
//!
//! Operators are planned with these casts (`../operators/`), as DataFusion refuses them before anything is amended.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

use super::compared;
use crate::types::is_text;

/// A comparison of a boolean with texts as one of booleans.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let types = compared::types(&expr, schema);
    if !types.contains(&DataType::Boolean) || !types.iter().any(is_text) {
        return Ok(Transformed::no(expr));
    }
    compared::map(expr, schema, &|part, schema| {
        Ok(match is_text(&part.get_type(schema)?) {
            true => Transformed::yes(cast(part, DataType::Boolean)),
            false => Transformed::no(part),
        })
    })
}
