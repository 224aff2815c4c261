//! The head of a request, looked at before hyper reads it: what two readers could take for two
//! different requests is refused here (RFC 9112, sections 2.2, 3, 5 and 6.3).

use super::refusal::HttpRefusal;
use hyper::StatusCode;

/// The most bytes of a head.
pub const MAX_HEAD: usize = 32 * 1024;
/// The most header fields of a head.
const MAX_FIELDS: usize = 100;

/// Fields of which a second one says something else to another reader.
const ONCE: [&str; 12] = [
    "host",
    "origin",
    "content-length",
    "transfer-encoding",
    "content-type",
    "expect",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "upgrade",
];

/// The framing of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// So many bytes.
    Known(u64),
    /// In chunks.
    Chunked,
}

/// The end of the head, if all of it is there: the offset after its empty line.
pub fn end(bytes: &[u8], searched: usize) -> Option<usize> {
    // The end of one line and the empty line may have come in two reads.
    let from = searched.saturating_sub(3);
    memchr::memmem::find(&bytes[from..], b"\r\n\r\n").map(|at| from + at + 4)
}

/// Reads a whole head, with its empty line: how long the body is.
///
/// # Errors
/// Why it is refused.
pub fn read(head: &[u8]) -> Result<BodyLength, HttpRefusal> {
    let text = head.strip_suffix(b"\r\n\r\n").unwrap_or(head);
    let mut lines = HeadLines(text);
    let request = lines.next().unwrap_or_default();
    let old = read_request_line(request)?;
    let mut seen = [false; ONCE.len()];
    let (mut count, mut length, mut chunked) = (0, None, false);
    for line in lines {
        count += 1;
        if count > MAX_FIELDS {
            return Err(HttpRefusal::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                format!("the request has over {MAX_FIELDS} header fields"),
            ));
        }
        let (name, value) = read_field(line)?;
        let Some(which) = ONCE
            .iter()
            .position(|once| name.eq_ignore_ascii_case(once.as_bytes()))
        else {
            continue;
        };
        if std::mem::replace(&mut seen[which], true) {
            return Err(bad(format!("the header {} is there twice", ONCE[which])));
        }
        match ONCE[which] {
            "content-length" => length = Some(read_length(value)?),
            "transfer-encoding" if !value.eq_ignore_ascii_case(b"chunked") => {
                return Err(bad("the only transfer encoding that is read is chunked"));
            }
            "transfer-encoding" => chunked = true,
            "expect" if !value.eq_ignore_ascii_case(b"100-continue") => {
                return Err(HttpRefusal::new(
                    StatusCode::EXPECTATION_FAILED,
                    "the only expectation that is met is 100-continue",
                ));
            }
            _ => {}
        }
    }
    if !seen[0] {
        return Err(bad("the request has no Host header"));
    }
    match (length, chunked) {
        (Some(_), true) => Err(bad(
            "the request has a Content-Length and a Transfer-Encoding: where its body ends is not certain",
        )),
        (None, true) if old => Err(bad("HTTP/1.0 has no chunked bodies: send a Content-Length")),
        (None, true) => Ok(BodyLength::Chunked),
        (length, false) => Ok(BodyLength::Known(length.unwrap_or(0))),
    }
}

/// Reads `METHOD target HTTP/1.x`; tells whether it is HTTP/1.0.
fn read_request_line(line: &[u8]) -> Result<bool, HttpRefusal> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_target =
        |target: &[u8]| !target.is_empty() && target.iter().all(|byte| matches!(byte, 0x21..=0x7e));
    if !method.is_some_and(is_token) || !target.is_some_and(is_target) || words.next().is_some() {
        return Err(bad(
            "the first line is no request: METHOD, path and HTTP/1.1, with one space between them",
        ));
    }
    match version {
        Some(b"HTTP/1.1") => Ok(false),
        Some(b"HTTP/1.0") => Ok(true),
        _ => Err(HttpRefusal::new(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "the only version of HTTP here is 1.1",
        )),
    }
}

/// Reads `name: value`, without the space around the value.
fn read_field(line: &[u8]) -> Result<(&[u8], &[u8]), HttpRefusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(bad(
            "a header goes on in the next line, which is not read any more",
        ));
    }
    let colon = memchr::memchr(b':', line).ok_or_else(|| bad("a header line has no colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if !is_token(name) {
        return Err(bad("the name of a header has a character that no name has"));
    }
    if value
        .iter()
        .any(|byte| matches!(byte, 0..=8 | 10..=31 | 127))
    {
        return Err(bad("the value of a header has a control character"));
    }
    Ok((name, value.trim_ascii()))
}

