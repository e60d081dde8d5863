//! The plan node that answers an aggregate above a join.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::plan_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, ReplaceChildrenOptions, apply_expression_roots,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase,
    FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, PlanProperties,
};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryStreamExt, stream};

use super::question::Question;
use super::small::Small;
use super::sums::Sums;

/// The small side, which all partitions of the big side wait for.
type Reading = Shared<BoxFuture<'static, Result<Arc<Small>, Arc<DataFusionError>>>>;

/// Groups rows of a big side by what a small side has beside them.
pub(super) struct GroupedJoin {
    question: Arc<Question>,
    small: Arc<dyn ExecutionPlan>,
    big: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    /// Tells the big side which rows have partners.
    filter: Option<Arc<DynamicFilterPhysicalExpr>>,
    reading: Mutex<Option<Reading>>,
    metrics: ExecutionPlanMetricsSet,
}

impl GroupedJoin {
    /// `properties` are those of the aggregate that asks the question.
    pub(super) fn new(
        question: Question,
        small: Arc<dyn ExecutionPlan>,
        big: Arc<dyn ExecutionPlan>,
        properties: Arc<PlanProperties>,
    ) -> Self {
        let question = Arc::new(question);
        let (reading, metrics) = (Mutex::default(), ExecutionPlanMetricsSet::new());
        Self { question, small, big, properties, filter: None, reading, metrics }
    }

    /// The same, as if it had never run.
    fn anew(&self) -> Self {
        Self {
            question: Arc::clone(&self.question),
            small: Arc::clone(&self.small),
            big: Arc::clone(&self.big),
            properties: Arc::clone(&self.properties),
            filter: self.filter.clone(),
            reading: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Begins to read the small side, unless that has begun.
    fn reading(&self, context: &Arc<TaskContext>) -> Result<Reading> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = &*reading {
            return Ok(reading.clone());
        }
        let rows = self.small.execute(0, Arc::clone(context))?;
        let charged = MemoryConsumer::new("GroupedJoinInput").register(context.memory_pool());
        let (question, filter) = (Arc::clone(&self.question), self.filter.clone());
        let big = self.big.schema();
        let read = async move {
            let small = Small::read(Arc::clone(&question), rows, charged).await?;
            if let Some(filter) = filter {
                filter.update(small.condition(&question, &big)?)?;
                filter.mark_complete();
            }
            Ok::<_, DataFusionError>(Arc::new(small))
        };
        let read = read.map(|small| small.map_err(Arc::new));
        Ok(reading.insert(read.boxed().shared()).clone())
    }
}

impl fmt::Debug for GroupedJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupedJoin").field("question", &self.question).finish_non_exhaustive()
    }
}

impl DisplayAs for GroupedJoin {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { keys, groups, aggregates, mode, .. } = &*self.question;
        let joined = |parts: Vec<String>| parts.join(", ");
        let keys = keys.iter().map(|(small, big)| format!("({small}, {big})"));
        let kind = if self.question.keeps_all { "Right" } else { "Inner" };
        write!(f, "GroupedJoin: mode={mode:?}, join_type={kind}, on=[{}]", joined(keys.collect()))?;
        write!(
            f,
            ", gby=[{}]",
            joined(groups.iter().map(|group| group.expr().to_string()).collect())
        )?;
        let aggregates = aggregates.iter().map(|aggregate| aggregate.function.name().to_owned());
        write!(f, ", aggr=[{}]", joined(aggregates.collect()))
    }
}

impl ExecutionPlan for GroupedJoin {
    fn name(&self) -> &str {
        "GroupedJoin"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition, Distribution::UnspecifiedDistribution]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.small, &self.big]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let filter = self.dynamic_expressions_produced();
        apply_expression_roots(self.question.expressions().chain(&filter), f)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.filter.iter().map(|filter| Arc::clone(filter) as _).collect()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([small, big]) = <[_; 2]>::try_from(children) else {
            return plan_err!("a join has two sides");
        };
        Ok(Arc::new(Self { small, big, ..self.anew() }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, anew)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { filter: None, ..self.anew() }))
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        options: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let small = ChildFilterDescription::all_unsupported(&filters);
        let mut big = ChildFilterDescription::all_unsupported(&filters);
        let is_wanted = phase == FilterPushdownPhase::Post
            && self.filter.is_none()
            && !self.question.keeps_all
            && options.optimizer.enable_join_dynamic_filter_pushdown;
        if is_wanted {
            let keys = self.question.keys.iter().map(|(_, big)| Arc::clone(big)).collect();
            big = big.with_self_filter(Arc::new(DynamicFilterPhysicalExpr::new(keys, lit(true))));
        }
        Ok(FilterDescription::new().with_child(small).with_child(big))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let filter = pushed.self_filters.get(1).and_then(|filters| filters.first());
        let filter = filter.map(|pushed| Arc::clone(&pushed.predicate));
        let propagation = FilterPushdownPropagation::if_any(pushed);
        // A source that does not take it as a filter may leave out by it what it can.
        match filter.map(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter)) {
            Some(Ok(filter)) => {
                let node: Arc<dyn ExecutionPlan> =
                    Arc::new(Self { filter: Some(filter), ..self.anew() });
                Ok(propagation.with_updated_node(node))
            }
            _ => Ok(propagation),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let reading = self.reading(&context)?;
        let big = self.big.execute(partition, Arc::clone(&context))?;
        let charged = MemoryConsumer::new(format!("GroupedJoin[{partition}]"));
        let charged = charged.register(context.memory_pool());
        let question = Arc::clone(&self.question);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let begin = async move {
            let small = reading.await;
            let small =
                small.map_err(|error: Arc<DataFusionError>| DataFusionError::from(&error))?;
            // Nothing is read where nothing has a partner.
            let big = (!small.is_empty || question.keeps_all).then_some(big);
            let sums = Sums::new(question, small, charged)?;
            Ok::<_, DataFusionError>(Run { sums: Some(sums), big, metrics })
        };
        let rows = context.session_config().batch_size().max(1);
        let answer = stream::once(begin)
            .map_ok(|run| stream::try_unfold(run, Run::next))
            .try_flatten()
            .map_ok(move |answer| stream::iter(slices(answer, rows).map(Ok::<_, DataFusionError>)))
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), answer)))
    }
}

/// An answer under way.
struct Run {
    /// None when all is told.
    sums: Option<Sums>,
    big: Option<SendableRecordBatchStream>,
    metrics: BaselineMetrics,
}

impl Run {
    /// The next groups, and what is left to do; none when all is told.
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        let Some(mut sums) = self.sums.take() else { return Ok(None) };
        while let Some(big) = &mut self.big {
            let batch = big.next().await;
            match batch {
                Some(batch) => sums.add(&batch?).await?,
                None => self.big = None,
            }
            if let Some(answer) = sums.overflow()? {
                self.metrics.record_output(answer.num_rows());
                self.sums = Some(sums);
                return Ok(Some((answer, self)));
            }
        }
        let answer = sums.finish()?;
        self.metrics.record_output(answer.as_ref().map_or(0, RecordBatch::num_rows));
        Ok(answer.map(|answer| (answer, self)))
    }
}

fn slices(batch: RecordBatch, rows: usize) -> impl Iterator<Item = RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(rows);
    starts.map(move |start| batch.slice(start, rows.min(batch.num_rows() - start)))
}
