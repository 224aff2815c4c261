//! Server URIs behind the server's prefix.
//!
//! `ui://REST` of server `s` becomes `ui://s/REST`, so that it stays a `ui://` URI for hosts of
//! apps, and `skill://REST` becomes `skill://s/REST`: segments before a skill's name are free
//! (SEP-2640, "Resource Mapping"). Every other URI or template `X` becomes `s+X`, which is still a
//! URI (RFC 3986, section 3.1: a scheme may contain a plus sign). Server ids contain neither `+`
//! nor `/`, so the first one ends the id, and the original can be found without a table.
//! `docs/rewrites.md` gives the reasons.

use std::borrow::Cow;

use colibri_wire::{Edits, Json};

/// The beginning of the URIs of apps' pages (ext-apps, "UI Resource Format").
const UI: &str = "ui://";
/// The beginning of the URIs of skills' files (SEP-2640, "Resource Mapping").
pub(crate) const SKILL: &str = "skill://";

/// The beginnings behind which the server's id stands.
const WITHIN: [&str; 2] = [UI, SKILL];

/// The URI or template that clients see for `uri` of `server`, a server with a prefix.
pub fn exposed(server: &str, uri: &str) -> String {
    match WITHIN
        .iter()
        .find_map(|start| Some((start, uri.strip_prefix(start)?)))
    {
        Some((start, rest)) => format!("{start}{server}/{rest}"),
        None => format!("{server}+{uri}"),
    }
}

/// The server's id and its own URI for an exposed URI. `None` if [`exposed`] cannot have made it.
pub fn original(exposed: &str) -> Option<(&str, Cow<'_, str>)> {
    let within = WITHIN
        .iter()
        .find_map(|start| Some((start, exposed.strip_prefix(start)?)));
    let (server, uri) = match within {
        Some((start, rest)) => {
            let (server, rest) = rest.split_once('/')?;
            (server, Cow::Owned(format!("{start}{rest}")))
        }
        None => {
            let (server, uri) = exposed.split_once('+')?;
            if WITHIN.iter().any(|start| uri.starts_with(start)) {
                return None;
            }
            (server, Cow::Borrowed(uri))
        }
    };
    let in_id = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (!server.is_empty() && server.bytes().all(in_id)).then_some((server, uri))
}

/// The id of the server that an exposed URI seems to belong to, in lower case: some readers ignore
/// case.
pub fn seems_of(exposed: &str) -> Option<String> {
    let begins = |start: &&&str| {
        let begun = exposed.get(..start.len());
        begun.is_some_and(|begun| begun.eq_ignore_ascii_case(start))
    };
    let (server, _) = match WITHIN.iter().find(begins) {
        Some(start) => exposed[start.len()..].split_once('/')?,
        None => exposed.split_once('+')?,
    };
    Some(server.to_ascii_lowercase())
}

/// The edit that turns a string of `server`, its own URI or template, into the one that clients
/// see. The edit is an insertion, so the server's own text stays as written. Values other than
/// strings stay unchanged.
pub fn expose(edits: &mut Edits, server: &str, uri: Json<'_>) {
    if let Some(at) = WITHIN.iter().find_map(|start| uri.after(start)) {
        edits.insert(at, format!("{server}/"));
    } else if let Some(at) = uri.after("") {
        edits.insert(at, format!("{server}+"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn uris_stand_behind_the_id_of_their_server() {
        for (own, shown) in [
            ("file:///a/b", "fs+file:///a/b"),
            ("ui://app/view.html", "ui://fs/app/view.html"),
            ("ui:///view", "ui://fs//view"),
            ("ui://", "ui://fs/"),
            ("ui:/x", "fs+ui:/x"),
            ("UI://x", "fs+UI://x"),
            ("", "fs+"),
            ("git+file:///a", "fs+git+file:///a"),
            ("ui://git/x", "ui://fs/git/x"),
            ("file:///{+path}{?a,b}", "fs+file:///{+path}{?a,b}"),
            ("ui://{page}", "ui://fs/{page}"),
            ("skill://a/SKILL.md", "skill://fs/a/SKILL.md"),
            ("skill:/x", "fs+skill:/x"),
        ] {
            assert_eq!(exposed("fs", own), shown);
            assert_eq!(original(shown), Some(("fs", Cow::Borrowed(own))));
        }
        for other in [
            "",
            "file:///a",
            "fs",
            "+x",
            "Fs+x",
            "a b+x",
            "ui://fs",
            "ui://",
            "ui:///x",
            "fs+ui://x",
            "fs+skill://x",
            "skill://fs",
            "http://h/a+b",
        ] {
            assert_eq!(original(other), None, "{other}");
        }
    }

    fn expose_in(text: &str) -> String {
        let mut edits = Edits::new();
        expose(&mut edits, "fs", Json::parse(text.as_bytes()).unwrap());
        String::from_utf8(edits.apply(text.as_bytes())).unwrap()
    }

    #[test]
    fn the_servers_own_bytes_stay() {
        for (text, shown) in [
            (r#""file:\/\/\u002fa""#, r#""fs+file:\/\/\u002fa""#),
            (r#""ui:\/\/a""#, r#""ui:\/\/fs/a""#),
            (r#""u\u0069://a\ud800""#, r#""u\u0069://fs/a\ud800""#),
            (r#""\ud800""#, r#""fs+\ud800""#),
            (r#""""#, r#""fs+""#),
            ("7", "7"),
            ("null", "null"),
            (r#"["ui://a"]"#, r#"["ui://a"]"#),
        ] {
            assert_eq!(expose_in(text), shown);
        }
    }

    fn uri() -> impl Strategy<Value = String> {
        (
            "(ui://|skill://|ui:/|[a-z]{1,2}[+]|)",
            "[a-z+/:{}]{0,8}|\\PC{0,4}",
        )
            .prop_map(|(start, rest)| start + &rest)
    }

    proptest! {
        #[test]
        fn what_is_exposed_leads_back_to_one_uri_of_one_server(
            origins in prop::collection::btree_set(("[a-z][a-z0-9-]{0,2}", uri()), 0..20),
            any in uri(),
        ) {
            let shown: BTreeMap<String, _> =
                origins.iter().map(|(server, uri)| (exposed(server, uri), (server, uri))).collect();
            prop_assert_eq!(shown.len(), origins.len());
            for (shown, (server, uri)) in &shown {
                prop_assert_eq!(original(shown), Some((server.as_str(), Cow::Borrowed(uri.as_str()))));
            }
            if let Some((server, uri)) = original(&any) {
                prop_assert_eq!(exposed(server, &uri), any.clone());
            }
        }

        #[test]
        fn bytes_and_text_are_exposed_alike(uri in uri()) {
            let text = serde_json::to_string(&uri).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&expose_in(&text)).unwrap(), exposed("fs", &uri));
        }
    }
}
