//! A table while the database is open.

use std::collections::HashSet;
use std::ops::Range;

use tidefall_ground::claims::{Claim, Claims};
use tidefall_ground::gate::Gate;
use tidefall_ground::held::{Held, RowBytes};
use tidefall_ground::turns::TableLock;
use tidefall_sync::atomic::{AtomicI64, AtomicU32, Ordering};
use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tidefall_types::{Error, Result, Seq, TableId, TableSchema, TimeRange};

use crate::catalog::SensorDictionary;
use crate::failed::Failed;
use crate::kv::{Newest, Run, Settling, is_sparse};
use crate::read::{LiveObject, Sources, Version};
use crate::rest::Rest;

/// Rows of small writes that are put into one run; larger writes are runs of their own. A tail of
/// this many rows is laid together in some tens of microseconds when a reader comes, and in some hundreds if each was a late write of its own.
const TAIL_ROWS: usize = 8192;

/// Bytes after which rows of small writes are a run, too, as are larger writes at once: what is laid together again
/// and again when a reader comes.
const TAIL_BYTES: usize = 8 << 20;

/// Runs of the tail that are looked through as they are before a write: to lay them together for each of many would
/// take longer.
const APART_MAX: usize = 64;

/// A table while the database is open.
#[derive(Debug)]
pub struct Table {
    /// Its number, which no other table has or had.
    pub id: TableId,
    /// Who moves what it has.
    pub lock: TableLock,
    /// What writers pass.
    pub gate: Arc<Gate>,
    /// Held by whoever gives fields other types, who waits for all else while he does.
    pub retyping: Mutex<()>,
    /// Their numbers and tags.
    pub sensors: RwLock<SensorDictionary>,
    /// How many of them storage knows.
    pub known: KnownSensors,
    live: Mutex<Live>,
    /// What is stored of it. It changes only while `live` is locked, too: whoever locks that finds both as of one moment.
    version: RwLock<Arc<Version>>,
    newest: Mutex<Newest>,
    /// Where times begin that a flush takes at once, as the last one has found: late rows before it stay in memory for a while.
    pub(crate) kv_ns: AtomicI64,
    /// What the cascade could not read.
    pub failed: Failed,
    /// What is being written anew.
    pub claims: Claims,
    /// When segments may be for few readings.
    pub(crate) rest: Rest,
    /// Why it cannot be read or written: something that all of it needs is damaged. Other tables
    /// are served, and this one can be dropped.
    pub damage: Option<Error>,
}

/// How many of a table's sensors storage knows. Those of a write that failed, or that is in memory only, are in the
/// dictionary all the same.
#[derive(Debug, Default)]
pub struct KnownSensors {
    /// Those below are in the log or in objects.
    kept: AtomicU32,
    /// Those below are kept, or a write was to bring them into the log.
    sent: AtomicU32,
}

impl KnownSensors {
    /// Sensors below are in the log or in objects.
    pub fn kept(&self) -> u32 {
        self.kept.load(Ordering::Acquire)
    }

    /// Notes that sensors below are in the log or in objects.
    pub fn keep(&self, upto: u32) {
        self.kept.fetch_max(upto, Ordering::AcqRel);
        self.sent.fetch_max(upto, Ordering::AcqRel);
    }

    /// The sensors below `upto` that nobody has sent to the log; the caller does.
    pub(crate) fn send(&self, upto: u32) -> Range<u32> {
        let first = self.sent.fetch_max(upto, Ordering::AcqRel);
        first..upto.max(first)
    }
}

/// Rows in memory. Writes, deletes and the cascade change them together with the table's [`Version`], each in one step.
#[derive(Debug, Default)]
pub struct Live {
    /// Runs in the order of their writes.
    pub(crate) runs: Vec<Arc<Run>>,
    /// Small runs that will become one, behind `runs`.
    tail: Vec<Arc<Run>>,
    tail_rows: usize,
    tail_bytes: usize,
    /// Whether it is no table any more.
    pub is_dropped: bool,
    /// What is to be known of late rows.
    pub(crate) settling: Settling,
    /// Loads that have their place among the writes, or will have it soon, and whose rows are not to be seen as yet.
    pub(crate) loads: usize,
    held: Held,
    /// Where each run counts for as long as somebody holds it; nowhere before the table is shown.
    alive: Option<RowBytes>,
}

