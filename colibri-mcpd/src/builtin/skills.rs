//! Skills: directories with a `SKILL.md`, read anew at each question, never written.
//!
//! A skill directory may belong to somebody the daemon does not trust, so nothing below a configured directory is
//! reached through a symbolic link, nothing is waited for, and all of it is bounded.

use anyhow::{Context as _, anyhow, bail};
use colibri_api::{Skill, SkillProblem, Skills as SkillCatalogue};
use colibri_text::visible;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file that makes a directory a skill.
const FILE: &str = "SKILL.md";
/// The most bytes of a `SKILL.md`.
const MAX_FILE: u64 = 256 * 1024;
/// The most bytes of its front matter, fences included.
const MAX_FRONT_MATTER: usize = 16 * 1024;
/// The most characters of a name.
const MAX_NAME: usize = 64;
/// The most characters of a description.
const MAX_DESCRIPTION: usize = 1024;
/// The most entries read of one configured directory.
const MAX_ENTRIES: usize = 256;

/// The configured skill directories.
#[derive(Debug, Clone, Default)]
pub struct SkillDirectories {
    directories: Vec<PathBuf>,
}

impl SkillDirectories {
    /// The skills in the subdirectories of `directories`. Of two with the same name the first counts.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories }
    }

    /// Reads the directories. Never fails as a whole: what is wrong is among the problems.
    pub fn scan(&self) -> SkillCatalogue {
        let mut found = SkillCatalogue::default();
        for directory in &self.directories {
            if let Err(why) = scan_directory(directory, &mut found) {
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

fn scan_directory(path: &Path, found: &mut SkillCatalogue) -> anyhow::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut directory = Dir::open(path, flags, Mode::empty()).map_err(|e| anyhow!("cannot open: {}", e.desc()))?;
    let mut names = Vec::new();
    for entry in directory.iter() {
        let entry = entry.map_err(|e| anyhow!("cannot read: {}", e.desc()))?;
        // Dot files are other programs' (`.git`), and `.` and `..`.
        if !entry.file_name().to_bytes().starts_with(b".") {
            names.push(entry.file_name().to_owned());
        }
        if names.len() > MAX_ENTRIES {
            bail!("has more than {MAX_ENTRIES} entries, none of which is read: split it");
        }
    }
    names.sort();
    for name in names {
        let skill_directory = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let skill = match openat(&directory, name.as_c_str(), flags | OFlag::O_NOFOLLOW, Mode::empty()) {
            Ok(opened) => read_skill(&opened, &skill_directory),
            // A file that is no directory: a README, say. A link answers the same way on Linux, ELOOP or EMLINK
            // elsewhere (open(2)).
            Err(Errno::ENOTDIR | Errno::ELOOP | Errno::EMLINK) if !skill_directory.is_symlink() => {
                continue;
            }
            Err(Errno::ENOTDIR | Errno::ELOOP | Errno::EMLINK) => Err(anyhow!("is a symbolic link, not followed")),
            Err(e) => Err(anyhow!("cannot open: {}", e.desc())),
        };
        let skill = skill.and_then(
            |skill| match found.skills.iter().find(|earlier| earlier.name == skill.name) {
                Some(earlier) => Err(anyhow!("has the same name as {}: {}", earlier.path, skill.name)),
                None => Ok(skill),
            },
        );
        match skill {
            Ok(skill) => found.skills.push(skill),
            Err(why) => found.problems.push(SkillProblem {
                path: shown(&skill_directory),
                why: format!("{why:#}"),
            }),
        }
    }
    Ok(())
}

/// Reads the `SKILL.md` of an opened directory.
fn read_skill(directory: impl AsFd, path: &Path) -> anyhow::Result<Skill> {
    // Without O_NONBLOCK the open of a FIFO would wait for a writer.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(directory, FILE, flags, Mode::empty()).map_err(|e| match e {
        Errno::ENOENT => anyhow!("has no {FILE}"),
        Errno::ELOOP | Errno::EMLINK => anyhow!("{FILE} is a symbolic link, not followed"),
        e => anyhow!("{FILE} cannot be opened: {}", e.desc()),
    })?;
    let file = File::from(file);
    let metadata = file.metadata().with_context(|| format!("{FILE} cannot be read"))?;
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
    let (name, description) = front_matter(text).context(FILE)?;
    Ok(Skill {
        name,
        description,
        path: shown(&path.join(FILE)),
    })
}

