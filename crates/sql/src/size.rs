//! How large a statement becomes when every common table expression is written out where it is named. That is what is
//! planned: thirty of them, each of which names the one before twice, are a billion tables in a few lines.
//!
//! Sizes are counted once for each expression of `WITH` and looked up where its name stands, so that counting takes no
//! longer than reading.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, ObjectName, Query, Select, SetExpr, SetOperator, Statement,
    TableFactor, Visitor,
};
use tidefall_types::{Error, Result};

use crate::ast::plain;
use crate::tuples::{LISTED_MAX, parts_of};
use crate::walk::{visit_expressions, walk};

/// The `SELECT`s and tables of a statement at most. As many are planned in seconds.
const TABLES_MAX: u64 = 2_000;

/// The nodes of a plan below each other at most, roughly; see [`crate::depth`] for what is deep.
const DEPTH_MAX: u64 = 600;

/// Subqueries in expressions within each other: the time for planning doubles with each of them.
const SUBQUERIES_MAX: u64 = 12;

/// Calls within `CASE` within each other: the time for planning doubles with each of them, as DataFusion asks each `CASE` for its type and
/// for NULL, and each call for both at once. Operators may become calls (`amend`), and `coalesce` is both.
const CASES_MAX: u64 = 12;

/// Names of a `WITH`: to plan each of them, all before it are copied.
const NAMES_MAX: usize = 1_000;

/// Expressions that a statement may have beyond those that are written in it.
const EXPRESSIONS_ADDED_MAX: u64 = 200_000;

/// Grouping sets of a `SELECT`, each of which every row belongs to: those of a `CUBE` of ten.
const GROUPING_SETS_MAX: u64 = 1 << 10;

/// The nodes below each other that a `SELECT` becomes: a filter, an aggregate, a projection and a name.
const SELECT_DEPTH: u64 = 4;

/// The nodes that `EXCEPT` and `INTERSECT` become: a join of what is distinct, in which the queries stay within each other.
const EXCEPT_DEPTH: u64 = 4;

/// The nodes that a subquery in an expression adds to the joins of its `SELECT`: a join, and a name for what it finds.
const SUBQUERY_DEPTH: u64 = 2;

/// Those of a subquery that a value is looked up in, which is asked for NULL, too.
const LOOKED_UP_DEPTH: u64 = 6;

/// Those of one that a tuple is looked up in, or of a list of tuples that is long enough to become one.
const TUPLE_DEPTH: u64 = 10;

/// Those of one whose values are compared by anything but `= ANY` and `<> ALL`: it is asked four times, in a `CASE`.
const QUANTIFIED_DEPTH: u64 = 24;

/// Those of a subquery each time that it is written again beside another part of a list.
const REPEATED_DEPTH: u64 = 2 * SUBQUERY_DEPTH;

/// Checks what a statement becomes.
///
/// # Errors
/// `Limit`.
pub(crate) fn check_size(statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => check(statement),
        DfStatement::Explain(explain) => check_size(&explain.statement),
        _ => Ok(()),
    }
}

