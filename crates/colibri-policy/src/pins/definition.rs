//! The content of a definition: in one form that is compared and hashed, place by place as an
//! operator reads it, and its invisible parts.

use std::collections::BTreeMap;

use colibri_api::json_depth;
use colibri_protocol::Feature;
use colibri_text::{first_hidden, visible};
use colibri_wire::json::{Json, JsonKind, JsonMember};

/// The most bytes of one definition; a longer one is never trusted on first use.
pub(super) const MAX_DEFINITION: usize = 1 << 20;
/// The most bytes of the lines that a definition is shown as. The place of each value is written
/// out, so one with long keys and many values would have more lines than memory holds: it is shown
/// as it stands.
const MAX_LINES: usize = 2 << 20;
/// The most places of a change that are kept.
const MAX_MEMBERS: usize = 100;
/// Deeper definitions are taken as they stand, without sorting.
const MAX_DEPTH: u32 = 128;

/// A definition with its keys sorted by how they are written, and without insignificant space.
/// Repeated keys stay, in their order; numbers and strings stay as written: two texts that some
/// reader could tell apart are never made equal.
pub fn canonical(raw: &[u8]) -> String {
    let Ok(json) = Json::parse(raw) else {
        return raw.escape_ascii().to_string();
    };
    if json_depth(json.text().as_bytes()) > MAX_DEPTH {
        return json.text().to_owned();
    }
    let mut out = String::with_capacity(raw.len());
    write_canonical(&mut out, json);
    out
}

/// The pinned part of a definition: all of it, or of a resource or a template what a model reads or
/// a host acts on. Files have a size and a time, which change without anybody meaning anything by
/// it. With it, whether it says more than that there is something of this name.
pub(super) fn what_is_pinned(feature: Feature, raw: &[u8]) -> (String, bool) {
    let json = match Json::parse(raw) {
        Ok(json)
            if matches!(feature, Feature::Resource | Feature::Template)
                && json_depth(json.text().as_bytes()) <= MAX_DEPTH =>
        {
            json
        }
        _ => return (canonical(raw), true),
    };
    let mut out = String::from("{");
    let mut says = false;
    let mut member = |key: &str, value: Json<'_>, skipped: &str| {
        out.push_str(if out.len() > 1 { "," } else { "" });
        out.push_str(&format!("\"{key}\":"));
        let kept = value
            .members()
            .filter(|member| member.key.as_str().as_deref() != Some(skipped));
        match value.kind() {
            JsonKind::Object => write_object(&mut out, kept.collect()),
            _ => write_canonical(&mut out, value),
        }
    };
    for key in [
        "_meta",
        "annotations",
        "description",
        "name",
        "title",
        "uri",
        "uriTemplate",
    ] {
        let Some(value) = json.get(key) else { continue };
        match key {
            // Which of two a host reads nobody knows.
            "_meta" if value.ambiguous(&["ui"]).is_some() => member(key, value, ""),
            "_meta" => match value.get("ui") {
                Some(ui) => member("_meta/ui", ui, ""),
                None => continue,
            },
            "annotations" => member(key, value, "lastModified"),
            _ => member(key, value, ""),
        }
        says |= !matches!(key, "name" | "uri" | "uriTemplate");
    }
    out.push('}');
    (out, says)
}

fn write_canonical(out: &mut String, json: Json<'_>) {
    match json.kind() {
        JsonKind::Object => write_object(out, json.members().collect()),
        JsonKind::Array => {
            out.push('[');
            for (index, element) in json.elements().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(out, element);
            }
            out.push(']');
        }
        _ => out.push_str(json.text()),
    }
}

fn write_object(out: &mut String, mut members: Vec<JsonMember<'_>>) {
    members.sort_by_key(|member| member.key.text());
    out.push('{');
    for (index, member) in members.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(member.key.text());
        out.push(':');
        write_canonical(out, member.value);
    }
    out.push('}');
}

/// The first hidden character of any key or string, written as it is or as an escape; a lone
/// surrogate counts as one.
pub(super) fn hidden_in(text: &str) -> Option<char> {
    let mut rest = text;
    while let Some(quote) = rest.find('"') {
        let inner = &rest[quote + 1..];
        let mut end = 0;
        let bytes = inner.as_bytes();
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let Some(literal) = rest.get(quote..=quote + 1 + end) else {
            break;
        };
        // Each string by itself: what stands beside a character decides whether it is ordinary
        // writing.
        let Ok(plain) = serde_json::from_str::<String>(literal) else {
            return Some(char::REPLACEMENT_CHARACTER);
        };
        if let Some(c) = first_hidden(&rest[..quote]).or_else(|| first_hidden(&plain)) {
            return Some(c);
        }
        rest = &rest[quote + 1 + end + 1..];
    }
    first_hidden(rest)
}

