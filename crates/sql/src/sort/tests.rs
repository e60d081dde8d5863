//! Held against DataFusion's sorts with all memory there is.

use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryLimit};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::testing::{self, shown};

/// A pool that knows how much was taken from it at once.
#[derive(Debug)]
struct Peak {
    pool: FairSpillPool,
    bytes: AtomicUsize,
}

impl Peak {
    fn look(&self) {
        self.bytes.fetch_max(self.pool.reserved(), Ordering::Relaxed);
    }
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.pool, f)
    }
}

impl MemoryPool for Peak {
    fn name(&self) -> &str {
        "peak"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
        self.look();
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let outcome = self.pool.try_grow(reservation, additional);
        self.look();
        outcome
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

/// A context with our sorts in so many bytes, or with DataFusion's where there is always room.
fn context(query_bytes: Option<usize>, pool: Arc<dyn MemoryPool>) -> SessionContext {
    let mut rules = PhysicalOptimizer::new().rules;
    rules.extend(query_bytes.map(|query_bytes| Arc::new(BoundedSorts { query_bytes }) as _));
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_batch_size(256)
        .with_round_robin_repartition(false);
    testing::context(config, pool, rules)
}

fn schema() -> SchemaRef {
    let tag = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("i", DataType::Int64, true),
        Field::new("f", DataType::Float64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("tag", tag, true),
        Field::new("id", DataType::Int64, false),
    ]))
}

/// Some rows, whose `id` goes on from `first`; some texts are long.
fn batch(random: &mut SmallRng, first: i64, rows: usize, long: usize) -> RecordBatch {
    let texts: Vec<Option<String>> = (0..rows)
        .map(|_| {
            let length = match random.random_range(0..20) {
                0 => long,
                other => other,
            };
            (random.random_range(0..9) > 0).then(|| {
                let letter = char::from(b'a' + random.random_range(0..26));
                String::from(letter).repeat(random.random_range(0..=length))
            })
        })
        .collect();
    // A dictionary of its own for each batch, or one of the same values.
    let tags: Vec<String> =
        (0..rows).map(|_| format!("tag{}", random.random_range(0..30))).collect();
    let tags: DictionaryArray<Int32Type> = tags.iter().map(String::as_str).collect();
    let numbers: Vec<Option<i64>> = (0..rows)
        .map(|_| (random.random_range(0..9) > 0).then(|| random.random_range(-50..50)))
        .collect();
    let floats = (0..rows).map(|_| match random.random_range(0..9) {
        0 => None,
        1 => Some(f64::NAN),
        _ => Some(f64::from(random.random_range(-5_000..5_000)) / 8.0),
    });
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(numbers)),
        Arc::new(Float64Array::from_iter(floats)),
        Arc::new(StringArray::from_iter(texts)),
        Arc::new(tags),
        Arc::new(Int64Array::from_iter_values(first..first + rows as i64)),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn partitions(random: &mut SmallRng, rows: usize, long: usize) -> Vec<Vec<RecordBatch>> {
    let (mut parts, mut first) = (vec![Vec::new(); random.random_range(1..4)], 0);
    while first < rows {
        let count = random.random_range(0..400).min(rows - first);
        let part = random.random_range(0..parts.len());
        parts[part].push(batch(random, first as i64, count, long));
        first += count;
    }
    parts
}

fn fair(bytes: usize) -> Arc<Peak> {
    Arc::new(Peak { pool: FairSpillPool::new(bytes), bytes: AtomicUsize::new(0) })
}

