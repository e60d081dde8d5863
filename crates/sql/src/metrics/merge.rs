//! Aggregates over several tables, of which metrics answer some.
//!
//! Of each table in `FROM (SELECT ... FROM a UNION ALL SELECT ... FROM b)` comes what the accumulators of an aggregate keep between
//! its stages: from metrics where they have it, by a first stage over rows where they do not. A last stage merges them. It would do
//! so likewise with what comes from another machine.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::{DFSchemaRef, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Aggregate, Expr, LogicalPlan, Union, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::aggregate::{AggregateFunctionExpr, LoweredAggregateBuilder};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::answers::Share;
use super::ask::{Meaning, leaf_below, question, replace_columns};
use super::exec;
use super::question::Question;

/// An aggregate over a union, some of whose inputs metrics answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct MergeNode {
    /// What metrics are asked for: the measures of each are what is kept between the stages.
    questions: Vec<Arc<Question>>,
    /// The inputs whose rows are read.
    rest: Option<LogicalPlan>,
    /// The columns of all inputs, in whose terms groups and aggregates are.
    columns: DFSchemaRef,
    groups: Vec<Expr>,
    aggregates: Vec<Expr>,
    schema: DFSchemaRef,
}

impl MergeNode {
    /// The same as `aggregate`, if that is over a union of which metrics answer an input.
    pub(super) fn of(aggregate: &Aggregate) -> Result<Option<Self>> {
        let Some((LogicalPlan::Union(union), meaning)) = leaf_below(&aggregate.input)? else {
            return Ok(None);
        };
        let replaced = |exprs: &[Expr], meaning: &Meaning| -> Result<Vec<Expr>> {
            exprs.iter().map(|expr| replace_columns(expr, meaning)).collect()
        };
        let groups = replaced(&aggregate.group_expr, &meaning)?;
        let aggregates = replaced(&aggregate.aggr_expr, &meaning)?;
        let (mut questions, mut rest) = (Vec::new(), Vec::new());
        for input in &union.inputs {
            let asked = match meaning_in(input, union) {
                Some(meaning) => {
                    let groups = replaced(&groups, &meaning)?;
                    question(input, &groups, &replaced(&aggregates, &meaning)?)?
                }
                None => None,
            };
            match asked {
                Some(asked) => questions.push(Arc::new(of_states(asked, &aggregates))),
                None => rest.push(Arc::clone(input)),
            }
        }
        if questions.is_empty() {
            return Ok(None);
        }
        let rest = match &rest[..] {
            [] => None,
            [one] => Some(LogicalPlan::clone(one)),
            _ => {
                Some(LogicalPlan::Union(Union { inputs: rest, schema: Arc::clone(&union.schema) }))
            }
        };
        let (columns, schema) = (Arc::clone(&union.schema), Arc::clone(&aggregate.schema));
        Ok(Some(Self { questions, rest, columns, groups, aggregates, schema }))
    }
}

/// What the columns of a union are in one of its inputs, if they have the same types there.
fn meaning_in(input: &LogicalPlan, union: &Union) -> Option<Meaning> {
    let types = |plan: &DFSchemaRef| {
        plan.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>()
    };
    let pairs = union.schema.columns().into_iter().zip(input.schema().columns());
    (types(&union.schema) == types(input.schema()))
        .then(|| pairs.map(|(outer, inner)| (outer, Expr::Column(inner))).collect())
}

/// The question for what is kept of `aggregates` between the stages.
fn of_states(question: Question, aggregates: &[Expr]) -> Question {
    let states = question.measures.iter().zip(aggregates);
    let states = states.flat_map(|(measure, expr)| measure.states(is_ordered(expr)));
    Question { measures: states.collect(), ..question }
}

fn is_ordered(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_ordered(&alias.expr),
        Expr::AggregateFunction(call) => !call.params.order_by.is_empty(),
        _ => false,
    }
}

impl PartialOrd for MergeNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for MergeNode {
    fn name(&self) -> &str {
        "TidefallMerge"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.rest.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.questions.iter().map(|question| question.view.schema().name.as_str());
        let tables: Vec<&str> = tables.collect();
        let names = self.schema.fields().iter().map(|field| field.name().as_str());
        let names: Vec<&str> = names.collect();
        let (groups, aggregates) = names.split_at(self.groups.len());
        let (tables, groups) = (tables.join(", "), groups.join(", "));
        let aggregates = aggregates.join(", ");
        write!(f, "TidefallMerge: metrics=[{tables}], groupBy=[{groups}], aggr=[{aggregates}]")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { rest: inputs.into_iter().next(), ..self.clone() })
    }
}

/// Plans what is merged.
pub(crate) struct MergePlanner;

#[async_trait]
impl ExtensionPlanner for MergePlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<MergeNode>() else { return Ok(None) };
        node.plan(physical_inputs.first(), session, context).map(Some)
    }
}

