//! The state of the whole trail, and the records that carry it: the first of each segment, and
//! seals.

use std::time::SystemTime;

use colibri_text::push_hex;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::line::{FORMAT, GENESIS, SegmentLine};
use crate::merkle::{Frontier, Hash, HexHash, from_hex, to_hex};
use crate::record::{begin, number, text};
use crate::segment::SegmentName;
use crate::signed_note::Signer;
use crate::time::write_timestamp;

/// The state of a trail after some record: the chain's head, and the tree over all records.
#[derive(Clone, Debug)]
pub(crate) struct TrailState {
    /// The hash of the last record.
    pub(crate) head: HexHash,
    /// The tree over all of them.
    pub(crate) tree: Frontier,
}

impl Default for TrailState {
    fn default() -> Self {
        Self {
            head: GENESIS,
            tree: Frontier::default(),
        }
    }
}

impl TrailState {
    /// The number of records.
    pub(crate) fn records(&self) -> u64 {
        self.tree.size()
    }

    /// Appends a record, given by its hash.
    pub(crate) fn push(&mut self, leaf: Hash) {
        self.head = to_hex(&leaf);
        self.tree.push(leaf);
    }
}

/// The bytes behind the last counted record of a segment that was not ended by a seal. It stays in
/// the file; the `recovered` record that opens the next segment names it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Torn {
    /// The segment's name.
    pub(crate) segment: String,
    /// The end of its counted records, bytes.
    pub(crate) offset: u64,
    /// The number of bytes that follow and do not count.
    pub(crate) length: u64,
}

/// The records that carry the state of the trail: `open` and `recovered` as the first of a segment,
/// `seal`. All of them speak of the records before them.
#[derive(Debug, Deserialize)]
pub(crate) struct StateRecord {
    pub(crate) tree_size: u64,
    pub(crate) root: String,
    pub(crate) head: String,
    peaks: Vec<String>,
    /// Of a seal: the signed checkpoint of root and size.
    pub(crate) checkpoint: Option<String>,
    /// Of the first record of a segment: the trail's format.
    pub(crate) format: Option<u64>,
    /// Of the same: the name of the segment before it.
    pub(crate) previous: Option<String>,
    /// Of a `recovered` record: what does not count.
    #[serde(default, deserialize_with = "objects")]
    pub(crate) torn: Vec<Torn>,
}

/// The deepest nesting of a JSON object, itself counted. Serde skips what it does not know at any
/// depth, where other readers stop at one of their own.
const MAX_DEPTH: usize = 64;

/// Reads a JSON object nested at most 64 deep. Serde would take an array of its values, too.
pub(crate) fn object<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(serde_json::Error::custom("not a JSON object"));
    }
    if is_deeper(text, MAX_DEPTH) {
        return Err(serde_json::Error::custom("nested deeper than 64 levels"));
    }
    serde_json::from_str(text)
}

/// True if the objects and arrays of a JSON text are nested deeper than this.
fn is_deeper(text: &str, most: usize) -> bool {
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'{' | b'[' if !is_string => depth += 1,
            b'}' | b']' if !is_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > most {
            return true;
        }
    }
    false
}

fn objects<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let entries = Vec::<&RawValue>::deserialize(deserializer)?;
    let read = entries.into_iter().map(|entry| object(entry.get()));
    read.collect::<Result<_, _>>().map_err(D::Error::custom)
}

impl StateRecord {
    /// Reads one of these records from its bytes. `None` where it is another kind of record.
    pub(crate) fn parse(line: &SegmentLine<'_>) -> Option<Self> {
        // serde_json looks only at the text that it keeps: JSON is UTF-8 throughout.
        let rec = carries_state(line.kind).then(|| std::str::from_utf8(line.rec).ok())??;
        object(rec).ok()
    }

    /// The tree it carries, if its root is the one it names.
    pub(crate) fn tree(&self) -> Option<Frontier> {
        let peaks = self.peaks.iter().map(|peak| from_hex(peak.as_bytes()));
        let tree = Frontier::resume(self.tree_size, &peaks.collect::<Option<Vec<_>>>()?)?;
        (to_hex(&tree.root()) == self.root.as_bytes()).then_some(tree)
    }
}

/// True if records of this kind carry the state of the trail.
pub(crate) fn carries_state(kind: &str) -> bool {
    opens_segment(kind) || kind == "seal"
}

/// True if records of this kind are the first of a segment.
pub(crate) fn opens_segment(kind: &str) -> bool {
    matches!(kind, "open" | "recovered")
}

