//! Tables that are joined one behind the other, and the columns that they have in common.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};
use tidefall_types::{Error, Result};

use super::{constraint, is_same, name_values, refused, unique};
use crate::ast::call;

/// The name of a table, as it stands before its columns.
type Name = Vec<Ident>;

/// The tables of `a JOIN b USING (...) JOIN (c JOIN d ...) ...`.
pub(super) struct Chain {
    tables: Vec<Table>,
    common: Vec<Common>,
}

/// A table whose columns are shown.
struct Table {
    name: Option<Name>,
    /// Its columns that are shown as common ones.
    common: Vec<Ident>,
    /// Which of the common columns of the chain are shown before it.
    before: Vec<usize>,
}

/// A common column, and the columns whose first value it is.
struct Common {
    column: Ident,
    values: Vec<Expr>,
    /// Whether it is part of another one, of the tables on the left.
    is_part: bool,
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

    /// Whether more than two tables have a column in common, of which DataFusion knows two, or joins are joined.
    pub(super) fn repeats(from: &TableWithJoins) -> bool {
        if from.joins.iter().any(|join| matches!(join.relation, TableFactor::NestedJoin { .. })) {
            return true;
        }
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
        let first = Table { name: name_of(first), common: Vec::new(), before: Vec::new() };
        Self { tables: vec![first], common: Vec::new() }
    }

    fn qualify(&mut self, join: &mut Join) {
        let right = Self::begin(&join.relation);
        self.name_in_condition(join, &right);
        let keeps_left = is_semi(&join.join_operator);
        let is_inner = matches!(join.join_operator, JoinOperator::Join(_) | JoinOperator::Inner(_));
        if let Some((JoinConstraint::Using(names), _)) = constraint(&mut join.join_operator) {
            for column in names.iter().filter_map(column_of) {
                if self.common.iter().any(|common| is_same(&common.column, column)) {
                    continue;
                }
                // Both sides of an inner join are the same, and the right one is known by name.
                let table = match self.tables.as_slice() {
                    [Table { name: Some(left), .. }] => Some(left),
                    _ if is_inner => right.tables.first().and_then(|right| right.name.as_ref()),
                    _ => None,
                };
                if let Some(table) = table {
                    let values = vec![at(table, column)];
                    self.common.push(Common { column: column.clone(), values, is_part: false });
                }
            }
        }
        if !keeps_left {
            self.append(right);
        }
    }

