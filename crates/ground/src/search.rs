//! Searches in what is ordered.

use std::ops::Range;

/// How many of the first values are meant, of which none is behind one that is not. They are looked for in growing
/// steps, for where there are few.
pub fn leading<T: Copy>(values: &[T], is_meant: impl Fn(T) -> bool) -> usize {
    let (mut known, mut step) = (0, 1);
    while known + step <= values.len() && is_meant(values[known + step - 1]) {
        known += step;
        step *= 2;
    }
    let end = values.len().min(known + step - 1);
    known + values[known..end].partition_point(|value| is_meant(*value))
}

/// The first of some places that is not meant; those that are come before all others.
pub fn first_behind(places: Range<usize>, is_meant: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = places;
    while start < end {
        let middle = start.midpoint(end);
        if is_meant(middle) {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_values_are_counted() {
        for len in 0..70 {
            let values: Vec<usize> = (0..len).collect();
            for meant in 0..=len {
                assert_eq!(leading(&values, |value| value < meant), meant, "{meant} of {len}");
                assert_eq!(first_behind(7..7 + len, |at| at < 7 + meant), 7 + meant);
            }
        }
    }
}
