//! The table of names: whatever servers call what they have, a name that clients see stands for one
//! thing of one server, nothing is missing without a word, and the order of servers does not
//! matter. Then the pages of the list made of it.
//!
//! Input: pieces between bytes that no text has, 0xFF. One that begins with 0 or 1 is a server's
//! id, without and with a prefix; others are names of the server before them. The first piece is a
//! cursor.

use std::collections::{BTreeMap, BTreeSet};

use colibri_mcpd::catalog::names::{ExposedNames, MAX_LENGTH, ServerItems};
use colibri_protocol::lists::{ListCursor, page};
use colibri_protocol::{Feature, Version, uri};
use colibri_wire::Json;
use colibri_wire::json::string;

/// The names of Colibri's own.
const OWN: [&str; 2] = ["colibri_status", "a"];

/// A legal id of a server: short ones, so that servers are taken for each other.
fn id(bytes: &[u8]) -> String {
    let rest = bytes
        .iter()
        .map(|byte| char::from(b"ab0-"[usize::from(*byte) % 4]));
    format!("a{}", rest.take(31).collect::<String>())
}

/// Servers with their names, in the order of the input: an id once, a name of a server once.
fn servers<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(String, bool, Vec<String>)> {
    let mut servers: Vec<(String, bool, Vec<String>)> = Vec::new();
    let (mut ids, mut seen, mut at) = (BTreeMap::new(), BTreeSet::new(), None);
    for piece in pieces {
        match (piece, at) {
            ([prefix @ (0 | 1), rest @ ..], _) => {
                let id = id(rest);
                let index = *ids.entry(id.clone()).or_insert(servers.len());
                if index == servers.len() {
                    servers.push((id, *prefix == 1, Vec::new()));
                }
                at = Some(index);
            }
            (name, Some(at)) => {
                let name = String::from_utf8_lossy(name).into_owned();
                if seen.insert((at, name.clone())) {
                    servers[at].2.push(name);
                }
            }
            _ => {}
        }
    }
    servers
}

fn table(feature: Feature, servers: &[(String, bool, Vec<String>)]) -> ExposedNames {
    let offers: Vec<ServerItems<'_>> = servers
        .iter()
        .map(|(server, prefix, names)| ServerItems {
            server,
            prefix: *prefix,
            names,
        })
        .collect();
    ExposedNames::build(feature, &OWN, &offers)
}

/// The names on a page, and the cursor to the next.
fn read(page: &[u8], feature: Feature) -> (Vec<String>, Option<ListCursor>) {
    let page = Json::parse(page).expect("JSON");
    let listed = page.get(feature.member()).expect("a list");
    let names = listed
        .elements()
        .map(|name| name.as_str().expect("a name").into_owned());
    let cursor = page.get("nextCursor").map(|cursor| {
        let params = format!("{{\"cursor\":{}}}", cursor.text());
        let read = ListCursor::read(Some(Json::parse(params.as_bytes()).expect("an object")));
        read.expect("our own").expect("a cursor")
    });
    (names.collect(), cursor)
}

/// All pages from a cursor on have all names behind it, each once, in order.
fn pages(
    feature: Feature,
    entries: &BTreeMap<String, String>,
    mut cursor: Option<ListCursor>,
    after: Option<&str>,
) {
    let mut listed = Vec::new();
    loop {
        let entries = entries
            .iter()
            .map(|(name, json)| (name.as_str(), json.as_bytes()));
        let (names, next) = read(
            &page(feature, Version::LATEST, 1, cursor.as_ref(), entries).0,
            feature,
        );
        assert!(
            next.is_none() || !names.is_empty(),
            "a page without anything that goes on"
        );
        listed.extend(names);
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    let wanted = entries
        .keys()
        .filter(|name| after.is_none_or(|after| name.as_str() > after));
    assert!(wanted.eq(&listed));
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let mut pieces = data.split(|byte| *byte == 0xff);
    let after = String::from_utf8_lossy(pieces.next().unwrap_or_default()).into_owned();
    let mut servers = servers(pieces);
    for feature in Feature::ALL {
        let names = table(feature, &servers);
        let (mut shown, mut all) = (BTreeMap::new(), 0);
        for (server, prefix, own) in &servers {
            for name in own {
                all += 1;
                let Some(exposed) = names.exposed(server, name) else {
                    let named = names.collisions().iter().any(|taken| {
                        *taken.server == **server
                            && taken.what.as_ref() == Some(&(feature, name.clone()))
                    });
                    assert!(named, "{server} {name:?} is missing without a word");
                    continue;
                };
                let before = shown.insert(exposed.to_owned(), string(exposed));
                assert!(before.is_none(), "{exposed:?} stands for two things");
                assert!(
                    !OWN.contains(&exposed)
                        && !exposed.to_ascii_lowercase().starts_with("colibri_")
                );
                match (prefix, feature) {
                    (false, _) => assert_eq!(exposed, name),
                    (true, Feature::Tool | Feature::Prompt) => {
                        let legal =
                            |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
                        assert!(
                            exposed.len() <= MAX_LENGTH && exposed.bytes().all(legal),
                            "{exposed:?}"
                        );
                        assert_eq!(exposed.split_once("__").map(|(id, _)| id), Some(&**server));
                    }
                    (true, Feature::Resource | Feature::Template | Feature::Skill) => {
                        let back = uri::original(exposed);
                        assert_eq!(
                            back.as_ref().map(|(id, own)| (*id, &**own)),
                            Some((&**server, &**name))
                        );
                    }
                }
            }
        }
        assert_eq!(shown.len() + names.collisions().len(), all);
        for taken in names.collisions() {
            assert!(!taken.text.contains(char::is_control), "{}", taken.text);
        }
        // The other way round, the same.
        servers.reverse();
        let again = table(feature, &servers);
        assert_eq!(again.collisions(), names.collisions());
        for (server, _, own) in &servers {
            for name in own {
                assert_eq!(again.exposed(server, name), names.exposed(server, name));
            }
        }
        pages(feature, &shown, None, None);
        let hex: String = after.bytes().map(|byte| format!("{byte:02x}")).collect();
        let params = format!("{{\"cursor\":\"{hex}\"}}");
        if let Ok(Some(cursor)) =
            ListCursor::read(Some(Json::parse(params.as_bytes()).expect("an object")))
        {
            pages(feature, &shown, Some(cursor), Some(&after));
        }
    }
}
