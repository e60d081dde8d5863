//! Every type and shape of data there and back, and every kind of damage.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, LargeStringArray, PrimitiveArray, StringArray,
    TimestampNanosecondArray,
};
use arrow_buffer::NullBuffer;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tidefall_types::{ErrorKind, FieldType};

use crate::*;

#[test]
fn timestamps_come_back_as_such() {
    let mut rng = StdRng::seed_from_u64(12);
    for len in LENGTHS {
        for times in integer_shapes(len, &mut rng) {
            let nulls: NullBuffer = (0..len).map(|_| rng.random_bool(0.9)).collect();
            for nulls in [None, Some(nulls)] {
                let column = TimestampNanosecondArray::new(times.clone().into(), nulls);
                for profile in PROFILES {
                    let page = page_of(&column, profile);
                    let info = check_page(&page).unwrap();
                    assert_eq!(info.ty, FieldType::Timestamp);
                    let decoded = decode_page(&page, FieldType::Timestamp).unwrap();
                    assert_eq!(&*decoded, &column as &dyn Array, "{len} {profile:?}");
                    // Numbers they are not.
                    let error = decode_page(&page, FieldType::I64).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                }
                let mut builder = ColumnBuilder::new(FieldType::Timestamp, 0);
                builder.append_nulls(1);
                builder.append_array(&column).unwrap();
                let whole = builder.finish();
                assert_eq!(&*whole.slice(1, len), &column as &dyn Array);
            }
        }
    }
}

const LENGTHS: [usize; 12] = [0, 1, 2, 3, 24, 60, 1023, 1024, 1025, 1440, 8191, 8192];
const PROFILES: [Profile; 3] = [Profile::Fast, Profile::Medium, Profile::Dense];

fn page_of(column: &dyn Array, profile: Profile) -> Vec<u8> {
    let mut page = Vec::new();
    encode_page(column, profile, &mut page).unwrap();
    page
}

/// Integers of many shapes; every type takes their low bits.
fn integer_shapes(len: usize, rng: &mut StdRng) -> Vec<Vec<i64>> {
    let mut walk = 0_i64;
    let mut run = 0;
    vec![
        vec![7; len],
        (0..len as i64).collect(),
        (0..len as i64).map(|i| -i * 1_000_003).collect(),
        (0..len).map(|_| rng.random()).collect(),
        (0..len).map(|_| rng.random_range(-50..50)).collect(),
        (0..len).map(|_| rng.random_range(0..9) * 25 - 3).collect(),
        (0..len).map(|_| *[i64::MIN, i64::MAX, 0, -1].choose(rng).unwrap()).collect(),
        (0..len)
            .map(|_| {
                walk += rng.random_range(900..1_100) * 1_000_000;
                walk
            })
            .collect(),
        (0..len)
            .map(|_| {
                if rng.random_bool(0.01) {
                    run = rng.random();
                }
                run
            })
            .collect(),
        (0..len).map(|i| if i % 700 == 3 { 1 << 40 } else { 5 }).collect(),
        // Few lengths of steps that are wide, and steps of all lengths.
        (0..len)
            .map(|_| {
                walk += [7, 123_456_789_012, -98_765_432_101][rng.random_range(0..3)];
                walk
            })
            .collect(),
        (0..len).map(|_| rng.random::<i64>() >> rng.random_range(0..64)).collect(),
    ]
}

/// Doubles of many shapes.
fn float_shapes(len: usize, rng: &mut StdRng) -> Vec<Vec<f64>> {
    let mut shapes: Vec<Vec<f64>> = Vec::new();
    for decimals in 0..=6 {
        let power = 10_f64.powi(decimals);
        for magnitude in [100.0, 1e6, 1e9] {
            let values = (0..len).map(|_| rng.random_range(-magnitude..magnitude));
            shapes.push(values.map(|value| (value * power).round() / power).collect());
        }
    }
    let specials = [
        f64::NAN,
        -f64::NAN,
        f64::from_bits(0x7ff0_0000_0000_0001),
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.0,
        f64::MIN_POSITIVE,
        5e-324,
        f64::MAX,
        -1e17,
        2_251_799_813_685_248.0,
        -2_251_799_813_685_249.0,
    ];
    shapes.push((0..len).map(|_| *specials.choose(rng).unwrap()).collect());
    shapes.push((0..len).map(|_| rng.random::<f64>() * 100.0).collect());
    shapes.push((0..len).map(|_| f64::from_bits(rng.random())).collect());
    shapes.push((0..len).map(|i| 20.0 + (i as f64 / 50.0).sin()).collect());
    shapes.push(
        (0..len)
            .map(|i| if i % 97 == 5 { *specials.choose(rng).unwrap() } else { i as f64 / 10.0 })
            .collect(),
    );
    shapes.push((0..len).map(|i| (i / 40) as f64 * 0.25).collect());
    // Knots in miles per hour: next to decimals, and few.
    shapes.push((0..len).map(|_| f64::from(rng.random_range(0..40_u8)) * 1.15078).collect());
    shapes.push((0..len).map(|_| f64::from(rng.random_range(0..9000_u16)) * 1.15078).collect());
    // Few distinct ones of any kind.
    let few: Vec<f64> = (0..30).map(|_| f64::from_bits(rng.random())).chain(specials).collect();
    shapes.push((0..len).map(|_| *few.choose(rng).unwrap()).collect());
    // Single precision.
    shapes.push((0..len).map(|_| f64::from(rng.random_range(0..5000_u16) as f32 / 10.0)).collect());
    shapes.push((0..len).map(|_| f64::from(rng.random::<f32>())).collect());
    shapes
}

