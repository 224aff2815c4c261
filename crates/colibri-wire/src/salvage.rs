//! Reads the id of a message that cannot be read as a whole: too long, cut off, not UTF-8, not
//! JSON.
//!
//! The sender waits for an answer with that id. The id is therefore searched byte by byte, without
//! storing the rest.

use super::json::{Json, JsonKind};

/// The longest id that is salvaged, in bytes as written.
const MAX_ID: usize = 256;

/// Searches the top-level `"id"` of a message that arrives in pieces.
#[derive(Debug, Default)]
pub struct Salvage {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The bytes of the top-level key or value being read, quotes included.
    token: Vec<u8>,
    place: ScanState,
    id: Option<String>,
    method: bool,
}

#[derive(Debug, Default, PartialEq)]
enum ScanState {
    #[default]
    Key,
    /// In the value of the top-level `"id"`.
    Id,
    Value,
}

impl Salvage {
    /// Reads the next piece.
    pub fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.step(byte);
        }
    }

    /// The id as written, if it is a valid JSON-RPC id: a string or a number.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// True if the message has a method, so that its sender may be waiting for an answer.
    pub fn names_a_method(&self) -> bool {
        self.method
    }

    /// [`Salvage::id`] of a message in one piece.
    pub fn id_of(bytes: &[u8]) -> Option<String> {
        let mut salvage = Salvage::default();
        salvage.feed(bytes);
        salvage.id
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b':' if self.depth == 1 => {
                self.method |= self.token == b"\"method\"";
                self.place = if self.token == b"\"id\"" {
                    ScanState::Id
                } else {
                    ScanState::Value
                };
                self.token.clear();
            }
            b',' if self.depth == 1 => self.end_of_value(),
            b'{' | b'[' => {
                self.depth += 1;
                self.keep(byte);
                if self.depth == 1 {
                    self.token.clear();
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_of_value();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth <= 1 && self.place != ScanState::Value && self.token.len() <= MAX_ID {
            self.token.push(byte);
        }
    }

    fn end_of_value(&mut self) {
        if self.place == ScanState::Id && self.token.len() <= MAX_ID {
            let id = std::str::from_utf8(&self.token)
                .ok()
                .filter(|token| is_id(token));
            self.id = self.id.take().or(id.map(str::to_owned));
        }
        self.token.clear();
        self.place = ScanState::Key;
    }
}

/// True if a token is a JSON string or number.
fn is_id(token: &str) -> bool {
    Json::parse(token.as_bytes())
        .is_ok_and(|id| matches!(id.kind(), JsonKind::String | JsonKind::Number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_the_id_wherever_it_stands() {
        for (text, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"params":{"id":8"#, Some("7")),
            (
                r#"{"params":{"id":8,"x":[1,{"id":9}]},"id":"a\"b"}"#,
                Some(r#""a\"b""#),
            ),
            (r#"{"params":"\"id\":3,","id" : -1.5 }"#, Some("-1.5")),
            (r#"{"id":null}"#, None),
            (r#"{"id":{"id":1}}"#, None),
            (r#"{"params":{"id":8}}"#, None),
            (r#"{"id":1,"id":2}"#, Some("1")),
            (r#"{"id":5e400}"#, Some("5e400")),
            (r#"{"id":12"#, None),
            ("", None),
        ] {
            assert_eq!(Salvage::id_of(text.as_bytes()).as_deref(), id, "{text}");
        }
        assert_eq!(
            Salvage::id_of(b"{\"id\":5,\"x\":\"\xff\"}").as_deref(),
            Some("5")
        );
        assert_eq!(
            Salvage::id_of(format!("{{\"id\":\"{}\"}}", "x".repeat(300)).as_bytes()),
            None
        );
    }

    #[test]
    fn knows_requests_from_answers() {
        let mut salvage = Salvage::default();
        salvage.feed(br#"{"id":1,"result":{"method":1}}"#);
        assert!(!salvage.names_a_method());
        let mut salvage = Salvage::default();
        salvage.feed(br#"{"method":"x","id":1"#);
        assert!(salvage.names_a_method());
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in proptest::collection::vec(any::<u8>(), 0..100), cut in 0usize..100) {
            let mut text = b"{\"x\":\"".to_vec();
            text.extend(bytes.iter().filter(|byte| !matches!(byte, b'"' | b'\\')));
            text.extend_from_slice(b"\",\"id\":42}");
            let (head, tail) = text.split_at(cut.min(text.len()));
            let mut salvage = Salvage::default();
            salvage.feed(head);
            salvage.feed(tail);
            prop_assert_eq!(salvage.id(), Some("42"));
        }
    }
}
