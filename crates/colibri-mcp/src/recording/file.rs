//! The form of a recording, and its messages.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::failure::CommandError;
use colibri_text::hex;

/// The value of `format` in the head of a recording.
pub(super) const FORMAT: &str = "colibri-mcp/recording/1";

/// Most bytes of a recording.
pub(super) const MAX_BYTES: usize = 256 << 20;

/// The member of `tracestate` with the digest of a recording.
pub(super) const SEAL: &str = "colibri-recording";

/// The head of a recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordingHead {
    pub(super) format: String,
    /// The server's id in the registry.
    pub(super) server: String,
    /// The protocol version of the session.
    pub(super) version: String,
    /// The recorder's process, as the trail names it.
    pub(super) pid: u32,
    /// The name of the trail's key; missing where the recorder may not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trail: Option<String>,
    /// The result of `server/discover` when the recording began.
    pub(super) discover: Box<RawValue>,
    /// The result of `tools/list` when the recording ended.
    pub(super) tools: Box<RawValue>,
}

/// A request, and what came of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedPair {
    /// The number of the trail's `enter` record; missing where the recorder may not read the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) record: Option<u64>,
    /// The part of the answer whose digest the `exit` record has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest_of: Option<AnswerPart>,
    pub(super) request: Box<RawValue>,
    /// Notifications and requests of the server between the request and its answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) before: Vec<Box<RawValue>>,
    /// The answer; missing where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<Box<RawValue>>,
}

/// A part of an answer. A result that Colibri translated for the client has another digest than
/// either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerPart {
    /// Its result or error.
    Result,
    /// All of it.
    Message,
}

impl AnswerPart {
    pub(super) const ALL: [Self; 2] = [Self::Result, Self::Message];

    /// The bytes of the part.
    pub(super) fn of(self, answer: &RawValue) -> Option<&str> {
        match self {
            Self::Message => Some(answer.get()),
            Self::Result => {
                let message: RecordedMessage<'_> = serde_json::from_str(answer.get()).ok()?;
                message.result.or(message.error).map(RawValue::get)
            }
        }
    }
}

/// The last line of a recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordingEnd {
    /// The number of pairs.
    pairs: usize,
    /// The SHA-256 of all bytes before this line, hex.
    sha256: String,
}

/// A JSON-RPC message, as far as it is looked at.
#[derive(Debug, Deserialize)]
pub(super) struct RecordedMessage<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) params: Value,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl RecordedMessage<'_> {
    /// The token under which progress of this request, or this progress, is reported.
    pub(super) fn progress_token(&self) -> Option<&Value> {
        let direct = self.params.get("progressToken");
        direct.or_else(|| self.params.pointer("/_meta/progressToken"))
    }
}

/// The reason for which a file is no recording.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordingError {
    /// It does not end as one.
    #[error("the recording is cut: its last line is not an end")]
    Cut,
    /// Its end is of other lines.
    #[error("the recording was edited, or is cut: its lines are not those of its end")]
    Edited,
    /// It is of another format.
    #[error("not a recording of format {FORMAT}")]
    Format,
    /// Its lines are something else.
    #[error("not a recording: {0}")]
    Form(#[from] serde_json::Error),
}

/// A whole recording.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) head: RecordingHead,
    pub(super) pairs: Vec<RecordedPair>,
    pub(super) sha256: String,
}

impl Recording {
    /// The text of a recording, and its digest.
    pub(super) fn write(
        head: &RecordingHead,
        pairs: &[RecordedPair],
    ) -> serde_json::Result<(String, String)> {
        let mut text = serde_json::to_string(head)? + "\n";
        for pair in pairs {
            text.push_str(&serde_json::to_string(pair)?);
            text.push('\n');
        }
        let sha256 = hex(&Sha256::digest(&text));
        let end = RecordingEnd {
            pairs: pairs.len(),
            sha256: sha256.clone(),
        };
        text.push_str(&serde_json::to_string(&end)?);
        text.push('\n');
        Ok((text, sha256))
    }

    /// Reads a recording, and checks that it is whole.
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let mut text = String::new();
        let opened = File::open(path)
            .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text));
        opened.map_err(|source| CommandError::File {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|what| CommandError::Data(format!("{}: {what}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, RecordingError> {
        let body = text.strip_suffix('\n').ok_or(RecordingError::Cut)?;
        let at = body.rfind('\n').ok_or(RecordingError::Cut)? + 1;
        let end: RecordingEnd =
            serde_json::from_str(&body[at..]).map_err(|_| RecordingError::Cut)?;
        let sha256 = hex(&Sha256::digest(&text[..at]));
        if end.sha256 != sha256 {
            return Err(RecordingError::Edited);
        }
        let mut lines = text[..at].lines();
        let head: RecordingHead = serde_json::from_str(lines.next().unwrap_or_default())?;
        let pairs: Vec<RecordedPair> = lines
            .map(serde_json::from_str)
            .collect::<serde_json::Result<_>>()?;
        match head.format == FORMAT {
            true if pairs.len() == end.pairs => Ok(Self {
                head,
                pairs,
                sha256,
            }),
            true => Err(RecordingError::Edited),
            false => Err(RecordingError::Format),
        }
    }
}

/// The tools of a list, by name, to compare definitions with.
pub(super) fn tools_of(list: &RawValue) -> io::Result<Vec<(String, Value)>> {
    let list: Value = serde_json::from_str(list.get())?;
    let tools = list
        .get("tools")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let name = |tool: &Value| {
        tool.get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Ok(tools.into_iter().map(|tool| (name(&tool), tool)).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    /// A recording of these pairs: requests, and results of theirs.
    pub(in crate::recording) fn recording(
        version: &str,
        pairs: &[(&str, &[&str], &str)],
    ) -> Recording {
        let head = RecordingHead {
            format: FORMAT.to_owned(),
            server: "demo".to_owned(),
            version: version.to_owned(),
            pid: 7,
            trail: None,
            discover: raw("{}"),
            tools: raw(r#"{"tools":[{"name":"echo"}]}"#),
        };
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(request, before, answer)| RecordedPair {
                record: None,
                digest_of: None,
                request: raw(request),
                before: before.iter().map(|text| raw(text)).collect(),
                answer: (!answer.is_empty()).then(|| raw(answer)),
            })
            .collect();
        let (text, _) = Recording::write(&head, &pairs).unwrap();
        Recording::parse(&text).unwrap()
    }

    #[test]
    fn a_recording_that_was_edited_or_cut_is_none() {
        let sound = recording(
            "2025-06-18",
            &[(
                r#"{"id":1,"method":"ping"}"#,
                &[r#"{"method":"x"}"#],
                r#"{"id":1,"result":{"a":"é"}}"#,
            )],
        );
        let (text, _) = Recording::write(&sound.head, &sound.pairs).unwrap();
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert!(Recording::parse(&text[..at]).is_err(), "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(edited) = String::from_utf8(bytes) {
                assert!(Recording::parse(&edited).is_err(), "edited at {at}");
            }
        }
        let lines: Vec<&str> = text.lines().collect();
        for without in 0..lines.len() {
            let mut rest = lines.clone();
            rest.remove(without);
            assert!(Recording::parse(&(rest.join("\n") + "\n")).is_err());
        }
    }
}
