//! The files of servers' skills: what is read of one has to be what its approved entry says.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::ServerHost;
use super::item::Item;
use crate::builtin::skill_front_matter;
use crate::relay::SkillFiles;
use crate::servers::HostedServer;
use colibri_peer::aside;
use colibri_policy::{SkillFacts, not_as_approved};
use colibri_protocol::skills::{self, SkillFile};
use colibri_protocol::{Failure, Feature};
use colibri_registry::sha256_hex;
use colibri_wire::Json;

/// A file or a directory of a server, with the skills that it belongs to.
pub(super) struct SkillContent {
    server: Arc<str>,
    uri: Box<str>,
    /// The innermost first.
    skills: Vec<Arc<Item>>,
}

impl SkillContent {
    /// The skills of a server to which a URI of its own belongs, as a file or as a directory;
    /// `None`: it belongs to none.
    pub(super) fn around(
        host: &ServerHost,
        server: &HostedServer,
        uri: &str,
    ) -> Option<Box<dyn SkillFiles>> {
        if server.offer.catalogue().of(Feature::Skill).is_empty() {
            return None;
        }
        let table = host.table();
        let within = format!("{uri}/.");
        let candidates = skills::enclosing(&within);
        let found = candidates.filter_map(|skill| {
            table
                .by_own_name(Feature::Skill, &server.spec.id, &skill)
                .cloned()
        });
        let skills: Vec<_> = found.collect();
        if skills.is_empty() {
            return None;
        }
        Some(Box::new(SkillContent {
            server: server.spec.id.clone(),
            uri: uri.into(),
            skills,
        }))
    }

    /// The files of a server's approved skills that are in or below a directory.
    pub(super) fn files_below(server: &HostedServer, directory: &str) -> Vec<String> {
        let (catalogue, judgement) = server.offer.definitions();
        let mut files = Vec::new();
        for skill in catalogue.of(Feature::Skill) {
            let is_near = skills::directory(&skill.name)
                .is_some_and(|root| root.starts_with(directory) || directory.starts_with(root));
            let denied = server.spec.rules.judge(Feature::Skill, &skill.name, b"");
            let denied = denied.failure(&server.spec.id, Feature::Skill);
            if !is_near
                || denied.is_some()
                || !judgement.of(Feature::Skill, &skill.name).is_approved()
            {
                continue;
            }
            let entry = Json::part(&skill.raw, 0..skill.raw.len());
            let own = entry.and_then(skills::files).into_iter().flatten();
            files.extend(
                own.map(|file| file.uri.into_owned())
                    .filter(|uri| uri.starts_with(directory)),
            );
        }
        files
    }

    /// The file as a skill lists it; `None` for a skill that lists none.
    fn file_of<'i>(&self, skill: &'i Item) -> Result<Option<SkillFile<'i>>, Failure> {
        let entry = Json::part(&skill.raw, 0..skill.raw.len());
        let Some(mut files) = entry.and_then(skills::files) else {
            return Ok(None);
        };
        let file = files.find(|file| file.uri == *self.uri);
        file.map(Some)
            .ok_or_else(|| self.refuse(skill, "it is not among the files of the skill"))
    }

    fn refuse(&self, skill: &Item, why: &str) -> Failure {
        not_as_approved(&self.server, &self.uri, &skill.own, why)
    }

    fn check_for(&self, skill: &Item, result: Json<'_>) -> Result<(), Failure> {
        let refuse = |why: &str| Err(self.refuse(skill, why));
        let file = self.file_of(skill)?;
        let is_main = *skill.own == *self.uri;
        if file.is_none() && !is_main {
            return Ok(());
        }
        if result.ambiguous(&["contents"]).is_some() {
            return refuse("the result has two members that can be read as \"contents\"");
        }
        let mut contents = result
            .get("contents")
            .into_iter()
            .flat_map(|contents| contents.elements());
        let (Some(content), None) = (contents.next(), contents.next()) else {
            return refuse("the server answered with other than one content");
        };
        if content.ambiguous(&["uri", "text", "blob"]).is_some()
            || !content
                .get("uri")
                .is_some_and(|uri| uri.is_string(&self.uri))
        {
            return refuse("the server answered with another file");
        }
        let bytes = match (content.get("text"), content.get("blob")) {
            (Some(text), None) => text.as_str().map(|text| text.into_owned().into_bytes()),
            (None, Some(blob)) => blob.as_str().and_then(|blob| BASE64.decode(&*blob).ok()),
            _ => None,
        };
        let Some(bytes) = bytes else {
            return refuse("its content cannot be read");
        };
        if let Some(file) = file {
            if bytes.len() as u64 != file.size {
                return refuse(&format!("it has {} bytes, not {}", bytes.len(), file.size));
            }
            if format!("sha256:{}", sha256_hex(&bytes)) != file.digest {
                return refuse("its SHA-256 is another");
            }
        }
        if is_main {
            let text = String::from_utf8(bytes).ok();
            let found = text.and_then(|text| skill_front_matter(&text).ok());
            let entry: Option<Map<String, Value>> = Json::part(&skill.raw, 0..skill.raw.len())
                .and_then(|entry| serde_json::from_str(entry.get("frontmatter")?.text()).ok());
            if found.is_none() || found != entry {
                return refuse("its front matter is not that of the entry");
            }
        }
        Ok(())
    }
}

impl SkillFiles for SkillContent {
    fn facts(&self, is_read: bool) -> Vec<SkillFacts<'_>> {
        let facts = self.skills.iter().map(|skill| SkillFacts {
            name: &skill.own,
            pin: skill.standing(),
            lacks_file: is_read && self.file_of(skill).is_err(),
        });
        facts.collect()
    }

    /// Checks the result of `resources/read`: size and SHA-256 of the file, and of a `SKILL.md` its
    /// front matter (SEP-2640, "Integrity and Verification").
    fn check_content(&self, result: Json<'_>) -> Result<(), Failure> {
        aside(|| {
            self.skills
                .iter()
                .try_for_each(|skill| self.check_for(skill, result))
        })
    }
}
