//! Which packing makes a stream of integers smallest, for data that is cold.
//!
//! 1. A sample tells how many bits a value would take in planes, of the values and of their
//!    differences, and whether values repeat. Noise ends here: it stays in frames.
//! 2. Planes are encoded at the lowest level of Zstandard, mostly a Huffman code.
//! 3. What a sample promises to gain is tried too: a level that looks for matches where symbols are few,
//!    rows where wide values repeat, `pco` where values take few bits or are smooth.
//! 4. The smallest is taken, but what decodes slowly must save more.
//!
//! Decoding on one core, in million values/s: frames 800 to 1250, one plane 300 to 450, two 200 to 300,
//! pco 170 to 260, rows 80 to 130.

use crate::bits::{VECTOR, width_of};
use crate::bytes::{put_signed, put_varint, to_zigzag};
use crate::heavy::{self, UnitSearch};
use crate::planes::{self, Numbers};
use crate::sample::{self, Cut};
use crate::stream::{DIFFERENCES, Effort, Extent, Packing, Series, Stream};

/// On fewer values the tables of a heavy codec cannot pay.
const MIN_VALUES: usize = 128;
/// In a dictionary values take many bytes each, so that fewer are enough.
const MIN_VALUES_THOROUGH: usize = 16;

/// What planes must save over frames, in per cent: they decode a third as fast, but still above 300
/// million values/s.
const PLANES_MIN_SAVING_PERCENT: usize = 6;
/// What pco must save over the best so far, in per cent.
const PCO_MIN_SAVING_PERCENT: usize = 4;
/// What rows must save over the best so far, in per cent.
const ROWS_MIN_SAVING_PERCENT: usize = 10;

/// A level without a search for matches to speak of: 300 to 500 MB/s.
const LEVEL_QUICK: i32 = 1;
/// The lowest level that weighs matches against literals by their cost; on pages the levels above gain
/// less than a per cent over it. 8 to 40 MB/s.
const LEVEL_MATCHES: i32 = 11;
/// For rows, where the level above takes twice as long for half a per cent.
const LEVEL_ROWS: i32 = 6;
/// Planes of fewer bits a symbol than this may hold matches that are shorter than their literals.
const MATCHES_MAX_BITS: f64 = 4.5;
/// Values of fewer bits than this lose by Huffman codes of whole bits, which pco does not have.
const PCO_MAX_BITS: f64 = 4.0;
/// pco is also tried where values of all lengths occur, so that a code for the length and the bits of
/// that length would take less than this share of planes, in per cent.
const PCO_LENGTHS_PERCENT: f64 = 97.0;
/// So many planes decode no faster than pco does.
const MANY_PLANES: usize = 3;
/// Of narrower values planes find the matches that rows do.
const ROWS_MIN_PLANES: usize = 2;
/// If the better of values and differences is estimated at this share of the other or more, in per cent,
/// both are tried.
const CLOSE_PERCENT: f64 = 95.0;

/// The body of a stream behind unit and start, and the bits of its shape.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) shape: u8,
    pub(crate) body: Vec<u8>,
}

/// A packing of `stream` that is enough smaller than frames, if there is one.
pub(crate) fn smaller(stream: &Stream<'_>, effort: Effort) -> Option<Trial> {
    let values = stream.quotients;
    let few = match effort {
        Effort::Light | Effort::Only(Packing::Frames) => return None,
        Effort::Probe | Effort::Full => values.len() < MIN_VALUES,
        Effort::Thorough => values.len() < MIN_VALUES_THOROUGH,
        Effort::Only(_) => values.is_empty(),
    };
    if few {
        return None;
    }
    let mut best = Best { least: stream.frames_bytes(), trial: None };
    match effort {
        Effort::Only(packing) => return only(stream, packing),
        Effort::Thorough => {
            let zigzags = Form::zigzags(stream);
            best.take(zigzags.planes(LEVEL_QUICK), 0);
            if zigzags.repeats() {
                best.take(zigzags.rows(LEVEL_MATCHES), 0);
            }
            best.take(pco(values, UnitSearch::On), 0);
        }
        _ => try_promising([&Form::offsets(stream), &Form::zigzags(stream)], effort, &mut best),
    }
    best.trial
}

/// `stream` in this packing, whatever it takes.
fn only(stream: &Stream<'_>, packing: Packing) -> Option<Trial> {
    let (offsets, zigzags) = (Form::offsets(stream), Form::zigzags(stream));
    let form = if zigzags.cut.bits < offsets.cut.bits { zigzags } else { offsets };
    match packing {
        Packing::Pco => pco(stream.quotients, UnitSearch::Off),
        Packing::Rows => form.rows(LEVEL_ROWS),
        _ => form.planes(LEVEL_QUICK),
    }
}

