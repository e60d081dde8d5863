//! Which columns are tags, and what is in them.

use std::sync::Arc;

use tidefall_import::CsvOptions;
use tidefall_types::{TableId, TableSchema};

/// Rows came in without their tag, and replaced each other.
#[test]
fn a_file_without_a_tag_of_the_table_is_refused() {
    let mut table = TableSchema::new(TableId(0), "p", "time");
    table.add_tag("site").unwrap();
    table.add_tag("room").unwrap();
    let options = CsvOptions { table: Some(Arc::new(table)), ..CsvOptions::default() };
    let refused = |text: &str, options: &CsvOptions, expected: &str| {
        let error = crate::read_all(text, options).unwrap_err();
        assert_eq!(error.message(), format!("test.csv: {expected}"));
    };
    refused(
        "time,Site,room,v\n2024-01-01,a,r,1\n",
        &options,
        "the table \"p\" has the tag \"site\", which the file does not have; it has \"Site\": rename it, or give \
         all rows one with --constant-tag site=VALUE or --tag-from-file site, or leave them without with --skip site",
    );
    let text = "time,v\n2024-01-01,1\n";
    refused(
        text,
        &options,
        "the table \"p\" has the tags \"site\" and \"room\", which the file does not have: give all rows one with \
         --constant-tag site=VALUE or --tag-from-file site, or leave them without with --skip site,room",
    );
    let skip = vec!["room".to_owned()];
    let constant_tags = vec![("site".to_owned(), "a".to_owned())];
    let told = CsvOptions { skip, constant_tags, ..options.clone() };
    crate::check(text, &told, "2024-01-01T00:00:00Z site=a v=1");
    // Who names tags says that these are all.
    let tags = vec!["room".to_owned()];
    crate::check(
        "time,room,v\n2024-01-01,r,1\n",
        &CsvOptions { tags, ..options.clone() },
        "2024-01-01T00:00:00Z room=r v=1",
    );
    let skip = vec!["nope".to_owned()];
    let error = crate::read_all(text, &CsvOptions { skip, ..options }).unwrap_err();
    assert!(error.message().contains("\"nope\""), "{error}");
}

/// Both were missing values, so that a tag that is the empty text came back as none from its own export.
#[test]
fn two_quotes_are_the_empty_text() {
    let text = "time,s,t,v\n2024-01-01,a,x,1\n2024-01-02,\"\",\"\",\"\"\n2024-01-03,,,\n\"2024-01-04\",\"\",\"\",4\n\
                \"2024-01-05\",\"\"\n2024-01-06,,\"\",6\n";
    let expected = "2024-01-01T00:00:00Z s=a t=x v=1
        2024-01-02T00:00:00Z s= t=
        2024-01-03T00:00:00Z
        2024-01-04T00:00:00Z s= t= v=4
        2024-01-06T00:00:00Z t= v=6
        line 6: expected 4 columns, found 2";
    crate::check(text, &crate::tagged(&["s"]), expected);
    // Who says so has them missing.
    let null_texts = vec![String::new()];
    let expected = expected.replace(" s= ", " ").replace(" t=\n", "\n").replace(" t= ", " ");
    crate::check(text, &CsvOptions { null_texts, ..crate::tagged(&["s"]) }, &expected);
}
