//! Reading frames: one message a line.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use colibri_wire::salvage::Salvage;

/// Reads with more lines than this are cut from one buffer, instead of being copied line by line.
const FEW_LINES: usize = 4;

/// A peer that says much lets other tasks of its thread go first after so many frames, or so many
/// bytes.
const BURST: usize = 256;

thread_local! {
    /// The buffer for reading: one for all peers of a thread, so that an idle peer costs none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; LARGEST_READ]);
}

/// The number of bytes read at once while a peer sends little; it doubles up to [`LARGEST_READ`]
/// for one that sends much.
const SMALLEST_READ: usize = 4 * 1024;
const LARGEST_READ: usize = 256 * 1024;

/// An item of [`FrameReader::pop`].
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line, without its end.
    Line(Bytes),
    /// A line over the limit. It was passed over without being kept.
    TooLong {
        /// Its length in bytes.
        length: u64,
        /// The JSON-RPC id it had, where one could be read.
        id: Option<String>,
        /// True if it named a method: a request rather than an answer.
        request: bool,
    },
    /// A line over four times the limit that has not ended: the peer will not stop.
    Endless {
        /// The number of its bytes that arrived.
        length: u64,
    },
}

/// Splits a byte stream into lines. Lines over the limit are passed over, not kept.
#[derive(Debug)]
pub struct FrameReader<R> {
    io: R,
    /// Lines of the last read that were few.
    lines: VecDeque<Bytes>,
    buffer: BytesMut,
    /// The offset up to which `buffer` was searched for a line end.
    searched: usize,
    read_size: usize,
    limit: usize,
    overlong: Option<Overlong>,
    eof: bool,
    /// Frames taken since others went first.
    frames: usize,
    /// Bytes read since then.
    read: usize,
}

#[derive(Debug, Default)]
struct Overlong {
    length: u64,
    salvage: Salvage,
    /// [`Frame::Endless`] was yielded: whoever goes on reading is not told at every look.
    told: bool,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader of lines of at most `limit` bytes.
    pub fn new(io: R, limit: usize) -> FrameReader<R> {
        FrameReader {
            io,
            lines: VecDeque::new(),
            buffer: BytesMut::new(),
            searched: 0,
            read_size: SMALLEST_READ,
            limit,
            overlong: None,
            eof: false,
            frames: 0,
            read: 0,
        }
    }

    /// The reader below.
    pub fn get_ref(&self) -> &R {
        &self.io
    }

    /// The bytes that the reader keeps for a line that has not ended, with room for the next read.
    pub fn kept(&self) -> usize {
        if self.buffer.is_empty() {
            0
        } else {
            self.buffer
                .capacity()
                .max(self.buffer.len() + self.read_size)
        }
    }

    /// True if a line that has not ended is longer than one read.
    pub fn is_long(&self) -> bool {
        self.buffer.len() > LARGEST_READ
    }

    /// True if a line has come whose reading may take long.
    pub fn has_much(&self) -> bool {
        const MUCH: usize = 1024 * 1024;
        let in_buffer = || {
            self.buffer.len() >= MUCH
                && memchr::memchr(b'\n', &self.buffer[self.searched..]).is_some()
        };
        self.lines.iter().any(|line| line.len() >= MUCH) || in_buffer()
    }

