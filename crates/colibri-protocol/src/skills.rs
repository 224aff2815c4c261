//! The skills extension (SEP-2640, `io.modelcontextprotocol/skills`): entries of skills, their
//! files, and directories.
//!
//! A skill is known by the URI of its `SKILL.md`. Its entry lists every file with size and SHA-256,
//! or says that its content is made anew at each read (`"dynamic"`).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use super::answer::{META_SERVER_INFO, SKILLS_EXTENSION, TTL_MS, server_info};
use super::version::Version;
use colibri_text::brief;
use colibri_wire::Json;
use colibri_wire::json::{JsonKind, string};

/// The extension's name in `capabilities.extensions`.
pub const EXTENSION: &str = SKILLS_EXTENSION;
/// The file that makes a directory a skill.
pub const FILE: &str = "SKILL.md";
/// The beginning of the URIs of Colibri's own skills. They win over those of a server with that id.
pub const OWN: &str = "skill://colibri/";
/// The type of a resource that is a directory.
const DIRECTORY: &str = "inode/directory";
/// The most files of a skill, and the most bytes of them together ("Limits").
pub const MAX_FILES: usize = 512;
/// See [`MAX_FILES`].
pub const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The most characters of a skill's name (Agent Skills, "name field").
const MAX_NAME: usize = 64;
/// The most directories above a file that are looked at for the skill it belongs to.
const MAX_DEPTH: usize = 32;

/// The fault of an entry: it continues the sentence that names the skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SkillFault(String);

/// A file of a skill, as its entry has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile<'a> {
    /// Its URI.
    pub uri: Cow<'a, str>,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: Cow<'a, str>,
    /// Its length in bytes.
    pub size: u64,
}

/// True if a name is one that a skill may have: 1 to 64 of a-z, 0-9 and -, no - at an end or beside
/// another.
pub fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(legal)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// The URI of the directory of a skill's `SKILL.md`, without a slash at its end.
pub fn directory(skill: &str) -> Option<&str> {
    skill.strip_suffix(FILE)?.strip_suffix('/')
}

/// The URIs that the `SKILL.md` of a skill could have to which this file belongs, the nearest
/// first.
pub fn enclosing(file: &str) -> impl Iterator<Item = String> {
    let parents = file.rmatch_indices('/').map(|(at, _)| &file[..at]);
    let parents = parents
        .take(MAX_DEPTH)
        .filter(|parent| !parent.ends_with(['/', ':']));
    parents.map(|parent| format!("{parent}/{FILE}"))
}

