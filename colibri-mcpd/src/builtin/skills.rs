//! Skills: directories with a `SKILL.md`, read anew at each question, never written.
//!
//! A skill directory may belong to somebody the daemon does not trust, so nothing below a
//! configured directory is reached through a symbolic link, nothing is waited for, and all of it is
//! bounded.

use anyhow::{Context as _, anyhow, bail};
use colibri_api::{Skill, SkillProblem, Skills as SkillCatalogue};
use colibri_protocol::skills::{self, FILE};
use colibri_registry::sha256_hex;
use colibri_text::{brief, visible};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use serde_json::{Map, Value, json};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tracing::warn;

/// The most bytes of a `SKILL.md`.
const MAX_FILE: u64 = 256 * 1024;
/// The most bytes of its front matter, fences included.
const MAX_FRONT_MATTER: usize = 16 * 1024;
/// The most characters of a description.
const MAX_DESCRIPTION: usize = 1024;
/// The most entries read of one configured directory.
const MAX_ENTRIES: usize = 256;
/// The most directories of a skill within each other.
const MAX_DEPTH: usize = 16;

/// A skill with its files, as the skills extension has it.
#[derive(Debug)]
pub struct OwnSkill {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its entry in `skills/list`, as JSON.
    pub entry: String,
    /// The URIs of its files.
    pub files: Vec<String>,
}

/// Is called with each usable skill, its front matter and its opened directory.
type SkillReader<'v> = &'v mut dyn FnMut(&Skill, &Map<String, Value>, &mut Dir);

/// The configured skill directories.
#[derive(Debug, Clone, Default)]
pub struct SkillDirectories {
    directories: Vec<PathBuf>,
}

impl SkillDirectories {
    /// The skills in the subdirectories of `directories`. Of two with the same name the first
    /// counts.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories }
    }

    /// True if there is a directory to look in.
    pub(crate) fn is_configured(&self) -> bool {
        !self.directories.is_empty()
    }

    /// Reads the directories. Never fails as a whole: what is wrong is among the problems.
    pub fn scan(&self) -> SkillCatalogue {
        self.scan_with(&mut |_, _, _| {})
    }

    /// The skills with all their files. One that cannot be offered whole is left out, and the log
    /// says why.
    pub fn entries(&self) -> Vec<OwnSkill> {
        let mut found = Vec::new();
        self.scan_with(&mut |skill, frontmatter, directory| match entry(
            directory,
            &skill.name,
            frontmatter,
        ) {
            Ok((entry, files)) => found.push(OwnSkill {
                name: skill.name.clone(),
                description: skill.description.clone(),
                entry,
                files,
            }),
            Err(why) => warn!(
                skill = skill.path,
                "the skill is not offered to clients: {why:#}"
            ),
        });
        found
    }

    /// The content of the file with this URI.
    pub fn read(&self, uri: &str) -> Option<Vec<u8>> {
        let (name, path) = uri.strip_prefix(skills::OWN)?.split_once('/')?;
        let mut content = None;
        self.scan_with(&mut |skill, _, directory| {
            if skill.name == name {
                let read = each_file(directory, "", 0, &mut |found, file| {
                    if found == path {
                        content = Some(read_bounded(file, skills::MAX_BYTES)?);
                    }
                    Ok(())
                });
                if let Err(why) = read {
                    warn!(
                        skill = skill.path,
                        "not all of the skill can be read: {why:#}"
                    );
                }
            }
        });
        content
    }

    fn scan_with(&self, each: SkillReader<'_>) -> SkillCatalogue {
        let mut found = SkillCatalogue::default();
        for directory in &self.directories {
            if let Err(why) = scan_directory(directory, &mut found, each) {
                found.problems.push(SkillProblem {
                    path: shown(directory),
                    why: format!("{why:#}"),
                });
            }
        }
        found.skills.sort_by(|a, b| a.name.cmp(&b.name));
        found.problems.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }
}

/// A path for an answer.
fn shown(path: &Path) -> String {
    visible(&path.to_string_lossy()).into_owned()
}

/// The names in a directory, sorted. Dot files are other programs' (`.git`), and `.` and `..`.
fn names_in(directory: &mut Dir, most: usize) -> anyhow::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in directory.iter() {
        let entry = entry.map_err(|e| anyhow!("cannot read: {}", e.desc()))?;
        if !entry.file_name().to_bytes().starts_with(b".") {
            names.push(entry.file_name().to_owned());
        }
        if names.len() > most {
            bail!("has more than {most} entries, none of which is read: split it");
        }
    }
    names.sort();
    Ok(names)
}

