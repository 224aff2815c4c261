//! Reading lines in large pieces, with a limit on each line.

use std::io::{self, Read};

/// Longest line either way, its newline not counted: 16 MiB, the daemon's own frame limit (DESIGN
/// §3).
pub(crate) const MAX_LINE: usize = 16 * 1024 * 1024;

/// The first size of a buffer: most bridges are idle.
const SMALL: usize = 8 * 1024;
/// The size to which one grows for many lines at once; it grows further only for a line that is
/// longer.
const BUSY: usize = 64 * 1024;
/// The largest size that an empty one may keep.
const LARGE: usize = 1024 * 1024;

/// Bytes read and not yet passed on. Complete lines are handed out where they lie, many at once.
#[derive(Debug)]
pub(crate) struct LineBuffer {
    bytes: Vec<u8>,
    filled: usize,
    /// The last read left no room.
    full: bool,
    skipping: bool,
    limit: usize,
}

/// The outcome of one read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinePiece<'a> {
    /// One line or more, each with its newline. [`LineBuffer::consume`] them before the next read.
    Lines(&'a [u8]),
    /// No line has ended yet.
    Nothing,
    /// A line has grown over the limit; these are its first bytes. The rest of it will be skipped.
    TooLong(&'a [u8]),
    /// The other side has closed. These bytes came after the last newline.
    End(&'a [u8]),
}

impl LineBuffer {
    /// An empty buffer for lines of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> LineBuffer {
        LineBuffer {
            bytes: vec![0; SMALL.min(limit + 1)],
            filled: 0,
            full: false,
            skipping: false,
            limit,
        }
    }

    /// Reads once (again if interrupted) and says what is there now.
    pub(crate) fn read(&mut self, from: &mut impl Read) -> io::Result<LinePiece<'_>> {
        if self.filled == self.bytes.len() || self.full && self.bytes.len() < BUSY {
            self.bytes
                .resize((self.bytes.len() * 2).min(self.limit + 1), 0);
        }
        let got = loop {
            match from.read(&mut self.bytes[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if got == 0 {
            let rest = if self.skipping { 0 } else { self.filled };
            self.filled = 0;
            return Ok(LinePiece::End(&self.bytes[..rest]));
        }
        let old = self.filled;
        self.filled += got;
        self.full = self.filled == self.bytes.len();
        if self.skipping {
            let Some(newline) = memchr::memchr(b'\n', &self.bytes[..self.filled]) else {
                self.filled = 0;
                return Ok(LinePiece::Nothing);
            };
            self.skipping = false;
            self.consume(newline + 1);
            return Ok(match self.complete(0) {
                0 => LinePiece::Nothing,
                length => LinePiece::Lines(&self.bytes[..length]),
            });
        }
        match self.complete(old) {
            0 if self.filled > self.limit => {
                let length = self.filled;
                self.filled = 0;
                self.skipping = true;
                Ok(LinePiece::TooLong(&self.bytes[..length]))
            }
            0 => Ok(LinePiece::Nothing),
            length => Ok(LinePiece::Lines(&self.bytes[..length])),
        }
    }

    /// Forgets the first `length` bytes: the lines that [`LineBuffer::read`] returned, once they
    /// are dealt with.
    pub(crate) fn consume(&mut self, length: usize) {
        self.bytes.copy_within(length..self.filled, 0);
        self.filled -= length;
        if self.bytes.len() > LARGE && self.filled < SMALL {
            self.bytes.truncate(SMALL);
            self.bytes.shrink_to_fit();
        }
    }

    /// Length of the complete lines at the start; nothing before `from` ends one.
    fn complete(&self, from: usize) -> usize {
        memchr::memrchr(b'\n', &self.bytes[from..self.filled]).map_or(0, |at| from + at + 1)
    }
}

/// The lines of a piece that ends with a newline, with their ranges, newlines included.
pub(crate) fn each_line(piece: &[u8]) -> impl Iterator<Item = (std::ops::Range<usize>, &[u8])> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', piece).map(move |newline| {
        let range = start..newline + 1;
        start = newline + 1;
        (range.clone(), &piece[range])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hands out its bytes in the given piece sizes.
    struct Pieces<'a>(&'a [u8], Vec<usize>);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let size = self
                .1
                .pop()
                .unwrap_or(usize::MAX)
                .clamp(1, into.len())
                .min(self.0.len());
            into[..size].copy_from_slice(&self.0[..size]);
            self.0 = &self.0[size..];
            Ok(size)
        }
    }

    /// All lines and, as `None`, every line that was too long; then what followed the last newline.
    fn all(input: &[u8], pieces: Vec<usize>, limit: usize) -> (Vec<Option<Vec<u8>>>, Vec<u8>) {
        let mut from = Pieces(input, pieces);
        let mut buffer = LineBuffer::new(limit);
        let mut seen = Vec::new();
        loop {
            let length = match buffer.read(&mut from).unwrap() {
                LinePiece::Lines(piece) => {
                    seen.extend(
                        each_line(piece).map(|(_, line)| Some(line[..line.len() - 1].to_vec())),
                    );
                    piece.len()
                }
                LinePiece::Nothing => 0,
                LinePiece::TooLong(_) => {
                    seen.push(None);
                    0
                }
                LinePiece::End(rest) => return (seen, rest.to_vec()),
            };
            buffer.consume(length);
        }
    }

    proptest! {
        #[test]
        fn lines_come_out_as_they_went_in_however_they_are_cut(
            lines in proptest::collection::vec(proptest::collection::vec(b'a'..b'd', 0..40), 0..12),
            rest in proptest::collection::vec(b'a'..b'd', 0..20),
            pieces in proptest::collection::vec(1usize..30, 0..200),
        ) {
            let limit = 20;
            let mut input = lines.join(&b'\n');
            if !lines.is_empty() { input.push(b'\n'); }
            input.extend_from_slice(&rest);
            let expected: Vec<_> = lines.into_iter().map(|line| (line.len() <= limit).then_some(line)).collect();
            prop_assert_eq!(all(&input, pieces, limit), (expected, rest));
        }
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
        assert_eq!(
            all(b"12345\n123456\n1\n", vec![], 5).0,
            [Some(b"12345".to_vec()), None, Some(b"1".to_vec())]
        );
    }

    #[test]
    fn an_endless_line_takes_bounded_memory() {
        let mut buffer = LineBuffer::new(1000);
        let mut endless = io::repeat(b'x');
        for _ in 0..1000 {
            buffer.read(&mut endless).unwrap();
        }
        assert!(buffer.bytes.len() <= 1001);
    }

    #[test]
    fn memory_for_a_huge_line_is_given_back() {
        let mut input = vec![b'x'; 3 * LARGE];
        input.push(b'\n');
        let mut from = &input[..];
        let mut buffer = LineBuffer::new(MAX_LINE);
        loop {
            if let LinePiece::Lines(piece) = buffer.read(&mut from).unwrap() {
                let length = piece.len();
                assert_eq!(length, input.len());
                buffer.consume(length);
                break;
            }
        }
        assert_eq!(buffer.bytes.len(), SMALL);
    }
}
