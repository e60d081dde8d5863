//! The order of rows that came by their times but for a few.

/// Orders rows, which ascend, by their times; those of one time stay as they stand. A general sort takes each late row for the end of a stretch
/// that is in order, and lays all of these together.
pub(super) fn sort_by_time(rows: &mut [u32], times: &[i64], late: &mut Vec<u32>) {
    late.clear();
    let time = |row: u32| times[row as usize];
    let (mut in_order, mut newest_ns) = (0, i64::MIN);
    for at in 0..rows.len() {
        let row = rows[at];
        if time(row) < newest_ns {
            late.push(row);
            continue;
        }
        newest_ns = time(row);
        rows[in_order] = row;
        in_order += 1;
    }
    late.sort_by_key(|row| time(*row));
    // From the end on. A late row came behind the others of its time: what is in order behind it is newer.
    let mut free = rows.len();
    while let Some(row) = late.last() {
        free -= 1;
        if in_order > 0 && time(rows[in_order - 1]) > time(*row) {
            in_order -= 1;
            rows[free] = rows[in_order];
        } else {
            rows[free] = *row;
            late.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn it_is_a_stable_sort() {
        let mut rng = SmallRng::seed_from_u64(13);
        let mut late = Vec::new();
        for round in 0..500 {
            let count = rng.random_range(0..300);
            // None late, few, and all; times that are far apart, and many that are equal.
            let part = [0.0, 0.05, 1.0][round % 3];
            let step = [1, 1 << 40][round % 2];
            let mut time = |row: i64| match rng.random_bool(part) {
                true => {
                    [i64::MIN, i64::MAX, rng.random_range(0..=row) * step][rng.random_range(0..3)]
                }
                false => row / 3 * step,
            };
            let times: Vec<i64> = (0..count).map(&mut time).collect();
            let mut rows: Vec<u32> = (0..count as u32).filter(|_| rng.random_bool(0.9)).collect();
            let mut expected = rows.clone();
            expected.sort_by_key(|row| times[*row as usize]);
            sort_by_time(&mut rows, &times, &mut late);
            assert_eq!(rows, expected, "round {round}");
        }
    }
}
