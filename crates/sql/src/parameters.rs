//! Values for the parameters of statements: `$1`, `$2` and so on, or `?` for one after the other.
//!
//! Before a statement is planned each is put in as what could be written in its place. So a statement means the same either way: the types of
//! numbers, what is pushed down, what a `LIMIT` may be.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Interval,
    OrderBy, OrderByExpr, OrderByKind, Query, Select, Statement, TypedString, Value, ValueWithSpan,
    Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Location;
use tidefall_types::{Error, Result, format_time};

use crate::ast::{sql_statement_mut, without_signs};
use crate::names::{ColumnNames, named};
use crate::parse::parse_expression;
use crate::walk::{visit_expressions, visit_expressions_mut, walk, walk_mut};

/// A value for a parameter of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// `NULL`.
    Null,
    /// `TRUE` or `FALSE`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that may be larger.
    UInt(u64),
    /// A `DOUBLE`.
    Float(f64),
    /// A text, which may also be compared with times.
    Text(String),
    /// A `TIMESTAMP`: nanoseconds since 1970 UTC.
    Time(i64),
    /// A `DATE`, as in `2024-01-31`.
    Date(String),
    /// An `INTERVAL`, as in `1 month` or `90 seconds`.
    Interval(String),
}

impl Parameter {
    /// What can be written in its place.
    fn text(&self) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        match self {
            Self::Null => "NULL".to_owned(),
            Self::Bool(true) => "TRUE".to_owned(),
            Self::Bool(false) => "FALSE".to_owned(),
            // Its number without a sign is beyond 64 bits.
            Self::Int(i64::MIN) => format!("CAST('{}' AS BIGINT)", i64::MIN),
            Self::Int(number) => number.to_string(),
            Self::UInt(number) => number.to_string(),
            // A written number may be a decimal.
            Self::Float(number) => format!("CAST('{number:?}' AS DOUBLE)"),
            Self::Text(text) => quoted(text),
            Self::Time(time_ns) => format!("TIMESTAMP {}", quoted(&format_time(*time_ns))),
            Self::Date(text) => format!("DATE {}", quoted(text)),
            Self::Interval(text) => format!("INTERVAL {}", quoted(text)),
        }
    }
}

/// Puts values in the places of the parameters of some statements, which are of one text.
///
/// # Errors
/// `Invalid` when there are more or fewer values than parameters, or when these are numbered here and not numbered there.
pub(crate) fn put_in(statements: &mut VecDeque<DfStatement>, values: &[Parameter]) -> Result<()> {
    let places = Places::of(statements)?;
    let count = places.count();
    if let Some(missing) = (values.len()..count).next() {
        let name = if places.are_numbered { format!("${}", missing + 1) } else { "?".to_owned() };
        return Err(Error::invalid(format!(
            "the statement has the parameter {name}, number {} of {count}, but {} values are given",
            missing + 1,
            values.len()
        )));
    }
    if values.len() > count {
        return Err(Error::invalid(format!(
            "{} values are given, but the statement has {count} parameters: write $1, $2 and so on, or ?, where they are to stand",
            values.len()
        )));
    }
    if count == 0 {
        return Ok(());
    }
    places.check_bytes(values)?;
    let values = values.iter().map(|value| parse_expression(&value.text()));
    places.fill(statements, &values.collect::<Result<Vec<_>>>()?);
    Ok(())
}

/// Puts texts, one for each, in the places of all parameters. Texts are of ours.
///
/// # Errors
/// As [`put_in`].
pub(crate) fn put_texts_in(
    statements: &mut VecDeque<DfStatement>,
    text: impl Fn(usize) -> String,
) -> Result<()> {
    let places = Places::of(statements)?;
    let values = (0..places.count()).map(|number| parse_expression(&text(number)));
    places.fill(statements, &values.collect::<Result<Vec<_>>>()?);
    Ok(())
}

/// How many parameters some statements have, which are of one text.
///
/// # Errors
/// `Invalid` when some have numbers and others have none.
pub(crate) fn count(statements: &mut VecDeque<DfStatement>) -> Result<usize> {
    Ok(Places::of(statements)?.count())
}

