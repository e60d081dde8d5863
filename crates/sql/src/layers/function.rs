//! `rows('plant', sensors => ['s1', 's2'], every => '1m')`: chosen sensors side by side.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, Ident, TableFactor, VisitorMut,
};
use tidefall_storage::{Bin, Db, TagFilter};
use tidefall_types::{Error, parse_duration};

use super::labels::Labels;
use super::rows::RowsTable;
use crate::error::to_datafusion;
use crate::table::View;

const NAME: &str = "rows";
/// The arguments behind the table, in their order.
const ARGUMENTS: [&str; 2] = ["sensors", "every"];

/// The table function `rows`.
pub(crate) struct RowsFunction {
    db: Db,
}

impl RowsFunction {
    /// Its name in SQL.
    pub(crate) const NAME: &'static str = NAME;

    /// The function over the tables of `db`.
    pub(crate) fn new(db: Db) -> Self {
        Self { db }
    }
}

impl fmt::Debug for RowsFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsFunction").finish_non_exhaustive()
    }
}

impl TableFunctionImpl for RowsFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let mut texts = args.exprs().iter().map(constant_texts);
        let mut next = || texts.next().transpose().map(Option::flatten);
        let wrong = || to_datafusion(Error::invalid(usage("wants the name of a table first")));
        let table = match next()?.as_deref() {
            Some([table]) => table.clone(),
            _ => return Err(wrong()),
        };
        let sensors = next()?;
        let every = match next()?.as_deref() {
            None => None,
            Some([every]) => {
                Some(Bin { width_ns: parse_duration(every).map_err(to_datafusion)?, origin_ns: 0 })
            }
            Some(_) => return Err(to_datafusion(Error::invalid(usage("wants one duration")))),
        };
        if every.is_some_and(|every| every.width_ns <= 0) {
            return Err(to_datafusion(Error::invalid(usage("wants a duration above zero"))));
        }
        let view = Arc::new(View::new(self.db.snapshot(&table).map_err(to_datafusion)?));
        let sensors = choose(&view, sensors.as_deref()).map_err(to_datafusion)?;
        let memory_bytes = self.db.stats().memory_bytes;
        Ok(Arc::new(RowsTable::of(view, sensors, every, memory_bytes)?))
    }
}

fn usage(what: &str) -> String {
    format!("{NAME} {what}, as in {NAME}('plant', sensors => ['s1', 's2'], every => '1m')")
}

/// A text or a list of texts; nothing for NULL.
fn constant_texts(expr: &Expr) -> Result<Option<Vec<String>>> {
    let text = |value: &ScalarValue| match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Some(text.clone()),
        _ => None,
    };
    let found = match expr {
        Expr::Literal(value, _) if value.is_null() => return Ok(None),
        Expr::Literal(ScalarValue::List(list), _) => {
            let texts = cast(&list.value(0), &DataType::Utf8)?;
            texts.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
        }
        Expr::Literal(value, _) => text(value).map(|text| vec![text]),
        // What ARRAY[...] and [...] become.
        Expr::ScalarFunction(call) if call.name() == "make_array" => call
            .args
            .iter()
            .map(|arg| if let Expr::Literal(value, _) = arg { text(value) } else { None })
            .collect(),
        _ => None,
    };
    let why = || to_datafusion(Error::invalid(usage(&format!("wants texts, not {expr}"))));
    found.map(Some).ok_or_else(why)
}

/// The sensors of these names, in this order; of a name with `%` all that are like it. All sensors of
/// the table when there are no names.
fn choose(view: &View, names: Option<&[String]>) -> tidefall_types::Result<Vec<(u32, String)>> {
    let snapshot = view.snapshot();
    let all = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All)?);
    let labels = Labels::new(view);
    let labelled = all.into_iter().map(|sensor| (sensor, labels.of(sensor)));
    let Some(names) = names else { return Ok(labelled.collect()) };
    let labelled: Vec<(u32, String)> = labelled.collect();
    let mut chosen: Vec<(u32, String)> = Vec::new();
    for name in names {
        let before = chosen.len();
        let is_wanted = |label: &str| label == name || (name.contains('%') && is_like(label, name));
        for (sensor, label) in labelled.iter().filter(|(_, label)| is_wanted(label)) {
            if chosen.iter().all(|(other, _)| other != sensor) {
                chosen.push((*sensor, label.clone()));
            }
        }
        if chosen.len() == before && !labelled.iter().any(|(_, label)| is_wanted(label)) {
            let table = &view.schema().name;
            return Err(Error::not_found(format!("table {table} has no sensor {name:?}")));
        }
    }
    Ok(chosen)
}

/// Whether a text is like a pattern in which `%` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('%');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Puts the named arguments of `rows` into their places, as DataFusion knows no names; wrong are names that `rows`
/// does not have.
pub(crate) struct NamedArguments;

impl VisitorMut for NamedArguments {
    type Break = Error;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let TableFactor::Table { name, args: Some(args), .. } = factor
            && name.to_string().eq_ignore_ascii_case(NAME)
        {
            match in_order(std::mem::take(&mut args.args)) {
                Ok(ordered) => args.args = ordered,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

fn in_order(args: Vec<FunctionArg>) -> tidefall_types::Result<Vec<FunctionArg>> {
    let null = || FunctionArgExpr::Expr(ast::Expr::Value(ast::Value::Null.into()));
    let mut ordered: Vec<FunctionArgExpr> = Vec::new();
    let mut named: [Option<FunctionArgExpr>; ARGUMENTS.len()] = Default::default();
    for arg in args {
        match arg {
            FunctionArg::Unnamed(arg) => ordered.push(arg),
            FunctionArg::Named { name: Ident { value: name, .. }, arg, .. } => {
                let at = ARGUMENTS.iter().position(|known| known.eq_ignore_ascii_case(&name));
                let why = || Error::invalid(usage(&format!("has no argument {name}")));
                named[at.ok_or_else(why)?] = Some(arg);
            }
            other => return Err(Error::invalid(usage(&format!("has no argument {other}")))),
        }
    }
    for (at, arg) in named.into_iter().enumerate() {
        let Some(arg) = arg else { continue };
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
