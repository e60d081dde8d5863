//! Numbers of several types beside each other.
//!
//! A decimal beside a float is a float, as in DuckDB. DataFusion makes decimals of both, of 15 digits before their point and 15
//! behind it, which NaN, an infinity and large floats do not fit.
//!
//! What one of several numbers is chosen of, and the columns of sets (`nodes.rs`), are of the type that all of them have in
//! common from here on. DataFusion says before the types are coerced that they are of the first one's, and so of all that is
//! compared with them.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

use super::{chosen, compared};

/// A comparison of decimals with floats as one of floats, and what one of several numbers is chosen of in one type.
pub(super) fn amend(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_amended = false;
    let parts = match expr {
        // What stands for rows that are not there is of the type of those that are.
        Expr::WindowFunction(_) => Vec::new(),
        _ => chosen::parts(&mut expr),
    };
    let types: Vec<DataType> = parts.iter().filter_map(|part| part.get_type(schema).ok()).collect();
    if let Some(to) = common(&types).filter(|_| types.len() == parts.len()) {
        for part in parts {
            *part = in_type(std::mem::take(part), schema, &to)?.data;
        }
        is_amended = true;
    }
    match beside_float(&compared::types(&expr, schema)) {
        Some(float) => compared::map(expr, schema, &|part, schema| as_float(part, schema, &float)),
        None if is_amended => Ok(Transformed::yes(expr)),
        None => Ok(Transformed::no(expr)),
    }
}

/// A number in a type.
pub(super) fn in_type(expr: Expr, schema: &DFSchema, to: &DataType) -> Result<Transformed<Expr>> {
    Ok(match expr.get_type(schema)? == *to {
        true => Transformed::no(expr),
        false => Transformed::yes(cast(expr, to.clone())),
    })
}

/// A number of another type as a float.
pub(super) fn as_float(
    expr: Expr,
    schema: &DFSchema,
    float: &DataType,
) -> Result<Transformed<Expr>> {
    let of = expr.get_type(schema)?;
    Ok(match of.is_numeric() && !of.is_floating() {
        true => Transformed::yes(cast(expr, float.clone())),
        false => Transformed::no(expr),
    })
}

/// What all numbers become beside floats, if DataFusion would make decimals of them: where one of them is one, or whole numbers of
/// 64 bits are beside such without a sign.
pub(super) fn beside_float(types: &[DataType]) -> Option<DataType> {
    let widest =
        types.iter().filter(|of| of.is_floating()).max_by_key(|of| of.primitive_width())?;
    let has = |is: fn(&DataType) -> bool| types.iter().any(is);
    let are_decimals = has(DataType::is_decimal)
        || (has(DataType::is_signed_integer) && has(|of| *of == DataType::UInt64));
    are_decimals.then(|| widest.clone())
}

/// The type that numbers of several types have in common.
pub(super) fn common(types: &[DataType]) -> Option<DataType> {
    let known = || types.iter().filter(|of| !of.is_null());
    let first = known().next()?;
    if !known().all(DataType::is_numeric) || known().all(|of| of == first) {
        return None;
    }
    match beside_float(types) {
        Some(float) => Some(float),
        None => known().try_fold(first.clone(), |all, of| type_union_coercion(&all, of)),
    }
}
