//! Any bytes taken for CSV give rows or a typed error, and every batch is sound.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidefall_import::{CsvOptions, Header, Input, Layout, read_csv};

fuzz_target!(|data: &[u8]| {
    // The first byte chooses among the options.
    let Some((&choice, text)) = data.split_first() else { return };
    let options = CsvOptions {
        separator: [None, Some(b','), Some(b';'), Some(b' ')][usize::from(choice & 3)],
        header: [Header::Auto, Header::Yes, Header::No][usize::from(choice >> 2 & 3) % 3],
        layout: match choice & 16 {
            0 => Layout::Long,
            _ => Layout::Wide { tag: "sensor".to_owned() },
        },
        tags: if choice & 32 == 0 { Vec::new() } else { vec!["#2".to_owned()] },
        threads: 1,
        ..CsvOptions::default()
    };
    let length = Some(text.len() as u64);
    let Ok(input) = Input::from_reader("fuzz", Box::new(std::io::Cursor::new(text.to_vec())), length)
    else {
        return;
    };
    let Ok(reader) = read_csv(input, &options) else { return };
    for batch in reader.flatten() {
        assert!(batch.batch.check().is_ok(), "a batch is sound");
    }
});
