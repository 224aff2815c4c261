//! Messages that came over HTTP, read as lines.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use colibri_wire::Json;

/// The messages that wait to be read, at most.
const WAITING: usize = 4;

/// A queue of messages that is read as one message a line.
pub(super) fn lines() -> (mpsc::Sender<Bytes>, OutboundLines) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let lines = OutboundLines {
        receiver,
        current: Bytes::new(),
        ends: false,
    };
    (sender, lines)
}

/// Messages, one a line. The stream ends when nobody can queue any more.
pub struct OutboundLines {
    receiver: mpsc::Receiver<Bytes>,
    current: Bytes,
    /// The end of the current line is still to be read.
    ends: bool,
}

impl AsyncRead for OutboundLines {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begun = into.filled().len();
        loop {
            let length = self.current.len().min(into.remaining());
            into.put_slice(&self.current[..length]);
            self.current.advance(length);
            if into.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if std::mem::take(&mut self.ends) {
                into.put_slice(b"\n");
                continue;
            }
            match self.receiver.poll_recv(context) {
                Poll::Pending if into.filled().len() > begun => return Poll::Ready(Ok(())),
                next => match ready!(next) {
                    Some(message) => {
                        self.current = message;
                        self.ends = true;
                    }
                    None => return Poll::Ready(Ok(())),
                },
            }
        }
    }
}

/// A message as one line. Over HTTP it may have line ends between its tokens, in place of which
/// spaces mean the same. `None`: it is no JSON, and one cannot know what line ends in it mean.
pub(super) fn as_line(message: Bytes) -> Option<Bytes> {
    let message = match message.last() {
        Some(b'\n') => message.slice(..message.len() - 1),
        _ => message,
    };
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return Some(message);
    }
    Json::parse(&message).ok()?;
    let line = message.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        byte => *byte,
    });
    Some(line.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn messages_are_read_one_a_line() {
        for size in [1, 2, 3, 5, 100] {
            let (sender, mut lines) = lines();
            for message in ["{}", "[1]", "\"long\""] {
                sender
                    .send(Bytes::from_static(message.as_bytes()))
                    .await
                    .unwrap();
            }
            drop(sender);
            let (mut read, mut part) = (Vec::new(), vec![0; size]);
            loop {
                match lines.read(&mut part).await.unwrap() {
                    0 => break,
                    count => read.extend_from_slice(&part[..count]),
                }
            }
            assert_eq!(read, b"{}\n[1]\n\"long\"\n", "{size}");
        }
    }

    #[test]
    fn line_ends_between_tokens_become_spaces() {
        let line = |text: &'static str| as_line(Bytes::from_static(text.as_bytes()));
        assert_eq!(line("{\"a\":1}\n").unwrap(), "{\"a\":1}");
        assert_eq!(
            line("{\r\n  \"a\": 1e400\n}\n").unwrap(),
            "{    \"a\": 1e400 }"
        );
        assert_eq!(line("{\"a\":\"x\ny\"}"), None);
    }
}
