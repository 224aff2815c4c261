//! The little the bridge must know of a line: is it a request, a notification or an answer, and
//! with which id.
//!
//! This is no JSON parser and judges nothing: the daemon does that. It reads lines that nobody has
//! validated yet, also ones that were cut off, stops as soon as it knows, and steps over strings
//! with `memchr`. What it cannot read it does not report, and the bridge passes the line on all the
//! same.

/// The kind of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PeekedMessage<'a> {
    /// It has a method and an id.
    Request {
        /// The id's bytes.
        id: &'a [u8],
        /// The method, without quotes, as written.
        method: &'a [u8],
    },
    /// It has a method and no id.
    Notification {
        /// The method, without quotes, as written.
        method: &'a [u8],
    },
    /// It has a result or an error, and an id.
    Answer {
        /// The id's bytes.
        id: &'a [u8],
    },
    /// Nothing the bridge has to know of.
    Other,
}

/// Reads one message; see the module's text for what it is not.
pub(super) fn message(text: &[u8]) -> PeekedMessage<'_> {
    let found = fields(text);
    match (found.id, found.method) {
        (Some(id), Some(method)) => PeekedMessage::Request { id, method },
        (None, Some(method)) => PeekedMessage::Notification { method },
        (Some(id), None) if found.answer => PeekedMessage::Answer { id },
        _ => PeekedMessage::Other,
    }
}

/// The messages of a line: one, or those of a JSON-RPC batch (MCP 2025-03-26).
pub(crate) fn messages(line: &[u8]) -> Vec<&[u8]> {
    if !is_batch(line) {
        return vec![line];
    }
    serde_json::from_slice::<Vec<&serde_json::value::RawValue>>(line)
        .map(|elements| {
            elements
                .into_iter()
                .map(|element| element.get().as_bytes())
                .collect()
        })
        .unwrap_or_default()
}

/// True if a line is a batch.
pub(super) fn is_batch(line: &[u8]) -> bool {
    line.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// The id of a line of which only the beginning is there; `null` when it does not come early
/// enough.
pub(super) fn id_of_beginning(text: &[u8]) -> &[u8] {
    fields(text).id.unwrap_or(b"null")
}

/// An id in the one form in which it can be compared: as written, but without needless escapes.
pub(super) fn comparable(id: &[u8]) -> Box<[u8]> {
    if memchr::memchr(b'\\', id).is_some()
        && let Ok(text) = serde_json::from_slice::<String>(id)
        && let Ok(plain) = serde_json::to_vec(&text)
    {
        return plain.into();
    }
    id.into()
}

/// The `requestId` of a `notifications/cancelled`.
pub(super) fn cancelled_request(text: &[u8]) -> Option<Box<[u8]>> {
    at(text, &["params", "requestId"]).map(comparable)
}

/// The subscription that a `notifications/subscriptions/acknowledged` acknowledges.
pub(super) fn acknowledged_subscription(text: &[u8]) -> Option<Box<[u8]>> {
    at(
        text,
        &["params", "_meta", "io.modelcontextprotocol/subscriptionId"],
    )
    .map(comparable)
}

/// The value at this path of keys, as written.
pub(super) fn at<'a>(text: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    path.iter().try_fold(text, |object, wanted| {
        let mut at = object_start(object)?;
        loop {
            let (key, value) = next_key(object, at)?;
            at = value_end(object, value)?;
            if key == wanted.as_bytes() {
                return Some(&object[value..at]);
            }
        }
    })
}

#[derive(Default)]
struct PeekedFields<'a> {
    id: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    answer: bool,
}

fn fields(text: &[u8]) -> PeekedFields<'_> {
    let mut found = PeekedFields::default();
    let mut at = object_start(text);
    while let Some((key, value)) = at.and_then(|at| next_key(text, at)) {
        // That an answer is one shows in the key alone: its value may be long, and need not be
        // looked at.
        if matches!(key, b"result" | b"error") {
            found.answer = true;
            if found.id.is_some() {
                return found;
            }
        }
        let Some(end) = value_end(text, value) else {
            return found;
        };
        match key {
            b"id" => found.id = Some(&text[value..end]),
            b"method" if text[value] == b'"' => found.method = Some(&text[value + 1..end - 1]),
            _ => {}
        }
        if found.id.is_some() && (found.method.is_some() || found.answer) {
            return found;
        }
        at = Some(end);
    }
    found
}

/// The possible beginning of an object's first member.
fn object_start(text: &[u8]) -> Option<usize> {
    let at = skip_space(text, 0);
    (text.get(at) == Some(&b'{')).then_some(at + 1)
}

