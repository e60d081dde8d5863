//! Any text taken for a record descriptor gives a table and rows or a typed error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidefall_import::Descriptor;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(descriptor) = Descriptor::parse(text) else { return };
    let schema = descriptor.schema("rows").expect("a descriptor that was read makes a table");
    assert!(descriptor.row_bytes() > 0);
    // The same bytes as rows, as many as are whole.
    let whole = data.len() / descriptor.row_bytes() * descriptor.row_bytes();
    if let Ok(columns) = descriptor.columns(&data[..whole], 1) {
        assert_eq!(columns.len(), schema.columns.len());
        let rows = whole / descriptor.row_bytes();
        assert!(columns.iter().all(|column| column.values.len() == rows));
    }
});