/// The name and description of a `SKILL.md`, checked and made visible.
fn front_matter(text: &str) -> anyhow::Result<(String, String)> {
    let lines = fenced(text)?;
    let mut name = None;
    let mut description = None;
    let mut seen = Vec::new();
    // Line 1 is the fence.
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let number = at + 2;
        at += 1;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, rest) = key_and_value(line).with_context(|| {
            format!(
                "line {number}: expected `key: value`, found {}",
                super::arguments::quoted(line)
            )
        })?;
        if seen.contains(&key) {
            bail!("line {number}: {key} is given twice");
        }
        seen.push(key);
        let wanted = match key {
            "name" => Some(&mut name),
            "description" => Some(&mut description),
            _ => None,
        };
        // What belongs to this key. A list under another program's key may stand unindented.
        let inside = |line: &&str| {
            line.trim().is_empty() || line.starts_with([' ', '\t']) || (wanted.is_none() && line.starts_with('-'))
        };
        let length = lines.iter().skip(at).take_while(|line| inside(line)).count();
        let block = lines.get(at..at + length).unwrap_or_default();
        at += length;
        if let Some(place) = wanted {
            *place = Some(scalar(rest, block).map_err(|why| anyhow!("line {number}: {key} {why:#}"))?);
        }
    }
    let name = name.context("the front matter has no name")?;
    let description = description.context("the front matter has no description")?;
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(legal) {
        bail!(
            "the name {} must be 1 to {MAX_NAME} of a-z, 0-9 and -",
            super::arguments::quoted(&name)
        );
    }
    let length = description.chars().count();
    if !(1..=MAX_DESCRIPTION).contains(&length) {
        bail!("the description has {length} characters, 1 to {MAX_DESCRIPTION} are allowed");
    }
    Ok((name, visible(&description.replace(['\n', '\t'], " ")).into_owned()))
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

/// Splits `key: value` or `key:`.
fn key_and_value(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once(':')?;
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let separated = rest.is_empty() || rest.starts_with([' ', '\t']);
    (!key.is_empty() && key.chars().all(legal) && separated).then(|| (key, rest.trim()))
}

/// A string as YAML 1.2 writes it, in its simple forms: plain or quoted on one line, or a block after `|` or `>`.
/// Everything else is refused rather than guessed at. `Err` continues the sentence that the key begins.
fn scalar(value: &str, block: &[&str]) -> anyhow::Result<String> {
    if value.starts_with(['|', '>']) {
        return block_scalar(value, block);
    }
    if block.iter().any(|line| !line.trim().is_empty()) {
        bail!("goes on in the next line: write it on one line, or as a block after > or |");
    }
    match value.chars().next() {
        None => Err(anyhow!("is empty")),
        Some('"') => {
            // YAML's double-quoted strings are JSON's, as far as they are simple.
            let mut strings = serde_json::Deserializer::from_str(value).into_iter::<String>();
            match strings.next() {
                Some(Ok(text)) => ended(text, value.get(strings.byte_offset()..).unwrap_or_default()),
                _ => Err(anyhow!(
                    "has a quoted string that does not end, or an escape that is not known"
                )),
            }
        }
        Some('\'') => {
            let mut text = String::new();
            let mut rest = value.get(1..).unwrap_or_default();
            loop {
                let (part, after) = rest.split_once('\'').context("has a quoted string that does not end")?;
                text.push_str(part);
                let Some(after_pair) = after.strip_prefix('\'') else {
                    return ended(text, after);
                };
                text.push('\'');
                rest = after_pair;
            }
        }
        Some(first) if "[]{},&*!%@`#".contains(first) => Err(anyhow!("begins with {first}: quote it")),
        Some(_) if value == "-" || value.starts_with("- ") || value.starts_with("? ") => {
            Err(anyhow!("is a list or a mapping, not a string"))
        }
        Some(_) => {
            let text = value.split_once(" #").map_or(value, |(text, _comment)| text).trim_end();
            if text.contains(": ") || text.ends_with(':') {
                bail!("contains a colon: quote it");
            }
            Ok(text.to_owned())
        }
    }
}

/// A quoted string after whose end only a comment may stand.
fn ended(text: String, rest: &str) -> anyhow::Result<String> {
    if rest.is_empty() || (rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#')) {
        Ok(text)
    } else {
        Err(anyhow!("has something after the quoted string"))
    }
}

/// The fault of a block whose lines cannot be told from its margin.
const UNEVEN: &str = "has a block whose lines are not indented alike, with spaces";

