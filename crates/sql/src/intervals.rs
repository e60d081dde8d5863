//! Units of intervals that have a short name elsewhere: `INTERVAL '5 ns'`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{DataType, Expr, Value, VisitorMut};
use tidefall_types::Error;

/// Short names, and how DataFusion calls what they name.
const UNITS: [(&str, &str); 3] =
    [("ns", "nanoseconds"), ("nsec", "nanoseconds"), ("nsecs", "nanoseconds")];

/// Writes the names of units out.
pub(crate) struct Intervals;

impl VisitorMut for Intervals {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let value = match expr {
            Expr::Interval(interval) => &mut interval.value,
            Expr::Cast { expr, data_type: DataType::Interval { .. }, .. } => expr,
            _ => return ControlFlow::Continue(()),
        };
        if let Expr::Value(value) = &mut **value
            && let Value::SingleQuotedString(text) = &mut value.value
        {
            *text = with_units(text);
        }
        ControlFlow::Continue(())
    }
}

/// A text with the units in it written out.
fn with_units(text: &str) -> String {
    let mut rest = text;
    let mut written = String::with_capacity(text.len());
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_alphabetic()) {
        let (before, word) = rest.split_at(at);
        let end = word.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(word.len());
        let (word, behind) = word.split_at(end);
        let unit = UNITS.iter().find(|(short, _)| word.eq_ignore_ascii_case(short));
        written.push_str(before);
        written.push_str(unit.map_or(word, |(_, long)| long));
        rest = behind;
    }
    written + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_names_are_written_out() {
        assert_eq!(with_units("5 ns"), "5 nanoseconds");
        assert_eq!(with_units("1 day 5NS -3nsec"), "1 day 5nanoseconds -3nanoseconds");
        assert_eq!(with_units("2 mins 1 nanoseconds"), "2 mins 1 nanoseconds");
        assert_eq!(with_units("07:00"), "07:00");
        assert_eq!(with_units(""), "");
    }
}
