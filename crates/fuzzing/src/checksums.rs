//! Makes the checksums of damaged bytes right again, for fuzzers: else what lies behind the checksums
//! would hardly ever be reached.

use std::ops::Range;

use tidefall_ground::frames::{Content, HEADER_BYTES, TAIL_BYTES};
use tidefall_series::segment::{Fence, IndexBlock, decode_footer};
use tidefall_types::TableId;

/// Repairs header, tail, footer, index, metrics and pages of a segment, as far as each can be found
/// by what stands before it.
pub fn repair_segment(bytes: &mut [u8]) {
    repair_header(Content::Segment, bytes);
    let Some(tail) = bytes.len().checked_sub(TAIL_BYTES) else { return };
    let crc = crc32c::crc32c(&bytes[tail..tail + 12]);
    put_u32(bytes, tail + 12, crc);
    bytes[tail + 16..].copy_from_slice(Content::Segment.magic());
    let mut offset = [0; 8];
    offset.copy_from_slice(&bytes[tail..tail + 8]);
    let offset = u64::from_le_bytes(offset);
    let Some(footer) = usize::try_from(offset).ok().and_then(|at| bytes.get_mut(at..tail)) else {
        return;
    };
    repair_frame(footer, 2);
    let Ok(footer) = decode_footer(TableId::default(), footer, offset) else { return };
    for fence in &footer.metrics {
        repair_frame(&mut bytes[range(fence)], 0);
    }
    for fence in &footer.index {
        repair_frame(&mut bytes[range(fence)], 1);
        let fields = footer.description.fields.len();
        let index = IndexBlock::decode(&bytes[range(fence)], fields, footer.data_end);
        let Ok(index) = index else { continue };
        for position in 0..index.sensors().len() {
            let chunk = index.chunk(position);
            let pages = (0..fields).map(|field| chunk.field_page(field));
            for page in pages.chain([chunk.time_page()]) {
                tidefall_codec::repair_checksum(&mut bytes[page.start as usize..page.end as usize]);
            }
        }
    }
}

// A fence was checked to lie within the bytes when it was decoded.
fn range(fence: &Fence) -> Range<usize> {
    fence.offset as usize..(fence.offset + fence.bytes) as usize
}

/// Repairs the header of an object.
pub fn repair_header(content: Content, bytes: &mut [u8]) {
    if let Some(header) = bytes.first_chunk_mut::<HEADER_BYTES>() {
        header[..8].copy_from_slice(content.magic());
        let crc = crc32c::crc32c(&header[..16]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Repairs a frame of which the first parts are bytes, the others columns.
pub fn repair_frame(frame: &mut [u8], byte_parts: usize) {
    let Some(table_end) = frame.len().checked_sub(8) else { return };
    let count = u32_at(frame, table_end) as usize;
    let Some(table) = count.checked_mul(4).and_then(|bytes| table_end.checked_sub(bytes)) else {
        return;
    };
    let crc = crc32c::crc32c(&frame[table..table_end + 4]);
    put_u32(frame, table_end + 4, crc);
    let (parts, table) = frame.split_at_mut(table);
    let mut rest = parts;
    for part in 0..count {
        let length = u32_at(table, 4 * part) as usize;
        let Some((found, behind)) = rest.split_at_mut_checked(length) else { return };
        match part < byte_parts {
            true => repair_bytes(found),
            false => repair_column(found),
        }
        rest = behind;
    }
}

fn repair_bytes(part: &mut [u8]) {
    let Some(end) = part.len().checked_sub(4) else { return };
    let crc = crc32c::crc32c(&part[..end]);
    put_u32(part, end, crc);
}

pub(super) fn repair_column(mut part: &mut [u8]) {
    while let Some((length, rest)) = part.split_first_chunk_mut::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((page, behind)) = rest.split_at_mut_checked(length) else { return };
        tidefall_codec::repair_checksum(page);
        part = behind;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}
