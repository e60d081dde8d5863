//! Tables and columns that come with their first writes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use arrow_array::{ArrayRef, Int64Array};
use tidefall_simulation::MemDisk;
use tidefall_storage::{
    Db, DbOptions, Existing, FieldTypes, TAG_BYTES_MAX, Unknown, WriteOptions, WriteReport,
};
use tidefall_types::{ErrorKind, FieldColumn, Result, Series, SeriesBatch, TagColumn, WriteBatch};

use crate::hooks::{Does, HookDisk};
use crate::small::{batch_of, read, write};

const CREATE: WriteOptions = WriteOptions {
    unknown: Unknown::Create,
    ack: tidefall_storage::Ack::Durable,
    bad_rows: tidefall_storage::BadRows::Reject,
    existing: Existing::Replace,
    field_types: FieldTypes::Keep,
};

fn options() -> DbOptions {
    DbOptions { threads: 1, ..DbOptions::default() }
}

fn open(disk: &MemDisk) -> Result<Db> {
    Db::open_on(Arc::new(disk.clone()), options())
}

/// A row with these tags, and with these fields.
fn row(tags: &[(&str, &str)], fields: &[&str]) -> WriteBatch {
    let tag = |&(name, value): &(&str, &str)| TagColumn {
        name: name.into(),
        values: vec![value].into(),
        keys: vec![0].into(),
    };
    let field = |&name: &&str| FieldColumn {
        name: name.into(),
        values: Arc::new(Int64Array::from(vec![1])) as ArrayRef,
    };
    WriteBatch {
        time: vec![1].into(),
        tags: tags.iter().map(tag).collect(),
        fields: fields.iter().map(field).collect(),
    }
}

/// The columns of a table, in their order.
fn columns(db: &Db, table: &str) -> Vec<String> {
    db.schema(table).unwrap().columns.iter().map(|column| column.name.clone()).collect()
}

fn names(tables: usize) -> Vec<String> {
    (0..tables).map(|table| format!("m{table:04}")).collect()
}

/// Writes to many tables as a request does: the first row that is refused ends it.
fn write_all(db: &Db, tables: &[String], rows: &WriteBatch) -> Vec<Result<WriteReport>> {
    let writes: Vec<_> = tables.iter().map(|table| (table.as_str(), rows)).collect();
    // A failure is met again below.
    let _ = db.prepare(&writes, &CREATE);
    let pending: Vec<_> = writes
        .iter()
        .map(|(table, rows)| {
            let (send, receive) = mpsc::sync_channel(1);
            let done = move |outcome: Result<(WriteReport, _)>| {
                send.send(outcome.map(|(report, _)| report)).unwrap();
            };
            db.submit(table, rows, &CREATE, done).map(|()| receive)
        })
        .collect();
    pending.into_iter().map(|receive| receive?.recv().unwrap()).collect()
}

