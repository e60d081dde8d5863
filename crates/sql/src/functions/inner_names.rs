//! Names of functions within calls.
//!
//! DataFusion keeps the name under which a function was called beside its own, `struct(1) AS row(1)`, and so on around
//! it: each level doubles the length of the column's name. Within a call, functions are called by their own names.

use std::ops::ControlFlow;

use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName, VisitorMut};
use tidefall_types::Error;

use crate::ast::plain;

/// Gives functions within the calls of others their own names.
pub(crate) struct InnerNames<'a> {
    state: &'a SessionState,
    /// The calls around what is looked at.
    calls: usize,
}

impl<'a> InnerNames<'a> {
    /// With the functions of a session.
    pub(crate) fn new(state: &'a SessionState) -> Self {
        Self { state, calls: 0 }
    }

    fn own_name(&self, name: &ObjectName) -> Option<ObjectName> {
        let [part] = name.0.as_slice() else { return None };
        let called = plain(part.as_ident()?);
        let own = self.state.scalar_functions().get(&called)?.name();
        (own != called).then(|| ObjectName::from(vec![Ident::new(own)]))
    }
}

impl VisitorMut for InnerNames<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Function(call) = expr {
            if self.calls > 0
                && let Some(own) = self.own_name(&call.name)
            {
                call.name = own;
            }
            self.calls += 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if matches!(expr, Expr::Function(_)) {
            self.calls = self.calls.saturating_sub(1);
        }
        ControlFlow::Continue(())
    }
}
