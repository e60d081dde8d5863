//! The words of DataFusion in those of SQL.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::LazyLock;

use tidefall_types::FieldType;

/// Where in DataFusion a message comes from.
const PLACES: [&str; 12] = [
    "Error during planning: ",
    "Execution error: ",
    "Schema error: ",
    "Internal error: ",
    "External error: ",
    "type_coercion\ncaused by\n",
    "This feature is not implemented: ",
    "Arrow error: ",
    "Compute error: ",
    "Cast error: ",
    "Parser error: ",
    "Invalid argument error: ",
];

/// The rule at which constants are computed.
const RULE: &str = "Optimizer rule 'simplify_expressions' failed\ncaused by\n";

/// Messages of DataFusion, and what they say; `{}` is what differs, and `{0}` the first of that.
const SAYINGS: &[(&str, &str)] = &[
    ("{}Array overflow on abs({})", "abs: the absolute value of {1} is beyond {0}"),
    ("Signed integer overflow in LCM({})", "lcm({0}) is beyond BIGINT"),
    ("Signed integer overflow in GCD({})", "gcd({0}) is beyond BIGINT"),
    ("Overflow happened on FACTORIAL({})", "factorial({0}) is beyond BIGINT"),
    (
        "Column in {} must be in GROUP BY or an aggregate function: While expanding wildcard, column \"{}\" must appear in{}",
        "column {1} of {0} must appear in GROUP BY or be used in an aggregate, as in max({1})",
    ),
    (
        "HAVING clause references: {} must appear in the GROUP BY clause or be used in an aggregate function",
        "{0} of HAVING must appear in GROUP BY or be used in an aggregate",
    ),
    (
        "Argument {} to grouping function is not in grouping columns {}",
        "grouping({0}): {0} is not among the columns of GROUP BY",
    ),
    ("Cannot coerce arithmetic expression {} to valid types", NO_MEANING),
    ("Cannot get result type for temporal operation {}: {}", NO_MEANING),
    (
        "Cannot infer common argument type for comparison operation {}",
        "{0}: these types cannot be compared; cast one of them",
    ),
    (
        "Cannot infer common string type for string concat operation {}",
        "{0}: one of both must be TEXT",
    ),
    (
        "Cannot infer common argument type for logical boolean operation {}",
        "{0}: both must be conditions",
    ),
    ("Cannot infer common type for bitwise operation {}", "{0}: both must be whole numbers"),
    (
        "Unary operator '-' only supports signed numeric, interval and timestamp types",
        "- stands before numbers and intervals",
    ),
    (
        "Unary operator 'NOT' requires a boolean expression, got {}",
        "NOT stands before a condition, not {0}",
    ),
    (
        "There isn't a common type to coerce {} and {} in LIKE expression",
        "LIKE compares texts, not {0} with {1}",
    ),
    (
        "Failed to coerce {} to common types in CASE WHEN expression",
        "CASE: {0} have no type in common",
    ),
    (
        "Cannot create filter with non-boolean predicate '{}' returning {}",
        "a condition is BOOLEAN, and {0} is {1}",
    ),
    (
        "Join condition must be boolean type, but got {}",
        "a condition is BOOLEAN, and that of the join is {0}",
    ),
    (
        "Incompatible inputs for Union: Previous inputs were of type {}, but got incompatible type {} on column '{}'",
        "UNION: column {2} is {1}, and {0} in a query before it; cast one of them",
    ),
    (
        "Source table contains {} columns but only {} names given as column alias",
        "columns: {0}, and names for them: {1}",
    ),
    (
        "Types don't match and no valid cast exists, received data of type {} for field of type {}",
        "a value of type {0} does not fit into {1}",
    ),
    (
        "Percentile value must be between 0.0 and 1.0 inclusive, {} is invalid",
        "a percentile wants a part of 1 as a number from 0 to 1, such as 0.95, not {0}",
    ),
    (
        "Expected a signed integer literal for the second argument of nth_value",
        "nth_value wants a value and the number of a row, as in nth_value(value, 2)",
    ),
    ("NTILE requires a positive integer", "ntile wants a number of parts above 0, as in ntile(4)"),
    (
        "expr type {} can't cast to {} in {}",
        "{0} and {1}: these types cannot be compared; cast one of them",
    ),
    ("Unsupported data type {} for function {}", "{1} does not take {0}"),
    ("{} function unsupported data type at index {}: {}", "{0} does not take {2}"),
    ("unnest() can only be applied to array, struct and null", "unnest takes a list"),
    (
        "Unable to cast to Date32 for converting from i64 to i32 failed",
        "this is no date, or one beyond those there are; write it as '2024-01-31'",
    ),
    ("table function '{}' not found", "there is no table function {0}"),
    ("Invalid qualifier {}", "there is no table {0} in FROM"),
    ("variable [\"{}\"] has no type information", "there are no variables, such as {0}"),
];

