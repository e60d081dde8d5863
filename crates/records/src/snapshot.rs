//! A table of records at one moment.

use std::sync::Arc;

use tidefall_types::{Result, Seq, TableSchema};

use crate::compact;
use crate::flush;
use crate::merge::Visible;
use crate::packed::Layout;
use crate::region::{Region, Regions};
use crate::table::{Chunk, Table};
use crate::version::Version;

/// A table of records at one moment. What it shows stays as it is, and where it is, for as long as it is held.
#[derive(Debug, Clone)]
pub struct RecordsSnapshot {
    applied: Seq,
    chunks: Vec<Arc<Chunk>>,
    version: Arc<Version>,
}

impl RecordsSnapshot {
    /// A table now, in which all before `applied` is visible.
    ///
    /// # Errors
    /// When rows in memory cannot be laid together.
    pub fn of(table: &Table, applied: Seq) -> Result<Self> {
        let (chunks, version) = table.sources()?;
        Ok(Self { applied, chunks, version })
    }

    /// All writes before this are in it.
    pub fn applied(&self) -> Seq {
        self.applied
    }

    /// The columns of the table.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.version.schema
    }

    /// The columns as rows that come now have them. Earlier rows may lack the last ones.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.version.layout
    }

    /// About how many rows there are: those that deletes hide are counted.
    pub fn rows(&self) -> u64 {
        let in_memory: usize = self.chunks.iter().map(|chunk| chunk.packed.rows()).sum();
        in_memory as u64
            + self.version.segments.iter().map(|segment| segment.entry.rows).sum::<u64>()
    }

    /// How many places there are, in memory and in segments.
    pub fn all_places(&self) -> usize {
        self.chunks.len() + self.version.segments.len()
    }

    /// The places that may have rows that are in all of some unions of boxes, in memory and in segments, each with what deletes hide there.
    ///
    /// # Errors
    /// `NotFound`, `Io` and `Corrupt` from storage.
    pub fn places(&self, asked: &[Regions]) -> Result<Vec<Visible>> {
        let is_asked = |bounds: &Region| asked.iter().all(|regions| regions.reaches(bounds));
        let mut places = Vec::new();
        for segment in self.version.segments.iter().filter(|segment| is_asked(&segment.bounds)) {
            places.push(compact::visible(segment, &self.version)?);
        }
        let of_chunks = self.chunks.iter().map(|chunk| flush::visible(chunk, &self.version));
        places.extend(of_chunks.filter(|(place, _)| is_asked(&place.leaves().bounds())));
        Ok(places)
    }
}
