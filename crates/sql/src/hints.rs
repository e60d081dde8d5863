//! What to write instead, for people who know other databases, and for those who misspell names.
//!
//! A statement that fails is looked through for words of InfluxQL, QuestDB, TimescaleDB and ClickHouse. Where it has none of
//! them, the names of functions and tables are told that look like one that is not there. Nothing is looked at in one that
//! runs.

use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use tidefall_types::{Error, ErrorKind};

use crate::dialect::TidefallDialect;
use crate::error::{LISTS_TABLES, NO_FUNCTION, with_arguments};
use crate::functions::{INNER, SHORT_FORMS};
use crate::nearest::{did_you_mean, nearest};
use crate::parse::parse_plain;

/// Words that stand side by side, and what says the same here. `#` is any number, and `*` at the end of a word any end.
const HINTS: &[(&str, &str)] = &[
    (
        "group by time (",
        "write GROUP BY date_bin(INTERVAL '5 minutes', time), and INTERVAL '1 hour' for 1h",
    ),
    ("sample by", "write GROUP BY date_bin(INTERVAL '1 hour', time)"),
    ("latest on", "write last(value, time) with GROUP BY the tags"),
    ("latest by", "write last(value, time) with GROUP BY the tags"),
    ("show tag keys", "DESCRIBE plant lists tags and fields"),
    ("show field keys", "DESCRIBE plant lists tags and fields"),
    ("show tag values", "write SELECT DISTINCT sensor FROM plant"),
    ("show series", "write SELECT DISTINCT with all tags"),
    ("show measurements", "write SHOW TABLES"),
    ("show databases", "there is one database; SHOW TABLES lists what it holds"),
    ("show schemas", "there is one database; SHOW TABLES lists what it holds"),
    ("show retention policies", "SHOW CREATE TABLE plant shows its retention"),
    ("fill (", FILL),
    ("time_bucket_gapfill (", FILL),
    ("with fill", FILL),
    ("limit # by", "write QUALIFY row_number() OVER (PARTITION BY sensor ORDER BY time) <= 3"),
    ("slimit", "choose sensors by a condition on tags"),
    ("soffset", "choose sensors by a condition on tags"),
    ("= ~ /", "a regular expression is a text: write host ~ '^web'"),
    ("tostartof*", "write date_bin(INTERVAL '1 hour', time) or date_trunc('month', time)"),
    ("tointerval*", "write INTERVAL '1 hour'"),
    ("todatetime*", "write TIMESTAMP '2024-01-01 12:00'"),
    ("tounixtimestamp*", "write extract(epoch FROM time)"),
    ("todate (", "write time::DATE"),
    ("argmax (", ARG_MAX),
    ("arg_max (", ARG_MAX),
    ("max_by (", ARG_MAX),
    ("argmin (", ARG_MIN),
    ("arg_min (", ARG_MIN),
    ("min_by (", ARG_MIN),
    ("mode (", "group by the value, and take the first row ORDER BY count(*) DESC"),
    ("epoch (", "write extract(epoch FROM time)"),
    ("epoch_ms (", "write extract(epoch FROM time) * 1000"),
    ("strftime (", "write to_char(time, '%Y-%m-%d')"),
    ("date_diff (", "write extract(epoch FROM later - earlier), in seconds"),
    ("age (", "write later - earlier"),
    ("dayname (", "write to_char(time, '%A')"),
    ("monthname (", "write to_char(time, '%B')"),
    ("make_timestamp (", "write TIMESTAMP '2024-01-01 12:00'"),
    ("list (", "write array_agg(value)"),
    ("len (", "write array_length(list), or length(text)"),
    ("strlen (", "write octet_length(text), or length(text) for characters"),
    ("strptime (", "write to_timestamp(text, '%d.%m.%Y %H:%M')"),
    ("product (", "write exp(sum(ln(value))), of values above zero"),
    ("isinf (", "write abs(value) = 'inf'::DOUBLE"),
    ("isfinite (", "write abs(value) < 'inf'::DOUBLE"),
    ("count_if (", "write count(*) FILTER (WHERE ...)"),
    ("countif (", "write count(*) FILTER (WHERE ...)"),
    ("approx_quantile (", "write approx_percentile(value, 0.9)"),
    ("uniq*", "write count(DISTINCT value) or approx_distinct(value)"),
    ("quantile (", "write percentile(value, 0.9)"),
    ("quantile*", "write percentile(value, 0.9)"),
    ("derivative (", "write rate(value, time), or value - lag(value) OVER (ORDER BY time)"),
    ("non_negative_derivative (", "write rate(value, time)"),
    ("difference (", "write value - lag(value) OVER (PARTITION BY sensor ORDER BY time)"),
    ("elapsed (", "write time - lag(time) OVER (PARTITION BY sensor ORDER BY time)"),
    ("spread (", "write max(value) - min(value)"),
    ("create_hypertable (", "leave it out: every table is divided by time"),
    ("partition by day", "leave it out: every table is divided by time"),
    (
        "lateral (",
        "for the newest rows of each sensor write QUALIFY row_number() OVER (PARTITION BY sensor ORDER BY time DESC) <= 3",
    ),
    ("asof left", ASOF),
    ("asof join", ASOF),
    ("pivot (", "rows.plant has a column for each sensor"),
    (
        "from columns .",
        "columns('plant', start => '2024-01-01', end => '2024-02-01') chooses the times of the lists",
    ),
    ("dateadd (", "write time + INTERVAL '1 hour'"),
    ("last_day (", "write date_trunc('month', time) + INTERVAL '1 month' - INTERVAL '1 day'"),
    ("date_add (", "write time + INTERVAL '1 hour'"),
    ("date_sub (", "write time - INTERVAL '1 hour'"),
    ("width_bucket (", "write floor((value - low) / width), or histogram(value, low, high, n)"),
    ("year (", "write extract(year FROM time)"),
    ("month (", "write extract(month FROM time)"),
    ("day (", "write extract(day FROM time)"),
    ("hour (", "write extract(hour FROM time)"),
    ("minute (", "write extract(minute FROM time)"),
    ("second (", "write extract(second FROM time)"),
    ("week (", "write extract(week FROM time)"),
    ("dayofweek (", "write extract(dow FROM time)"),
    ("dayofyear (", "write extract(doy FROM time)"),
    ("mod (", "write a % b"),
    ("sign (", "write signum(value)"),
    ("variance (", "write var_samp(value)"),
    ("percentile_disc (", "write percentile(value, 0.9), or the value in order at nth_value(...)"),
    ("approx_count_distinct (", "write approx_distinct(value)"),
    ("group_concat (", "write string_agg(value, ',')"),
    ("listagg (", "write string_agg(value, ',')"),
    ("regexp_matches (", "write text ~ 'pattern'"),
    ("regexp_extract (", "write regexp_match(text, 'pattern')[1]"),
    ("if (", "write CASE WHEN ... THEN ... ELSE ... END"),
    ("iif (", "write CASE WHEN ... THEN ... ELSE ... END"),
    ("as materialized", "leave MATERIALIZED out"),
    ("as not materialized", "leave NOT MATERIALIZED out"),
    (
        "positional join",
        "number both sides by row_number() OVER (ORDER BY time), and join by the numbers",
    ),
    ("select top #", "write LIMIT 10 behind all else"),
    ("order by all", "name the columns, or their places: ORDER BY 1, 2"),
    ("json_*", "there is no JSON: a field has one value"),
    ("lateral unnest (", "write SELECT sensor, unnest(list) FROM ..."),
    ("datediff (", "write time - other, or extract(epoch FROM time - other)"),
];

