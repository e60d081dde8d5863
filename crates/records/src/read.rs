//! Answers about boxes: which rows of a place are in them, and what these come to. What is asked for is in all of some unions of boxes.

use std::iter::Sum;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::FilterBuilder;
use tidefall_ground::kept::arrow_error;
use tidefall_types::Result;

use crate::leaves::{Leaves, Relation};
use crate::mask::mask;
use crate::metrics::Metrics;
use crate::order::CELL_ROWS;
use crate::packed::{Layout, Packed};
use crate::region::Regions;
use crate::segment::{Index, Segment};
use crate::total::Total;

/// Where packed rows lie.
#[derive(Debug, Clone)]
pub enum Place {
    /// In memory.
    Memory(Arc<Packed>),
    /// In an object, of which the index is open.
    Stored(Segment, Arc<Index>),
}

impl Place {
    /// A segment whose index is read.
    ///
    /// # Errors
    /// `NotFound`, `Io` and `Corrupt` from storage.
    pub fn stored(segment: &Segment) -> Result<Self> {
        Ok(Self::Stored(segment.clone(), segment.index()?))
    }

    /// The columns of its rows.
    pub fn layout(&self) -> &Arc<Layout> {
        match self {
            Self::Memory(packed) => packed.layout(),
            Self::Stored(_, index) => &index.layout,
        }
    }

    /// Its leaves.
    pub fn leaves(&self) -> &Leaves {
        match self {
            Self::Memory(packed) => packed.leaves(),
            Self::Stored(_, index) => &index.leaves,
        }
    }

    /// A column of a cell.
    ///
    /// # Errors
    /// As [`Place::stored`].
    pub fn column(&self, cell: usize, place: usize) -> Result<ArrayRef> {
        match self {
            Self::Memory(packed) => {
                let rows = packed.leaves().cell_rows(cell);
                Ok(packed.columns()[place].slice(cell * CELL_ROWS, rows))
            }
            Self::Stored(segment, index) => segment.column(index, cell, place),
        }
    }

    fn with_metrics<T>(&self, run: impl FnOnce(&[Metrics]) -> T) -> Result<T> {
        match self {
            Self::Memory(packed) => Ok(run(packed.metrics())),
            Self::Stored(segment, index) => segment.with_metrics(index, run),
        }
    }
}

/// What of a place is in a union of boxes, and not hidden by those of deletes.
#[derive(Debug)]
pub struct Touched<'a> {
    place: &'a Place,
    asked: &'a [Regions],
    hidden: &'a Regions,
    relations: Arc<[Relation]>,
}

/// What a question looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Leaves that have rows which may be in the boxes.
    pub leaves: u64,
    /// Those of them whose rows were looked at.
    pub cut: u64,
    /// How many rows these have.
    pub rows: u64,
}

impl Sum for Effort {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |one, other| Self {
            leaves: one.leaves + other.leaves,
            cut: one.cut + other.cut,
            rows: one.rows + other.rows,
        })
    }
}

/// The rows of a cell that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selected {
    /// All of them.
    All,
    /// Those that are marked.
    Some(BooleanBuffer),
}

impl<'a> Touched<'a> {
    /// What of a place is in all that is `asked` for, and not in `hidden`.
    pub fn new(place: &'a Place, asked: &'a [Regions], hidden: &'a Regions) -> Self {
        let mut relations = vec![Relation::Inside; place.leaves().len()];
        for regions in asked {
            let of_one = place.leaves().relations(regions);
            for (relation, one) in relations.iter_mut().zip(of_one) {
                *relation = (*relation).min(one);
            }
        }
        if !hidden.is_empty() {
            let of_hidden = place.leaves().relations(hidden);
            for (relation, hidden) in relations.iter_mut().zip(of_hidden) {
                *relation = match (*relation, hidden) {
                    (relation, Relation::Outside) => relation,
                    (Relation::Outside, _) | (_, Relation::Inside) => Relation::Outside,
                    (_, Relation::Cut) => Relation::Cut,
                };
            }
        }
        Self { place, asked, hidden, relations: relations.into() }
    }

