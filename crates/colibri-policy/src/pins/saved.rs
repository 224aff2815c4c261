//! The file of pins.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use colibri_api::PinSubject as Subject;
use colibri_files::replace_file;
use colibri_protocol::Feature;
use colibri_registry::sha256_hex;
use colibri_text::visible;
use serde::{Deserialize, Serialize};

use super::pin::PinError;
use crate::file;

/// The most bytes of a pins file.
const MAX_FILE: usize = 64 << 20;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PinFile {
    pub(super) servers: BTreeMap<String, ServerPins>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerPins {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instructions: Option<SavedPin>,
    #[serde(default)]
    pub(super) tools: BTreeMap<String, SavedPin>,
    // A file without these is one that an older daemon can read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) prompts: BTreeMap<String, SavedPin>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) resources: BTreeMap<String, SavedPin>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) templates: BTreeMap<String, SavedPin>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) skills: BTreeMap<String, SavedPin>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedPin {
    pub(super) sha256: String,
    /// The definition, keys sorted; empty for a server that had no instructions.
    pub(super) text: String,
    pub(super) by: String,
    /// Seconds since the epoch.
    pub(super) at: u64,
}

impl SavedPin {
    pub(super) fn new(text: String, by: &str) -> SavedPin {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        SavedPin {
            sha256: sha256_hex(&text),
            text,
            by: by.to_owned(),
            at: now.map(|since| since.as_secs()).unwrap_or_default(),
        }
    }
}

impl ServerPins {
    pub(super) fn get(&self, subject: &Subject) -> Option<&SavedPin> {
        match subject {
            Subject::Instructions => self.instructions.as_ref(),
            Subject::Tool(name) => self.tools.get(name),
            Subject::Prompt(name) => self.prompts.get(name),
            Subject::Resource(uri) => self.resources.get(uri),
            Subject::Template(template) => self.templates.get(template),
            Subject::Skill(uri) => self.skills.get(uri),
        }
    }

    /// The pins of a feature, by the server's own names.
    pub(super) fn of(&self, feature: Feature) -> &BTreeMap<String, SavedPin> {
        match feature {
            Feature::Tool => &self.tools,
            Feature::Prompt => &self.prompts,
            Feature::Resource => &self.resources,
            Feature::Template => &self.templates,
            Feature::Skill => &self.skills,
        }
    }

    /// The same, to be changed.
    pub(super) fn of_mut(&mut self, feature: Feature) -> &mut BTreeMap<String, SavedPin> {
        match feature {
            Feature::Tool => &mut self.tools,
            Feature::Prompt => &mut self.prompts,
            Feature::Resource => &mut self.resources,
            Feature::Template => &mut self.templates,
            Feature::Skill => &mut self.skills,
        }
    }

    /// Every pin, and what of.
    pub(super) fn all(&self) -> impl Iterator<Item = (Subject, &SavedPin)> {
        let instructions = self
            .instructions
            .iter()
            .map(|pin| (Subject::Instructions, pin));
        instructions.chain(Feature::ALL.into_iter().flat_map(|feature| {
            let pins = self.of(feature).iter();
            pins.map(move |(name, pin)| (subject(feature, name), pin))
        }))
    }

    pub(super) fn put(&mut self, subject: Subject, pin: SavedPin) {
        match subject {
            Subject::Instructions => self.instructions = Some(pin),
            Subject::Tool(name) => drop(self.tools.insert(name, pin)),
            Subject::Prompt(name) => drop(self.prompts.insert(name, pin)),
            Subject::Resource(uri) => drop(self.resources.insert(uri, pin)),
            Subject::Template(template) => drop(self.templates.insert(template, pin)),
            Subject::Skill(uri) => drop(self.skills.insert(uri, pin)),
        }
    }
}

/// The subject of a definition's pin.
pub(super) fn subject(feature: Feature, name: &str) -> Subject {
    let name = name.to_owned();
    match feature {
        Feature::Tool => Subject::Tool(name),
        Feature::Prompt => Subject::Prompt(name),
        Feature::Resource => Subject::Resource(name),
        Feature::Template => Subject::Template(name),
        Feature::Skill => Subject::Skill(name),
    }
}

pub(super) fn load(path: &Path) -> Result<Option<PinFile>, PinError> {
    let Some(file::File { content: bytes, .. }) = file::read(path, MAX_FILE, false)? else {
        return Ok(None);
    };
    let content = |why: String| PinError::Content {
        path: path.to_owned(),
        why,
    };
    if bytes.len() > MAX_FILE {
        return Err(content("it is larger than 64 MiB".to_owned()));
    }
    let file: PinFile =
        serde_json::from_slice(&bytes).map_err(|error| content(error.to_string()))?;
    for (server, pins) in &file.servers {
        for (_, pin) in pins.all() {
            if sha256_hex(&pin.text) != pin.sha256 {
                return Err(content(format!(
                    "a pin of server {} is not the hash of its text",
                    visible(server)
                )));
            }
        }
    }
    Ok(Some(file))
}

pub(super) fn save(path: &Path, pins: &PinFile) -> Result<(), PinError> {
    let failed = |error| PinError::Write {
        path: path.to_owned(),
        error,
    };
    let text = serde_json::to_vec_pretty(pins).map_err(|error| failed(error.into()))?;
    if text.len() > MAX_FILE {
        // It could not be read again.
        return Err(failed(std::io::Error::other(
            "it would be larger than 64 MiB",
        )));
    }
    replace_file(path, &text, 0o600).map_err(failed)
}
