//! Tables that are joined one behind the other, and the columns that they have in common.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};
use tidefall_types::{Error, Result};

use super::{constraint, is_same, name_values, refused};
use crate::ast::call;

/// The name of a table, as it stands before its columns.
type Name = Vec<Ident>;

/// The tables of `a JOIN b USING (...) JOIN c ...`.
pub(super) struct Chain {
    /// The tables whose columns are shown, each with the common columns that it has.
    tables: Vec<(Option<Name>, Vec<Ident>)>,
    common: Vec<Common>,
}

/// A common column, and the tables whose first value it is.
struct Common {
    column: Ident,
    tables: Vec<Name>,
}

impl Chain {
    /// Joins that stay as they are; their conditions name the common columns in front of them.
    pub(super) fn qualified(from: &mut TableWithJoins) -> Self {
        let mut chain = Self::begin(&from.relation);
        for join in &mut from.joins {
            chain.qualify(join);
        }
        chain
    }

    /// Joins with conditions instead of common columns.
    pub(super) fn written_out(from: &mut TableWithJoins) -> Result<Self> {
        let mut chain = Self::begin(&from.relation);
        for join in &mut from.joins {
            chain.write_out(join)?;
        }
        Ok(chain)
    }

    /// Whether more than two tables have a column in common, of which DataFusion knows two.
    pub(super) fn repeats(from: &TableWithJoins) -> bool {
        let mut seen: Vec<&Ident> = Vec::new();
        let operators = from.joins.iter().map(|join| &join.join_operator);
        let columns = operators.filter_map(|operator| match operator {
            JoinOperator::Join(JoinConstraint::Using(names))
            | JoinOperator::Inner(JoinConstraint::Using(names))
            | JoinOperator::Left(JoinConstraint::Using(names))
            | JoinOperator::LeftOuter(JoinConstraint::Using(names)) => Some(names),
            _ => None,
        });
        columns.flatten().filter_map(column_of).any(|column| {
            let is_known = seen.iter().any(|known| is_same(known, column));
            seen.push(column);
            is_known
        })
    }

    fn begin(first: &TableFactor) -> Self {
        Self { tables: vec![(name_of(first), Vec::new())], common: Vec::new() }
    }

    fn qualify(&mut self, join: &mut Join) {
        self.name_in_condition(join);
        let right = name_of(&join.relation);
        let keeps_left = is_semi(&join.join_operator);
        let is_inner = matches!(join.join_operator, JoinOperator::Join(_) | JoinOperator::Inner(_));
        if let Some((JoinConstraint::Using(names), _)) = constraint(&mut join.join_operator) {
            for column in names.iter().filter_map(column_of) {
                if self.common_at(column).is_some() {
                    continue;
                }
                // Both sides of an inner join are the same, and the right one is known by name.
                let table = match self.tables.as_slice() {
                    [(Some(left), _)] => Some(left.clone()),
                    _ if is_inner => right.clone(),
                    _ => None,
                };
                if let Some(table) = table {
                    self.common.push(Common { column: column.clone(), tables: vec![table] });
                }
            }
        }
        if !keeps_left {
            self.tables.push((right, Vec::new()));
        }
    }

    fn write_out(&mut self, join: &mut Join) -> Result<()> {
        self.name_in_condition(join);
        let right = name_of(&join.relation);
        let keeps_left = is_semi(&join.join_operator);
        let is_full = matches!(join.join_operator, JoinOperator::FullOuter(_));
        let mut with_right = Vec::new();
        if let Some((constraint, is_outer)) = constraint(&mut join.join_operator) {
            match constraint {
                JoinConstraint::Using(names) => {
                    let Some(right) = &right else {
                        return Err(refused(
                            "RIGHT or FULL JOIN with USING wants tables with names",
                        ));
                    };
                    let columns: Option<Vec<Ident>> =
                        names.iter().map(|name| column_of(name).cloned()).collect();
                    let columns =
                        columns.ok_or_else(|| Error::invalid("USING wants names of columns"))?;
                    let mut all = None;
                    for column in &columns {
                        let common = self.common(column)?;
                        let equal = equal(common.value(), at(right, column));
                        all = Some(match all {
                            Some(all) => and(all, equal),
                            None => equal,
                        });
                        match (is_full, is_outer) {
                            (true, _) => common.tables.push(right.clone()),
                            (false, true) => common.tables = vec![right.clone()],
                            (false, false) => {}
                        }
                    }
                    *constraint = all.map_or(JoinConstraint::None, JoinConstraint::On);
                    with_right = columns;
                }
                JoinConstraint::Natural => {
                    return Err(refused("NATURAL RIGHT or FULL JOIN names no columns"));
                }
                JoinConstraint::On(_) | JoinConstraint::None => {}
            }
        }
        if !keeps_left {
            self.tables.push((right, with_right));
        }
        Ok(())
    }

