//! Prints what every column of a CSV file takes in `Dense` pages: bytes per row, the codecs taken and
//! the speed of encoding and decoding.
//!
//! ```text
//! cargo run --release -p tidefall-codec --example column_sizes -- readings.csv station,element
//! ```
//! The lines stand in the order of the tags (named in the second argument) and the column `time`, as
//! `tidefall query --format csv` prints them for `ORDER BY station, element, time`. As in a segment, a
//! page holds at most 8192 rows of one sensor, times with one step and fields without a value have none.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use tidefall_codec::{ColumnBuilder, MAX_PAGE_ROWS, Profile, encode_page, page_info};
use tidefall_types::FieldType;

/// Rounds of each measurement last this long together.
const ROUNDS: Duration = Duration::from_millis(200);
const HEAD: &str = "column          bytes  bytes/row  encode M/s  decode M/s  pages by codec";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = args.first().ok_or("which CSV file?")?;
    let tags: Vec<&str> = args.get(1).map_or(Vec::new(), |tags| tags.split(',').collect());
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().ok_or("an empty file")?.split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let column = |name: usize| rows.iter().map(move |row| row.get(name).copied().unwrap_or(""));
    let is_tag = |name: &str| tags.contains(&name);
    let keys: Vec<usize> = (0..names.len()).filter(|&index| is_tag(names[index])).collect();

    let mut chunks: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for sensor in rows.chunk_by(|a, b| keys.iter().all(|&key| a.get(key) == b.get(key))) {
        for chunk in sensor.chunks(MAX_PAGE_ROWS) {
            chunks.push(start..start + chunk.len());
            start += chunk.len();
        }
    }
    println!("{} rows, {} chunks\n{HEAD}", rows.len(), chunks.len());
    let mut total = 0;
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !is_tag(name)) {
        let array = match *name {
            "time" => Arc::new(
                column(index)
                    .map(nanoseconds)
                    .collect::<Option<Int64Array>>()
                    .ok_or("a time that is none")?,
            ) as ArrayRef,
            _ => array_of(&column(index).collect::<Vec<_>>()),
        };
        total += report(name, &array, &chunks)?;
    }
    println!("{:12} {total:>8}  {:>9.3}", "all", total as f64 / rows.len() as f64);
    Ok(())
}

fn nanoseconds(text: &str) -> Option<Option<i64>> {
    let (date, clock) = text.split_once(['T', ' '])?;
    let mut days = date.rsplitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (day, month, year) = (days.next()??, days.next()??, days.next()??);
    let mut parts = clock.trim_end_matches('Z').split(':');
    let (hour, minute) = (parts.next()?.parse::<i64>().ok()?, parts.next()?.parse::<i64>().ok()?);
    let (second, fraction) =
        parts.next()?.split_once('.').unwrap_or((clock.rsplit(':').next()?, ""));
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
    // Days since 1970 of the proleptic Gregorian calendar, counted from March (Howard Hinnant).
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day =
        year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
            - 719_468;
    let seconds = ((day * 24 + hour) * 60 + minute) * 60
        + second.trim_end_matches('Z').parse::<i64>().ok()?;
    Some(Some(seconds * 1_000_000_000 + fraction))
}

/// The narrowest of integers, doubles, truth values and text that holds all of `cells`.
fn array_of(cells: &[&str]) -> ArrayRef {
    fn parsed<T: std::str::FromStr>(cells: &[&str]) -> Option<Vec<Option<T>>> {
        let parse = |cell: &&str| match *cell {
            "" => Some(None),
            cell => cell.parse().ok().map(Some),
        };
        cells.iter().map(parse).collect()
    }
    if let Some(values) = parsed::<i64>(cells) {
        return Arc::new(Int64Array::from(values));
    }
    if let Some(values) = parsed::<f64>(cells) {
        return Arc::new(Float64Array::from(values));
    }
    if let Some(values) = parsed::<bool>(cells) {
        return Arc::new(BooleanArray::from(values));
    }
    let texts = cells.iter().map(|cell| Some(*cell).filter(|cell| !cell.is_empty()));
    Arc::new(texts.collect::<StringArray>())
}

fn has_one_step(times: &[i64]) -> bool {
    let [first, second, ..] = times else { return true };
    let step = second.wrapping_sub(*first);
    times.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step)
}

fn report(name: &str, array: &ArrayRef, chunks: &[Range<usize>]) -> Result<usize, Box<dyn Error>> {
    let times = array.as_any().downcast_ref::<Int64Array>().filter(|_| name == "time");
    let has_page = |chunk: &Range<usize>| match times {
        Some(times) => !has_one_step(&times.values()[chunk.clone()]),
        None => array.slice(chunk.start, chunk.len()).null_count() < chunk.len(),
    };
    let slices: Vec<ArrayRef> = chunks
        .iter()
        .filter(|chunk| has_page(chunk))
        .map(|chunk| array.slice(chunk.start, chunk.len()))
        .collect();
    let ty = FieldType::from_arrow(array.data_type()).ok_or("a type that no page holds")?;
    let mut pages = Vec::new();
    let mut codecs: BTreeMap<&str, usize> = BTreeMap::new();
    for slice in &slices {
        let mut page = Vec::new();
        encode_page(slice, Profile::Dense, &mut page)?;
        *codecs.entry(page_info(&page)?.codec.name()).or_default() += 1;
        pages.push(page);
    }
    let mut out = Vec::new();
    let encode = best(slices.len(), |index| {
        out.clear();
        encode_page(&slices[index], Profile::Dense, &mut out)
    })?;
    let decode = best(pages.len(), |index| {
        let mut column = ColumnBuilder::new(ty, slices[index].len());
        column.append_page(&pages[index])?;
        black_box(column.finish());
        Ok(())
    })?;
    let bytes: usize = pages.iter().map(Vec::len).sum();
    let rows: usize = slices.iter().map(|slice| slice.len()).sum();
    let codecs: Vec<String> =
        codecs.iter().map(|(name, count)| format!("{name} {count}")).collect();
    println!(
        "{name:12} {bytes:>8}  {:>9.3}  {:>10.0}  {:>10.0}  {}",
        bytes as f64 / array.len() as f64,
        rows as f64 / encode / 1e6,
        rows as f64 / decode / 1e6,
        codecs.join(", ")
    );
    Ok(bytes)
}

/// The sum of the shortest times that each of `steps` took in many rounds, in seconds. Steps are short
/// against the time that the system gives to one process, so that others hardly count.
fn best(
    steps: usize,
    mut step: impl FnMut(usize) -> tidefall_types::Result<()>,
) -> tidefall_types::Result<f64> {
    let start = Instant::now();
    let mut least = vec![f64::INFINITY; steps];
    while start.elapsed() < ROUNDS {
        for (index, least) in least.iter_mut().enumerate() {
            let step_start = Instant::now();
            step(index)?;
            *least = least.min(step_start.elapsed().as_secs_f64());
        }
    }
    Ok(least.iter().sum())
}
