//! Runs the cases in `tests/slt`, in the format of sqllogictest: `statement ok`, `statement error
//! TEXT`, and `query [rowsort]` with its answer below `----`.

use std::fs;
use std::path::Path;

use crate::{TestDb, lines};

#[tokio::test(flavor = "multi_thread")]
async fn cases() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("the cases")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        run_file(&file).await;
    }
}

async fn run_file(file: &Path) {
    let text = fs::read_to_string(file).expect("a text");
    let test_db = TestDb::new();
    let mut line = 1;
    for block in text.split("\n\n") {
        let here = format!("{}:{line}", file.display());
        line += block.matches('\n').count() + 2;
        let records: Vec<&str> =
            block.lines().filter(|text| !text.starts_with('#') && !text.is_empty()).collect();
        if let Some((head, body)) = records.split_first() {
            run_record(&test_db, head, body, &here).await;
        }
    }
}

async fn run_record(test_db: &TestDb, head: &str, body: &[&str], here: &str) {
    let divider = body.iter().position(|text| *text == "----").unwrap_or(body.len());
    let (sql, expected) = (body[..divider].join("\n"), body.get(divider + 1..).unwrap_or(&[]));
    let answer = test_db.run(&sql).await;
    if let Some(part) = head.strip_prefix("statement error ") {
        let error = answer.expect_err(here);
        let found = format!("{}: {error}", error.kind().name());
        assert!(found.contains(part), "{here}\n{sql}\nexpected error: {part}\nfound: {found}");
        return;
    }
    let mut found = match answer {
        Ok(batches) => lines(&batches),
        Err(error) => panic!("{here}\n{sql}\n{}: {error}", error.kind().name()),
    };
    match head {
        "statement ok" => return,
        "query" => {}
        "query rowsort" => found.sort(),
        other => panic!("{here}: {other:?} is no kind of record"),
    }
    let expected: Vec<String> =
        expected.iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(found, expected, "{here}\n{sql}\nfound:\n{}\n", found.join("\n"));
}
