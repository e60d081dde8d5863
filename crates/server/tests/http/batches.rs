//! Streams of Arrow over HTTP, right and damaged.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int16Array, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use arrow_buffer::Buffer;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::client::{Reply, TestServer};

const ROWS: usize = 1_000;

fn batch(times: Range<i64>, value: f64) -> RecordBatch {
    let rows = times.clone().count();
    let times = TimestampNanosecondArray::from_iter_values(times);
    let values = Float64Array::from(vec![value; rows]);
    let names = StringArray::from(vec!["name"; rows]);
    let batch = RecordBatch::try_from_iter([
        ("time", Arc::new(times) as _),
        ("v", Arc::new(values) as _),
        ("name", Arc::new(names) as _),
    ]);
    batch.unwrap()
}

fn stream_of(batches: &[RecordBatch], packing: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(packing).unwrap();
    let schema = batches[0].schema();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn stream(packing: Option<CompressionType>) -> Vec<u8> {
    stream_of(&[batch(0..ROWS as i64, 1.5)], packing)
}

fn send(server: &TestServer, body: &[u8]) -> Reply {
    server.send("POST", "/api/v1/write?table=m", "", body)
}

/// The stream with `value` in the place of the only `old`, a length of 8 bytes.
fn forged(mut stream: Vec<u8>, old: i64, value: i64) -> Vec<u8> {
    let old = old.to_le_bytes();
    let at = stream.windows(old.len()).position(|window| window == old).unwrap();
    stream[at..at + old.len()].copy_from_slice(&value.to_le_bytes());
    stream
}

#[test]
fn streams_are_stored_packed_or_not() {
    let server = TestServer::start();
    for (packing, replaced) in [(None, 0), (Some(CompressionType::ZSTD), ROWS)] {
        let reply = send(&server, &stream(packing));
        let expected = json!({ "rows": ROWS, "replaced": replaced });
        assert_eq!((reply.status, reply.json()), (200, expected), "{packing:?}");
    }
    assert_eq!(server.sql("SELECT count(*), sum(v) FROM m"), json!([[ROWS, 1_500.0]]));
    let reply = send(&server, &stream(Some(CompressionType::LZ4_FRAME)));
    assert_eq!((reply.status, &reply.json()["error"]["kind"]), (400, &json!("unsupported")));
}

#[test]
fn rows_that_replace_others_are_counted_or_refused() {
    let server = TestServer::start();
    let body = stream(None);
    let send = |existing: &str| {
        server.send("POST", &format!("/api/v1/write?table=m{existing}"), "", &body)
    };
    let answers = [
        ("&existing=refuse", json!({ "rows": ROWS, "replaced": 0 })),
        ("&existing=replace", json!({ "rows": ROWS, "replaced": null })),
        ("&existing=count", json!({ "rows": ROWS, "replaced": ROWS })),
        ("", json!({ "rows": ROWS, "replaced": ROWS })),
    ];
    for (existing, expected) in answers {
        let reply = send(existing);
        assert_eq!((reply.status, reply.json()), (200, expected), "{existing:?}");
    }
    let reply = send("&existing=refuse");
    assert_eq!((reply.status, &reply.json()["error"]["kind"]), (409, &json!("conflict")));
    assert_eq!(send("&existing=never").status, 400);
    let metrics = server.get("/metrics").text();
    let line = format!("tidefall_rows_replaced_total {}", 2 * ROWS);
    assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
}

/// Batches before one that is refused stay: the answer says from which row on nothing was written, and they count.
#[test]
fn batches_before_a_refused_one_are_counted_and_the_place_is_named() {
    let server = TestServer::start();
    let send = |existing: &str, batches: &[RecordBatch]| {
        let target = format!("/api/v1/write?table=m&existing={existing}");
        server.send("POST", &target, "", &stream_of(batches, None))
    };
    let metric = |name: &str, count: usize| {
        let (metrics, line) = (server.get("/metrics").text(), format!("{name} {count}"));
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    };
    assert_eq!(send("refuse", &[batch(10..11, 1.0)]).status, 200);
    let reply = send(
        "refuse",
        &[batch(0..2, 2.0), batch(2..5, 2.0), batch(9..12, 2.0), batch(20..30, 2.0)],
    );
    assert_eq!((reply.status, &reply.json()["error"]["kind"]), (409, &json!("conflict")));
    let message = reply.json()["error"]["message"].to_string();
    assert!(message.contains("of the rows from 6 on: table m: 1 of 3 rows"), "{message}");
    assert_eq!(server.sql("SELECT count(*), sum(v) FROM m"), json!([[6, 11.0]]));
    metric("tidefall_rows_written_total", 6);
    // Of the first batch all is as it is counted there.
    let reply = send("refuse", &[batch(9..12, 2.0), batch(20..30, 2.0)]);
    let message = reply.json()["error"]["message"].to_string();
    assert!(message.contains("\"table m: 1 of 3 rows"), "{message}");
    metric("tidefall_rows_written_total", 6);
    // A value that does not fit its table beside one that is there, and rows that replace others before it.
    server.sql("CREATE TABLE whole (time TIMESTAMP, v BIGINT, name TEXT)");
    server.sql("INSERT INTO whole (time, v) VALUES ('2024-01-01', 9007199254740993)");
    let target = "/api/v1/write?table=whole";
    let batches = [batch(0..2, 1.0), batch(0..2, 3.0), batch(2..4, 0.5)];
    let reply = server.send("POST", target, "", &stream_of(&batches, None));
    assert_eq!(reply.status, 409, "{}", reply.text());
    let message = reply.json()["error"]["message"].to_string();
    assert!(message.contains("of the rows from 5 on: "), "{message}");
    assert!(message.contains("cannot become DOUBLE"), "{message}");
    metric("tidefall_rows_written_total", 10);
    metric("tidefall_rows_replaced_total", 2);
    // Without that one it becomes wider.
    server.sql("CREATE TABLE free (time TIMESTAMP, v BIGINT, name TEXT)");
    let reply = server.send("POST", "/api/v1/write?table=free", "", &stream_of(&batches, None));
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(server.sql("SELECT count(*), sum(v) FROM free"), json!([[4, 7.0]]));
}

#[test]
fn announced_lengths_are_not_believed() {
    let server = TestServer::start();
    // The first length of 8,000 is that of the buffer of times.
    let too_long = forged(stream(None), 8 * ROWS as i64, 1 << 47);
    let negative = forged(stream(None), 8 * ROWS as i64, -1);
    let packed = forged(stream(Some(CompressionType::ZSTD)), 8 * ROWS as i64, 1 << 47);
    for body in [&too_long, &negative, &packed, &b"\xff\xff\xff\xff\xff\xff\xff\x7f"[..].to_vec()] {
        let reply = send(&server, body);
        assert!([400, 413].contains(&reply.status), "{}", reply.text());
    }
    assert_eq!(server.sql("SHOW TABLES"), json!([]));
}

/// A small body may have columns in which all rows share one long text: the process ended for want of memory.
#[test]
fn texts_that_rows_share_are_counted_for_each_of_them() {
    let server = TestServer::start();
    let long = "x".repeat(1 << 20);
    let send = |rows: i64, texts: ArrayRef| {
        let time = TimestampNanosecondArray::from_iter_values(0..rows);
        let time = ("time", Arc::new(time) as ArrayRef);
        let batch = RecordBatch::try_from_iter([time, ("text", texts)]).unwrap();
        send(&server, &stream_of(&[batch], None))
    };
    let shared = |rows: i64| -> ArrayRef {
        let keys = Int16Array::from(vec![0; rows as usize]);
        let values = Arc::new(StringArray::from(vec![&long[..]]));
        Arc::new(DictionaryArray::new(keys, values))
    };
    let seen = |rows: u32| -> ArrayRef {
        let mut texts = StringViewBuilder::new();
        let block = texts.append_block(Buffer::from(long.as_bytes()));
        (0..rows).for_each(|_| texts.try_append_view(block, 0, 1 << 20).unwrap());
        Arc::new(texts.finish())
    };
    for reply in
        [send(2_000, shared(2_000)), send(3_000, shared(3_000)), send(40_000, seen(40_000))]
    {
        assert_eq!(reply.status, 413, "{}", reply.text());
    }
    assert_eq!(server.get("/health").status, 200);
    for texts in [shared(4), seen(4)] {
        let reply = send(4, texts);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(server.sql("SELECT sum(length(text)) FROM m"), json!([[4 << 20]]));
}

#[test]
fn damaged_streams_are_refused_and_survived() {
    let server = TestServer::start();
    let whole = stream(None);
    let reply = send(&server, &whole[..whole.len() / 2]);
    let message = reply.json()["error"]["message"].to_string();
    assert!(message.contains("damaged Arrow stream"), "{message}");
    let mut rng = StdRng::seed_from_u64(1);
    for round in 0..400 {
        let mut body = whole.clone();
        let end = if round % 2 == 0 { 900 } else { body.len() };
        for _ in 0..rng.random_range(1..10) {
            body[rng.random_range(0..end)] = rng.random();
        }
        let reply = send(&server, &body);
        assert!([200, 400, 409, 413].contains(&reply.status), "round {round}: {}", reply.text());
    }
}
