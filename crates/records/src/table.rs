//! A table of records while the database is open.

use tidefall_ground::claims::{Claim, Claims};
use tidefall_ground::gate::Gate;
use tidefall_ground::held::{Held, RowBytes};
use tidefall_ground::kept::{arrow_error, size_bytes};
use tidefall_ground::turns::TableLock;
use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tidefall_types::{Error, ObjectId, Result, Seq, TableId, TableSchema};

use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_select::concat::concat;

use crate::deletes::Deletes;
use crate::failed::Failed;
use crate::order::CELL_ROWS;
use crate::packed::{Layout, Packed};
use crate::version::{LiveSegment, Version};

/// Rows of small writes that are packed together at the latest; a reader has fewer packed when it comes, which takes it some milliseconds.
const LOOSE_ROWS_MAX: usize = 4 * CELL_ROWS;
/// Bytes of them.
const LOOSE_BYTES_MAX: usize = 8 << 20;
/// Chunks of up to so many rows become one with a neighbour, so that many small writes and many readers leave few of them.
const TOGETHER_ROWS_MAX: usize = 16 * CELL_ROWS;
/// Bytes of chunks that become one.
const TOGETHER_BYTES_MAX: usize = 2 * LOOSE_BYTES_MAX;

/// A table while the database is open.
#[derive(Debug)]
pub struct Table {
    /// Its number, which no other table has or had.
    pub id: TableId,
    /// Who moves what it has.
    pub lock: TableLock,
    /// What writers pass.
    pub gate: Arc<Gate>,
    live: Mutex<Live>,
    /// What is stored of it. It changes only while `live` is locked, too: whoever locks that finds both as of one moment.
    version: RwLock<Arc<Version>>,
    /// What is being written anew.
    pub claims: Claims,
    /// What could not be read when it was to become something else.
    pub failed: Failed,
    /// Why it cannot be read or written.
    pub damage: Option<Error>,
}

/// Packed rows in memory.
#[derive(Debug)]
pub struct Chunk {
    /// The first write that they are of, ...
    pub first_seq: Seq,
    /// ... and the last. No delete lies between.
    pub last_seq: Seq,
    /// The rows.
    pub packed: Arc<Packed>,
    /// Bytes of memory.
    pub size_bytes: usize,
    /// Those bytes among all that somebody holds.
    alive: Mutex<Option<Held>>,
}

impl Chunk {
    fn new((first_seq, last_seq): (Seq, Seq), packed: Packed) -> Self {
        let size_bytes = packed.size_bytes();
        Self { first_seq, last_seq, packed: Arc::new(packed), size_bytes, alive: Mutex::new(None) }
    }

    fn count_into(&self, alive: &RowBytes) {
        let held = Held::of(alive, self.size_bytes);
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }
}

/// Rows as they come, with a column for each field of the table, as many of each.
#[derive(Debug)]
pub enum Rows {
    /// As they were written.
    Loose(Vec<ArrayRef>),
    /// Many, put into order by whoever has written them.
    Packed(Packed),
}

impl Rows {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Loose(columns) => columns.first().map_or(0, |column| column.len()),
            Self::Packed(packed) => packed.rows(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Loose(columns) => columns.iter().map(|column| size_bytes(column)).sum(),
            Self::Packed(packed) => packed.size_bytes(),
        }
    }

    /// The columns.
    pub fn columns(&self) -> &[ArrayRef] {
        match self {
            Self::Loose(columns) => columns,
            Self::Packed(packed) => packed.columns(),
        }
    }
}

/// Rows of one write that are not packed yet.
#[derive(Debug)]
struct Loose {
    seq: Seq,
    columns: Vec<ArrayRef>,
}

/// Rows in memory. Writes, deletes and flushes change them together with the table's [`Version`], each in one step.
#[derive(Debug, Default)]
pub struct Live {
    /// In the order of their writes.
    chunks: Vec<Arc<Chunk>>,
    /// Those before all of them that are being written to segments.
    leaving: Vec<Arc<Chunk>>,
    /// Behind all of them.
    loose: Vec<Loose>,
    loose_rows: usize,
    loose_bytes: usize,
    /// Whether it is no table any more.
    pub is_dropped: bool,
    held: Held,
    /// Where each chunk counts for as long as somebody holds it; nowhere before the table is shown.
    alive: Option<RowBytes>,
}

