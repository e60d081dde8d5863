//! Asks for metrics.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::TimeOrder;

use super::answers::{Answers, Share};
use super::by_time::ByTime;
use super::distinct;
use super::question::Question;
use super::spec::Group;
use crate::ahead::Batches;
use crate::arrange::ASCENDING;
use crate::live::Live;
use crate::reads::Tally;
use crate::source::{Source, SourceNode};

/// A plan for `question`, whose answer has the columns of `arrow`.
pub(super) fn plan(
    question: Arc<Question>,
    arrow: SchemaRef,
    share: Share,
) -> Result<Arc<dyn ExecutionPlan>> {
    let equivalence = ordered(&question, &arrow);
    if let Some(tag) = question.counted {
        return distinct::plan(question, tag, arrow, equivalence, share.threads);
    }
    let answers = Arc::new(Answers::of(question, arrow, share)?);
    let partitioning = answers.partitioning()?;
    let node = SourceNode::new(Arc::new(ByGroup { answers }), equivalence, None);
    Ok(Arc::new(node.with_partitioning(partitioning)))
}

/// Lines come by group, groups by their values, and by time within a group.
fn ordered(question: &Question, schema: &SchemaRef) -> EquivalenceProperties {
    let mut ordering = Vec::new();
    let mut bins = Vec::new();
    for (at, group) in question.groups.iter().enumerate() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(at).name(), at));
        let sort = PhysicalSortExpr::new(column, ASCENDING);
        match group {
            Group::Tags(_) => ordering.push(sort),
            Group::Bin(_) => bins.push(sort),
        }
    }
    ordering.extend(bins);
    EquivalenceProperties::new_with_orderings(Arc::clone(schema), [ordering])
}

/// Answers a question group after group.
#[derive(Debug)]
struct ByGroup {
    answers: Arc<Answers>,
}

impl Source for ByGroup {
    fn name(&self) -> &'static str {
        Answers::NAME
    }

    fn describe(&self) -> String {
        self.answers.describe()
    }

    fn partitions(&self) -> usize {
        self.answers.partitions()
    }

    fn rows_about(&self, partition: Option<usize>) -> Option<usize> {
        self.answers.rows_about(partition)
    }

    fn by_time(&self, column: usize, order: TimeOrder) -> Option<Arc<dyn Source>> {
        let bin = self.answers.bin_in(column)?;
        Some(Arc::new(ByTime::new(Answers::clone(&self.answers), (bin, column), order)))
    }

    fn open(
        self: Arc<Self>,
        partition: usize,
        _limit: Option<usize>,
        _live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        Arc::clone(&self.answers).batches(partition, tally)
    }
}
