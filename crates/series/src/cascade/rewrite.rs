//! Writing segments: from rows of a source, sensor by sensor, by several threads.

use std::collections::VecDeque;

use roaring::RoaringBitmap;
use tidefall_codec::Profile;
use tidefall_ground::manifest::Edit;
use tidefall_ground::manifest::series::Edit::AddObject;
use tidefall_ground::manifest::series::{Model, ObjectEntry};
use tidefall_ground::options::CascadeReport;
use tidefall_ground::parallel::ordered;
use tidefall_ground::texts::STRETCH_TEXT_BYTES;
use tidefall_ground::written::Written;
use tidefall_store::names;
use tidefall_sync::thread::ScopedJoinHandle;
use tidefall_sync::{Arc, Mutex, PoisonError};
use tidefall_types::{Error, FieldId, FieldType, ObjectId, Result, Seq, TableId, TimeRange};

use super::order::last_seq;
use super::pieces::take_pieces;
use crate::context::Context;
use crate::install::install;
use crate::read::{LiveObject, ReadStats, SensorStream, Sources};
use crate::segment::SegmentWriter;
use crate::segment::encode::{EncodeParams, Stretch, encode_piece, metrics_interval_ns};
use crate::table::{Live, Table};

/// What object is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output<'a> {
    pub(super) table: TableId,
    pub(super) model: Model,
    pub(super) fields: &'a [(FieldId, FieldType)],
    /// The latest write in it.
    pub(super) seq: Seq,
    /// The interval of the metrics of the table.
    pub(super) block_ns: i64,
    pub(super) estimate: Estimate,
    /// Whether it has filters.
    pub(super) has_filters: bool,
    /// Threads that encode it.
    pub(super) threads: usize,
}

/// Rows and sensors that an object will have at most, from which the interval of its metrics
/// follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    pub(super) rows: u64,
    pub(super) sensors: u64,
    pub(super) time: TimeRange,
}

impl Estimate {
    /// The interval of the object's metrics, of a table with blocks of `block_ns`.
    pub(super) fn interval_ns(&self, block_ns: i64) -> i64 {
        let span_ns = self.time.last_ns.saturating_sub(self.time.first_ns);
        metrics_interval_ns(block_ns, self.rows, self.sensors, span_ns)
    }
}

/// Run files and short columns are rewritten soon: they are packed fast. Long columns stay.
const fn encode_profile(model: Model) -> Profile {
    match model {
        Model::Kv | Model::Short => Profile::Fast,
        Model::Long => Profile::Dense,
    }
}

/// An object whose rows are written, but not durable yet.
#[derive(Debug)]
pub(super) struct Unfinished {
    segment: SegmentWriter,
    id: ObjectId,
    writer: u32,
    since_ns: i64,
    model: Model,
    seq: Seq,
}

impl Unfinished {
    /// Makes the object durable; it is one of those that are `written` then.
    fn finish(self, written: &Written) -> Result<ObjectEntry> {
        written.note(names::object(self.id, self.writer, self.model.name()));
        let summary = self.segment.finish()?;
        Ok(ObjectEntry {
            id: self.id,
            writer: self.writer,
            since_ns: self.since_ns,
            model: self.model,
            last_seq: self.seq,
            last_delete: Seq::default(),
            is_distinct: false,
            time: summary.time,
            first_sensor: summary.first_sensor,
            last_sensor: summary.last_sensor,
            rows: summary.rows,
            bytes: summary.bytes,
        })
    }
}

/// Objects that become durable while the next one is written.
const FINISHING_MAX: usize = 4;
/// Objects that several threads write at the same time, which bounds open files and their buffers.
const WRITERS_MAX: usize = 8;

