//! `rows('plant', sensors => ['s1', 's2'], every => '1m')` and
//! `columns('plant', sensors => ['s1'], start => '2024-01-01', end => '2024-02-01')`: a layer of chosen sensors.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::Result;
use tidefall_storage::{Bin, Db, TagFilter};
use tidefall_types::{Error, TimeRange};

use super::Layer;
use super::arguments::Arguments;
use super::columns::ColumnsTable;
use super::labels::Labels;
use super::rows::RowsTable;
use crate::error::to_datafusion;
use crate::snapshots::snapshot;
use crate::view::View;

/// A layer as a table function.
pub(crate) struct LayerFunction {
    db: Db,
    layer: Layer,
}

impl LayerFunction {
    /// The function over the tables of `db`; its name is that of the layer.
    pub(crate) fn new(db: Db, layer: Layer) -> Self {
        Self { db, layer }
    }
}

impl fmt::Debug for LayerFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerFunction").field("layer", &self.layer).finish_non_exhaustive()
    }
}

impl TableFunctionImpl for LayerFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let args = Arguments::new(self.layer, args.exprs())?;
        let (table, sensors) = (args.table()?, args.texts("sensors")?);
        let view = Arc::new(View::new(snapshot(&self.db, &table).map_err(to_datafusion)?));
        match self.layer {
            Layer::Rows => {
                let every = args.duration("every")?;
                let every = every.map(|width_ns| Bin { width_ns, origin_ns: 0 });
                let sensors = choose(&view, sensors.as_deref()).map_err(to_datafusion)?;
                let memory_bytes = self.db.stats().memory_bytes;
                Ok(Arc::new(RowsTable::of(view, sensors, every, memory_bytes)?))
            }
            Layer::Columns => {
                let start = args.time("start")?.unwrap_or(i64::MIN);
                let time = match args.time("end")? {
                    None => TimeRange::new(start, i64::MAX),
                    // The last moment that is in front of the end; none is when nothing is.
                    Some(end) => match end.checked_sub(1) {
                        Some(last) => TimeRange::new(start, last),
                        None => TimeRange::new(i64::MAX, i64::MIN),
                    },
                };
                let chosen = match &sensors {
                    None => None,
                    Some(names) => {
                        let chosen = choose(&view, Some(names)).map_err(to_datafusion)?;
                        Some(chosen.into_iter().map(|(sensor, _)| sensor).collect())
                    }
                };
                Ok(Arc::new(ColumnsTable::of(view, chosen, time)))
            }
        }
    }
}

/// The sensors of these names, in this order; of a name with `%` all that are like it. All sensors of
/// the table when there are no names.
fn choose(view: &View, names: Option<&[String]>) -> tidefall_types::Result<Vec<(u32, String)>> {
    let snapshot = view.snapshot();
    let all = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All)?);
    let labels = Labels::new(view);
    let labelled: Vec<(u32, String)> =
        all.into_iter().map(|sensor| (sensor, labels.of(sensor))).collect();
    let Some(names) = names else { return Ok(labelled) };
    let mut places: HashMap<&str, Vec<usize>> = HashMap::with_capacity(labelled.len());
    for (at, (_, label)) in labelled.iter().enumerate() {
        places.entry(label).or_default().push(at);
    }
    let (mut chosen, mut seen) = (Vec::new(), HashSet::new());
    for name in names {
        let like: Vec<usize> = match name.contains('%') {
            true => (0..labelled.len()).filter(|at| is_like(&labelled[*at].1, name)).collect(),
            false => places.get(name.as_str()).cloned().unwrap_or_default(),
        };
        if like.is_empty() {
            let table = &view.schema().name;
            return Err(Error::not_found(format!("table {table} has no sensor {name:?}")));
        }
        let new = like.into_iter().filter(|at| seen.insert(*at));
        chosen.extend(new.map(|at| labelled[at].clone()));
    }
    Ok(chosen)
}

/// Whether a text is like a pattern in which `%` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('%');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
