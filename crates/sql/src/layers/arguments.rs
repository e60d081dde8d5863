//! What stands between the parentheses of `rows(...)` and `columns(...)`.

use std::ops::ControlFlow;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, Ident, TableFactor, VisitorMut,
};
use tidefall_types::{Error, parse_duration};

use super::Layer;
use crate::error::{in_sql, to_datafusion};
use crate::literals::{literal, text, time};

impl Layer {
    /// The arguments behind the table, in their order.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Rows => &["sensors", "every"],
            Self::Columns => &["sensors", "start", "end"],
        }
    }

    fn misused(self, what: &str) -> Error {
        let example = match self {
            Self::Rows => "rows('plant', sensors => ['s1', 's2'], every => '1m')",
            Self::Columns => {
                "columns('plant', sensors => ['s1'], start => '2024-01-01', end => '2024-02-01')"
            }
        };
        Error::invalid(format!("{} {what}, as in {example}", self.name()))
    }
}

/// The arguments of a call, constants by now.
pub(super) struct Arguments<'a> {
    layer: Layer,
    exprs: &'a [Expr],
}

impl<'a> Arguments<'a> {
    pub(super) fn new(layer: Layer, exprs: &'a [Expr]) -> Result<Self> {
        match exprs.get(layer.arguments().len() + 1) {
            None => Ok(Self { layer, exprs }),
            Some(more) => {
                Err(to_datafusion(layer.misused(&in_sql(&format!("has no argument for {more}")))))
            }
        }
    }

    /// The name of the table.
    pub(super) fn table(&self) -> Result<String> {
        let text = self.exprs.first().and_then(literal).and_then(text).map(str::to_owned);
        text.ok_or_else(|| self.misused("wants the name of a table first"))
    }

    /// A text or a list of texts; nothing for NULL.
    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(expr) = self.get(name) else { return Ok(None) };
        let found = match expr {
            Expr::Literal(ScalarValue::List(list), _) => {
                let texts = cast(&list.value(0), &DataType::Utf8)?;
                texts.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
            }
            Expr::Literal(value, _) => text(value).map(|text| vec![text.to_owned()]),
            // What ARRAY[...] and [...] become.
            Expr::ScalarFunction(call) if call.name() == "make_array" => {
                call.args.iter().map(|arg| literal(arg).and_then(text).map(str::to_owned)).collect()
            }
            _ => None,
        };
        let why = || self.misused(&format!("wants texts for {name}, not {expr}"));
        found.map(Some).ok_or_else(why)
    }

    /// Nanoseconds above zero.
    pub(super) fn duration(&self, name: &str) -> Result<Option<i64>> {
        let Some(expr) = self.get(name) else { return Ok(None) };
        let text = literal(expr).and_then(text);
        let why = || self.misused(&format!("wants a duration for {name}, not {expr}"));
        let duration_ns = parse_duration(text.ok_or_else(why)?).map_err(to_datafusion)?;
        if duration_ns <= 0 {
            return Err(self.misused(&format!("wants a duration above zero for {name}")));
        }
        Ok(Some(duration_ns))
    }

    /// A time in nanoseconds since 1970 UTC.
    pub(super) fn time(&self, name: &str) -> Result<Option<i64>> {
        let Some(expr) = self.get(name) else { return Ok(None) };
        let Some(value) = literal(expr) else { return Err(self.no_time(name, expr)) };
        match time(value).map_err(to_datafusion)? {
            Some(time_ns) => Ok(Some(time_ns)),
            None => Err(self.no_time(name, expr)),
        }
    }

    fn no_time(&self, name: &str, expr: &Expr) -> datafusion::error::DataFusionError {
        self.misused(&format!("wants a time for {name}, not {expr}"))
    }

    /// What was given, if it was and is not NULL.
    fn get(&self, name: &str) -> Option<&'a Expr> {
        let at = self.layer.arguments().iter().position(|known| *known == name)?;
        let is_given = |expr: &&Expr| !literal(expr).is_some_and(ScalarValue::is_null);
        self.exprs.get(at + 1).filter(is_given)
    }

    fn misused(&self, what: &str) -> datafusion::error::DataFusionError {
        to_datafusion(self.layer.misused(what))
    }
}

/// Puts the named arguments of layers into their places, as DataFusion knows no names; wrong are names that the layer
/// does not have.
pub(crate) struct NamedArguments;

impl VisitorMut for NamedArguments {
    type Break = Error;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let TableFactor::Table { name, args: Some(args), .. } = factor
            && let Some(layer) = Layer::of_schema(&name.to_string().to_lowercase())
        {
            match in_order(layer, std::mem::take(&mut args.args)) {
                Ok(ordered) => args.args = ordered,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

fn in_order(layer: Layer, args: Vec<FunctionArg>) -> tidefall_types::Result<Vec<FunctionArg>> {
    let null = || FunctionArgExpr::Expr(ast::Expr::Value(ast::Value::Null.into()));
    let known = layer.arguments();
    let mut ordered: Vec<FunctionArgExpr> = Vec::new();
    let mut named: Vec<Option<FunctionArgExpr>> = vec![None; known.len()];
    for arg in args {
        match arg {
            FunctionArg::Unnamed(arg) => ordered.push(arg),
            FunctionArg::Named { name: Ident { value: name, .. }, arg, .. } => {
                let at = known.iter().position(|known| known.eq_ignore_ascii_case(&name));
                let why = || layer.misused(&format!("has no argument {name}"));
                named[at.ok_or_else(why)?] = Some(arg);
            }
            other => return Err(layer.misused(&format!("has no argument {other}"))),
        }
    }
    for (at, arg) in named.into_iter().enumerate() {
        let Some(arg) = arg else { continue };
        // The table stands first.
        while ordered.len() <= at {
            ordered.push(null());
        }
        match ordered.len() == at + 1 {
            true => ordered.push(arg),
            false => ordered[at + 1] = arg,
        }
    }
    Ok(ordered.into_iter().map(FunctionArg::Unnamed).collect())
}
