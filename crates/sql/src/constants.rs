//! Numbers that are values, and that DataFusion takes for the places of columns.
//!
//! - `7 AS g ... GROUP BY g`: it puts what has the name in the place of the name, and then the seventh column in the place of 7.
//! - `array_agg(a ORDER BY 2)`: it orders by the second column of the table. A constant orders nothing.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Select, SelectItem, Value,
    VisitorMut,
};
use tidefall_types::Error;

use crate::ast::{plain, without_signs};
use crate::names::named;

/// Makes constants of them.
pub(crate) struct Constants;

impl VisitorMut for Constants {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let GroupByExpr::Expressions(groups, _) = &select.group_by else {
            return ControlFlow::Continue(());
        };
        let names: Vec<String> = groups.iter().filter_map(name_of).collect();
        for item in &mut select.projection {
            if let SelectItem::ExprWithAlias { expr, alias } = item
                && is_number(expr)
                && names.contains(&plain(alias))
            {
                *expr = named(expr.clone());
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Function(call) = expr
            && let FunctionArguments::List(list) = &mut call.args
        {
            list.clauses.retain_mut(|clause| match clause {
                FunctionArgumentClause::OrderBy(exprs) => {
                    exprs.retain(|order| !is_number(&order.expr));
                    !exprs.is_empty()
                }
                _ => true,
            });
        }
        ControlFlow::Continue(())
    }
}

/// The name by which rows are grouped: DataFusion forgets a plus.
fn name_of(group: &Expr) -> Option<String> {
    match without_signs(group) {
        Expr::Identifier(name) => Some(plain(name)),
        _ => None,
    }
}

fn is_number(expr: &Expr) -> bool {
    matches!(without_signs(expr), Expr::Value(value) if matches!(value.value, Value::Number(..)))
}
