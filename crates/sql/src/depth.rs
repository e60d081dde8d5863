//! Statements that would nest too deeply are refused before they are parsed.
//!
//! `a OR b OR c` becomes a tree as deep as the chain is long, and a tree is walked, compared and
//! dropped by recursion at many places of the query engine, not all of which watch the stack. The
//! parser bounds the nesting of parentheses; this bounds the chains.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use tidefall_types::{Error, Result};

/// The longest chain of operators without a comma or parenthesis between. Twice as many still
/// fit on a thread's stack of 2 MiB; planning them takes seconds, as its cost grows faster than
/// their number.
const CHAIN_MAX: usize = 400;

/// Texts up to here cannot hold a longer chain, as an operator and its operand take two bytes.
const BYTES_FREE: usize = 2 * CHAIN_MAX;

/// Checks that no chain of operators is too long.
///
/// # Errors
/// `Limit`. Text that is no SQL passes; the parser has the better message for it.
pub(crate) fn check_depth(sql: &str, dialect: &dyn Dialect) -> Result<()> {
    if sql.len() <= BYTES_FREE {
        return Ok(());
    }
    let Ok(tokens) = Tokenizer::new(dialect, sql).tokenize() else { return Ok(()) };
    // The operators seen since the last comma, for each open parenthesis.
    let mut chains = vec![0_usize];
    for token in &tokens {
        match token {
            Token::LParen | Token::LBracket => chains.push(0),
            Token::RParen | Token::RBracket if chains.len() > 1 => {
                chains.pop();
            }
            Token::Comma | Token::SemiColon => {
                if let Some(chain) = chains.last_mut() {
                    *chain = 0;
                }
            }
            token if is_operator(token) => {
                let Some(chain) = chains.last_mut() else { continue };
                *chain += 1;
                if *chain > CHAIN_MAX {
                    return Err(Error::limit(format!(
                        "the statement has a chain of more than {CHAIN_MAX} operators; write \
                         x IN (...) instead of x = 1 OR x = 2, or split the statement"
                    )));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a token can make the tree one level deeper. Comparisons do not chain: what joins them
/// does, and is counted.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::UNION
                | Keyword::EXCEPT
                | Keyword::INTERSECT
                | Keyword::JOIN
                | Keyword::IS
        ),
        Token::Whitespace(_)
        | Token::Number(..)
        | Token::Char(_)
        | Token::SingleQuotedString(_)
        | Token::DoubleQuotedString(_)
        | Token::Eq
        | Token::Neq
        | Token::Lt
        | Token::Gt
        | Token::LtEq
        | Token::GtEq
        | Token::Period
        | Token::LParen
        | Token::RParen
        | Token::LBracket
        | Token::RBracket
        | Token::Comma
        | Token::SemiColon
        | Token::EOF => false,
        _ => true,
    }
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
    }
}
