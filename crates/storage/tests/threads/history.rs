//! What was asked and what was read, each with the times between which it was: so some of it is known to come behind other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A sensor and a time.
pub type Key = (u32, i64);

/// Fields that a table may have.
pub const FIELDS: [&str; 3] = ["value", "extra", "more"];

/// The fields of a row: in each the number of the request that wrote it.
pub type Row = [Option<i64>; FIELDS.len()];

/// All rows of a table.
pub type Rows = BTreeMap<Key, Row>;

/// The number of a request.
pub type Number = usize;

/// What a request changes.
#[derive(Debug, Clone)]
pub enum Change {
    /// Its number becomes the value of some fields of some rows. If it `is_new`, only unless one of the rows is there.
    Write { keys: Vec<Key>, fields: Vec<usize>, is_new: bool },
    /// Rows of a sensor, or of all, within times go.
    Delete { sensor: Option<u32>, times: Range<i64> },
}

impl Change {
    fn touches(&self, key: Key) -> bool {
        match self {
            Self::Write { keys, .. } => keys.contains(&key),
            Self::Delete { sensor, times } => {
                times.contains(&key.1) && sensor.is_none_or(|sensor| sensor == key.0)
            }
        }
    }

    /// Whether the field has another value, or none, behind it.
    fn sets(&self, key: Key, field: usize) -> bool {
        let has_field = match self {
            Self::Write { fields, .. } => fields.contains(&field),
            Self::Delete { .. } => true,
        };
        has_field && self.touches(key)
    }

    fn is_delete(&self) -> bool {
        matches!(self, Self::Delete { .. })
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody knows as yet, or ever, whether it was done.
    Open,
    Done,
    /// It changed nothing.
    Refused,
}

#[derive(Debug)]
struct Request {
    change: Change,
    begun: u64,
    /// When it was known to be done.
    ended: u64,
    outcome: Outcome,
}

impl Request {
    /// Whether this one was done before the other began.
    fn is_before(&self, other: &Self) -> bool {
        self.ended < other.begun
    }
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    Writer,
    /// One that follows it. What it has read is not known to the writer yet, as it was in the log before it was shown.
    Follower,
}

/// Requests that somebody has seen to be done.
#[derive(Debug)]
struct Seen {
    whom: Whom,
    ended: u64,
    requests: BTreeSet<Number>,
}

/// What was asked and read.
#[derive(Debug, Default)]
pub struct History {
    clock: u64,
    requests: Vec<Request>,
    seen: Vec<Seen>,
}

impl History {
    /// A time later than all before.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Takes note of a request that begins.
    pub fn begin(&mut self, change: impl FnOnce(Number) -> Change) -> Number {
        let (number, begun) = (self.requests.len(), self.tick());
        let change = change(number);
        self.requests.push(Request { change, begun, ended: u64::MAX, outcome: Outcome::Open });
        number
    }

    /// Takes note of how it ended.
    pub fn end(&mut self, number: Number, outcome: Outcome) {
        let now = self.tick();
        let request = &mut self.requests[number];
        request.outcome = outcome;
        if outcome != Outcome::Open {
            request.ended = now;
        }
    }

    /// Whether rows that somebody has seen between two times may be there: all that was known to be done before, nothing that was refused, of each
    /// request all or nothing, and nothing that was replaced or deleted since.
    pub fn check(&mut self, whom: Whom, (begun, ended): (u64, u64), rows: &Rows) {
        let values = rows.values().flatten().flatten();
        let seen: BTreeSet<Number> = values.map(|number| *number as Number).collect();
        let mut done = seen.clone();
        let is_done = |request: &Request| request.outcome == Outcome::Done && request.ended < begun;
        done.extend((0..self.requests.len()).filter(|number| is_done(&self.requests[*number])));
        for before in self.seen.iter().filter(|seen| seen.whom == whom && seen.ended < begun) {
            done.extend(&before.requests);
        }
        let mut keys: BTreeSet<Key> = rows.keys().copied().collect();
        for request in &self.requests {
            if let Change::Write { keys: written, .. } = &request.change {
                keys.extend(written);
            }
        }
        for key in keys {
            let row = rows.get(&key).copied().unwrap_or_default();
            for (field, value) in row.into_iter().enumerate() {
                if let Err(why) = self.check_value(key, field, value, &done) {
                    panic!(
                        "{whom:?}, {key:?} {}: {value:?}: {why}\n{rows:?}\n{self:#?}",
                        FIELDS[field]
                    );
                }
            }
        }
        self.seen.push(Seen { whom, ended, requests: seen });
    }