/// The files of an entry that passed `check_entry`; `None` for a skill without stable content.
pub fn files(entry: Json<'_>) -> Option<impl Iterator<Item = SkillFile<'_>>> {
    let resources = entry.get("resources")?;
    (resources.kind() == JsonKind::Array).then(|| resources.elements().filter_map(read_file))
}

fn read_file(file: Json<'_>) -> Option<SkillFile<'_>> {
    Some(SkillFile {
        uri: file.get("uri")?.as_str()?,
        digest: file.get("digest")?.as_str()?,
        size: file.get("size")?.as_u64()?,
    })
}

/// Checks an entry whose `uri` is `uri` ("Skill Entries").
///
/// # Errors
/// The first fault, which continues the sentence that names the skill.
pub(crate) fn check_entry(uri: &str, entry: Json<'_>) -> Result<(), SkillFault> {
    let Some(directory) = directory(uri) else {
        return Err(SkillFault(format!("its URI does not end in /{FILE}")));
    };
    let frontmatter = entry.get("frontmatter");
    let field = |key: &str| {
        frontmatter
            .and_then(|all| all.get(key)?.as_str())
            .unwrap_or_default()
    };
    if let Some(key) =
        frontmatter.and_then(|all| all.ambiguous(&["name", "description", "allowed-tools"]))
    {
        return Err(SkillFault(format!(
            "two members of its frontmatter can be read as \"{key}\""
        )));
    }
    let name = field("name");
    if field("description").is_empty() || !is_name(&name) {
        return Err(SkillFault(
            "its frontmatter has no name or no description that a skill may have".to_owned(),
        ));
    }
    if directory.rsplit('/').next() != Some(&name) {
        return Err(SkillFault(
            "its directory is not called as its frontmatter says".to_owned(),
        ));
    }
    let resources = entry.get("resources");
    if resources.is_some_and(|resources| resources.is_string("dynamic")) {
        return Ok(());
    }
    let Some(resources) = resources.filter(|resources| resources.kind() == JsonKind::Array) else {
        return Err(SkillFault(
            "its resources are neither an array nor \"dynamic\"".to_owned(),
        ));
    };
    let (mut seen, mut bytes) = (HashSet::new(), 0_u64);
    for file in resources.elements() {
        if file.ambiguous(&["uri", "digest", "size"]).is_some() {
            return Err(SkillFault(
                "one of its files says its uri, digest or size twice".to_owned(),
            ));
        }
        let Some(file) = read_file(file) else {
            return Err(SkillFault(
                "one of its files has no uri, digest or size".to_owned(),
            ));
        };
        let shown = || brief(&file.uri, 80);
        let within = file
            .uri
            .strip_prefix(directory)
            .and_then(|rest| rest.strip_prefix('/'));
        let is_safe = |rest: &str| rest.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !within.is_some_and(is_safe) {
            return Err(SkillFault(format!("{} is not in its directory", shown())));
        }
        if !is_digest(&file.digest) {
            return Err(SkillFault(format!(
                "the digest of {} is not sha256: and 64 digits",
                shown()
            )));
        }
        bytes = bytes.saturating_add(file.size);
        if seen.len() == MAX_FILES || bytes > MAX_BYTES {
            return Err(SkillFault(format!(
                "it has more than {MAX_FILES} files, or {MAX_BYTES} bytes"
            )));
        }
        if !seen.insert(file.uri.clone()) {
            return Err(SkillFault(format!("{} is listed twice", shown())));
        }
    }
    match seen.contains(uri) {
        true => Ok(()),
        false => Err(SkillFault(format!("its resources do not list its {FILE}"))),
    }
}

fn is_digest(digest: &str) -> bool {
    let digits = digest.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64
        && digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Reads the entry in the result of `skills/get` for a skill.
///
/// # Errors
/// The result is no entry of that skill.
pub fn read_entry<'a>(result: Json<'a>, uri: &str) -> Result<Json<'a>, SkillFault> {
    let entry = result.get("skill").filter(Json::is_object);
    let entry = entry.filter(|_| result.ambiguous(&["skill"]).is_none());
    let entry = entry
        .ok_or_else(|| SkillFault("the result has no \"skill\" that is an object".to_owned()))?;
    if let Some(key) = entry.ambiguous(&["uri", "frontmatter", "resources", "_meta"]) {
        return Err(SkillFault(format!(
            "two members of the skill can be read as \"{key}\""
        )));
    }
    if !entry.get("uri").is_some_and(|named| named.is_string(uri)) {
        return Err(SkillFault("the result is about another skill".to_owned()));
    }
    check_entry(uri, entry).map(|()| entry)
}

/// The result of `skills/get`.
pub fn get_result(entry: &str, ttl_ms: Option<u64>, version: Version) -> Vec<u8> {
    let ttl_ms = ttl_ms.unwrap_or(TTL_MS).min(TTL_MS);
    let more = format!(",\"ttlMs\":{ttl_ms},\"cacheScope\":\"private\"");
    own_result(&format!("\"skill\":{entry}"), &more, version)
}

/// The result of `resources/directory/read`: the direct children of a directory, of which these
/// files are in it or below. `None` if there are none.
pub fn directory_result<'f>(
    directory: &str,
    files: impl IntoIterator<Item = &'f str>,
    exposed: impl Fn(&str) -> String,
    version: Version,
) -> Option<Vec<u8>> {
    let mut children: BTreeMap<String, &str> = BTreeMap::new();
    for file in files {
        let below = file
            .strip_prefix(directory)
            .and_then(|rest| rest.strip_prefix('/'));
        let Some(below) = below else { continue };
        let (name, kind) = match below.split_once('/') {
            Some((name, _)) => (name, DIRECTORY),
            None => (below, mime_type(below)),
        };
        children.insert(name.to_owned(), kind);
    }
    if children.is_empty() {
        return None;
    }
    let children = children.iter().map(|(name, kind)| {
        let uri = exposed(&format!("{directory}/{name}"));
        resource(&uri, name, None, kind)
    });
    let children = children.collect::<Vec<_>>().join(",");
    Some(own_result(
        &format!("\"resources\":[{children}]"),
        "",
        version,
    ))
}

