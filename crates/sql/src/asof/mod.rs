//! `a ASOF JOIN b MATCH_CONDITION (a.time >= b.time) ON a.sensor = b.sensor`: beside each row of `a` the
//! one of `b` that is nearest in time on one side, or nulls.
//!
//! DataFusion parses this and plans none of it. So it is planned as a left join with a mark, and the mark
//! is put into effect before anything else looks at the plan:
//!
//! 1. `syntax.rs`: the statement gets a `LEFT JOIN ... ON keys AND asof_match(condition)`.
//! 2. `rules.rs`: the analyzer turns that join into an [`AsOfNode`]; the optimizer moves conditions
//!    below it, to both sides where they hold for both.
//! 3. `exec.rs`: one pass over both sides, ordered by keys and time.

mod exec;
mod merge;
mod node;
mod rules;
mod syntax;

pub(crate) use node::AsOfPlanner;
pub(crate) use rules::{AsOfFilters, AsOfJoins};
pub(crate) use syntax::{AsOfSyntax, register};

use datafusion::logical_expr::Operator;

/// Which row of the right side belongs to a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Hash)]
struct Nearest {
    /// The last one up to it; else the first one from it.
    is_before: bool,
    /// Whether one at the same time counts.
    is_equal_enough: bool,
}

impl Nearest {
    /// What `left time op right time` says.
    fn of(op: Operator) -> Option<Self> {
        let (is_before, is_equal_enough) = match op {
            Operator::GtEq => (true, true),
            Operator::Gt => (true, false),
            Operator::LtEq => (false, true),
            Operator::Lt => (false, false),
            _ => return None,
        };
        Some(Self { is_before, is_equal_enough })
    }

    fn operator(self) -> Operator {
        match (self.is_before, self.is_equal_enough) {
            (true, true) => Operator::GtEq,
            (true, false) => Operator::Gt,
            (false, true) => Operator::LtEq,
            (false, false) => Operator::Lt,
        }
    }
}
