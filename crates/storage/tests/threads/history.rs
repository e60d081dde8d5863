//! What was asked and what was read, each with the times between which it was: so some of it is known to come behind other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tidefall_types::FieldType;

/// A sensor and a time.
pub type Key = (u32, i64);

/// Fields that a table may have.
pub const FIELDS: [&str; 3] = ["value", "extra", "more"];

/// What a large value has beside the number of its request: more than the narrowest type of a field holds.
pub const LARGE: i64 = 1 << 40;
/// That type.
pub const NARROW: FieldType = FieldType::I32;

/// The fields of a row: in each the value of the request that wrote it.
pub type Row = [Option<i64>; FIELDS.len()];

/// All rows of a table.
pub type Rows = BTreeMap<Key, Row>;

/// The type of each field that a table has.
pub type Types = [Option<FieldType>; FIELDS.len()];

/// The type of a field that nobody has given another one.
pub const FIRST_TYPE: FieldType = FieldType::I64;

/// What a table shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    pub rows: Rows,
    pub types: Types,
}

/// When something was read.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub begun: u64,
    pub ended: u64,
    /// Rows from before were too old to be kept by then.
    pub limit_ns: i64,
}

/// The number of a request.
pub type Number = usize;

/// What a request changes.
#[derive(Debug, Clone)]
pub enum Change {
    /// Its number becomes the value of some fields of some rows, or a large value made of it, for which narrow fields get a wider type. If it `is_new`, only
    /// unless one of the rows is there.
    Write { keys: Vec<Key>, fields: Vec<usize>, is_new: bool, is_large: bool },
    /// Rows of a sensor, or of all, within times go.
    Delete { sensor: Option<u32>, times: Range<i64> },
    /// The table goes with all that it has. Whoever writes next makes another one.
    Drop,
    /// A field gets another type.
    Retype { field: usize, to: FieldType },
}

impl Change {
    fn touches(&self, key: Key) -> bool {
        match self {
            Self::Write { keys, .. } => keys.contains(&key),
            Self::Delete { sensor, times } => {
                times.contains(&key.1) && sensor.is_none_or(|sensor| sensor == key.0)
            }
            Self::Drop => true,
            Self::Retype { .. } => false,
        }
    }

    /// Whether the field has another value, or none, behind it.
    fn sets(&self, key: Key, field: usize) -> bool {
        let has_field = match self {
            Self::Write { fields, .. } => fields.contains(&field),
            _ => true,
        };
        has_field && self.touches(key)
    }

    fn is_delete(&self) -> bool {
        matches!(self, Self::Delete { .. } | Self::Drop)
    }

    fn is_drop(&self) -> bool {
        matches!(self, Self::Drop)
    }

    /// What a request of this number writes.
    pub fn value(&self, number: Number) -> i64 {
        let is_large = matches!(self, Self::Write { is_large: true, .. });
        number as i64 + if is_large { LARGE } else { 0 }
    }

    /// Whether it needs more than the narrowest type for a field.
    fn is_large_in(&self, field: usize) -> bool {
        matches!(self, Self::Write { fields, is_large: true, .. } if fields.contains(&field))
    }

    /// Whether it gives a field the narrowest type.
    fn narrows(&self, field: usize) -> bool {
        matches!(*self, Self::Retype { field: other, to: NARROW } if other == field)
    }