#[test]
fn many_tables_come_with_one_commit() {
    let disk = MemDisk::new();
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&commits);
    let hooked = HookDisk::new(disk.clone(), move |does, name| {
        if does == Does::Link && name.starts_with("manifest/") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let db = Db::open_on(Arc::new(hooked), options()).unwrap();
    let tables = names(300);
    for (fields, expected) in [(&["value"][..], 1), (&["value", "b", "c"][..], 2)] {
        let outcomes = write_all(&db, &tables, &row(&[("host", "a")], fields));
        assert!(outcomes.iter().all(Result::is_ok), "{:?}", outcomes[0]);
        assert_eq!(commits.load(Ordering::SeqCst), expected);
    }
    // Nothing is lacking.
    write_all(&db, &tables, &row(&[("host", "b")], &["b"]));
    assert_eq!(commits.load(Ordering::SeqCst), 2);
    db.close().unwrap();
    let db = open(&disk).unwrap();
    assert_eq!(db.tables().len(), 300);
    for table in &tables {
        assert_eq!(columns(&db, table), ["time", "host", "value", "b", "c"]);
        // The second host has no value, which reads as 0.
        assert_eq!(read(&db, table), [(1, 1), (1, 0)]);
    }
}

#[test]
fn writes_that_differ_make_one_table() {
    let db = open(&MemDisk::new()).unwrap();
    write(&db, "old", &[(0, 0)]);
    let rows = [
        ("new", row(&[("a", "x")], &["v"])),
        ("old", row(&[("a", "x")], &["w"])),
        ("new", row(&[("b", "x")], &["u", "v"])),
        ("both", row(&[("a", "x")], &["a"])),
        ("new", row(&[("c", "x")], &["time", "v"])),
    ];
    let writes: Vec<_> = rows.iter().map(|(table, rows)| (*table, rows)).collect();
    db.prepare(&writes, &CREATE).unwrap();
    assert_eq!(columns(&db, "new"), ["time", "a", "v", "b", "u"]);
    // It will be refused, as its field is the time of the table that those before it make.
    assert_eq!(db.write("new", &rows[4].1, &CREATE).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(columns(&db, "new"), ["time", "a", "v", "b", "u"]);
    assert_eq!(columns(&db, "old"), ["time", "value", "a", "w"]);
    // It is refused, as it would have a tag and a field of one name.
    assert_eq!(db.schema("both").unwrap_err().kind(), ErrorKind::NotFound);
    let refuse = WriteOptions { unknown: Unknown::Refuse, ..CREATE };
    db.prepare(&[("late", &rows[0].1)], &refuse).unwrap();
    assert_eq!(db.tables().len(), 2);
}

#[test]
fn power_loss_while_tables_come_leaves_all_of_them_or_none() {
    let tables = names(5);
    let rows = batch_of(&[(3, 4)]);
    for step in 0.. {
        let disk = MemDisk::new();
        let db = open(&disk).unwrap();
        write(&db, "first", &[(1, 2)]);
        disk.lose_power_after(step);
        let outcomes = write_all(&db, &tables, &rows);
        let is_done = outcomes.iter().all(Result::is_ok);
        for seed in 0..4 {
            let found = disk.crash(seed);
            let again = open(&found).unwrap();
            let count = again.tables().len() - 1;
            assert!(count == 0 || count == tables.len(), "step {step}: {count} tables");
            assert_eq!(read(&again, "first"), [(1, 2)], "step {step}");
            for (table, outcome) in tables.iter().zip(&outcomes) {
                if outcome.is_ok() {
                    assert_eq!(read(&again, table), [(3, 4)], "step {step}, {table}");
                }
            }
            // Their numbers are free, or theirs.
            let outcomes = write_all(&again, &names(7), &rows);
            assert!(outcomes.iter().all(Result::is_ok), "step {step}");
            again.close().unwrap();
            let last = open(&found).unwrap();
            assert!(names(7).iter().all(|table| read(&last, table) == [(3, 4)]), "step {step}");
        }
        if is_done {
            assert!(step > 5, "only {step} steps");
            break;
        }
    }
}

#[test]
fn the_time_column_of_a_first_write_has_a_free_name() {
    let db = open(&MemDisk::new()).unwrap();
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a str);
    let cases: [Case<'_>; 4] = [
        (&[], &["v"], "time"),
        (&[], &["time"], "_time"),
        (&[("_time", "x")], &["time"], "__time"),
        (&[("time", "x"), ("__time", "y")], &["_time", "v"], "___time"),
    ];
    for (number, (tags, fields, expected)) in cases.into_iter().enumerate() {
        let table = format!("t{number}");
        let rows = row(tags, fields);
        db.write(&table, &rows, &CREATE).unwrap();
        assert_eq!(db.schema(&table).unwrap().time_name(), expected);
        let series = Series {
            time: rows.time.clone(),
            fields: rows.fields.iter().map(|field| Arc::clone(&field.values)).collect(),
        };
        let fields = rows.fields.iter().map(|field| field.name.clone()).collect();
        let batch = SeriesBatch { tags: rows.tags.clone(), fields, series: vec![series] };
        let table = format!("loaded{number}");
        db.load(&table, &batch, Unknown::Create).unwrap();
        assert_eq!(db.schema(&table).unwrap().time_name(), expected);
    }
}

#[test]
fn a_first_write_that_is_refused_leaves_no_table() {
    let db = open(&MemDisk::new()).unwrap();
    let long = "x".repeat(TAG_BYTES_MAX + 1);
    let mut twice = batch_of(&[(1, 1), (1, 2)]);
    let refuse = WriteOptions { existing: Existing::Refuse, ..CREATE };
    let cases = [
        (row(&[("a", "x")], &["a"]), CREATE),
        (row(&[("a", &long)], &["v"]), CREATE),
        (row(&[("", "x")], &["v"]), CREATE),
        (twice.clone(), refuse),
    ];
    for (rows, options) in cases {
        let error = db.write("plant", &rows, &options).unwrap_err();
        assert!(db.tables().is_empty(), "{error}");
        db.prepare(&[("plant", &rows)], &options).unwrap();
        assert!(db.tables().is_empty(), "{error}");
    }
    assert_eq!(db.write("", &twice, &CREATE).unwrap_err().kind(), ErrorKind::Invalid);
    let series = Series { time: vec![1].into(), fields: Vec::new() };
    let tags = row(&[("a", &long)], &[]).tags;
    let batch = SeriesBatch { tags, fields: Vec::new(), series: vec![series] };
    db.load("plant", &batch, Unknown::Create).unwrap_err();
    assert!(db.tables().is_empty());
    twice.time = vec![1, 2].into();
    db.write("plant", &twice, &refuse).unwrap();
    assert_eq!(read(&db, "plant"), [(1, 1), (2, 2)]);
}

/// All were named, in order, for whoever only wanted to know whether there is one: each new table took as many steps as there were tables.
#[test]
fn few_of_many_tables_are_named_where_one_is_missing() {
    let db = open(&MemDisk::new()).unwrap();
    let tables = names(1_000);
    let rows = row(&[("s", "a")], &["v"]);
    db.prepare(&tables.iter().map(|name| (name.as_str(), &rows)).collect::<Vec<_>>(), &CREATE)
        .unwrap();
    assert_eq!(db.tables().len(), 1_000);
    let error = db.schema("other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let message = error.message();
    assert!(message.contains("m0000, m0001, ") && message.ends_with("and 980 more"), "{message}");
}
