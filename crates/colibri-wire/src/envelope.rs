//! The JSON-RPC 2.0 envelope of one message: <https://www.jsonrpc.org/specification>.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::json::{Json, JsonKind, SyntaxError};
use super::salvage::Salvage;
use super::scan::Tape;

/// JSON-RPC: the text is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON-RPC: the JSON is no request.
pub const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: no such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the parameters are wrong.
pub const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC: an internal error.
pub const INTERNAL_ERROR: i64 = -32603;

/// The keys of an envelope. Two members that could be taken for the same key make a message
/// ambiguous.
const ENVELOPE_KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// One message, read in place.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    /// The whole message.
    pub root: Json<'a>,
    /// The kind of message.
    pub kind: EnvelopeKind<'a>,
}

/// The kind of a message, with its members.
#[derive(Debug, Clone, Copy)]
pub enum EnvelopeKind<'a> {
    /// A message that needs an answer.
    Request {
        /// A string or a number.
        id: Json<'a>,
        /// A string.
        method: Json<'a>,
        /// `None` if there are none.
        params: Option<Json<'a>>,
    },
    /// A message without an answer.
    Notification {
        /// A string.
        method: Json<'a>,
        /// `None` if there are none.
        params: Option<Json<'a>>,
    },
    /// An answer.
    Answer {
        /// The id of the answered request. `None` for `null` or a missing id, as in the answer to a
        /// message whose id could not be read.
        id: Option<Json<'a>>,
        /// `Ok` for the result, `Err` for the error.
        outcome: Result<Json<'a>, Json<'a>>,
    },
}

/// The reason for which a message is no valid envelope, in the form of its answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EnvelopeRefusal {
    /// JSON-RPC error code.
    pub code: i64,
    /// The fault.
    pub message: String,
    /// The id as written, if it could be read.
    pub id: Option<String>,
    /// True if the message was an answer and no request.
    pub answer: bool,
}

impl<'a> Envelope<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// The reason for which it is no message, with its id if that could be read.
    pub fn parse(frame: &'a [u8]) -> Result<Envelope<'a>, EnvelopeRefusal> {
        Envelope::read_as(frame, Json::parse(frame))
    }

    /// Reads like [`Envelope::parse`], and records the places of the outer members.
    ///
    /// # Errors
    /// The reason for which it is no message, with its id if that could be read.
    pub fn read(frame: &'a [u8], tape: &'a mut Tape) -> Result<Envelope<'a>, EnvelopeRefusal> {
        Envelope::read_as(frame, Json::read(frame, tape))
    }

    fn read_as(
        frame: &'a [u8],
        read: Result<Json<'a>, SyntaxError>,
    ) -> Result<Envelope<'a>, EnvelopeRefusal> {
        let root = read.map_err(|error| {
            let message = match &error {
                SyntaxError::Utf8(_) => format!("parse error: the message is {error}"),
                SyntaxError::Syntax(_) => format!("parse error: the message is {error}"),
            };
            let mut salvage = Salvage::default();
            salvage.feed(frame);
            EnvelopeRefusal {
                code: PARSE_ERROR,
                message,
                id: salvage.id().map(str::to_owned),
                answer: !salvage.names_a_method(),
            }
        })?;
        Envelope::of(root)
    }

    /// Reads one message of a batch.
    ///
    /// # Errors
    /// The reason for which it is no message, with its id if that could be read.
    pub fn of(root: Json<'a>) -> Result<Envelope<'a>, EnvelopeRefusal> {
        let picked = root.pick::<6>(&ENVELOPE_KEYS);
        let [version, id, method, params, result, error] = picked.values;
        let id_text = id.filter(|id| matches!(id.kind(), JsonKind::String | JsonKind::Number));
        let refuse = |code, message: &str| {
            Err(EnvelopeRefusal {
                code,
                message: message.to_owned(),
                id: id_text.map(|id| id.text().to_owned()),
                answer: method.is_none(),
            })
        };
        if !root.is_object() {
            return refuse(
                INVALID_REQUEST,
                "invalid request: a message is a JSON object",
            );
        }
        if let Some(key) = picked.ambiguous {
            return refuse(
                INVALID_PARAMS,
                &format!("refused: two members of the message can be read as \"{key}\""),
            );
        }
        if !version.is_some_and(|version| version.text() == "\"2.0\"" || version.is_string("2.0")) {
            return refuse(
                INVALID_REQUEST,
                "invalid request: \"jsonrpc\" must be \"2.0\"",
            );
        }
        let kind = match (method, result, error) {
            (Some(method), None, None) => {
                if method.kind() != JsonKind::String {
                    return refuse(
                        INVALID_REQUEST,
                        "invalid request: \"method\" must be a string",
                    );
                }
                if params.is_some_and(|params| {
                    !matches!(params.kind(), JsonKind::Object | JsonKind::Array)
                }) {
                    return refuse(
                        INVALID_REQUEST,
                        "invalid request: \"params\" must be an object",
                    );
                }
                match (id, id_text) {
                    (None, _) => EnvelopeKind::Notification { method, params },
                    (Some(_), Some(id)) => EnvelopeKind::Request { id, method, params },
                    (Some(_), None) => {
                        return refuse(
                            INVALID_REQUEST,
                            "invalid request: \"id\" must be a string or a number",
                        );
                    }
                }
            }
            (None, Some(result), None) => EnvelopeKind::Answer {
                id: id_text,
                outcome: Ok(result),
            },
            (None, None, Some(error)) => EnvelopeKind::Answer {
                id: id_text,
                outcome: Err(error),
            },
            _ => {
                let message = "invalid request: a message has exactly one of \"method\", \"result\" and \"error\"";
                return refuse(INVALID_REQUEST, message);
            }
        };
        Ok(Envelope { root, kind })
    }
}

