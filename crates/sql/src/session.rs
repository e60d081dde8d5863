//! Sessions: where statements are run.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::temporal_conversions::timestamp_ns_to_datetime;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::{SessionContext, SessionState};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures::TryStreamExt;
use futures::future::BoxFuture;
use tidefall_storage::{Db, DbOptions};
use tidefall_types::{Clock, Error, ErrorKind, Result};

use crate::ahead::Turns;
use crate::bounds::with_bounded_batches;
use crate::catalog::Catalog;
use crate::dialect::TidefallDialect;
use crate::error::from_datafusion;
use crate::hints::{Known, with_hint};
use crate::layers::{Layer, LayerFunction};
use crate::parameters::{Parameter, has_parameters};
use crate::parse::parse;
use crate::planner::Planner;
use crate::planning::{Limits, apart};
use crate::prepared::{Description, Prepared, Types};
use crate::query_stream::QueryStream;
use crate::records::{Knn, Rtree};
use crate::relations::NamedCalls;
use crate::rewrite::rewrite;
use crate::schemas::{CATALOG, READINGS};
use crate::settings::Settings;
use crate::size::check_size;
use crate::statements::{self, Action, Planned};
use crate::steps::{create_physical_plan, execute_logical_plan, statement_to_plan};
use crate::unnested::UnnestedRelations;
use crate::{asof, functions, names, operators, rules};

/// The share of the memory budget that all queries of a session have for sorting, grouping and
/// joining: one part of so many. The rest belongs to ingest, merges and caches.
const MEMORY_SHARE: usize = 4;

/// The share of the memory of queries that the smaller side of a join is taken into as a whole: the larger one need
/// not be divided by keys then.
const WHOLE_SIDE_SHARE: usize = 8;

/// Runs statements against one database. Clones share their settings and their memory;
/// [`Session::fork`] shares the memory alone.
#[derive(Clone)]
pub struct Session {
    db: Db,
    clock: Arc<dyn Clock>,
    context: SessionContext,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// A session over `db`, with a share of its memory budget, all cores and the system's clock.
    pub fn new(db: Db) -> Self {
        let memory_bytes = usize::try_from(db.stats().memory_bytes).unwrap_or(usize::MAX);
        Self::with_options(db, &DbOptions { memory_bytes, ..DbOptions::default() })
    }

