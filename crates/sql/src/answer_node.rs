//! A leaf of the logical plan that stands for an aggregate and all below it.

use std::cmp::Ordering;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DFSchemaRef;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

/// What is asked in the place of an aggregate. Equal ones have equal answers.
pub(crate) trait Asked: Debug + Eq + Hash + Send + Sync + 'static {
    /// The name of the node.
    const NAME: &'static str;

    /// What `EXPLAIN` says of it, with the names of the columns of its answer.
    fn explain(&self, columns: &[&str]) -> String;
}

/// The question, and the columns of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AnswerNode<Q> {
    question: Arc<Q>,
    schema: DFSchemaRef,
}

impl<Q> AnswerNode<Q> {
    /// A node whose answer has `schema`.
    pub(crate) fn new(question: Q, schema: DFSchemaRef) -> Self {
        Self { question: Arc::new(question), schema }
    }

    /// What is asked.
    pub(crate) const fn question(&self) -> &Arc<Q> {
        &self.question
    }

    /// The columns of its answer.
    pub(crate) fn arrow(&self) -> SchemaRef {
        Arc::clone(self.schema.inner())
    }
}

impl<Q: Asked> PartialOrd for AnswerNode<Q> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl<Q: Asked> UserDefinedLogicalNodeCore for AnswerNode<Q> {
    fn name(&self) -> &str {
        Q::NAME
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.schema.fields().iter().map(|field| field.name().as_str());
        let columns: Vec<&str> = columns.collect();
        write!(f, "{}: {}", Q::NAME, self.question.explain(&columns))
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, _: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { question: Arc::clone(&self.question), schema: Arc::clone(&self.schema) })
    }
}