impl MergeNode {
    fn plan(
        &self,
        rest: Option<&Arc<dyn ExecutionPlan>>,
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Of all inputs: what one of them never has as NULL may be so in another.
        let input = Arc::clone(self.columns.inner());
        let Groups { first: groups, last: last_groups } = self.groups(rest, session, context)?;
        let mut aggregates = self.accumulators(&input, session, context)?;
        let filters = vec![None; aggregates.len()];
        let mut parts: Vec<Arc<dyn ExecutionPlan>> = Vec::with_capacity(self.questions.len() + 1);
        if let Some(rest) = rest {
            let (rest, schema) = (Arc::clone(rest), Arc::clone(&input));
            let first = AggregateExec::try_new(
                AggregateMode::Partial,
                groups.clone(),
                aggregates,
                filters.clone(),
                rest,
                schema,
            )?;
            // They may be others by now, which need less order.
            aggregates = first.aggr_expr().to_vec();
            parts.push(Arc::new(first));
        }
        let (states, partitions) =
            (states(&groups, &aggregates, &input)?, session.config().target_partitions());
        let shares = Share::among(&self.questions, partitions);
        for (question, share) in self.questions.iter().zip(shares) {
            if question.groups.len() + question.measures.len() != states.fields().len() {
                return internal_err!("what is kept between the stages has other columns");
            }
            parts.push(exec::plan(Arc::clone(question), Arc::clone(&states), share)?);
        }
        let is_parted =
            !groups.is_empty() && partitions > 1 && session.config().repartition_aggregations();
        let last = match is_parted {
            true => AggregateMode::FinalPartitioned,
            false => AggregateMode::Final,
        };
        let parts = UnionExec::try_new(parts)?;
        Ok(Arc::new(AggregateExec::try_new(last, last_groups, aggregates, filters, parts, input)?))
    }

    fn groups(
        &self,
        rest: Option<&Arc<dyn ExecutionPlan>>,
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Groups> {
        if self.groups.is_empty() {
            let none = PhysicalGroupBy::new(vec![], vec![], vec![], false);
            return Ok(Groups { last: none.as_final(), first: none });
        }
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (place, (expr, field)) in self.groups.iter().zip(self.schema.fields()).enumerate() {
            let props = session.execution_props();
            let expr = create_physical_expr(expr, &self.columns, props, context)?;
            let name = match rest {
                Some(rest) if !is_named(&expr, field.name(), &rest.schema()) => {
                    self.free_name(place, &rest.schema())
                }
                _ => field.name().clone(),
            };
            let between: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&name, place));
            first.push((expr, name));
            last.push((between, field.name().clone()));
        }
        let (first, last) = (PhysicalGroupBy::new_single(first), PhysicalGroupBy::new_single(last));
        Ok(Groups { first, last })
    }

    /// A name that no column has which goes into the first stage or comes out of the last.
    fn free_name(&self, place: usize, rest: &SchemaRef) -> String {
        let mut name = format!("__group_{place}");
        while rest.index_of(&name).is_ok() || self.schema.has_column_with_unqualified_name(&name) {
            name.push('_');
        }
        name
    }

    fn accumulators(
        &self,
        input: &SchemaRef,
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Vec<Arc<AggregateFunctionExpr>>> {
        let named = self.aggregates.iter().zip(self.schema.fields().iter().skip(self.groups.len()));
        let lowered = named.map(|(expr, field)| {
            let props = session.execution_props();
            let builder = LoweredAggregateBuilder::new(expr, &self.columns, input, props, context);
            Ok(builder.with_name(field.name()).build()?.aggregate)
        });
        lowered.collect()
    }
}

/// The groups of both stages.
///
/// A filter on a column of a stage is handed down to the column of the same name below it, whatever that is. So a group has its
/// name between the stages only where it is the column that has it below them.
struct Groups {
    first: PhysicalGroupBy,
    last: PhysicalGroupBy,
}

/// Whether an expression is the column that is called so.
fn is_named(expr: &Arc<dyn PhysicalExpr>, name: &str, columns: &SchemaRef) -> bool {
    let column = expr.downcast_ref::<Column>();
    column.is_some_and(|column| columns.index_of(name).ok() == Some(column.index()))
}

/// The columns of what is kept between the stages.
fn states(
    groups: &PhysicalGroupBy,
    aggregates: &[Arc<AggregateFunctionExpr>],
    input: &SchemaRef,
) -> Result<SchemaRef> {
    let mut fields: Vec<Arc<Field>> = groups.group_schema(input)?.fields().to_vec();
    for aggregate in aggregates {
        fields.extend(aggregate.state_fields()?);
    }
    Ok(Arc::new(Schema::new(fields)))
}