fn check(statement: &Statement) -> Result<()> {
    let mut sizes =
        Sizes { open: vec![Open::default()], subqueries: 0, cases: Cases::default(), written: 0 };
    match walk(statement, &mut sizes) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => {
            let size = sizes.open.pop().map(|open| open.size).unwrap_or_default();
            sizes.check(&size)
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    tables: u64,
    expressions: u64,
    depth: u64,
}

/// A query that is being read.
#[derive(Default)]
struct Open {
    size: Size,
    /// Where the expressions of its `WITH` are, and their names.
    named: Vec<(*const Query, String)>,
    /// Those that were read.
    known: Vec<(String, Size)>,
    /// Nodes of joins that the `SELECT` becomes: one for each table, more for each subquery in an expression.
    joins: u64,
    /// The most of any of its `SELECT`s.
    joins_max: u64,
}

struct Sizes {
    open: Vec<Open>,
    /// The subqueries in expressions around what is read.
    subqueries: u64,
    cases: Cases,
    /// Expressions of the statement as it is.
    written: u64,
}

impl Sizes {
    fn check(&self, size: &Size) -> Result<()> {
        let error = |what: String| {
            Err(Error::limit(format!(
                "the statement is too large: with every name of WITH and every subquery written out it has {what}; split it, or keep \
                 what is used often in a table"
            )))
        };
        if size.tables > TABLES_MAX {
            return error(format!("more than {TABLES_MAX} tables and SELECTs"));
        }
        if size.depth > DEPTH_MAX {
            return error(format!("queries and joins more than {DEPTH_MAX} deep"));
        }
        if size.expressions.saturating_sub(self.written) > EXPRESSIONS_ADDED_MAX {
            return error(format!("{EXPRESSIONS_ADDED_MAX} expressions more than are written"));
        }
        Ok(())
    }

    /// The size of what a name of `WITH` stands for.
    fn find(&self, name: &str) -> Option<Size> {
        let mut known = self.open.iter().rev().flat_map(|open| open.known.iter().rev());
        known.find(|(known, _)| known == name).map(|(_, size)| *size)
    }

    fn last(&mut self) -> &mut Open {
        if self.open.is_empty() {
            self.open.push(Open::default());
        }
        let last = self.open.len() - 1;
        &mut self.open[last]
    }
}

impl Open {
    /// Notes that the `SELECT` becomes so much deeper.
    fn join(&mut self, nodes: u64) {
        self.joins += nodes;
        self.joins_max = self.joins_max.max(self.joins);
    }

    fn add(&mut self, size: &Size) {
        self.size.tables = self.size.tables.saturating_add(size.tables);
        self.size.expressions = self.size.expressions.saturating_add(size.expressions);
        self.size.depth = self.size.depth.max(size.depth);
    }
}

impl Visitor for Sizes {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        if query.with.as_ref().is_some_and(|with| with.cte_tables.len() > NAMES_MAX) {
            return ControlFlow::Break(Box::new(Error::limit(format!(
                "WITH has more than {NAMES_MAX} names; split the statement, or keep what is used often in a table"
            ))));
        }
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        let named = named.map(|cte| (&raw const *cte.query, plain(&cte.alias.name)));
        self.open.push(Open { named: named.collect(), ..Open::default() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        let Some(mut open) = self.open.pop() else { return ControlFlow::Continue(()) };
        let piped = query.pipe_operators.len() as u64;
        let own = SELECT_DEPTH + set_depth(&query.body) + open.joins_max + piped;
        open.size.depth = open.size.depth.saturating_add(own);
        if let Err(error) = self.check(&open.size) {
            return ControlFlow::Break(Box::new(error));
        }
        let outer = self.last();
        match outer.named.iter().find(|(named, _)| std::ptr::eq(*named, query)) {
            Some((_, name)) => outer.known.push((name.clone(), open.size)),
            None => outer.add(&open.size),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Box<Error>> {
        let open = self.last();
        open.size.tables = open.size.tables.saturating_add(1);
        open.joins = 0;
        match &select.group_by {
            GroupByExpr::Expressions(exprs, _) if product(exprs) > GROUPING_SETS_MAX => {
                ControlFlow::Break(Box::new(Error::limit(format!(
                    "GROUP BY has more than {GROUPING_SETS_MAX} grouping sets; name those that are needed in GROUPING SETS"
                ))))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<Box<Error>> {
        self.last().join(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Box<Error>> {
        let size = match relation.0.as_slice() {
            [name] => name.as_ident().and_then(|name| self.find(&plain(name))),
            _ => None,
        };
        self.last().add(&size.unwrap_or(Size { tables: 1, ..Size::default() }));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Box<Error>> {
        self.written += 1;
        let open = self.last();
        open.size.expressions = open.size.expressions.saturating_add(1);
        open.join(depth_of(expr));
        if is_subquery(expr) {
            self.subqueries += 1;
        }
        self.cases.enter(expr);
        if self.cases.asked > CASES_MAX {
            return ControlFlow::Break(Box::new(Error::limit(format!(
                "functions of CASE are within each other more than {CASES_MAX} deep; name the inner ones in a subquery: SELECT ... FROM \
                 (SELECT CASE ... END AS x, ... FROM ...)"
            ))));
        }
        match self.subqueries > SUBQUERIES_MAX {
            true => ControlFlow::Break(Box::new(Error::limit(format!(
                "subqueries in expressions are within each other more than {SUBQUERIES_MAX} deep; join their tables"
            )))),
            false => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Box<Error>> {
        if is_subquery(expr) {
            self.subqueries = self.subqueries.saturating_sub(1);
        }
        self.cases.leave(expr);
        ControlFlow::Continue(())
    }
}

/// How an expression is asked for its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// First for its type, then for NULL.
    Twice,
    /// For both at once.
    Once,
    /// As a call, which asks its arguments as a `CASE` does.
    Both,
}

impl Asked {
    /// How it is asked, if that matters.
    fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Case { .. } => Some(Self::Twice),
            Expr::Function(call) => {
                let name = call.name.0.last().and_then(|part| part.as_ident()).map(plain);
                let is_both = name.is_some_and(|name| CHOOSING.contains(&name.as_str()));
                Some(if is_both { Self::Both } else { Self::Once })
            }
            Expr::Extract { .. }
            | Expr::Substring { .. }
            | Expr::Trim { .. }
            | Expr::Position { .. }
            | Expr::Overlay { .. }
            | Expr::Ceil { .. }
            | Expr::Floor { .. }
            | Expr::BinaryOp { .. }
            | Expr::UnaryOp { .. }
            | Expr::Between { .. }
            | Expr::Like { .. }
            | Expr::ILike { .. }
            | Expr::RLike { .. }
            | Expr::SimilarTo { .. }
            | Expr::Array(_)
            | Expr::Cast { .. } => Some(Self::Once),
            _ => None,
        }
    }

    /// Whether it doubles the time for what is directly around it.
    fn doubles(self, around: Option<&Self>) -> bool {
        self != Self::Twice && matches!(around, Some(Self::Twice | Self::Both))
    }
}

/// Functions that become a `CASE`.
const CHOOSING: [&str; 6] = ["coalesce", "nvl", "nvl2", "ifnull", "nullif", "if"];

/// The `CASE`s and calls around what is read.
#[derive(Debug, Default)]
struct Cases {
    around: Vec<Asked>,
    /// The calls of which a `CASE` is around, with no other call in between.
    asked: u64,
}

impl Cases {
    fn enter(&mut self, expr: &Expr) {
        let Some(asked) = Asked::of(expr) else { return };
        self.asked += u64::from(asked.doubles(self.around.last()));
        self.around.push(asked);
    }

    fn leave(&mut self, expr: &Expr) {
        if Asked::of(expr).is_some()
            && let Some(asked) = self.around.pop()
        {
            self.asked -= u64::from(asked.doubles(self.around.last()));
        }
    }
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

/// The nodes that an expression adds to the joins of its `SELECT`.
fn depth_of(expr: &Expr) -> u64 {
    let looked_up =
        |value: &Expr| if parts_of(value).is_some() { TUPLE_DEPTH } else { LOOKED_UP_DEPTH };
    match expr {
        Expr::InSubquery { expr: value, .. } => looked_up(value),
        // The subquery on the right of these counts by itself.
        Expr::AnyOp { left, compare_op, right, .. } if is_subquery(right) => match compare_op {
            BinaryOperator::Eq => looked_up(left),
            _ => QUANTIFIED_DEPTH,
        },
        Expr::AllOp { left, compare_op, right } if is_subquery(right) => match compare_op {
            BinaryOperator::NotEq => looked_up(left),
            _ => QUANTIFIED_DEPTH,
        },
        Expr::InList { expr: value, list, .. } if parts_of(value).is_some() => {
            match list.len() > LISTED_MAX {
                true => TUPLE_DEPTH,
                // The tuple is written again for each of them.
                false => subqueries_in(value) * list.len() as u64 * REPEATED_DEPTH,
            }
        }
        Expr::Subquery(_) | Expr::Exists { .. } => SUBQUERY_DEPTH,
        _ => 0,
    }
}

fn subqueries_in(expr: &Expr) -> u64 {
    let mut found = 0;
    let _: ControlFlow<Infallible> = visit_expressions(expr, |part| {
        found += u64::from(is_subquery(part));
        ControlFlow::Continue(())
    });
    found
}

/// How many grouping sets expressions beside each other become.
fn product(exprs: &[Expr]) -> u64 {
    exprs.iter().map(grouping_sets).fold(1, u64::saturating_mul)
}

fn grouping_sets(expr: &Expr) -> u64 {
    let count = |of: &[Vec<Expr>]| u64::try_from(of.len()).unwrap_or(u64::MAX);
    match expr {
        Expr::Cube(of) => {
            1_u64.checked_shl(of.len().try_into().unwrap_or(u32::MAX)).unwrap_or(u64::MAX)
        }
        Expr::Rollup(of) => count(of).saturating_add(1),
        Expr::GroupingSets(of) => of.iter().map(|set| product(set)).fold(0, u64::saturating_add),
        _ => 1,
    }
}

/// The nodes below each other that the `UNION`s of a query become, and their like.
fn set_depth(body: &SetExpr) -> u64 {
    let mut depth = 0;
    let mut waiting = vec![body];
    while let Some(body) = waiting.pop() {
        if let SetExpr::SetOperation { op, left, right, .. } = body {
            depth += if *op == SetOperator::Union { 1 } else { EXCEPT_DEPTH };
            waiting.extend([&**left, &**right]);
        }
    }
    depth
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use datafusion::sql::parser::DFParserBuilder;
    use tidefall_types::ErrorKind;

    use super::*;
    use crate::dialect::TidefallDialect;

    fn outcome(sql: &str) -> Option<ErrorKind> {
        crate::dialect::begin(sql);
        let parser = DFParserBuilder::new(sql).with_dialect(&TidefallDialect).build();
        let statement = parser.and_then(|mut parser| parser.parse_statement());
        check_size(&statement.expect("SQL")).err().map(|error| error.kind())
    }

    /// `count` expressions of `WITH`, each of which says `query` of the one before.
    fn chain(count: usize, query: &str) -> String {
        let mut sql = "WITH c0 AS (SELECT v FROM t)".to_owned();
        for n in 1..=count {
            let query = query.replace('@', &format!("c{}", n - 1));
            write!(sql, ", c{n} AS ({query})").expect("a text");
        }
        format!("{sql} SELECT * FROM c{count}")
    }

    #[test]
    fn names_that_double_are_counted_as_often_as_they_stand() {
        for query in [
            "SELECT a.v FROM @ a, @ b",
            "SELECT v FROM @ UNION ALL SELECT v FROM @",
            "SELECT v FROM @ WHERE v IN (SELECT v FROM @)",
            "SELECT (SELECT max(v) FROM @) AS v FROM \"@\"",
            "WITH d AS (SELECT * FROM @) SELECT a.v FROM d a JOIN D b ON true",
        ] {
            assert_eq!(outcome(&chain(5, query)), None, "{query}");
            for count in [30, 150] {
                assert_eq!(outcome(&chain(count, query)), Some(ErrorKind::Limit), "{query}");
            }
        }
        let many = format!("SELECT {}", vec!["1"; 20_000].join(", "));
        let sql =
            format!("WITH c AS ({many}), d AS (SELECT * FROM c, c AS b) SELECT * FROM d, d AS e");
        assert_eq!(outcome(&sql), None);
        let sql = format!("{sql}, d AS f, d AS g, d AS h, d AS i");
        assert_eq!(outcome(&sql), Some(ErrorKind::Limit));
    }

    #[test]
    fn what_is_named_once_is_counted_once() {
        assert_eq!(outcome(&chain(100, "SELECT v FROM @")), None);
        assert_eq!(outcome(&chain(1_000, "SELECT v FROM @")), Some(ErrorKind::Limit));
        let recursive =
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT n FROM r";
        assert_eq!(outcome(recursive), None);
        let nested = |count| format!("SELECT {}1{}", "(SELECT ".repeat(count), ")".repeat(count));
        assert_eq!(outcome(&nested(12)), None);
        assert_eq!(outcome(&nested(13)), Some(ErrorKind::Limit));
        // Names end where their query does, and a nearer one hides one further off.
        let hidden = "WITH c AS (SELECT v FROM t), d AS (WITH c AS (SELECT 1) SELECT * FROM c) SELECT * FROM c, d";
        assert_eq!(outcome(hidden), None);
    }

    #[test]
    fn grouping_sets_are_counted_before_they_are_written_out() {
        for (group_by, is_taken) in [
            ("CUBE (a, b, c, d, e)", true),
            ("CUBE (a, b, c, d, e, f, g, h, i, j, k)", false),
            ("CUBE (a, b, c, d, e), CUBE (f, g, h, i, j, k)", false),
            ("ROLLUP (a, b, c, d, e, f, g, h, i, j, k)", true),
            ("GROUPING SETS ((a, b), (a), ())", true),
        ] {
            let sql = format!("SELECT count(*) FROM t GROUP BY {group_by}");
            assert_eq!(outcome(&sql).is_none(), is_taken, "{group_by}");
        }
        let all: Vec<_> = (0..70).map(|n| format!("a + {n}")).collect();
        let sql = format!("SELECT count(*) FROM t GROUP BY CUBE ({})", all.join(", "));
        assert_eq!(outcome(&sql), Some(ErrorKind::Limit));
    }

    #[test]
    fn chains_that_become_joins_are_shorter() {
        let chain = |between: &str, count| outcome(&vec!["SELECT 1"; count].join(between));
        assert_eq!(chain(" UNION ", 390), None);
        for between in [" EXCEPT ", " INTERSECT ", " EXCEPT ALL ", " MINUS "] {
            assert_eq!(chain(between, 140), None, "{between}");
            assert_eq!(chain(between, 160), Some(ErrorKind::Limit), "{between}");
        }
    }

    #[test]
    fn long_statements_are_not_large() {
        let rows = vec!["('2024-01-01', 'n', -1 + 1)"; 50_000].join(", ");
        assert_eq!(outcome(&format!("INSERT INTO t VALUES {rows}")), None);
        let list = vec!["1"; 50_000].join(", ");
        assert_eq!(outcome(&format!("SELECT 1 FROM t WHERE v IN ({list})")), None);
        let tables = vec!["t"; 1_000].join(", ");
        assert_eq!(outcome(&format!("SELECT 1 FROM {tables}")), Some(ErrorKind::Limit));
    }
}
