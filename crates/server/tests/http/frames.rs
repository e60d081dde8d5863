//! What data frames ask, over HTTP.

use std::io::Cursor;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType};
use arrow_ipc::reader::StreamReader;
use serde_json::{Value, json};
use tidefall_server::ServerOptions;

use crate::client::{Reply, TestServer};

fn ask(server: &TestServer, question: &Value) -> Reply {
    server.send("POST", "/api/v1/frames", "", question.to_string().as_bytes())
}

fn batches(reply: &Reply) -> Vec<RecordBatch> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reader = StreamReader::try_new(Cursor::new(&reply.body), None).unwrap();
    reader.map(|batch| batch.unwrap()).collect()
}

#[test]
fn questions_are_answered_in_columns() {
    let server = TestServer::start();
    let lines = "m,s=b v=1.5,n=7i 10\nm,s=a v=2.5 10\nm,s=a v=3.5,n=8i 20";
    assert_eq!(server.write(lines).status, 204);
    let question = |ask: Value| json!({"table": "m", "field": "v", "ask": ask});
    let frame = batches(&ask(&server, &question(json!({"frame": null}))));
    assert_eq!(frame.len(), 1);
    let list = |column: usize| frame[0].column(column).as_list::<i64>().value(0);
    let names = list(0);
    assert!(names.as_string::<i32>().iter().flatten().eq(["a", "b"]));
    assert_eq!(list(1).as_primitive::<TimestampNanosecondType>().values(), &[10, 20]);
    let values = list(2);
    let values = values.as_primitive::<Float64Type>().values();
    assert_eq!((&values[..3], values[3].is_nan()), (&[2.5, 3.5, 1.5][..], true));
    assert_eq!(frame[0].column(4).as_primitive::<Int64Type>().values(), &[1]);
    // Integers with gaps are floats.
    let asked =
        json!({"table": "m", "field": "n", "sensors": [["s", ["b", "a"]]], "ask": {"frame": null}});
    let frame = batches(&ask(&server, &asked));
    assert!(frame[0].column(2).is_null(0));
    let values = frame[0].column(3).as_list::<i64>().value(0);
    assert_eq!(values.as_primitive::<Float64Type>().value(0), 7.0);
    let latest = batches(&ask(&server, &question(json!("latest"))));
    assert_eq!(latest[0].column(2).as_primitive::<Float64Type>().values(), &[3.5, 1.5]);
    // Nothing at that time, and still an answer with its columns.
    let mut nothing = question(json!({"frame": null}));
    nothing["start"] = json!(100);
    nothing["end"] = json!(100);
    let nothing = batches(&ask(&server, &nothing));
    assert_eq!(nothing.len(), 1);
    assert_eq!(nothing[0].column(1).as_list::<i64>().value(0).len(), 0);
    let wrong = [
        (json!({"table": "none", "field": "v", "ask": "latest"}), 404),
        (json!({"table": "m", "field": "w", "ask": "latest"}), 404),
        (json!({"table": "m", "ask": "latest"}), 400),
        (json!({"table": "m", "field": "v", "ask": "all"}), 400),
        (json!({"table": "m", "field": "v", "sensors": [["t", ["a"]]], "ask": "latest"}), 404),
        (
            question(json!({"resample": [{"width": 0, "months": false, "origin": 0}, ["mean"]]})),
            400,
        ),
        (
            question(json!({"resample": [{"width": 1, "months": false, "origin": 0}, ["most"]]})),
            400,
        ),
    ];
    for (question, status) in wrong {
        let reply = ask(&server, &question);
        assert_eq!(reply.status, status, "{question}: {}", reply.text());
    }
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("route=\"frames\""), "{metrics}");
}

/// Bins of sensors whose clocks differ are side by side as many as all of them have together: memory went with it.
#[test]
fn what_would_take_too_much_memory_is_refused() {
    let (_, server) = TestServer::of_least_memory(ServerOptions::default());
    const SENSORS: u64 = 300;
    let line = |at: u64| format!("m,s={} v=1 {}\n", at % SENSORS, at * 1_000_000_000);
    let lines: String = (0..100 * SENSORS).map(line).collect();
    assert_eq!(server.write(lines).status, 204);
    let resample = |width: u64| {
        let bins = json!({"width": width, "months": false, "origin": 0});
        json!({"table": "m", "field": "v", "ask": {"resample": [bins, ["mean"]]}})
    };
    let reply = ask(&server, &resample(1_000_000_000));
    assert_eq!(reply.status, 413, "{}", reply.text());
    let found = batches(&ask(&server, &resample(3_600_000_000_000)));
    assert_eq!(found[0].column(1).as_list::<i64>().value(0).len(), 9);
    // A frame of as many values comes in pieces.
    let frame = json!({"table": "m", "field": "v", "ask": {"frame": null}});
    let pieces = batches(&ask(&server, &frame));
    let rows = pieces.iter().map(|piece| piece.column(1).as_list::<i64>().value(0).len());
    assert_eq!((pieces.len() > 1, rows.sum::<usize>()), (true, 30_000));
}

/// It waited for more memory than was left beside what was reserved for it, for ever.
#[test]
fn a_long_series_needs_no_more_memory_than_there_is() {
    const ROWS: u64 = 1_800_000;
    const ROWS_AT_ONCE: u64 = 300_000;
    let time = Duration::from_secs(20);
    let options = ServerOptions { request_time_max: time, ..ServerOptions::default() };
    let (_, server) = TestServer::of_least_memory(options);
    for first in (0..ROWS).step_by(ROWS_AT_ONCE as usize) {
        let lines = first..first + ROWS_AT_ONCE;
        let lines: String = lines.map(|at| format!("m v={at} {}\n", at * 1_000_000)).collect();
        assert_eq!(server.write(lines).status, 204);
    }
    let question = json!({"table": "m", "field": "v", "ask": "series"});
    let series = batches(&ask(&server, &question));
    let rows = series.iter().map(|batch| batch.column(0).as_list::<i64>().value(0).len());
    assert_eq!(rows.sum::<usize>(), ROWS as usize);
}