fn null_shapes(len: usize, rng: &mut StdRng) -> Vec<Option<NullBuffer>> {
    let mut shapes = vec![None, Some(NullBuffer::new_null(len)), Some(NullBuffer::new_valid(len))];
    for density in [0.001, 0.1, 0.5, 0.99] {
        shapes.push(Some((0..len).map(|_| !rng.random_bool(density)).collect::<Vec<_>>().into()));
    }
    shapes.push(Some((0..len).map(|row| row > len / 3).collect::<Vec<_>>().into()));
    shapes.push(Some((0..len).map(|row| row % 24 > 5).collect::<Vec<_>>().into()));
    shapes
}

/// Encodes, decodes in every way and compares bit by bit.
fn check<T: PageValue>(values: &[T], nulls: Option<&NullBuffer>, rng: &mut StdRng) {
    let array = PrimitiveArray::<T::Arrow>::new(values.to_vec().into(), nulls.cloned());
    for profile in PROFILES {
        let page = page_of(&array, profile);
        let info = check_page(&page).unwrap();
        assert_eq!((info.rows, info.bytes, info.ty), (values.len(), page.len(), T::TYPE));
        assert_eq!(info.nulls, array.null_count());
        let decoded = decode_page(&page, T::TYPE).unwrap();
        assert_same(decoded.as_primitive::<T::Arrow>(), &array);

        let mut out = vec![T::default(); values.len()];
        decode_into(&page, &mut out).unwrap();
        for (row, (found, expected)) in out.iter().zip(values).enumerate() {
            let expected = if array.is_valid(row) { *expected } else { T::NULL };
            assert!(found.same(expected), "row {row} of {info:?}");
        }

        let start = rng.random_range(0..=values.len());
        let end = rng.random_range(start..=values.len());
        let mut some = vec![T::default(); end - start];
        let nulls = decode_rows_into(&page, start, &mut some).unwrap();
        assert_eq!(nulls, array.slice(start, end - start).null_count());
        assert!(some.iter().zip(&out[start..end]).all(|(found, expected)| found.same(*expected)));
        let too_far = decode_rows_into(&page, start, &mut vec![T::default(); values.len() + 1]);
        assert_eq!(too_far.unwrap_err().kind(), ErrorKind::Invalid);

        let mut builder = ColumnBuilder::new(T::TYPE, 3);
        builder.append_nulls(2);
        builder.append_page_rows(&page, start..end).unwrap();
        builder.append_array(&array).unwrap();
        assert_eq!(builder.append_page(&page).unwrap(), values.len());
        let column = builder.finish();
        let column = column.as_primitive::<T::Arrow>();
        assert_eq!(column.slice(0, 2).null_count(), 2);
        assert_same(&column.slice(2, end - start), &array.slice(start, end - start));
        assert_same(&column.slice(2 + end - start, values.len()), &array);
        assert_same(&column.slice(2 + end - start + values.len(), values.len()), &array);
    }
}

fn assert_same<A: arrow_array::ArrowPrimitiveType>(
    found: &PrimitiveArray<A>,
    expected: &PrimitiveArray<A>,
) where
    A::Native: Number,
{
    assert_eq!(found.len(), expected.len());
    for row in 0..found.len() {
        assert_eq!(found.is_valid(row), expected.is_valid(row), "validity of row {row}");
        let (found, expected_value) = (found.value(row), expected.value(row));
        assert!(
            expected.is_null(row) || found.same(expected_value),
            "row {row}: {found:?} for {expected_value:?}"
        );
    }
}

