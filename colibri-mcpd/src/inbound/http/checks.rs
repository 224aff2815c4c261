//! The header fields of a request, read before its body.

use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{StatusCode, Uri};

use super::refusal::HttpRefusal;
use crate::relay::Client;
use colibri_policy::Gate;

/// The header field that closes gates for a request or a session, as the hello does for a
/// connection that writes lines.
const NARROW: HeaderName = HeaderName::from_static("colibri-narrow");

/// Checks who a request says it is for, and which page sent it: a page that an attacker's name
/// resolves to us is told by both (DNS rebinding; 2025-11-25 and 2026-07-28, basic/transports,
/// "Security Warning").
///
/// # Errors
/// 403, or 400 for what is no host.
pub(super) fn check_origin(
    target: &Uri,
    headers: &HeaderMap,
    allowed: &[String],
) -> Result<(), HttpRefusal> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host
        .ok_or_else(|| HttpRefusal::new(StatusCode::BAD_REQUEST, "the Host header is no host"))?;
    let mut named = vec![("the Host header", host)];
    named.extend(
        target
            .authority()
            .map(|authority| ("the request", authority.as_str())),
    );
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        named.push(("the Origin header", authority.unwrap_or_default()));
    }
    for (who, authority) in named {
        if !is_allowed(authority, allowed) {
            return Err(HttpRefusal::new(
                StatusCode::FORBIDDEN,
                format!(
                    "{who} names neither localhost nor a host that the daemon was told to answer to (--http-host): requests \
                     that other sites' pages send are not served"
                ),
            ));
        }
    }
    Ok(())
}

fn is_allowed(authority: &str, allowed: &[String]) -> bool {
    let Ok(parsed) = authority.parse::<Authority>() else {
        return false;
    };
    // A user before the host is nothing that a Host or an Origin has.
    let host = parsed.host();
    !authority.contains('@')
        && (["localhost", "127.0.0.1", "[::1]"].into_iter())
            .chain(allowed.iter().map(String::as_str))
            .any(|allowed| host.eq_ignore_ascii_case(allowed))
}

/// Checks that the body is JSON.
///
/// # Errors
/// 415
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    let kind = headers
        .get(CONTENT_TYPE)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    if kind.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    Err(HttpRefusal::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "the body of a POST is one JSON-RPC message: say Content-Type: application/json",
    ))
}

/// Checks that the client takes every kind of answer that it may get. One that does not say takes
/// all (RFC 9110, section 12.5.1).
///
/// # Errors
/// 406
pub(super) fn check_accept(headers: &HeaderMap, kinds: &[&str]) -> Result<(), HttpRefusal> {
    if !headers.contains_key(ACCEPT) {
        return Ok(());
    }
    let takes = |wanted: &&&str| {
        let listed = headers
            .get_all(ACCEPT)
            .into_iter()
            .filter_map(|value| value.to_str().ok());
        listed.flat_map(|value| value.split(',')).any(|range| {
            let mut parts = range.split(';');
            let kind = parts.next().unwrap_or_default().trim();
            let refused = parts.any(|part| {
                let weight = part
                    .trim()
                    .strip_prefix("q=")
                    .or_else(|| part.trim().strip_prefix("Q="));
                weight.is_some_and(|weight| weight.trim().parse::<f32>() == Ok(0.0))
            });
            let family = wanted.split('/').next().unwrap_or_default();
            let matches = kind.eq_ignore_ascii_case(wanted)
                || kind == "*/*"
                || kind
                    .strip_suffix("/*")
                    .is_some_and(|kind| kind.eq_ignore_ascii_case(family));
            matches && !refused
        })
    };
    if kinds.iter().all(|kind| takes(&kind)) {
        return Ok(());
    }
    Err(HttpRefusal::new(
        StatusCode::NOT_ACCEPTABLE,
        format!("the Accept header has to list {}", kinds.join(" and ")),
    ))
}

/// The gates that a request closes for itself or for its session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Narrow {
    write: bool,
    external: bool,
}

impl Narrow {
    /// The content of `Colibri-Narrow`. A name that we do not know was meant to narrow, so
    /// everything is.
    pub(super) fn read(headers: &HeaderMap) -> Narrow {
        let mut narrow = Narrow::default();
        for value in headers.get_all(NARROW) {
            for gate in value.as_bytes().split(|byte| *byte == b',') {
                match gate.trim_ascii() {
                    b"write" => narrow.write = true,
                    b"external" => narrow.external = true,
                    b"" => {}
                    _ => (narrow.write, narrow.external) = (true, true),
                }
            }
        }
        narrow
    }