fn read_length(value: &[u8]) -> Result<u64, HttpRefusal> {
    let digits = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value).ok().filter(|_| digits);
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| bad("the Content-Length is no number of bytes"))
}

/// RFC 9110, section 5.6.2.
fn is_token(name: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_part)
}

fn bad(message: impl Into<String>) -> HttpRefusal {
    HttpRefusal::new(StatusCode::BAD_REQUEST, message)
}

/// Lines that end with CR and LF. One that ends otherwise has a control character in it, which is
/// refused.
struct HeadLines<'a>(&'a [u8]);

impl<'a> Iterator for HeadLines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let (line, rest) = match memchr::memmem::find(self.0, b"\r\n") {
            Some(end) => (&self.0[..end], &self.0[end + 2..]),
            None => (self.0, &[][..]),
        };
        self.0 = rest;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> Result<BodyLength, u16> {
        read(head.as_bytes()).map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn the_body_has_one_length() {
        let post = |fields: &str| {
            status(&format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
            ))
        };
        for (fields, expected) in [
            ("", Ok(BodyLength::Known(0))),
            ("Content-Length: 12\r\n", Ok(BodyLength::Known(12))),
            ("Transfer-Encoding: Chunked\r\n", Ok(BodyLength::Chunked)),
            ("content-length:\t7 \r\n", Ok(BodyLength::Known(7))),
            (
                "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n",
                Err(400),
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 12\r\n",
                Err(400),
            ),
            ("Content-Length: 12\r\nContent-Length: 12\r\n", Err(400)),
            ("Content-Length: 12, 12\r\n", Err(400)),
            ("Content-Length: +12\r\n", Err(400)),
            ("Content-Length: 0x12\r\n", Err(400)),
            ("Content-Length: \r\n", Err(400)),
            ("Content-Length: 99999999999999999999\r\n", Err(400)),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(400)),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                Err(400),
            ),
            ("Transfer-Encoding : chunked\r\n", Err(400)),
            ("Transfer-Encoding:\u{b}chunked\r\n", Err(400)),
            (" Transfer-Encoding: chunked\r\n", Err(400)),
            ("X: a\r\n b\r\n", Err(400)),
            ("X: a\rTransfer-Encoding: chunked\r\n", Err(400)),
            ("X: a\nTransfer-Encoding: chunked\r\n", Err(400)),
            ("X: a\0b\r\n", Err(400)),
            ("X\r\n", Err(400)),
            (": a\r\n", Err(400)),
            ("Host: localhost\r\n", Err(400)),
            ("Mcp-Session-Id: a\r\nMCP-SESSION-ID: b\r\n", Err(400)),
            ("Expect: 100-continue\r\n", Ok(BodyLength::Known(0))),
            ("Expect: a miracle\r\n", Err(417)),
        ] {
            assert_eq!(post(fields), expected, "{fields:?}");
        }
        assert_eq!(post(&"X: y\r\n".repeat(100)), Err(431));
        assert_eq!(post(&"X: y\r\n".repeat(99)), Ok(BodyLength::Known(0)));
    }

    #[test]
    fn the_first_line_is_a_request() {
        for (line, expected) in [
            ("GET /mcp HTTP/1.1", Ok(BodyLength::Known(0))),
            ("GET /mcp HTTP/1.0", Ok(BodyLength::Known(0))),
            (
                "GET http://localhost/mcp HTTP/1.1",
                Ok(BodyLength::Known(0)),
            ),
            ("GET  /mcp HTTP/1.1", Err(400)),
            ("GET /mcp HTTP/1.1 ", Err(400)),
            ("GET /m cp HTTP/1.1", Err(400)),
            ("GET\t/mcp HTTP/1.1", Err(400)),
            ("GET /mcp\u{e9} HTTP/1.1", Err(400)),
            ("GET", Err(400)),
            ("GET /mcp", Err(505)),
            ("GET /mcp HTTP/2.0", Err(505)),
            ("GET /mcp http/1.1", Err(505)),
            ("PRI * HTTP/2.0", Err(505)),
        ] {
            assert_eq!(
                status(&format!("{line}\r\nHost: localhost\r\n\r\n")),
                expected,
                "{line:?}"
            );
        }
        assert_eq!(status("GET /mcp HTTP/1.1\r\n\r\n"), Err(400));
    }

    #[test]
    fn the_end_is_found_in_whatever_pieces_it_comes() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody";
        let whole = head.len() - 4;
        for searched in 0..=whole {
            assert_eq!(
                end(head, searched),
                if searched < whole {
                    Some(whole)
                } else {
                    end(head, searched)
                }
            );
        }
        for shorter in 0..whole {
            assert_eq!(end(&head[..shorter], 0), None);
        }
    }
}