/// Writes an object for each of some spans of time, one after the other. A disk takes longer to make a day durable
/// than it takes to encode it, so that is done aside.
pub(super) fn write_in_turn<S>(
    written: &Written,
    spans: &[S],
    write: impl Fn(&S) -> Result<Option<Unfinished>>,
) -> Result<Vec<ObjectEntry>> {
    if let [span] = spans {
        return write(span)?.into_iter().map(|object| object.finish(written)).collect();
    }
    let join = |finishing: ScopedJoinHandle<'_, Result<Option<ObjectEntry>>>| {
        finishing.join().map_err(|panic| Error::of_panic(&*panic))?
    };
    tidefall_sync::thread::scope(|scope| {
        let mut finishing = VecDeque::new();
        let mut finished = Vec::with_capacity(spans.len());
        for span in spans {
            let Some(object) = write(span)? else { continue };
            let object = Arc::new(Mutex::new(Some(object)));
            let finish = move || {
                let object = object.lock().unwrap_or_else(PoisonError::into_inner).take();
                object.map(|object| object.finish(written)).transpose()
            };
            match tidefall_sync::thread::Builder::new().spawn_scoped(scope, finish.clone()) {
                Ok(thread) => finishing.push_back(thread),
                Err(_) => {
                    // The system has no more threads for us.
                    for before in finishing.drain(..) {
                        finished.extend(join(before)?);
                    }
                    finished.extend(finish()?);
                }
            }
            if finishing.len() > FINISHING_MAX
                && let Some(first) = finishing.pop_front()
            {
                finished.extend(join(first)?);
            }
        }
        for last in finishing {
            finished.extend(join(last)?);
        }
        Ok(finished)
    })
}

/// As [`write_in_turn`], each object by a thread of its own: of `threads` threads twice as many, as half of them
/// wait for the disk.
pub(super) fn write_side_by_side<S: Sync>(
    written: &Written,
    threads: usize,
    spans: &[S],
    write: impl Fn(&S) -> Result<Option<Unfinished>> + Sync,
) -> Result<Vec<ObjectEntry>> {
    let mut objects = Vec::with_capacity(spans.len());
    let whole = |span: &S| write(span)?.map(|object| object.finish(written)).transpose();
    ordered((2 * threads).min(WRITERS_MAX), spans, whole, |object| {
        objects.extend(object);
        Ok(())
    })?;
    Ok(objects)
}

/// Takes a piece of a sensor's rows.
pub(super) type EachPiece<'a> = dyn FnMut(u32, &[Stretch]) -> Result<()> + 'a;

