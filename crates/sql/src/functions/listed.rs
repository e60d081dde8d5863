//! Values in an `IN` list that each row has of its own. DataFusion takes for a constant what it computes without rows to one value,
//! such as a `CASE`.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::amend::any_one;
use crate::correlated::is_subquery;
use crate::tree::Tree;

/// A list whose values are computed for each row, where they are not the same for all.
pub(crate) fn amend(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::InList(mut list) = expr else { return Ok(Transformed::no(expr)) };
    let mut is_amended = false;
    for value in &mut list.list {
        if !matches!(value, Expr::Literal(..) | Expr::Column(_)) && looks_at_rows(value)? {
            let function = ScalarUDF::new_from_impl(OfEachRow);
            *value = function.call(vec![std::mem::take(value)]);
            is_amended = true;
        }
    }
    let list = Expr::InList(list);
    Ok(if is_amended { Transformed::yes(list) } else { Transformed::no(list) })
}

fn looks_at_rows(expr: &Expr) -> Result<bool> {
    expr.exists(|part| {
        Ok(match part {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) => true,
            part => is_subquery(part) || part.is_volatile_node(),
        })
    })
}

/// What it is given, as many times as there are rows.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfEachRow;

impl ScalarUDFImpl for OfEachRow {
    fn name(&self) -> &str {
        "of_each_row"
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(ToString::to_string).collect())
    }

    fn signature(&self) -> &Signature {
        any_one()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type is that of the argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(FieldRef::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Array(args.args[0].to_array(args.number_rows)?))
    }
}