    fn is_new(&self) -> bool {
        matches!(self, Self::Write { is_new: true, .. })
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
    /// It changed nothing, as there was no table or field, or the table was dropped meanwhile.
    Missing,
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

    /// Whether it changed something, as far as anybody knows.
    fn may_be_done(&self) -> bool {
        matches!(self.outcome, Outcome::Open | Outcome::Done)
    }

    /// Whether it may have been done between two times.
    fn may_be_between(&self, begun: u64, ended: u64) -> bool {
        self.may_be_done() && self.begun < ended && self.ended > begun
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

    /// Whether what somebody has seen may be there: all that was known to be done before, also before anything that is there, nothing that was refused, of each
    /// request all or nothing, and nothing that was replaced or deleted since. Only rows that are too old may be missing.
    pub fn check(&mut self, whom: Whom, span: Span, shown: &Shown) {
        let Span { begun, ended, limit_ns } = span;
        let rows = &shown.rows;
        let values = rows.values().flatten().flatten().map(|value| number_of(*value));
        let seen: BTreeSet<Number> =
            values.filter(|number| *number < self.requests.len()).collect();
        let mut done = seen.clone();
        // Who sees a request sees all that was done before it began.
        let since = seen.iter().map(|number| self.requests[*number].begun).fold(begun, u64::max);
        let is_done = |request: &Request| request.outcome == Outcome::Done && request.ended < since;
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
                let is_too_old = value.is_none() && key.1 < limit_ns;
                let checked = self.check_value(key, field, value, (&done, &seen));
                if let Err(why) = checked
                    && !is_too_old
                {
                    panic!(
                        "{whom:?}, {key:?} {}: {value:?}: {why}\n{rows:?}\n{self:#?}",
                        FIELDS[field]
                    );
                }
            }
        }
        for (field, ty) in shown.types.into_iter().enumerate() {
            let may_be = ty.is_none_or(|ty| self.may_have_type(field, ty, since));
            assert!(may_be, "{whom:?}, {}: {ty:?}\n{self:#?}", FIELDS[field]);
        }
        self.seen.push(Seen { whom, ended, requests: seen });
    }

    /// Whether a field may have a value, or none, when requests are done, some of which are seen elsewhere at the same time.
    fn check_value(
        &self,
        key: Key,
        field: usize,
        value: Option<i64>,
        (done, seen): (&BTreeSet<Number>, &BTreeSet<Number>),
    ) -> Result<(), String> {
        let setters = done.iter().filter(|number| self.requests[**number].change.sets(key, field));
        let setters: Vec<Number> = setters.copied().collect();
        let replaces = |number: Number| {
            let by = |other: &&Number| self.requests[number].is_before(&self.requests[**other]);
            setters.iter().find(by).copied()
        };
        let Some(value) = value else {
            // Who sees anything of a write sees that no drop came behind it.
            let is_there = |drop: &Request| {
                let mut seen = seen.iter().map(|number| &self.requests[*number]);
                seen.any(|it| it.is_before(drop) || it.change.sets(key, field))
            };
            let mut deletes = (0..self.requests.len()).filter(|number| {
                let request = &self.requests[*number];
                request.change.is_delete()
                    && request.change.touches(key)
                    && request.may_be_done()
                    && !(request.change.is_drop() && is_there(request))
            });
            if setters.is_empty() || deletes.any(|number| replaces(number).is_none()) {
                return Ok(());
            }
            return Err(format!("{setters:?} are done, and no delete behind them"));
        };
        let number = number_of(value);
        let request = self.requests.get(number).ok_or("nobody wrote it")?;
        if !request.may_be_done() {
            return Err("it was refused".into());
        }
        let is_other = request.change.value(number) != value;
        if is_other || request.change.is_delete() || !request.change.sets(key, field) {
            return Err("it was not written there".into());
        }
        replaces(number).map_or(Ok(()), |later| Err(format!("{later} is done, and came later")))
    }

    /// Whether a field may have a type for somebody who sees all that was done before a time: that of a request behind which no other is known to be done.
    fn may_have_type(&self, field: usize, ty: FieldType, since: u64) -> bool {
        let given = |request: &Request| match request.change {
            Change::Retype { field: other, to } => (other == field).then_some(to),
            _ if request.change.is_large_in(field) => Some(FieldType::I64),
            _ => request.change.is_drop().then_some(FIRST_TYPE),
        };
        // Only narrow fields get another type for large values.
        let replaces = |request: &Request| ty == NARROW || !request.change.is_large_in(field);
        let all = || self.requests.iter().filter(|request| request.may_be_done());
        let is_done = |request: &Request| request.outcome == Outcome::Done && request.ended < since;
        let ends_it = |request: &Request| given(request).is_some() && replaces(request);
        let done = all().filter(|request| ends_it(request) && is_done(request));
        let done: Vec<&Request> = done.collect();
        let is_last = |request: &Request| !done.iter().any(|by| request.is_before(by));
        let is_first = ty == FIRST_TYPE && done.is_empty();
        is_first || all().any(|request| given(request) == Some(ty) && is_last(request))
    }

