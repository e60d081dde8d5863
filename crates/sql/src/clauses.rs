//! Clauses that the parser knows and DataFusion passes over in silence. An answer without them would be another one, so
//! they are refused, or written in the way that DataFusion knows.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, JoinConstraint, JoinOperator, LimitClause, Query, Select,
    SelectFlavor, SelectItem, SetExpr, SetOperator, SetQuantifier, TableFactor, TableWithJoins,
    Value, VisitorMut, WildcardAdditionalOptions,
};
use tidefall_types::{Error, Result};

use crate::ast::{is_random, plain};
use crate::walk::visit_relations;

/// Checks and completes the clauses of a statement.
#[derive(Debug, Default)]
pub(crate) struct Clauses {
    /// The names of `WITH` that are random and can be seen where the visitor is. None hides another (`with_names.rs`).
    random: Vec<String>,
    /// How many of them could be seen outside of each query that it is in.
    outer: Vec<usize>,
}

impl VisitorMut for Clauses {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.outer.push(self.random.len());
        let checked = limit_fetched(query).and_then(|()| check_query(query));
        flow(checked.and_then(|()| check_with(query, &mut self.random)))
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.random.truncate(self.outer.pop().unwrap_or(0));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let joins = select.from.iter_mut().try_for_each(name_sides);
        flow(joins.and_then(|()| name_columns(select)).and_then(|()| check_select(select)))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor
            && let Err(error) = name_sides(table_with_joins)
        {
            return ControlFlow::Break(error);
        }
        flow(check_table(factor))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Function(call) if call.parameters != FunctionArguments::None => {
                let (name, parameters) = (&call.name, &call.parameters);
                flow(Err(Error::unsupported(format!(
                    "{name}{parameters}(...): write the parameters of a function behind its arguments, as in \
                     percentile(value, 0.9)"
                ))))
            }
            Expr::Value(value) => flow(check_number(&value.value)),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// A number beyond all floats would be infinity, which is written as `'inf'::DOUBLE`.
fn check_number(value: &Value) -> Result<()> {
    let Value::Number(text, _) = value else { return Ok(()) };
    match text.parse::<f64>().is_ok_and(f64::is_infinite) {
        true => Err(Error::invalid(format!(
            "{text} is beyond the range of DOUBLE; infinity is written 'inf'::DOUBLE"
        ))),
        false => Ok(()),
    }
}

fn flow(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

fn refuse(is_there: bool, clause: &str, instead: &str) -> Result<()> {
    match is_there {
        true => Err(Error::unsupported(format!("{clause} is not supported; {instead}"))),
        false => Ok(()),
    }
}

/// Sets whose rows count as often as they occur; DataFusion takes those of `EXCEPT` and `INTERSECT` once.
fn check_sets(body: &SetExpr) -> Result<()> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return Ok(()) };
    let is_counted = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    let instead = "number the rows that are the same by row_number() OVER (PARTITION BY ...), and leave ALL out";
    refuse(is_counted && *op != SetOperator::Union, "EXCEPT ALL or INTERSECT ALL", instead)?;
    check_sets(left)?;
    check_sets(right)
}

/// `FETCH FIRST 3 ROWS ONLY` is `LIMIT 3`.
fn limit_fetched(query: &mut Query) -> Result<()> {
    let Some(fetch) = query.fetch.take() else { return Ok(()) };
    refuse(
        fetch.with_ties,
        "FETCH ... WITH TIES",
        "write QUALIFY rank() OVER (ORDER BY ...) <= 3",
    )?;
    refuse(
        fetch.percent,
        "FETCH ... PERCENT",
        "write QUALIFY percent_rank() OVER (ORDER BY ...) <= 0.1",
    )?;
    let first = fetch.quantity.unwrap_or(Expr::Value(Value::Number("1".to_owned(), false).into()));
    match &mut query.limit_clause {
        None => {
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: Some(first),
                offset: None,
                limit_by: Vec::new(),
            });
            Ok(())
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => {
            *limit = Some(first);
            Ok(())
        }
        Some(_) => refuse(true, "FETCH beside LIMIT", "leave one of them out"),
    }
}

fn check_query(query: &Query) -> Result<()> {
    check_sets(&query.body)?;
    refuse(query.settings.is_some(), "SETTINGS", "write SET as a statement of its own")?;
    refuse(query.format_clause.is_some(), "FORMAT", "whoever sends the query chooses the format")?;
    refuse(
        !query.locks.is_empty(),
        "FOR UPDATE or FOR SHARE",
        "readers see one state, and wait for nobody",
    )?;
    refuse(query.for_clause.is_some(), "FOR", "whoever sends the query chooses the format")
}

