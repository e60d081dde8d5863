//! Planning, which must come to an end though it never waits.
//!
//! A statement is planned on a thread that may block, so that whoever waits for it can stop waiting. The rules of the
//! planner ask before they begin whether anybody still does, and whether there is time left; what one of them can take
//! is bounded by the size of the statement (`size.rs`, `expansion.rs`).

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::plan_err;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as DfResult;
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use tidefall_types::{Error, Result};
use tokio::runtime::Handle;

use crate::blocking::blocking;
use crate::error::to_datafusion;
use crate::snapshots::with_own_snapshots;

/// How long a statement may be planned. The largest that are taken need seconds.
const PLANNING_TIME_MAX: Duration = Duration::from_secs(60);

/// What a statement may use: travels with the options of its plan.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    until: Instant,
    is_left: Arc<AtomicBool>,
    /// The memory that all queries share.
    pub(crate) memory: Arc<dyn MemoryPool>,
}

impl Limits {
    /// For a statement that begins now.
    pub(crate) fn begin(memory: Arc<dyn MemoryPool>) -> Self {
        let until = Instant::now() + PLANNING_TIME_MAX;
        Self { until, is_left: Arc::default(), memory }
    }

    /// Those of the statement that has these options.
    pub(crate) fn of(options: &ConfigOptions) -> Option<&Self> {
        options.extensions.get::<Self>()
    }

    fn check(options: &ConfigOptions) -> DfResult<()> {
        let Some(limits) = Self::of(options) else { return Ok(()) };
        if limits.is_left.load(Ordering::Relaxed) {
            return Err(to_datafusion(Error::closed("nobody waits for the statement any more")));
        }
        if Instant::now() > limits.until {
            return Err(to_datafusion(Error::limit(format!(
                "planning the statement took longer than {} s; split it, or use fewer tables and expressions",
                PLANNING_TIME_MAX.as_secs()
            ))));
        }
        Ok(())
    }
}

impl ConfigExtension for Limits {
    const PREFIX: &'static str = "tidefall_limits";
}

impl ExtensionOptions for Limits {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> DfResult<()> {
        plan_err!("{key} cannot be set")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// Plans away from the threads that serve others; dropping what this returns ends the planning, too.
///
/// # Errors
/// Those of `work`; `Internal` when it panics.
pub(crate) async fn apart<T: Send + 'static>(
    state: &SessionState,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let is_left = Limits::of(state.config_options()).map(|limits| Arc::clone(&limits.is_left));
    let mut leave = Leave { is_left };
    let runtime = Handle::current();
    let planned = blocking(move || runtime.block_on(with_own_snapshots(work))).await;
    leave.is_left = None;
    planned
}

/// Tells the planner that nobody waits any more.
struct Leave {
    /// None when planning is done.
    is_left: Option<Arc<AtomicBool>>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(is_left) = &self.is_left {
            is_left.store(true, Ordering::Relaxed);
        }
    }
}

/// A rule of the planner that does nothing when there is no time left.
#[derive(Debug)]
pub(crate) struct Timed<R: ?Sized>(pub(crate) Arc<R>);

impl AnalyzerRule for Timed<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> DfResult<LogicalPlan> {
        Limits::check(options)?;
        self.0.analyze(plan, options)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for Timed<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> DfResult<Transformed<LogicalPlan>> {
        Limits::check(&config.options())?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for Timed<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Limits::check(options)?;
        self.0.optimize(plan, options)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Limits::check(context.config_options())?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use datafusion::prelude::SessionContext;
    use tidefall_types::ErrorKind;
    use tokio::time::timeout;

    use super::*;
    use crate::amend::AmendAfter;
    use crate::error::from_datafusion;

    fn state() -> SessionState {
        let mut state = SessionContext::new().state();
        let limits = Limits::begin(Arc::clone(&state.runtime_env().memory_pool));
        state.config_mut().options_mut().extensions.insert(limits);
        state
    }

    #[test]
    fn no_rule_begins_when_time_is_up() {
        let mut state = state();
        let rule: Arc<dyn AnalyzerRule + Send + Sync> = Arc::new(AmendAfter);
        let rule = Timed(rule);
        assert!(rule.analyze(LogicalPlan::default(), state.config_options()).is_ok());
        let extensions = &mut state.config_mut().options_mut().extensions;
        extensions.get_mut::<Limits>().expect("limits").until = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        let error = rule.analyze(LogicalPlan::default(), state.config_options());
        let error = from_datafusion(error.expect_err("there is no time"));
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.message().contains("longer than 60 s"), "{error}");
    }

    #[tokio::test]
    async fn planning_ends_when_nobody_waits() {
        let state = state();
        let options = Arc::clone(state.config_options());
        let (tell, told) = mpsc::channel();
        let work = async move {
            while Limits::check(&options).is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = tell.send(());
            Ok(())
        };
        assert!(timeout(Duration::from_millis(50), apart(&state, work)).await.is_err());
        let ended = tokio::task::spawn_blocking(move || told.recv_timeout(Duration::from_secs(30)));
        assert!(ended.await.expect("a thread").is_ok(), "it goes on");
    }

    #[tokio::test]
    async fn a_panic_while_planning_is_a_fault_of_ours() {
        let state = state();
        let error = apart::<()>(&state, async { panic!("nothing fits") }).await;
        let error = error.expect_err("a panic");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().contains("nothing fits; this is a bug of Tidefall"), "{error}");
    }
}