/// Every scalar (and empty container) of a canonical text with its place, as lines are shown.
fn lines(text: &str) -> Vec<(String, String)> {
    if text.is_empty() {
        return Vec::new();
    }
    if text.len() > MAX_DEFINITION {
        let what = format!(
            "{} bytes, more than can be shown; it cannot be accepted",
            text.len()
        );
        return vec![(String::new(), what)];
    }
    let (mut lines, mut room) = (Vec::new(), MAX_LINES);
    match Json::parse(text.as_bytes()) {
        Ok(json)
            if json_depth(text.as_bytes()) <= MAX_DEPTH
                && flatten(&mut lines, &mut room, json, "").is_some() =>
        {
            lines
        }
        _ => vec![(String::new(), visible(text).into_owned())],
    }
}

/// `None`: there is not so much room.
fn flatten(
    lines: &mut Vec<(String, String)>,
    room: &mut usize,
    json: Json<'_>,
    path: &str,
) -> Option<()> {
    let before = lines.len();
    *room = room.checked_sub(path.len())?;
    for (index, element) in json.elements().enumerate() {
        flatten(lines, room, element, &format!("{path}/{index}"))?;
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for member in json.members() {
        let key = shown_key(member.key);
        let times = seen.entry(key.clone()).or_default();
        *times += 1;
        // Which of two equal keys comes last matters to who reads only one.
        let again = if *times > 1 {
            format!("#{times}")
        } else {
            String::new()
        };
        flatten(lines, room, member.value, &format!("{path}/{key}{again}"))?;
    }
    if lines.len() == before {
        // A string as it reads, unless it cannot be read: escapes would hide what they stand for.
        let shown = match json.as_str() {
            // What looks like an escape in the text itself must not look like the character.
            Some(plain) => format!("\"{}\"", visible(&plain.replace('\\', "\\\\"))),
            None => visible(json.text()).into_owned(),
        };
        *room = room.checked_sub(shown.len())?;
        lines.push((path.to_owned(), shown));
    }
    Some(())
}

/// A key as a part of a place. One that could be taken for several parts, or for the number of an
/// element, is quoted: values at two places must not seem to be at one.
fn shown_key(key: Json<'_>) -> String {
    let Some(plain) = key.as_str() else {
        return visible(key.text()).into_owned();
    };
    let of_word =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'-');
    if plain.bytes().all(of_word) && !plain.bytes().all(|b| b.is_ascii_digit()) {
        return plain.into_owned();
    }
    format!(
        "\"{}\"",
        visible(&plain.replace('\\', "\\\\").replace('"', "\\\""))
    )
}

/// The places at which the two differ.
pub(super) fn compare(old: &str, new: &str) -> Vec<(String, char, String)> {
    let mut places: BTreeMap<String, [Vec<String>; 2]> = BTreeMap::new();
    for (side, text) in [old, new].into_iter().enumerate() {
        for (place, shown) in lines(text) {
            places.entry(place).or_default()[side].push(shown);
        }
    }
    let mut found = Vec::new();
    for (place, [old, new]) in places {
        if old != new {
            found.extend(old.into_iter().map(|shown| (place.clone(), '-', shown)));
            found.extend(new.into_iter().map(|shown| (place.clone(), '+', shown)));
        }
    }
    found
}

pub(super) fn difference(old: &str, new: &str) -> String {
    let lines = compare(old, new).into_iter();
    let shown: String = lines
        .map(|(place, sign, value)| format!("{sign} {place}: {value}\n"))
        .collect();
    if shown.is_empty() {
        // The same values, written in another way.
        return format!("- {}\n+ {}\n", visible(old), visible(new));
    }
    shown
}

pub(super) fn changed_members(old: &str, new: &str) -> Vec<String> {
    let mut members: Vec<String> = compare(old, new)
        .into_iter()
        .map(|(place, _, _)| {
            if place.is_empty() {
                "the whole".to_owned()
            } else {
                place.chars().take(100).collect()
            }
        })
        .collect();
    members.dedup();
    members.truncate(MAX_MEMBERS);
    if members.is_empty() {
        members.push("how it is written".to_owned());
    }
    members
}