/// A name of `WITH` stands for its query in each place, which is computed there: what is random would be another thing in each.
/// Adds the names that are random to those that can be seen.
fn check_with(query: &Query, random: &mut Vec<String>) -> Result<()> {
    let Some(with) = &query.with else { return Ok(()) };
    let all = uses(query);
    // How often names are used so far, where they mean something else or lead to themselves.
    let mut before: HashMap<String, usize> = HashMap::new();
    for table in &with.cte_tables {
        let used = uses(&table.query);
        let name = plain(&table.alias.name);
        let random_one = random.iter().find(|random| used.contains_key(*random));
        if let Some(random_one) = random_one
            && with.recursive
            && used.contains_key(&name)
        {
            return Err(Error::unsupported(format!(
                "{random_one} of WITH is named in a recursion, and computed in each step: random() and uuid() would give other rows to \
                 each of them; write its rows to a table first (INSERT INTO ... SELECT)"
            )));
        }
        let is_random = random_one.is_some() || is_random(&table.query);
        for (other, count) in used {
            *before.entry(other).or_default() += count;
        }
        let places = all.get(&name).copied().unwrap_or(0) - before.get(&name).copied().unwrap_or(0);
        if is_random && places > 1 {
            return Err(Error::unsupported(format!(
                "{name} of WITH is named in {places} places, and computed in each: random() and uuid() would give other rows to each of \
                 them; name it once, or write its rows to a table first (INSERT INTO ... SELECT)"
            )));
        }
        if is_random {
            random.push(name);
        }
    }
    Ok(())
}

/// How often a query names each table.
fn uses(query: &Query) -> HashMap<String, usize> {
    let mut uses = HashMap::new();
    let _ = visit_relations(query, |relation| {
        if let [part] = &relation.0[..]
            && let Some(name) = part.as_ident()
        {
            *uses.entry(plain(name)).or_default() += 1;
        }
        ControlFlow::<()>::Continue(())
    });
    uses
}

/// `FROM t` is short for `SELECT * FROM t`; a query that names no columns otherwise has forgotten them.
fn name_columns(select: &mut Select) -> Result<()> {
    if select.flavor == SelectFlavor::FromFirstNoSelect {
        select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
    }
    match select.projection.is_empty() {
        true => Err(Error::invalid("SELECT names no columns; SELECT * takes all of them")),
        false => Ok(()),
    }
}

/// `SEMI JOIN` and `ANTI JOIN` show the left side. A join without a condition has forgotten it, or its first word was
/// taken for the name of a table, as in `a POSITIONAL JOIN b`.
fn name_sides(tables: &mut TableWithJoins) -> Result<()> {
    for join in &mut tables.joins {
        match &mut join.join_operator {
            JoinOperator::Semi(constraint) => {
                let constraint = std::mem::replace(constraint, JoinConstraint::None);
                join.join_operator = JoinOperator::LeftSemi(constraint);
            }
            JoinOperator::Anti(constraint) => {
                let constraint = std::mem::replace(constraint, JoinConstraint::None);
                join.join_operator = JoinOperator::LeftAnti(constraint);
            }
            JoinOperator::Join(JoinConstraint::None)
            | JoinOperator::Inner(JoinConstraint::None) => {
                return Err(Error::invalid(
                    "JOIN wants ON or USING; CROSS JOIN takes all pairs of rows",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_select(select: &Select) -> Result<()> {
    refuse(select.prewhere.is_some(), "PREWHERE", "write the condition in WHERE")?;
    refuse(!select.connect_by.is_empty(), "CONNECT BY", "write WITH RECURSIVE")?;
    refuse(!select.distribute_by.is_empty(), "DISTRIBUTE BY", "leave it out")?;
    refuse(select.exclude.is_some(), "EXCLUDE behind columns", "write * EXCLUDE (column)")?;
    refuse(select.value_table_mode.is_some(), "AS VALUE or AS STRUCT", "write struct(...)")?;
    let modifiers = match &select.group_by {
        GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => modifiers,
    };
    refuse(!modifiers.is_empty(), "GROUP BY ... WITH", "write GROUP BY ROLLUP (...) or CUBE (...)")
}

fn check_table(factor: &TableFactor) -> Result<()> {
    const SAMPLE: (&str, &str) = ("TABLESAMPLE", "write WHERE random() < 0.1");
    match factor {
        TableFactor::Table {
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            ..
        } => {
            refuse(sample.is_some(), SAMPLE.0, SAMPLE.1)?;
            refuse(version.is_some(), "a version of a table", "there is the present one")?;
            refuse(*with_ordinality, "WITH ORDINALITY", "write row_number() OVER ()")?;
            refuse(!partitions.is_empty(), "PARTITION", "write a condition on time")?;
            refuse(json_path.is_some(), "a path behind a table", "name its columns")?;
            refuse(!with_hints.is_empty(), "WITH behind a table", "leave it out")
        }
        TableFactor::Pivot { .. } => {
            let instead = "write avg(value) FILTER (WHERE sensor = 'a') AS a, ... with GROUP BY, or read rows.plant";
            refuse(true, "PIVOT", instead)
        }
        TableFactor::Unpivot { .. } => {
            let instead =
                "write SELECT time, 'a' AS field, a AS value ... UNION ALL SELECT time, 'b', b ...";
            refuse(true, "UNPIVOT", instead)
        }
        TableFactor::MatchRecognize { .. } => refuse(
            true,
            "MATCH_RECOGNIZE",
            "number sessions by sums of lag(...) OVER (ORDER BY time)",
        ),
        TableFactor::Derived { sample, .. } => refuse(sample.is_some(), SAMPLE.0, SAMPLE.1),
        _ => Ok(()),
    }
}
