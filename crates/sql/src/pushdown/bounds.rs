//! The rows for which a condition can be true, as a box the storage understands.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use tidefall_storage::{TagFilter, ValueCondition};
use tidefall_types::{TableSchema, TimeRange};

use super::{Step, chain, tags, values};

/// A range in which no time lies.
const NEVER: TimeRange = TimeRange::new(0, -1);

/// A box around the rows for which a condition is true.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) tags: TagFilter,
    pub(super) time: TimeRange,
    pub(super) values: Vec<ValueCondition>,
    /// Whether the condition is true for every row in the box.
    pub(super) exact: bool,
}

impl Bounds {
    /// The box that holds every row.
    pub(super) fn everything() -> Self {
        Self { tags: TagFilter::All, time: TimeRange::ALL, values: Vec::new(), exact: true }
    }

    fn nothing() -> Self {
        Self { time: NEVER, ..Self::everything() }
    }

    /// The box of `expr`, or nothing when it could be true for any row as far as we can tell.
    pub(super) fn of(expr: &Expr, schema: &TableSchema) -> Option<Self> {
        if let Some(tags) = tags::filter(expr, schema) {
            return Some(Self { tags, ..Self::everything() });
        }
        match expr {
            Expr::Alias(alias) => Self::of(&alias.expr, schema),
            Expr::Literal(ScalarValue::Boolean(Some(true)), _) => Some(Self::everything()),
            Expr::Literal(ScalarValue::Boolean(_) | ScalarValue::Null, _) => Some(Self::nothing()),
            Expr::BinaryExpr(binary) if binary.op == Operator::And => {
                let mut all: Option<Self> = None;
                let mut known = true;
                for part in chain(binary) {
                    match Self::of(part, schema) {
                        Some(part) => {
                            all = Some(match all {
                                Some(all) => all.and(part),
                                None => part,
                            });
                        }
                        None => known = false,
                    }
                }
                all.map(|all| Self { exact: all.exact && known, ..all })
            }
            Expr::BinaryExpr(binary) if binary.op == Operator::Or => {
                let mut parts = chain(binary).into_iter().map(|part| Self::of(part, schema));
                let first = parts.next()??;
                parts.try_fold(first, |all, part| Some(all.or(part?)))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                Self::of_comparison(left, *op, right, schema)
                    .or_else(|| Self::of_comparison(right, op.swap()?, left, schema))
            }
            Expr::Between(Between { expr, negated: false, low, high }) => {
                let low = Self::of_comparison(expr, Operator::GtEq, low, schema)?;
                Some(low.and(Self::of_comparison(expr, Operator::LtEq, high, schema)?))
            }
            Expr::InList(InList { expr, list, negated: false }) => {
                let mut boxes =
                    list.iter().map(|item| Self::of_comparison(expr, Operator::Eq, item, schema));
                let first = boxes.next()??;
                boxes.try_fold(first, |all, one| Some(all.or(one?)))
            }
            _ => None,
        }
    }

    /// The box of `column op literal`.
    fn of_comparison(
        column: &Expr,
        op: Operator,
        literal: &Expr,
        schema: &TableSchema,
    ) -> Option<Self> {
        let Expr::Literal(literal, _) = literal else { return None };
        let comparison = matches!(
            op,
            Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        );
        if !comparison {
            return None;
        }
        if let Some(step) = Step::of(column, schema) {
            if literal.is_null() {
                return Some(Self::nothing());
            }
            let (time, exact) = step.range(op, literal)?;
            return Some(Self { time, exact, ..Self::everything() });
        }
        let condition = values::condition(column, op, literal, schema)?;
        Some(Self { values: vec![condition], exact: false, ..Self::everything() })
    }

    /// The box of `self AND other`.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.values.extend(other.values);
        Self {
            tags: and_tags(self.tags, other.tags),
            time: self.time.intersect(&other.time),
            values: self.values,
            exact: self.exact && other.exact,
        }
    }

    /// The box of `self OR other`.
    fn or(self, other: Self) -> Self {
        if self.time.is_empty() {
            return other;
        }
        if other.time.is_empty() {
            return self;
        }
        let same_tags = self.tags == other.tags;
        let same_time = self.time == other.time;
        let touching = self.time.overlaps(&other.time)
            || self.time.last_ns.checked_add(1) == Some(other.time.first_ns)
            || other.time.last_ns.checked_add(1) == Some(self.time.first_ns);
        let joined = same_time || (same_tags && touching);
        Self {
            tags: if same_tags { self.tags } else { or_tags(self.tags, other.tags) },
            time: self.time.union(&other.time),
            // A row needs to meet the conditions of one side only.
            values: Vec::new(),
            exact: joined && self.exact && other.exact,
        }
    }
}

fn and_tags(left: TagFilter, right: TagFilter) -> TagFilter {
    match (left, right) {
        (TagFilter::All, one) | (one, TagFilter::All) => one,
        (TagFilter::And(mut all), one) => {
            all.push(one);
            TagFilter::And(all)
        }
        (left, right) => TagFilter::And(vec![left, right]),
    }
}

fn or_tags(left: TagFilter, right: TagFilter) -> TagFilter {
    match (left, right) {
        (TagFilter::All, _) | (_, TagFilter::All) => TagFilter::All,
        (TagFilter::Or(mut all), one) => {
            all.push(one);
            TagFilter::Or(all)
        }
        (left, right) => TagFilter::Or(vec![left, right]),
    }
}