impl Table {
    /// An empty table.
    pub fn new(schema: TableSchema) -> Self {
        Self {
            id: schema.id,
            lock: TableLock::default(),
            gate: Arc::default(),
            live: Mutex::default(),
            version: RwLock::new(Arc::new(Version::new(schema))),
            claims: Claims::default(),
            failed: Failed::default(),
            damage: None,
        }
    }

    /// A table that cannot be read, and why.
    pub fn damaged(schema: TableSchema, damage: Error) -> Self {
        Self { damage: Some(damage), ..Self::new(schema) }
    }

    /// Whether the table can be read and written.
    ///
    /// # Errors
    /// That with which it was found when the database was opened.
    pub fn check_whole(&self) -> Result<()> {
        self.damage.clone().map_or(Ok(()), Err)
    }

    /// Its columns at present.
    pub fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.version.read().unwrap_or_else(PoisonError::into_inner).schema)
    }

    /// What is stored of it at present.
    pub fn version(&self) -> Arc<Version> {
        Arc::clone(&self.version.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is stored of it, under the lock of what readers see. The versions that somebody holds stay as they are.
    pub(crate) fn change_version(&self, _live: &mut Live, change: impl FnOnce(&mut Version)) {
        let mut version = self.version.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut version));
    }

    /// Locks what readers see, for a moment.
    pub fn live(&self) -> MutexGuard<'_, Live> {
        // Every change is made by calls that do not panic half-way.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims segments, all or none: none if somebody has one of them, or if it is not live any more.
    pub(crate) fn claim(&self, segments: &[Arc<LiveSegment>]) -> Option<Claim<'_>> {
        let ids: Vec<ObjectId> = segments.iter().map(|segment| segment.entry.id).collect();
        self.claims.claim(ids, || {
            let version = self.version();
            segments.iter().all(|segment| version.has(segment))
        })
    }

    /// All chunks in memory, and what is stored, as of one moment.
    ///
    /// # Errors
    /// When rows in memory cannot be laid together.
    pub(crate) fn sources(&self) -> Result<(Vec<Arc<Chunk>>, Arc<Version>)> {
        let mut live = self.live();
        let version = self.version();
        live.seal(&version)?;
        Ok((live.all_chunks().cloned().collect(), version))
    }
}

impl Live {
    /// Adds rows behind all others. Returns the bytes that memory has more.
    pub(crate) fn push(&mut self, seq: Seq, rows: Rows, version: &Version) -> Result<usize> {
        if self.is_dropped {
            // The write was on its way when the table was dropped, and counts as one before that.
            return Ok(0);
        }
        let bytes = rows.size_bytes();
        match rows {
            Rows::Packed(packed) => {
                self.seal(version)?;
                self.add(Chunk::new((seq, seq), packed), &version.deletes);
            }
            Rows::Loose(columns) => {
                // Together with others its texts might be more than a column can hold.
                if self.loose_bytes + bytes > LOOSE_BYTES_MAX {
                    self.seal(version)?;
                }
                self.loose_rows += columns.first().map_or(0, |column| column.len());
                self.loose_bytes += bytes;
                self.held.set(self.held.bytes() + bytes);
                self.loose.push(Loose { seq, columns });
                if self.loose_rows >= LOOSE_ROWS_MAX || self.loose_bytes >= LOOSE_BYTES_MAX {
                    self.seal(version)?;
                }
            }
        }
        Ok(bytes)
    }

    /// Packs what is loose, so that readers can be given it, and what comes next is apart.
    ///
    /// # Errors
    /// When it cannot be laid together.
    pub(crate) fn seal(&mut self, version: &Version) -> Result<()> {
        let (Some(first), Some(last)) = (self.loose.first(), self.loose.last()) else {
            return Ok(());
        };
        let seqs = (first.seq, last.seq);
        let parts: Vec<&[ArrayRef]> = self.loose.iter().map(|loose| &loose.columns[..]).collect();
        let packed = together(&version.layout, &parts)?;
        self.loose.clear();
        self.held.set(self.held.bytes() - std::mem::take(&mut self.loose_bytes));
        self.loose_rows = 0;
        self.add(Chunk::new(seqs, packed), &version.deletes);
        Ok(())
    }

