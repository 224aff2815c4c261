//! One line at a time, up to a limit.

use std::io::{self, BufRead};

/// The outcome of [`read_line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRead {
    /// A line that its newline ended.
    Line,
    /// A line within the limit, at whose end the input ended without a newline.
    Unterminated,
    /// A line over the limit. All of it was passed over.
    TooLong {
        /// Its bytes, without the newline.
        length: u64,
        /// True if a newline ended it, false if the input ended.
        is_terminated: bool,
    },
    /// The input ended where a line would begin.
    End,
}

/// Reads one line of at most `limit` bytes, its newline not counted, into `line` without the
/// newline. A carriage return is part of the line.
///
/// Of a line over the limit, `line` holds the first `limit` bytes; the rest is read and forgotten.
/// A caller that does not want to read such a line to its end gives `input.take(limit + 1)`: then
/// [`LineRead::TooLong`] comes after one byte too many.
///
/// # Errors
/// The input's. `line` then holds a part of a line.
pub fn read_line(
    input: &mut impl BufRead,
    limit: usize,
    line: &mut Vec<u8>,
) -> io::Result<LineRead> {
    line.clear();
    let mut length: u64 = 0;
    loop {
        let available = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            available => available?,
        };
        let is_end = available.is_empty();
        let newline = memchr::memchr(b'\n', available);
        let piece = &available[..newline.unwrap_or(available.len())];
        let room = limit - line.len();
        line.extend_from_slice(&piece[..piece.len().min(room)]);
        length += piece.len() as u64;
        let consumed = piece.len() + usize::from(newline.is_some());
        input.consume(consumed);
        let is_terminated = newline.is_some();
        if !is_terminated && !is_end {
            continue;
        }
        return Ok(match (length, is_terminated) {
            _ if length > limit as u64 => LineRead::TooLong {
                length,
                is_terminated,
            },
            (_, true) => LineRead::Line,
            (0, false) => LineRead::End,
            (_, false) => LineRead::Unterminated,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufReader, Read};

    const LIMIT: usize = 8;

    fn too_long(length: u64, is_terminated: bool) -> LineRead {
        LineRead::TooLong {
            length,
            is_terminated,
        }
    }

    /// All that is read of an input, with the lines as they were stored.
    fn read_all(input: &[u8], buffer: usize) -> Vec<(LineRead, Vec<u8>)> {
        let mut input = BufReader::with_capacity(buffer, input);
        let (mut all, mut line) = (Vec::new(), Vec::new());
        loop {
            let read = read_line(&mut input, LIMIT, &mut line).unwrap();
            if read == LineRead::End {
                assert!(line.is_empty());
                return all;
            }
            all.push((read, line.clone()));
        }
    }

    /// The same, of an input that is split at once.
    fn split(input: &[u8]) -> Vec<(LineRead, Vec<u8>)> {
        let whole = input.split_inclusive(|byte| *byte == b'\n');
        let read = whole.map(|piece| {
            let (line, is_terminated) = match piece.strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (piece, false),
            };
            let length = line.len() as u64;
            let read = match is_terminated {
                _ if line.len() > LIMIT => too_long(length, is_terminated),
                false => LineRead::Unterminated,
                true => LineRead::Line,
            };
            (read, line[..line.len().min(LIMIT)].to_vec())
        });
        read.collect()
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_split_input(
            lines in proptest::collection::vec(proptest::collection::vec(b'a'..b'd', 0..20), 0..8),
            is_terminated in any::<bool>(),
            buffer in 1usize..24,
        ) {
            let mut input = lines.join(&b'\n');
            if is_terminated { input.push(b'\n'); }
            prop_assert_eq!(read_all(&input, buffer), split(&input));
        }
    }

    #[test]
    fn a_line_at_the_limit_is_whole_and_one_byte_more_is_too_long() {
        let whole = |line: &[u8]| (LineRead::Line, line.to_vec());
        assert_eq!(
            read_all(b"1234567\n12345678\n123456789\n\r\n\n", 3),
            [
                whole(b"1234567"),
                whole(b"12345678"),
                (too_long(9, true), b"12345678".to_vec()),
                whole(b"\r"),
                whole(b""),
            ]
        );
    }

    #[test]
    fn an_unterminated_line_is_told_from_one_that_is_too_long() {
        for (length, kept, expected) in [
            (7, 7, LineRead::Unterminated),
            (8, 8, LineRead::Unterminated),
            (9, 8, too_long(9, false)),
            (1000, 8, too_long(1000, false)),
        ] {
            let read = read_all(&vec![b'x'; length], 64);
            assert_eq!(read, [(expected, vec![b'x'; kept])]);
        }
    }

    #[test]
    fn no_more_than_the_limit_is_kept_of_an_endless_line() {
        let mut line = Vec::new();
        let mut input = BufReader::new(io::repeat(b'x').take(1 << 20));
        let read = read_line(&mut input, LIMIT, &mut line).unwrap();
        assert_eq!(read, too_long(1 << 20, false));
        assert!(line.capacity() <= 64, "{}", line.capacity());
    }

    #[test]
    fn a_taken_input_does_not_read_a_long_line_to_its_end() {
        let mut line = Vec::new();
        let mut input = BufReader::new(io::repeat(b'x')).take(LIMIT as u64 + 1);
        let read = read_line(&mut input, LIMIT, &mut line).unwrap();
        assert_eq!(read, too_long(LIMIT as u64 + 1, false));
    }

    #[test]
    fn an_interrupted_read_is_repeated_and_another_error_returned() {
        struct Failing(Vec<io::ErrorKind>);
        impl Read for Failing {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                match self.0.pop() {
                    Some(kind) => Err(kind.into()),
                    None => b"a\n".as_slice().read(into),
                }
            }
        }
        let mut line = Vec::new();
        let kinds = vec![io::ErrorKind::TimedOut, io::ErrorKind::Interrupted];
        let mut input = BufReader::new(Failing(kinds));
        let error = read_line(&mut input, LIMIT, &mut line).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let read = read_line(&mut input, LIMIT, &mut line).unwrap();
        assert_eq!((read, line.as_slice()), (LineRead::Line, b"a".as_slice()));
    }
}
