//! What is asked of a join and an aggregate above it, by the sides of the join.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{JoinType, NullEquality, internal_datafusion_err};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

use super::keys::Kind;
use crate::tree::Tree;

type Expr = Arc<dyn PhysicalExpr>;

/// What is computed of the rows of a join, without making them.
#[derive(Debug)]
pub(super) struct Question {
    /// The keys of the small side, and those of the big side that equal them.
    pub(super) keys: Vec<(Expr, Expr)>,
    pub(super) kinds: Vec<Kind>,
    /// Whether rows of the big side without a partner count, too, beside a row of NULLs.
    pub(super) keeps_all: bool,
    /// By what rows are grouped.
    pub(super) groups: Vec<Group>,
    pub(super) group_schema: SchemaRef,
    /// Columns of the big side that groups and aggregates look at.
    pub(super) columns: Vec<usize>,
    pub(super) columns_schema: SchemaRef,
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) mode: AggregateMode,
    pub(super) schema: SchemaRef,
}

/// What rows are grouped by.
#[derive(Debug)]
pub(super) enum Group {
    /// It looks at columns of the small side.
    Small(Expr),
    /// It looks at the columns in [`Question::columns`].
    Big(Expr, Kind),
}

impl Group {
    pub(super) const fn expr(&self) -> &Expr {
        match self {
            Self::Small(expr) | Self::Big(expr, _) => expr,
        }
    }
}

/// An aggregate of columns of the big side.
#[derive(Debug)]
pub(super) struct Aggregate {
    pub(super) function: Arc<AggregateFunctionExpr>,
    /// These look at the columns in [`Question::columns`].
    pub(super) arguments: Vec<Expr>,
    pub(super) filter: Option<Expr>,
}

impl Question {
    /// The question that an aggregate asks of the rows of a join below it, and that join; none if there is no such join or
    /// the question has not the form for which this is made.
    pub(super) fn of(aggregate: &AggregateExec) -> Result<Option<(Self, &HashJoinExec)>> {
        let Some(below) = Below::of(aggregate.input()) else { return Ok(None) };
        if !is_plain(aggregate) || !below.is_plain() {
            return Ok(None);
        }
        let Some(kinds) = below.kinds()? else { return Ok(None) };
        let (mut columns, mut aggregates, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        let group_schema = aggregate.group_expr().group_schema(&aggregate.input().schema())?;
        for ((group, _), field) in aggregate.group_expr().expr().iter().zip(group_schema.fields()) {
            if let Some(group) = below.of_small(group)? {
                groups.push(Group::Small(group));
                continue;
            }
            // There may be any number of these, and only a first aggregate may give away what it has.
            let is_first = *aggregate.mode() == AggregateMode::Partial;
            let kind = Kind::of(field.data_type()).filter(|_| is_first);
            match (below.of_big(group, &mut columns)?, kind) {
                (Some(group), Some(kind)) => groups.push(Group::Big(group, kind)),
                _ => return Ok(None),
            }
        }
        for (function, filter) in aggregate.aggr_expr().iter().zip(aggregate.filter_expr()) {
            if !is_bounded(function)? {
                return Ok(None);
            }
            let mut of_big = |expr: &Expr| below.of_big(expr, &mut columns);
            let mut arguments = Vec::new();
            for argument in function.expressions() {
                let Some(argument) = of_big(&argument)? else { return Ok(None) };
                arguments.push(argument);
            }
            let filter = match filter {
                Some(filter) => match of_big(filter)? {
                    Some(filter) => Some(filter),
                    None => return Ok(None),
                },
                None => None,
            };
            aggregates.push(Aggregate { function: Arc::clone(function), arguments, filter });
        }
        let columns_schema = below.join.right().schema().project(&columns)?;
        let question = Self {
            keys: below.join.on().to_vec(),
            kinds,
            keeps_all: *below.join.join_type() == JoinType::Right,
            groups,
            group_schema,
            columns,
            columns_schema: Arc::new(with_nulls(&columns_schema)),
            aggregates,
            mode: *aggregate.mode(),
            schema: aggregate.schema(),
        };
        Ok(Some((question, below.join)))
    }

    /// The groups of columns of the small side, and their places among all.
    pub(super) fn small_groups(&self) -> impl Iterator<Item = (usize, &Expr)> {
        self.groups.iter().enumerate().filter_map(|(place, group)| match group {
            Group::Small(expr) => Some((place, expr)),
            Group::Big(..) => None,
        })
    }

    /// The groups of columns of the big side.
    pub(super) fn big_groups(&self) -> impl Iterator<Item = (&Expr, &Kind)> {
        self.groups.iter().filter_map(|group| match group {
            Group::Small(_) => None,
            Group::Big(expr, kind) => Some((expr, kind)),
        })
    }

    /// All expressions, whichever side they look at.
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let keys = self.keys.iter().flat_map(|(small, big)| [small, big]);
        let aggregates = self.aggregates.iter();
        let aggregates =
            aggregates.flat_map(|aggregate| aggregate.arguments.iter().chain(&aggregate.filter));
        keys.chain(self.groups.iter().map(Group::expr)).chain(aggregates)
    }
}

/// The same columns, each of which may be NULL.
pub(super) fn with_nulls(schema: &Schema) -> Schema {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Schema::new(fields.collect::<Vec<Field>>())
}

