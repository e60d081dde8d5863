//! Texts that are written out beside times, where one of them is chosen: `coalesce(seen, '2024-01-01')`,
//! `CASE ... ELSE '2024-01-01' END`, `[time, '2024-01-01']`, `lag(time, 1, '2024-01-01')`.
//!
//! DataFusion makes texts of the times then. Here the texts are times, as where both are compared.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

use super::zones::CHOICES;
use crate::types::is_text;

/// Functions of rows before and behind, whose third argument stands for those that are not there.
const SHIFTS: [&str; 2] = ["lag", "lead"];

/// The parts of an expression of which one is its answer.
pub(super) fn parts(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::ScalarFunction(call) if CHOICES.contains(&call.func.name()) => {
            // The first argument of this one is only asked about.
            let asked = usize::from(call.func.name() == "nvl2");
            call.args.iter_mut().skip(asked).collect()
        }
        Expr::Case(case) => {
            let answers = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
            answers.chain(case.else_expr.as_deref_mut()).collect()
        }
        Expr::WindowFunction(window) if SHIFTS.contains(&window.fun.name()) => {
            match window.params.args.as_mut_slice() {
                [value, _, otherwise] => vec![value, otherwise],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// What is chosen among times, all of it times.
pub(super) fn amend(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let parts = parts(&mut expr);
    let types: Vec<DataType> = parts.iter().filter_map(|part| part.get_type(schema).ok()).collect();
    // Beside a text that is not written out, the answer is a text.
    let is_other_text = |part: &Expr| {
        let is_written = matches!(part, Expr::Literal(..));
        !is_written && part.get_type(schema).is_ok_and(|of| is_text(&of))
    };
    if parts.iter().any(|part| is_other_text(part)) {
        return Ok(Transformed::no(expr));
    }
    let is_time = |of: &&DataType| matches!(of, DataType::Timestamp(..));
    let is_date = |of: &&DataType| matches!(of, DataType::Date32 | DataType::Date64);
    let Some(to) = types.iter().find(is_time).or(types.iter().find(is_date)) else {
        return Ok(Transformed::no(expr));
    };
    let mut is_amended = false;
    for part in parts {
        if matches!(part, Expr::Literal(text, _) if !text.is_null() && is_text(&text.data_type())) {
            *part = cast(std::mem::take(part), to.clone());
            is_amended = true;
        }
    }
    Ok(if is_amended { Transformed::yes(expr) } else { Transformed::no(expr) })
}