fn scan_directory(
    path: &Path,
    found: &mut SkillCatalogue,
    each: SkillReader<'_>,
) -> anyhow::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut directory =
        Dir::open(path, flags, Mode::empty()).map_err(|e| anyhow!("cannot open: {}", e.desc()))?;
    for name in names_in(&mut directory, MAX_ENTRIES)? {
        let skill_directory = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let opened = match Dir::openat(
            &directory,
            name.as_c_str(),
            flags | OFlag::O_NOFOLLOW,
            Mode::empty(),
        ) {
            Ok(opened) => Ok(opened),
            // A file that is no directory: a README, say. A link answers the same way on Linux,
            // ELOOP or EMLINK elsewhere (open(2)).
            Err(Errno::ENOTDIR | Errno::ELOOP | Errno::EMLINK) if !skill_directory.is_symlink() => {
                continue;
            }
            Err(Errno::ENOTDIR | Errno::ELOOP | Errno::EMLINK) => {
                Err(anyhow!("is a symbolic link, not followed"))
            }
            Err(e) => Err(anyhow!("cannot open: {}", e.desc())),
        };
        let read = opened.and_then(|opened| {
            let (skill, frontmatter) = read_skill(&opened, &skill_directory)?;
            match found
                .skills
                .iter()
                .find(|earlier| earlier.name == skill.name)
            {
                Some(earlier) => Err(anyhow!(
                    "has the same name as {}: {}",
                    earlier.path,
                    skill.name
                )),
                None => Ok((skill, frontmatter, opened)),
            }
        });
        match read {
            Ok((skill, frontmatter, mut opened)) => {
                each(&skill, &frontmatter, &mut opened);
                found.skills.push(skill);
            }
            Err(why) => found.problems.push(SkillProblem {
                path: shown(&skill_directory),
                why: format!("{why:#}"),
            }),
        }
    }
    Ok(())
}

/// Reads the `SKILL.md` of an opened directory.
fn read_skill(directory: impl AsFd, path: &Path) -> anyhow::Result<(Skill, Map<String, Value>)> {
    // Without O_NONBLOCK the open of a FIFO would wait for a writer.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(directory, FILE, flags, Mode::empty()).map_err(|e| match e {
        Errno::ENOENT => anyhow!("has no {FILE}"),
        Errno::ELOOP | Errno::EMLINK => anyhow!("{FILE} is a symbolic link, not followed"),
        e => anyhow!("{FILE} cannot be opened: {}", e.desc()),
    })?;
    let file = File::from(file);
    let metadata = file
        .metadata()
        .with_context(|| format!("{FILE} cannot be read"))?;
    if !metadata.is_file() {
        bail!("{FILE} is not a regular file");
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{FILE} cannot be read"))?;
    if bytes.len() as u64 > MAX_FILE {
        bail!("{FILE} is larger than {MAX_FILE} bytes: move parts of it to files beside it");
    }
    let text = std::str::from_utf8(&bytes).map_err(|e| {
        anyhow!(
            "{FILE} is not UTF-8 (byte {} is the first that is not)",
            e.valid_up_to()
        )
    })?;
    let (frontmatter, name, description) = front_matter(text).context(FILE)?;
    let skill = Skill {
        name,
        description,
        path: shown(&path.join(FILE)),
    };
    Ok((skill, frontmatter))
}

/// The front matter of a `SKILL.md` with its name and its description, checked and made visible.
fn front_matter(text: &str) -> anyhow::Result<(Map<String, Value>, String, String)> {
    let all = skill_front_matter(text)?;
    let field = |key: &str| match all.get(key) {
        Some(Value::String(text)) => Ok(text.trim_end()),
        Some(_) => Err(anyhow!("the {key} is no text: quote it")),
        None => Err(anyhow!("the front matter has no {key}")),
    };
    let (name, description) = (field("name")?, field("description")?);
    if !skills::is_name(name) {
        bail!(
            "the name {} must be 1 to 64 of a-z, 0-9 and single -",
            super::arguments::quoted(name)
        );
    }
    let length = description.chars().count();
    if !(1..=MAX_DESCRIPTION).contains(&length) {
        bail!("the description has {length} characters, 1 to {MAX_DESCRIPTION} are allowed");
    }
    let description = visible(&description.replace(['\n', '\t'], " ")).into_owned();
    let name = name.to_owned();
    Ok((all, name, description))
}