/// Whether a statement has parameters.
pub(crate) fn has_parameters(statement: &mut DfStatement) -> bool {
    sql_statement_mut(statement).is_some_and(|statement| {
        let found =
            visit_expressions(statement, |expr| match own_value(expr).and_then(placeholder) {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            });
        found.is_break()
    })
}

/// Where the parameters of a text stand.
struct Places {
    are_numbered: bool,
    /// Of those without numbers, in order.
    unnumbered: Vec<Location>,
    /// The greatest number.
    last: usize,
    /// In how many places the value for each stands.
    times: Vec<usize>,
}

fn placeholder(value: &ValueWithSpan) -> Option<(&str, Location)> {
    match &value.value {
        Value::Placeholder(name) => Some((name, value.span.start)),
        _ => None,
    }
}

/// The value that an expression is, or that it has without having an expression for it.
fn own_value(expr: &Expr) -> Option<&ValueWithSpan> {
    match expr {
        Expr::Value(value) => Some(value),
        Expr::Like { escape_char, .. }
        | Expr::ILike { escape_char, .. }
        | Expr::SimilarTo { escape_char, .. } => escape_char.as_ref(),
        _ => None,
    }
}

/// The parameter by which something is ordered or grouped: signs make no column of it.
fn parameter_of(expr: &Expr) -> Option<&str> {
    match without_signs(expr) {
        Expr::Value(value) => placeholder(value).map(|(name, _)| name),
        _ => None,
    }
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Writes `DATE $1` as `CAST($1 AS DATE)`: the parser makes no expression of what stands behind the name of a type.
fn read_typed(expr: &mut Expr) {
    if let Expr::TypedString(TypedString { data_type, value, .. }) = expr
        && let Value::Placeholder(_) = value.value
    {
        *expr = cast(Expr::Value(value.clone()), data_type.clone());
    }
}

/// What `INTERVAL $1` is: the value itself when it is an interval already. A text stays where it is, as frames of windows take no casts.
fn interval(value: &Expr) -> Option<Expr> {
    match value {
        Expr::Interval(_) => Some(value.clone()),
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(_) | Value::Number(..),
            ..
        }) => None,
        _ => Some(cast(value.clone(), DataType::Interval { fields: None, precision: None })),
    }
}

impl Places {
    fn of(statements: &mut VecDeque<DfStatement>) -> Result<Self> {
        let (mut unnumbered, mut last, mut times) = (Vec::new(), 0, Vec::new());
        for statement in statements.iter_mut().filter_map(sql_statement_mut) {
            let _ = visit_expressions_mut(statement, |expr| {
                read_typed(expr);
                ControlFlow::<()>::Continue(())
            });
            let is_setting = matches!(statement, Statement::Set(_));
            let found = visit_expressions(statement, |expr| {
                let Some((name, at)) = own_value(expr).and_then(placeholder) else {
                    return ControlFlow::Continue(());
                };
                match number(name) {
                    // Clients that keep settings know them by their statements.
                    _ if is_setting => {
                        return ControlFlow::Break(
                            "SET takes no parameters; write the value in its place".to_owned(),
                        );
                    }
                    Some(number) => {
                        last = last.max(number);
                        times.resize(last, 0);
                        times[number - 1] += 1;
                    }
                    None if name == "?" => unnumbered.push(at),
                    None => {
                        return ControlFlow::Break(format!(
                            "{name}: parameters are called $1, $2 and so on, up to ${COUNT_MAX}, or ?"
                        ));
                    }
                }
                ControlFlow::Continue(())
            });
            if let ControlFlow::Break(why) = found {
                return Err(Error::invalid(why));
            }
            if let ControlFlow::Break(why) = walk(statement, &mut Orders) {
                return Err(Error::invalid(why));
            }
        }
        if last > 0 && !unnumbered.is_empty() {
            return Err(Error::invalid(
                "parameters of a statement either have numbers ($1) or have none (?), not both",
            ));
        }
        unnumbered.sort_unstable();
        if last == 0 {
            times = vec![1; unnumbered.len()];
        }
        Ok(Self { are_numbered: last > 0, unnumbered, last, times })
    }