/// How the error of a function that is not there begins, before its name.
pub(crate) const NO_FUNCTION: &str = "there is no function ";

const NO_MEANING: &str = "{0} has no meaning; cast one of them to another type";

/// A message without the places in DataFusion where it comes from, in words of SQL.
pub(super) fn told(message: &str) -> String {
    let message = &*shortened(message);
    if let Some(told) = otherwise(message) {
        return told;
    }
    let message = bare(message);
    let told =
        SAYINGS.iter().find_map(|(saying, told)| Some(filled(told, &parts(&message, saying)?)));
    let told = told.or_else(|| no_function(&message));
    let told = told.or_else(|| counted_from_one(&message)).or_else(|| named_twice(&message));
    in_sql(&told.unwrap_or(message))
}

/// What a message says that tells little of what to write.
fn otherwise(message: &str) -> Option<String> {
    if message.contains("logical expression WindowFunction") {
        return Some(
            "a window function stands where rows are not known yet, as in WHERE; write QUALIFY"
                .to_owned(),
        );
    }
    if message.contains("logical expression ScalarSubquery")
        || message.contains("must be aggregated")
    {
        return Some(
            "a subquery as a value looks at columns of the query around it otherwise than by =, or has several rows for \
             one of them; write an aggregate WHERE inner.sensor = outer.sensor, a window function, ASOF JOIN for the \
             row before, or LEFT JOIN ... ON ... with GROUP BY"
                .to_owned(),
        );
    }
    if let Some((_, name)) = message.split_once("and unqualified field name ")
        && let Some((name, _)) = name.split_once(" which would be ambiguous")
    {
        return Some(format!(
            "two columns of the answer are called {name}, one of them as one of all columns; give the other one another name \
             with AS, or name the columns"
        ));
    }
    if let Some((_, name)) = message.split_once("Ambiguous reference to unqualified field ") {
        return Some(format!(
            "column {name} is in more than one table; write a table before it, as in a.{name}, and for * EXCLUDE \
             a.* EXCLUDE ({name}), b.* EXCLUDE ({name})"
        ));
    }
    if message.contains("Conflicting ordering requirements") {
        return Some(
            "aggregates that gather rows in different orders cannot stand side by side; write first_value(x ORDER BY y), or \
             each in a query of its own"
                .to_owned(),
        );
    }
    if message.contains("OuterReferenceColumn") {
        return Some(
            "a subquery looks at columns of the query around it in a way that cannot be run, as beside LIMIT; a join may say the same"
                .to_owned(),
        );
    }
    if message.contains("Cannot access field at argument") {
        return Some(
            "a name with a dot stands for a part of a column that has no parts; if it is a column of a table of the query \
             around, give that table an alias that is not the name of a column"
                .to_owned(),
        );
    }
    None
}

/// Bytes of a message that are told at most: more of a value says no more.
const BYTES_MAX: usize = 4 << 10;

/// A message without the middle of one that is too long.
fn shortened(message: &str) -> Cow<'_, str> {
    if message.len() <= BYTES_MAX {
        return Cow::Borrowed(message);
    }
    let start = message.floor_char_boundary(BYTES_MAX / 2);
    let end = message.ceil_char_boundary(message.len() - BYTES_MAX / 2);
    Cow::Owned(format!("{} ... {}", &message[..start], &message[end..]))
}