/// A `Resource`, as lists have it.
pub fn resource(uri: &str, name: &str, description: Option<&str>, mime_type: &str) -> String {
    let description = description.map(|text| format!(",\"description\":{}", string(text)));
    format!(
        "{{\"uri\":{},\"name\":{}{},\"mimeType\":{}}}",
        string(uri),
        string(name),
        description.unwrap_or_default(),
        string(mime_type)
    )
}

/// The result of `resources/read` for a file of a skill of Colibri's own. `base64` is its content
/// where it is no text.
pub fn read_result(uri: &str, content: Result<&str, &str>, version: Version) -> Vec<u8> {
    let (key, content) = match content {
        Ok(text) => ("text", text),
        Err(base64) => ("blob", base64),
    };
    let contents = format!(
        "\"contents\":[{{\"uri\":{},\"mimeType\":{},\"{key}\":{}}}]",
        string(uri),
        string(mime_type(uri)),
        string(content)
    );
    own_result(
        &contents,
        ",\"ttlMs\":0,\"cacheScope\":\"private\"",
        version,
    )
}

fn own_result(members: &str, of_modern: &str, version: Version) -> Vec<u8> {
    match version.is_modern() {
        true => format!(
            "{{\"resultType\":\"complete\",{members}{of_modern},\"_meta\":{{\"{META_SERVER_INFO}\":{}}}}}",
            server_info(version)
        ),
        false => format!("{{{members}}}"),
    }
    .into_bytes()
}