/// Whether an aggregate takes rows as they come, and tells nothing of their order.
fn is_plain(aggregate: &AggregateExec) -> bool {
    let takes_rows = matches!(
        aggregate.mode(),
        AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
    );
    takes_rows
        && aggregate.group_expr().is_single()
        && aggregate.limit_options().is_none()
        && aggregate.dynamic_expressions_produced().is_empty()
        && *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.properties().output_ordering().is_none()
}

/// Whether the states of groups take no more memory the more rows there are, and rows may come in any order.
fn is_bounded(function: &AggregateFunctionExpr) -> Result<bool> {
    let is_any_order = !function.is_distinct() && function.order_bys().is_empty();
    if !is_any_order || !function.groups_accumulator_supported() {
        return Ok(false);
    }
    let states = function.state_fields()?;
    Ok(states.iter().all(|state| state.data_type().primitive_width().is_some()))
}

/// A join, and what is made of its rows above it.
struct Below<'a> {
    /// From top to bottom.
    projections: Vec<&'a ProjectionExec>,
    join: &'a HashJoinExec,
}

impl<'a> Below<'a> {
    fn of(mut plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let mut projections = Vec::new();
        while let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            projections.push(projection);
            plan = projection.input();
        }
        Some(Self { projections, join: plan.downcast_ref()? })
    }

    fn is_plain(&self) -> bool {
        let join = self.join;
        matches!(join.join_type(), JoinType::Inner | JoinType::Right)
            && *join.partition_mode() == PartitionMode::CollectLeft
            && join.filter().is_none()
            && join.fetch().is_none()
            && join.null_equality() == NullEquality::NullEqualsNothing
    }

    fn kinds(&self) -> Result<Option<Vec<Kind>>> {
        let (small, big) = (self.join.left().schema(), self.join.right().schema());
        let mut kinds = Vec::new();
        for (of_small, of_big) in self.join.on() {
            let kind = Kind::of(&of_small.data_type(&small)?);
            let Some(kind) = kind.filter(|_| is_steady(of_small) && is_steady(of_big)) else {
                return Ok(None);
            };
            if Kind::of(&of_big.data_type(&big)?).as_ref() != Some(&kind) {
                return Ok(None);
            }
            kinds.push(kind);
        }
        Ok((!kinds.is_empty()).then_some(kinds))
    }

    /// The same in columns of the small side, if it looks at no others.
    fn of_small(&self, expr: &Expr) -> Result<Option<Expr>> {
        self.of_sides(expr, |side| match side {
            Side::Small(column) => Some(column),
            Side::Big(_) => None,
        })
    }

    /// The same in columns of the big side, if it looks at no others. The columns are put behind those in `columns`.
    fn of_big(&self, expr: &Expr, columns: &mut Vec<usize>) -> Result<Option<Expr>> {
        self.of_sides(expr, |side| {
            let Side::Big(column) = side else { return None };
            let place = columns.iter().position(|known| *known == column.index());
            let place = place.unwrap_or_else(|| {
                columns.push(column.index());
                columns.len() - 1
            });
            Some(Column::new(column.name(), place))
        })
    }

    fn of_sides(
        &self,
        expr: &Expr,
        mut chosen: impl FnMut(Side) -> Option<Column>,
    ) -> Result<Option<Expr>> {
        let mut expr = Arc::clone(expr);
        for projection in &self.projections {
            expr = with_columns(expr, |column| {
                let shown = projection.expr().get(column.index());
                shown.map(|shown| Arc::clone(&shown.expr)).ok_or_else(|| unknown(column))
            })?;
        }
        if !is_steady(&expr) {
            return Ok(None);
        }
        let mut is_chosen = true;
        let expr = with_columns(expr, |column| {
            let chosen = chosen(self.side(column)?);
            is_chosen &= chosen.is_some();
            Ok(Arc::new(chosen.unwrap_or_else(|| column.clone())))
        })?;
        Ok(is_chosen.then_some(expr))
    }

    /// Where a column of the join comes from.
    fn side(&self, column: &Column) -> Result<Side> {
        let index = match &self.join.projection {
            Some(projection) => projection.get(column.index()).copied(),
            None => Some(column.index()),
        };
        let index = index.ok_or_else(|| unknown(column))?;
        Ok(match index.checked_sub(self.join.left().schema().fields().len()) {
            None => Side::Small(Column::new(column.name(), index)),
            Some(index) => Side::Big(Column::new(column.name(), index)),
        })
    }
}

enum Side {
    Small(Column),
    Big(Column),
}

fn unknown(column: &Column) -> datafusion::error::DataFusionError {
    internal_datafusion_err!("no column {column} below an aggregate")
}

/// Whether an expression has the same short value whenever it is computed.
fn is_steady(expr: &Expr) -> bool {
    let has_subquery = expr.exists(|part| Ok(part.is::<ScalarSubqueryExpr>()));
    !is_volatile(expr) && matches!(has_subquery, Ok(false))
}

fn with_columns(expr: Expr, mut with: impl FnMut(&Column) -> Result<Expr>) -> Result<Expr> {
    expr.transform_up(|part| {
        Ok(match part.downcast_ref::<Column>() {
            Some(column) => Transformed::yes(with(column)?),
            None => Transformed::no(part),
        })
    })
    .data()
}