const QUESTIONS: [&str; 9] = [
    "SELECT * FROM t ORDER BY id",
    "SELECT * FROM t ORDER BY i, id",
    "SELECT * FROM t ORDER BY f DESC NULLS LAST, id DESC",
    "SELECT id, s FROM t ORDER BY s NULLS FIRST, tag, id",
    "SELECT tag, id FROM t ORDER BY tag DESC, i, id",
    "SELECT id, i, s FROM t ORDER BY i DESC, s, id LIMIT 700 OFFSET 300",
    "SELECT id FROM t ORDER BY id DESC LIMIT 1 OFFSET 1200",
    "SELECT id, count(*) OVER (PARTITION BY i ORDER BY f, id) AS c FROM t ORDER BY id",
    "SELECT a.id, b.f FROM t a JOIN t b ON a.id = b.id ORDER BY b.f, a.id",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_sorts_in_memory() {
    let mut random = SmallRng::seed_from_u64(19);
    for round in 0..24 {
        let rows = [0, 1, 300, 5_000][round % 4];
        let parts = partitions(&mut random, rows, [30, 3_000][round % 2]);
        let table = Arc::new(MemTable::try_new(schema(), parts).unwrap());
        let plain = context(None, fair(1 << 30));
        plain.register_table("t", Arc::clone(&table) as _).unwrap();
        for bytes in [100 << 10, 1 << 20, 1 << 26] {
            // Joins, windows and sorts that keep some rows need what they hold.
            let questions = if bytes < 1 << 26 { &QUESTIONS[..5] } else { &QUESTIONS };
            let pool = fair(bytes);
            let bounded = context(Some(bytes), Arc::clone(&pool) as _);
            bounded.register_table("t", Arc::clone(&table) as _).unwrap();
            for sql in questions {
                let answer = shown(&bounded, sql).await;
                let answer =
                    answer.unwrap_or_else(|error| panic!("{round}, {bytes}: {sql}: {error}"));
                assert_eq!(answer, shown(&plain, sql).await.unwrap(), "{round}, {bytes}: {sql}");
                assert_eq!(pool.reserved(), 0, "{round}, {bytes}: {sql}");
            }
        }
    }
}

/// The least memory is enough for any number of sorts at once, and they keep to it but for some batches each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sorts_at_once_keep_to_the_memory() {
    let mut random = SmallRng::seed_from_u64(23);
    let parts = partitions(&mut random, 40_000, 40);
    let table = Arc::new(MemTable::try_new(schema(), parts).unwrap());
    let bytes = 2 << 20;
    let pool = fair(bytes);
    let bounded = context(Some(bytes), Arc::clone(&pool) as _);
    bounded.register_table("t", table).unwrap();
    let sorts = (0..6).map(|nth| {
        let bounded = bounded.clone();
        tokio::spawn(async move {
            for round in 0..3 {
                let sql = QUESTIONS[(nth + round) % 5];
                let batches = bounded.sql(sql).await?.collect().await?;
                assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 40_000);
            }
            Ok::<_, datafusion::error::DataFusionError>(())
        })
    });
    let sorts: Vec<_> = sorts.collect();
    for sort in sorts {
        sort.await.unwrap().unwrap();
    }
    assert_eq!(pool.reserved(), 0);
    let peak = pool.bytes.load(Ordering::Relaxed);
    assert!(peak > bytes / 2, "{peak}");
    assert!(peak < 3 * bytes, "{peak} bytes were taken at once by 18 sorts");
}

