//! The words of SQL that are understood: those of the parser's generic dialect, with mistakes of it mended.
//!
//! It takes all that stands behind `a IS NOT DISTINCT FROM` for the other side, also `b AND c`, and knows no `ANY (VALUES ...)`.
//!
//! And it tries more than one meaning of words such as `NOT (` and `CAST (`: when there is a mistake within forty of them,
//! it would try each of them both ways, 2^40 times. So its tries are counted.

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// How many expressions the parser may begin to read for each byte of a text, and in addition. One for every byte is more
/// than any text has; mistakes in a few levels of parentheses are read some hundred times.
const TRIES_PER_BYTE: u64 = 4;
const TRIES_FREE: u64 = 100_000;

thread_local! {
    /// The tries that are left to the parser on this thread.
    static TRIES: Cell<u64> = const { Cell::new(TRIES_FREE) };
}

/// Begins to read a text on this thread.
pub(crate) fn begin(sql: &str) {
    let bytes = u64::try_from(sql.len()).unwrap_or(u64::MAX);
    TRIES.set(bytes.saturating_mul(TRIES_PER_BYTE).saturating_add(TRIES_FREE));
}

/// The dialect.
#[derive(Debug)]
pub(crate) struct TidefallDialect;

/// Everything in which the generic dialect differs from the rest.
macro_rules! as_generic {
    ($($name:ident),* $(,)?) => {$(
        fn $name(&self) -> bool {
            GenericDialect.$name()
        }
    )*};
}

impl Dialect for TidefallDialect {
    fn dialect(&self) -> TypeId {
        GenericDialect.dialect()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    /// `1_000_000`: the parser would take what is behind the first of them for a name.
    fn supports_numeric_literal_underscores(&self) -> bool {
        true
    }

    as_generic! {
        supports_unicode_string_literal,
        supports_partition_by_after_order_by,
        supports_array_join_syntax,
        supports_group_by_expr,
        supports_group_by_with_modifier,
        supports_left_associative_joins_without_parens,
        supports_connect_by,
        supports_match_recognize,
        supports_pipe_operator,
        supports_start_transaction_modifier,
        supports_window_function_null_treatment_arg,
        supports_dictionary_syntax,
        supports_window_clause_named_window_reference,
        supports_parenthesized_set_variables,
        supports_select_wildcard_except,
        support_map_literal_syntax,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_extract_comma_syntax,
        supports_create_view_comment_syntax,
        supports_parens_around_table_factor,
        supports_values_as_table_factor,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_limit_comma,
        supports_update_order_by,
        supports_from_first_select,
        supports_projection_trailing_commas,
        supports_asc_desc_in_column_definition,
        supports_try_convert,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_assignment_operator,
        supports_struct_literal,
        supports_empty_projections,
        supports_nested_comments,
        supports_multiline_comment_hints,
        supports_user_host_grantee,
        supports_string_escape_constant,
        supports_array_typedef_with_brackets,
        supports_match_against,
        supports_set_names,
        supports_comma_separated_set_assignments,
        supports_filter_during_aggregation,
        supports_select_wildcard_exclude,
        supports_data_type_signed_suffix,
        supports_interval_options,
        supports_quote_delimited_string,
        supports_select_wildcard_replace,
        supports_select_wildcard_ilike,
        supports_select_wildcard_rename,
        supports_optimize_table,
        supports_install,
        supports_detach,
        supports_prewhere,
        supports_with_fill,
        supports_limit_by,
        supports_interpolate,
        supports_settings,
        supports_select_format,
        supports_comment_optimizer_hint,
        supports_constraint_keyword_without_name,
        supports_key_column_option,
        supports_comma_separated_trim,
        supports_cte_without_as,
        supports_select_item_multi_column_alias,
        supports_xml_expressions,
    }

    /// `||` binds as in PostgreSQL and DuckDB, less than what adds and more than what compares.
    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        const BETWEEN_PLUS_AND_EQUALS: u8 = 26;
        (parser.peek_token_ref().token == Token::StringConcat)
            .then_some(Ok(BETWEEN_PLUS_AND_EQUALS))
    }

    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let left = TRIES.get();
        TRIES.set(left.saturating_sub(1));
        // Nothing can be read from now on, so that all that is begun ends.
        (left == 0).then_some(Err(ParserError::RecursionLimitExceeded))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(read) = read_any_values(parser, expr) {
            return Some(read);
        }
        const SAME: [Keyword; 4] = [Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM];
        const OTHER: [Keyword; 3] = [Keyword::IS, Keyword::DISTINCT, Keyword::FROM];
        let is_same = parser.parse_keywords(&SAME);
        if !is_same && !parser.parse_keywords(&OTHER) {
            return None;
        }
        let left = Box::new(expr.clone());
        Some(parser.parse_subexpr(precedence).map(|right| match is_same {
            true => Expr::IsNotDistinctFrom(left, Box::new(right)),
            false => Expr::IsDistinctFrom(left, Box::new(right)),
        }))
    }
}

