//! What a `GROUP BY` asks for, in terms of metrics.

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment};
use tidefall_storage::Bin;
use tidefall_types::{ColumnKind, FieldId, FieldType, TableSchema};

use crate::pushdown::{Step, column_kind, looks_at_tags_only};

/// A column of the answer by which rows are grouped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    /// A function of the tags, or a constant, evaluated once per sensor.
    Tags(Expr),
    /// The start of the time bin.
    Bin(Bin),
}

/// How a variance or standard deviation is made of the sum of squares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Spread {
    /// Divided by the count less one; null for a single value.
    Sample,
    /// Divided by the count.
    Population,
}

/// One end of the readings of a group in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Edge {
    /// The earliest.
    First,
    /// The latest.
    Last,
}

/// What `first_value` and `last_value` do with nulls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Nulls {
    /// They are skipped.
    Ignore,
    /// They count as values, as SQL has it unless told otherwise.
    Respect,
}

/// A column of the answer that aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Measure {
    /// The number of rows.
    Rows,
    /// The first or last time.
    Time(Edge),
    /// The number of values.
    Count(FieldId),
    /// The least value.
    Min(FieldId),
    /// The greatest value.
    Max(FieldId),
    /// The sum.
    Sum(FieldId),
    /// The mean.
    Mean(FieldId),
    /// The variance.
    Variance(FieldId, Spread),
    /// The standard deviation.
    Deviation(FieldId, Spread),
    /// The value at an end of time.
    Value(FieldId, Edge, Nulls),
    /// The number of values, or NULL without any: so it is told that there is no mean.
    CountOfSome(FieldId),
    /// The mean, or 0 without values: accumulators of variances have no NULL.
    Centre(FieldId),
    /// The sum of the squared differences from that.
    Squares(FieldId),
    /// The time of a [`Measure::Value`].
    TimeOf(FieldId, Edge, Nulls),
    /// Whether there is a [`Measure::Value`], which may be NULL.
    IsSet(FieldId, Nulls),
    /// That there is a [`Measure::Time`].
    IsThere,
}

impl Measure {
    /// The field whose metrics are needed.
    pub(crate) fn field(self) -> Option<FieldId> {
        match self {
            Self::Rows | Self::Time(_) | Self::IsThere => None,
            Self::Count(id)
            | Self::Min(id)
            | Self::Max(id)
            | Self::Sum(id)
            | Self::Mean(id)
            | Self::Variance(id, _)
            | Self::Deviation(id, _)
            | Self::Value(id, ..)
            | Self::CountOfSome(id)
            | Self::Centre(id)
            | Self::Squares(id)
            | Self::TimeOf(id, ..)
            | Self::IsSet(id, _) => Some(id),
        }
    }

    /// Whether it is about differences from the mean.
    pub(crate) fn is_deviation(self) -> bool {
        matches!(self, Self::Variance(..) | Self::Deviation(..) | Self::Squares(_))
    }

    /// Whether it is the least or the greatest value.
    pub(crate) fn is_extreme(self) -> bool {
        matches!(self, Self::Min(_) | Self::Max(_))
    }

    /// Whether it is about ends of time: the first or last value or time.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Value(..) | Self::Time(_) | Self::TimeOf(..))
    }

    /// What DataFusion's accumulators keep of it between the stages of an aggregation, column by column. Of times at the ends
    /// they keep more where these are asked for by an order.
    pub(crate) fn states(self, is_ordered: bool) -> Vec<Self> {
        match self {
            Self::Mean(id) => vec![Self::CountOfSome(id), Self::Sum(id)],
            Self::Variance(id, _) | Self::Deviation(id, _) => {
                vec![Self::Count(id), Self::Centre(id), Self::Squares(id)]
            }
            Self::Value(id, edge, nulls) => {
                vec![self, Self::TimeOf(id, edge, nulls), Self::IsSet(id, nulls)]
            }
            Self::Time(_) if is_ordered => vec![self, self, Self::IsThere],
            _ => vec![self],
        }
    }

    /// The measure that an aggregate expression asks for, if metrics have it.
    pub(crate) fn of(expr: &Expr, schema: &TableSchema) -> Option<Self> {
        match expr {
            Expr::Alias(alias) => Self::of(&alias.expr, schema),
            Expr::AggregateFunction(call) => of_call(call, schema),
            _ => None,
        }
    }
}

