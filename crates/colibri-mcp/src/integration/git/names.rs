//! Names that callers may give: a worktree, files in it, a message; and the address that is fetched
//! from.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use colibri_text::first_hidden;

/// The most characters of a slug and of a message, bytes of a path, and paths of a commit.
pub(super) const MAX_SLUG: usize = 64;
pub(super) const MAX_MESSAGE: usize = 10_000;
pub(super) const MAX_PATH: usize = 1_000;
pub(super) const MAX_PATHS: usize = 500;
/// The most commits of a log, and lines that are blamed.
pub(super) const MAX_COUNT: u8 = 200;
pub(super) const MAX_LINES: u32 = 1_000;
/// The pattern of a slug, without the further refusals of [`Slug`].
pub(super) const SLUG_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";

/// The pattern of a commit's name.
pub(super) const COMMIT_PATTERN: &str = "^[0-9a-f]{7,40}$";

/// The name of a worktree, and of its branch behind `feature/`. It is one component of a path and
/// of a reference's name, as git-check-ref-format(1) has it, and no option.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Slug(String);

impl Slug {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The branch, as people name it.
    pub(super) fn branch(&self) -> String {
        format!("feature/{}", self.0)
    }

    /// The same, whole.
    pub(super) fn reference(&self) -> String {
        format!("refs/heads/feature/{}", self.0)
    }
}

impl TryFrom<String> for Slug {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Slug> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_slug = (1..=MAX_SLUG).contains(&text.len())
            && text.bytes().all(legal)
            && text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && !text.contains("..")
            && !text.ends_with('.')
            && !text.to_ascii_lowercase().ends_with(".lock");
        match is_slug {
            true => Ok(Slug(text)),
            false => Err(anyhow!(
                "slug must be 1 to {MAX_SLUG} letters, digits, '.', '_' and '-', begin with a letter or digit, and have no \
                 '..', no '.' and no '.lock' at its end"
            )),
        }
    }
}

/// A file or directory in a worktree, by its path there; `.` is all of it.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct WorktreePath(String);

impl WorktreePath {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for WorktreePath {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<WorktreePath> {
        let is_part = |part: &str| {
            !part.is_empty() && part != "." && part != ".." && !part.eq_ignore_ascii_case(".git")
        };
        let is_inside = text.len() <= MAX_PATH
            && !text.contains('\0')
            && (text == "."
                || text
                    .strip_suffix('/')
                    .unwrap_or(&text)
                    .split('/')
                    .all(is_part));
        match is_inside {
            true => Ok(WorktreePath(text)),
            false => Err(anyhow!(
                "paths must be inside the worktree, at most {MAX_PATH} bytes, without '..' and '.git'"
            )),
        }
    }
}

/// A commit by the first of its digits, at least seven.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct CommitName(String);

impl CommitName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CommitName {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<CommitName> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match (7..=40).contains(&text.len()) && text.bytes().all(is_digit) {
            true => Ok(CommitName(text)),
            false => Err(anyhow!(
                "commit must be 7 to 40 of its hexadecimal digits, as git_log has them"
            )),
        }
    }
}

/// The message of a commit.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct CommitMessage(String);

impl CommitMessage {
    /// The message with the line end that git gives each.
    pub(super) fn text(&self) -> String {
        format!("{}\n", self.0.trim_end())
    }
}

impl TryFrom<String> for CommitMessage {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<CommitMessage> {
        let is_odd = |c: char| c.is_control() && c != '\n' && c != '\t';
        if text.trim().is_empty() || text.chars().nth(MAX_MESSAGE).is_some() {
            bail!("message must be text of 1 to {MAX_MESSAGE} characters");
        }
        // What looks at how it begins looks at what git will show.
        if text.starts_with(char::is_whitespace) {
            bail!("message must begin with its subject, without blanks before it");
        }
        match text.contains(is_odd) || first_hidden(&text).is_some() {
            true => Err(anyhow!(
                "message must have no control characters and none that hide or turn text"
            )),
            false => Ok(CommitMessage(text)),
        }
    }
}

/// The address that is fetched from.
#[derive(Debug)]
pub(super) struct RemoteUrl {
    pub(super) url: String,
    /// The name of the protocol for git.
    pub(super) protocol: &'static str,
}

impl RemoteUrl {
    /// Reads an address of a command line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(url: &str) -> anyhow::Result<RemoteUrl> {
        let protocol = match url.split_once("://") {
            Some(("https", _)) => "https",
            Some(("http", _)) => "http",
            Some(("file", path)) => {
                let is_plain = path.starts_with('/')
                    && !path.contains(|c: char| c.is_control() || c == '"' || c == '\\');
                return match is_plain {
                    true => Ok(RemoteUrl {
                        url: url.to_owned(),
                        protocol: "file",
                    }),
                    false => Err(anyhow!("must lead to an absolute path, like file:///path")),
                };
            }
            _ => bail!("must begin with https://, http:// or file:///"),
        };
        colibri_api::check_url(url).map_err(anyhow::Error::msg)?;
        Ok(RemoteUrl {
            url: url.to_owned(),
            protocol,
        })
    }

    /// The directory, where it is on this machine.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.url.strip_prefix("file://").map(Path::new)
    }

    /// True if a secret may be sent there: by https, or to this machine.
    pub(super) fn keeps_secrets(&self) -> bool {
        let host = colibri_api::authority(&self.url);
        let host = host.strip_prefix('[').map_or_else(
            || host.split(':').next().unwrap_or_default(),
            |rest| rest.split(']').next().unwrap_or_default(),
        );
        self.protocol == "https"
            || (self.protocol == "http" && matches!(host, "127.0.0.1" | "::1" | "localhost"))
    }
}

