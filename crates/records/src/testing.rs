//! What several tests need: rows of many kinds, in memory and in segments.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, Int8Array, Int64Array,
    TimestampNanosecondArray, UInt64Array,
};
use rand::Rng;
use rand::rngs::SmallRng;
use tidefall_codec::Profile;
use tidefall_simulation::MemDisk;
use tidefall_store::{LocalIo, ObjectIo};
use tidefall_types::{FieldId, FieldType, ObjectId, TableId};

use crate::ordinal::ordinals;
use crate::packed::{Layout, Packed};
use crate::read::Place;
use crate::region::{Region, Regions, Side};
use crate::segment::{Caches, Segment, SegmentSummary, SegmentWriter, encode_cell};

/// The types of the columns; the first four are dimensions, though in another order.
const TYPES: [FieldType; 7] = [
    FieldType::F64,
    FieldType::Timestamp,
    FieldType::U64,
    FieldType::I8,
    FieldType::Text,
    FieldType::F32,
    FieldType::Bool,
];

pub(crate) fn layout() -> Arc<Layout> {
    let columns = TYPES.iter().enumerate().map(|(id, ty)| (FieldId(id as u16 * 3), *ty)).collect();
    Arc::new(Layout { columns, dimensions: vec![1, 0, 3, 2] })
}

/// Rows with few or many different values, all extremes among them.
pub(crate) fn rows(rng: &mut SmallRng, count: usize) -> Vec<ArrayRef> {
    let few = rng.random_bool(0.3);
    let mut pick = |odd: f64| rng.random_bool(if few { 0.5 } else { odd });
    let odd_floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, f64::MAX];
    let odd_ints = [i64::MIN, i64::MAX, 0, -1];
    let is_odd: Vec<[bool; 3]> = (0..count).map(|_| [pick(0.02), pick(0.02), pick(0.3)]).collect();
    let mut texts = StringBuilder::new();
    for [_, _, is_null] in &is_odd {
        match is_null {
            true => texts.append_null(),
            false => texts.append_value("x".repeat(rng.random_range(0..4))),
        }
    }
    let float = |rng: &mut SmallRng, is_odd: bool| match is_odd {
        true => odd_floats[rng.random_range(0..odd_floats.len())],
        false => rng.random_range(-90.0..90.0),
    };
    let int = |rng: &mut SmallRng, is_odd: bool| match is_odd {
        true => odd_ints[rng.random_range(0..odd_ints.len())],
        false => rng.random_range(0..1_000_000_000),
    };
    let place: Vec<f64> = is_odd.iter().map(|odd| float(rng, odd[0])).collect();
    let time: Vec<i64> = is_odd.iter().map(|odd| int(rng, odd[1])).collect();
    let number: Vec<u64> = is_odd.iter().map(|odd| int(rng, odd[0]) as u64).collect();
    let kind: Vec<i8> = (0..count).map(|_| if few { 5 } else { rng.random_range(-3..3) }).collect();
    let value: Vec<Option<f32>> =
        is_odd.iter().map(|odd| (!odd[2]).then(|| float(rng, odd[1]) as f32)).collect();
    let flag: Vec<Option<bool>> = is_odd.iter().map(|odd| (!odd[0]).then_some(odd[2])).collect();
    vec![
        Arc::new(Float64Array::from(place)),
        Arc::new(TimestampNanosecondArray::from(time)),
        Arc::new(UInt64Array::from(number)),
        Arc::new(Int8Array::from(kind)),
        Arc::new(texts.finish()),
        Arc::new(Float32Array::from(value)),
        Arc::new(BooleanArray::from(flag)),
    ]
}

/// A union of boxes whose sides end near values that are there.
pub(crate) fn regions(rng: &mut SmallRng, layout: &Layout, columns: &[ArrayRef]) -> Regions {
    let boxes = (0..rng.random_range(0..4)).map(|_| {
        let side = |place: &usize| {
            let ordinals = ordinals(&*columns[*place]).unwrap();
            let mut end = || match ordinals.len() {
                0 => rng.random_range(-9..9),
                rows => ordinals[rng.random_range(0..rows)].saturating_add(rng.random_range(-1..2)),
            };
            let (one, other) = (end(), end());
            match rng.random_range(0..6) {
                0 | 1 => Side::ALL,
                2 => Side::new(i64::MIN, one),
                3 => Side::new(one, i64::MAX),
                _ => Side::new(one.min(other), one.max(other)),
            }
        };
        Region::new(layout.dimensions.iter().map(side).collect::<Vec<_>>())
    });
    Regions::of(boxes.collect::<Vec<_>>())
}

/// For each row whether it is in some regions.
pub(crate) fn inside(layout: &Layout, columns: &[ArrayRef], regions: &Regions) -> Vec<bool> {
    let dimensions: Vec<Vec<i64>> =
        layout.dimensions.iter().map(|place| ordinals(&*columns[*place]).unwrap()).collect();
    let point = |row: usize| dimensions.iter().map(|ordinals| ordinals[row]).collect::<Vec<_>>();
    (0..columns[0].len()).map(|row| regions.contains(&point(row))).collect()
}

/// A segment of packed rows, one behind the other.
pub(crate) fn stored(packed: &[Arc<Packed>], profile: Profile) -> (Segment, SegmentSummary) {
    let disk = Arc::new(MemDisk::new());
    let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open(disk, &["objects"]).unwrap());
    let name = "objects/1.records";
    let layout = packed[0].layout();
    let mut writer =
        SegmentWriter::new(io.writer(name).unwrap(), TableId(7), layout, profile).unwrap();
    for packed in packed {
        for cell in 0..packed.leaves().cells() {
            writer.append(encode_cell(packed, cell, profile).unwrap()).unwrap();
        }
        writer.note(packed).unwrap();
    }
    let summary = writer.finish().unwrap();
    let caches = Arc::new(Caches::new(64 << 20));
    (Segment::new(io, caches, ObjectId(1), name.into(), summary.bytes), summary)
}

/// Rows in memory and in a segment.
pub(crate) fn both(packed: Packed) -> [Place; 2] {
    let packed = Arc::new(packed);
    let (segment, _) = stored(&[Arc::clone(&packed)], Profile::Fast);
    [Place::Memory(packed), Place::stored(&segment).unwrap()]
}

/// The bytes of a column as sorted texts, to compare rows that may come in another order.
pub(crate) fn shown(column: &dyn Array) -> Vec<String> {
    use arrow_array::cast::AsArray;
    let of_ordinals = |ordinals: Vec<i64>| {
        ordinals.into_iter().map(|ordinal| ordinal.to_string()).collect::<Vec<_>>()
    };
    let mut all = match ordinals(column) {
        Some(ordinals) => of_ordinals(ordinals),
        None => match column.as_string_opt::<i32>() {
            Some(texts) => texts.iter().map(|text| format!("{text:?}")).collect(),
            None => column.as_boolean().iter().map(|flag| format!("{flag:?}")).collect(),
        },
    };
    // What is null has any value below it.
    for (row, shown) in all.iter_mut().enumerate() {
        if column.is_null(row) {
            "null".clone_into(shown);
        }
    }
    all
}

/// A column with an order, for tests that have one alone.
pub(crate) fn one_dimension(values: Vec<i64>) -> (Arc<Layout>, Vec<ArrayRef>) {
    let layout = Layout { columns: vec![(FieldId(0), FieldType::I64)], dimensions: vec![0] };
    (Arc::new(layout), vec![Arc::new(Int64Array::from(values))])
}