impl Group {
    /// The group that an expression asks for, if metrics have it.
    pub(crate) fn of(expr: &Expr, schema: &TableSchema) -> Option<Self> {
        if looks_at_tags_only(expr, schema) || matches!(expr, Expr::Literal(..)) {
            return Some(Self::Tags(expr.clone()));
        }
        match Step::of(expr, schema)? {
            Step::Bin(bin) => Some(Self::Bin(bin)),
            Step::Time | Step::Coarse(_) | Step::Day | Step::Zoned => None,
        }
    }
}

fn of_call(call: &AggregateFunction, schema: &TableSchema) -> Option<Measure> {
    let params = &call.params;
    let [argument] = params.args.as_slice() else { return None };
    let name = call.func.name();
    if params.filter.is_some() {
        return None;
    }
    if let "first_value" | "last_value" = name {
        return if params.distinct { None } else { of_edge(call, argument, schema) };
    }
    if !params.order_by.is_empty() || params.null_treatment.is_some() {
        return None;
    }
    // A value counts once in the extremes however often it is there.
    if params.distinct && !matches!(name, "min" | "max") {
        return None;
    }
    if let ("count", Expr::Literal(literal, _)) = (name, argument) {
        return (!literal.is_null()).then_some(Measure::Rows);
    }
    if column_kind(argument, schema) == Some(ColumnKind::Time) {
        return match name {
            "count" => Some(Measure::Rows),
            "min" => Some(Measure::Time(Edge::First)),
            "max" => Some(Measure::Time(Edge::Last)),
            _ => None,
        };
    }
    let (id, ty, cast) = numeric_field(argument, schema)?;
    let as_f64 = *cast.unwrap_or(&ty.arrow()) == DataType::Float64;
    match name {
        "count" if cast.is_none() => Some(Measure::Count(id)),
        "min" if cast.is_none() => Some(Measure::Min(id)),
        "max" if cast.is_none() => Some(Measure::Max(id)),
        "sum" if as_f64 || sums_as(ty, cast) => Some(Measure::Sum(id)),
        "avg" if as_f64 || (ty.arrow().is_integer() && cast.is_none()) => Some(Measure::Mean(id)),
        "var" if as_f64 => Some(Measure::Variance(id, Spread::Sample)),
        "var_pop" if as_f64 => Some(Measure::Variance(id, Spread::Population)),
        "stddev" if as_f64 => Some(Measure::Deviation(id, Spread::Sample)),
        "stddev_pop" if as_f64 => Some(Measure::Deviation(id, Spread::Population)),
        _ => None,
    }
}

/// `first_value(x ORDER BY time)` and `last_value(x ORDER BY time)`, also descending.
fn of_edge(call: &AggregateFunction, argument: &Expr, schema: &TableSchema) -> Option<Measure> {
    let [order] = call.params.order_by.as_slice() else { return None };
    if column_kind(&order.expr, schema) != Some(ColumnKind::Time) {
        return None;
    }
    let edge =
        if (call.func.name() == "first_value") == order.asc { Edge::First } else { Edge::Last };
    if column_kind(argument, schema) == Some(ColumnKind::Time) {
        return Some(Measure::Time(edge));
    }
    let (id, _, None) = numeric_field(argument, schema)? else { return None };
    let nulls = match call.params.null_treatment {
        Some(NullTreatment::IgnoreNulls) => Nulls::Ignore,
        _ => Nulls::Respect,
    };
    Some(Measure::Value(id, edge, nulls))
}

/// Whether the sum of a field, cast as planned, is the sum that metrics keep.
fn sums_as(ty: FieldType, cast: Option<&DataType>) -> bool {
    let kept = match ty.arrow() {
        arrow if arrow.is_signed_integer() => DataType::Int64,
        arrow if arrow.is_unsigned_integer() => DataType::UInt64,
        _ => DataType::Float64,
    };
    *cast.unwrap_or(&ty.arrow()) == kept
}

/// The numeric field that `expr` is, and the type to which it is cast, if it is.
fn numeric_field<'a>(
    expr: &'a Expr,
    schema: &TableSchema,
) -> Option<(FieldId, FieldType, Option<&'a DataType>)> {
    let (column, cast) = match expr {
        Expr::Cast(cast) => (cast.expr.as_ref(), Some(cast.field.data_type())),
        other => (other, None),
    };
    let ColumnKind::Field(id) = column_kind(column, schema)? else { return None };
    let ty = schema.fields[id.index()].ty;
    // Of timestamps there are no sums, also where a cast makes numbers of them.
    let is_kept = ty.is_numeric() || (ty == FieldType::Timestamp && cast.is_none());
    is_kept.then_some((id, ty, cast))
}
