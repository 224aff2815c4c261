//! Many lines at a time, with a limit on each.

use std::io::{self, Read};

/// The first size of a buffer: most connections are idle.
const SMALL: usize = 8 * 1024;
/// The size to which one grows for many lines at once; it grows further only for a line that is
/// longer.
const BUSY: usize = 64 * 1024;
/// The largest size that an empty one may keep.
const LARGE: usize = 1024 * 1024;

/// Bytes read and not yet passed on. Complete lines are handed out where they lie, many at once.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    filled: usize,
    /// The length of the complete lines at the start that are not consumed.
    complete: usize,
    /// True if the last read left no room.
    is_full: bool,
    /// True within a line that was too long.
    is_skipping: bool,
    limit: usize,
}

/// The outcome of one read.
#[derive(Debug, PartialEq, Eq)]
pub enum LinePiece<'a> {
    /// One line or more, each with its newline. Those that are not given to
    /// [`LineBuffer::consume`] come again at the next read.
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
    pub fn new(limit: usize) -> LineBuffer {
        LineBuffer {
            bytes: vec![0; SMALL.min(limit + 1)],
            filled: 0,
            complete: 0,
            is_full: false,
            is_skipping: false,
            limit,
        }
    }

    /// Returns the lines that are there already; if there are none, reads once (again if
    /// interrupted) and returns what is there then.
    ///
    /// # Errors
    /// The input's.
    pub fn read(&mut self, input: &mut impl Read) -> io::Result<LinePiece<'_>> {
        if self.complete > 0 {
            return Ok(LinePiece::Lines(&self.bytes[..self.complete]));
        }
        if self.filled == self.bytes.len() || self.is_full && self.bytes.len() < BUSY {
            self.bytes
                .resize((self.bytes.len() * 2).min(self.limit + 1), 0);
        }
        let count = loop {
            match input.read(&mut self.bytes[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 {
            let rest = if self.is_skipping { 0 } else { self.filled };
            self.filled = 0;
            return Ok(LinePiece::End(&self.bytes[..rest]));
        }
        let previous = self.filled;
        self.filled += count;
        self.is_full = self.filled == self.bytes.len();
        if self.is_skipping {
            // The rest of a line that was too long goes, up to its newline.
            let Some(newline) = memchr::memchr(b'\n', &self.bytes[..self.filled]) else {
                self.filled = 0;
                return Ok(LinePiece::Nothing);
            };
            self.is_skipping = false;
            self.consume(newline + 1);
            self.complete = self.complete_length(0);
        } else {
            self.complete = self.complete_length(previous);
            if self.complete == 0 && self.filled > self.limit {
                let length = self.filled;
                self.filled = 0;
                self.is_skipping = true;
                return Ok(LinePiece::TooLong(&self.bytes[..length]));
            }
        }
        match self.complete {
            0 => Ok(LinePiece::Nothing),
            length => Ok(LinePiece::Lines(&self.bytes[..length])),
        }
    }

    /// Forgets the first `length` bytes: lines that [`LineBuffer::read`] returned.
    pub fn consume(&mut self, length: usize) {
        self.bytes.copy_within(length..self.filled, 0);
        self.filled -= length;
        self.complete = self.complete.saturating_sub(length);
        if self.bytes.len() > LARGE && self.filled < SMALL {
            self.bytes.truncate(SMALL);
            self.bytes.shrink_to_fit();
        }
    }

    /// The length of the complete lines at the start. No newline stands before `from`.
    fn complete_length(&self, from: usize) -> usize {
        memchr::memrchr(b'\n', &self.bytes[from..self.filled]).map_or(0, |at| from + at + 1)
    }
}

/// The lines of a piece that ends with a newline, with their ranges, newlines included.
pub fn each_line(piece: &[u8]) -> impl Iterator<Item = (std::ops::Range<usize>, &[u8])> {
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

    /// The number of lines that are consumed at once.
    #[derive(Clone, Copy)]
    enum Step {
        One,
        All,
    }

    /// All lines and, as `None`, every line that was too long; then what followed the last newline.
    fn all(
        input: &[u8],
        pieces: Vec<usize>,
        limit: usize,
        step: Step,
    ) -> (Vec<Option<Vec<u8>>>, Vec<u8>) {
        let mut from = Pieces(input, pieces);
        let mut buffer = LineBuffer::new(limit);
        let mut seen = Vec::new();
        loop {
            let length = match buffer.read(&mut from).unwrap() {
                LinePiece::Lines(piece) => {
                    let count = match step {
                        Step::One => 1,
                        Step::All => usize::MAX,
                    };
                    let mut end = 0;
                    for (range, line) in each_line(piece).take(count) {
                        seen.push(Some(line[..line.len() - 1].to_vec()));
                        end = range.end;
                    }
                    end
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
            for step in [Step::One, Step::All] {
                prop_assert_eq!(all(&input, pieces.clone(), limit, step), (expected.clone(), rest.clone()));
            }
        }
    }

    #[test]
    fn lines_that_are_not_consumed_come_again_without_a_read() {
        let mut buffer = LineBuffer::new(100);
        let mut input = Pieces(b"1\n22\n333\n4", vec![]);
        assert_eq!(
            buffer.read(&mut input).unwrap(),
            LinePiece::Lines(b"1\n22\n333\n")
        );
        buffer.consume(2);
        // An input that would block, or has ended, is not asked.
        struct Blocking;
        impl Read for Blocking {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
        assert_eq!(
            buffer.read(&mut Blocking).unwrap(),
            LinePiece::Lines(b"22\n333\n")
        );
        buffer.consume(7);
        assert_eq!(
            buffer.read(&mut Blocking).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        assert_eq!(buffer.read(&mut input).unwrap(), LinePiece::End(b"4"));
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
        assert_eq!(
            all(b"12345\n123456\n1\n", vec![], 5, Step::All).0,
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
        let mut buffer = LineBuffer::new(4 * LARGE);
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
