//! Calls with arguments that their functions do not take.
//!
//! DataFusion tells of them in several ways, and always at the end with the types of the arguments and with all lists of
//! types that the function takes. Of these is made one sentence:
//!
//! 1. What each parameter takes is one of a few kinds ([`Kind`]): a function of numbers has a list for each width.
//! 2. Where as many arguments are given as some of the lists have, it is told which of them are of no kind that their
//!    parameters take, and what all of them take; else how many there may be.
//! 3. Arguments are told by their numbers, `argument 1 is TEXT`, until [`with_arguments`] knows what was written.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArguments};

use super::words::{bare, in_sql};
use crate::ast::plain;
use crate::nearest::{any_of, joined};
use crate::walk::{Walked, visit_expressions};

/// What a parameter takes, or a type is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Any,
    Number,
    Whole,
    Time,
    Date,
    Clock,
    Interval,
    Text,
    Boolean,
    List,
    Map,
    Bytes,
    /// NULL and what nobody can write.
    Other,
}

/// The kinds by the beginnings of the names that DataFusion has for them; the longest beginning counts.
const KINDS: [(&str, Kind); 32] = [
    ("UInt", Kind::Whole),
    ("Integer", Kind::Whole),
    ("Interval", Kind::Interval),
    ("Int", Kind::Whole),
    ("index", Kind::Whole),
    ("Float", Kind::Number),
    ("Numeric", Kind::Number),
    ("Decimal", Kind::Number),
    ("Timestamp", Kind::Time),
    ("Time", Kind::Clock),
    ("Date", Kind::Date),
    ("Duration", Kind::Interval),
    ("Utf8", Kind::Text),
    ("LargeUtf8", Kind::Text),
    ("Str", Kind::Text),
    ("str", Kind::Text),
    ("Struct", Kind::Other),
    ("Boolean", Kind::Boolean),
    ("List", Kind::List),
    ("LargeList", Kind::List),
    ("FixedSizeList", Kind::List),
    ("array", Kind::List),
    ("recursive_array", Kind::List),
    ("Map", Kind::Map),
    ("map", Kind::Map),
    ("Binary", Kind::Bytes),
    ("LargeBinary", Kind::Bytes),
    ("FixedSizeBinary", Kind::Bytes),
    ("Any", Kind::Any),
    ("Comparable", Kind::Any),
    ("element", Kind::Any),
    ("Null", Kind::Other),
];

impl Kind {
    fn of(name: &str) -> Self {
        // A text that is in a dictionary is a text.
        if let Some(values) = name.strip_prefix("Dictionary(") {
            return values.split_once(", ").map_or(Self::Other, |(_, values)| Self::of(values));
        }
        let named = KINDS.iter().filter(|(start, _)| name.starts_with(start));
        named.max_by_key(|(start, _)| start.len()).map_or(Self::Other, |(_, kind)| *kind)
    }

    /// One of them, and many.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Any | Self::Other => ("any value", "values of any type"),
            Self::Number => ("a number", "numbers"),
            Self::Whole => ("a whole number", "whole numbers"),
            Self::Time => ("a time", "times"),
            Self::Date => ("a date", "dates"),
            Self::Clock => ("a time of day", "times of day"),
            Self::Interval => ("an interval", "intervals"),
            Self::Text => ("a text", "texts"),
            Self::Boolean => ("a condition", "conditions"),
            Self::List => ("a list", "lists"),
            Self::Map => ("a map", "maps"),
            Self::Bytes => ("bytes", "bytes"),
        }
    }
}

/// What one parameter of a function takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Parameter(BTreeSet<Kind>);

impl Parameter {
    fn add(&mut self, types: &str) {
        // A name of the parameter may stand before them.
        let types = types.rsplit_once(": ").map_or(types, |(_, types)| types);
        self.0.extend(types.split('/').map(Kind::of).filter(|kind| *kind != Kind::Other));
    }

    fn takes(&self, kind: Kind) -> bool {
        match kind {
            Kind::Other => true,
            _ if self.0.is_empty() || self.0.contains(&Kind::Any) => true,
            Kind::Whole if self.0.contains(&Kind::Number) => true,
            Kind::Date if self.0.contains(&Kind::Time) => true,
            _ => self.0.contains(&kind),
        }
    }

