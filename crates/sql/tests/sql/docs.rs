//! The examples of `docs/sql.md` run as written, one after the other in one database.

use std::path::Path;

use crate::TestDb;

#[tokio::test(flavor = "multi_thread")]
async fn examples_run() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    let text = std::fs::read_to_string(file).expect("docs/sql.md");
    let test_db = TestDb::new();
    let mut count = 0;
    for block in text.split("```sql\n").skip(1) {
        let sql = block.split("```").next().expect("an example");
        if let Err(error) = test_db.run(sql).await {
            panic!("{sql}\n{}: {error}", error.kind().name());
        }
        count += 1;
    }
    assert!(count >= 5, "only {count} examples were found");
}