/// A block: `|` keeps its lines, `>` joins them; blanks and line ends around it do not count here.
fn block_scalar(header: &str, block: &[&str]) -> anyhow::Result<String> {
    let folded = match header {
        "|" | "|-" | "|+" => false,
        ">" | ">-" | ">+" => true,
        _ => {
            bail!(
                "begins with {}: only |, |-, |+, >, >- and >+ are known",
                super::arguments::quoted(header)
            );
        }
    };
    let first = block.iter().find(|line| !line.trim().is_empty()).context("is empty")?;
    let margin = first
        .get(..first.len() - first.trim_start_matches(' ').len())
        .unwrap_or_default();
    if margin.is_empty() {
        bail!(UNEVEN);
    }
    let mut text = String::new();
    // How many line ends stand before the next line with something in it.
    let mut ends = 0;
    for line in block {
        if line.trim().is_empty() {
            ends += 1;
            continue;
        }
        let content = line
            .strip_prefix(margin)
            .filter(|content| !folded || !content.starts_with([' ', '\t']))
            .context(UNEVEN)?;
        if !text.is_empty() {
            // Folding: one line end becomes a space, n + 1 of them n.
            match (folded, ends) {
                (true, 0) => text.push(' '),
                (true, blank) => text.extend(std::iter::repeat_n('\n', blank)),
                (false, blank) => text.extend(std::iter::repeat_n('\n', blank + 1)),
            }
        }
        ends = 0;
        text.push_str(content.trim_end());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn read(front: &str) -> anyhow::Result<(String, String)> {
        front_matter(&format!("---\n{front}\n---\nbody\n"))
    }

    fn description(value: &str) -> String {
        read(&format!("name: x\ndescription: {value}")).unwrap().1
    }

    #[test]
    fn reads_the_simple_forms() {
        assert_eq!(description("Reads PDFs  # a comment"), "Reads PDFs");
        assert_eq!(description("see http://example.org/#a"), "see http://example.org/#a");
        assert_eq!(description(r#""a: \"b\" # \u00e4" # c"#), "a: \"b\" # ä");
        assert_eq!(description("'it''s: [so]'"), "it's: [so]");
        assert_eq!(description(">-\n  one\n  two\n\n  three\n"), "one two three");
        assert_eq!(description("|\n  one\n    two\nlicense: MIT"), "one   two");
        assert_eq!(
            front_matter("---\r\nname: x\r\ndescription: y\r\n---\r\n").unwrap(),
            ("x".to_owned(), "y".to_owned())
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
            ("[a, b]", "begins with ["),
            ("{a: b}", "begins with {"),
            ("&anchor a", "begins with &"),
            ("*alias", "begins with *"),
            ("!!str a", "begins with !"),
            ("use when: asked", "contains a colon"),
            ("one\n  two", "goes on in the next line"),
            ("\"open", "does not end"),
            ("'open", "does not end"),
            ("\"a\" b", "something after"),
            ("'a'b", "something after"),
            ("\"\\q\"", "not known"),
            (">2\n  a", "begins with \">2\""),
            (">\n  a\n b", "not indented alike"),
            ("|\n\ta", "not indented alike"),
            (">\n  a\n    b", "not indented alike"),
            ("- a", "a list"),
            ("", "is empty"),
            ("|", "is empty"),
            ("''", "1 to 1024 are allowed"),
        ] {
            let message = read(&format!("name: x\ndescription: {value}")).unwrap_err().to_string();
            assert!(message.contains(why), "{value}: {message}");
        }
        for (front, why) in [
            ("description: y", "no name"),
            ("name: x", "no description"),
            ("name: x\nname: y\ndescription: z", "line 3: name is given twice"),
            ("name: ../x\ndescription: z", "must be 1 to 64"),
            ("name: X\ndescription: z", "must be 1 to 64"),
            (" name: x", "expected `key: value`"),
            ("name:x", "expected `key: value`"),
            ("? name", "expected `key: value`"),
        ] {
            let message = read(front).unwrap_err().to_string();
            assert!(message.contains(why), "{front}: {message}");
        }
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
        assert_eq!(
            description("a\u{202e}b\u{1b}[2J\u{e0041}"),
            "a\\u{202e}b\\u{1b}[2J\\u{e0041}"
        );
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
        fs::write(outside.join(FILE), "---\nname: outside\ndescription: secret\n---\n").unwrap();
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
            let problem = found.problems.iter().find(|problem| problem.path == shown(path));
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
            assert!(why(&root.join(name)).contains(wanted), "{name}: {:?}", found.problems);
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
