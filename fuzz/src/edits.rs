//! Settings of editors, changed in place: what is set can be read, all else means and says what it
//! did, and what is taken out again leaves no trace.
//!
//! Input: what the file is written in and whose keys (1 byte), the file.

use colibri_mcp::edit::{FileFormat, Value};
use serde_json::Value as Plain;

/// What `connect` and `add` write.
fn entry() -> Value {
    let text = |text: &str| Value::String(text.to_owned());
    let args = Value::Array(vec![text("--read-only"), text("a \"b\"\n\u{202e}")]);
    Value::Object(vec![
        ("command".to_owned(), text("/bin/colibri-mcp")),
        ("args".to_owned(), args),
        ("env".to_owned(), Value::Object(Vec::new())),
    ])
}

/// All but what stands at the end of `keys`, and the objects on the way that are empty then.
fn without(mut value: Plain, keys: &[&str]) -> Plain {
    if let (Some((first, rest)), Some(members)) = (keys.split_first(), value.as_object_mut())
        && let Some(inner) = members.remove(*first)
        && let inner = without(inner, rest)
        && !rest.is_empty()
        && inner.as_object().is_none_or(|inner| !inner.is_empty())
    {
        members.insert((*first).to_owned(), inner);
    }
    value
}

/// Whether all that is no white space stands in the other text too, in this order.
fn is_kept(text: &str, other: &str) -> bool {
    let mut other = other.chars();
    text.chars()
        .filter(|c| !c.is_whitespace())
        .all(|wanted| other.any(|c| c == wanted))
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((which, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let kind = if which & 1 == 0 {
        FileFormat::Json
    } else {
        FileFormat::Toml
    };
    let servers =
        ["mcpServers", "mcp_servers", "context_servers", "colibri"][usize::from(which >> 1) % 4];
    let keys = [servers, "colibri"];
    let (Ok(before), Ok(there)) = (kind.get(text, &[]), kind.get(text, &keys)) else {
        return;
    };
    let set = kind.set(text, &keys, &entry());
    let removed = kind.remove(text, &keys).expect("what can be read");
    if there.is_none() {
        assert_eq!(removed, text);
    }
    let nothing = || Plain::Object(Default::default());
    let says_nothing = before.as_ref().is_none_or(|all| *all == nothing());
    let there_before = before.as_ref().and_then(|all| all.get(servers)).cloned();
    let rest = without(before.unwrap_or_else(nothing), &keys);
    assert_eq!(
        without(
            kind.get(&removed, &[])
                .expect("still readable")
                .unwrap_or_else(nothing),
            &keys
        ),
        rest
    );
    // Something on the way that is no object.
    let Ok(set) = set else { return };
    let after = kind
        .get(&set, &[])
        .expect("still readable")
        .unwrap_or_default();
    assert_eq!(
        after.pointer(&format!("/{servers}/colibri/command")),
        Some(&"/bin/colibri-mcp".into())
    );
    assert_eq!(without(after, &keys), rest);
    assert_eq!(kind.set(&set, &keys, &entry()).as_deref(), Ok(&*set));
    // A carriage return alone is the end of a line to nobody.
    if there.is_none() && !says_nothing && !text.replace("\r\n", "").contains('\r') {
        assert!(is_kept(text, &set), "{text:?} became {set:?}");
        let back = kind.remove(&set, &keys).expect("what was set");
        // One round may lay out anew what stood in one line; the next changes nothing.
        let again = kind.set(&back, &keys, &entry()).expect("what could be set");
        let again = kind.remove(&again, &keys).expect("what was set");
        let (both, feeds) = (text.matches("\r\n").count(), text.matches('\n').count());
        let has_one_end = both == 0 || both == feeds;
        assert!(!has_one_end || back == again, "{back:?} became {again:?}");
        assert!(is_kept(&back, text), "{text:?} became {back:?}");
        // What is written as editors write it comes back as it was, but for an object that was
        // there and empty.
        let is_laid_out = text.lines().all(|line| {
            let opens = !line.contains('{') || line.ends_with('{');
            let closes = !line.contains('}') || matches!(line.trim_start(), "}" | "},");
            opens && closes && !line.is_empty() && line.trim_end() == line
        });
        let was_empty = there_before
            .as_ref()
            .is_some_and(|one| one.as_object().is_none_or(|one| one.is_empty()));
        if kind == FileFormat::Json
            && is_laid_out
            && has_one_end
            && !was_empty
            && text.trim_end().ends_with("\n}")
        {
            assert_eq!(back, text);
        }
    }
}