    /// A session over `db` with the options with which it was opened: a share of their memory,
    /// their threads, and their clock for `now()`.
    pub fn with_options(db: Db, options: &DbOptions) -> Self {
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(query_bytes(options))))
            .build_arc()
            .unwrap_or_default();
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(config(options))
            .with_runtime_env(runtime)
            .with_query_planner(Arc::new(Planner))
            .with_relation_planners(vec![Arc::new(NamedCalls), Arc::new(UnnestedRelations)])
            .with_analyzer_rules(rules::analyzers())
            .with_optimizer_rules(rules::optimizers(query_bytes(options)))
            .with_physical_optimizer_rules(rules::physical(query_bytes(options)))
            .build();
        let mut context = SessionContext::new_with_state(state);
        context.register_catalog(CATALOG, Arc::new(Catalog::new(db.clone())));
        functions::register(&context);
        asof::register(&context);
        names::register(&context);
        operators::register(&mut context);
        for layer in Layer::ALL {
            context.register_udtf(layer.name(), Arc::new(LayerFunction::new(db.clone(), layer)));
        }
        context.register_udtf(Knn::NAME, Arc::new(Knn::new(db.clone())));
        context.register_udtf(Rtree::NAME, Arc::new(Rtree::new(db.clone())));
        Self { db, clock: Arc::clone(&options.clock), context }
    }

    /// A session with its own settings, which begin as a copy of these: what one client `SET`s
    /// does not reach the others. Costs some tens of microseconds.
    #[must_use]
    pub fn fork(&self) -> Self {
        let context = SessionContext::new_with_state(self.context.state());
        Self { db: self.db.clone(), clock: Arc::clone(&self.clock), context }
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Runs one or more statements, separated by semicolons, in order; the answer is that of the
    /// last one. Earlier ones stay done when a later one fails. Must be called inside a tokio
    /// runtime; the answer is computed as the stream is read, and dropping it stops the query.
    ///
    /// Statements that define something answer with one row with the column `status`, those that
    /// change rows with one row with the column `count`, to which `INSERT` adds `replaced`: how many of its rows took the
    /// place of others, or NULL where that is not known.
    ///
    /// # Errors
    /// `Invalid` for what cannot be parsed or planned, `NotFound` and `Conflict` for tables,
    /// `Unsupported` for what this version cannot do, `Limit` when memory does not suffice, and
    /// the errors of the storage as they are. Errors may also come later, out of the stream.
    // Boxed, so that callers do not compile planning again.
    pub fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<QueryStream>> {
        self.query_with(sql, &[])
    }

    /// As [`Session::query`], with values for the parameters of the statements: `$1`, `$2` and so on, of all of them together, or `?` for
    /// one after the other. A value stands for what could be written in its place, and never for more than a value.
    ///
    /// # Errors
    /// As [`Session::query`]; `Invalid` for more or fewer values than parameters.
    pub fn query_with<'a>(
        &'a self,
        sql: &'a str,
        values: &'a [Parameter],
    ) -> BoxFuture<'a, Result<QueryStream>> {
        Box::pin(async move { self.execute(self.prepare(sql)?, values).await })
    }

    /// Parses statements that are to be run later, once or often. [`Session::describe`] tells what they take and answer. Protocols that
    /// prepare statements ask for it; as yet there is none.
    ///
    /// # Errors
    /// `Invalid` for what cannot be parsed, `Limit` for what is too large.
    pub fn prepare(&self, sql: &str) -> Result<Prepared> {
        Prepared::parse(sql).map_err(|error| self.with_hint(error, sql))
    }

    /// Runs prepared statements like [`Session::query_with`]. They are planned now, for these values and what the tables have by now.
    ///
    /// # Errors
    /// As [`Session::query_with`].
    pub fn execute<'a>(
        &'a self,
        prepared: Prepared,
        values: &'a [Parameter],
    ) -> BoxFuture<'a, Result<QueryStream>> {
        Box::pin(async move {
            let sql = Arc::clone(&prepared.sql);
            let answer = self.run_all(prepared, values).await;
            answer.map_err(|error| self.with_hint(error, &sql))
        })
    }

    async fn run_all(&self, prepared: Prepared, values: &[Parameter]) -> Result<QueryStream> {
        let mut statements = prepared.with(values)?;
        let Some(last) = statements.pop_back() else {
            return Err(Error::invalid("there is no statement to run"));
        };
        for statement in statements {
            let mut answer = self.run(statement).await?;
            while answer.try_next().await?.is_some() {}
        }
        self.run(last).await
    }

    /// What prepared statements take and answer, as the tables are now, without running them. As yet there is no protocol that asks for it.
    ///
    /// # Errors
    /// As [`Session::query`], as far as they come before a value is known.
    pub fn describe<'a>(&'a self, prepared: &'a Prepared) -> BoxFuture<'a, Result<Description>> {
        Box::pin(async move {
            let described = self.description(prepared).await;
            described.map_err(|error| self.with_hint(error, &prepared.sql))
        })
    }

    async fn description(&self, prepared: &Prepared) -> Result<Description> {
        let (mut parameters, mut tables) = (Types::default(), Tables::AsTheyAre);
        // Of the last statement in the end.
        let mut certain = Certain::Nothing;
        for mut statement in prepared.numbered()? {
            certain = Certain::of(&mut statement, tables);
            let action = certain.pass(self.action(statement).map_err(Unplanned::from))?;
            if action
                .as_ref()
                .is_none_or(|action| matches!(action, Action::Table(_) | Action::Set(_)))
            {
                tables = Tables::Other;
            }
            let Some(action) = action.and_then(Action::planned) else { continue };
            let state = Arc::new(self.state());
            let (db, planned) = (self.db.clone(), Arc::clone(&state));
            let plan = apart(&state, async move { Ok(logical(&db, &planned, action).await) });
            let planned = match plan.await {
                Ok(planned) => planned,
                Err(error) => Err(error.into()),
            };
            if let Some(plan) = certain.pass(planned)? {
                parameters.add(&plan).map_err(from_datafusion)?;
            }
        }
        let parameters = parameters.of(prepared.parameter_count()?);
        let mut statements = prepared.with_nulls(&parameters)?;
        let Some(last) = statements.pop_back() else {
            return Ok(Description { parameters, columns: None });
        };
        let action = certain.pass(self.action(last).map_err(Unplanned::from))?;
        let plan = match action.and_then(Action::planned) {
            Some(action) => certain.pass(self.physical(action).await.map_err(Unplanned::from))?,
            None => None,
        };
        Ok(Description { parameters, columns: plan.map(|(_, plan)| plan.schema()) })
    }

    /// Runs statements like [`Session::query`] and collects the whole answer; for small ones.
    ///
    /// # Errors
    /// Like [`Session::query`].
    pub fn collect<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<Vec<RecordBatch>>> {
        Box::pin(async move { self.query(sql).await?.try_collect().await })
    }

    /// Whether a text ends where a statement may begin: behind a semicolon or nothing at all, not within a text, a
    /// quoted name or a remark.
    pub fn is_between_statements(sql: &str) -> bool {
        let tokens = Tokenizer::new(&TidefallDialect, sql).tokenize();
        tokens.is_ok_and(|tokens| {
            let mut tokens = tokens.iter().rev();
            let last = tokens.find(|token| !matches!(token, Token::Whitespace(_)));
            last.is_none_or(|token| *token == Token::SemiColon)
        })
    }

    /// Whether statements change nothing that outlives their session.
    ///
    /// # Errors
    /// `Invalid` for what cannot be parsed.
    pub fn is_read_only(sql: &str) -> Result<bool> {
        Ok(parse(sql)?.iter().all(statements::is_read_only))
    }

    /// An error of a statement, with what to write instead.
    pub(crate) fn with_hint(&self, error: Error, sql: &str) -> Error {
        let state = self.context.state_ref();
        let tables = || self.db.tables().iter().map(|table| table.name.clone()).collect::<Vec<_>>();
        with_hint(error, sql, &Known { state: &state.read(), tables: &tables })
    }

    /// Boxed, so that those who run scripts do not compile planning again either.
    pub(crate) fn run_boxed(&self, statement: Statement) -> BoxFuture<'_, Result<QueryStream>> {
        Box::pin(self.run(statement))
    }

    /// What is to be done for a statement.
    fn action(&self, mut statement: Statement) -> Result<Action> {
        check_size(&statement)?;
        rewrite(&mut statement, &self.context.state_ref().read())?;
        statements::action(statement)
    }

    async fn run(&self, statement: Statement) -> Result<QueryStream> {
        match self.action(statement)? {
            Action::Table(change) => change.run(&self.db).await,
            Action::Show(show) => show.run(&self.db),
            Action::Delete(statement) => {
                statements::delete(&self.db, &self.state(), statement).await
            }
            Action::Set(statement) => self.set(statement).await,
            Action::Planned(action) => {
                let (state, plan) = self.physical(action).await?;
                execute(&state, plan)
            }
        }
    }

    /// The plan for a statement, and the state with which it was made.
    async fn physical(
        &self,
        action: Planned,
    ) -> Result<(Arc<SessionState>, Arc<dyn ExecutionPlan>)> {
        let state = Arc::new(self.state());
        let (db, planned) = (self.db.clone(), Arc::clone(&state));
        let plan = apart(&state, async move {
            let plan = logical(&db, &planned, action).await.map_err(|why| why.error)?;
            create_physical_plan(&planned, &plan).await.map_err(from_datafusion)
        });
        let plan = plan.await?;
        Ok((state, plan))
    }

    /// The state with which one statement is planned; it stands still at the database's time.
    fn state(&self) -> SessionState {
        let mut state = self.context.state();
        let now_ns = self.clock.now_ns();
        state.execution_props_mut().query_execution_start_time =
            timestamp_ns_to_datetime(now_ns).map(|now| now.and_utc());
        let limits = Limits::begin(Arc::clone(&state.runtime_env().memory_pool));
        state.config_mut().options_mut().extensions.insert(limits);
        state
    }

    async fn set(&self, statement: Statement) -> Result<QueryStream> {
        let plan = statement_to_plan(&self.state(), statement).await.map_err(from_datafusion)?;
        execute_logical_plan(&self.context, plan).await.map_err(from_datafusion)?;
        statements::status("set")
    }
}