/// The front matter of a `SKILL.md`.
///
/// # Errors
/// There is none, or it is no YAML mapping.
pub(crate) fn skill_front_matter(text: &str) -> anyhow::Result<Map<String, Value>> {
    let yaml = fenced(text)?.join("\n");
    // As in YAML 1.2, where `yes` and `y` are text.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&yaml, options).map_err(|why| {
        let why = why.to_string();
        anyhow!(
            "the front matter is no YAML mapping: {}",
            brief(why.lines().next().unwrap_or_default(), 200)
        )
    })
}

/// The lines between the fences.
fn fenced(text: &str) -> anyhow::Result<Vec<&str>> {
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some("---") {
        bail!("no front matter: the first line must be ---");
    }
    let mut size = 0;
    let mut inside = Vec::new();
    for line in lines {
        if line.trim_end() == "---" {
            return Ok(inside);
        }
        size += line.len() + 1;
        if size > MAX_FRONT_MATTER {
            bail!("the front matter is larger than {MAX_FRONT_MATTER} bytes");
        }
        inside.push(line);
    }
    Err(anyhow!("the front matter does not end: no second --- line"))
}

/// Calls `each` with every regular file of an opened skill and its path as a URI has it, in order.
/// Links are no files of it, and dot files are other programs'.
fn each_file(
    directory: &mut Dir,
    above: &str,
    depth: usize,
    each: &mut dyn FnMut(&str, File) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if depth > MAX_DEPTH {
        bail!("its directories are more than {MAX_DEPTH} deep");
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    for name in names_in(directory, skills::MAX_FILES)? {
        let shown = name
            .to_str()
            .map_err(|_| anyhow!("the name of a file is not UTF-8"))?;
        let path = format!("{above}{}", encoded(shown));
        let file = match openat(&*directory, name.as_c_str(), flags, Mode::empty()) {
            Ok(opened) => File::from(opened),
            // Links and sockets (open(2)).
            Err(Errno::ELOOP | Errno::EMLINK | Errno::ENXIO | Errno::EOPNOTSUPP) => continue,
            Err(e) => bail!("{} cannot be opened: {}", visible(shown), e.desc()),
        };
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            each_file(
                &mut Dir::from_fd(file.into())?,
                &format!("{path}/"),
                depth + 1,
                each,
            )?;
        } else if kind.is_file() {
            each(&path, file)?;
        }
    }
    Ok(())
}

/// The entry of an opened skill in `skills/list`, and the paths of its files.
fn entry(
    directory: &mut Dir,
    name: &str,
    frontmatter: &Map<String, Value>,
) -> anyhow::Result<(String, Vec<String>)> {
    let base = format!("{}{name}", skills::OWN);
    let (mut resources, mut paths, mut left) = (Vec::new(), Vec::new(), skills::MAX_BYTES);
    each_file(directory, "", 0, &mut |path, file| {
        let content = read_bounded(file, left)?;
        left -= content.len() as u64;
        if resources.len() == skills::MAX_FILES {
            bail!("it has more than {} files", skills::MAX_FILES);
        }
        let digest = format!("sha256:{}", sha256_hex(&content));
        resources.push(
            json!({ "uri": format!("{base}/{path}"), "digest": digest, "size": content.len() }),
        );
        paths.push(format!("{base}/{path}"));
        Ok(())
    })?;
    let entry = json!({ "uri": format!("{base}/{FILE}"), "frontmatter": frontmatter, "resources": resources });
    Ok((entry.to_string(), paths))
}

fn read_bounded(file: File, most: u64) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        bail!("it has more than {} bytes", skills::MAX_BYTES);
    }
    Ok(content)
}

