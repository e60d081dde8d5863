//! Statements that would nest too deeply are refused before they are parsed.
//!
//! `a OR b OR c` becomes a tree as deep as the chain is long, and a tree is walked, compared and
//! dropped by recursion at many places of the query engine, not all of which watch the stack. The
//! parser bounds the nesting of some of what it reads; this bounds all of it, from the tokens alone:
//!
//! 1. Every parenthesis, bracket and `CASE` begins a level. A list within it is as deep as the deepest of its elements,
//!    and a `CASE` as the deepest of its branches.
//! 2. An element is as deep as its operators are many, as nobody knows here how they bind, and the deepest
//!    level within it comes on top.
//! 3. What chains queries and tables, such as `UNION` and `JOIN`, does so across the commas of their columns.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use tidefall_types::{Error, Result};

/// The longest chain of operators, with those in parentheses within it. Twice as many still fit on a
/// thread's stack of 2 MiB; planning them takes seconds, as its cost grows faster than their number.
const CHAIN_MAX: usize = 400;

/// Texts up to here cannot hold a longer chain, as an operator and its operand take two bytes.
const BYTES_FREE: usize = 2 * CHAIN_MAX;

/// Checks that nothing nests too deeply.
///
/// # Errors
/// `Limit` for chains, `Invalid` for parentheses as it is with the parser. Text that is no SQL passes; the parser
/// has the better message for it.
pub(crate) fn check_depth(sql: &str, dialect: &dyn Dialect) -> Result<()> {
    if sql.len() <= BYTES_FREE {
        return Ok(());
    }
    let Ok(tokens) = Tokenizer::new(dialect, sql).tokenize() else { return Ok(()) };
    let mut levels = vec![Level::default()];
    let mut types = 0;
    let mut before = None;
    for token in tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))) {
        if is_type(before) && *token == Token::Lt {
            types += 1;
        }
        before = Some(token);
        let Some(level) = levels.last_mut() else { break };
        let depth = level.take(token);
        let is_case = level.is_case;
        match Bound::of(token) {
            Bound::Begin { .. } if levels.len() > CHAIN_MAX => {
                return Err(Error::invalid("the statement cannot be read: it nests too deeply"));
            }
            Bound::Begin { is_case } => levels.push(Level { is_case, ..Level::default() }),
            Bound::EndOfCase if is_case => end_level(&mut levels),
            Bound::End => {
                // A word that looks like the beginning of a CASE has none of its own.
                while levels.last().is_some_and(|level| level.is_case) {
                    end_level(&mut levels);
                }
                end_level(&mut levels);
            }
            Bound::EndOfCase | Bound::None => {}
        }
        if levels.last().map_or(0, Level::depth).max(depth) + types > CHAIN_MAX {
            return Err(Error::limit(format!(
                "the statement has a chain of more than {CHAIN_MAX} operators, UNIONs or JOINs; write \
                 x IN (...) instead of x = 1 OR x = 2, or split the statement"
            )));
        }
    }
    Ok(())
}

/// Ends the innermost level, which is then within an element of the one around it.
fn end_level(levels: &mut Vec<Level>) {
    if levels.len() > 1
        && let Some(inner) = levels.pop()
        && let Some(outer) = levels.last_mut()
    {
        outer.deepest = outer.deepest.max(inner.depth());
    }
}

/// Where levels begin and end.
enum Bound {
    None,
    Begin { is_case: bool },
    End,
    EndOfCase,
}

impl Bound {
    fn of(token: &Token) -> Self {
        match token {
            Token::LParen | Token::LBracket => Self::Begin { is_case: false },
            Token::RParen | Token::RBracket => Self::End,
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::CASE => Self::Begin { is_case: true },
                Keyword::END => Self::EndOfCase,
                _ => Self::None,
            },
            _ => Self::None,
        }
    }
}