fn check_integers<T: PageValue>(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for len in LENGTHS {
        for shape in integer_shapes(len, &mut rng) {
            let values: Vec<T> = shape.into_iter().map(T::from_int).collect();
            check(&values, None, &mut rng);
            if len <= 1440 {
                for nulls in null_shapes(len, &mut rng) {
                    check(&values, nulls.as_ref(), &mut rng);
                }
            }
        }
    }
}

#[test]
fn integers_come_back() {
    check_integers::<i8>(1);
    check_integers::<i16>(2);
    check_integers::<i32>(3);
    check_integers::<i64>(4);
    check_integers::<u8>(5);
    check_integers::<u16>(6);
    check_integers::<u32>(7);
    check_integers::<u64>(8);
}

#[test]
fn floats_come_back() {
    let mut rng = StdRng::seed_from_u64(9);
    for len in LENGTHS {
        for values in float_shapes(len, &mut rng) {
            let narrow: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            check(&values, None, &mut rng);
            check(&narrow, None, &mut rng);
            for nulls in null_shapes(len, &mut rng).into_iter().filter(|_| len <= 1024) {
                check(&values, nulls.as_ref(), &mut rng);
                check(&narrow, nulls.as_ref(), &mut rng);
            }
        }
    }
}

#[test]
fn every_codec_comes_back() {
    let mut rng = StdRng::seed_from_u64(10);
    for len in LENGTHS.into_iter().filter(|&len| len > 0) {
        for values in float_shapes(len, &mut rng) {
            for (codec, page) in encode_with_each(&values).unwrap() {
                let mut out = vec![0.0_f64; len];
                decode_into(&page, &mut out).unwrap();
                let same = out.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{codec:?} of {len}");
                assert_some_come_back(&page, &values, &mut rng);
            }
        }
        for values in integer_shapes(len, &mut rng) {
            for (codec, page) in encode_with_each(&values).unwrap() {
                let mut out = vec![0; len];
                decode_into(&page, &mut out).unwrap();
                assert_eq!(out, values, "{codec:?}");
                assert_some_come_back(&page, &values, &mut rng);
            }
        }
    }
}

/// Rows that begin and end anywhere, also within the vectors in which they are packed.
fn assert_some_come_back<T: PageValue>(page: &[u8], values: &[T], rng: &mut StdRng) {
    let start = rng.random_range(0..=values.len());
    let end = rng.random_range(start..=values.len());
    let mut some = vec![T::default(); end - start];
    decode_rows_into(page, start, &mut some).unwrap();
    assert!(some.iter().zip(&values[start..end]).all(|(found, value)| found.same(*value)));
}

fn text_shapes(len: usize, rng: &mut StdRng) -> Vec<Vec<String>> {
    let words = ["N", "NNW", "", "Grüße", "東京", "a rather long name of a station, with a comma"];
    vec![
        vec!["same".to_owned(); len],
        vec![String::new(); len],
        (0..len).map(|_| (*words.choose(rng).unwrap()).to_owned()).collect(),
        (0..len).map(|i| words[i / 500 % words.len()].to_owned()).collect(),
        (0..len).map(|i| format!("message {i} from {}", rng.random_range(0..9))).collect(),
        (0..len).map(|_| char::from(rng.random_range(33..127)).to_string()).collect(),
    ]
}

#[test]
fn text_and_truth_values_come_back() {
    let mut rng = StdRng::seed_from_u64(11);
    for len in LENGTHS {
        for texts in text_shapes(len, &mut rng) {
            for nulls in null_shapes(len, &mut rng) {
                let column: StringArray = texts
                    .iter()
                    .enumerate()
                    .map(|(row, text)| {
                        let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                        valid.then_some(text.as_str())
                    })
                    .collect();
                check_array(Arc::new(column), FieldType::Text);
            }
        }
        for probability in [0.0, 0.01, 0.5, 1.0] {
            for nulls in null_shapes(len, &mut rng) {
                let bits: Vec<bool> = (0..len).map(|_| rng.random_bool(probability)).collect();
                check_array(Arc::new(BooleanArray::new(bits.into(), nulls)), FieldType::Bool);
            }
        }
    }
}

