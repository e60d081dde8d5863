//! Rules that stand in the place of one of DataFusion's, which they run.

use std::sync::Arc;

use datafusion::physical_optimizer::PhysicalOptimizerRule;

/// The name and the order of the rule of DataFusion that a rule is made of, and in whose place it stands.
macro_rules! named_as_inner {
    () => {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn apply_order(&self) -> Option<datafusion::optimizer::ApplyOrder> {
            self.0.apply_order()
        }
    };
}
pub(crate) use named_as_inner;

/// What plans show of a rule that stands in the place of one of DataFusion's, which it runs.
macro_rules! known_as_inner {
    () => {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn schema_check(&self) -> bool {
            self.0.schema_check()
        }
    };
}
pub(crate) use known_as_inner;

/// A rule for plans that can be run.
pub(crate) type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;
