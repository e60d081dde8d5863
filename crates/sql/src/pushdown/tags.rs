//! Conditions on tags that the catalogue answers.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, expr};
use tidefall_storage::{Case, TagFilter};
use tidefall_types::{ColumnKind, TableSchema};

use super::{chain, column_kind};
use crate::types::is_text;

/// The same condition as a tag filter, if there is one with exactly its meaning.
pub(super) fn filter(expr: &Expr, schema: &TableSchema) -> Option<TagFilter> {
    match expr {
        Expr::BinaryExpr(binary) => of_binary(binary, schema),
        Expr::Not(inner) => Some(negate(filter(inner, schema)?)),
        Expr::IsNull(inner) => Some(TagFilter::IsNull { tag: tag_name(inner, schema)? }),
        Expr::IsNotNull(inner) => Some(negate(TagFilter::IsNull { tag: tag_name(inner, schema)? })),
        Expr::InList(InList { expr, list, negated }) => {
            let tag = tag_name(expr, schema)?;
            let values = list.iter().map(text).collect::<Option<Vec<_>>>()?;
            Some(negate_if(*negated, TagFilter::In { tag, values }))
        }
        Expr::Like(like) => of_like(like, schema),
        Expr::Case(case) => of_any_text(case, schema),
        _ => None,
    }
}

/// `tag LIKE '%'`, which DataFusion writes as `CASE tag IS NOT NULL WHEN true THEN true END`: unknown where there is no tag.
fn of_any_text(case: &expr::Case, schema: &TableSchema) -> Option<TagFilter> {
    let (Some(Expr::IsNotNull(tag)), [(when, then)], None) =
        (case.expr.as_deref(), case.when_then_expr.as_slice(), &case.else_expr)
    else {
        return None;
    };
    let truth = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Boolean(truth), _) => *truth,
        _ => None,
    };
    let tag = tag_name(tag, schema)?;
    let like = TagFilter::Like { tag, pattern: "%".to_owned(), case: Case::Sensitive };
    truth(when)?.then_some(negate_if(!truth(then)?, like))
}

fn of_binary(binary: &BinaryExpr, schema: &TableSchema) -> Option<TagFilter> {
    let BinaryExpr { left, op, right } = binary;
    if matches!(op, Operator::And | Operator::Or) {
        let parts = chain(binary).into_iter().map(|part| filter(part, schema));
        let parts = parts.collect::<Option<Vec<_>>>()?;
        let and = *op == Operator::And;
        return Some(if and { TagFilter::And(parts) } else { TagFilter::Or(parts) });
    }
    if matches!(op, Operator::Eq | Operator::NotEq) {
        let (tag, value) = match tag_name(left, schema) {
            Some(tag) => (tag, text(right)?),
            None => (tag_name(right, schema)?, text(left)?),
        };
        return Some(negate_if(*op == Operator::NotEq, TagFilter::Eq { tag, value }));
    }
    if matches!(op, Operator::IsNotDistinctFrom | Operator::IsDistinctFrom) {
        let (tag, value) = match tag_name(left, schema) {
            Some(tag) => (tag, right),
            None => (tag_name(right, schema)?, left),
        };
        let is_null = TagFilter::IsNull { tag: tag.clone() };
        // Never unknown, unlike a comparison.
        let same = match text_or_null(value)? {
            Some(value) => TagFilter::And(vec![negate(is_null), TagFilter::Eq { tag, value }]),
            None => is_null,
        };
        return Some(negate_if(*op == Operator::IsDistinctFrom, same));
    }
    let (case, negated) = match op {
        Operator::RegexMatch => (Case::Sensitive, false),
        Operator::RegexIMatch => (Case::Insensitive, false),
        Operator::RegexNotMatch => (Case::Sensitive, true),
        Operator::RegexNotIMatch => (Case::Insensitive, true),
        _ => return None,
    };
    let tag = tag_name(left, schema)?;
    Some(negate_if(negated, TagFilter::Regex { tag, pattern: text(right)?, case }))
}

fn of_like(like: &Like, schema: &TableSchema) -> Option<TagFilter> {
    // The storage knows one escape character, the usual one.
    if !matches!(like.escape_char, None | Some('\\')) {
        return None;
    }
    let tag = tag_name(&like.expr, schema)?;
    let case = if like.case_insensitive { Case::Insensitive } else { Case::Sensitive };
    let pattern = text(&like.pattern)?;
    Some(negate_if(like.negated, TagFilter::Like { tag, pattern, case }))
}

fn negate(filter: TagFilter) -> TagFilter {
    TagFilter::Not(Box::new(filter))
}

fn negate_if(negated: bool, filter: TagFilter) -> TagFilter {
    if negated { negate(filter) } else { filter }
}

/// The name of the tag that `expr` is, also under a cast between kinds of text.
fn tag_name(expr: &Expr, schema: &TableSchema) -> Option<String> {
    match expr {
        Expr::Column(column) => match column_kind(expr, schema)? {
            ColumnKind::Tag(_) => Some(column.name.clone()),
            _ => None,
        },
        Expr::Cast(cast) if is_text(cast.field.data_type()) => tag_name(&cast.expr, schema),
        Expr::TryCast(cast) if is_text(cast.field.data_type()) => tag_name(&cast.expr, schema),
        _ => None,
    }
}

/// The text of a literal that is one, or nothing for a null.
fn text_or_null(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Literal(literal, _) if literal.is_null() => Some(None),
        expr => text(expr).map(Some),
    }
}

/// The text of a literal that is one and not null.
fn text(expr: &Expr) -> Option<String> {
    let Expr::Literal(literal, _) = expr else { return None };
    text_of(literal)
}

fn text_of(literal: &ScalarValue) -> Option<String> {
    match literal {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.clone()
        }
        ScalarValue::Dictionary(_, value) => text_of(value),
        _ => None,
    }
}