    /// The kinds, without those that are part of others.
    fn kinds(&self) -> Vec<Kind> {
        if self.0.is_empty() || self.0.contains(&Kind::Any) {
            return vec![Kind::Any];
        }
        let has = |kind| self.0.contains(&kind);
        let is_part = |kind: &Kind| match kind {
            Kind::Whole => has(Kind::Number),
            Kind::Date | Kind::Clock => has(Kind::Time),
            Kind::Bytes => has(Kind::Text),
            _ => false,
        };
        self.0.iter().copied().filter(|kind| !is_part(kind)).collect()
    }

    fn one(&self) -> String {
        any_of(&self.kinds().iter().map(|kind| kind.names().0).collect::<Vec<_>>())
    }

    fn many(&self) -> String {
        any_of(&self.kinds().iter().map(|kind| kind.names().1).collect::<Vec<_>>())
    }
}

/// What a function takes, by the number of its arguments.
#[derive(Debug, Default)]
struct Takes {
    by_count: BTreeMap<usize, Vec<Parameter>>,
    /// What each of any number of them is.
    each: Option<Parameter>,
}

impl Takes {
    fn add(&mut self, list: &str) {
        let mut types = split(list);
        if types.iter().any(|ty| ty.starts_with("..")) {
            self.each.get_or_insert_default().add(types[0]);
            return;
        }
        // `Numeric(2)` is two of them.
        if let [one] = types[..]
            && let Some((kind, count)) = one.strip_suffix(')').and_then(|one| one.split_once('('))
            && ["Numeric", "String", "Comparable"].contains(&kind)
            && let Ok(count) = count.parse()
        {
            types = vec![kind; count];
        }
        if list == "NullAry()" {
            types.clear();
        }
        let parameters = self.by_count.entry(types.len()).or_default();
        parameters.resize(types.len(), Parameter::default());
        for (parameter, ty) in parameters.iter_mut().zip(types) {
            parameter.add(ty);
        }
    }

    /// The parameters of as many arguments as are given.
    fn parameters(&self, count: usize) -> Option<Vec<Parameter>> {
        let each = || self.each.clone().filter(|_| count > 0).map(|each| vec![each; count]);
        self.by_count.get(&count).cloned().or_else(each)
    }

    fn counts(&self) -> String {
        const WORDS: [&str; 7] = ["no", "one", "two", "three", "four", "five", "six"];
        let word = |count: &usize| {
            WORDS.get(*count).map_or_else(|| count.to_string(), |word| (*word).to_owned())
        };
        let counts: Vec<String> = self.by_count.keys().map(word).collect();
        let is_one = self.by_count.keys().eq([&1]);
        let what = if is_one { "argument" } else { "arguments" };
        match (&self.each, &counts[..]) {
            (Some(_), _) => "one argument or more".to_owned(),
            (None, [one]) => match self.by_count.values().next() {
                Some(parameters) if !parameters.is_empty() => {
                    format!("{one} {what}: {}", each_one(parameters))
                }
                _ => format!("{one} {what}"),
            },
            _ => format!("{} {what}", any_of(&counts)),
        }
    }
}

/// What all parameters take together.
fn all(parameters: &[Parameter]) -> String {
    const WORDS: [&str; 5] = ["no", "one", "two", "three", "four"];
    match parameters {
        [] => "no arguments".to_owned(),
        [one] => one.many(),
        [first, others @ ..] if others.iter().all(|other| other == first) => {
            match WORDS.get(parameters.len()) {
                Some(count) if first.kinds().len() == 1 => format!("{count} {}", first.many()),
                _ => first.many(),
            }
        }
        _ => each_one(parameters),
    }
}

fn each_one(parameters: &[Parameter]) -> String {
    let ones: Vec<String> = parameters.iter().map(Parameter::one).collect();
    let is_choice = parameters.iter().any(|parameter| parameter.kinds().len() > 1);
    joined(&ones, if is_choice { ", and " } else { " and " })
}

