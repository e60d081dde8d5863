//! The header around the values of a page.

use tidefall_types::{Error, FieldType, Result};

use crate::bytes::{Reader, corrupt, put_varint};
use crate::profile::MAX_PAGE_ROWS;
use crate::validity::{Form, Validity};

const NULLABLE_SHIFT: u8 = 4;
const TYPE_MASK: u8 = 0x0f;
/// Codec and flags, which stand before the checksum.
const BEFORE_CHECKSUM: usize = 2;
const CHECKSUM_BYTES: usize = 4;

/// How the values of a page are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// All values have the same bits; or there are none.
    Constant = 0,
    /// The plain values.
    Raw = 1,
    /// Integers, or the bits of floats, packed.
    Packed = 2,
    /// Decimal floats as packed integers.
    Decimal = 3,
    /// Run length.
    Runs = 4,
    /// Floats with the `pco` library.
    Pco = 5,
    /// Doubles that are single-precision numbers, as those.
    Single = 6,
    /// Distinct values and packed codes.
    Dictionary = 7,
    /// Text with Zstandard.
    Zstd = 8,
}

impl Codec {
    const ALL: [Self; 9] = [
        Self::Constant,
        Self::Raw,
        Self::Packed,
        Self::Decimal,
        Self::Runs,
        Self::Pco,
        Self::Single,
        Self::Dictionary,
        Self::Zstd,
    ];

    pub(crate) fn from_code(code: u8) -> Result<Self> {
        let found = Self::ALL.get(usize::from(code)).copied();
        found.ok_or_else(|| corrupt(format_args!("unknown codec {code}")))
    }

    /// The name, as `inspect` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Raw => "raw",
            Self::Packed => "packed",
            Self::Decimal => "decimal",
            Self::Runs => "runs",
            Self::Pco => "pco",
            Self::Single => "single",
            Self::Dictionary => "dictionary",
            Self::Zstd => "zstd",
        }
    }
}

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

/// What the header of a page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageInfo {
    /// How the values are stored.
    pub codec: Codec,
    /// The type of the values.
    pub ty: FieldType,
    /// Rows, nulls among them; at most [`MAX_PAGE_ROWS`].
    pub rows: usize,
    /// Rows without a value.
    pub nulls: usize,
    /// Bytes of the whole page, header included.
    pub bytes: usize,
}

/// A page whose header was read: what it says and the bytes behind it.
#[derive(Debug, Clone)]
pub(crate) struct Page<'a> {
    pub(crate) info: PageInfo,
    pub(crate) form: Form,
    /// Validity and values.
    pub(crate) payload: Reader<'a>,
}

/// Appends a page of `validity` and `body`.
pub(crate) fn put(
    codec: Codec,
    ty: FieldType,
    validity: &Validity,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    let payload_bytes = validity.bytes.len() + body.len();
    if u32::try_from(payload_bytes).is_err() {
        return Err(Error::limit(format!(
            "a page of {} rows takes {payload_bytes} bytes; write fewer rows at once",
            validity.rows
        )));
    }
    let start = out.len();
    out.push(codec as u8);
    out.push(type_code(ty) | (validity.form as u8) << NULLABLE_SHIFT);
    out.extend_from_slice(&[0; CHECKSUM_BYTES]);
    put_varint(out, validity.rows as u64);
    if validity.form != Form::All {
        put_varint(out, validity.nulls as u64);
    }
    put_varint(out, payload_bytes as u64);
    out.extend_from_slice(&validity.bytes);
    out.extend_from_slice(body);
    let checksum = checksum(&out[start..]).to_le_bytes();
    out[start + BEFORE_CHECKSUM..][..CHECKSUM_BYTES].copy_from_slice(&checksum);
    Ok(())
}

fn type_code(ty: FieldType) -> u8 {
    TYPES.iter().position(|&known| known == ty).unwrap_or(TYPES.len()) as u8
}

/// The checksum over everything of `page` but the checksum itself.
fn checksum(page: &[u8]) -> u32 {
    let (before, rest) = page.split_at(BEFORE_CHECKSUM.min(page.len()));
    let behind = rest.get(CHECKSUM_BYTES..).unwrap_or_default();
    crc32c::crc32c_append(crc32c::crc32c(before), behind)
}

/// Reads the header at the start of `bytes`; more may follow behind the page. The checksum is not
/// compared: see [`check_page`].
///
/// # Errors
/// `Corrupt` when there is no whole page.
pub fn page_info(bytes: &[u8]) -> Result<PageInfo> {
    Ok(open(bytes)?.0.info)
}

/// Reads the header of `page`, which is one whole page and nothing else, and compares the
/// checksum.
///
/// # Errors
/// `Corrupt` when a bit is wrong or a byte is missing or too many.
pub fn check_page(page: &[u8]) -> Result<PageInfo> {
    Ok(open_checked(page)?.info)
}

/// Opens `bytes`, which must be exactly one undamaged page.
pub(crate) fn open_checked(bytes: &[u8]) -> Result<Page<'_>> {
    let (page, stored) = open(bytes)?;
    if page.info.bytes != bytes.len() {
        return Err(corrupt(format_args!(
            "{} bytes, its header says {}",
            bytes.len(),
            page.info.bytes
        )));
    }
    let found = checksum(bytes);
    if found != stored {
        return Err(corrupt(format_args!("checksum {found:08x}, stored is {stored:08x}")));
    }
    Ok(page)
}

/// Opens the page at the start of `bytes`, with its stored checksum.
fn open(bytes: &[u8]) -> Result<(Page<'_>, u32)> {
    let mut reader = Reader::new(bytes);
    let codec = Codec::from_code(reader.byte()?)?;
    let flags = reader.byte()?;
    let Some(&ty) = TYPES.get(usize::from(flags & TYPE_MASK)) else {
        return Err(corrupt(format_args!("values of unknown type {}", flags & TYPE_MASK)));
    };
    let form = Form::from_code(flags >> NULLABLE_SHIFT)?;
    let stored = u32::from_le_bytes(reader.array()?);
    let rows = reader.count("rows", MAX_PAGE_ROWS)?;
    let nulls = if form == Form::All { 0 } else { reader.count("nulls", rows)? };
    let payload_bytes = reader.count("bytes of values", reader.remaining())?;
    let payload = Reader::new(reader.take(payload_bytes)?);
    let info = PageInfo { codec, ty, rows, nulls, bytes: bytes.len() - reader.remaining() };
    Ok((Page { info, form, payload }, stored))
}

/// Writes into a page that was changed the checksum that it then needs; too few bytes stay as they are.
/// For tests and fuzzers, which want to reach what lies behind the checksum.
#[doc(hidden)]
pub fn repair_checksum(page: &mut [u8]) {
    let checksum = checksum(page).to_le_bytes();
    if let Some(place) = page.get_mut(BEFORE_CHECKSUM..BEFORE_CHECKSUM + CHECKSUM_BYTES) {
        place.copy_from_slice(&checksum);
    }
}
