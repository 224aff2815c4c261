//! A zip file of somebody else's: looked at whole before anything of it is written.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};

use anyhow::{Context as _, anyhow, bail};
use zip::ZipArchive;

/// The most bytes of an archive, of one file in it, and of all of them.
pub const MAX_ARCHIVE: usize = 256 << 20;
const MAX_FILE: u64 = 256 << 20;
const MAX_UNPACKED: u64 = 1 << 30;
/// The most files.
const MAX_FILES: usize = 50_000;
/// The largest permitted ratio of content to archive: programs shrink to a fifth, text to a tenth.
const MAX_RATIO: u64 = 100;
/// Below this size no ratio matters.
const SMALL: u64 = 4 << 20;

/// A zip file in which nothing is odd.
pub struct Archive<'b> {
    zip: ZipArchive<Cursor<&'b [u8]>>,
    /// Files by their path: where each stands, and whether it may be executed.
    files: BTreeMap<String, (usize, bool)>,
}

impl<'b> Archive<'b> {
    /// Looks at an archive.
    ///
    /// # Errors
    /// It is none, or too large or too many; a name twice (case does not count: not every file
    /// system tells them apart), absolute, with `..`, or with characters that no path needs; a file
    /// that is also a directory; a link, an encrypted file, files that overlap, headers that
    /// contradict each other.
    pub fn open(bytes: &'b [u8]) -> anyhow::Result<Archive<'b>> {
        if bytes.len() > MAX_ARCHIVE {
            bail!("it has more than 256 MiB");
        }
        let no_zip = |error: zip::result::ZipError| {
            anyhow!("it is no zip file that can be read: {}", brief(&error))
        };
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(no_zip)?;
        if zip.len() > MAX_FILES {
            bail!("it has more than {MAX_FILES} files");
        }
        if zip.has_duplicate_names() {
            bail!("two of its files have the same name");
        }
        if zip.has_overlapping_entries().map_err(no_zip)? {
            bail!("its files overlap");
        }
        let (mut files, mut folded, mut total) = (BTreeMap::new(), BTreeMap::new(), 0_u64);
        for at in 0..zip.len() {
            let file = zip.by_index_raw(at).map_err(no_zip)?;
            let name = std::str::from_utf8(file.name_raw())
                .map_err(|_| anyhow!("the name of a file is not UTF-8"))?;
            let path = name.strip_suffix('/').unwrap_or(name);
            let shown = colibri_text::brief(path, 80);
            check_path(path).with_context(|| shown.to_string())?;
            let kind = file.unix_mode().map_or(0, |mode| mode & 0o170_000);
            if file.is_symlink() || !matches!(kind, 0 | 0o100_000 | 0o040_000) {
                bail!("{shown}: a link or a device, which a bundle must not hold");
            }
            if file.encrypted() {
                bail!("{shown}: it is encrypted");
            }
            let is_directory = file.is_dir() || kind == 0o040_000;
            if folded.insert(path.to_lowercase(), is_directory).is_some() {
                bail!("{shown}: two of its files have this name");
            }
            if file.size() > MAX_FILE {
                bail!("{shown}: it has more than 256 MiB");
            }
            total = total.saturating_add(file.size());
            if !is_directory {
                let executable = file.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
                files.insert(path.to_owned(), (at, executable));
            }
        }
        if total > MAX_UNPACKED {
            bail!("unpacked it has more than 1 GiB");
        }
        if total > SMALL && total / MAX_RATIO > bytes.len() as u64 {
            bail!("unpacked it is more than {MAX_RATIO} times larger");
        }
        for path in folded.keys() {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            if above
                .into_iter()
                .any(|parent| folded.get(parent) == Some(&false))
            {
                bail!("{}: it lies in a file", colibri_text::brief(path, 80));
            }
        }
        Ok(Archive { zip, files })
    }

    /// The paths of its files, in order, with whether each may be executed.
    pub fn files(&self) -> impl Iterator<Item = (&str, bool)> {
        self.files
            .iter()
            .map(|(path, (_, executable))| (path.as_str(), *executable))
    }

    /// True if there is a file.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// The content of a file.
    ///
    /// # Errors
    /// There is none, or it is not what its headers say: size, checksum.
    pub fn read(&mut self, path: &str) -> anyhow::Result<Vec<u8>> {
        let shown = colibri_text::brief(path, 80);
        let (at, _) = *self
            .files
            .get(path)
            .with_context(|| format!("{shown} is not in it"))?;
        let file = self
            .zip
            .by_index(at)
            .map_err(|error| anyhow!("{shown}: {}", brief(&error)))?;
        let said = file.size();
        let mut bytes = Vec::new();
        let read = file.take(said.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| anyhow!("{shown}: {}", brief(&error)))?;
        if bytes.len() as u64 != said {
            bail!("{shown}: it is not as long as it says");
        }
        Ok(bytes)
    }
}

fn brief(error: &dyn std::error::Error) -> String {
    colibri_text::brief(&error.to_string(), 120)
}

/// A path below the directory that it is unpacked to, and the same for every reader.
fn check_path(path: &str) -> anyhow::Result<()> {
    if path.is_empty() || path.len() > 512 {
        bail!("the name of a file is empty or longer than 512 bytes");
    }
    if path.starts_with('/') || path.contains('\\') || path.get(1..2) == Some(":") {
        bail!("its path is not one below the bundle");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        bail!("its path holds //, . or ..");
    }
    if path.chars().any(colibri_text::is_hidden) {
        bail!("its path holds control or hidden characters");
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Write as _;
    use zip::write::{SimpleFileOptions, ZipWriter};

    /// A zip file of these files.
    pub(in super::super) fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in files {
            writer
                .start_file(*name, SimpleFileOptions::default())
                .unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn refusal(bytes: &[u8]) -> String {
        match Archive::open(bytes) {
            Ok(_) => panic!("accepted"),
            Err(why) => format!("{why:#}"),
        }
    }

    #[test]
    fn files_are_read_back() {
        let bytes = zip_of(&[("manifest.json", b"{}"), ("server/index.js", b"x")]);
        let mut archive = Archive::open(&bytes).unwrap();
        assert_eq!(
            archive.files().map(|(path, _)| path).collect::<Vec<_>>(),
            ["manifest.json", "server/index.js"]
        );
        assert_eq!(archive.read("server/index.js").unwrap(), b"x");
        assert!(archive.read("no").is_err() && archive.has("manifest.json"));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in [
            "../x",
            "/etc/x",
            "a/../../x",
            "a//x",
            "./x",
            "a\\..\\x",
            "C:/x",
            "a/\u{7}",
            "a/\u{202e}x",
        ] {
            // The writer of the crate would mend some of these names: the right length is put in
            // their place.
            let stand_in = "s".repeat(path.len());
            let bytes = replaced(
                &zip_of(&[(&stand_in, b"x")]),
                stand_in.as_bytes(),
                path.as_bytes(),
            );
            assert!(!refusal(&bytes).is_empty(), "{path}");
        }
    }

    fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for at in 0..bytes.len() - from.len() {
            if &bytes[at..at + from.len()] == from {
                bytes[at..at + from.len()].copy_from_slice(to);
            }
        }
        bytes
    }

    #[test]
    fn names_twice_links_and_files_in_files_are_refused() {
        let twice = replaced(&zip_of(&[("aaaa", b"1"), ("bbbb", b"2")]), b"bbbb", b"aaaa");
        assert!(refusal(&twice).contains("same name"), "{}", refusal(&twice));
        assert!(refusal(&zip_of(&[("a/X", b"1"), ("a/x", b"2")])).contains("this name"));
        assert!(refusal(&zip_of(&[("a", b"1"), ("a/x", b"2")])).contains("in a file"));
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        writer
            .add_symlink("link", "/etc/passwd", SimpleFileOptions::default())
            .unwrap();
        let linked = writer.finish().unwrap().into_inner();
        assert!(refusal(&linked).contains("link"));
    }

    #[test]
    fn what_grows_too_much_or_is_none_is_refused() {
        let zeros = vec![0; 8 << 20];
        let bomb = zip_of(&[("zeros", &zeros)]);
        assert!(
            refusal(&bomb).contains("times larger"),
            "{}",
            refusal(&bomb)
        );
        assert!(refusal(b"not a zip").contains("no zip file"));
        assert!(refusal(b"").contains("no zip file"));
    }

    #[test]
    fn a_file_that_lies_about_its_length_is_refused() {
        let mut bytes = zip_of(&[("a", &[b'x'; 300])]);
        // The size stands in both headers: 300 is 0x012c.
        for at in 0..bytes.len() - 4 {
            if bytes[at..at + 4] == [0x2c, 1, 0, 0] {
                bytes[at] = 0x10;
            }
        }
        let read = Archive::open(&bytes).and_then(|mut archive| archive.read("a"));
        assert!(read.is_err());
    }
}
