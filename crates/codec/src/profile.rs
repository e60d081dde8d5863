//! What pages are written for, and how long they are.

/// The most rows of a page: large enough to compress well, small enough that the values fit into the
/// second-level cache while they are decoded and used.
pub const MAX_PAGE_ROWS: usize = 8192;

/// The most bytes of text in one page, so that a forged page cannot ask for more memory.
pub(crate) const MAX_PAGE_TEXT_BYTES: usize = 256 << 20;

/// What a page is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Codecs that encode and decode at memory speed: log, run files, short columns.
    Fast,
    /// Also what costs little to try: metrics of long segments, of which pages are short.
    Medium,
    /// Also the slower codecs, where they are clearly smaller: long segments.
    Dense,
}
