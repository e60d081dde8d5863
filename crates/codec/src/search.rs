//! Looks numbers up in a page without decoding all of it.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use tidefall_types::{FieldType, Result};

use crate::builder::decode_page;
use crate::ints::{self, Steps};
use crate::page::{Codec, open_checked};
use crate::validity::Form;

/// Which of some ascending numbers are in a page of whole numbers that ascend, too: `found` becomes true for these and stays
/// as it is for others. Of a page of differences, as times have that are not regular, nothing is stored, and what lies behind the last of the
/// numbers is left alone.
///
/// # Errors
/// `Corrupt` when the page is damaged or of another type.
pub fn find_ascending(page: &[u8], wanted: &[i64], found: &mut [bool]) -> Result<()> {
    debug_assert_eq!(wanted.len(), found.len(), "a place for each number");
    let mut opened = open_checked(page)?;
    let is_packed = opened.info.codec == Codec::Packed
        && opened.info.ty == FieldType::I64
        && opened.form == Form::All;
    let rows = opened.info.rows;
    if is_packed && let Some(steps) = Steps::open(&mut opened.payload, rows)? {
        return ints::find(steps, wanted, found);
    }
    let values = decode_page(page, FieldType::I64)?;
    let mut rest = &values.as_primitive::<Int64Type>().values()[..];
    for (number, found) in wanted.iter().zip(found) {
        rest = &rest[rest.partition_point(|other| other < number)..];
        *found |= rest.first() == Some(number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::{MAX_PAGE_ROWS, Profile, encode_page};

    /// Ascending numbers: regular with gaps, with noise, in bursts, far apart.
    fn numbers(rng: &mut SmallRng) -> Vec<i64> {
        let rows = rng.random_range(1..=MAX_PAGE_ROWS);
        let unit = [1, 7, 10_000_000, 60_000_000_000][rng.random_range(0..4)];
        let (gap, noise) = (rng.random_range(1..6), rng.random_range(1..=unit));
        let first = if rng.random() { rng.random() } else { rng.random_range(-unit..unit) };
        let mut numbers: Vec<i64> = vec![first];
        while numbers.len() < rows {
            let burst = if rng.random_range(0..500) == 0 { unit << 20 } else { 0 };
            let step = rng.random_range(1..=gap) * unit + burst + rng.random_range(0..noise);
            let Some(next) = numbers[numbers.len() - 1].checked_add(step) else { break };
            numbers.push(next);
        }
        numbers
    }

    #[test]
    fn what_is_found_is_what_is_there() {
        let mut rng = SmallRng::seed_from_u64(42);
        for round in 0..400 {
            let numbers = numbers(&mut rng);
            let profile = [Profile::Fast, Profile::Medium, Profile::Dense][round % 3];
            let mut page = Vec::new();
            encode_page(&Int64Array::from(numbers.clone()), profile, &mut page).unwrap();
            let count = [1, 3, 100, numbers.len()][rng.random_range(0..4)];
            let mut wanted: Vec<i64> = (0..count)
                .map(|_| match rng.random_range(0..8) {
                    0 => rng.random(),
                    1 => [i64::MIN, i64::MAX, 0][rng.random_range(0..3)],
                    other => {
                        let near = numbers[rng.random_range(0..numbers.len())];
                        near.saturating_add([0, 0, 0, 1, -1, 7][other - 2])
                    }
                })
                .collect();
            wanted.sort_unstable();
            let mut found = vec![false; wanted.len()];
            find_ascending(&page, &wanted, &mut found).unwrap();
            for (number, found) in wanted.iter().zip(found) {
                let is_there = numbers.binary_search(number).is_ok();
                assert_eq!(found, is_there, "{number}, round {round}");
            }
        }
    }

    #[test]
    fn damage_is_an_error() {
        let numbers: Vec<i64> = (0..3_000).map(|row| row * 10 + row % 7).collect();
        let mut page = Vec::new();
        encode_page(&Int64Array::from(numbers), Profile::Fast, &mut page).unwrap();
        let find = |page: &[u8]| find_ascending(page, &[5, 29_000], &mut [false; 2]);
        find(&page).unwrap();
        for byte in 0..page.len() {
            let mut page = page.clone();
            page[byte] ^= 1 << (byte % 8);
            assert!(find(&page).is_err(), "byte {byte}");
        }
    }
}