/// What was seen of the level of an open parenthesis or `CASE`.
#[derive(Default)]
struct Level {
    is_case: bool,
    /// Chained queries and tables.
    queries: usize,
    /// The deepest of the elements before this one.
    widest: usize,
    /// Operators of this element.
    chain: usize,
    /// Comparisons since the last `AND` or `OR`.
    links: usize,
    /// Parts of a name.
    parts: usize,
    /// The deepest parenthesis within this element.
    deepest: usize,
}

impl Level {
    fn depth(&self) -> usize {
        self.queries + self.widest.max(self.element())
    }

    fn element(&self) -> usize {
        self.chain + self.links.max(self.parts) + self.deepest
    }

    /// Takes the next token in; how deep the level is with it.
    fn take(&mut self, token: &Token) -> usize {
        if !matches!(token, Token::Word(_) | Token::Period) {
            self.parts = 0;
        }
        match Kind::of(token) {
            Kind::Plain => {}
            Kind::Part => self.parts += 1,
            Kind::Operator => self.chain += 1,
            Kind::Link => self.links += 1,
            Kind::Logic => {
                self.chain += 1;
                self.deepest = self.deepest.max(self.links);
                self.links = 0;
            }
            Kind::Comma => self.end_element(),
            // Branches lie side by side.
            Kind::Branch if self.is_case => self.end_element(),
            Kind::Branch => {}
            Kind::Query => {
                self.end_element();
                self.queries += 1;
            }
            Kind::Statement => *self = Self { is_case: self.is_case, ..Self::default() },
        }
        self.depth()
    }

    fn end_element(&mut self) {
        self.widest = self.widest.max(self.element());
        (self.chain, self.links, self.deepest) = (0, 0, 0);
    }
}

/// What a token does to the depth.
enum Kind {
    /// Nothing.
    Plain,
    /// A part of a name, of which each may be a level.
    Part,
    /// One more level around what stands before or behind it.
    Operator,
    /// The same, until `AND` or `OR`.
    Link,
    /// `AND` and `OR`.
    Logic,
    Comma,
    /// The next part of a `CASE`.
    Branch,
    /// One more level around a query or a table.
    Query,
    /// The end of a statement.
    Statement,
}

impl Kind {
    fn of(token: &Token) -> Self {
        match token {
            Token::Word(word) if word.quote_style.is_some() => Self::Plain,
            Token::Word(word) => Self::of_keyword(word.keyword),
            Token::Comma => Self::Comma,
            Token::SemiColon => Self::Statement,
            Token::Period => Self::Part,
            Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq => {
                Self::Link
            }
            Token::VerticalBarRightAngleBracket => Self::Query,
            Token::Number(..)
            | Token::Char(_)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Whitespace(_)
            | Token::LParen
            | Token::RParen
            | Token::RBracket
            | Token::EOF => Self::Plain,
            _ => Self::Operator,
        }
    }

    fn of_keyword(keyword: Keyword) -> Self {
        match keyword {
            Keyword::AND | Keyword::OR | Keyword::XOR => Self::Logic,
            Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::MINUS
            | Keyword::INTERSECT
            | Keyword::JOIN
            | Keyword::STRAIGHT_JOIN
            | Keyword::APPLY
            | Keyword::PIVOT
            | Keyword::UNPIVOT
            | Keyword::MATCH_RECOGNIZE => Self::Query,
            Keyword::WHEN | Keyword::THEN | Keyword::ELSE => Self::Branch,
            Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::SIMILAR
            | Keyword::REGEXP
            | Keyword::RLIKE
            | Keyword::IN
            | Keyword::BETWEEN
            | Keyword::OVERLAPS
            | Keyword::MEMBER => Self::Link,
            Keyword::NOT
            | Keyword::IS
            | Keyword::NOTNULL
            | Keyword::AT
            | Keyword::COLLATE
            | Keyword::DIV
            | Keyword::OPERATOR
            | Keyword::PRIOR
            | Keyword::INTERVAL
            | Keyword::EXPLAIN
            | Keyword::DESCRIBE
            | Keyword::DESC => Self::Operator,
            _ => Self::Plain,
        }
    }
}