/// A message without where it comes from.
pub(super) fn bare(message: &str) -> String {
    let message = message.split("\nThis issue was likely caused by").next().unwrap_or(message);
    // Its name is in quotes.
    let message = message.replace(RULE, "");
    outside_of_quotes(&message, |part| {
        PLACES.iter().fold(part.to_owned(), |part, place| part.replace(place, ""))
    })
}

/// A message with all changed that stands outside of single quotes: within them is a value of who asks.
fn outside_of_quotes(message: &str, change: impl Fn(&str) -> String) -> String {
    let mut changed = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((start, length)) = quoted(rest) {
        changed.push_str(&change(&rest[..start]));
        changed.push_str(&rest[start..start + length]);
        rest = &rest[start + length..];
    }
    changed.push_str(&change(rest));
    changed
}

/// Where the first text in quotes begins that does not stand within a word, and its length. One that does not end reaches to the end.
fn quoted(message: &str) -> Option<(usize, usize)> {
    let mut before = ' ';
    for (at, letter) in message.char_indices() {
        if letter == '\'' && !before.is_alphanumeric() {
            // Others may stand within it, so that it ends where none of its letters follows.
            let inner = &message[at + 1..];
            let is_end = |(end, _): &(usize, &str)| {
                !inner[end + 1..].starts_with(|next: char| next.is_alphanumeric() || next == '\'')
            };
            let length =
                inner.match_indices('\'').find(is_end).map_or(inner.len(), |(end, _)| end + 1);
            return Some((at, 1 + length));
        }
        before = letter;
    }
    None
}

/// What stands in a message in the places of `{}`, if it is this saying.
fn parts<'a>(message: &'a str, saying: &str) -> Option<Vec<&'a str>> {
    let mut fixed = saying.split("{}");
    let mut rest = message.strip_prefix(fixed.next()?)?;
    let fixed: Vec<&str> = fixed.collect();
    let mut parts = Vec::with_capacity(fixed.len());
    for (place, text) in fixed.iter().enumerate() {
        let at = match place + 1 == fixed.len() {
            // The last part reaches as far as it can.
            true => rest.ends_with(text).then(|| rest.len() - text.len())?,
            false => rest.find(text)?,
        };
        parts.push(&rest[..at]);
        rest = &rest[at + text.len()..];
    }
    rest.is_empty().then_some(parts)
}

/// A text with parts in their places.
fn filled(text: &str, parts: &[&str]) -> String {
    let mut pieces = text.split('{');
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (place, rest) = piece.split_once('}').unwrap_or(("", piece));
        let part = place.parse().ok().and_then(|place: usize| parts.get(place));
        filled.push_str(part.copied().unwrap_or_default());
        filled.push_str(rest);
    }
    filled
}

/// The name that DataFusion suggests is one of the nearest, and another one each time.
fn no_function(message: &str) -> Option<String> {
    let parts = parts(message, "Invalid function '{}'.\nDid you mean {}")?;
    Some(format!("{NO_FUNCTION}{}", parts.first()?))
}

/// Rows and columns of `VALUES`, which DataFusion counts from 0.
fn counted_from_one(message: &str) -> Option<String> {
    const LENGTHS: &str =
        "Inconsistent data length across values list: got {} values in row {} but expected {}";
    const TYPES: &str =
        "Inconsistent data type across values list at row {} column {}. Was {} but found {}";
    let next = |number: &str| number.parse().ok().map(|number: usize| number + 1);
    if let Some([found, row, wanted]) = parts(message, LENGTHS).as_deref() {
        return Some(format!(
            "row {} of VALUES has {}, where {wanted} {} wanted",
            next(row)?,
            values(found),
            if *wanted == "1" { "is" } else { "are" }
        ));
    }
    if let Some([row, column, before, found]) = parts(message, TYPES).as_deref() {
        return Some(format!(
            "row {} of VALUES, column {}: {found} stands below {before}",
            next(row)?,
            next(column)?
        ));
    }
    None
}

fn values(count: &str) -> String {
    if count == "1" { "1 value".to_owned() } else { format!("{count} values") }
}

