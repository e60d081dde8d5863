//! A frame in pieces that follow each other in time, so that nobody holds all of a long one.

use arrow_array::Array;
use tidefall_storage::{Keep, TableSnapshot};
use tidefall_types::{FieldType, Result, TimeRange};

use crate::question::{Block, Question, check_values};

/// Rows of a sensor that an index does not tell apart: those of a chunk.
const CHUNK_ROWS: usize = 1 << 13;

/// Bytes of texts that a piece should have.
const TEXT_BYTES: usize = 16 << 20;
/// Rows of the first piece of a frame of texts, of which nobody knows how long they are.
const TEXT_ROWS: usize = 64;

/// The frame of a question, piece by piece, one at least.
pub(crate) struct Pieces {
    question: Question,
    keep: Option<Keep>,
    /// What has not been answered; nothing at the end.
    rest: Option<TimeRange>,
    /// Rows that a piece should have at most; it has up to twice as many.
    rows: usize,
    rows_max: usize,
    /// Values that may be computed at once.
    values_max: usize,
}

impl Pieces {
    /// The pieces of a frame with about so many values each.
    pub(crate) fn new(
        question: Question,
        time: TimeRange,
        keep: Option<Keep>,
        piece_values: usize,
        values_max: usize,
    ) -> Self {
        let rows_max = (piece_values / question.sensors.len().max(1)).max(1);
        let rows = if question.ty == FieldType::Text { TEXT_ROWS } else { rows_max };
        Self { question, keep, rest: Some(time), rows: rows.min(rows_max), rows_max, values_max }
    }

    /// The next piece: its values, and where it ends.
    fn read(&self, rest: &TimeRange) -> Result<(Block, i64)> {
        let Question { snapshot, sensors, .. } = &self.question;
        let mut end_ns = rest.last_ns;
        let mut most = 0;
        if let Some((time, rows)) = snapshot.extent(sensors, rest)? {
            let (guess_ns, rows) = self.guess(snapshot, &time, rows)?;
            (end_ns, most) = (guess_ns.min(end_ns), rows);
        }
        let within = TimeRange::new(rest.first_ns, end_ns);
        // Where sensors have different times, there may be as many rows as all have together.
        if most.saturating_mul(sensors.len()) > 2 * self.rows {
            end_ns = snapshot.frame_end(sensors, &within, 2 * self.rows)?;
        }
        let time = TimeRange::new(rest.first_ns, end_ns);
        // Each sensor is read with whole chunks.
        let most = snapshot.extent(sensors, &time)?.map_or(0, |(_, rows)| rows);
        check_values(most.saturating_mul(sensors.len()), self.values_max)?;
        Ok((self.question.frame(&time, self.keep.as_ref())?, end_ns))
    }

    /// Up to where no sensor has many more rows than a piece, as far as the index tells; and how many it has there.
    fn guess(
        &self,
        snapshot: &TableSnapshot,
        time: &TimeRange,
        rows: usize,
    ) -> Result<(i64, usize)> {
        let rows_max = self.rows.max(CHUNK_ROWS);
        let (mut end_ns, mut most) = (time.last_ns, rows);
        while most > 2 * rows_max && end_ns > time.first_ns {
            let pieces = (most / rows_max).max(2) as i128;
            let length = (i128::from(end_ns) - i128::from(time.first_ns)) / pieces;
            end_ns = (i128::from(time.first_ns) + length) as i64;
            let within = TimeRange::new(time.first_ns, end_ns);
            most = snapshot.extent(&self.question.sensors, &within)?.map_or(0, |found| found.1);
        }
        // What is behind the last row of all is done with.
        let is_all = end_ns == time.last_ns;
        Ok((if is_all { i64::MAX } else { end_ns }, most))
    }
}

