//! What the HTTP front makes of a request, head and body, without a socket: whatever comes, it is
//! refused or there is one reading of it; where its body ends does not depend on the pieces it came
//! in; and what head and body say twice is the same.

use colibri_mcpd::inbound::http::head::{self, BodyLength};
use colibri_protocol::compare_request;
use colibri_wire::{Envelope, EnvelopeKind};

/// The lines of a head as the plainest reader has them.
fn fields(head: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text = head.strip_suffix(b"\r\n\r\n").expect("a whole head");
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines.push(rest);
    assert!(
        lines
            .iter()
            .all(|line| !line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)))
    );
    let field = |line: &&[u8]| {
        let colon = line.iter().position(|byte| *byte == b':').expect("a colon");
        let name = std::str::from_utf8(&line[..colon])
            .expect("a name")
            .to_ascii_lowercase();
        (name, line[colon + 1..].trim_ascii().to_vec())
    };
    lines[1..].iter().map(field).collect()
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let whole = head::end(data, 0);
    for searched in [1, data.len() / 2, data.len().saturating_sub(1)] {
        if whole.is_none_or(|end| searched < end) {
            assert_eq!(head::end(data, searched), whole);
        }
    }
    let Some(end) = whole else { return };
    let (head, rest) = data.split_at(end);
    let length = match head::read(head) {
        Ok(length) => length,
        Err(refusal) => {
            assert!(refusal.status.is_client_error() || refusal.status.is_server_error());
            assert!(!refusal.error.message.contains(|c: char| c.is_control()));
            return;
        }
    };
    let fields = fields(head);
    let of = |name: &str| -> Vec<&[u8]> {
        let found = fields.iter().filter(|(field, _)| field == name);
        found.map(|(_, value)| value.as_slice()).collect()
    };
    assert_eq!(of("host").len(), 1);
    let body = match (
        of("content-length").as_slice(),
        of("transfer-encoding").as_slice(),
        length,
    ) {
        ([], [], BodyLength::Known(0)) => &rest[..0],
        ([said], [], BodyLength::Known(length)) => {
            assert_eq!(
                std::str::from_utf8(said).expect("digits").parse(),
                Ok(length)
            );
            &rest[..usize::try_from(length).map_or(rest.len(), |length| length.min(rest.len()))]
        }
        ([], [said], BodyLength::Chunked) => {
            assert!(said.eq_ignore_ascii_case(b"chunked"));
            rest
        }
        other => panic!("two readings: {other:?}"),
    };
    let Ok(envelope) = Envelope::parse(body) else {
        return;
    };
    let EnvelopeKind::Request { method, params, .. } = envelope.kind else {
        return;
    };
    let Some(method) = method.as_str() else {
        return;
    };
    let field = |name: &str| of(name).first().copied();
    if compare_request(&method, params, field).is_ok() {
        assert_eq!(field("mcp-method"), Some(method.as_bytes()));
        let name = params.and_then(|params| params.get("name")?.as_str());
        if let (true, Some(name)) = (method == "tools/call", name) {
            let said = field("mcp-name").expect("a name");
            assert!(said == name.as_bytes() || said.starts_with(b"=?base64?"));
        }
    }
}