fn check_array(array: ArrayRef, ty: FieldType) {
    for profile in PROFILES {
        let page = page_of(&array, profile);
        assert_eq!(&decode_page(&page, ty).unwrap(), &array);
        let (start, end) = (array.len() / 3, array.len() * 2 / 3);
        let mut builder = ColumnBuilder::new(ty, 0);
        assert!(builder.is_empty());
        builder.append_page_rows(&page, start..end).unwrap();
        builder.append_array(&array.slice(start, array.len() - start)).unwrap();
        builder.append_nulls(1);
        builder.append_page(&page).unwrap();
        assert_eq!(builder.len(), end - start + array.len() - start + 1 + array.len());
        let column = builder.finish();
        assert_eq!(&column.slice(0, end - start), &array.slice(start, end - start));
        assert_eq!(
            &column.slice(end - start, array.len() - start),
            &array.slice(start, array.len() - start)
        );
        assert!(column.is_null(end - start + array.len() - start));
        assert_eq!(&column.slice(column.len() - array.len(), array.len()), &array);
    }
}

#[test]
fn a_sliced_column_and_large_strings_come_back() {
    let column = BooleanArray::from(vec![Some(true), None, Some(false), Some(true), None]);
    let slice = column.slice(1, 3);
    let decoded = decode_page(&page_of(&slice, Profile::Fast), FieldType::Bool).unwrap();
    assert_eq!(decoded.as_boolean(), &slice);
    let large = LargeStringArray::from(vec![Some("a"), None, Some("b")]);
    let decoded = decode_page(&page_of(&large, Profile::Fast), FieldType::Text).unwrap();
    assert_eq!(decoded.as_string::<i32>(), &StringArray::from(vec![Some("a"), None, Some("b")]));
}

/// A page for each codec, form of validity and kind of value, small enough to damage every bit.
fn sample_pages() -> Vec<(Vec<u8>, FieldType)> {
    let mut rng = StdRng::seed_from_u64(12);
    let mut pages = Vec::new();
    for len in [1, 40, 200] {
        for values in float_shapes(len, &mut rng).into_iter().step_by(4) {
            let each = encode_with_each(&values).unwrap();
            pages.extend(each.into_iter().map(|(_, page)| (page, FieldType::F64)));
        }
        for nulls in null_shapes(len, &mut rng) {
            let array = PrimitiveArray::<arrow_array::types::Int32Type>::new(
                (0..len as i32).map(|value| value * 3).collect(),
                nulls,
            );
            pages.push((page_of(&array, Profile::Dense), FieldType::I32));
        }
        for texts in text_shapes(len, &mut rng) {
            let column = StringArray::from_iter_values(texts);
            pages.push((page_of(&column, Profile::Dense), FieldType::Text));
        }
    }
    for nulls in null_shapes(1000, &mut rng).into_iter().skip(3) {
        let array =
            PrimitiveArray::<arrow_array::types::Int32Type>::new(vec![7; 1000].into(), nulls);
        pages.push((page_of(&array, Profile::Dense), FieldType::I32));
    }
    pages
}

fn assert_corrupt(bytes: &[u8], ty: FieldType, what: &str) {
    let error = decode_page(bytes, ty).expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    assert_eq!(check_page(bytes).expect_err(what).kind(), ErrorKind::Corrupt);
}

#[test]
fn every_flipped_bit_is_found() {
    for (page, ty) in sample_pages() {
        for bit in 0..page.len() * 8 {
            let mut damaged = page.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_corrupt(&damaged, ty, &format!("bit {bit} of {} bytes", page.len()));
        }
    }
}

#[test]
fn every_cut_and_every_extra_byte_is_found() {
    for (page, ty) in sample_pages() {
        for len in 0..page.len() {
            assert_corrupt(&page[..len], ty, &format!("{len} bytes of {}", page.len()));
        }
        let info = page_info(&page).unwrap();
        let longer = [&page[..], &[0]].concat();
        assert_corrupt(&longer, ty, "one byte more");
        assert_eq!(page_info(&longer).unwrap(), info);
    }
}

/// Forged pages have a right checksum, so that the decoders themselves must find the damage, or
/// return any values, but never panic.
#[test]
fn forged_pages_do_no_harm() {
    let mut rng = StdRng::seed_from_u64(13);
    for (page, ty) in sample_pages() {
        for _ in 0..60 {
            let mut forged = page.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..forged.len());
                forged[at] = rng.random();
            }
            repair_checksum(&mut forged);
            if let Err(error) = decode_page(&forged, ty) {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            }
        }
    }
}

#[test]
fn small_pages_have_small_headers() {
    let hour: Vec<f64> = (0..60).map(|minute| 300.0 + f64::from(minute % 16) / 10.0).collect();
    let mut page = Vec::new();
    encode_slice(&hour, None, Profile::Fast, &mut page).unwrap();
    // 4 bits a value, 8 bytes of header, 7 for scale and frame of reference.
    assert!(page.len() <= 30 + 8 + 7, "{} bytes", page.len());
}