impl Iterator for Pieces {
    type Item = Result<Block>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let (block, end_ns) = match self.read(&rest) {
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        let behind = end_ns.checked_add(1).filter(|first_ns| *first_ns <= rest.last_ns);
        self.rest = behind.map(|first_ns| TimeRange::new(first_ns, rest.last_ns));
        if self.question.ty == FieldType::Text && !block.time.is_empty() {
            // As long as those before.
            let row_bytes = (block.values.get_array_memory_size() / block.time.len()).max(1);
            self.rows = (TEXT_BYTES / row_bytes).clamp(1, 8 * self.rows).min(self.rows_max);
        }
        Some(Ok(block))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self.rest {
            None => (0, Some(0)),
            Some(_) => (1, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Float64Type;
    use arrow_array::{ArrayRef, Float64Array, Int32Array, StringArray};
    use arrow_cast::cast;
    use arrow_schema::DataType;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tidefall_simulation::MemDisk;
    use tidefall_storage::{Db, DbOptions, Unknown, WriteOptions};
    use tidefall_types::{FieldColumn, NS_PER_SECOND, TagColumn, WriteBatch};

    use super::*;

    const SENSORS: u32 = 4;

    /// Some have a reading each second, others now and then, at other times.
    fn batch(rng: &mut SmallRng, first: i64) -> WriteBatch {
        let rows = 400;
        let keys: Vec<u32> = (0..rows).map(|_| rng.random_range(0..SENSORS)).collect();
        let time = keys.iter().map(|sensor| {
            let second = (first + rng.random_range(0..500)) * NS_PER_SECOND;
            if *sensor < 2 { second } else { second + rng.random_range(0..NS_PER_SECOND) }
        });
        let time: Vec<i64> = time.collect();
        let values: Vec<i32> = (0..rows).map(|_| rng.random_range(0..1_000)).collect();
        let names = StringArray::from_iter_values((0..SENSORS).map(|sensor| format!("s{sensor}")));
        let floats: Float64Array = values.iter().map(|value| Some(f64::from(*value))).collect();
        let column = |name: &str, values: ArrayRef| FieldColumn { name: name.into(), values };
        WriteBatch {
            time: time.into(),
            tags: vec![TagColumn { name: "sensor".into(), values: names, keys: keys.into() }],
            fields: vec![
                column("whole", Arc::new(Int32Array::from(values))),
                column("float", Arc::new(floats)),
            ],
        }
    }

    /// The values of each line as floats.
    fn lines(block: &Block) -> Vec<Vec<f64>> {
        let values = cast(&block.values, &DataType::Float64).unwrap();
        let values = values.as_primitive::<Float64Type>().values();
        let rows = block.time.len().max(1);
        values.chunks(rows).map(<[f64]>::to_vec).collect()
    }

    #[test]
    fn pieces_behind_each_other_are_the_frame() {
        let mut rng = SmallRng::seed_from_u64(14);
        let db = Db::open_on(Arc::new(MemDisk::new()), DbOptions::default()).unwrap();
        let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
        for first in [0, 400, 10_000, 1_000_000] {
            db.write("plant", &batch(&mut rng, first), &options).unwrap();
            if rng.random() {
                db.flush().unwrap();
            }
        }
        for (field, keep) in [
            ("whole", None),
            ("float", None),
            ("float", Some(Keep::Between(100.0, 500.0))),
            ("whole", Some(Keep::Outside(10.0, 990.0))),
        ] {
            let question = Question::new(&db, "plant", Vec::new(), Some(field)).unwrap();
            for time in [TimeRange::ALL, TimeRange::new(7, 600 * NS_PER_SECOND)] {
                let whole = question.frame(&time, keep.as_ref()).unwrap();
                for values_max in [1, 40, 1_000, usize::MAX] {
                    let pieces = Pieces::new(question.clone(), time, keep, values_max, usize::MAX);
                    let pieces: Vec<Block> = pieces.map(|piece| piece.unwrap()).collect();
                    let times = pieces.iter().flat_map(|piece| piece.time.iter().copied());
                    assert!(times.eq(whole.time.iter().copied()), "{field}, {values_max}");
                    let mut found = vec![Vec::new(); SENSORS as usize];
                    for piece in pieces.iter().filter(|piece| !piece.time.is_empty()) {
                        assert!(piece.time.len() <= 2 * (values_max / SENSORS as usize).max(1));
                        found.iter_mut().zip(lines(piece)).for_each(|(all, more)| all.extend(more));
                    }
                    let bits = |lines: Vec<Vec<f64>>| -> Vec<Vec<u64>> {
                        let of = |line: Vec<f64>| line.into_iter().map(f64::to_bits).collect();
                        lines.into_iter().map(of).collect()
                    };
                    assert_eq!(bits(found), bits(lines(&whole)), "{field}, {values_max}");
                    let missing: usize = pieces.iter().map(|piece| piece.missing).sum();
                    assert_eq!(missing, whole.missing);
                }
            }
        }
    }
}