impl Table {
    /// An empty table.
    pub fn new(schema: TableSchema) -> Self {
        let mut sensors = SensorDictionary::default();
        sensors.add_tags(schema.tags.len());
        Self {
            id: schema.id,
            lock: TableLock::default(),
            gate: Arc::default(),
            retyping: Mutex::default(),
            sensors: RwLock::new(sensors),
            known: KnownSensors::default(),
            live: Mutex::new(Live::default()),
            version: RwLock::new(Arc::new(Version::new(schema))),
            newest: Mutex::default(),
            kv_ns: AtomicI64::new(i64::MIN),
            failed: Failed::default(),
            claims: Claims::default(),
            rest: Rest::default(),
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

    /// Whether somebody waits until nothing of it is moved. What is due meanwhile is then looked for again soon.
    pub(crate) fn is_waited_for(&self) -> bool {
        let is_waited_for = self.lock.is_waited_for();
        if is_waited_for {
            self.claims.refuse();
        }
        is_waited_for
    }

    /// What it has at present.
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

    /// The schema of a table that is not needed any more.
    pub fn into_schema(self) -> TableSchema {
        let version = self.version.into_inner().unwrap_or_else(PoisonError::into_inner);
        Arc::unwrap_or_clone(Arc::unwrap_or_clone(version).schema)
    }

    /// Locks what readers see, for a moment.
    pub fn live(&self) -> MutexGuard<'_, Live> {
        // Every change is made by calls that do not panic half-way.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks what tells whether rows are new, which is asked for each write in the order of writes.
    pub(crate) fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims objects, all or none: none if somebody has one of them, or if it is not live any more.
    pub fn claim(&self, objects: &[Arc<LiveObject>]) -> Option<Claim<'_>> {
        let ids = objects.iter().map(|object| object.entry.id).collect();
        self.claims.claim(ids, || {
            let version = self.version();
            objects.iter().all(|object| version.objects.have(object))
        })
    }

    /// Everything that readers may see now.
    pub fn sources(&self) -> Result<Sources> {
        let mut live = self.live();
        live.lay_tail_together()?;
        Ok(self.sources_of(&live))
    }

    /// Everything that readers may see now, of which `live` is locked.
    pub(crate) fn sources_of(&self, live: &Live) -> Sources {
        let (runs, settling) = (live.all_runs().cloned().collect(), live.settling_if_seen());
        Sources { runs, version: self.version(), settling }
    }

    /// What readers may see now at the sensors and the times of some rows.
    pub(crate) fn sources_near(&self, rows: &Run) -> Result<Sources> {
        let mut live = self.live();
        if live.tail.len() > APART_MAX {
            live.lay_tail_together()?;
        }
        let place = (&rows.sensors, &rows.range);
        let settling = live.settling_if_seen();
        let near = Sources::near(live.all_runs(), &self.version(), place);
        Ok(Sources { settling, ..near })
    }
}

impl Live {
    /// Adds rows behind all others.
    pub(crate) fn push(&mut self, run: Run) -> Result<Arc<Run>> {
        let run = Arc::new(run);
        if self.is_dropped {
            // The write was on its way when the table was dropped, and counts as one before that.
            return Ok(run);
        }
        self.held.set(self.held.bytes() + run.size_bytes);
        self.count(&run);
        if run.rows() >= TAIL_ROWS / 2 || run.size_bytes >= TAIL_BYTES / 2 {
            self.seal()?;
            self.runs.push(Arc::clone(&run));
            return Ok(run);
        }
        self.tail_rows += run.rows();
        self.tail_bytes += run.size_bytes;
        self.tail.push(Arc::clone(&run));
        if self.tail_rows >= TAIL_ROWS || self.tail_bytes >= TAIL_BYTES {
            self.seal()?;
        }
        Ok(run)
    }

    /// Takes note that readings within a stretch of time go that nothing replaces. Late rows may have replaced some of them, which nobody will see any
    /// more, and readers of older snapshots still do.
    pub(crate) fn lose(&self, time: &TimeRange) {
        let runs = self.all_runs().filter(|run| run.range.overlaps(time));
        runs.for_each(|run| run.settle(time, false));
    }

    /// Makes the tail a run, so that what comes next is apart from it.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.lay_tail_together()?;
        self.end_tail();
        Ok(())
    }

    fn end_tail(&mut self) {
        self.runs.append(&mut self.tail);
        (self.tail_rows, self.tail_bytes) = (0, 0);
    }

    fn lay_tail_together(&mut self) -> Result<()> {
        if self.tail.len() < 2 {
            return Ok(());
        }
        let together = match is_sparse(&self.tail) {
            true => None,
            // They can be read as they are. An error here would keep a row from readers that is in the log.
            false => Run::concat(&self.tail)
                .inspect_err(|error| tracing::warn!(%error, "rows in memory stay apart"))
                .ok(),
        };
        match together {
            Some(run) => {
                let apart: usize = self.tail.iter().map(|run| run.size_bytes).sum();
                self.held.set(self.held.bytes() + run.size_bytes - apart);
                self.count(&run);
                self.tail = vec![Arc::new(run)];
            }
            None => self.end_tail(),
        }
        Ok(())
    }

    /// What is to be known of late rows, where all that was written and has not gone is to be seen.
    fn settling_if_seen(&self) -> Option<Settling> {
        (self.loads == 0).then(|| self.settling.clone())
    }

