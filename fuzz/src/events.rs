//! Server-sent events: it does not matter in which pieces a stream comes, no event is over the
//! limit, and a reference reader that splits the whole text by lines finds the same data.

use std::collections::VecDeque;

use colibri_http::sse::{Parser, SseEvent};

const LIMIT: usize = 512;

/// What the standard says, on the whole text at once.
fn plain(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let (mut lines, mut line, mut rest) = (Vec::new(), Vec::new(), text);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'\r' => {
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
                lines.push(std::mem::take(&mut line));
            }
            b'\n' => lines.push(std::mem::take(&mut line)),
            byte => line.push(*byte),
        }
    }
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), None::<Vec<u8>>);
    for line in lines {
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if line.is_empty() {
            let name = std::mem::take(&mut name);
            events.extend(data.take().map(|data| (name, data)));
        } else if field == b"event" {
            name = String::from_utf8_lossy(value).into_owned();
        } else if field == b"data" {
            data = Some(match data.take() {
                Some(data) => [&data[..], b"\n", value].concat(),
                None => value.to_vec(),
            });
        }
    }
    events
}

fn read(parts: &[&[u8]]) -> (bool, Vec<(String, Vec<u8>)>) {
    let (mut parser, mut events) = (Parser::new(LIMIT), VecDeque::new());
    let whole = parts
        .iter()
        .all(|part| parser.feed(part, &mut events).is_ok());
    let pair = |event: SseEvent| (event.name, event.data);
    (whole, events.into_iter().map(pair).collect())
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((cut, stream)) = data.split_first() else {
        return;
    };
    let (whole, events) = read(&[stream]);
    assert!(events.iter().all(|(_, data)| data.len() <= LIMIT));
    let bytes: Vec<&[u8]> = stream.chunks(1 + usize::from(*cut) % 16).collect();
    let (pieces_whole, pieces) = read(&bytes);
    if whole && pieces_whole {
        assert_eq!(events, pieces);
        assert_eq!(events, plain(stream));
    }
}