/// Batches are made for so many readers at once, for each thread of the database: some wait for the disk.
const TURNS_PER_THREAD: usize = 2;

/// The memory that all queries of a session have.
const fn query_bytes(options: &DbOptions) -> usize {
    options.memory_bytes / MEMORY_SHARE
}

/// How queries are planned and run.
fn config(options: &DbOptions) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, READINGS)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .with_target_partitions(options.threads.max(1))
        // Scans come in as many partitions as there are cores already, and in order.
        .with_round_robin_repartition(false)
        .with_option_extension(Settings::default())
        .with_extension(Arc::new(Turns::new(TURNS_PER_THREAD * options.threads)));
    let set = config.options_mut();
    set.optimizer.hash_join_single_partition_threshold = query_bytes(options) / WHOLE_SIDE_SHARE;
    // LIMIT, windows and aggregates around a subquery may look at its order.
    set.sql_parser.enable_subquery_sort_elimination = false;
    // DataFusion takes `x IS NOT TRUE` for nullable in one of its plans and not in the other, and refuses to group
    // what it is not sure of. Values are the same.
    set.execution.skip_physical_aggregate_schema_check = true;
    // Rows that are parted by tags are so by tags and anything else, however few parts there are.
    set.optimizer.subset_repartition_threshold = 1;
    // The filter of `min(time)` beside `min(lower(a))` leaves rows out that the other one needs.
    set.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // It orders floats as if nothing were above or below a NaN, and then finds the group that leaves no more.
    set.optimizer.enable_topk_aggregation = false;
    config
}