/// `NAME <ADDRESS>` of a command line.
///
/// # Errors
/// What it must be.
pub(super) fn person(text: &str) -> anyhow::Result<(String, String)> {
    let wrong = "must be 'NAME <ADDRESS>'";
    let (name, address) = text
        .strip_suffix('>')
        .and_then(|text| text.split_once(" <"))
        .context(wrong)?;
    let is_word = |word: &str| {
        !word.trim().is_empty()
            && !word.contains(|c: char| c.is_control() || c == '<' || c == '>')
            && first_hidden(word).is_none()
    };
    match is_word(name) && is_word(address) {
        true => Ok((name.to_owned(), address.to_owned())),
        false => Err(anyhow!(wrong)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_one_plain_component() {
        for good in [
            "p0.3.2",
            "a",
            "A-b_c.d",
            "0",
            &"x".repeat(64),
            "lock",
            "x.locks",
        ] {
            assert_eq!(
                Slug::try_from(good.to_owned())
                    .map(|slug| slug.branch())
                    .unwrap(),
                format!("feature/{good}")
            );
        }
        for bad in [
            "",
            ".",
            "..",
            ".a",
            "-a",
            "_a",
            "a..b",
            "a.",
            "a.lock",
            "a.LOCK",
            "a/b",
            "a\\b",
            "a b",
            "a\n",
            "a\0",
            "@{",
            "a@{b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[b",
            "\u{e4}",
            "a\u{202e}",
            "--force",
            &"x".repeat(65),
        ] {
            assert!(Slug::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_stays_inside() {
        for good in [
            "a",
            "a/b",
            "a/",
            ".",
            ".gitignore",
            "-a",
            ":(top)a",
            "a b",
            "a*",
            "...",
            "\u{e4}",
            ".github/x",
            "a\tb",
            "a\nb",
            "a\"b'",
        ] {
            assert!(WorktreePath::try_from(good.to_owned()).is_ok(), "{good:?}");
        }
        for bad in [
            "",
            "/",
            "/etc",
            "..",
            "a/..",
            "../a",
            "a/../b",
            "./a",
            "a//b",
            "a/./b",
            ".git",
            ".git/config",
            "a/.GIT/hooks",
            "a\0",
            "./",
            &"x".repeat(1_001),
        ] {
            assert!(WorktreePath::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_message_is_what_people_see() {
        let said =
            |text: &str| CommitMessage::try_from(text.to_owned()).map(|message| message.text());
        assert_eq!(
            said("Add x\n\n\twhy \u{fc}\n\n").unwrap(),
            "Add x\n\n\twhy \u{fc}\n".to_owned()
        );
        for bad in [
            "",
            " \n",
            "\nfixup! x",
            " x",
            "a\0",
            "a\rb",
            "a\u{1b}[2J",
            "a\u{202e}b",
            "a\u{e0041}",
            &"x".repeat(10_001),
        ] {
            assert!(said(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_origin_is_an_address_and_no_command() {
        for (good, protocol) in [
            ("https://h/p.git", "https"),
            ("http://127.0.0.1:80/p", "http"),
            ("file:///srv/p.git", "file"),
        ] {
            assert_eq!(
                RemoteUrl::parse(good)
                    .map(|origin| origin.protocol)
                    .unwrap(),
                protocol,
                "{good}"
            );
        }
        for bad in [
            "",
            "ext::sh -c id",
            "file://h/p",
            "file://",
            "/srv/p",
            "h:p",
            "ssh://h/p",
            "git://h/p",
            "https://u:p@h/p",
            "https://",
            "--upload-pack=id",
            "http::ext::id",
            "file:///a\nb",
            "https://h/p q",
        ] {
            assert!(RemoteUrl::parse(bad).is_err(), "{bad:?}");
        }
        for (url, keeps) in [
            ("https://h/p", true),
            ("http://127.0.0.1:8080/p", true),
            ("http://[::1]:8080/p", true),
            ("http://localhost/p", true),
            ("http://127.0.0.1.example.org/p", false),
            ("http://h/p", false),
            ("file:///p", false),
        ] {
            assert_eq!(
                RemoteUrl::parse(url)
                    .map(|origin| origin.keeps_secrets())
                    .unwrap(),
                keeps,
                "{url}"
            );
        }
    }

    #[test]
    fn an_author_has_a_name_and_an_address() {
        assert_eq!(
            person("A b <a@b>").unwrap(),
            ("A b".to_owned(), "a@b".to_owned())
        );
        for bad in [
            "",
            "A",
            "A <>",
            " <a@b>",
            "A <a@b> x",
            "A <a<b>",
            "A\n <a@b>",
            "A\u{202e} <a@b>",
        ] {
            assert!(person(bad).is_err(), "{bad:?}");
        }
    }
}