    /// Where the rows lie.
    pub fn place(&self) -> &'a Place {
        self.place
    }

    /// The same as another one, of which these are the [relations](Touched::relations).
    pub fn again(
        place: &'a Place,
        asked: &'a [Regions],
        hidden: &'a Regions,
        relations: Arc<[Relation]>,
    ) -> Self {
        debug_assert_eq!(relations.len(), place.leaves().len());
        Self { place, asked, hidden, relations }
    }

    /// The same but for some leaves.
    #[must_use]
    pub fn without(self, is_out: impl Fn(usize) -> bool) -> Self {
        let relations = self.relations.iter().enumerate();
        let left = relations.map(|(leaf, relation)| match is_out(leaf) {
            true => Relation::Outside,
            false => *relation,
        });
        Self { relations: left.collect(), ..self }
    }

    /// How its leaves lie to what is asked for.
    pub fn relations(&self) -> &Arc<[Relation]> {
        &self.relations
    }

    /// About how many rows there are.
    pub fn rows_about(&self) -> usize {
        let leaves = self.place.leaves();
        let rows = self.relations.iter().enumerate().map(|(leaf, relation)| match relation {
            Relation::Outside => 0,
            Relation::Cut => leaves.leaf_rows(leaf).div_ceil(2),
            Relation::Inside => leaves.leaf_rows(leaf),
        });
        rows.sum()
    }

    /// The cells that may have rows of it.
    pub fn cells(&self) -> impl Iterator<Item = usize> + '_ {
        let leaves = self.place.leaves();
        (0..leaves.cells()).filter(|cell| !self.is_outside(*cell))
    }

    /// The leaves of a cell that may have rows of it.
    pub fn leaves_of(&self, cell: usize) -> impl Iterator<Item = usize> + '_ {
        let leaves = self.place.leaves().of_cell(cell);
        leaves.filter(|leaf| self.relations[*leaf] != Relation::Outside)
    }

    fn is_outside(&self, cell: usize) -> bool {
        let leaves = self.place.leaves().of_cell(cell);
        self.relations[leaves].iter().all(|relation| *relation == Relation::Outside)
    }

    /// What an answer looks at.
    pub fn effort(&self) -> Effort {
        let mut effort = Effort::default();
        for (leaf, relation) in self.relations.iter().enumerate() {
            effort.leaves += u64::from(*relation != Relation::Outside);
            if *relation == Relation::Cut {
                effort.cut += 1;
                effort.rows += self.place.leaves().leaf_rows(leaf) as u64;
            }
        }
        effort
    }

    /// The rows of a cell.
    ///
    /// # Errors
    /// Those of storage.
    pub fn rows_of(&self, cell: usize) -> Result<Selected> {
        let leaves = self.place.leaves();
        let of_cell = leaves.of_cell(cell);
        if self.relations[of_cell.clone()].iter().all(|relation| *relation == Relation::Inside) {
            return Ok(Selected::All);
        }
        let mut rows = vec![0; leaves.cell_rows(cell)];
        let mut columns = CellColumns::new(self.place, cell);
        for leaf in of_cell {
            let in_cell = leaves.rows_in_cell(leaf);
            match self.relations[leaf] {
                Relation::Outside => {}
                Relation::Inside => rows[in_cell].fill(1),
                Relation::Cut => rows[in_cell].copy_from_slice(&self.mask_of(leaf, &mut columns)?),
            }
        }
        Ok(Selected::Some(BooleanBuffer::collect_bool(rows.len(), |row| rows[row] != 0)))
    }

    /// Some columns of the rows of a cell.
    ///
    /// # Errors
    /// Those of storage.
    pub fn columns_of(&self, cell: usize, places: &[usize]) -> Result<(usize, Vec<ArrayRef>)> {
        let columns = || places.iter().map(|place| self.place.column(cell, *place));
        match self.rows_of(cell)? {
            Selected::All => {
                Ok((self.place.leaves().cell_rows(cell), columns().collect::<Result<_>>()?))
            }
            Selected::Some(rows) if rows.count_set_bits() == 0 => Ok((0, Vec::new())),
            Selected::Some(rows) => {
                let filter = FilterBuilder::new(&rows.into()).optimize().build();
                let kept = |column: Result<ArrayRef>| filter.filter(&column?).map_err(arrow_error);
                Ok((filter.count(), columns().map(kept).collect::<Result<_>>()?))
            }
        }
    }

    /// How many rows, and what those of some columns come to.
    ///
    /// # Errors
    /// Those of storage.
    pub fn totals(&self, places: &[usize]) -> Result<(u64, Vec<Total>)> {
        let (mut rows, mut totals) = self.inside(places)?;
        let (more, of_cut) = self.cut(&self.cut_cells().collect::<Vec<_>>(), places)?;
        rows += more;
        totals.iter_mut().zip(&of_cut).for_each(|(total, more)| total.add(more));
        Ok((rows, totals))
    }

    fn no_totals(&self, places: &[usize]) -> Vec<Total> {
        let types = places.iter().map(|place| self.place.layout().columns[*place].1);
        types.map(Total::of_type).collect()
    }

    /// The same of the leaves that are inside as a whole, from metrics.
    ///
    /// # Errors
    /// As [`Touched::totals`].
    pub fn inside(&self, places: &[usize]) -> Result<(u64, Vec<Total>)> {
        let (mut totals, leaves) = (self.no_totals(places), self.place.leaves());
        let inside = (0..leaves.len()).filter(|leaf| self.relations[*leaf] == Relation::Inside);
        let rows: u64 = inside.clone().map(|leaf| leaves.leaf_rows(leaf) as u64).sum();
        if rows > 0 && !places.is_empty() {
            self.place.with_metrics(|metrics| {
                for (total, place) in totals.iter_mut().zip(places) {
                    inside.clone().for_each(|leaf| total.add(&metrics[*place].total(leaf)));
                }
            })?;
        }
        Ok((rows, totals))
    }

    /// The cells with leaves that are cut.
    pub fn cut_cells(&self) -> impl Iterator<Item = usize> + '_ {
        let leaves = self.place.leaves();
        (0..leaves.cells())
            .filter(move |cell| self.relations[leaves.of_cell(*cell)].contains(&Relation::Cut))
    }

    /// The same of the leaves in some cells that are cut.
    ///
    /// # Errors
    /// As [`Touched::totals`].
    pub fn cut(&self, cells: &[usize], places: &[usize]) -> Result<(u64, Vec<Total>)> {
        let (mut rows, mut totals) = (0, self.no_totals(places));
        let leaves = self.place.leaves();
        let is_cut = |leaf: &usize| self.relations[*leaf] == Relation::Cut;
        let mut selected = Vec::new();
        for cell in cells {
            let mut columns = CellColumns::new(self.place, *cell);
            for leaf in leaves.of_cell(*cell).filter(is_cut) {
                let mask = self.mask_of(leaf, &mut columns)?;
                let first = leaves.rows_in_cell(leaf).start;
                select(&mask, first, &mut selected);
                if selected.is_empty() {
                    continue;
                }
                rows += selected.len() as u64;
                for (total, place) in totals.iter_mut().zip(places) {
                    total.add_some(&*columns.get(*place)?, &selected);
                }
            }
        }
        Ok((rows, totals))
    }

    /// Which rows of a leaf that is cut are asked for: 1 or 0 for each.
    fn mask_of(&self, leaf: usize, columns: &mut CellColumns<'_>) -> Result<Vec<u8>> {
        let leaf = (self.place.leaves(), leaf);
        let dimensions = &self.place.layout().dimensions;
        let mut found: Option<Vec<u8>> = None;
        for regions in self.asked {
            let inside = mask(leaf, regions, |dimension| columns.get(dimensions[dimension]))?;
            match &mut found {
                None => found = Some(inside),
                Some(found) => found.iter_mut().zip(inside).for_each(|(found, one)| *found &= one),
            }
        }
        let mut found = found.unwrap_or_else(|| vec![1; leaf.0.leaf_rows(leaf.1)]);
        if !self.hidden.is_empty() {
            let hidden = mask(leaf, self.hidden, |dimension| columns.get(dimensions[dimension]))?;
            found.iter_mut().zip(hidden).for_each(|(found, hidden)| *found &= 1 - hidden);
        }
        Ok(found)
    }
}