const ARG_MAX: &str =
    "write last(value, time), or first_value(value ORDER BY other DESC NULLS LAST)";
const ARG_MIN: &str = "write first(value, time), or first_value(value ORDER BY other)";
const ASOF: &str = "write a ASOF JOIN b MATCH_CONDITION (a.time >= b.time) ON a.sensor = b.sensor; rows without a partner are kept";
const FILL: &str = "gaps are filled by locf(...) and interpolate(...) OVER (ORDER BY time), over times from \
                    generate_series";

/// Units that other databases write behind a number, and their names here.
const UNITS: [(&str, &str); 10] = [
    ("ns", "nanoseconds"),
    ("us", "microseconds"),
    ("u", "microseconds"),
    ("ms", "milliseconds"),
    ("s", "seconds"),
    ("m", "minutes"),
    ("h", "hours"),
    ("d", "days"),
    ("w", "weeks"),
    ("y", "years"),
];

/// What there is to be named.
pub(crate) struct Known<'a> {
    pub(crate) state: &'a SessionState,
    pub(crate) tables: &'a dyn Fn() -> Vec<String>,
}

/// An error, with the arguments of the call that it is about, and with what to write instead where the statement has words
/// of another database or names that are not there.
pub(crate) fn with_hint(error: Error, sql: &str, known: &Known<'_>) -> Error {
    let may_help =
        matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::NotFound);
    if !may_help {
        return error;
    }
    // A name that is not there is told by the error.
    let knows_names = error.kind() != ErrorKind::NotFound;
    let message = with_written(error.message(), sql);
    let told = match hint(sql, knows_names) {
        Some(hint) => Some(format!("{message}; {hint}")),
        None => known.told(&message),
    };
    Error::new(error.kind(), told.unwrap_or(message))
}