    /// Adds a chunk behind all others. As long as the last two are small and alike in size they become one.
    fn add(&mut self, mut chunk: Chunk, deletes: &Deletes) {
        while let Some(last) = self.chunks.last() {
            let (rows, more) = (last.packed.rows(), chunk.packed.rows());
            let is_parted = deletes
                .iter()
                .any(|delete| last.last_seq < delete.seq && delete.seq < chunk.first_seq);
            let is_alike = last.packed.layout() == chunk.packed.layout();
            let is_much = rows + more > TOGETHER_ROWS_MAX
                || last.size_bytes + chunk.size_bytes > TOGETHER_BYTES_MAX;
            if is_much || rows > 2 * more || is_parted || !is_alike {
                break;
            }
            let parts = [last.packed.columns(), chunk.packed.columns()];
            // They can be read as they are.
            let Ok(both) = together(chunk.packed.layout(), &parts) else { break };
            chunk = Chunk::new((last.first_seq, chunk.last_seq), both);
            let bytes = last.size_bytes;
            self.chunks.pop();
            self.held.set(self.held.bytes() - bytes);
        }
        self.held.set(self.held.bytes() + chunk.size_bytes);
        let chunk = Arc::new(chunk);
        self.count(&chunk);
        self.chunks.push(chunk);
    }

    /// All chunks, in the order of their writes.
    pub(crate) fn all_chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.leaving.iter().chain(&self.chunks)
    }

    /// Those that a flush takes: all that there are. Readers see them until it has ended.
    pub(crate) fn take_leaving(&mut self) -> Vec<Arc<Chunk>> {
        self.leaving.append(&mut self.chunks);
        self.leaving.clone()
    }

    /// A flush has ended: what it took is in segments, ...
    pub(crate) fn leave(&mut self) {
        self.leaving.clear();
        self.count_bytes();
    }

    /// ... or stays.
    pub(crate) fn stay(&mut self) {
        self.leaving.append(&mut self.chunks);
        self.chunks = std::mem::take(&mut self.leaving);
    }

    /// The first record of the log that rows in memory need.
    pub fn oldest_seq(&self) -> Option<Seq> {
        let of_chunks = self.all_chunks().map(|chunk| chunk.first_seq);
        of_chunks.chain(self.loose.iter().map(|loose| loose.seq)).min()
    }

    /// Rows in memory.
    pub fn rows(&self) -> usize {
        self.all_chunks().map(|chunk| chunk.packed.rows()).sum::<usize>() + self.loose_rows
    }

    /// Bytes of rows in memory.
    pub fn size_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Counts the bytes again, after chunks have gone.
    fn count_bytes(&mut self) {
        let bytes: usize = self.all_chunks().map(|chunk| chunk.size_bytes).sum();
        self.held.set(bytes + self.loose_bytes);
    }

    /// Makes its bytes a part of `sum`, and those of its chunks a part of `alive` for as long as somebody holds them.
    pub fn count_into(&mut self, sum: &RowBytes, alive: &RowBytes) {
        self.held.move_to(sum);
        self.alive = Some(alive.clone());
        self.all_chunks().for_each(|chunk| self.count(chunk));
    }

    fn count(&self, chunk: &Chunk) {
        if let Some(alive) = &self.alive {
            chunk.count_into(alive);
        }
    }

    /// Lets go of all rows, and takes no more.
    pub(crate) fn drop_all(&mut self) {
        *self = Self { is_dropped: true, held: std::mem::take(&mut self.held), ..Self::default() };
        self.held.set(0);
    }
}

/// Rows laid together and packed, as many columns as the layout has; those of before it had all of them lack the last ones.
fn together(layout: &Arc<Layout>, parts: &[&[ArrayRef]]) -> Result<Packed> {
    let column = |(place, (_, ty)): (usize, &(_, tidefall_types::FieldType))| {
        let rows = |part: &&[ArrayRef]| part.first().map_or(0, |column| column.len());
        let of_part = |part: &&[ArrayRef]| match part.get(place) {
            Some(column) => Arc::clone(column),
            None => new_null_array(&ty.arrow(), rows(part)),
        };
        let columns: Vec<ArrayRef> = parts.iter().map(of_part).collect();
        let columns: Vec<&dyn Array> = columns.iter().map(|column| &**column).collect();
        concat(&columns).map_err(arrow_error)
    };
    let columns = layout.columns.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
    Packed::new(layout, &columns)
}