/// Runs of which only some can be merged at a time, and what is seen of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_merged_in_steps() {
    let mut random = SmallRng::seed_from_u64(29);
    let parts = partitions(&mut random, 60_000, 40);
    let table = Arc::new(MemTable::try_new(schema(), parts).unwrap());
    let bytes = 400 << 10;
    let bounded = context(Some(bytes), fair(bytes));
    bounded.register_table("t", table).unwrap();
    let frame = bounded.sql("SELECT * FROM t ORDER BY f, id").await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let rows = collect(Arc::clone(&plan), bounded.task_ctx()).await.unwrap();
    let ids = rows.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!(ids, 60_000);
    let mut spilled = (0, 0);
    plan.apply(|node| {
        if node.is::<SortedExec>() {
            let metrics = node.metrics().unwrap();
            spilled = (metrics.spill_count().unwrap(), metrics.spilled_rows().unwrap());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    assert!(spilled.0 > 20, "{spilled:?}");
    // Some rows were written more than once.
    assert!(spilled.1 > 60_000, "{spilled:?}");
}

/// A row that is longer than all memory, and sorts that are given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_rows_and_readers_that_leave() {
    let mut random = SmallRng::seed_from_u64(31);
    let parts = vec![vec![batch(&mut random, 0, 900, 10), batch(&mut random, 900, 30, 200_000)]];
    let table = Arc::new(MemTable::try_new(schema(), parts).unwrap());
    let bytes = 64 << 10;
    let pool = fair(bytes);
    let bounded = context(Some(bytes), Arc::clone(&pool) as _);
    bounded.register_table("t", table).unwrap();
    let sql = "SELECT * FROM t ORDER BY s, id";
    assert!(shown(&bounded, sql).await.unwrap().contains("929"));
    let mut stream = bounded.sql(sql).await.unwrap().execute_stream().await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);
    for _ in 0..100 {
        if pool.reserved() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{} bytes are kept", pool.reserved());
}

/// A sort that keeps more rows than have room writes them as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_that_are_kept_are_sorted_on_the_disk() {
    let mut random = SmallRng::seed_from_u64(37);
    let parts = partitions(&mut random, 20_000, 30);
    let table = Arc::new(MemTable::try_new(schema(), parts).unwrap());
    let plain = context(None, fair(1 << 30));
    let bounded = context(Some(1 << 20), fair(1 << 20));
    for context in [&plain, &bounded] {
        context.register_table("t", Arc::clone(&table) as _).unwrap();
    }
    for (rows, is_kept) in [(100, true), (3_000, false), (19_000, false), (30_000, false)] {
        let sql = format!("SELECT * FROM t ORDER BY f DESC, id LIMIT 7 OFFSET {}", rows - 7);
        assert_eq!(shown(&bounded, &sql).await.unwrap(), shown(&plain, &sql).await.unwrap());
        let plan = shown(&bounded, &format!("EXPLAIN {sql}")).await.unwrap();
        assert_eq!(plan.contains("TopK"), is_kept, "{plan}");
        assert_eq!(plan.contains("SortExec: by="), !is_kept, "{plan}");
    }
}

/// Some long rows in the midst of short ones leave the batches of these as long as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_long_rows_do_not_cut_up_the_others() {
    let mut random = SmallRng::seed_from_u64(41);
    let long: Vec<RecordBatch> =
        (0..20).map(|at| batch(&mut random, at * 10, 10, 60_000)).collect();
    let short = (0..100).map(|at| batch(&mut random, 200 + at * 400, 400, 10));
    let parts = vec![long.into_iter().chain(short).collect()];
    let table = Arc::new(MemTable::try_new(schema(), parts).unwrap());
    let bytes = 4 << 20;
    let bounded = context(Some(bytes), fair(bytes));
    bounded.register_table("t", table).unwrap();
    let frame = bounded.sql("SELECT * FROM t ORDER BY f, id").await.unwrap();
    let batches = frame.collect().await.unwrap();
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 40_200);
    let longest = batches.iter().map(RecordBatch::get_array_memory_size).max();
    assert!(longest < Some(bytes / 4), "{longest:?}");
    assert!(batches.len() < 40_200 / 3, "{} batches", batches.len());
}

/// Where others had taken the memory, a sort was refused as it merged runs: those that come of others have longer batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_merged_where_no_memory_is_left() {
    let mut random = SmallRng::seed_from_u64(43);
    let mut long = |first: i64| {
        let texts = (0..200).map(|_| {
            let letter = char::from(b'a' + random.random_range(0..26));
            String::from(letter).repeat(random.random_range(2_500..3_000))
        });
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 200));
        RecordBatch::try_from_iter([("s", texts), ("id", ids)]).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..30).map(|nth| long(nth * 200)).collect();
    let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
    let bytes = 16 << 20;
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
    let bounded = context(Some(bytes), Arc::clone(&pool));
    bounded.register_table("t", Arc::new(table)).unwrap();
    let others = MemoryConsumer::new("others").register(&pool);
    others.grow(bytes);
    let answer = bounded.sql("SELECT * FROM t ORDER BY s, id").await.unwrap().collect().await;
    assert_eq!(answer.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 6_000);
    assert_eq!(pool.reserved(), bytes);
}