    /// Whether new types and large values were refused for each other.
    pub fn check_types(&self) {
        for request in self.requests.iter().filter(|it| it.outcome == Outcome::Refused) {
            let mut others = self.requests.iter().filter(|other| other.may_be_done());
            let has_reason = match &request.change {
                Change::Write { fields, is_large: true, .. } => others.any(|other| {
                    let narrows = fields.iter().any(|field| other.change.narrows(*field));
                    narrows && other.may_be_between(request.begun, request.ended)
                }),
                Change::Retype { field, to: NARROW } => others
                    .any(|other| other.change.is_large_in(*field) && other.begun < request.ended),
                change => change.is_new(),
            };
            assert!(has_reason, "{request:?} was refused without reason\n{self:#?}");
        }
    }

    /// Whether requests that found no table or field, or lost it, did so with reason.
    pub fn check_missing(&self) {
        for request in self.requests.iter().filter(|it| it.outcome == Outcome::Missing) {
            let is_dropped = |since: u64| {
                let is_drop = |other: &Request| other.change.is_drop();
                let may_be = |other: &Request| other.may_be_between(since, request.ended);
                self.requests.iter().any(|other| is_drop(other) && may_be(other))
            };
            let brings_it = |other: &Request| match (&other.change, &request.change) {
                (Change::Write { .. }, Change::Drop) => true,
                (Change::Write { fields, .. }, Change::Retype { field, .. }) => {
                    fields.contains(field)
                }
                _ => false,
            };
            let is_there = |other: &Request| {
                let is_done = other.outcome == Outcome::Done && other.is_before(request);
                is_done && brings_it(other) && !is_dropped(other.begun)
            };
            let has_reason = match request.change {
                // It would have made what it lacked.
                Change::Write { .. } => is_dropped(request.begun),
                _ => !self.requests.iter().any(is_there),
            };
            assert!(has_reason, "{request:?} had what it lacked\n{self:#?}");
        }
    }

    /// Whether requests that must not replace anything were done and refused with reason, by what is there in the end.
    pub fn check_refusals(&self, rows: &Rows) {
        for (number, request) in self.requests.iter().enumerate() {
            let Change::Write { keys, is_new: true, .. } = &request.change else { continue };
            let others = || self.requests.iter().enumerate().filter(|(other, _)| *other != number);
            match request.outcome {
                Outcome::Open | Outcome::Missing => {}
                Outcome::Refused => {
                    let is_reason = |other: &Request| {
                        !other.change.is_delete()
                            && other.may_be_done()
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
        // What is there in the end came last; of two that are new each would have replaced the other.
        let is_last = || values.clone().any(|value| number_of(*value) == new);
        let shares_field = || (0..FIELDS.len()).any(|field| both(one, other, key, field));
        let is_before =
            one.is_before(other) || one.change.is_new() || (shares_field() && is_last());
        if one.change.is_delete() || one.outcome != Outcome::Done || !one.change.touches(key) {
            return false;
        }
        let (begun, ended) = (one.begun.min(other.begun), one.ended.max(other.ended));
        let may_be_gone = |delete: &Request| {
            delete.change.is_delete()
                && delete.change.touches(key)
                && delete.may_be_between(begun, ended)
        };
        is_before && !self.requests.iter().any(may_be_gone)
    }
}

/// Whether both set a field.
fn both(one: &Request, other: &Request, key: Key, field: usize) -> bool {
    one.change.sets(key, field) && other.change.sets(key, field)
}

/// The number of the request that wrote a value.
fn number_of(value: i64) -> Number {
    (value % LARGE) as Number
}