/// Writes one object with the rows that `read` gives for each item, piece by piece; items are in the order of
/// their sensors. No object is written when there is no row.
pub(super) fn write_object<T: Sync>(
    context: &Context,
    output: Output<'_>,
    items: &[T],
    read: impl Fn(&T, &mut EachPiece<'_>) -> Result<()> + Sync,
) -> Result<Option<Unfinished>> {
    let block_ns = output.estimate.interval_ns(output.block_ns);
    let profile = encode_profile(output.model);
    let (fields, has_filters) = (output.fields.to_vec(), output.has_filters);
    let params = EncodeParams { fields, block_ns, profile, has_filters };
    let id = context.ground.next_object_id();
    let mut writer: Option<SegmentWriter> = None;
    let encode = |item: &T| {
        let mut pieces = Vec::new();
        read(item, &mut |sensor, piece| {
            if piece.iter().any(|stretch| !stretch.rows().is_empty()) {
                pieces.push(encode_piece(sensor, piece, &params)?);
            }
            Ok(())
        })?;
        Ok(pieces)
    };
    ordered(output.threads, items, encode, |pieces| {
        for piece in pieces {
            let writer = match &mut writer {
                Some(writer) => writer,
                none => {
                    let out = context.create_object(id, output.model)?;
                    none.insert(SegmentWriter::new(out, output.table, params.clone())?)
                }
            };
            writer.append(piece)?;
        }
        Ok(())
    })?;
    let Output { model, seq, .. } = output;
    let (by, since_ns) = (context.ground.writer(), context.ground.now_ns());
    Ok(writer.map(|segment| Unfinished { segment, id, writer: by, since_ns, model, seq }))
}

/// Rewrites objects, between which nothing else was written that overlaps them, into the given spans.
pub(super) fn rewrite(
    context: &Context,
    table: &Arc<Table>,
    inputs: &[Arc<LiveObject>],
    spans: &[(Model, TimeRange)],
) -> Result<CascadeReport> {
    rewrite_and(context, table, inputs, spans, |_| {})
}

/// As [`rewrite`]; what readers see is changed in one step with `change`.
pub(super) fn rewrite_and(
    context: &Context,
    table: &Arc<Table>,
    inputs: &[Arc<LiveObject>],
    spans: &[(Model, TimeRange)],
    change: impl FnOnce(&mut Live),
) -> Result<CascadeReport> {
    let sources = Sources::of(inputs, &table.version());
    let schema = &sources.version.schema;
    let fields: Arc<[(FieldId, FieldType)]> = schema.typed_fields().into();
    let last_delete = sources.version.deletes.last_seq();
    let sensors = sensors_of(inputs)?;
    let seq = last_seq(inputs);
    let stats = Arc::new(ReadStats::default());
    let (block_ns, threads) = (schema.options.block_ns, context.ground.threads());
    let written = context.ground.written();
    let mut outputs = write_in_turn(&written, spans, |(model, time)| {
        context.ground.steps.check()?;
        let has_filters = may_have_filters(*model) && are_mostly_late(inputs, time)?;
        let read = |(sensor, time): &(u32, TimeRange), each: &mut EachPiece<'_>| {
            let stream = SensorStream::new(&sources, *sensor, time, &fields, &stats)?;
            let profile = encode_profile(*model);
            let may_stay = |object: &LiveObject| encode_profile(object.entry.model) == profile;
            take_pieces(stream, time, may_stay, &mut |piece| each(*sensor, piece))
        };
        let output = Output {
            table: table.id,
            model: *model,
            fields: &fields,
            seq,
            block_ns,
            estimate: estimate(inputs, time, sensors.len()),
            has_filters,
            threads,
        };
        let items = stretches(inputs, &sensors, time, stretch_rows(fields.len()))?;
        write_object(context, output, &items, read)
    })?;
    let is_distinct = inputs.iter().all(|input| input.entry.is_distinct);
    for entry in &mut outputs {
        (entry.last_delete, entry.is_distinct) = (last_delete, is_distinct);
    }
    let before: u64 = inputs.iter().map(|object| object.entry.rows).sum();
    let after: u64 = outputs.iter().map(|entry| entry.rows).sum();
    let mut report = CascadeReport {
        steps: 1,
        rows: after,
        bytes: outputs.iter().map(|entry| entry.bytes).sum(),
        rows_dropped: before.saturating_sub(after),
    };
    if outputs.is_empty() {
        report.steps = u64::from(!inputs.is_empty());
    }
    let removed = inputs.iter().map(|object| Edit::RemoveObject(table.id, object.entry.id));
    let added = outputs.iter().map(|entry| Edit::from(AddObject(table.id, entry.clone())));
    install(context, table, written, removed.chain(added).collect(), change)?;
    context.ground.worked.rewritten(report.bytes);
    Ok(report)
}

/// Whether objects of a model have filters where their rows came late: nearly nothing comes late for long columns.
pub(super) fn may_have_filters(model: Model) -> bool {
    matches!(model, Model::Kv | Model::Short)
}

/// Whether most rows of objects within a stretch of time came late, as their filters tell.
fn are_mostly_late(inputs: &[Arc<LiveObject>], time: &TimeRange) -> Result<bool> {
    let (mut late, mut others) = (0, 0);
    for object in inputs.iter().filter(|object| object.entry.time.overlaps(time)) {
        *if object.segment.has_filters()? { &mut late } else { &mut others } += object.entry.rows;
    }
    Ok(late > others)
}

