//! The frame reader, fed in pieces of any size, against a splitter that has the whole stream at
//! once.
//!
//! Input: the limit (2 bytes), a seed for the pieces (2 bytes), the stream.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use colibri_peer::{Frame, FrameReader};
use colibri_wire::salvage::Salvage;
use tokio::io::{AsyncRead, ReadBuf};

/// Hands a stream out in pieces whose sizes a seed decides.
struct Pieces<'a> {
    stream: &'a [u8],
    seed: u32,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.seed = self
            .seed
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let wanted = match self.seed >> 30 {
            0 => 1,
            1 => 1 + (self.seed >> 8) as usize % 16,
            2 => 1 + (self.seed >> 8) as usize % 1000,
            _ => usize::MAX,
        };
        let (piece, rest) = self
            .stream
            .split_at(wanted.min(buffer.remaining()).min(self.stream.len()));
        buffer.put_slice(piece);
        self.stream = rest;
        Poll::Ready(Ok(()))
    }
}

/// A line as the whole stream has it.
struct Naive<'a> {
    raw: &'a [u8],
}

impl Naive<'_> {
    fn frame(&self, limit: usize) -> Option<Frame> {
        if self.raw.len() > limit {
            let mut salvage = Salvage::default();
            salvage.feed(self.raw);
            return Some(Frame::TooLong {
                length: self.raw.len() as u64,
                id: salvage.id().map(str::to_owned),
                request: salvage.names_a_method(),
            });
        }
        let line = self.raw.strip_suffix(b"\r").unwrap_or(self.raw);
        let blank = line.iter().all(|byte| b" \t\r".contains(byte));
        (!blank).then(|| Frame::Line(line.to_vec().into()))
    }
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((head, stream)) = data.split_first_chunk::<4>() else {
        return;
    };
    let limit = 1 + usize::from(u16::from_le_bytes([head[0], head[1]])) % 2000;
    let seed = u32::from(u16::from_le_bytes([head[2], head[3]]));
    let wanted: Vec<Naive<'_>> = stream
        .split(|byte| *byte == b'\n')
        .map(|raw| Naive { raw })
        .collect();
    let mut wanted = wanted.iter().filter(|line| line.frame(limit).is_some());
    let mut reader = FrameReader::new(Pieces { stream, seed }, limit);
    loop {
        let filled = {
            let mut fill = pin!(reader.fill());
            fill.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let Poll::Ready(Ok(more)) = filled else {
            panic!("reading from memory waits or fails");
        };
        while let Some(frame) = reader.pop() {
            let line = wanted.next().expect("a frame that is not in the stream");
            if let Frame::Endless { length } = frame {
                assert!(length > 4 * limit as u64 && length <= line.raw.len() as u64);
                // Whoever sends such a line is let go.
                return;
            }
            assert_eq!(Some(frame), line.frame(limit));
        }
        if !more {
            break;
        }
    }
    assert!(wanted.next().is_none(), "a line was lost");
}