/// Two columns of one name side by side.
fn named_twice(message: &str) -> Option<String> {
    const SAYING: &str = "Projections require unique expression names but the expression \"{}\" at position {} and \"{}\" at \
                          position {} have the same name.{}";
    let parts = parts(message, SAYING)?;
    let alias = |text: &'_ str| text.rsplit_once(" AS ").map(|(_, name)| name.to_owned());
    let (first, second) = (parts.first()?, parts.get(2)?);
    let name = alias(first).filter(|name| alias(second).as_ref() == Some(name));
    Some(format!(
        "column {} is named twice; give one of both another name",
        name.unwrap_or_else(|| (*first).to_owned())
    ))
}

/// Types that expressions have and no field.
const OTHERS: [(&str, &str); 22] = [
    ("Dictionary(UInt32, Utf8)", "TEXT"),
    ("Timestamp(s)", "TIMESTAMP(0)"),
    ("Timestamp(ms)", "TIMESTAMP(3)"),
    ("Timestamp(µs)", "TIMESTAMP(6)"),
    ("Interval(MonthDayNano)", "INTERVAL"),
    ("Interval(DayTime)", "INTERVAL"),
    ("Interval(YearMonth)", "INTERVAL"),
    ("Duration(s)", "INTERVAL"),
    ("Duration(ms)", "INTERVAL"),
    ("Duration(µs)", "INTERVAL"),
    ("Duration(ns)", "INTERVAL"),
    ("LargeUtf8", "TEXT"),
    ("Utf8View", "TEXT"),
    ("Date32", "DATE"),
    ("Date64", "DATE"),
    ("Time32(s)", "TIME"),
    ("Time32(ms)", "TIME"),
    ("Time64(µs)", "TIME"),
    ("Time64(ns)", "TIME"),
    ("Decimal128", "DECIMAL"),
    ("Decimal256", "DECIMAL"),
    ("Float16", "REAL"),
];

/// The names of types in Arrow and in SQL, the longest first: a name may be the beginning of a longer one.
static NAMES: LazyLock<Vec<(String, &str)>> = LazyLock::new(|| {
    let of_fields = FieldType::ALL.map(|ty| (ty.arrow().to_string(), ty.sql_name()));
    let others = OTHERS.map(|(name, sql)| (name.to_owned(), sql));
    let mut names: Vec<_> = of_fields.into_iter().chain(others).collect();
    names.sort_by_key(|(name, _)| Reverse(name.len()));
    names
});

/// A message that calls types as statements do, and has values as they are written: `1` for `Int64(1)`.
pub(crate) fn in_sql(message: &str) -> String {
    outside_of_quotes(&shortened(message), with_types_of_sql)
}

fn with_types_of_sql(message: &str) -> String {
    let mut told = String::with_capacity(message.len());
    let mut rest = message;
    let mut is_within_word = false;
    while let Some(next) = rest.chars().next() {
        let found = match is_within_word {
            true => None,
            false => NAMES.iter().find_map(|(name, sql)| {
                let behind = rest.strip_prefix(name.as_str())?;
                let ends = !behind.starts_with(|next: char| next.is_alphanumeric() || next == '_');
                ends.then_some((name, *sql, behind))
            }),
        };
        if let Some((name, sql, behind)) = found {
            let value = (!name.ends_with(')')).then(|| value(behind)).flatten();
            match value {
                Some((value, behind)) if sql != "DECIMAL" => {
                    told.push_str(&value);
                    rest = behind;
                }
                _ => {
                    told.push_str(sql);
                    rest = behind;
                }
            }
            is_within_word = false;
            continue;
        }
        is_within_word = next.is_alphanumeric() || next == '_';
        told.push(next);
        rest = &rest[next.len_utf8()..];
    }
    lists(told)
}

/// The value between parentheses, and what stands behind them.
fn value(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('(')?;
    if let Some(quoted) = inner.strip_prefix('"') {
        let (text, behind) = quoted.split_once("\")")?;
        return Some((format!("'{text}'"), behind));
    }
    let (value, behind) = inner.split_once(')')?;
    Some((value.to_owned(), behind))
}