    /// Checks that values are no larger where they stand than statements may be: a text may stand in many places.
    fn check_bytes(&self, values: &[Parameter]) -> Result<()> {
        let bytes = |(value, times): (&Parameter, &usize)| match value {
            Parameter::Text(text) | Parameter::Date(text) | Parameter::Interval(text) => {
                text.len().saturating_mul(*times)
            }
            _ => 0,
        };
        let bytes: usize = values.iter().zip(&self.times).map(bytes).fold(0, usize::saturating_add);
        match bytes <= BYTES_MAX {
            true => Ok(()),
            false => Err(Error::limit(format!(
                "the texts for parameters have {bytes} bytes in all places where they stand; {BYTES_MAX} are the most"
            ))),
        }
    }

    /// Puts a value in the places of each parameter. Columns without a name are called by what is written, whatever the values.
    fn fill(&self, statements: &mut VecDeque<DfStatement>, values: &[Expr]) {
        for statement in statements.iter_mut().filter_map(sql_statement_mut) {
            let _ = walk_mut(statement, &mut ColumnNames);
            let _ = walk_mut(statement, &mut Groups);
            let _ = walk_mut(statement, &mut Fill { places: self, values });
        }
    }

    fn count(&self) -> usize {
        if self.are_numbered { self.last } else { self.unnumbered.len() }
    }

    /// Which of all values one stands for.
    fn number(&self, value: &ValueWithSpan) -> Option<usize> {
        let (name, at) = placeholder(value)?;
        match self.are_numbered {
            true => number(name).map(|number| number - 1),
            false => self.unnumbered.binary_search(&at).ok(),
        }
    }
}

/// Puts values in the places of parameters.
struct Fill<'a> {
    places: &'a Places,
    values: &'a [Expr],
}

impl Fill<'_> {
    fn value(&self, of: &ValueWithSpan) -> Option<&Expr> {
        self.places.number(of).and_then(|number| self.values.get(number))
    }
}

impl VisitorMut for Fill<'_> {
    type Break = Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Interval(Interval { value, leading_field: None, .. }) = expr
            && let Expr::Value(of) = &**value
            && let Some(value) = self.value(of).and_then(interval)
        {
            *expr = value;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        let Some(value) = own_value(expr).and_then(|of| self.value(of)) else {
            return ControlFlow::Continue(());
        };
        match expr {
            Expr::Like { escape_char, .. }
            | Expr::ILike { escape_char, .. }
            | Expr::SimilarTo { escape_char, .. } => {
                *escape_char = Some(match value {
                    Expr::Value(value) => value.clone(),
                    // No single character, which the error shows.
                    other => Value::SingleQuotedString(other.to_string()).into(),
                });
            }
            expr => *expr = value.clone(),
        }
        ControlFlow::Continue(())
    }
}

/// Refuses parameters in the place of columns that order rows: a whole number would be the place of one.
struct Orders;

impl Visitor for Orders {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        match &query.order_by {
            Some(OrderBy { kind: OrderByKind::Expressions(exprs), .. }) => {
                check_order(exprs, "write the name of the column, or its place")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        if let Expr::Function(call) = expr
            && let FunctionArguments::List(list) = &call.args
        {
            for clause in &list.clauses {
                if let FunctionArgumentClause::OrderBy(exprs) = clause {
                    check_order(exprs, "write the name of the column")?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn check_order(exprs: &[OrderByExpr], instead: &str) -> ControlFlow<String> {
    match exprs.iter().find_map(|order| parameter_of(&order.expr)) {
        Some(name) => ControlFlow::Break(format!(
            "ORDER BY {name}: a parameter is a value, by which no rows are ordered; {instead}"
        )),
        None => ControlFlow::Continue(()),
    }
}

/// Rows that are grouped by a parameter are so by its value: a whole number would be the place of a column.
struct Groups;

impl VisitorMut for Groups {
    type Break = Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        if let GroupByExpr::Expressions(exprs, _) = &mut select.group_by {
            for expr in exprs.iter_mut().filter(|expr| parameter_of(expr).is_some()) {
                *expr = named(expr.clone());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Bytes of texts in all places together, at most.
const BYTES_MAX: usize = 64 << 20;

/// Parameters of a statement at most.
const COUNT_MAX: usize = 65_535;

fn number(name: &str) -> Option<usize> {
    let digits = name.strip_prefix('$')?;
    let number: usize = digits.parse().ok()?;
    (1..=COUNT_MAX).contains(&number).then_some(number)
}
