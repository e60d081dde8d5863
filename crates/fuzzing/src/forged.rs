//! Segments whose checksums are right and whose numbers lie.

use std::sync::{Arc, OnceLock};

use arrow_array::{
    ArrayRef, Float64Array, Int64Array, StringArray, TimestampNanosecondArray, UInt64Array,
};
use tidefall_codec::Profile;
use tidefall_series::rows::SensorRows;
use tidefall_series::segment::SegmentWriter;
use tidefall_series::segment::encode::{EncodeParams, Stretch, encode_piece};
use tidefall_simulation::MemDisk;
use tidefall_store::{LocalIo, ObjectIo};
use tidefall_types::{
    Error, FieldId, FieldType, NS_PER_HOUR, NS_PER_SECOND, Result, TableId, TimeRange,
};

use super::objects::read_segment;
use crate::forge::{Lie, forge_segment};

/// 2024-03-01.
const START_NS: i64 = 1_709_251_200 * NS_PER_SECOND;
const ROWS: i64 = 300;
const SENSORS: u32 = 3;
/// The interval of metrics of a segment with so few of them that they lie at its end, and of one in which they lie between
/// the pieces, too.
const FEW_NS: i64 = NS_PER_HOUR;
const MANY_NS: i64 = 3 * 60 * NS_PER_SECOND;

/// A whole segment of which some numbers in index, metrics and footer were replaced: five bytes say
/// which, and by what. Bytes that are left over choose the segment with many metrics.
pub fn forged(data: &[u8]) {
    static FEW: OnceLock<Vec<u8>> = OnceLock::new();
    static MANY: OnceLock<Vec<u8>> = OnceLock::new();
    let (base, block_ns) = match data.len() % 5 {
        0 => (&FEW, FEW_NS),
        _ => (&MANY, MANY_NS),
    };
    let base = base.get_or_init(|| base_of(block_ns).unwrap_or_default());
    let lies: Vec<Lie> = data
        .chunks_exact(5)
        .map(|bytes| Lie {
            frame: bytes[0],
            part: bytes[1],
            row: u16::from_le_bytes([bytes[2], bytes[3]]),
            how: bytes[4],
        })
        .collect();
    let forged = forge_segment(base, &lies);
    assert!(forged.is_ok(), "the segment to forge is whole: {forged:?}");
    let some_time = TimeRange::new(START_NS + 1, START_NS + NS_PER_HOUR);
    read_segment(&forged.unwrap_or_default(), some_time);
}

/// Some hours of readings, with steps and without, with several blocks of metrics.
fn base_of(block_ns: i64) -> Result<Vec<u8>> {
    let disk = MemDisk::new();
    let io = LocalIo::open(Arc::new(disk.clone()), &["objects"])?;
    let params = EncodeParams {
        fields: [
            FieldType::F64,
            FieldType::I64,
            FieldType::U64,
            FieldType::Text,
            FieldType::Timestamp,
        ]
        .into_iter()
        .enumerate()
        .map(|(id, ty)| (FieldId(id as u16), ty))
        .collect(),
        block_ns,
        profile: Profile::Dense,
        has_filters: true,
    };
    let mut writer = SegmentWriter::new(io.writer("objects/1.long")?, TableId(0), params.clone())?;
    for sensor in 0..SENSORS {
        for piece in 0..2 {
            let rows = Stretch::Rows(rows(i64::from(sensor), piece));
            writer.append(encode_piece(sensor, &[rows], &params)?)?;
        }
    }
    writer.finish()?;
    disk.contents("objects/1.long").ok_or_else(|| Error::not_found("the segment"))
}

fn rows(sensor: i64, piece: i64) -> SensorRows {
    let numbers = || (0..ROWS).map(move |row| piece * ROWS + row);
    let late_ns = move |row: i64| sensor * (row * row % 1_000);
    let times: Vec<i64> =
        numbers().map(|row| START_NS + row * 40 * NS_PER_SECOND + late_ns(row)).collect();
    let floats: Float64Array =
        numbers().map(|row| (row % 7 > 0).then_some((row * 7_919 % 613) as f64 / 4.0)).collect();
    let fields: Vec<ArrayRef> = vec![
        Arc::new(floats),
        Arc::new(numbers().map(|row| Some(row - 90)).collect::<Int64Array>()),
        Arc::new(numbers().map(|row| Some(row as u64)).collect::<UInt64Array>()),
        Arc::new(
            numbers().map(|row| Some(["dry", "wet"][row as usize % 2])).collect::<StringArray>(),
        ),
        Arc::new(
            numbers()
                .map(|row| (row % 5 > 0).then_some(START_NS - row * NS_PER_SECOND))
                .collect::<TimestampNanosecondArray>(),
        ),
    ];
    SensorRows { times: times.into(), fields: fields.into_iter().map(Some).collect() }
}