    /// Names common columns in the `ON` of a join behind them.
    fn name_in_condition(&self, join: &mut Join) {
        if let Some((JoinConstraint::On(condition), _)) = constraint(&mut join.join_operator) {
            let values: Vec<(Ident, Expr)> = self.values().collect();
            name_values(condition, &values);
        }
    }

    fn common_at(&self, column: &Ident) -> Option<usize> {
        self.common.iter().position(|common| is_same(&common.column, column))
    }

    /// A column that the tables so far have in common with the next one.
    fn common(&mut self, column: &Ident) -> Result<&mut Common> {
        let index = match self.common_at(column) {
            Some(index) => index,
            None => match self.tables.as_mut_slice() {
                [(Some(left), has)] => {
                    has.push(column.clone());
                    let tables = vec![left.clone()];
                    self.common.push(Common { column: column.clone(), tables });
                    self.common.len() - 1
                }
                [_] => {
                    return Err(refused("RIGHT or FULL JOIN with USING wants tables with names"));
                }
                _ => {
                    return Err(refused(&format!(
                        "RIGHT or FULL JOIN takes columns for USING that the first two tables have in common, not {column}"
                    )));
                }
            },
        };
        Ok(&mut self.common[index])
    }

    /// The common columns and what they are.
    pub(super) fn values(&self) -> impl Iterator<Item = (Ident, Expr)> {
        self.common.iter().map(|common| (common.column.clone(), common.value()))
    }

    /// All columns, as `*` shows them.
    pub(super) fn show_all(&self, items: &mut Vec<SelectItem>) {
        let named = self.values().map(|(alias, expr)| SelectItem::ExprWithAlias { expr, alias });
        items.extend(named);
        for (name, common) in &self.tables {
            let Some(name) = name else { continue };
            let columns = common.iter().cloned().map(|name| ObjectName::from(vec![name]));
            let exclude = ExcludeSelectItem::Multiple(columns.collect());
            let options = WildcardAdditionalOptions {
                opt_exclude: (!common.is_empty()).then_some(exclude),
                ..WildcardAdditionalOptions::default()
            };
            let table = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(name.clone()));
            items.push(SelectItem::QualifiedWildcard(table, options));
        }
    }
}

impl Common {
    /// The first value of the tables.
    fn value(&self) -> Expr {
        let mut columns = self.tables.iter().map(|table| at(table, &self.column));
        let first = columns.next();
        match first {
            Some(first) if self.tables.len() == 1 => first,
            first => call("coalesce", first.into_iter().chain(columns)),
        }
    }
}

const fn is_semi(operator: &JoinOperator) -> bool {
    matches!(operator, JoinOperator::LeftSemi(_) | JoinOperator::LeftAnti(_))
}

/// The name by which the columns of a table are called.
fn name_of(factor: &TableFactor) -> Option<Name> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(vec![alias.name.clone()]),
        TableFactor::Table { name, args: None, .. } => {
            name.0.iter().map(|part| part.as_ident().cloned()).collect()
        }
        _ => None,
    }
}

fn column_of(name: &ObjectName) -> Option<&Ident> {
    match name.0.as_slice() {
        [part] => part.as_ident(),
        _ => None,
    }
}

fn at(table: &Name, column: &Ident) -> Expr {
    Expr::CompoundIdentifier(table.iter().chain([column]).cloned().collect())
}

fn equal(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::Eq, right: Box::new(right) }
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
}