    fn write_out(&mut self, join: &mut Join) -> Result<()> {
        let mut right = match &mut join.relation {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                Self::written_out(table_with_joins)?
            }
            table => Self::begin(table),
        };
        self.name_in_condition(join, &right);
        let keeps_left = is_semi(&join.join_operator);
        let is_full = matches!(join.join_operator, JoinOperator::FullOuter(_));
        if let Some((constraint, is_outer)) = constraint(&mut join.join_operator) {
            match constraint {
                JoinConstraint::Using(names) => {
                    let columns: Option<Vec<&Ident>> = names.iter().map(column_of).collect();
                    let columns =
                        columns.ok_or_else(|| Error::invalid("USING wants names of columns"))?;
                    let mut all = None;
                    for column in columns {
                        let (left, other) = (self.side(column)?, right.side(column)?);
                        let (left, other) = (&mut self.common[left], &mut right.common[other]);
                        let equal = equal(left.value(), other.value());
                        all = Some(match all {
                            Some(all) => and(all, equal),
                            None => equal,
                        });
                        other.is_part = true;
                        match (is_full, is_outer) {
                            (true, _) => left.values.extend(other.values.iter().cloned()),
                            (false, true) => left.values.clone_from(&other.values),
                            (false, false) => {}
                        }
                    }
                    *constraint = all.map_or(JoinConstraint::None, JoinConstraint::On);
                }
                JoinConstraint::Natural => {
                    return Err(refused("NATURAL RIGHT or FULL JOIN names no columns"));
                }
                JoinConstraint::On(_) | JoinConstraint::None => {}
            }
        }
        if !keeps_left {
            self.append(right);
        }
        Ok(())
    }

    /// The tables of another chain behind those of this one.
    fn append(&mut self, right: Self) {
        let known = self.common.len();
        self.common.extend(right.common);
        self.tables.extend(right.tables.into_iter().map(|mut table| {
            table.before.iter_mut().for_each(|index| *index += known);
            table
        }));
    }

    /// Names common columns in the `ON` of a join behind them.
    fn name_in_condition(&self, join: &mut Join, right: &Self) {
        if let Some((JoinConstraint::On(condition), _)) = constraint(&mut join.join_operator) {
            name_values(condition, &unique(self.values().chain(right.values()).collect()));
        }
    }

    /// Which common column of this side of a join is the one of this name.
    fn side(&mut self, column: &Ident) -> Result<usize> {
        let is_it = |common: &Common| !common.is_part && is_same(&common.column, column);
        let mut found = (0..self.common.len()).filter(|index| is_it(&self.common[*index]));
        let (first, second) = (found.next(), found.next());
        match (first, second, self.tables.as_mut_slice()) {
            (Some(index), None, _) => Ok(index),
            (None, _, [Table { name: Some(table), common, before }]) => {
                let (index, values) = (self.common.len(), vec![at(table, column)]);
                common.push(column.clone());
                before.push(index);
                self.common.push(Common { column: column.clone(), values, is_part: false });
                Ok(index)
            }
            (None, _, [_]) => Err(refused("RIGHT or FULL JOIN with USING wants tables with names")),
            _ => Err(refused(&format!(
                "RIGHT or FULL JOIN takes columns for USING that the first two tables have in common, not {column}"
            ))),
        }
    }

    /// The common columns and what they are.
    pub(super) fn values(&self) -> impl Iterator<Item = (Ident, Expr)> {
        let shown = self.common.iter().filter(|common| !common.is_part);
        shown.map(|common| (common.column.clone(), common.value()))
    }

    /// Whether some items show a common column as one of all columns of its table.
    pub(super) fn shows(&self, items: &[SelectItem], column: &Ident) -> bool {
        let is_shown = |name: &Name| {
            items.iter().any(|item| match item {
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(shown),
                    _,
                ) => *shown == ObjectName::from(name.clone()),
                _ => false,
            })
        };
        self.tables.iter().any(|Table { name, common, .. }| {
            common.iter().any(|common| is_same(common, column))
                && name.as_ref().is_some_and(is_shown)
        })
    }

    /// All columns, as `*` shows them.
    pub(super) fn show_all(&self, items: &mut Vec<SelectItem>) -> Result<()> {
        for Table { name, common, before } in &self.tables {
            let before = before.iter().map(|index| &self.common[*index]);
            items.extend(before.filter(|common| !common.is_part).map(|common| {
                SelectItem::ExprWithAlias { expr: common.value(), alias: common.column.clone() }
            }));
            let Some(name) = name else {
                return Err(refused(
                    "RIGHT or FULL JOIN with USING shows all columns of tables with names",
                ));
            };
            let columns = common.iter().cloned().map(|name| ObjectName::from(vec![name]));
            let exclude = ExcludeSelectItem::Multiple(columns.collect());
            let options = WildcardAdditionalOptions {
                opt_exclude: (!common.is_empty()).then_some(exclude),
                ..WildcardAdditionalOptions::default()
            };
            let table = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(name.clone()));
            items.push(SelectItem::QualifiedWildcard(table, options));
        }
        Ok(())
    }
}

impl Common {
    /// The first value that is there.
    fn value(&self) -> Expr {
        match self.values.as_slice() {
            [only] => only.clone(),
            values => call("coalesce", values.iter().cloned()),
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
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(vec![alias.name.clone()]),
        TableFactor::Table { name, args: None, .. } => {
            name.0.iter().map(|part| part.as_ident().cloned()).collect()
        }
        _ => None,
    }
}

pub(super) fn column_of(name: &ObjectName) -> Option<&Ident> {
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
