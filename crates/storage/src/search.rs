//! Searches in what is ordered.

/// How many of the first values are meant, of which none is behind one that is not. They are looked for in growing
/// steps, for where there are few.
pub(crate) fn leading<T: Copy>(values: &[T], is_meant: impl Fn(T) -> bool) -> usize {
    let (mut known, mut step) = (0, 1);
    while known + step <= values.len() && is_meant(values[known + step - 1]) {
        known += step;
        step *= 2;
    }
    let end = values.len().min(known + step - 1);
    known + values[known..end].partition_point(|value| is_meant(*value))
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
            }
        }
    }
}