    /// Whether a field may have a value, or none, when these requests are done.
    fn check_value(
        &self,
        key: Key,
        field: usize,
        value: Option<i64>,
        done: &BTreeSet<Number>,
    ) -> Result<(), String> {
        let setters = done.iter().filter(|number| self.requests[**number].change.sets(key, field));
        let setters: Vec<Number> = setters.copied().collect();
        let replaces = |number: Number| {
            let by = |other: &&Number| self.requests[number].is_before(&self.requests[**other]);
            setters.iter().find(by).copied()
        };
        let Some(value) = value else {
            let mut deletes = (0..self.requests.len()).filter(|number| {
                let request = &self.requests[*number];
                request.change.is_delete()
                    && request.change.touches(key)
                    && request.outcome != Outcome::Refused
            });
            if setters.is_empty() || deletes.any(|number| replaces(number).is_none()) {
                return Ok(());
            }
            return Err(format!("{setters:?} are done, and no delete behind them"));
        };
        let number = value as Number;
        let request = self.requests.get(number).ok_or("nobody wrote it")?;
        if request.outcome == Outcome::Refused {
            return Err("it was refused".into());
        }
        if request.change.is_delete() || !request.change.sets(key, field) {
            return Err("it was not written there".into());
        }
        replaces(number).map_or(Ok(()), |later| Err(format!("{later} is done, and came later")))
    }

    /// Whether requests that must not replace anything were done and refused with reason, by what is there in the end.
    pub fn check_refusals(&self, rows: &Rows) {
        for (number, request) in self.requests.iter().enumerate() {
            let Change::Write { keys, is_new: true, .. } = &request.change else { continue };
            let others = || self.requests.iter().enumerate().filter(|(other, _)| *other != number);
            match request.outcome {
                Outcome::Open => {}
                Outcome::Refused => {
                    let is_reason = |other: &Request| {
                        !other.change.is_delete()
                            && other.outcome != Outcome::Refused
                            && other.begun < request.ended
                            && keys.iter().any(|key| other.change.touches(*key))
                    };
                    let has_reason = others().any(|(_, other)| is_reason(other));
                    assert!(has_reason, "{number} was refused without reason\n{self:#?}");
                }
                Outcome::Done => {
                    for (other, key) in
                        others().flat_map(|(other, _)| keys.iter().map(move |key| (other, *key)))
                    {
                        let replaced = self.must_have_been_there(other, number, key, rows);
                        assert!(!replaced, "{number} replaced {key:?} of {other}\n{self:#?}");
                    }
                }
            }
        }
    }

    /// Whether a row of one request was there when another was done that must not replace it.
    fn must_have_been_there(&self, one: Number, new: Number, key: Key, rows: &Rows) -> bool {
        let values = rows.get(&key).into_iter().flatten().flatten();
        let [one, other] = [one, new].map(|number| &self.requests[number]);
        let is_new = matches!(one.change, Change::Write { is_new: true, .. });
        // What is there in the end came last; of two that are new each would have replaced the other.
        let is_last = || values.clone().any(|value| *value as Number == new);
        let shares_field = || (0..FIELDS.len()).any(|field| both(one, other, key, field));
        let is_before = one.is_before(other) || is_new || (shares_field() && is_last());
        if one.change.is_delete() || one.outcome != Outcome::Done || !one.change.touches(key) {
            return false;
        }
        let (begun, ended) = (one.begun.min(other.begun), one.ended.max(other.ended));
        let may_be_gone = |delete: &Request| {
            delete.change.is_delete()
                && delete.change.touches(key)
                && delete.outcome != Outcome::Refused
                && delete.begun < ended
                && delete.ended > begun
        };
        is_before && !self.requests.iter().any(may_be_gone)
    }
}

/// Whether both set a field.
fn both(one: &Request, other: &Request, key: Key, field: usize) -> bool {
    one.change.sets(key, field) && other.change.sets(key, field)
}