/// Lists as `BIGINT[]`.
fn lists(mut message: String) -> String {
    const BEGIN: &str = "List(";
    while let Some(start) = message.rfind(BEGIN) {
        let inner = start + BEGIN.len();
        let Some(end) = message[inner..].find(')').map(|end| inner + end) else { break };
        let item = message[inner..end].trim_start_matches("non-null ").to_owned();
        let item = item.split(", field: ").next().unwrap_or_default();
        // `FixedSizeList(3 x BIGINT)` and `LargeList(BIGINT)`.
        let item = item.split_once(" x ").map_or(item, |(_, item)| item);
        let kinds = ["LargeList(", "FixedSizeList("];
        let kind = kinds.iter().find(|kind| message[..inner].ends_with(*kind));
        let start = kind.map_or(start, |kind| inner - kind.len());
        let list = format!("{item}[]");
        message.replace_range(start..=end, &list);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_values_are_written_as_in_statements() {
        for (message, told) in [
            ("UInt64 and Int64", "BIGINT UNSIGNED and BIGINT"),
            ("n > Int64(5) AND s = Utf8(\"a(b)\")", "n > 5 AND s = 'a(b)'"),
            ("Timestamp(ns) beside Timestamp(ms)", "TIMESTAMP beside TIMESTAMP(3)"),
            ("List(Int64), List(List(Utf8))", "BIGINT[], TEXT[][]"),
            ("LargeList(Float64)", "DOUBLE[]"),
            ("myInt64 and Int64s", "myInt64 and Int64s"),
            ("Decimal128(10, 2)", "DECIMAL(10, 2)"),
            ("Dictionary(UInt32, Utf8) of Größe", "TEXT of Größe"),
            ("Cannot cast string 'Int64(5)' to Int64", "Cannot cast string 'Int64(5)' to BIGINT"),
            ("'it's List(a)' isn't Utf8", "'it's List(a)' isn't TEXT"),
            ("'never ends Utf8", "'never ends Utf8"),
        ] {
            assert_eq!(in_sql(message), told);
        }
    }

    #[test]
    fn long_values_take_no_time() {
        for part in ["List(", "Utf8(\"", "Utf8( ", "'", "é'"] {
            let long = part.repeat(300_000);
            let start = std::time::Instant::now();
            let told = told(&format!("Cannot cast string '{long}' to value of Int64 type"));
            assert!(told.len() < 2 * BYTES_MAX && told.ends_with("type"), "{}", told.len());
            assert!(start.elapsed().as_secs() < 5, "{part}");
        }
        let value = "'Execution error: List(Int64)'";
        assert_eq!(told(&format!("Execution error: odd: {value}")), format!("odd: {value}"));
    }

    #[test]
    fn sayings_are_told_in_other_words() {
        for (message, told) in [
            (
                "Compute error: Int64Array overflow on abs(-9223372036854775808)",
                "abs: the absolute value of -9223372036854775808 is beyond BIGINT",
            ),
            (
                "Column in SELECT must be in GROUP BY or an aggregate function: While expanding wildcard, column \"t.time\" must \
                 appear in the GROUP BY clause or must be part of an aggregate function, currently only \"t.s\" appears",
                "column t.time of SELECT must appear in GROUP BY or be used in an aggregate, as in max(t.time)",
            ),
            (
                "Inconsistent data length across values list: got 1 values in row 0 but expected 7",
                "row 1 of VALUES has 1 value, where 7 are wanted",
            ),
            (
                "Projections require unique expression names but the expression \"column1 AS a\" at position 0 and \"column2 AS \
                 a\" at position 1 have the same name. Consider aliasing (\"AS\") one of them.",
                "column a is named twice; give one of both another name",
            ),
            (
                "Cannot coerce arithmetic expression Utf8 + Int64 to valid types",
                "TEXT + BIGINT has no meaning; cast one of them to another type",
            ),
            ("what is {} in it", "what is {} in it"),
        ] {
            assert_eq!(super::told(message), told);
        }
    }
}