#[test]
fn regular_data_takes_the_codec_meant_for_it() {
    let codec_of = |values: &[f64], profile| {
        let mut page = Vec::new();
        encode_slice(values, None, profile, &mut page).unwrap();
        page_info(&page).unwrap().codec
    };
    let mut rng = StdRng::seed_from_u64(14);
    let decimals: Vec<f64> = (0..8192).map(|_| rng.random_range(0..60_000) as f64 / 1e3).collect();
    let noise: Vec<f64> = (0..8192).map(|_| rng.random::<f64>()).collect();
    let steps: Vec<f64> = (0..8192).map(|row| f64::from(row / 900)).collect();
    assert_eq!(codec_of(&[1.5; 100], Profile::Fast), Codec::Constant);
    assert_eq!(codec_of(&decimals, Profile::Fast), Codec::Decimal);
    assert_eq!(codec_of(&decimals, Profile::Dense), Codec::Decimal);
    assert_eq!(codec_of(&steps, Profile::Fast), Codec::Runs);
    let knots: Vec<f64> =
        (0..8192).map(|_| f64::from(rng.random_range(0..40_u8)) * 1.15078).collect();
    assert_eq!(codec_of(&knots, Profile::Fast), Codec::Decimal);
    assert_eq!(codec_of(&knots, Profile::Dense), Codec::Dictionary);
    let singles: Vec<f64> = (0..8192).map(|_| f64::from(rng.random::<f32>())).collect();
    assert_eq!(codec_of(&singles, Profile::Fast), Codec::Single);
    assert_ne!(codec_of(&noise, Profile::Fast), Codec::Decimal);
}

/// What dense pages of some kinds of data take at most, in bits a value: entropy and a little.
#[test]
fn dense_pages_are_small() {
    let bits_of = |values: &[f64]| {
        let mut page = Vec::new();
        encode_slice(values, None, Profile::Dense, &mut page).unwrap();
        page.len() * 8 / values.len()
    };
    let mut rng = StdRng::seed_from_u64(15);
    let coin = |rng: &mut StdRng| rng.random_range(0..2_u8);
    let rare: Vec<f64> =
        (0..8192).map(|_| [0.1, 32.333_332][usize::from(coin(&mut rng))]).collect();
    assert!(bits_of(&rare) <= 1);
    // The sum of many coins is about normal with a deviation of 2, whose entropy is 3.05 bits.
    let mut sum = || (0..16).map(|_| coin(&mut rng)).sum::<u8>();
    let conversions: Vec<f64> = (0..8192).map(|_| f64::from(sum()) * 1.8 + 32.1).collect();
    assert!(bits_of(&conversions) <= 3);
    let mut degrees = 0.0;
    let walk: Vec<f64> = (0..8192)
        .map(|_| {
            degrees += f64::from(sum()) - 8.0;
            (degrees * 10_f64).round() / 100.0
        })
        .collect();
    assert!(bits_of(&walk) <= 3);
    // One in ten is not the decimal but the double next to it.
    let near: Vec<f64> = (0..8192)
        .map(|row| {
            let decimal = f64::from(rng.random_range(0..4096_u16)) / 1e3 + 2.0;
            if row % 10 == 3 { decimal.next_up() } else { decimal }
        })
        .collect();
    assert!(bits_of(&near) <= 13);
}

#[test]
fn wrong_calls_are_told_so() {
    let mut out = vec![1, 2, 3];
    let long = vec![0_i64; MAX_PAGE_ROWS + 1];
    let error = encode_slice(&long, None, Profile::Fast, &mut out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let validity = NullBuffer::new_null(2);
    assert!(encode_slice(&[1_i64], Some(&validity), Profile::Fast, &mut out).is_err());
    let dates = arrow_array::Date32Array::from(vec![1]);
    assert!(encode_page(&dates, Profile::Fast, &mut out).is_err());
    assert_eq!(out, [1, 2, 3]);

    let page = page_of(&arrow_array::Int64Array::from(vec![1, 2]), Profile::Fast);
    assert_eq!(decode_page(&page, FieldType::F64).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(decode_into(&page, &mut [0_i64; 3]).unwrap_err().kind(), ErrorKind::Invalid);
    let mut builder = ColumnBuilder::new(FieldType::I64, 0);
    assert!(builder.append_page_rows(&page, 1..3).is_err());
    assert!(builder.append_array(&StringArray::from(vec!["a"])).is_err());
    assert_eq!(builder.len(), 0);
}
