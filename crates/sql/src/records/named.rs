//! `knn('trips', latitude => 40.75, longitude => (-73.98, 0.01))`: dimensions by their names, which DataFusion does not know of arguments.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, TableFactor, Value, VisitorMut,
};
use tidefall_types::Error;

use super::knn;
use crate::error::in_sql;

/// Makes three arguments of each that is named, as [`knn::Knn`] wants them: its name, where it is, and the length that counts as one, or NULL.
pub(crate) struct NamedDimensions;

impl VisitorMut for NamedDimensions {
    type Break = Error;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let (name, args) = match factor {
            TableFactor::Table { name, args: Some(args), .. } => (name, &mut args.args),
            TableFactor::Function { name, args, .. } => (name, args),
            _ => return ControlFlow::Continue(()),
        };
        if name.to_string().eq_ignore_ascii_case(knn::NAME) {
            match in_threes(std::mem::take(args)) {
                Ok(all) => *args = all,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

fn in_threes(args: Vec<FunctionArg>) -> tidefall_types::Result<Vec<FunctionArg>> {
    let mut args = args.into_iter();
    let Some(FunctionArg::Unnamed(table)) = args.next() else {
        return Err(knn::misused("wants the name of a table first"));
    };
    let mut all = vec![table];
    let value = |value: Value| FunctionArgExpr::Expr(Expr::Value(value.into()));
    for arg in args {
        let FunctionArg::Named { name, arg: FunctionArgExpr::Expr(at), .. } = arg else {
            return Err(knn::misused(&in_sql(&format!("has no use for {arg} without a name"))));
        };
        let Ident { value: text, quote_style, .. } = name;
        let name = if quote_style.is_some() { text } else { text.to_lowercase() };
        let (at, scale) = match at {
            Expr::Tuple(parts) => match <[Expr; 2]>::try_from(parts) {
                Ok([at, scale]) => (at, FunctionArgExpr::Expr(scale)),
                Err(_) => {
                    let what = format!("wants a value and a length for {name}");
                    return Err(knn::misused(&what));
                }
            },
            at => (at, value(Value::Null)),
        };
        all.extend([value(Value::SingleQuotedString(name)), FunctionArgExpr::Expr(at), scale]);
    }
    Ok(all.into_iter().map(FunctionArg::Unnamed).collect())
}