/// `x = ANY (VALUES ...)`, of which the parser knows no rows but those of `SELECT`.
fn read_any_values(parser: &mut Parser, expr: &Expr) -> Option<Result<Expr, ParserError>> {
    let compare_op = match parser.peek_token_ref().token {
        Token::Eq => BinaryOperator::Eq,
        Token::Neq => BinaryOperator::NotEq,
        Token::Lt => BinaryOperator::Lt,
        Token::LtEq => BinaryOperator::LtEq,
        Token::Gt => BinaryOperator::Gt,
        Token::GtEq => BinaryOperator::GtEq,
        _ => return None,
    };
    let keyword = |at: usize| match &parser.peek_nth_token_ref(at).token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    };
    let with_all = match keyword(1) {
        Some(Keyword::ALL) => true,
        Some(Keyword::ANY | Keyword::SOME) => false,
        _ => return None,
    };
    let is_open = parser.peek_nth_token_ref(2).token == Token::LParen;
    if !is_open || keyword(3) != Some(Keyword::VALUES) {
        return None;
    }
    (0..3).for_each(|_| parser.advance_token());
    let read = parser.parse_query().and_then(|rows| {
        parser.expect_token(&Token::RParen)?;
        let (left, right) = (Box::new(expr.clone()), Box::new(Expr::Subquery(rows)));
        Ok(match with_all {
            true => Expr::AllOp { left, compare_op, right },
            false => Expr::AnyOp { left, compare_op, right, is_some: false },
        })
    });
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An expression with parentheses around everything.
    fn shape(expr: &Expr) -> String {
        match expr {
            Expr::BinaryOp { left, op, right } => {
                format!("({} {op} {})", shape(left), shape(right))
            }
            Expr::UnaryOp { op, expr } => format!("({op} {})", shape(expr)),
            Expr::IsNotDistinctFrom(left, right) => {
                format!("({} same {})", shape(left), shape(right))
            }
            Expr::IsDistinctFrom(left, right) => {
                format!("({} other {})", shape(left), shape(right))
            }
            other => other.to_string(),
        }
    }

    #[test]
    fn the_other_side_of_distinct_ends_before_and() {
        for (sql, expected) in [
            ("a IS NOT DISTINCT FROM 'x' AND b = 1", "((a same 'x') AND (b = 1))"),
            (
                "p = q AND a IS DISTINCT FROM b + 1 AND c OR d",
                "((((p = q) AND (a other (b + 1))) AND c) OR d)",
            ),
            ("NOT a IS DISTINCT FROM b OR c", "((NOT (a other b)) OR c)"),
            ("a IS NOT NULL AND b IS DISTINCT FROM NULL", "(a IS NOT NULL AND (b other NULL))"),
        ] {
            let mut parser = Parser::new(&TidefallDialect).try_with_sql(sql).expect(sql);
            assert_eq!(shape(&parser.parse_expr().expect(sql)), expected);
        }
    }
}
