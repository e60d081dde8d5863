//! Statements one by one, each with its answer.

use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::tokenizer::Token;
use tidefall_types::{Error, Result};

use crate::dialect;
use crate::error::from_datafusion;
use crate::parse::parser;
use crate::query_stream::QueryStream;
use crate::session::Session;

/// The statements of a text, run one after the other; see [`Session::script`].
pub struct Script<'a> {
    session: &'a Session,
    sql: String,
    parser: DFParser<'static>,
    is_begun: bool,
}

impl std::fmt::Debug for Script<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

impl Session {
    /// The statements of a text, to be run one by one, each with its own answer. What cannot be parsed
    /// fails when its turn comes.
    ///
    /// # Errors
    /// `Invalid` for text without an end, `Limit` for chains of operators that are too long.
    pub fn script(&self, sql: &str) -> Result<Script<'_>> {
        Ok(Script { session: self, sql: sql.to_owned(), parser: parser(sql)?, is_begun: false })
    }
}

impl Script<'_> {
    /// Runs the next statement, as [`Session::query`] does; `None` when there is no other. The answer
    /// before must have been read, and after an error nothing more should be run.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn next(&mut self) -> Option<Result<QueryStream>> {
        let answer = match self.parse().transpose()? {
            Ok(statement) => self.session.run_boxed(statement).await,
            Err(error) => Err(error),
        };
        Some(answer.map_err(|error| self.session.with_hint(error, &self.sql)))
    }

    fn parse(&mut self) -> Result<Option<Statement>> {
        let tokens = &mut self.parser.parser;
        let mut is_separated = !self.is_begun;
        while tokens.consume_token(&Token::SemiColon) {
            is_separated = true;
        }
        let next = tokens.peek_token();
        if next == Token::EOF {
            return Ok(None);
        }
        if !is_separated {
            let at = next.span.start;
            return Err(Error::invalid(format!("expected a semicolon, found {next}{at}")));
        }
        self.is_begun = true;
        dialect::begin(&self.sql);
        self.parser.parse_statement().map(Some).map_err(from_datafusion)
    }
}
