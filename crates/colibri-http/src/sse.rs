//! Server-sent events (HTML Living Standard, "Server-sent events"), read from parts as they come.

use std::collections::VecDeque;
use std::time::Duration;

use memchr::memchr2;

/// The most bytes of the id of an event; a longer one is none.
const MAX_ID: usize = 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type; empty is `message`.
    pub name: String,
    /// Its data, lines joined with a line feed.
    pub data: Vec<u8>,
}

/// An event, or a line of one, is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Reads the events of one stream.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    line: Vec<u8>,
    /// The last line ended with a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    is_first: bool,
    name: String,
    data: Vec<u8>,
    has_data: bool,
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Parser {
    /// A reader of events of at most `limit` bytes.
    pub fn new(limit: usize) -> Parser {
        Parser {
            limit,
            line: Vec::new(),
            after_return: false,
            is_first: true,
            name: String::new(),
            data: Vec::new(),
            has_data: false,
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Reads a part of the stream: the events that it ends are added to `events`.
    ///
    /// # Errors
    /// What the stream sends is over the limit; it is of no use any more.
    pub fn feed(
        &mut self,
        mut part: &[u8],
        events: &mut VecDeque<SseEvent>,
    ) -> Result<(), TooLong> {
        while !part.is_empty() {
            if std::mem::take(&mut self.after_return) && part[0] == b'\n' {
                part = &part[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', part) else {
                return self.keep(part);
            };
            self.after_return = part[end] == b'\r';
            if self.line.is_empty() {
                self.line(&part[..end], events)?;
            } else {
                self.keep(&part[..end])?;
                let line = std::mem::take(&mut self.line);
                self.line(&line, events)?;
            }
            part = &part[end + 1..];
        }
        Ok(())
    }

    /// The number of bytes held of an incomplete event.
    pub fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// The id of the last event that had one: where a stream is resumed.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The time before the stream is resumed, if the server said one.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The stream goes on in another one, from its last whole event.
    pub fn resume(&mut self) {
        *self = Parser {
            last_id: self.last_id.take(),
            retry: self.retry,
            ..Parser::new(self.limit)
        };
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + self.data.len() + part.len() > self.limit {
            return Err(TooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn line(&mut self, line: &[u8], events: &mut VecDeque<SseEvent>) -> Result<(), TooLong> {
        let line = match std::mem::take(&mut self.is_first) {
            true => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            if let Some(id) = self.id.take() {
                self.last_id = Some(id);
            }
            let (name, data) = (
                std::mem::take(&mut self.name),
                std::mem::take(&mut self.data),
            );
            if std::mem::take(&mut self.has_data) {
                events.push_back(SseEvent { name, data });
            }
            return Ok(());
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => {
                if self.data.len() + value.len() + 1 > self.limit {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = text(),
            // Each request that resumes the stream would carry it.
            b"id" if !value.contains(&0) && value.len() <= MAX_ID => self.id = Some(text()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry = text().parse().ok().map(Duration::from_millis);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(parts: &[&[u8]], limit: usize) -> (Result<(), TooLong>, Vec<(String, String)>, Parser) {
        let (mut parser, mut events) = (Parser::new(limit), VecDeque::new());
        let result = parts
            .iter()
            .try_for_each(|part| parser.feed(part, &mut events));
        let events = events.into_iter();
        let events = events.map(|event| (event.name, String::from_utf8(event.data).unwrap()));
        (result, events.collect(), parser)
    }

    const STREAM: &[u8] =
        b"\xef\xbb\xbf: hello\r\nid: 1\r\ndata:\r\n\r\nevent: endpoint\rdata: /x\r\rdata: a\ndata:b\ndata\n\n\
        id: 2\nretry: 250\n\ndata: {\"x\": \"\xc3\xa4\"}\nid: 3\nunknown: y\n\nid: 4\ndata: not over";

    #[test]
    fn reads_what_the_standard_says() {
        let (result, events, parser) = read(&[STREAM], 1000);
        let expected = [
            ("", ""),
            ("endpoint", "/x"),
            ("", "a\nb\n"),
            ("", "{\"x\": \"ä\"}"),
        ];
        assert_eq!(result, Ok(()));
        assert_eq!(
            events,
            expected.map(|(name, data)| (name.to_owned(), data.to_owned()))
        );
        assert_eq!(
            (parser.last_id(), parser.retry()),
            (Some("3"), Some(Duration::from_millis(250)))
        );
    }

    #[test]
    fn what_is_too_long_is_refused_however_it_comes() {
        assert_eq!(read(&[b"data: 12345678\n\n"], 9).0, Ok(()));
        assert_eq!(read(&[b"data: 123456789\n\n"], 9).0, Err(TooLong));
        assert_eq!(read(&[b"data: 1234\ndata: 5678\n\n"], 8).0, Err(TooLong));
        assert_eq!(read(&[b": 1234", b"56789"], 10).0, Err(TooLong));
        assert_eq!(read(&[&b"data: 1234\n\n"[..]; 9], 10).0, Ok(()));
    }

    #[test]
    fn an_id_that_no_header_should_hold_is_none() {
        let long = format!(
            "id: 1\ndata: a\n\nid: {}\ndata: b\n\n",
            "x".repeat(MAX_ID + 1)
        );
        let (result, events, parser) = read(&[long.as_bytes()], 1 << 16);
        assert_eq!(
            (result, events.len(), parser.last_id()),
            (Ok(()), 2, Some("1"))
        );
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_stream_is_cut(cuts in proptest::collection::vec(0..STREAM.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &STREAM[cut[0]..cut[1]]).collect();
            prop_assert_eq!(read(&parts, 1000).1, read(&[STREAM], 1000).1);
        }
    }
}