    /// Closes the gates for a client.
    pub(super) fn apply(self, client: &Client) {
        if self.write {
            client.narrow(Gate::Write);
        }
        if self.external {
            client.narrow(Gate::External);
        }
    }
}

/// The one value of a field, if it is text.
pub(super) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        let mut map = HeaderMap::new();
        for (name, value) in fields.iter().map(field) {
            map.append(name, value);
        }
        map
    }

    fn origin(target: &str, fields: &[(&'static str, &str)]) -> Result<(), u16> {
        let allowed = ["mcp.example.org".to_owned()];
        check_origin(&target.parse().unwrap(), &headers(fields), &allowed)
            .map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn only_names_of_ours_are_answered_to() {
        for (host, expected) in [
            ("localhost", Ok(())),
            ("LocalHost:8080", Ok(())),
            ("127.0.0.1:1", Ok(())),
            ("[::1]", Ok(())),
            ("[::1]:80", Ok(())),
            ("mcp.example.org", Ok(())),
            ("example.org", Err(403)),
            ("localhost.example.org", Err(403)),
            ("evil@localhost", Err(403)),
            ("localhost@evil", Err(403)),
            ("127.0.0.2", Err(403)),
            ("localhost/", Err(403)),
            ("", Err(403)),
        ] {
            assert_eq!(origin("/mcp", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(origin("/mcp", &[]), Err(400));
        assert_eq!(
            origin("http://localhost/mcp", &[("host", "localhost")]),
            Ok(())
        );
        assert_eq!(
            origin("http://evil/mcp", &[("host", "localhost")]),
            Err(403)
        );
    }

    #[test]
    fn only_pages_of_ours_are_served() {
        for (page, expected) in [
            ("http://localhost:6274", Ok(())),
            ("https://mcp.example.org", Ok(())),
            ("http://[::1]:1", Ok(())),
            ("https://evil.example", Err(403)),
            ("http://localhost.evil.example", Err(403)),
            ("null", Err(403)),
            ("file://", Err(403)),
            ("localhost", Err(403)),
            ("", Err(403)),
        ] {
            assert_eq!(
                origin("/mcp", &[("host", "localhost"), ("origin", page)]),
                expected,
                "{page}"
            );
        }
    }

    #[test]
    fn both_kinds_of_answers_are_taken_or_none_is_given() {
        for (accept, expected) in [
            ("application/json, text/event-stream", true),
            ("text/event-stream;q=0.5,APPLICATION/JSON", true),
            ("*/*", true),
            ("application/*, text/*", true),
            ("application/json", false),
            ("text/event-stream", false),
            ("application/json, text/event-stream;q=0", false),
            ("text/html", false),
            ("", false),
        ] {
            let both = ["application/json", "text/event-stream"];
            assert_eq!(
                check_accept(&headers(&[("accept", accept)]), &both).is_ok(),
                expected,
                "{accept}"
            );
            let two = headers(&[
                ("accept", "application/json"),
                ("accept", "text/event-stream"),
            ]);
            assert!(check_accept(&two, &both).is_ok());
            assert!(check_accept(&HeaderMap::new(), &both).is_ok());
        }
        for (kind, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/json-seq", false),
            ("", false),
        ] {
            assert_eq!(
                check_content_type(&headers(&[("content-type", kind)])).is_ok(),
                expected,
                "{kind}"
            );
        }
        assert!(check_content_type(&HeaderMap::new()).is_err());
    }

    #[test]
    fn gates_are_closed_as_the_hello_does() {
        let read = |values: &[&str]| {
            let fields: Vec<_> = values
                .iter()
                .map(|value| ("colibri-narrow", *value))
                .collect();
            let Narrow { write, external } = Narrow::read(&headers(&fields));
            (write, external)
        };
        assert_eq!(read(&[]), (false, false));
        assert_eq!(read(&["write"]), (true, false));
        assert_eq!(read(&[" external ,"]), (false, true));
        assert_eq!(read(&["write, external"]), (true, true));
        assert_eq!(read(&["write", "external"]), (true, true));
        assert_eq!(read(&["everything"]), (true, true));
    }
}