    /// Reads more, if all was taken that was read; `false` at the end of the stream. Frames are
    /// then taken with [`FrameReader::pop`] until it yields none. Cancel-safe.
    ///
    /// # Errors
    /// What the system says.
    pub async fn fill(&mut self) -> std::io::Result<bool> {
        if self.frames >= BURST || self.read >= LARGEST_READ {
            tokio::task::yield_now().await;
            self.read = 0;
            if std::mem::take(&mut self.frames) >= BURST {
                return Ok(true);
            }
        }
        if self.eof {
            return Ok(false);
        }
        let read = poll_fn(|context| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut into = ReadBuf::new(&mut scratch[..self.read_size]);
                std::task::ready!(Pin::new(&mut self.io).poll_read(context, &mut into))?;
                Poll::Ready(Ok::<_, std::io::Error>(self.take(into.filled())))
            })
        });
        let read = read.await?;
        if read >= self.read_size {
            self.read_size = (self.read_size * 2).min(LARGEST_READ);
        } else if read < self.read_size / 4 {
            self.read_size = (self.read_size / 2).max(SMALLEST_READ);
        }
        self.read += read;
        self.eof = read == 0;
        Ok(!self.eof)
    }

    /// Takes over what was read.
    fn take(&mut self, read: &[u8]) -> usize {
        let mut rest = self.end_of_long(read);
        if self.buffer.is_empty() && self.overlong.is_none() {
            rest = self.few_lines(rest);
        }
        self.keep(rest);
        read.len()
    }

    /// Keeps bytes until their line ends.
    fn keep(&mut self, rest: &[u8]) {
        let (length, most) = (self.buffer.len(), self.limit + LARGEST_READ);
        if length + rest.len() > self.buffer.capacity() && length > most / 4 && length < self.limit
        {
            // For a line that may end within the limit never much more than the limit.
            let mut whole = BytesMut::with_capacity(most.min(2 * length).max(length + rest.len()));
            whole.extend_from_slice(&self.buffer);
            self.buffer = whole;
        }
        self.buffer.extend_from_slice(rest);
    }

    /// Ends a long line with its last piece, if that was read; tells what is left. The line is
    /// kept, perhaps for long, without the beginning of the next in its memory.
    fn end_of_long<'r>(&mut self, read: &'r [u8]) -> &'r [u8] {
        if !self.is_long() || self.searched < self.buffer.len() || self.overlong.is_some() {
            return read;
        }
        let ends_in_time = |end: &usize| self.buffer.len() + end <= self.limit;
        let Some(end) = memchr::memchr(b'\n', read).filter(ends_in_time) else {
            return read;
        };
        self.keep(&read[..end]);
        let line = std::mem::take(&mut self.buffer);
        self.searched = 0;
        if let Some(Frame::Line(line)) = self.line(line) {
            self.lines.push_back(line);
        }
        &read[end + 1..]
    }

    /// Takes the lines out of what was read, if they are few; tells what is left.
    fn few_lines<'r>(&mut self, read: &'r [u8]) -> &'r [u8] {
        if memchr::memchr_iter(b'\n', read).nth(FEW_LINES).is_some() {
            return read;
        }
        let mut rest = read;
        while let Some(end) = memchr::memchr(b'\n', rest).filter(|end| *end <= self.limit) {
            self.lines
                .extend(content(&rest[..end]).map(Bytes::copy_from_slice));
            rest = &rest[end + 1..];
        }
        rest
    }

    /// The next whole frame of what was read, as long as it is this peer's turn. At the end of the
    /// stream a last line without its end counts as one.
    pub fn pop(&mut self) -> Option<Frame> {
        if self.frames >= BURST {
            return None;
        }
        let frame = self.next();
        self.frames += usize::from(frame.is_some());
        frame
    }

    fn next(&mut self) -> Option<Frame> {
        if let Some(line) = self.lines.pop_front() {
            return Some(Frame::Line(line));
        }
        loop {
            let end = memchr::memchr(b'\n', &self.buffer[self.searched..])
                .map(|found| self.searched + found);
            match (end, &mut self.overlong) {
                (Some(end), None) if end <= self.limit => {
                    let mut line = self.buffer.split_to(end + 1);
                    self.searched = 0;
                    line.truncate(end);
                    if let Some(frame) = self.line(line) {
                        return Some(frame);
                    }
                }
                (Some(end), overlong) => {
                    let mut whole = overlong.take().unwrap_or_default();
                    whole.salvage.feed(&self.buffer[..end]);
                    whole.length += end as u64;
                    self.buffer.advance(end + 1);
                    self.searched = 0;
                    return Some(whole.finish());
                }
                (None, None) if self.buffer.len() <= self.limit => {
                    self.searched = self.buffer.len();
                    if !self.eof || self.buffer.is_empty() {
                        self.release();
                        return None;
                    }
                    let line = self.buffer.split();
                    self.searched = 0;
                    if let Some(frame) = self.line(line) {
                        return Some(frame);
                    }
                }
                (None, overlong) => {
                    let part = overlong.get_or_insert_default();
                    part.salvage.feed(&self.buffer);
                    part.length += self.buffer.len() as u64;
                    let length = part.length;
                    let tell = length > 4 * self.limit as u64 && !part.told;
                    part.told |= tell;
                    self.buffer = BytesMut::new();
                    self.searched = 0;
                    if self.eof {
                        return self.overlong.take().map(Overlong::finish);
                    }
                    return tell.then_some(Frame::Endless { length });
                }
            }
        }
    }

    /// A line as a frame; none for an empty one, which says nothing.
    fn line(&self, mut line: BytesMut) -> Option<Frame> {
        let length = content(&line)?.len();
        line.truncate(length);
        Some(Frame::Line(line.freeze()))
    }

    /// Gives the memory of an idle reader back.
    fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            self.searched = 0;
        }
    }
}

/// A line without a carriage return at its end; none for one that says nothing.
fn content(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let says_nothing = line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    (!says_nothing).then_some(line)
}

