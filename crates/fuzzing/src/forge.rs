//! Segments whose numbers lie, for fuzzers: index, metrics and footer are taken apart, some numbers
//! are replaced, and all is put together again with right places and checksums.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use tidefall_codec::{Profile, page_info};
use tidefall_ground::frames::{Content, FrameReader, FrameWriter, TAIL_BYTES, encode_tail};
use tidefall_series::segment::{Fence, decode_footer};
use tidefall_types::{Error, FieldType, Result, TableId};

/// A number in the place of another.
#[derive(Debug, Clone, Copy)]
pub struct Lie {
    /// Which frame: those of the index, of the metrics, the footer; counted around.
    pub(crate) frame: u8,
    /// Which part of the frame, counted around.
    pub(crate) part: u8,
    /// Which number of the part, counted around.
    pub(crate) row: u16,
    /// What becomes of the number.
    pub(crate) how: u8,
}

impl Lie {
    fn about(self, old: i64) -> i64 {
        match self.how % 12 {
            0 => i64::MIN,
            1 => -1,
            2 => 0,
            3 => 1,
            4 => i64::MAX,
            5 => i64::from(u32::MAX),
            6 => old.wrapping_add(1),
            7 => old.wrapping_sub(1),
            8 => old.wrapping_mul(2),
            9 => old.wrapping_neg(),
            10 => old.wrapping_add(tidefall_types::NS_PER_HOUR),
            _ => old ^ 1 << (self.how / 12),
        }
    }

    fn put(self, bytes: &mut [u8; 8]) {
        *bytes = self.about(i64::from_le_bytes(*bytes)).to_le_bytes();
    }
}

/// A whole segment with lies.
///
/// # Errors
/// `Corrupt` when it is no whole segment.
pub fn forge_segment(segment: &[u8], lies: &[Lie]) -> Result<Vec<u8>> {
    let short = || Error::corrupt("only a whole segment can be forged");
    let (rest, tail) = segment.split_last_chunk::<TAIL_BYTES>().ok_or_else(short)?;
    let mut offset = [0; 8];
    offset.copy_from_slice(&tail[..8]);
    let offset = u64::from_le_bytes(offset);
    let footer = rest.get(offset as usize..).ok_or_else(short)?;
    let mut footer = decode_footer(TableId::default(), footer, offset)?;
    let mut filters = footer.filters.take().unwrap_or_default();
    let frames = footer.index.len() + footer.metrics.len() + filters.len() + 1;
    let of_frame = |frame: usize| {
        lies.iter().copied().filter(move |lie| usize::from(lie.frame) % frames == frame)
    };
    let mut out = rest.get(..footer.data_end as usize).ok_or_else(short)?.to_vec();
    let mut number = 0;
    let fences_of = [(&mut footer.index, 1), (&mut footer.metrics, 0), (&mut filters, 1)];
    for (fences, byte_parts) in fences_of {
        for fence in fences {
            let place = fence.offset as usize..(fence.offset + fence.bytes) as usize;
            let frame = rest.get(place).ok_or_else(short)?;
            let frame = forge_frame(frame, byte_parts, of_frame(number).collect())?;
            (fence.offset, fence.bytes) = (out.len() as u64, frame.len() as u64);
            out.extend_from_slice(&frame);
            number += 1;
        }
    }
    for lie in of_frame(number).filter(|lie| lie.part == 0) {
        footer.description.block_ns = lie.about(footer.description.block_ns);
    }
    let mut frame = FrameWriter::new(Profile::Dense);
    let json = serde_json::to_vec(&footer.description).map_err(|_| short())?;
    frame.put_bytes(&json)?;
    frame.put_bytes(&footer.data_end.to_le_bytes())?;
    Fence::encode(&footer.index, &mut frame)?;
    Fence::encode(&footer.metrics, &mut frame)?;
    if !filters.is_empty() {
        Fence::encode(&filters, &mut frame)?;
    }
    let frame = forge_frame(&frame.finish()?, 2, of_frame(number).collect())?;
    let tail = encode_tail(Content::Segment, out.len() as u64, frame.len())?;
    out.extend_from_slice(&frame);
    out.extend_from_slice(&tail);
    Ok(out)
}

/// A frame with lies, of which the first parts are bytes, the others columns.
fn forge_frame(frame: &[u8], byte_parts: usize, lies: Vec<Lie>) -> Result<Vec<u8>> {
    let mut frame = FrameReader::new(frame)?;
    let mut forged = FrameWriter::new(Profile::Dense);
    let parts = frame.parts_left();
    for part in 0..parts {
        let lies = lies.iter().filter(|lie| usize::from(lie.part) % parts == part);
        if part < byte_parts {
            let mut bytes = frame.take_bytes()?.to_vec();
            // Of other lengths are texts.
            if let Ok(number) = <&mut [u8; 8]>::try_from(&mut bytes[..]) {
                lies.for_each(|lie| lie.put(number));
            }
            forged.put_bytes(&bytes)?;
            continue;
        }
        let ty = frame.peek_page().map_or(Ok(FieldType::I64), |page| Ok(page_info(page)?.ty))?;
        let column = frame.take_column(ty)?;
        if ty != FieldType::I64 || column.is_empty() {
            forged.put_column(&column)?;
            continue;
        }
        let mut numbers = column.as_primitive::<Int64Type>().values().to_vec();
        for lie in lies {
            let row = usize::from(lie.row) % numbers.len();
            numbers[row] = lie.about(numbers[row]);
        }
        forged.put_i64s(numbers)?;
    }
    forged.finish()
}