    /// All runs, the tail included.
    pub fn all_runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.runs.iter().chain(&self.tail)
    }

    /// The first record of the log that rows in memory need.
    pub fn oldest_seq(&self) -> Option<Seq> {
        self.all_runs().map(|run| run.first_seq).min()
    }

    /// Bytes of rows in memory.
    pub fn kv_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Counts the bytes again, after the runs were changed.
    pub(crate) fn count_bytes(&mut self) {
        let bytes = self.all_runs().map(|run| run.size_bytes).sum();
        self.held.set(bytes);
    }

    /// Puts runs in the place of some others.
    pub(crate) fn replace_runs(&mut self, taken: &[Arc<Run>], others: Vec<Arc<Run>>) {
        let taken: HashSet<*const Run> = taken.iter().map(Arc::as_ptr).collect();
        let is_taken = |run: &Arc<Run>| taken.contains(&Arc::as_ptr(run));
        let position = self.runs.iter().position(is_taken).unwrap_or(0);
        self.runs.retain(|run| !is_taken(run));
        others.iter().for_each(|run| self.count(run));
        self.runs.splice(position..position, others);
    }

    /// Makes its bytes a part of `sum`, and those of its runs a part of `alive` for as long as somebody holds them.
    pub fn count_into(&mut self, sum: &RowBytes, alive: &RowBytes) {
        self.held.move_to(sum);
        self.alive = Some(alive.clone());
        self.all_runs().for_each(|run| self.count(run));
    }

    fn count(&self, run: &Run) {
        if let Some(alive) = &self.alive {
            run.count_into(alive);
        }
    }

    /// Lets go of all rows, and takes no more.
    pub(crate) fn drop_all(&mut self) {
        self.is_dropped = true;
        self.runs.clear();
        self.tail.clear();
        (self.tail_rows, self.tail_bytes) = (0, 0);
        self.held.set(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use arrow_array::{ArrayRef, Float64Array, StringArray};
    use tidefall_types::Seq;

    use super::*;
    use crate::kv::GROWTH_MAX;

    const FIELDS: usize = 1000;

    fn run(seq: usize, field: usize) -> Run {
        const ROWS: usize = 30;
        let mut fields: Vec<Option<ArrayRef>> = vec![None; field + 1];
        fields[field] = Some(Arc::new(Float64Array::from(vec![1.5; ROWS])));
        let time = (0..ROWS as i64).collect();
        Run::new((Seq(seq as u64), Seq(seq as u64)), vec![0; ROWS].into(), time, fields)
    }

    #[test]
    fn runs_that_cannot_be_one_stay_apart_and_are_read() {
        let mut live = Live::default();
        live.push(run(0, 0)).unwrap();
        // No column can hold both.
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"; 30]));
        let time = (0..30).collect();
        let other = Run::new((Seq(1), Seq(1)), vec![0; 30].into(), time, vec![Some(texts)]);
        live.push(other).unwrap();
        live.seal().unwrap();
        assert_eq!(live.all_runs().map(|run| run.rows()).collect::<Vec<_>>(), [30, 30]);
    }

    #[test]
    fn runs_of_different_fields_stay_apart() {
        for (fields, runs) in [(1, 1), (2, 1), (FIELDS, FIELDS)] {
            let mut live = Live::default();
            let mut pushed_bytes = 0;
            for seq in 0..FIELDS {
                let run = run(seq, seq % fields);
                pushed_bytes += run.size_bytes;
                live.push(run).unwrap();
            }
            live.seal().unwrap();
            assert!(live.runs.len() <= runs * FIELDS.div_ceil(TAIL_ROWS / 30), "{fields} fields");
            assert!(live.kv_bytes() <= GROWTH_MAX * pushed_bytes, "{fields} fields");
            assert_eq!(live.runs.iter().map(|run| run.rows()).sum::<usize>(), FIELDS * 30);
        }
    }

    /// Each run was looked for in the list of those that go, while readers and writers waited.
    #[test]
    fn many_runs_are_replaced_quickly() {
        const RUNS: usize = 200_000;
        let runs = |seqs: Range<usize>| seqs.map(|seq| Arc::new(run(seq, 0))).collect();
        let mut live = Live { runs: runs(0..RUNS), ..Live::default() };
        let taken = live.runs[RUNS / 4..RUNS / 4 * 3].to_vec();
        let others: Vec<Arc<Run>> = runs(RUNS..RUNS + 2);
        let start = Instant::now();
        live.replace_runs(&taken, others);
        let seconds = start.elapsed().as_secs_f64();
        println!("{} of {RUNS} runs went in {seconds:.3} s", taken.len());
        let seqs: Vec<usize> = live.runs.iter().map(|run| run.first_seq.0 as usize).collect();
        let expected = (0..RUNS / 4).chain(RUNS..RUNS + 2).chain(RUNS / 4 * 3..RUNS);
        assert!(seqs.into_iter().eq(expected));
        // It takes some hundredths of a second, and took twelve seconds.
        assert!(seconds < 2.0, "{seconds} s");
    }
}
