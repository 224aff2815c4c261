//! Many connections with one call each, by lines and by HTTP.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::support::{INITIALIZE, connect};

/// How many connections there are.
pub(crate) const CONNECTIONS: usize = 64;

/// How calls are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Lines,
    /// Modern POSTs, each connection kept alive.
    Http,
}

impl Framing {
    /// A call of the echo server's tool.
    fn call(self) -> String {
        let text = "x".repeat(64);
        let params = format!("\"name\":\"echo__echo\",\"arguments\":{{\"text\":\"{text}\"}}");
        let line = |params: &str| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{{params}}}}}"
            )
        };
        match self {
            Framing::Lines => line(&params) + "\n",
            Framing::Http => {
                let meta = "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
                            \"io.modelcontextprotocol/clientCapabilities\":{}}";
                let body = line(&format!("{params},{meta}"));
                format!(
                    "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                     Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
                     Mcp-Method: tools/call\r\nMcp-Name: echo__echo\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
        }
    }

    /// True if these bytes are a whole answer, with what was said in it.
    fn is_whole(self, bytes: &[u8]) -> bool {
        let text = std::str::from_utf8(bytes).expect("text");
        let answer = match self {
            Framing::Lines => text.ends_with('\n').then_some(text),
            Framing::Http => text.split_once("\r\n\r\n").and_then(|(head, body)| {
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                length
                    .is_some_and(|length| body.len().to_string() == length)
                    .then_some(body)
            }),
        };
        assert!(
            answer.is_none_or(|answer| answer.contains("xxx\"}]")),
            "{text}"
        );
        answer.is_some()
    }
}

/// Connections with one call each.
pub(crate) struct Crowd {
    framing: Framing,
    call: String,
    connections: Vec<(UnixStream, Vec<u8>)>,
}

impl Crowd {
    pub(crate) fn open(socket: &Path, framing: Framing) -> Crowd {
        let connections = (0..CONNECTIONS).map(|_| {
            let mut stream = connect(socket);
            if framing == Framing::Lines {
                stream.write_all(INITIALIZE.as_bytes()).expect("write");
                let mut answer = [0; 4096];
                assert!(stream.read(&mut answer).expect("read") > 0);
            }
            (stream, Vec::new())
        });
        Crowd {
            framing,
            call: framing.call(),
            connections: connections.collect(),
        }
    }

    /// Has every connection call again as soon as it is answered, while `goes_on` of the calls that
    /// were made so far; then waits for the answers. How many there were.
    pub(crate) fn run(&mut self, goes_on: impl Fn(usize) -> bool) -> usize {
        let (mut buffer, mut waiting) = (vec![0; 64 * 1024], CONNECTIONS);
        let mut made = CONNECTIONS;
        for (stream, _) in &mut self.connections {
            stream.write_all(self.call.as_bytes()).expect("write");
        }
        while waiting > 0 {
            let mut looks: Vec<_> = (self.connections.iter())
                .map(|(stream, _)| PollFd::new(stream.as_fd(), PollFlags::POLLIN))
                .collect();
            poll(&mut looks, PollTimeout::from(30_000_u16)).expect("poll");
            let ready: Vec<usize> = (0..looks.len())
                .filter(|index| looks[*index].any().unwrap_or(false))
                .collect();
            assert!(!ready.is_empty(), "no answer within 30 s");
            for index in ready {
                let (stream, got) = &mut self.connections[index];
                let read = stream.read(&mut buffer).expect("read");
                assert!(read > 0, "a connection ended");
                got.extend_from_slice(&buffer[..read]);
                if !self.framing.is_whole(got) {
                    continue;
                }
                got.clear();
                if goes_on(made) {
                    made += 1;
                    stream.write_all(self.call.as_bytes()).expect("write");
                } else {
                    waiting -= 1;
                }
            }
        }
        made
    }
}