pub(super) fn estimate(inputs: &[Arc<LiveObject>], time: &TimeRange, sensors: u64) -> Estimate {
    let mut estimate = Estimate { rows: 0, sensors, time: TimeRange::new(i64::MAX, i64::MIN) };
    for object in inputs.iter().filter(|object| object.entry.time.overlaps(time)) {
        let shared = object.entry.time.intersect(time);
        estimate.rows += (object.entry.rows as f64 * share(&object.entry.time, &shared)) as u64;
        estimate.time = estimate.time.union(&shared);
    }
    estimate
}

/// The part of a stretch of time that lies in another, from 0 to 1.
pub(super) fn share(all: &TimeRange, part: &TimeRange) -> f64 {
    let length = |range: &TimeRange| {
        i128::from(range.last_ns) as f64 - i128::from(range.first_ns) as f64 + 1.0
    };
    (length(part) / length(all)).clamp(0.0, 1.0)
}

/// Rows after which the work on a sensor is divided, if texts are not too long before: bounds what one thread holds.
/// Of tables with more
/// than [`STRETCH_FIELDS`] fields it is accordingly less. Tests, which run with assertions, have fewer rows.
const STRETCH_ROWS: u64 = if cfg!(debug_assertions) { 1 << 12 } else { 1 << 19 };
const STRETCH_FIELDS: u64 = 8;

pub(super) fn stretch_rows(fields: usize) -> u64 {
    (STRETCH_ROWS * STRETCH_FIELDS / (fields as u64).max(STRETCH_FIELDS)).max(1)
}

/// The sensors in their order, and for each the stretches of `time` that are worked on apart.
pub(super) fn stretches(
    inputs: &[Arc<LiveObject>],
    sensors: &RoaringBitmap,
    time: &TimeRange,
    stretch_rows: u64,
) -> Result<Vec<(u32, TimeRange)>> {
    let mut stretches = Vec::with_capacity(sensors.len() as usize);
    let mut chunks: Vec<(i64, u64, u64)> = Vec::new();
    let texts = inputs.iter().map(text_places).collect::<Result<Vec<_>>>()?;
    for sensor in sensors {
        chunks.clear();
        let inputs = inputs.iter().zip(&texts);
        for (object, texts) in inputs.filter(|(object, _)| object.entry.time.overlaps(time)) {
            for index in object.segment.index_blocks(sensor, sensor)? {
                for position in index.chunks_of(sensor) {
                    let chunk = index.chunk(position);
                    let pages = texts.iter().map(|place| chunk.field_page(*place));
                    let text_bytes = pages.map(|page| page.end - page.start).sum();
                    chunks.push((chunk.meta.first_ns, u64::from(chunk.meta.rows), text_bytes));
                }
            }
        }
        chunks.sort_unstable();
        let (mut start_ns, mut rows, mut bytes) = (time.first_ns, 0, 0);
        for &(first_ns, chunk_rows, text_bytes) in &chunks {
            let is_full = rows >= stretch_rows || bytes >= STRETCH_TEXT_BYTES as u64;
            if is_full && first_ns > start_ns && first_ns <= time.last_ns {
                stretches.push((sensor, TimeRange::new(start_ns, first_ns - 1)));
                (start_ns, rows, bytes) = (first_ns, 0, 0);
            }
            rows += chunk_rows;
            bytes += text_bytes;
        }
        stretches.push((sensor, TimeRange::new(start_ns, time.last_ns)));
    }
    Ok(stretches)
}

/// Where the texts stand among the fields of an object.
fn text_places(object: &Arc<LiveObject>) -> Result<Vec<usize>> {
    let fields = object.segment.fields()?.into_iter().enumerate();
    Ok(fields.filter(|(_, (_, ty))| *ty == FieldType::Text).map(|(place, _)| place).collect())
}

/// The sensors that have rows in some objects.
pub(super) fn sensors_of(objects: &[Arc<LiveObject>]) -> Result<RoaringBitmap> {
    let mut sensors = RoaringBitmap::new();
    for object in objects {
        for position in 0..object.segment.index_block_count()? {
            sensors.extend(object.segment.index_block_at(position)?.sensors());
        }
    }
    Ok(sensors)
}