/// The next member's key, without quotes, and where its value begins.
fn next_key(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let mut at = skip_space(text, at);
    if text.get(at) == Some(&b',') {
        at = skip_space(text, at + 1);
    }
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let end = string_end(text, at)?;
    let colon = skip_space(text, end);
    (text.get(colon) == Some(&b':')).then(|| (&text[at + 1..end - 1], skip_space(text, colon + 1)))
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// The end of the string that begins at `at`, past its quote.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The end of the value that begins at `at`.
fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' | b'[' => {
            let mut depth = 0usize;
            let mut at = at;
            loop {
                match text.get(at)? {
                    b'"' => {
                        at = string_end(text, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        _ => {
            let ends =
                |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
            let length = text[at..].iter().position(ends)?;
            (length > 0).then_some(at + length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request<'a>(id: &'a str, method: &'a str) -> PeekedMessage<'a> {
        PeekedMessage::Request {
            id: id.as_bytes(),
            method: method.as_bytes(),
        }
    }

    #[test]
    fn tells_the_kinds_apart_in_any_order_of_keys() {
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
                request("1", "tools/list"),
            ),
            (
                r#" { "method" : "a" , "params" : {"id":9,"method":"x","s":"}\""} , "id" : "q" } "#,
                request("\"q\"", "a"),
            ),
            (
                r#"{"method":"n","params":[{},[],"]"]}"#,
                PeekedMessage::Notification { method: b"n" },
            ),
            (
                r#"{"jsonrpc":"2.0","id":-3,"result":{"a":1}}"#,
                PeekedMessage::Answer { id: b"-3" },
            ),
            (
                r#"{"error":{"code":1,"message":"id"},"id":"x\"y"}"#,
                PeekedMessage::Answer { id: br#""x\"y""# },
            ),
            (r#"{"id":1}"#, PeekedMessage::Other),
            (r#"{"params":{"id":1,"method":"x"}}"#, PeekedMessage::Other),
            (r#"[1]"#, PeekedMessage::Other),
            ("", PeekedMessage::Other),
            ("}{", PeekedMessage::Other),
        ] {
            assert_eq!(message(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn an_answer_is_known_before_its_result_is_read() {
        assert_eq!(
            message(br#"{"jsonrpc":"2.0","id":7,"result":{"text":"cut o"#),
            PeekedMessage::Answer { id: b"7" }
        );
    }

    #[test]
    fn the_id_of_a_cut_line_is_found_if_it_is_there() {
        assert_eq!(
            id_of_beginning(br#"{"id":"a","method":"m","params":{"x":"yyyy"#),
            b"\"a\""
        );
        assert_eq!(
            id_of_beginning(br#"{"method":"m","params":{"id":1,"x":"yyyy"#),
            b"null"
        );
        assert_eq!(id_of_beginning(br#"{"id":12"#), b"null");
    }

    #[test]
    fn escapes_do_not_make_another_id() {
        assert_eq!(comparable(br#""\u0061""#), comparable(br#""a""#));
        assert_ne!(comparable(b"1"), comparable(b"\"1\""));
    }

    #[test]
    fn batches_are_taken_apart() {
        assert_eq!(
            messages(br#" [ {"id":1}, {"id":2} ]"#),
            [br#"{"id":1}"#, br#"{"id":2}"#]
        );
        assert!(messages(b"[broken").is_empty());
        assert_eq!(messages(b"{}"), [b"{}"]);
    }

    #[test]
    fn reads_what_notifications_are_about() {
        assert_eq!(
            cancelled_request(
                br#"{"method":"notifications/cancelled","params":{"reason":"r","requestId":"x"}}"#
            ),
            Some(b"\"x\""[..].into())
        );
        assert_eq!(
            acknowledged_subscription(
                br#"{"params":{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":4}}}"#
            ),
            Some(b"4"[..].into())
        );
        assert_eq!(cancelled_request(b"{}"), None);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            message(&bytes);
            messages(&bytes);
        }

        #[test]
        fn never_panics_on_what_is_nearly_json(text in "[\\[\\]{}\",:\\\\ a1]{0,40}") {
            message(text.as_bytes());
            id_of_beginning(text.as_bytes());
        }

        #[test]
        fn agrees_with_a_parser(id in any::<i64>(), method in "[a-z/]{1,12}", inner in ".{0,30}", last in any::<bool>()) {
            let params = serde_json::json!({"id": inner, "method": [inner, {"result": inner}]});
            let (method_text, params) = (serde_json::to_string(&method).unwrap(), params.to_string());
            let line = if last {
                format!(r#"{{"params":{params},"method":{method_text},"id":{id}}}"#)
            } else {
                format!(r#"{{"id":{id},"params":{params},"method":{method_text}}}"#)
            };
            let id = id.to_string();
            prop_assert_eq!(message(line.as_bytes()), request(&id, &method));
        }
    }
}