/// A message about a call with its arguments as they are written.
fn with_written(message: &str, sql: &str) -> String {
    let is_about_call = message.split_once("): ").is_some_and(|(_, rest)| rest.contains(" takes "));
    if !is_about_call || sql.len() > BYTES_MAX {
        return message.to_owned();
    }
    with_arguments(message, &parse_plain(sql)).unwrap_or_else(|| message.to_owned())
}

impl Known<'_> {
    /// What an error about a name that is not there says to who knows all of them.
    fn told(&self, message: &str) -> Option<String> {
        if let Some(name) = message.strip_prefix(NO_FUNCTION) {
            return self.function(name).map(|told| format!("{message}; {told}"));
        }
        let start = message.strip_suffix(LISTS_TABLES)?;
        let name = start.strip_prefix("there is no table \"")?.strip_suffix("\"; ")?;
        let tables = (self.tables)();
        // One that has come since it was missed is none that was meant instead.
        let others = tables.iter().map(String::as_str).filter(|other| *other != name);
        let asked = did_you_mean(&nearest(name, others))?;
        Some(format!("{start}{asked}"))
    }

    fn function(&self, name: &str) -> Option<String> {
        let small = name.to_lowercase();
        if self.state.window_functions().contains_key(&small) {
            return Some(format!(
                "it looks at rows of a window: write {small}(...) OVER (ORDER BY time)"
            ));
        }
        let scalar = self.state.scalar_functions().keys();
        let known = scalar
            .chain(self.state.aggregate_functions().keys())
            .chain(self.state.window_functions().keys())
            .map(String::as_str)
            .chain(SHORT_FORMS)
            .filter(|other| !INNER.contains(other));
        did_you_mean(&nearest(name, known))
    }
}

/// Nobody types more; looking through long lists of values would take longer than reading them.
const BYTES_MAX: usize = 64 << 10;

fn hint(sql: &str, knows_names: bool) -> Option<String> {
    if sql.len() > BYTES_MAX {
        return None;
    }
    let tokens = Tokenizer::new(&TidefallDialect, sql).tokenize_with_location().ok()?;
    let is_space = |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let tokens: Vec<&TokenWithSpan> = tokens.iter().filter(|token| !is_space(token)).collect();
    let words: Vec<String> = tokens.iter().map(|token| word(&token.token)).collect();
    let begins_with_from = words.first().is_some_and(|first| first == "from");
    if knows_names && begins_with_from && !words.iter().any(|w| w == "select") {
        return Some("write SELECT * in front of FROM".to_owned());
    }
    // The first mistake is the one that the error tells of.
    let place = |pattern: &str| {
        let pattern: Vec<&str> = pattern.split(' ').collect();
        words.windows(pattern.len()).position(|words| words.iter().zip(&pattern).all(matches))
    };
    let found = HINTS.iter().filter_map(|(pattern, hint)| Some((place(pattern)?, hint)));
    let first = found.min_by_key(|(place, _)| *place);
    first.map(|(_, hint)| (*hint).to_owned()).or_else(|| duration(&tokens))
}

fn word(token: &Token) -> String {
    match token {
        Token::Number(..) => "#".to_owned(),
        // Quoted names and texts are nobody's keywords.
        Token::Word(word) if word.quote_style.is_some() => String::new(),
        Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => String::new(),
        other => other.to_string().to_lowercase(),
    }
}

fn matches((word, pattern): (&String, &&str)) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => word.starts_with(start),
        None => word == pattern,
    }
}

/// A number with a unit right behind it.
fn duration(tokens: &[&TokenWithSpan]) -> Option<String> {
    tokens.windows(2).find_map(|pair| {
        let (Token::Number(number, _), Token::Word(unit)) = (&pair[0].token, &pair[1].token) else {
            return None;
        };
        let is_together = pair[0].span.end == pair[1].span.start;
        let name = UNITS.iter().find(|(short, _)| unit.value.eq_ignore_ascii_case(short))?.1;
        is_together.then(|| format!("write {number}{} as INTERVAL '{number} {name}'", unit.value))
    })
}