/// The type of a file by the end of its name.
fn mime_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "md" => "text/markdown",
        "json" => "application/json",
        "html" => "text/html",
        "py" => "text/x-python",
        "sh" => "text/x-shellscript",
        "csv" => "text/csv",
        "txt" | "toml" | "yaml" | "yml" | "js" | "ts" | "rs" => "text/plain",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "svg" => "image/svg+xml",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::json;
    use crate::version::Version::*;
    use serde_json::{Value, json};

    const URI: &str = "skill://a/pdf/SKILL.md";

    fn entry() -> Value {
        let digest = format!("sha256:{}", "0a".repeat(32));
        json!({
            "uri": URI,
            "frontmatter": { "name": "pdf", "description": "Reads" },
            "resources": [
                { "uri": URI, "digest": digest, "size": 3 },
                { "uri": "skill://a/pdf/x/y.md", "digest": digest, "size": 4 },
            ],
        })
    }

    fn check(entry: &Value) -> Result<(), SkillFault> {
        check_entry(entry["uri"].as_str().unwrap(), json(&entry.to_string()))
    }

    #[test]
    fn an_entry_is_whole_or_refused() {
        assert_eq!(check(&entry()), Ok(()));
        let mut dynamic = entry();
        dynamic["resources"] = json!("dynamic");
        assert_eq!(check(&dynamic), Ok(()));
        let digest = entry()["resources"][0]["digest"].clone();
        for (pointer, value, why) in [
            ("/uri", json!("skill://a/pdf"), "does not end in"),
            ("/frontmatter/name", json!("word"), "not called as"),
            ("/frontmatter/name", json!("-pdf"), "no name"),
            (
                "/frontmatter/description",
                json!(""),
                "no name or no description",
            ),
            ("/resources", json!("Dynamic"), "neither"),
            ("/resources", Value::Null, "neither"),
            ("/resources", json!([]), "do not list"),
            (
                "/resources/1",
                json!({ "uri": "x" }),
                "no uri, digest or size",
            ),
            ("/resources/1/uri", json!(URI), "listed twice"),
            (
                "/resources/1/uri",
                json!("skill://a/pdfx"),
                "not in its directory",
            ),
            (
                "/resources/1/uri",
                json!("skill://a/pdf/../b"),
                "not in its directory",
            ),
            (
                "/resources/1/uri",
                json!("skill://a/pdf//b"),
                "not in its directory",
            ),
            ("/resources/1/digest", json!("sha256:00"), "64 digits"),
            (
                "/resources/1/digest",
                json!(digest.as_str().unwrap().to_uppercase()),
                "64 digits",
            ),
            ("/resources/1/size", json!(-1), "no uri, digest or size"),
            ("/resources/1/size", json!(MAX_BYTES), "more than"),
        ] {
            let mut wrong = entry();
            *wrong.pointer_mut(pointer).unwrap() = value;
            let found = check(&wrong).unwrap_err().to_string();
            assert!(found.contains(why), "{pointer}: {found}");
        }
        let many: Vec<Value> = (0..=MAX_FILES)
            .map(|at| json!({ "uri": format!("skill://a/pdf/{at}"), "digest": digest, "size": 0 }))
            .collect();
        let mut wrong = entry();
        wrong["resources"] = json!(many);
        assert!(check(&wrong).unwrap_err().to_string().contains("more than"));
        let twice = entry()
            .to_string()
            .replace("\"size\":4", "\"size\":4,\"SIZE\":5");
        assert!(
            check_entry(URI, json(&twice))
                .unwrap_err()
                .to_string()
                .contains("twice")
        );
    }

    #[test]
    fn a_file_belongs_to_the_skills_around_it() {
        assert_eq!(
            enclosing("skill://a/b/c.md").collect::<Vec<_>>(),
            ["skill://a/b/SKILL.md", "skill://a/SKILL.md"]
        );
        assert_eq!(enclosing("file:///x").count(), 0);
        assert_eq!(directory(URI), Some("skill://a/pdf"));
        assert_eq!(directory("skill://a/pdf/xSKILL.md"), None);
    }

    #[test]
    fn a_directory_has_its_direct_children() {
        let read = |directory, version| {
            let files = [URI, "skill://a/pdf/x/y.md", "skill://a/pdf/x/z/w.py"];
            directory_result(directory, files, |uri| uri.replace("//", "//s/"), version)
        };
        let read = |directory, version| {
            read(directory, version).map(|it| serde_json::from_slice::<Value>(&it).unwrap())
        };
        assert_eq!(
            read("skill://a/pdf", V2025_11_25).unwrap(),
            json!({ "resources": [
                { "uri": "skill://s/a/pdf/SKILL.md", "name": "SKILL.md", "mimeType": "text/markdown" },
                { "uri": "skill://s/a/pdf/x", "name": "x", "mimeType": "inode/directory" },
            ] })
        );
        assert_eq!(
            read("skill://a", V2026_07_28).unwrap()["resultType"],
            "complete"
        );
        assert_eq!(read(URI, V2026_07_28), None);
        assert_eq!(read("skill://a/pd", V2026_07_28), None);
    }

    #[test]
    fn an_answer_is_about_the_skill_that_was_asked_for() {
        let result = json!({ "skill": entry() }).to_string();
        assert!(read_entry(json(&result), URI).is_ok());
        assert!(read_entry(json(&result), "skill://b/pdf/SKILL.md").is_err());
        assert!(read_entry(json(r#"{"skill":[]}"#), URI).is_err());
        let entry = entry().to_string();
        let got = |version| {
            serde_json::from_slice::<Value>(&get_result(&entry, Some(5), version)).unwrap()
        };
        assert_eq!(got(V2026_07_28)["ttlMs"], 5);
        assert_eq!(got(V2025_06_18), json!({ "skill": super::tests::entry() }));
    }
}