/// The rows that a mask has a 1 for; its first is row `first`.
fn select(mask: &[u8], first: usize, selected: &mut Vec<u32>) {
    selected.clear();
    let (words, rest) = mask.as_chunks::<8>();
    let mut first = first as u32;
    for word in words {
        // Each byte that is 1, from the first on.
        let mut left = u64::from_le_bytes(*word);
        while left != 0 {
            selected.push(first + left.trailing_zeros() / u8::BITS);
            left &= left - 1;
        }
        first += word.len() as u32;
    }
    selected.extend((first..).zip(rest).filter(|(_, is_in)| **is_in != 0).map(|(row, _)| row));
}

/// The columns of a cell, each of which is fetched once.
struct CellColumns<'a> {
    place: &'a Place,
    cell: usize,
    held: Vec<Option<ArrayRef>>,
}

impl<'a> CellColumns<'a> {
    fn new(place: &'a Place, cell: usize) -> Self {
        Self { place, cell, held: vec![None; place.layout().columns.len()] }
    }

    fn get(&mut self, column: usize) -> Result<ArrayRef> {
        if let Some(held) = &self.held[column] {
            return Ok(Arc::clone(held));
        }
        let fetched = self.place.column(self.cell, column)?;
        Ok(Arc::clone(self.held[column].insert(fetched)))
    }
}

#[cfg(test)]
mod tests;
