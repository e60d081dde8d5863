//! What an `INSERT` says of the rows that it replaces.

use futures::TryStreamExt;
use tidefall_sql::Inserted;
use tidefall_storage::{CascadeRequest, Target};

use crate::TestDb;

/// Each in two pieces or more, and laid down in every model meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_counted_over_all_pieces_of_a_statement() {
    let test_db = TestDb::new();
    test_db.text("CREATE TABLE t (time TIMESTAMP, s TEXT, v BIGINT, PRIMARY KEY (s, time))").await;
    let insert = |first: u64, rows: u64, different: u64| {
        format!(
            "INSERT INTO t SELECT to_timestamp((value % {different}) / 7), concat('s', value % 7), value \
             FROM generate_series({first}, {})",
            first + rows - 1
        )
    };
    assert_eq!(test_db.text(&insert(0, 350_000, 350_000)).await, "350000 0");
    assert_eq!(test_db.text(&insert(350_000, 350_000, 700_000)).await, "350000 0");
    assert_eq!(test_db.text(&insert(300_000, 500_000, 800_000)).await, "500000 400000");
    for target in [Target::Short, Target::Long] {
        test_db.db.cascade(&CascadeRequest { table: None, target }).expect("a cascade");
        assert_eq!(test_db.text(&insert(500_000, 300_000, 800_000)).await, "300000 300000");
    }
    // They repeat each other, in one piece and in another than the first.
    test_db.text("DROP TABLE t").await;
    test_db.text("CREATE TABLE t (time TIMESTAMP, s TEXT, v BIGINT, PRIMARY KEY (s, time))").await;
    assert_eq!(test_db.text(&insert(0, 600_000, 299_999)).await, "600000 300001");
    assert_eq!(test_db.text("SELECT count(*) FROM t").await, "299999");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_read_says_what_was_inserted() {
    let test_db = TestDb::new();
    test_db.text("CREATE TABLE t (time TIMESTAMP, v BIGINT)").await;
    for replaced in [0, 2] {
        let sql = "INSERT INTO t VALUES ('2024-01-01', 1), ('2024-01-02', 2)";
        let mut answer = test_db.session.query(sql).await.expect("an answer");
        assert_eq!(answer.inserted(), None);
        while answer.try_next().await.expect("a row").is_some() {}
        assert_eq!(answer.inserted(), Some(Inserted { rows: 2, replaced: Some(replaced) }));
    }
    let mut answer = test_db.session.query("SELECT * FROM t").await.expect("an answer");
    while answer.try_next().await.expect("rows").is_some() {}
    assert_eq!(answer.inserted(), None);
}
