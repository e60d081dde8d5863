//! Any bytes as a page: decoding gives a column or a `Corrupt` error, and never panics.
//!
//! The first byte chooses the type. The checksum is repaired, else the decoders behind it would
//! hardly ever be reached; one input in two also goes in as it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidefall_codec::{ColumnBuilder, check_page, decode_page, page_info, repair_checksum};
use tidefall_types::{ErrorKind, FieldType};

const TYPES: [FieldType; 13] = [
    FieldType::I8,
    FieldType::I16,
    FieldType::I32,
    FieldType::I64,
    FieldType::U8,
    FieldType::U16,
    FieldType::U32,
    FieldType::U64,
    FieldType::F32,
    FieldType::F64,
    FieldType::Bool,
    FieldType::Text,
    FieldType::Timestamp,
];

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let mut page = bytes.to_vec();
    if choice & 0x80 == 0 {
        repair_checksum(&mut page);
    }
    let info = page_info(&page);
    let checked = check_page(&page);
    // The type that the page claims reaches deepest; the chosen one covers the mismatch.
    let claimed = info.as_ref().map(|info| info.ty).ok();
    for ty in claimed.into_iter().chain([TYPES[usize::from(choice & 0x7f) % TYPES.len()]]) {
        match decode_page(&page, ty) {
            Ok(column) => {
                assert!(checked.is_ok());
                assert_eq!(info.as_ref().map(|info| info.rows).ok(), Some(column.len()));
                let mut builder = ColumnBuilder::new(ty, 0);
                builder.append_nulls(1);
                let half = column.len() / 2;
                assert!(builder.append_page_rows(&page, half..column.len()).is_ok());
                assert_eq!(builder.finish().len(), 1 + column.len() - half);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }
});