fn try_promising(forms: [&Form<'_>; 2], effort: Effort, best: &mut Best) {
    let [offsets, zigzags] = forms;
    let (near, far) =
        if zigzags.cut.bits < offsets.cut.bits { (zigzags, offsets) } else { (offsets, zigzags) };
    let len = near.stream.len();
    let expected_bytes = len as f64 * near.cut.bits / 8.0;
    let limit = (best.least * (100 - PLANES_MIN_SAVING_PERCENT)) as f64 / 100.0;
    if expected_bytes > limit && !offsets.repeats() && !zigzags.repeats() {
        return;
    }
    best.take(near.planes(LEVEL_QUICK), PLANES_MIN_SAVING_PERCENT);
    if near.cut.bits * 100.0 >= far.cut.bits * CLOSE_PERCENT {
        best.take(far.planes(LEVEL_QUICK), PLANES_MIN_SAVING_PERCENT);
    }
    if effort == Effort::Probe {
        return;
    }
    if near.cut.lowest_plane_bits < MATCHES_MAX_BITS {
        let saving = if best.trial.is_some() { 0 } else { PLANES_MIN_SAVING_PERCENT };
        best.take(near.planes(LEVEL_MATCHES), saving);
    }
    if near.planes_count() >= ROWS_MIN_PLANES && zigzags.repeats() {
        let least = best.least;
        best.take(zigzags.rows(LEVEL_ROWS), ROWS_MIN_SAVING_PERCENT);
        if best.least < least {
            return;
        }
    }
    let by_length = near.cut.length_bits.min(far.cut.length_bits);
    if near.planes_count() >= MANY_PLANES {
        best.take(pco(near.stream, UnitSearch::Off), 0);
    } else if near.cut.bits < PCO_MAX_BITS
        || by_length * 100.0 < near.cut.bits * PCO_LENGTHS_PERCENT
        || is_smooth(sample::sample(near.stream))
    {
        best.take(pco(near.stream, UnitSearch::Off), PCO_MIN_SAVING_PERCENT);
    }
}

/// Whether the second differences of `sample` are smaller than the first.
fn is_smooth(sample: &[i64]) -> bool {
    let bits = |difference: i64| width_of(to_zigzag(difference));
    let (mut first, mut second, mut last) = (0, 0, 0);
    for pair in sample.windows(2) {
        let difference = pair[1].wrapping_sub(pair[0]);
        first += bits(difference);
        second += bits(difference.wrapping_sub(last));
        last = difference;
    }
    second < first
}

fn pco(values: &[i64], search: UnitSearch) -> Option<Trial> {
    let file = heavy::encode_pco_integers(values, search)?;
    let mut body = Vec::with_capacity(file.len() + 3);
    put_varint(&mut body, file.len() as u64);
    body.extend_from_slice(&file);
    Some(Trial { shape: Packing::Pco.shape(), body })
}

/// The smallest so far.
struct Best {
    least: usize,
    trial: Option<Trial>,
}

impl Best {
    /// Takes `trial` if it saves that much over the smallest so far. A compressor that failed had no
    /// trial to offer.
    fn take(&mut self, trial: Option<Trial>, min_saving_percent: usize) {
        if let Some(trial) = trial
            && trial.body.len() * 100 < self.least * (100 - min_saving_percent)
        {
            self.least = trial.body.len();
            self.trial = Some(trial);
        }
    }
}

/// Unsigned numbers that stand for a stream: offsets from `base`, or differences after zig-zag.
struct Form<'a> {
    stream: &'a [i64],
    base: Option<i64>,
    max: u64,
    cut: Cut,
}

impl<'a> Form<'a> {
    fn offsets(stream: &Stream<'a>) -> Self {
        let Extent { min, max, .. } = stream.values;
        Self::new(stream.quotients, Some(min), max.wrapping_sub(min) as u64)
    }

    fn zigzags(stream: &Stream<'a>) -> Self {
        let Extent { min, max, .. } = stream.differences;
        Self::new(stream.quotients, None, to_zigzag(min).max(to_zigzag(max)))
    }

    fn new(stream: &'a [i64], base: Option<i64>, max: u64) -> Self {
        let mut form = Self { stream, base, max, cut: Cut::default() };
        form.cut = sample::cut(&form.sample(), max);
        form
    }

    /// The numbers that stand for a sample of the stream.
    fn sample(&self) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(VECTOR);
        let sample = Self { stream: sample::sample(self.stream), ..*self };
        sample.each(|vector| numbers.extend_from_slice(vector));
        numbers
    }

    fn repeats(&self) -> bool {
        sample::repeats(self.sample().into_iter())
    }

    fn planes_count(&self) -> usize {
        planes::plane_count(width_of(self.max), self.cut.low_bits)
    }

    fn planes(&self, level: i32) -> Option<Trial> {
        let mut trial = self.trial(Packing::Planes);
        planes::encode(self, self.cut.low_bits, level, &mut trial.body).ok()?;
        Some(trial)
    }

    fn rows(&self, level: i32) -> Option<Trial> {
        let mut trial = self.trial(Packing::Rows);
        planes::encode_rows(self, level, &mut trial.body).ok()?;
        Some(trial)
    }

    fn trial(&self, packing: Packing) -> Trial {
        let mut body =
            Vec::with_capacity(self.stream.len() * self.cut.bits.ceil() as usize / 8 + 1024);
        match self.base {
            Some(base) => {
                put_signed(&mut body, base);
                Trial { shape: packing.shape(), body }
            }
            None => Trial { shape: packing.shape() | DIFFERENCES, body },
        }
    }
}

impl Numbers for Form<'_> {
    fn len(&self) -> usize {
        self.stream.len()
    }

    fn max(&self) -> u64 {
        self.max
    }

    fn each(&self, mut body: impl FnMut(&[u64])) {
        let mut numbers = [0_u64; VECTOR];
        let series = if self.base.is_some() { Series::Values } else { Series::Differences };
        series.each(self.stream, |vector| {
            let numbers = &mut numbers[..vector.len()];
            match self.base {
                Some(base) => numbers
                    .iter_mut()
                    .zip(vector)
                    .for_each(|(to, value)| *to = value.wrapping_sub(base) as u64),
                None => {
                    numbers.iter_mut().zip(vector).for_each(|(to, value)| *to = to_zigzag(*value));
                }
            }
            body(numbers);
        });
    }
}
