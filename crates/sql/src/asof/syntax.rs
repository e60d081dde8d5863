//! From `ASOF JOIN` to a left join with a mark.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result as DfResult;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Join, JoinConstraint, JoinOperator, Select, TableFactor, VisitorMut,
};
use tidefall_types::Error;

use crate::ast::call;

/// The mark around the condition on times.
pub(super) const MARK: &str = "asof_match";

/// Makes the mark known.
pub(crate) fn register(context: &SessionContext) {
    let signature = Signature::any(1, Volatility::Immutable);
    context.register_udf(ScalarUDF::new_from_impl(Mark { signature }));
}

/// Writes every `ASOF JOIN` in a statement as a left join with a mark; wrong is one without `ON`.
pub(crate) struct AsOfSyntax;

impl VisitorMut for AsOfSyntax {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let mut joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
        joins.try_for_each(write_join)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => {
                table_with_joins.joins.iter_mut().try_for_each(write_join)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn write_join(join: &mut Join) -> ControlFlow<Error> {
    let JoinOperator::AsOf { match_condition, constraint } = &mut join.join_operator else {
        return ControlFlow::Continue(());
    };
    let times = call(MARK, [match_condition.clone()]);
    let on = match constraint {
        JoinConstraint::On(keys) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(keys.clone()))),
            op: BinaryOperator::And,
            right: Box::new(times),
        },
        JoinConstraint::None => times,
        JoinConstraint::Using(_) | JoinConstraint::Natural => {
            return ControlFlow::Break(Error::invalid(
                "ASOF JOIN wants its keys in ON, as in \
                 a ASOF JOIN b MATCH_CONDITION (a.time >= b.time) ON a.sensor = b.sensor",
            ));
        }
    };
    join.join_operator = JoinOperator::LeftOuter(JoinConstraint::On(on));
    ControlFlow::Continue(())
}

/// Stands in a plan until the analyzer has seen it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    signature: Signature,
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        plan_err!("{MARK} stands for the condition of an ASOF JOIN and has no value elsewhere")
    }
}
