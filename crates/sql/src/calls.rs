//! Clauses of calls that DataFusion passes over in silence: an answer without them would be another one.
//!
//! `[a, b]` becomes a call: in it DataFusion knows no columns of a query around it.

use std::ops::ControlFlow;

use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::{
    Array, DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArguments,
    NullTreatment, VisitorMut,
};
use tidefall_types::{Error, Result};

use crate::ast::{self, plain};

/// Functions of windows that may leave rows without a value out.
const MAY_IGNORE_NULLS: [&str; 5] = ["first_value", "last_value", "nth_value", "lag", "lead"];

/// Refuses clauses of calls for functions that do not have them.
pub(crate) struct Calls<'a>(pub(crate) &'a SessionState);

impl VisitorMut for Calls<'_> {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Array(Array { elem, .. }) = expr {
            *expr = ast::call("make_array", std::mem::take(elem));
        }
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        match self.check(call) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Calls<'_> {
    fn check(&self, call: &Function) -> Result<()> {
        let [part] = call.name.0.as_slice() else { return Ok(()) };
        let Some(name) = part.as_ident().map(plain) else { return Ok(()) };
        let (is_distinct, is_ordered) = match &call.args {
            FunctionArguments::List(list) => (
                list.duplicate_treatment == Some(DuplicateTreatment::Distinct),
                list.clauses.iter().any(|of| matches!(of, FunctionArgumentClause::OrderBy(_))),
            ),
            _ => (false, false),
        };
        let ignores = call.null_treatment == Some(NullTreatment::IgnoreNulls);
        let refuse = |is_there: bool, clause: &str, why: &str| match is_there {
            true => Err(Error::invalid(format!("{name} does not take {clause}: {why}"))),
            false => Ok(()),
        };
        if self.0.aggregate_functions().contains_key(&name) {
            return Ok(());
        }
        if self.0.window_functions().contains_key(&name) {
            let why = "it looks at all rows of its window";
            refuse(is_distinct, "DISTINCT", why)?;
            refuse(call.filter.is_some(), "FILTER", why)?;
            refuse(is_ordered, "ORDER BY among its arguments", "write it behind OVER")?;
            let is_no_value = ignores && !MAY_IGNORE_NULLS.contains(&name.as_str());
            return refuse(is_no_value, "IGNORE NULLS", "it answers with no value of a row");
        }
        if self.0.scalar_functions().contains_key(&name) {
            let why = "it is computed for each row alone";
            refuse(is_distinct, "DISTINCT", why)?;
            refuse(call.filter.is_some(), "FILTER", why)?;
            refuse(is_ordered, "ORDER BY", why)?;
            refuse(ignores, "IGNORE NULLS", why)?;
            return refuse(call.over.is_some(), "OVER", why);
        }
        Ok(())
    }
}