impl Overlong {
    fn finish(self) -> Frame {
        Frame::TooLong {
            length: self.length,
            id: self.salvage.id().map(str::to_owned),
            request: self.salvage.names_a_method(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_long_line_shares_no_memory_with_the_next() {
        let (mut near, far) = tokio::io::duplex(4 * LARGEST_READ);
        let mut reader = FrameReader::new(far, 8 * LARGEST_READ);
        let long = vec![b'x'; 3 * LARGEST_READ + 1];
        near.write_all(&long).await.unwrap();
        while reader.kept() < long.len() {
            reader.fill().await.unwrap();
            assert_eq!(reader.pop(), None);
        }
        near.write_all(b"x\ny\nz").await.unwrap();
        reader.fill().await.unwrap();
        let Some(Frame::Line(line)) = reader.pop() else {
            panic!("it has ended");
        };
        assert_eq!(line.len(), long.len() + 1);
        assert!(line.is_unique());
        assert_eq!(reader.pop(), Some(Frame::Line(Bytes::from_static(b"y"))));
        assert_eq!(reader.pop(), None);
        drop(near);
        while reader.fill().await.unwrap() {}
        assert_eq!(reader.pop(), Some(Frame::Line(Bytes::from_static(b"z"))));
    }

    #[tokio::test]
    async fn a_peer_that_says_much_lets_others_go_first() {
        let lines = b"x\n".repeat(10 * BURST);
        let mut reader = FrameReader::new(&lines[..], 1 << 20);
        let others = std::rc::Rc::new(std::cell::Cell::new(0));
        let local = tokio::task::LocalSet::new();
        let count = others.clone();
        local.spawn_local(async move {
            loop {
                count.set(count.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let read = async {
            let mut lines = 0;
            while reader.fill().await.unwrap() {
                let before = lines;
                lines += std::iter::from_fn(|| reader.pop()).count();
                assert!(lines - before <= BURST);
            }
            lines
        };
        assert_eq!(local.run_until(read).await, 10 * BURST);
        assert!(others.get() >= 9, "others had {} turns", others.get());
    }

    /// All frames of a stream that arrives in these pieces.
    fn frames(pieces: Vec<Vec<u8>>, limit: usize) -> Vec<Frame> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut near, far) = tokio::io::duplex(64);
            let write = async move {
                for piece in pieces {
                    if near.write_all(&piece).await.is_err() {
                        return;
                    }
                }
            };
            let read = async move {
                let mut reader = FrameReader::new(far, limit);
                let mut frames = Vec::new();
                loop {
                    let more = reader.fill().await.unwrap();
                    while let Some(frame) = reader.pop() {
                        let endless = matches!(frame, Frame::Endless { .. });
                        frames.push(frame);
                        if endless {
                            return frames;
                        }
                    }
                    if !more {
                        return frames;
                    }
                }
            };
            tokio::join!(write, read).1
        })
    }

    fn line(text: &str) -> Frame {
        Frame::Line(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn splits_lines_and_keeps_a_last_one_without_end() {
        let got = frames(vec![b"a\nb".to_vec(), b"c\r\n\n  \nlast".to_vec()], 100);
        assert_eq!(got, [line("a"), line("bc"), line("last")]);
    }

    #[test]
    fn passes_over_a_long_line_and_reads_its_id() {
        let long = format!(
            "{{\"method\":\"x\",\"params\":\"{}\",\"id\":9}}",
            "y".repeat(150)
        );
        let length = long.len() as u64;
        let got = frames(vec![format!("{long}\nnext\n").into_bytes()], 64);
        assert_eq!(
            got,
            [
                Frame::TooLong {
                    length,
                    id: Some("9".to_owned()),
                    request: true
                },
                line("next")
            ]
        );
    }

    #[test]
    fn gives_up_on_an_endless_line() {
        let got = frames(vec![vec![b'x'; 1000]], 64);
        assert!(
            matches!(got[..], [Frame::Endless { length }] if length > 256),
            "{got:?}"
        );
    }

    #[tokio::test]
    async fn a_line_that_does_not_end_is_told_of_once() {
        let (mut near, far) = tokio::io::duplex(1024);
        let mut reader = FrameReader::new(far, 64);
        near.write_all(&[b'x'; 1000]).await.unwrap();
        let mut told = 0;
        for _ in 0..3 {
            reader.fill().await.unwrap();
            while let Some(frame) = reader.pop() {
                assert!(matches!(frame, Frame::Endless { .. }), "{frame:?}");
                told += 1;
            }
            near.write_all(&[b'x'; 1000]).await.unwrap();
        }
        assert_eq!(told, 1);
    }

    #[test]
    fn a_line_of_exactly_the_limit_passes() {
        assert_eq!(frames(vec![b"12345678\n".to_vec()], 8), [line("12345678")]);
        assert!(matches!(
            frames(vec![b"123456789\n".to_vec()], 8)[..],
            [Frame::TooLong { length: 9, .. }]
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_do_not_matter(lines in proptest::collection::vec("[a-z]{1,40}", 0..12), sizes in proptest::collection::vec(1usize..50, 1..20)) {
            let stream = lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
            let mut pieces = Vec::new();
            let mut rest = &stream[..];
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break }
                let (piece, tail) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece.to_vec());
                rest = tail;
            }
            let wanted: Vec<Frame> = lines.iter().map(|text| line(text)).collect();
            prop_assert_eq!(frames(pieces, 40), wanted);
        }
    }
}
