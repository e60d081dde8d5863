//! What is typed in the place of a statement: the words of other shells, and of this one.

use tidefall_sql::Session;

/// What a line asks of the shell itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Quit,
    Help,
    /// Statements that answer it.
    Ask(String),
    /// A word that this shell does not have.
    Unknown(String),
}

/// What `help` says.
pub(super) const HELP: &str = "\
Statements of SQL end with a semicolon and may span lines; docs/sql.md has them all.
  .tables           the tables, as SHOW TABLES
  .schema [TABLE]   the columns of a table, as DESCRIBE; of all tables without a name
  .help             this
  .quit             ends the shell, as Ctrl-D does
The words of psql do, too: \\d, \\d TABLE, \\dt, \\?, \\q. Ctrl-C stops a statement that runs.";

impl Word {
    /// What a line asks for, if it is no SQL. Words of SQL itself never are: a statement does not begin with a point or
    /// a backslash, nor with one of the plain words.
    pub(super) fn of(line: &str, tables: impl FnOnce() -> Vec<String>) -> Option<Self> {
        let line = line.trim().trim_end_matches(';').trim_end();
        let mut parts = line.split_whitespace();
        let word = parts.next()?.to_ascii_lowercase();
        let name = parts.next().map(str::to_owned);
        let is_alone = name.is_none();
        Some(match word.as_str() {
            "exit" | "quit" if is_alone => Self::Quit,
            "help" | "?" => Self::Help,
            ".exit" | ".quit" | ".q" | "\\q" | "\\quit" => Self::Quit,
            ".help" | ".h" | "\\?" | "\\h" | "\\help" => Self::Help,
            ".tables" | "\\dt" | "\\l" | ".databases" => Self::Ask("SHOW TABLES".to_owned()),
            "\\d" | "\\d+" if is_alone => Self::Ask("SHOW TABLES".to_owned()),
            ".schema" | "\\d" | "\\d+" => {
                let names = name.map_or_else(tables, |name| vec![name]);
                Self::Ask(names.iter().map(|name| describe(name)).collect())
            }
            other if other.starts_with(['.', '\\']) => Self::Unknown(other.to_owned()),
            _ => return None,
        })
    }
}

fn describe(name: &str) -> String {
    let is_quoted = name.starts_with('"');
    let is_plain =
        name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.');
    match is_quoted || is_plain {
        true => format!("DESCRIBE {name};"),
        false => format!("DESCRIBE \"{}\";", name.replace('"', "\"\"")),
    }
}

/// A part of what comes from a file or a pipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Sql(&'a str),
    Line(&'a str),
}

/// Divides what comes from a file or a pipe at lines that are words of the shell and stand where a statement begins.
pub(super) fn parts(input: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in input.split_inclusive('\n') {
        let before = &input[start..at];
        let is_known =
            matches!(Word::of(line, Vec::new), Some(word) if !matches!(word, Word::Unknown(_)));
        if is_known && Session::is_between_statements(before) {
            parts.extend((!before.trim().is_empty()).then_some(Part::Sql(before)));
            parts.push(Part::Line(line));
            start = at + line.len();
        }
        at += line.len();
    }
    let rest = &input[start..];
    parts.extend((!rest.trim().is_empty()).then_some(Part::Sql(rest)));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_shells_are_told_from_sql() {
        let word = |line: &str| Word::of(line, || vec!["cpu".to_owned(), "Big".to_owned()]);
        let ask = |sql: &str| Some(Word::Ask(sql.to_owned()));
        for quit in ["quit", "EXIT;", " \\q", ".quit", ".exit ;"] {
            assert_eq!(word(quit), Some(Word::Quit), "{quit}");
        }
        for help in ["help", "HELP;", "help select", ".help", "\\?", "?"] {
            assert_eq!(word(help), Some(Word::Help), "{help}");
        }
        for tables in [".tables", "\\d", "\\dt;", "\\D"] {
            assert_eq!(word(tables), ask("SHOW TABLES"), "{tables}");
        }
        assert_eq!(word("\\d cpu"), ask("DESCRIBE cpu;"));
        assert_eq!(word(".schema Big;"), ask("DESCRIBE \"Big\";"));
        assert_eq!(word(".schema"), ask("DESCRIBE cpu;DESCRIBE \"Big\";"));
        assert_eq!(word(".mode csv"), Some(Word::Unknown(".mode".to_owned())));
        for sql in ["", ";", "SELECT 1", "helpful", "quit 5", "(SELECT 1)"] {
            assert_eq!(word(sql), None, "{sql}");
        }
    }

    #[test]
    fn words_divide_what_comes_through_a_pipe() {
        let parts = parts("SELECT 1;\n.tables\n\nSELECT '\n.tables\n';\nquit\n");
        assert_eq!(
            parts,
            [
                Part::Sql("SELECT 1;\n"),
                Part::Line(".tables\n"),
                Part::Sql("\nSELECT '\n.tables\n';\n"),
                Part::Line("quit\n"),
            ]
        );
    }

    #[test]
    fn words_within_remarks_and_quotes_are_not_for_the_shell() {
        let within = [
            "/* some\nquit\n remarks;\nquit\n */ SELECT 1;\n",
            "SELECT 1 /* ;\nquit\n*/;\n",
            "SELECT 'text;\nquit\n';\n",
            "SELECT 1 AS \"name;\nexit\n\";\n",
            "SELECT 1 AS one, -- 'not a text;\n2 AS quit,\n3 AS\nquit\n;\n",
            "SELECT $$;\n.quit\n$$;\n",
        ];
        for sql in within {
            let whole = format!("{sql}quit\n");
            assert_eq!(parts(&whole), [Part::Sql(sql), Part::Line("quit\n")], "{sql}");
        }
        let remark = "-- isn't a text\n/* nor; 'this */\n";
        let whole = format!("{remark}quit\nSELECT 1");
        let expected = [Part::Sql(remark), Part::Line("quit\n"), Part::Sql("SELECT 1")];
        assert_eq!(parts(&whole), expected);
    }
}
