//! The bytes of an answer, in parts.

use std::collections::VecDeque;
use std::io;

/// Bytes of a part. What is shorter has one that is no longer than it needs.
pub(crate) const PART_BYTES: usize = 128 << 10;

/// Bytes in the order in which they were written, of which each part can be sent and let go of by itself.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: VecDeque<Vec<u8>>,
    len: usize,
}

impl Parts {
    /// The bytes in all parts.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All of it in one.
    pub(crate) fn into_whole(mut self) -> Vec<u8> {
        match self.parts.len() {
            0 | 1 => self.parts.pop_front().unwrap_or_default(),
            _ => Vec::from(self.parts).concat(),
        }
    }

    /// Adds bytes.
    pub(crate) fn extend(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        while !bytes.is_empty() {
            let free = self.parts.back().map_or(0, |part| PART_BYTES - part.len());
            if free == 0 {
                let is_first = self.parts.is_empty();
                self.parts.push_back(Vec::with_capacity(if is_first { 0 } else { PART_BYTES }));
                continue;
            }
            let (now, rest) = bytes.split_at(free.min(bytes.len()));
            if let Some(part) = self.parts.back_mut() {
                part.extend_from_slice(now);
            }
            bytes = rest;
        }
    }
}

impl Iterator for Parts {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let part = self.parts.pop_front()?;
        self.len -= part.len();
        Some(part)
    }
}

impl io::Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn parts_behind_each_other_are_what_was_written() {
        let all: Vec<u8> = (0..3 * PART_BYTES + 5).map(|at| at as u8).collect();
        for step in [1_000, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, all.len()] {
            let written = || {
                let mut parts = Parts::default();
                all.chunks(step).for_each(|bytes| parts.write_all(bytes).unwrap());
                parts
            };
            assert_eq!(written().len(), all.len());
            assert_eq!(written().into_whole(), all);
            let lengths: Vec<usize> = written().map(|part| part.len()).collect();
            assert_eq!(lengths, [PART_BYTES, PART_BYTES, PART_BYTES, 5]);
            assert_eq!(written().flatten().collect::<Vec<u8>>(), all);
        }
        assert_eq!(Parts::default().into_whole(), b"");
    }
}