/// Keys that begin alike for longer than is looked at, that differ in few bytes or in many, and rows with the same keys.
#[test]
fn rows_are_sorted_by_several_keys_as_by_arrow() {
    use datafusion::arrow::compute::{SortColumn, lexsort_to_indices, take_record_batch};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
    let mut random = SmallRng::seed_from_u64(47);
    for round in 0..200 {
        let count = random.random_range(1..3_000);
        let range = [1, 200, 1 << 20, i64::MAX][random.random_range(0..4)];
        let prefix = "p".repeat(random.random_range(0..100));
        let column = |random: &mut SmallRng, kind| -> ArrayRef {
            let mut number = || random.random_range(0..range);
            match kind {
                0 => Arc::new(Int64Array::from_iter_values((0..count).map(|_| number()))),
                1 => Arc::new(Int64Array::from_iter(
                    (0..count).map(|_| Some(number()).filter(|number| number % 5 != 0)),
                )),
                2 => Arc::new(StringArray::from_iter_values(
                    (0..count).map(|_| format!("{prefix}{}", number())),
                )),
                _ => {
                    let texts: Vec<String> =
                        (0..count).map(|_| format!("{prefix}{}", number() % 50)).collect();
                    let texts = texts.iter().map(String::as_str);
                    Arc::new(texts.collect::<DictionaryArray<Int32Type>>())
                }
            }
        };
        let names = ["a", "b", "c", "id"];
        let mut columns: Vec<ArrayRef> = (0..3)
            .map(|_| {
                let kind = random.random_range(0..4);
                column(&mut random, kind)
            })
            .collect();
        columns.push(Arc::new(Int64Array::from_iter_values(0..count)));
        let batch = RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap();
        let keys = names[..random.random_range(1..4)].iter().map(|name| {
            let mut key = PhysicalSortExpr::new_default(col(name, &batch.schema()).unwrap());
            key.options.descending = random.random();
            key.options.nulls_first = random.random();
            key
        });
        let keys = LexOrdering::new(keys.collect::<Vec<_>>()).unwrap();
        let fetch = random.random_bool(0.5).then(|| random.random_range(1..4_000));
        // Rows that the keys do not tell apart are in the order of their numbers.
        let mut naive: Vec<SortColumn> = keys
            .iter()
            .map(|key| SortColumn {
                values: key.expr.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap(),
                options: Some(key.options),
            })
            .collect();
        naive.push(SortColumn { values: Arc::clone(batch.column(3)), options: None });
        let order = lexsort_to_indices(&naive, fetch).unwrap();
        let sorted = several_keys::sorted(&batch, &keys, fetch).unwrap();
        assert_eq!(sorted, take_record_batch(&batch, &order).unwrap(), "{round}: {keys}");
    }
}

#[test]
fn keys_are_charged_with_what_they_take() {
    use datafusion::arrow::array::{BooleanArray, StringViewArray, TimestampNanosecondArray};
    use datafusion::arrow::row::{RowConverter, SortField};
    let words = || (0..200).map(|at| (at % 7 != 0).then(|| "x".repeat(at % 70)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter((0..200).map(|at| (at % 3 != 0).then_some(at)))),
        Arc::new(TimestampNanosecondArray::from_iter_values(0..200)),
        Arc::new(Float64Array::from_iter_values((0..200).map(f64::from))),
        Arc::new(StringArray::from_iter(words())),
        Arc::new(StringViewArray::from_iter(words())),
        Arc::new(BooleanArray::from_iter((0..200).map(|at| Some(at % 2 == 0)))),
    ];
    let words: Vec<Option<String>> = words().collect();
    let keys = words.iter().map(|word| word.as_deref());
    let dictionary: ArrayRef = Arc::new(keys.collect::<DictionaryArray<Int32Type>>());
    for column in columns.into_iter().chain([dictionary]) {
        let fields = vec![SortField::new(column.data_type().clone())];
        let rows = RowConverter::new(fields).unwrap();
        let rows = rows.convert_columns(&[Arc::clone(&column)]).unwrap();
        let taken: usize = rows.lengths().sum();
        let charged = runs::compared_bytes(&column) as usize;
        let data_type = column.data_type();
        assert!(charged >= taken, "{data_type}: {charged}, but it takes {taken}");
        // A null takes a byte, and is charged as the number or the text in its place.
        let most = if *data_type == DataType::Boolean { taken * 20 } else { taken * 3 / 2 };
        assert!(charged <= most, "{data_type}: {charged}, but it takes {taken}");
    }
}
