//! What every object of data ends with: where its last frame lies, which says where all else does.
//!
//! ```text
//! offset of the frame u64, its bytes u32, crc32c of the above u32, magic [8]
//! ```

use tidefall_types::{Error, Result};

use super::Content;

/// Bytes of a tail.
pub const TAIL_BYTES: usize = 24;

/// The tail behind a last frame of so many bytes at an offset.
///
/// # Errors
/// `Limit` when the frame is too long.
pub fn encode_tail(content: Content, offset: u64, frame_bytes: usize) -> Result<[u8; TAIL_BYTES]> {
    let frame_bytes = u32::try_from(frame_bytes)
        .map_err(|_| Error::limit("the footer of a segment is over 4 GiB"))?;
    let mut tail = [0; TAIL_BYTES];
    tail[..8].copy_from_slice(&offset.to_le_bytes());
    tail[8..12].copy_from_slice(&frame_bytes.to_le_bytes());
    let crc = crc32c::crc32c(&tail[..12]);
    tail[12..16].copy_from_slice(&crc.to_le_bytes());
    tail[16..].copy_from_slice(content.magic());
    Ok(tail)
}

/// Offset and bytes of the last frame; nothing when the tail is damaged.
pub fn decode_tail(content: Content, tail: &[u8; TAIL_BYTES]) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u32::from_le_bytes(tail.get(at..at + 4)?.try_into().ok()?));
    let offset = u64::from_le_bytes(tail.get(..8)?.try_into().ok()?);
    let is_whole = tail.ends_with(content.magic()) && number(12)? == crc32c::crc32c(&tail[..12]);
    is_whole.then_some((offset, u64::from(number(8)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_says_where_the_last_frame_is() {
        let tail = encode_tail(Content::Segment, 1 << 40, 77).unwrap();
        assert_eq!(decode_tail(Content::Segment, &tail), Some((1 << 40, 77)));
        assert_eq!(decode_tail(Content::Records, &tail), None);
        for at in 0..TAIL_BYTES {
            let mut damaged = tail;
            damaged[at] ^= 4;
            assert_eq!(decode_tail(Content::Segment, &damaged), None, "byte {at}");
        }
    }
}
