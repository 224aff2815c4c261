//! What clients send as URIs and cursors, and what servers call their resources: each leads back to
//! one server and one URI, or is nobody's.
//!
//! Input: the length of a server's id, the id, any text.

use colibri_protocol::lists::ListCursor;
use colibri_protocol::uri::{expose, exposed, original};
use colibri_wire::json::string;
use colibri_wire::{Edits, Json};

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else {
        return;
    };
    let (id, text) = rest.split_at(usize::from(*length).min(rest.len()));
    let text = String::from_utf8_lossy(text);
    let id: String = id
        .iter()
        .map(|byte| char::from(b"abz09-"[usize::from(*byte) % 6]))
        .take(31)
        .collect();
    let server = format!("s{id}");

    // From the server to clients and back.
    let shown = exposed(&server, &text);
    let back = original(&shown);
    assert_eq!(
        back.as_ref().map(|(id, own)| (*id, &**own)),
        Some((&*server, &*text))
    );
    assert_eq!(text.starts_with("ui://"), shown.starts_with("ui://"));
    // In place, the same.
    let json = string(&text);
    let mut edits = Edits::new();
    expose(
        &mut edits,
        &server,
        Json::parse(json.as_bytes()).expect("a string"),
    );
    let edited = edits.apply(json.as_bytes());
    let edited = Json::parse(&edited).expect("still a string");
    assert_eq!(edited.as_str().as_deref(), Some(&*shown));
    // What a client makes up leads to one server, or to none; what leads somewhere was made so.
    if let Some((server, own)) = original(&text) {
        assert_eq!(exposed(server, &own), text);
    }
    // A cursor is read, or refused; what is read is the one that was made.
    let params = format!("{{\"cursor\":{}}}", string(&text));
    if let Ok(Some(cursor)) =
        ListCursor::read(Some(Json::parse(params.as_bytes()).expect("an object")))
    {
        let again = format!("{{\"cursor\":\"{}\"}}", cursor.encode());
        assert_eq!(
            ListCursor::read(Some(Json::parse(again.as_bytes()).expect("an object"))).ok(),
            Some(Some(cursor))
        );
    }
}