/// The tables that a statement finds when it is run, and how names are read then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tables {
    AsTheyAre,
    /// Statements before it may make or change some.
    Other,
}

/// Which errors of planning come whatever the values of parameters are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certain {
    All,
    /// Those of names; others may be of what has to be a constant of a certain kind.
    Names,
    Nothing,
}

impl Certain {
    fn of(statement: &mut Statement, tables: Tables) -> Self {
        match tables {
            Tables::Other => Self::Nothing,
            Tables::AsTheyAre if has_parameters(statement) => Self::Names,
            Tables::AsTheyAre => Self::All,
        }
    }

    /// What is planned without values for parameters, if it can be.
    fn pass<T>(self, planned: Result<T, Unplanned>) -> Result<Option<T>> {
        match planned {
            Ok(planned) => Ok(Some(planned)),
            Err(why) if self == Self::All || (self == Self::Names && why.is_of_names) => {
                Err(why.error)
            }
            Err(_) => Ok(None),
        }
    }
}

/// Why there is no plan.
struct Unplanned {
    error: Error,
    /// There is no such table or column, or more than one.
    is_of_names: bool,
}

impl From<Error> for Unplanned {
    fn from(error: Error) -> Self {
        let is_of_names = error.kind() == ErrorKind::NotFound;
        Self { error, is_of_names }
    }
}

impl From<DataFusionError> for Unplanned {
    fn from(error: DataFusionError) -> Self {
        let is_of_columns = matches!(
            error.find_root(),
            DataFusionError::SchemaError(error, _) if matches!(
                **error,
                SchemaError::FieldNotFound { .. } | SchemaError::AmbiguousReference { .. }
            )
        );
        let told = Self::from(from_datafusion(error));
        Self { is_of_names: told.is_of_names || is_of_columns, ..told }
    }
}

async fn logical(db: &Db, state: &SessionState, action: Planned) -> Result<LogicalPlan, Unplanned> {
    match action {
        Planned::Insert(insert) => Ok(statements::plan_insert(db, state, *insert).await?),
        Planned::Plain(statement) => {
            let plan = statement_to_plan(state, statement).await?;
            check_harmless(&plan)?;
            Ok(plan)
        }
    }
}

fn execute(state: &SessionState, plan: Arc<dyn ExecutionPlan>) -> Result<QueryStream> {
    let (plan, context) = with_bounded_batches(plan, state).map_err(from_datafusion)?;
    let stream = execute_stream(Arc::clone(&plan), context).map_err(from_datafusion)?;
    Ok(QueryStream::new(stream, Some(plan)))
}

/// Refuses plans that reach beyond the database: files, functions, tables of DataFusion's own.
fn check_harmless(plan: &LogicalPlan) -> Result<()> {
    let what = match plan {
        LogicalPlan::Explain(explain) => return check_harmless(&explain.plan),
        LogicalPlan::Analyze(analyze) => return check_harmless(&analyze.input),
        LogicalPlan::Dml(dml) => dml.op.to_string(),
        LogicalPlan::Ddl(ddl) => ddl.name().to_owned(),
        LogicalPlan::Copy(_) => "COPY".to_owned(),
        LogicalPlan::Statement(statement) => statement.name().to_owned(),
        _ => return Ok(()),
    };
    Err(Error::unsupported(format!("{what} is not supported")))
}