/// Functions whose arguments are more easily seen than told.
const EXAMPLES: [(&str, &str); 12] = [
    ("time_bucket", "time_bucket('5 minutes', time)"),
    ("date_bin", "date_bin(INTERVAL '5 minutes', time)"),
    ("date_trunc", "date_trunc('day', time)"),
    ("date_part", "extract(hour FROM time)"),
    ("to_char", "to_char(time, '%Y-%m-%d')"),
    ("percentile_cont", "percentile(value, 0.95)"),
    ("approx_percentile_cont", "approx_percentile(value, 0.95)"),
    ("string_agg", "string_agg(text, ', ')"),
    ("split_part", "split_part(text, ',', 1)"),
    ("regexp_replace", "regexp_replace(text, 'pattern', 'other')"),
    ("lag", "lag(value) OVER (ORDER BY time)"),
    ("lead", "lead(value) OVER (ORDER BY time)"),
];

/// Functions that look at their arguments themselves, and what they take.
const OTHERS: [(&str, &str); 11] = [
    ("min", "one argument"),
    ("max", "one argument"),
    ("coalesce", ALIKE),
    ("greatest", ALIKE),
    ("least", ALIKE),
    ("make_array", ALIKE),
    ("nullif", "two values that can be compared"),
    ("nvl", "two values of one type"),
    ("gcd", "two whole numbers"),
    ("lcm", "two whole numbers"),
    ("concat", "one argument or more"),
];

const ALIKE: &str = "one or more values of one type";

/// Names under which DataFusion has functions, and those under which they are called here.
const WRITTEN: [(&str, &[&str]); 8] = [
    ("percentile_cont", &["percentile"]),
    ("approx_percentile_cont", &["approx_percentile"]),
    ("first_value", &["first"]),
    ("last_value", &["last", "locf"]),
    ("avg", &["mean", "moving_average"]),
    ("btrim", &["trim"]),
    ("date_part", &["extract", "datepart"]),
    ("substr", &["substring"]),
];

/// Names that nobody writes, and what is written.
const UNWRITTEN: [(&str, &str); 5] = [
    ("percentile_cont", "percentile"),
    ("approx_percentile_cont", "approx_percentile"),
    ("btrim", "trim"),
    ("date_part", "extract"),
    ("array_element", "list[number]"),
];

const GIVEN: &str = "No function matches the given name and argument types '";
const CANDIDATES: &str = "Candidate functions:\n";
const BY_ITSELF: &str = "user-defined coercion failed with: ";
const OURS: &str = "External error: ";

/// What is wrong with a call, if the message is about one.
pub(super) fn told(message: &str) -> Option<String> {
    let (before, rest) = message.split_once(GIVEN)?;
    let (call, rest) = rest.split_once("'. You might need")?;
    let (name, types) = call.strip_suffix(')')?.split_once('(')?;
    let types = split(types);
    let other = OTHERS.iter().find(|(other, _)| *other == name).map(|(_, what)| *what);
    if let (Some((_, why)), None) = (before.split_once(BY_ITSELF), other) {
        let told = bare(why).trim_end_matches([' ', '.']).to_owned();
        return Some(match why.starts_with(OURS) {
            // Functions of ours say it in one sentence.
            true => told,
            false => in_sql(&format!("{name}({}): {}", types.join(", "), told)),
        });
    }
    let mut takes = Takes::default();
    let (_, candidates) = rest.split_once(CANDIDATES)?;
    for candidate in candidates.lines() {
        let list = candidate.trim().strip_prefix(name).and_then(|list| list.strip_prefix('('));
        takes.add(list.and_then(|list| list.strip_suffix(')')).unwrap_or_default());
    }
    let (wrong, what) = match other {
        Some(what) => (Vec::new(), what.to_owned()),
        None => compared(&takes, &types),
    };
    let example = EXAMPLES.iter().find(|(other, _)| *other == name).map(|(_, example)| *example);
    let what = match (&wrong[..], example, takes.parameters(types.len())) {
        ([0], Some(example), Some(parameters)) if parameters.len() > 1 => {
            format!("{} first, as in {example}", parameters[0].one())
        }
        (_, Some(example), _) => format!("{what}, as in {example}"),
        _ => what,
    };
    let is = |index: &usize| format!("argument {} is {}", index + 1, types[*index]);
    let wrong: Vec<String> = wrong.iter().map(is).collect();
    let wrong = if wrong.is_empty() { String::new() } else { format!("{}; ", wrong.join(", ")) };
    Some(in_sql(&format!("{name}({}): {wrong}{name} takes {what}", types.join(", "))))
}

