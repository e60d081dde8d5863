//! Prints, for one column of numbers, the bytes per value and the speed of every codec.
//!
//! ```text
//! cargo run --release -p tidefall-codec --example page_table -- column.txt   one number a line
//! ... | cargo run --release -p tidefall-codec --example page_table           from standard input
//! ... --example page_table -- gaussian 3    N(300, 60) with 3 decimals, 2^20 values
//! ... --example page_table -- gaussian      N(300, 60) with full precision
//! ```
//! Lines that are not numbers are skipped. Values go into pages of 8192; speeds are the best of several
//! rounds on one core, into memory that is warm; the last column decodes all pages into one fresh column.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Read;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_distr::{Distribution, Normal};
use tidefall_codec::{
    ColumnBuilder, MAX_PAGE_ROWS, Profile, decode_into, encode_slice, encode_with_each, page_info,
};
use tidefall_types::FieldType;

/// Rounds of each measurement last this long together.
const ROUNDS: Duration = Duration::from_millis(300);
const GAUSSIAN_VALUES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let values = match args.first().map(String::as_str) {
        Some("gaussian") => gaussian(args.get(1).map(|decimals| decimals.parse()).transpose()?)?,
        Some(path) => numbers(&std::fs::read_to_string(path)?),
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            numbers(&text)
        }
    };
    if values.is_empty() {
        return Err("no number in the input".into());
    }
    println!("{} values", values.len());
    println!(
        "{:24} {:>11} {:>12} {:>12} {:>12}",
        "codec", "bytes/value", "encode M/s", "decode M/s", "fresh M/s"
    );
    let mut pages: BTreeMap<&str, Vec<(usize, Vec<u8>)>> = BTreeMap::new();
    for chunk in values.chunks(MAX_PAGE_ROWS) {
        for (name, page) in encode_with_each(chunk)? {
            pages.entry(name).or_default().push((chunk.len(), page));
        }
    }
    for (name, pages) in &pages {
        // A codec that does not apply to some page cannot be compared on the whole column.
        if pages.iter().map(|(rows, _)| rows).sum::<usize>() == values.len() {
            report(name, None, &values, pages)?;
        }
    }
    for profile in [Profile::Fast, Profile::Dense] {
        let mut pages = Vec::new();
        let mut codecs: Vec<&str> = Vec::new();
        for chunk in values.chunks(MAX_PAGE_ROWS) {
            let mut page = Vec::new();
            encode_slice(chunk, None, profile, &mut page)?;
            codecs.push(page_info(&page)?.codec.name());
            pages.push((chunk.len(), page));
        }
        codecs.sort_unstable();
        codecs.dedup();
        report(&format!("{profile:?}: {}", codecs.join(", ")), Some(profile), &values, &pages)?;
    }
    Ok(())
}

fn numbers(text: &str) -> Vec<f64> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

fn gaussian(decimals: Option<i32>) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let mut rng = rand::rngs::StdRng::seed_from_u64(1);
    let normal = Normal::new(300.0, 60.0)?;
    let values = (0..GAUSSIAN_VALUES).map(|_| normal.sample(&mut rng));
    Ok(match decimals.map(|decimals| 10_f64.powi(decimals)) {
        Some(power) => values.map(|value| (value * power).round() / power).collect(),
        None => values.collect(),
    })
}

fn report(
    name: &str,
    profile: Option<Profile>,
    values: &[f64],
    pages: &[(usize, Vec<u8>)],
) -> tidefall_types::Result<()> {
    let bytes: usize = pages.iter().map(|(_, page)| page.len()).sum();
    let encode = match profile {
        None => "-".to_owned(),
        Some(profile) => {
            let mut out = Vec::new();
            let chunks: Vec<&[f64]> = values.chunks(MAX_PAGE_ROWS).collect();
            let seconds = best(chunks.len(), |index| {
                out.clear();
                encode_slice(chunks[index], None, profile, &mut out)
            })?;
            format!("{:.0}", values.len() as f64 / seconds / 1e6)
        }
    };
    let mut warm = [0_f64; MAX_PAGE_ROWS];
    let decode = best(pages.len(), |index| {
        let (rows, page) = &pages[index];
        decode_into(page, &mut warm[..*rows]).map(drop)
    })?;
    let fresh = best(1, |_| {
        let mut column = ColumnBuilder::new(FieldType::F64, values.len());
        for (_, page) in pages {
            column.append_page(page)?;
        }
        black_box(column.finish());
        Ok(())
    })?;
    println!(
        "{name:24} {:>11.3} {encode:>12} {:>12.0} {:>12.0}",
        bytes as f64 / values.len() as f64,
        values.len() as f64 / decode / 1e6,
        values.len() as f64 / fresh / 1e6
    );
    Ok(())
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
