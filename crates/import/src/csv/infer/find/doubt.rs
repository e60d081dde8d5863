//! What speaks against the choice of a time.

use tidefall_types::{Error, NS_PER_DAY, NS_PER_HOUR, Result};

use super::{Beside, Candidate, Finder, Fit, Kind, names, rows, show_column};

impl Finder<'_> {
    /// Refuses a time of which a part stands in a column that is left over: rows of different
    /// times would seem to be of the same.
    pub(super) fn check_left_over(&self, winner: &Candidate) -> Result<()> {
        let is_sure = |&(_, beside): &(usize, Beside)| beside != Beside::Perhaps;
        let clock = self.beside(winner).into_iter().find(is_sure).map(|(column, _)| column);
        let part = || {
            let is_part = |column: usize| {
                names::is_part_of_year(self.name(column))
                    && self.sample.values(column).next().is_some()
            };
            let mut others = self.free.iter().filter(|column| !winner.columns.contains(column));
            match winner.kind {
                Kind::Parts | Kind::Year => others.find(|&&column| is_part(column)),
                Kind::Instant | Kind::Epoch | Kind::Date => None,
            }
        };
        let Some(left) = clock.or_else(|| part().copied()) else { return Ok(()) };
        let names: Vec<&str> = winner.columns.iter().map(|&column| self.name(column)).collect();
        let all = names.join(",");
        let of = match *winner.columns {
            [column] => format!("--time {}", self.name(column)),
            _ => format!("--time-columns {all}"),
        };
        Err(Error::invalid(format!(
            "the time may be {all} with or without {}: say --time-columns {all},{} for both, with their --time-format such as \"%Y %j\", or {of} \
             when {} is something else",
            show_column(self.sample, left),
            self.name(left),
            self.name(left),
        )))
    }

    /// The columns of something that may be the time, for a message.
    fn named(&self, found: &Candidate) -> String {
        let names = found.columns.iter().map(|&column| format!("{:?}", self.name(column)));
        names.collect::<Vec<_>>().join(" with ")
    }

    /// Refuses a time that tells more than a column whose name fits better, where the two disagree: it may be
    /// the moment of anything, such as that at which the row was stored.
    pub(super) fn check_better_names(
        &self,
        winner: &Candidate,
        others: &[Candidate],
    ) -> Result<()> {
        let is_better = |other: &&Candidate| {
            let is_apart = !other.columns.iter().any(|c| winner.columns.contains(c));
            let is_like = other.known == winner.known && other.called == winner.called;
            is_apart && is_like && matches!(other.fit, Fit::Name(_)) && other.fit < winner.fit
        };
        let disagrees = |other: &&Candidate| other.kind > winner.kind && !self.agree(winner, other);
        match others.iter().filter(is_better).find(disagrees) {
            None => Ok(()),
            Some(other) => Err(Error::invalid(format!(
                "the time may be {} or {}, which say different times: say which with --time",
                self.named(winner),
                self.named(other)
            ))),
        }
    }

    /// Whether one time says what the other does, in any zone and as far as its kind tells; what cannot be read
    /// says nothing else.
    fn agree(&self, one: &Candidate, other: &Candidate) -> bool {
        /// From UTC in either direction.
        const ZONE_NS_MAX: i64 = 14 * NS_PER_HOUR;
        let (Ok((one, _)), Ok((coarse, _))) = (&one.time, &other.time) else { return true };
        let (mut one, mut coarse) = (one.clone(), coarse.clone());
        let times = |row| {
            let coarse = coarse.parse(self.sample.records, row).ok()?;
            Some((one.parse(self.sample.records, row).ok()?, coarse))
        };
        let length_ns = if other.kind == Kind::Epoch { 0 } else { NS_PER_DAY };
        let is_same = |&(one, coarse): &(i64, i64)| {
            let behind_ns = one.saturating_sub(coarse);
            (-ZONE_NS_MAX..=length_ns + ZONE_NS_MAX).contains(&behind_ns)
        };
        let times: Vec<(i64, i64)> = rows(self.sample).filter_map(times).collect();
        times.iter().filter(|pair| is_same(pair)).count() * 20 >= times.len() * 19
    }

    /// What should be known about the choice of `winner` before `others`.
    pub(super) fn notes(&self, winner: &Candidate, others: &[Candidate]) -> Result<Vec<String>> {
        let named = |found: &Candidate| self.named(found);
        let is_apart =
            |other: &&Candidate| !other.columns.iter().any(|c| winner.columns.contains(c));
        let rivals: Vec<&Candidate> = others
            .iter()
            .filter(is_apart)
            .filter(|other| other.known <= winner.known)
            .filter(|other| {
                let tells_more = winner.called < other.called && other.kind < winner.kind;
                other.kind == winner.kind || other.fit < winner.fit || tells_more
            })
            .collect();
        let shown = rivals.iter().map(|rival| named(rival)).collect::<Vec<_>>().join(", ");
        let is_equal = |rival: &&Candidate| rival.rank() == winner.rank();
        if winner.kind == Kind::Epoch && rivals.iter().any(is_equal) {
            return Err(Error::invalid(format!(
                "the time may be {}, {shown}: say which with --time",
                named(winner)
            )));
        }
        let mut notes = Vec::new();
        if let Some(taken_for) = &winner.taken_for {
            notes.push(format!("the time is {}, {taken_for}", named(winner)));
        }
        if !rivals.is_empty() {
            notes.push(format!("the time is {}, not {shown}; --time NAME chooses", named(winner)));
        }
        Ok(notes)
    }
}