/// Whether a `<` behind it begins a level.
fn is_type(token: Option<&Token>) -> bool {
    let Some(Token::Word(word)) = token else { return false };
    matches!(word.keyword, Keyword::ARRAY | Keyword::STRUCT | Keyword::MAP | Keyword::NESTED)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    use super::*;

    #[test]
    fn chains_are_counted_and_lists_are_not() {
        let check = |sql: String| check_depth(&sql, &GenericDialect {});
        assert!(check(format!("SELECT {}1", "1 + ".repeat(400))).is_ok());
        assert!(check(format!("SELECT {}1", "1 + ".repeat(401))).is_err());
        assert!(check(format!("SELECT {}1", "- ".repeat(401))).is_err());
        assert!(check(format!("SELECT {}1", "1 + 2 * 3, ".repeat(2_000))).is_ok());
        assert!(check(format!("VALUES {}(1)", "(1, 2 - 1), ".repeat(2_000))).is_ok());
        assert!(check(format!("SELECT '{}'", "+ OR ".repeat(2_000))).is_ok());
        assert!(check(format!("SELECT 1 FROM t WHERE {}a = 0", "b.v = 1 OR ".repeat(390))).is_ok());
        assert!(check(format!("SELECT 1 FROM t WHERE {}0", "1 = ".repeat(401))).is_err());
        assert!(check(format!("SELECT CASE {}END", "WHEN v = 1 THEN 'a' ".repeat(2_000))).is_ok());
        assert!(
            check(format!("SELECT {}1{}", "CASE WHEN 1 = ".repeat(401), " THEN 1 END".repeat(401)))
                .is_err()
        );
    }

    #[test]
    fn levels_within_levels_add_up() {
        let check = |sql: String| check_depth(&sql, &GenericDialect {});
        let sum = |inner: &str| format!("({inner}{})", " + 1".repeat(30));
        let nested = |levels: usize| (0..levels).fold("1".to_owned(), |inner, _| sum(&inner));
        assert!(check(format!("SELECT {}", nested(13))).is_ok());
        assert!(check(format!("SELECT {}", nested(14))).is_err());
        // Side by side they do not.
        let beside = vec![sum("1"); 300].join(" + ");
        assert!(check(format!("SELECT {beside}")).is_ok());
    }

    #[test]
    fn queries_and_tables_are_counted_across_commas() {
        let check = |sql: String| check_depth(&sql, &GenericDialect {});
        for (one, between) in [
            ("SELECT 1, 2", " UNION "),
            ("SELECT a + 1, b", " UNION ALL "),
            ("SELECT 1, 2", " EXCEPT "),
            ("(SELECT 1, 2)", " INTERSECT "),
        ] {
            assert!(check(vec![one; 390].join(between)).is_ok(), "{between}");
            assert!(check(vec![one; 402].join(between)).is_err(), "{between}");
        }
        let joins = |count| format!("SELECT 1 FROM t{}", " JOIN u ON t.a = u.a, t".repeat(count));
        assert!(check(joins(390)).is_ok());
        assert!(check(joins(401)).is_err());
    }

    #[test]
    fn words_and_types_nest_too() {
        let check = |sql: String| check_depth(&sql, &GenericDialect {});
        for (word, rest) in [
            ("EXPLAIN ", "SELECT 1"),
            ("SELECT INTERVAL ", "'1 day'"),
            ("SELECT 1 IN (2) ", "IN (3)"),
            ("SELECT time AT TIME ZONE 'UTC' ", ""),
            ("SELECT 1 LIKE ", "2"),
            ("SELECT 1 COLLATE ", "c"),
            ("SELECT a.", "b"),
            ("SELECT a[1]", "[2]"),
            ("SELECT CAST(1 AS STRUCT<a INT, b ", "INT"),
        ] {
            let again = word.strip_prefix("SELECT ").unwrap_or(word);
            let again = again.strip_prefix("CAST(1 AS ").unwrap_or(again);
            assert!(check(format!("{word}{}{rest}", again.repeat(900))).is_err(), "{word}");
            assert!(check(format!("{word}{}{rest}", again.repeat(300))).is_ok(), "{word}");
        }
    }
}
