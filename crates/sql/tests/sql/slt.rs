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
    let mut wrong = Vec::new();
    for file in files {
        run_file(&file, &mut wrong).await;
    }
    assert!(wrong.is_empty(), "{} records:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

async fn run_file(file: &Path, wrong: &mut Vec<String>) {
    let text = fs::read_to_string(file).expect("a text");
    let test_db = TestDb::new();
    let mut line = 1;
    for block in text.split("\n\n") {
        let here = format!("{}:{line}", file.display());
        line += block.matches('\n').count() + 2;
        let records: Vec<&str> =
            block.lines().filter(|text| !text.starts_with('#') && !text.is_empty()).collect();
        if let Some((head, body)) = records.split_first()
            && let Err(why) = run_record(&test_db, head, body).await
        {
            wrong.push(format!("{here}\n{why}"));
        }
    }
}

async fn run_record(test_db: &TestDb, head: &str, body: &[&str]) -> Result<(), String> {
    let divider = body.iter().position(|text| *text == "----").unwrap_or(body.len());
    let (sql, expected) = (body[..divider].join("\n"), body.get(divider + 1..).unwrap_or(&[]));
    let answer = test_db.run(&sql).await;
    let found = match &answer {
        Ok(batches) => lines(batches).join("\n"),
        Err(error) => format!("{}: {error}", error.kind().name()),
    };
    if let Some(part) = head.strip_prefix("statement error ") {
        return match answer {
            Err(_) if found.contains(part) => Ok(()),
            _ => Err(format!("{sql}\nexpected error: {part}\nfound: {found}")),
        };
    }
    let Ok(batches) = answer else { return Err(format!("{sql}\n{found}")) };
    let mut found = lines(&batches);
    match head {
        "statement ok" => return Ok(()),
        "query" => {}
        "query rowsort" => found.sort(),
        other => return Err(format!("{other:?} is no kind of record")),
    }
    let expected: Vec<String> =
        expected.iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    match found == expected {
        true => Ok(()),
        false => Err(format!("{sql}\nfound:\n{}", found.join("\n"))),
    }
}
