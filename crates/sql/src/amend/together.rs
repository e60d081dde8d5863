//! What has one type together: the sides of a comparison, what one of several is chosen of, the columns of sets and the keys
//! of joins (`nodes.rs`). DataFusion finds a type for them that some values of one side do not fit.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{Case, Expr, ExprSchemable};

use super::compared::{self, Amend};

/// Types that do not go together, and what is put in the place of some of them.
#[derive(Clone, Copy)]
pub(super) struct Mixture {
    /// Whether types are such.
    pub(super) is: fn(&[DataType]) -> bool,
    /// Puts something else in the place of an expression, if it is one of those that have to change.
    pub(super) amend: fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
}

/// Functions that give one of their arguments, or a list of them.
pub(super) const CHOICES: [&str; 7] =
    ["coalesce", "greatest", "ifnull", "least", "make_array", "nvl", "nvl2"];

/// What a comparison looks at, and what is chosen of, without the mixture.
pub(super) fn amend(expr: Expr, schema: &DFSchema, mixture: Mixture) -> Result<Transformed<Expr>> {
    match expr {
        Expr::ScalarFunction(ref call) if CHOICES.contains(&call.func.name()) => {
            match (mixture.is)(&types_of(call.args.iter(), schema)) {
                true => expr.map_children(|part| (mixture.amend)(part, schema)),
                false => Ok(Transformed::no(expr)),
            }
        }
        Expr::Case(case) => {
            let chosen = branches(case, schema, mixture)?;
            chosen.transform_data(|case| compare(Expr::Case(case), schema, mixture))
        }
        expr => compare(expr, schema, mixture),
    }
}

fn compare(expr: Expr, schema: &DFSchema, mixture: Mixture) -> Result<Transformed<Expr>> {
    let with: Amend<'_> = &mixture.amend;
    match (mixture.is)(&compared::types(&expr, schema)) {
        true => compared::map(expr, schema, with),
        false => Ok(Transformed::no(expr)),
    }
}

/// What a `CASE` answers.
fn branches(mut case: Case, schema: &DFSchema, mixture: Mixture) -> Result<Transformed<Case>> {
    let answers = case.when_then_expr.iter().map(|(_, then)| &**then);
    let types = types_of(answers.chain(case.else_expr.as_deref()), schema);
    if !(mixture.is)(&types) {
        return Ok(Transformed::no(case));
    }
    let answers = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
    for answer in answers.chain(case.else_expr.as_deref_mut()) {
        *answer = (mixture.amend)(std::mem::take(answer), schema)?.data;
    }
    Ok(Transformed::yes(case))
}

pub(super) fn types_of<'a>(
    parts: impl Iterator<Item = &'a Expr>,
    schema: &DFSchema,
) -> Vec<DataType> {
    parts.filter_map(|part| part.get_type(schema).ok()).collect()
}