/// Writes the fields that these records share.
fn push_state(out: &mut Vec<u8>, state: &TrailState) {
    number(out, b",\"tree_size\":", state.records());
    out.extend_from_slice(b",\"root\":\"");
    push_hex(out, &state.tree.root());
    out.extend_from_slice(b"\",\"head\":\"");
    out.extend_from_slice(&state.head);
    out.extend_from_slice(b"\",\"peaks\":[");
    for (i, peak) in state.tree.peaks().iter().enumerate() {
        out.extend_from_slice(if i == 0 { b"\"" } else { b",\"" });
        push_hex(out, peak);
        out.push(b'"');
    }
    out.push(b']');
}

/// Writes the first record of a segment.
pub(crate) fn push_opening(
    out: &mut Vec<u8>,
    time: SystemTime,
    state: &TrailState,
    previous: Option<SegmentName>,
    torn: &[Torn],
) {
    begin(
        out,
        state.records(),
        if torn.is_empty() { "open" } else { "recovered" },
    );
    write_timestamp(out, time);
    number(out, b",\"format\":", FORMAT);
    if let Some(previous) = previous {
        text(out, b",\"previous\":", &previous.to_string());
    }
    if !torn.is_empty() {
        out.extend_from_slice(b",\"torn\":[");
        for (i, torn) in torn.iter().enumerate() {
            text(
                out,
                if i == 0 {
                    b"{\"segment\":"
                } else {
                    b",{\"segment\":"
                },
                &torn.segment,
            );
            number(out, b",\"offset\":", torn.offset);
            number(out, b",\"length\":", torn.length);
            out.push(b'}');
        }
        out.push(b']');
    }
    push_state(out, state);
    out.push(b'}');
}

/// Writes a seal over all records until now, with a checkpoint by `signer`.
pub(crate) fn push_seal(
    out: &mut Vec<u8>,
    time: SystemTime,
    state: &TrailState,
    reason: &str,
    signer: &Signer,
) {
    begin(out, state.records(), "seal");
    write_timestamp(out, time);
    text(out, b",\"reason\":", reason);
    push_state(out, state);
    text(
        out,
        b",\"checkpoint\":",
        &signer.checkpoint(state.records(), &state.tree.root()),
    );
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::push_line;

    #[test]
    fn what_is_torn_is_said_in_objects() {
        let torn = |entry: &str| {
            let text =
                format!(r#"{{"tree_size":0,"root":"","head":"","peaks":[],"torn":[{entry}]}}"#);
            serde_json::from_str::<StateRecord>(&text).is_ok()
        };
        assert!(torn("") && torn(r#" {"segment":"a","offset":1,"length":2,"more":[]} "#));
        for entry in [
            r#"["a",1,2]"#,
            r#"[["segment","a"],["offset",1],["length",2]]"#,
            r#"{"segment":"a","offset":1,"length":2,"length":2}"#,
            "null",
        ] {
            assert!(!torn(entry), "{entry}");
        }
    }

    #[test]
    fn a_state_is_json_of_its_fields_once_each() {
        let mut sound = Vec::new();
        push_opening(
            &mut sound,
            SystemTime::UNIX_EPOCH,
            &TrailState::default(),
            None,
            &[],
        );
        let tells = |rec: &[u8]| {
            let mut line = Vec::new();
            push_line(&mut line, &mut GENESIS.clone(), |out| {
                out.extend_from_slice(rec)
            });
            let line = SegmentLine::parse(line.strip_suffix(b"\n").unwrap()).unwrap();
            StateRecord::parse(&line)
                .and_then(|record| record.tree())
                .is_some()
        };
        assert!(tells(&sound));
        let text = std::str::from_utf8(&sound).unwrap();
        assert!(tells(text.replace("\"format\":2,", "").as_bytes()));
        for (from, to) in [
            ("00:00:00", "00:00:\\x"),
            ("\"peaks\":[]", "\"peaks\":[],\"peaks\":[]"),
            ("\"tree_size\":0", "\"tree_size\":0.0"),
            ("\"tree_size\":0", "\"tree_size\":1"),
            ("\"format\":2", "\"format\":\"2\""),
            ("\"head\":", "\"Head\":"),
        ] {
            assert!(!tells(text.replacen(from, to, 1).as_bytes()), "{to}");
        }
        // What is not known may be there, nested as deep as every reader follows.
        for (depth, is_sound) in [(63, true), (64, false), (2_000, false)] {
            let more = format!(
                "\"more\":{}\"[\\\"[\"{},\"format\":",
                "[".repeat(depth),
                "]".repeat(depth)
            );
            assert_eq!(
                tells(text.replacen("\"format\":", &more, 1).as_bytes()),
                is_sound,
                "{depth}"
            );
        }
        let at = text.find("00:00:00").unwrap();
        sound[at] = 0xff;
        assert!(!tells(&sound), "not UTF-8");
    }
}