/// The indexes of the arguments that are not taken, and what would be.
fn compared(takes: &Takes, types: &[&str]) -> (Vec<usize>, String) {
    let Some(parameters) = takes.parameters(types.len()) else {
        return (Vec::new(), takes.counts());
    };
    let kinds = types.iter().map(|ty| Kind::of(ty));
    let taken: Vec<bool> =
        parameters.iter().zip(kinds).map(|(parameter, kind)| parameter.takes(kind)).collect();
    let is_clear = taken.contains(&false);
    // Each of them is taken, but not beside the others.
    let wrong = (0..types.len()).filter(|index| !is_clear || !taken[*index]).collect();
    (wrong, all(&parameters))
}

/// The types of a list: commas within parentheses belong to one of them.
fn split(list: &str) -> Vec<&str> {
    let (mut types, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                types.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = list[start..].trim();
    if !last.is_empty() {
        types.push(last);
    }
    types
}

/// A longer text of an argument says no more than its number.
const ARGUMENT_CHARS_MAX: usize = 60;

/// What [`told`] says, with the arguments as they are written in a statement, if there is one call that is meant.
pub(crate) fn with_arguments(message: &str, statements: &[impl Walked]) -> Option<String> {
    let (call, rest) = message.split_once("): ")?;
    let (name, types) = call.split_once('(')?;
    let rest = match rest.split_once(&format!("{name} takes ")) {
        Some(("", rest)) => format!("{name} takes {rest}"),
        Some((wrong, rest)) if wrong.starts_with("argument ") => {
            format!("{wrong}{name} takes {rest}")
        }
        _ => return None,
    };
    let is_name =
        !name.is_empty() && name.chars().all(|next| next.is_alphanumeric() || next == '_');
    if !is_name {
        return None;
    }
    let found = calls_of(name, split(types).len(), statements);
    let (written, args) = match &found[..] {
        [(written, args)] => (written.clone(), Some(args)),
        _ => {
            let written = found.first().map(|(written, _)| written.as_str());
            let unwritten = UNWRITTEN.iter().find(|(other, _)| *other == name);
            let written = written.or_else(|| unwritten.map(|(_, written)| *written));
            (written.unwrap_or(name).to_owned(), None)
        }
    };
    let rest = rest.replacen(&format!("{name} takes "), &format!("{written} takes "), 1);
    let Some(args) = args else { return Some(format!("{written}({types}): {rest}")) };
    let told = args.iter().enumerate().fold(rest, |rest, (index, arg)| {
        rest.replacen(&format!("argument {} is ", index + 1), &format!("{arg} is "), 1)
    });
    Some(format!("{written}({}): {told}", args.join(", ")))
}

/// The calls of a function with so many arguments, each once: its name and its arguments as they are written.
fn calls_of(name: &str, count: usize, statements: &[impl Walked]) -> Vec<(String, Vec<String>)> {
    let short =
        WRITTEN.iter().find(|(other, _)| *other == name).map_or(&[][..], |(_, short)| *short);
    let mut found = Vec::new();
    for statement in statements {
        let _ = visit_expressions(statement, |expr| {
            if let Expr::Function(call) = expr
                && let Some(part) = call.name.0.last().and_then(|part| part.as_ident())
                && let written = plain(part)
                && (written == name || short.contains(&written.as_str()))
                && let Some(args) = arguments(call)
                // A short form may have more of them.
                && (args.len() == count || (written != name && args.len() > count))
                && !found.contains(&(written.clone(), args.clone()))
            {
                found.push((written, args));
            }
            ControlFlow::<()>::Continue(())
        });
    }
    found
}

fn arguments(call: &Function) -> Option<Vec<String>> {
    let args: Vec<String> = match &call.args {
        FunctionArguments::List(list) => list.args.iter().map(ToString::to_string).collect(),
        FunctionArguments::None => Vec::new(),
        FunctionArguments::Subquery(_) => return None,
    };
    args.iter().all(|arg| arg.chars().count() <= ARGUMENT_CHARS_MAX).then_some(args)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn message(why: &str, call: &str, candidates: &[&str]) -> String {
        let candidates: Vec<String> = candidates.iter().map(|list| format!("\t{list}")).collect();
        format!(
            "Error during planning: {why}. {GIVEN}{call}'. You might need to add explicit type casts.\n\t{CANDIDATES}{}",
            candidates.join("\n")
        )
    }

    fn check(call: &str, candidates: &[&str], said: &str) {
        assert_eq!(told(&message("it failed", call, candidates)).as_deref(), Some(said));
    }

    #[test]
    fn arguments_of_wrong_types_are_told_with_what_is_taken() {
        let sum = ["sum(Decimal)", "sum(UInt64)", "sum(Int64)", "sum(Float64)", "sum(Duration)"];
        check("sum(Utf8)", &sum, "sum(TEXT): argument 1 is TEXT; sum takes numbers or intervals");
        check(
            "corr(Dictionary(UInt32, Utf8), Float64)",
            &["corr(y: Float64, x: Float64)"],
            "corr(TEXT, DOUBLE): argument 1 is TEXT; corr takes two numbers",
        );
        check(
            "sqrt(Boolean)",
            &["sqrt(Float64/Float32)"],
            "sqrt(BOOLEAN): argument 1 is BOOLEAN; sqrt takes numbers",
        );
        check(
            "abs(Utf8)",
            &["abs(Numeric(1))"],
            "abs(TEXT): argument 1 is TEXT; abs takes numbers",
        );
        check(
            "repeat(Float64, Int64)",
            &["repeat(String, Int64)"],
            "repeat(DOUBLE, BIGINT): argument 1 is DOUBLE; repeat takes a text and a whole number",
        );
        check(
            "time_bucket(Int64, Timestamp(ns))",
            &[
                "time_bucket(Interval(DayTime), Timestamp(ns, \"+TZ\"))",
                "time_bucket(Interval(MonthDayNano), Timestamp(ns))",
            ],
            "time_bucket(BIGINT, TIMESTAMP): argument 1 is BIGINT; time_bucket takes an interval first, as in \
             time_bucket('5 minutes', time)",
        );
        check(
            "nullif(Float64, Boolean)",
            &["nullif(Comparable(2))"],
            "nullif(DOUBLE, BOOLEAN): nullif takes two values that can be compared",
        );
    }

    #[test]
    fn wrong_numbers_of_arguments_are_told_with_those_that_are_taken() {
        check("pi(Int64)", &["pi(NullAry())"], "pi(BIGINT): pi takes no arguments");
        check("sum()", &["sum(Int64)", "sum(Float64)"], "sum(): sum takes one argument: a number");
        check(
            "round(Float64, Int64, Int64)",
            &["round(Float64)", "round(Float64, Int64)"],
            "round(DOUBLE, BIGINT, BIGINT): round takes one or two arguments",
        );
        check(
            "lpad(Utf8)",
            &["lpad(Utf8, Int64)", "lpad(Utf8, Int64, Utf8)"],
            "lpad(TEXT): lpad takes two or three arguments",
        );
        check("struct()", &["struct(Any, .., Any)"], "struct(): struct takes one argument or more");
    }

    #[test]
    fn functions_of_ours_speak_for_themselves() {
        let why = "Function 'rate' user-defined coercion failed with: External error: rate wants a number";
        let said = told(&message(why, "rate(Utf8)", &["rate(UserDefined)"]));
        assert_eq!(said.as_deref(), Some("rate wants a number"));
        check("min()", &["min(UserDefined)"], "min(): min takes one argument");
        assert_eq!(told("something else"), None);
    }

    #[test]
    fn arguments_are_named_where_one_call_is_meant() {
        let said = "sum(TEXT): argument 1 is TEXT; sum takes numbers";
        let check = |sql: &str, message: &str, wanted: Option<&str>| {
            let statements = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
            assert_eq!(with_arguments(message, &statements).as_deref(), wanted, "{sql}");
        };
        let named = "sum(name): name is TEXT; sum takes numbers";
        check("SELECT sum(name) FROM t", said, Some(named));
        check("SELECT sum(name), avg(n) FROM t WHERE sum(name) > 1", said, Some(named));
        check("SELECT sum(n), sum(name) FROM t", said, Some(said));
        let said = "percentile_cont(TEXT, DOUBLE): argument 1 is TEXT; percentile_cont takes a number and a number";
        let named = "percentile(s, .5): s is TEXT; percentile takes a number and a number";
        check("SELECT percentile(s, .5) FROM t", said, Some(named));
        check("SELECT 1", "there is no column x", None);
        check("SELECT 1", "f(x): whatever it is", None);
    }
}
