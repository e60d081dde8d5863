//! What must be in the database, and what may be.

use std::collections::BTreeMap;
use std::fmt::Write;

use tidefall_types::{TimeRange, format_time};

use crate::values::{Key, Row};

/// Differences that a failure tells.
const DIFFERENCES_SHOWN: usize = 8;

/// Rows by identity.
pub type Rows = BTreeMap<Key, Row>;

/// A change of a lane.
#[derive(Debug, Clone)]
pub enum Change {
    /// Rows in their order: a later one wins field by field.
    Write(Vec<(Key, Row)>),
    /// The rows of some sensors, or of all, within a stretch of time.
    Delete(Option<Vec<u32>>, TimeRange),
}

/// How much of a change may be there when it was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// All or nothing: it is one record of the log.
    Whole,
    /// Each row by itself: it was acknowledged from memory, or sent in parts.
    EachRow,
}

/// What became of a change that was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// There was none.
    Nothing,
    /// It is there.
    Present,
    /// It is not there.
    Absent,
    /// Some of its rows are there.
    Partial,
    /// It would have changed nothing.
    Traceless,
}

/// The part of a table that one client alone changes, one change at a time.
#[derive(Debug)]
pub struct Lane {
    /// The table.
    pub table: String,
    /// The value of the tag `client` that sets this lane apart within its table, if it shares it.
    pub client: Option<String>,
    /// What is acknowledged, or was seen after a restart.
    pub rows: Rows,
    pending: Option<(Change, Grain)>,
    /// Rows among those pending that an orderly end of the process makes durable.
    in_memory: Vec<(Key, Row)>,
}

impl Change {
    /// Makes the change, and returns how many rows it wrote or removed.
    pub fn apply(&self, rows: &mut Rows) -> usize {
        match self {
            Self::Write(written) => {
                for (key, row) in written {
                    let stored = rows.entry(*key).or_default();
                    for (field, number) in stored.iter_mut().zip(row) {
                        *field = number.or(*field);
                    }
                }
                written.len()
            }
            Self::Delete(sensors, time) => {
                let before = rows.len();
                rows.retain(|(sensor, time_ns), _| {
                    let is_meant = sensors.as_ref().is_none_or(|some| some.contains(sensor));
                    !(is_meant && time.contains(*time_ns))
                });
                before - rows.len()
            }
        }
    }
}

impl Lane {
    /// A lane without rows.
    pub fn new(table: String, client: Option<String>) -> Self {
        Self { table, client, rows: Rows::new(), pending: None, in_memory: Vec::new() }
    }

    /// What selects the lane within its table, as SQL.
    pub fn condition(&self) -> String {
        self.client.as_ref().map_or("true".to_owned(), |client| format!("client = '{client}'"))
    }

    /// Notes a change that is about to be sent.
    pub fn begin(&mut self, change: Change, grain: Grain) {
        self.pending = match (self.pending.take(), change) {
            (Some((Change::Write(mut sent), Grain::EachRow)), Change::Write(more)) => {
                sent.extend(more);
                Some((Change::Write(sent), Grain::EachRow))
            }
            (_, change) => Some((change, grain)),
        };
    }

    /// Notes that the change was acknowledged; returns how many rows it wrote or removed.
    pub fn acknowledge(&mut self) -> usize {
        self.pending.take().map_or(0, |(change, _)| change.apply(&mut self.rows))
    }

    /// Notes that rows were acknowledged from memory: the change stays pending.
    pub fn acknowledge_from_memory(&mut self, rows: Vec<(Key, Row)>) {
        self.in_memory.extend(rows);
    }

    /// Notes that the process came to an orderly end, which loses nothing.
    pub fn closed(&mut self) {
        Change::Write(std::mem::take(&mut self.in_memory)).apply(&mut self.rows);
    }

    /// Notes that the process was killed, which may have lost what was only in memory.
    pub fn killed(&mut self) {
        self.in_memory.clear();
    }

    /// Whether a change is under way.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Compares with what is there, which from now on must stay so.
    ///
    /// # Errors
    /// The differences, when what is there is neither with nor without the pending change.
    pub fn settle(&mut self, seen: Rows) -> Result<Fate, String> {
        let Some((change, grain)) = self.pending.take() else {
            return match seen == self.rows {
                true => Ok(Fate::Nothing),
                false => Err(self.differences(&seen, &self.rows)),
            };
        };
        let mut after = self.rows.clone();
        change.apply(&mut after);
        let fate = match (seen == self.rows, seen == after) {
            (true, true) => Fate::Traceless,
            (false, true) => Fate::Present,
            (true, false) => Fate::Absent,
            (false, false) if grain == Grain::EachRow && self.is_mixture(&seen, &after) => {
                Fate::Partial
            }
            (false, false) => {
                let (without, with) =
                    (self.differences(&seen, &self.rows), self.differences(&seen, &after));
                return Err(format!(
                    "neither without the change under way: {without}nor with it: {with}"
                ));
            }
        };
        self.rows = seen;
        Ok(fate)
    }

    fn is_mixture(&self, seen: &Rows, after: &Rows) -> bool {
        let keys = || seen.keys().chain(self.rows.keys()).chain(after.keys());
        keys().all(|key| {
            let row = seen.get(key);
            row == self.rows.get(key) || row == after.get(key)
        })
    }

    fn differences(&self, seen: &Rows, wanted: &Rows) -> String {
        let mut keys: Vec<&Key> = seen.keys().chain(wanted.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| seen.get(key) != wanted.get(key));
        let mut text = format!(
            "{} {:?}: {} rows of {} differ\n",
            self.table,
            self.client,
            keys.len(),
            wanted.len()
        );
        for key in keys.into_iter().take(DIFFERENCES_SHOWN) {
            let (sensor, time_ns) = key;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "  s{sensor} {}: {:?} is there, {:?} should be",
                format_time(*time_ns),
                seen.get(key),
                wanted.get(key)
            );
        }
        text
    }
}