/// A name as a segment of a URI (RFC 3986, section 2.3).
fn encoded(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte.into())
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn read(front: &str) -> anyhow::Result<(String, String)> {
        let (_, name, description) = front_matter(&format!("---\n{front}\n---\nbody\n"))?;
        Ok((name, description))
    }

    fn description(value: &str) -> String {
        read(&format!("name: x\ndescription: {value}")).unwrap().1
    }

    #[test]
    fn reads_the_simple_forms() {
        assert_eq!(description("Reads PDFs  # a comment"), "Reads PDFs");
        assert_eq!(
            description("see http://example.org/#a"),
            "see http://example.org/#a"
        );
        assert_eq!(description(r#""a: \"b\" # \u00e4" # c"#), "a: \"b\" # ä");
        assert_eq!(description("'it''s: [so]'"), "it's: [so]");
        assert_eq!(
            description(">-\n  one\n  two\n\n  three\n"),
            "one two three"
        );
        assert_eq!(description("|\n  one\n    two\nlicense: MIT"), "one   two");
        assert_eq!(
            front_matter("---\r\nname: x\r\ndescription: y\r\n---\r\n").unwrap(),
            (
                json!({ "name": "x", "description": "y" })
                    .as_object()
                    .unwrap()
                    .clone(),
                "x".to_owned(),
                "y".to_owned()
            )
        );
    }

    #[test]
    fn passes_over_what_belongs_to_others() {
        let front = "# comment\nlicense: MIT\nallowed-tools:\n- Read\n- Write\nname: x\nmetadata:\n  a: [1,\n  2]\n\n  name: no\n\
                     description: y";
        assert_eq!(read(front).unwrap(), ("x".to_owned(), "y".to_owned()));
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for (value, why) in [
            ("[a, b]", "is no text"),
            ("{a: b}", "is no text"),
            ("7", "is no text"),
            ("*alias", "no YAML"),
            ("use when: asked", "no YAML"),
            ("\"open", "no YAML"),
            ("'open", "no YAML"),
            ("\"a\" b", "no YAML"),
            ("\"\\q\"", "no YAML"),
            ("''", "1 to 1024 are allowed"),
        ] {
            let message = read(&format!("name: x\ndescription: {value}"))
                .unwrap_err()
                .to_string();
            assert!(message.contains(why), "{value}: {message}");
        }
        for (front, why) in [
            ("description: y", "no name"),
            ("name: x", "no description"),
            ("name: x\nname: y\ndescription: z", "no YAML"),
            ("name: ../x\ndescription: z", "must be 1 to 64"),
            ("name: X\ndescription: z", "must be 1 to 64"),
            ("name: a--b\ndescription: z", "must be 1 to 64"),
            ("name:x", "no YAML"),
            ("- name", "no YAML"),
            (
                "a: &a [1,1]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: *c\n",
                "no name",
            ),
        ] {
            let message = read(front).unwrap_err().to_string();
            assert!(message.contains(why), "{front}: {message}");
        }
        // A front matter that would fill memory.
        let bomb: String = (0..30)
            .map(|n| {
                format!(
                    "k{n}: &a{n} [{}]\n",
                    vec![format!("*a{}", n - 1); 9].join(",")
                )
            })
            .collect();
        let bomb = bomb.replacen("*a-1", "x", 9);
        assert!(read(&format!("{bomb}name: x\ndescription: y")).is_err());
        assert!(
            front_matter("# Title\n")
                .unwrap_err()
                .to_string()
                .contains("no front matter")
        );
        assert!(
            front_matter("\u{feff}---\nname: x\n---\n")
                .unwrap_err()
                .to_string()
                .contains("no front matter")
        );
        assert!(
            front_matter("---\nname: x\n")
                .unwrap_err()
                .to_string()
                .contains("does not end")
        );
        assert!(
            front_matter(&format!("---\n{}", "a: b\n".repeat(10_000)))
                .unwrap_err()
                .to_string()
                .contains("larger than")
        );
        assert!(
            read(&format!("name: x\ndescription: {}", "ä".repeat(1025)))
                .unwrap_err()
                .to_string()
                .contains("1025 characters")
        );
    }

    #[test]
    fn shows_hidden_characters() {
        assert_eq!(description("a\u{202e}b\u{e0041}"), "a\\u{202e}b\\u{e0041}");
        // YAML has no control characters but as escapes.
        assert_eq!(description(r#""a\e[2J""#), "a\\u{1b}[2J");
        assert!(read("name: x\ndescription: a\u{1b}[2J").is_err());
    }

    #[test]
    fn lists_the_good_and_says_why_of_the_bad() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("skills");
        let outside = temporary.path().join("outside");
        let good = "---\nname: good\ndescription: Does it\n---\n";
        for name in [
            "good",
            "same",
            "latin1",
            "huge",
            "none",
            "link",
            "fifo",
            "dir",
            "hidden\u{202e}",
            ".git",
        ] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::create_dir(&outside).unwrap();
        fs::write(
            outside.join(FILE),
            "---\nname: outside\ndescription: secret\n---\n",
        )
        .unwrap();
        fs::write(root.join("README"), "no skill").unwrap();
        for name in ["good", "same", ".git"] {
            fs::write(root.join(name).join(FILE), good).unwrap();
        }
        fs::write(
            root.join("latin1").join(FILE),
            b"---\nname: l\ndescription: \xe4\n---\n",
        )
        .unwrap();
        fs::File::create(root.join("huge").join(FILE))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        fs::write(root.join("hidden\u{202e}").join(FILE), "body").unwrap();
        symlink(outside.join(FILE), root.join("link").join(FILE)).unwrap();
        symlink(&outside, root.join("linked")).unwrap();
        nix::unistd::mkfifo(&root.join("fifo").join(FILE), Mode::S_IRUSR).unwrap();
        fs::create_dir(root.join("dir").join(FILE)).unwrap();

        let missing = temporary.path().join("missing");
        let found = SkillDirectories::new(vec![missing.clone(), root.clone()]).scan();
        let path = shown(&root.join("good").join(FILE));
        assert_eq!(
            found.skills,
            [Skill {
                name: "good".to_owned(),
                description: "Does it".to_owned(),
                path
            }]
        );
        let why = |path: &Path| {
            let problem = found
                .problems
                .iter()
                .find(|problem| problem.path == shown(path));
            problem.map_or("", |problem| problem.why.as_str())
        };
        for (name, wanted) in [
            ("same", "same name as"),
            ("latin1", "not UTF-8"),
            ("huge", "larger than"),
            ("none", "has no SKILL.md"),
            ("link", "symbolic link"),
            ("linked", "symbolic link"),
            ("fifo", "not a regular file"),
            ("dir", "not a regular file"),
            ("hidden\u{202e}", "no front matter"),
        ] {
            assert!(
                why(&root.join(name)).contains(wanted),
                "{name}: {:?}",
                found.problems
            );
        }
        assert!(why(&missing).contains("cannot open"));
        assert_eq!(found.problems.len(), 10, "{:?}", found.problems);
    }

    #[test]
    fn too_many_entries_are_a_problem() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..=MAX_ENTRIES {
            fs::create_dir(root.path().join(number.to_string())).unwrap();
        }
        let found = SkillDirectories::new(vec![root.path().to_owned()]).scan();
        assert_eq!(found.problems.len(), 1);
        assert!(found.problems[0].why.contains("more than"));
    }

    #[test]
    fn every_file_of_a_skill_has_its_digest() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("skills");
        let skill = root.join("pdf");
        fs::create_dir_all(skill.join("a b/c")).unwrap();
        fs::create_dir(skill.join(".git")).unwrap();
        fs::write(
            skill.join(FILE),
            "---\nname: pdf\ndescription: Reads\nmetadata:\n  v: 1\n---\n",
        )
        .unwrap();
        fs::write(skill.join("a b/c/x.bin"), [0xff, 0]).unwrap();
        fs::write(skill.join(".git/config"), "x").unwrap();
        symlink("/etc/passwd", skill.join("link")).unwrap();
        let own = SkillDirectories::new(vec![root.clone()]);
        let found = own.entries();
        assert_eq!(found.len(), 1);
        let (file, binary) = (
            "skill://colibri/pdf/SKILL.md",
            "skill://colibri/pdf/a%20b/c/x.bin",
        );
        assert_eq!(found[0].files, [file, binary]);
        let entry: Value = serde_json::from_str(&found[0].entry).unwrap();
        assert_eq!(
            entry["frontmatter"],
            json!({ "name": "pdf", "description": "Reads", "metadata": { "v": 1 } })
        );
        assert_eq!(
            entry["resources"][1],
            json!({ "uri": binary, "size": 2, "digest": format!("sha256:{}", sha256_hex([0xff, 0])) })
        );
        assert_eq!(own.read(binary), Some(vec![0xff, 0]));
        for none in [
            "skill://colibri/pdf/link",
            "skill://colibri/pdf/.git/config",
            "skill://colibri/pdf/../pdf/SKILL.md",
        ] {
            assert_eq!(own.read(none), None, "{none}");
        }
        // More than a client must take.
        fs::File::create(skill.join("big"))
            .unwrap()
            .set_len(skills::MAX_BYTES)
            .unwrap();
        assert!(own.entries().is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(front in "([a-z]{0,4}:? ?[\\PC\n\t'\"|>]{0,12}\n){0,6}") {
            if let Ok((name, description)) = read(&front) {
                prop_assert!(!name.is_empty() && !description.chars().any(char::is_control));
            }
        }

        #[test]
        fn quoted_text_comes_back(text in "[ -~äöü漢]{0,60}x") {
            let double = serde_json::Value::from(text.clone()).to_string();
            prop_assert_eq!(description(&double), text.clone());
            prop_assert_eq!(description(&format!("'{}'", text.replace('\'', "''"))), text);
        }
    }
}