/// A request id in the form for comparisons: strings by value, numbers by their digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestId {
    /// The digits as written.
    Number(Word),
    /// The unescaped text (the text as written if no `str` can hold it).
    Text(Word),
}

/// A text that is usually short. A short one needs no allocation.
#[derive(Debug, Clone)]
pub struct Word(IdStorage);

#[derive(Debug, Clone)]
enum IdStorage {
    Short(u8, [u8; 22]),
    Long(Box<[u8]>),
}

impl Word {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            IdStorage::Short(length, bytes) => &bytes[..usize::from(*length)],
            IdStorage::Long(bytes) => bytes,
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Word {
        let mut bytes = [0; 22];
        match bytes.get_mut(..text.len()) {
            Some(short) => {
                short.copy_from_slice(text.as_bytes());
                Word(IdStorage::Short(text.len() as u8, bytes))
            }
            None => Word(IdStorage::Long(text.as_bytes().into())),
        }
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Word) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Word {}

impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl PartialOrd for Word {
    fn partial_cmp(&self, other: &Word) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Word {
    fn cmp(&self, other: &Word) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl RequestId {
    /// The id in a JSON value.
    pub fn of(value: Json<'_>) -> RequestId {
        match value.kind() {
            JsonKind::String => {
                RequestId::Text((&*value.as_str().unwrap_or(Cow::Borrowed(value.text()))).into())
            }
            _ => RequestId::Number(value.text().into()),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestId::Number(text) => f.write_str(text.as_str()),
            RequestId::Text(text) => f.write_str(&super::json::string(text.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> EnvelopeRefusal {
        Envelope::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn tells_messages_apart() {
        let parse = |text: &'static str| Envelope::parse(text.as_bytes()).unwrap().kind;
        let EnvelopeKind::Request { id, method, params } =
            parse(r#"{"params":{"a":1},"m":0,"id":"x","jsonrpc":"2.0","method":"a/b"}"#)
        else {
            panic!()
        };
        assert_eq!(
            (id.text(), method.text(), params.unwrap().text()),
            ("\"x\"", "\"a/b\"", "{\"a\":1}")
        );
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","method":"n"}"#),
            EnvelopeKind::Notification { params: None, .. }
        ));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":1,"result":null}"#),
            EnvelopeKind::Answer { outcome: Ok(_), .. }
        ));
        let null = parse(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#);
        assert!(matches!(
            null,
            EnvelopeKind::Answer {
                id: None,
                outcome: Err(_)
            }
        ));
    }

    #[test]
    fn refuses_with_the_id_that_could_be_read() {
        for (text, code, id) in [
            ("{\"id\":3,", PARSE_ERROR, Some("3")),
            ("[]", INVALID_REQUEST, None),
            (
                r#"{"jsonrpc":"1.0","id":3,"method":"x"}"#,
                INVALID_REQUEST,
                Some("3"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":1}"#,
                INVALID_REQUEST,
                Some("3"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"x","params":1}"#,
                INVALID_REQUEST,
                Some("3"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":[3],"method":"x"}"#,
                INVALID_REQUEST,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
                INVALID_REQUEST,
                None,
            ),
            (r#"{"jsonrpc":"2.0","id":3}"#, INVALID_REQUEST, Some("3")),
            (
                r#"{"jsonrpc":"2.0","id":3,"result":1,"error":{}}"#,
                INVALID_REQUEST,
                Some("3"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"ID":4,"method":"x"}"#,
                INVALID_PARAMS,
                Some("3"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"x","method":"y"}"#,
                INVALID_PARAMS,
                Some("3"),
            ),
        ] {
            let refusal = refusal(text);
            assert_eq!(
                (refusal.code, refusal.id.as_deref()),
                (code, id),
                "{text}: {refusal}"
            );
        }
    }

    #[test]
    fn ids_compare_by_value() {
        let id = |text: &'static str| RequestId::of(Json::parse(text.as_bytes()).unwrap());
        assert_eq!(id(r#""a""#), id(r#""\u0061""#));
        assert_ne!(id(r#""1""#), id("1"));
        assert_eq!(id(r#""\ud800""#), id(r#""\ud800""#));
        assert_eq!(id("\"a\\\"\"").to_string(), r#""a\"""#);
    }
}
