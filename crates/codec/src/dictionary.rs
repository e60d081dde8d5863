//! Numbers of which a page has few distinct ones, whatever they are: conversions from other units,
//! instruments with coarse steps, single precision printed in full.
//!
//! ```text
//! body: count varint, bytes varint, then in so many bytes codec u8 and body of the `count` distinct
//!       values (not a dictionary or runs again), ascending; stream of the codes (see ints.rs)
//! ```
//! A code is the place of a value in that order, so that neighbours in value have near codes.

use tidefall_types::Result;

use crate::bytes::{Reader, corrupt, put_varint};
use crate::ints;
use crate::sample::{self, Distinct};
use crate::stream::Effort;
use crate::value::Number;

/// Values must be this many times as many as the distinct ones on average.
const VALUES_PER_DISTINCT_MIN: usize = 2;

/// The distinct ones of some values, and the code of each value.
#[derive(Debug)]
pub(crate) struct Dictionary<T> {
    distinct: Vec<T>,
    codes: Vec<i64>,
}

impl<T: Number> Dictionary<T> {
    /// The dictionary of `values`, if a sample of them repeats and they have few distinct ones.
    pub(crate) fn of(values: &[T]) -> Option<Self> {
        let sample = sample::sample(values);
        if !sample::repeats(sample.iter().map(|value| value.to_int() as u64)) {
            return None;
        }
        let most = values.len() / VALUES_PER_DISTINCT_MIN;
        let mut found = Distinct::new(values.len());
        let mut codes = Vec::with_capacity(values.len());
        for value in values {
            codes.push(found.index_of(value.to_int() as u64) as i64);
            if found.values().len() > most {
                return None;
            }
        }
        let mut order: Vec<(i64, usize)> = found
            .values()
            .iter()
            .enumerate()
            .map(|(index, &value)| (value as i64, index))
            .collect();
        order.sort_unstable();
        let mut ranks = vec![0_i64; order.len()];
        for (rank, &(_, index)) in order.iter().enumerate() {
            ranks[index] = rank as i64;
        }
        for code in &mut codes {
            *code = ranks[*code as usize];
        }
        let distinct = order.into_iter().map(|(value, _)| T::from_int(value)).collect();
        Some(Self { distinct, codes })
    }

    /// The body of a page, with what `nested` makes of the distinct values.
    pub(crate) fn encode(
        &self,
        effort: Effort,
        nested: impl Fn(&[T], Effort) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        // Every distinct value stands for many, so that any effort on them pays.
        let effort_distinct = match effort {
            Effort::Full => Effort::Thorough,
            effort => effort,
        };
        let distinct = nested(&self.distinct, effort_distinct)?;
        let mut body = Vec::with_capacity(distinct.len() + self.codes.len());
        put_varint(&mut body, self.distinct.len() as u64);
        put_varint(&mut body, distinct.len() as u64);
        body.extend_from_slice(&distinct);
        ints::encode(&self.codes, effort, &mut body);
        Ok(body)
    }
}

/// Decodes `out.len()` values, of which `nested` reads the distinct ones.
///
/// # Errors
/// `Corrupt` when the body does not hold exactly that many.
pub(crate) fn decode<T: Number>(
    body: &[u8],
    out: &mut [T],
    nested: impl Fn(&mut Reader<'_>, &mut [T]) -> Result<()>,
) -> Result<()> {
    let mut reader = Reader::new(body);
    let count = reader.count("distinct values", out.len())?;
    let bytes = reader.count("bytes of distinct values", reader.remaining())?;
    let mut distinct = vec![T::NULL; count];
    let mut distinct_body = Reader::new(reader.take(bytes)?);
    nested(&mut distinct_body, &mut distinct)?;

    let mut codes = vec![0_u32; out.len()];
    ints::decode(&mut reader, &mut codes, |code| u32::try_from(code).unwrap_or(u32::MAX))?;
    reader.expect_end()?;
    let largest = codes.iter().fold(0, |largest, &code| largest.max(code)) as usize;
    if largest >= count && !codes.is_empty() {
        return Err(corrupt(format_args!("value {largest} of a dictionary of {count}")));
    }
    for (to, &code) in out.iter_mut().zip(&codes) {
        *to = distinct[code as usize];
    }
    Ok(())
}
