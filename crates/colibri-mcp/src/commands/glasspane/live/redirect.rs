//! The file that leads a browser to the page, so that no argument list shows the token, and the
//! browser that is given it.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::CommandError;
use tempfile::TempDir;

/// The program that opens files where `BROWSER` names none.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// The file, in a directory of its own. Both are removed when it is dropped.
pub(super) struct RedirectFile {
    path: PathBuf,
    _directory: TempDir,
}

impl RedirectFile {
    /// Writes the file, which its owner alone can read.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(entrance: &str) -> Result<RedirectFile, CommandError> {
        let directory = tempfile::Builder::new()
            .prefix("colibri-glasspane-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir();
        let directory = directory.map_err(|source| CommandError::File {
            path: std::env::temp_dir(),
            source,
        })?;
        let path = directory.path().join("open.html");
        let page = format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta http-equiv=\"refresh\" content=\"0;url={entrance}\">\n<title>Colibri</title>\n\
             <p><a href=\"{entrance}\">Open the page</a>. This works once.\n"
        );
        let written = (|| {
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(page.as_bytes())
        })();
        written.map_err(|source| CommandError::File {
            path: path.clone(),
            source,
        })?;
        Ok(RedirectFile {
            path,
            _directory: directory,
        })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Has the first browser that can be started open the file, and returns the name of its program.
///
/// # Errors
/// None can be started.
pub(super) fn open(file: &Path) -> anyhow::Result<String> {
    let named = std::env::var("BROWSER").unwrap_or_default();
    // A list, as xdg-open(1) takes it.
    let mut commands: Vec<&str> = named
        .split(':')
        .filter(|command| !command.trim().is_empty())
        .collect();
    if commands.is_empty() {
        commands.push(OPENER);
    }
    let mut failed = Vec::new();
    for command in commands {
        match start(command, file) {
            Ok(program) => return Ok(program),
            Err(error) => failed.push(format!("{}: {error}", command.trim())),
        }
    }
    anyhow::bail!("{}", failed.join("; "))
}

fn start(command: &str, file: &Path) -> io::Result<String> {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let mut started = Command::new(program);
    let mut is_named = false;
    for word in words {
        match word {
            "%s" => {
                is_named = true;
                started.arg(file);
            }
            _ => {
                started.arg(word);
            }
        }
    }
    if !is_named {
        started.arg(file);
    }
    // A browser that is started here stays when this ends, and is not interrupted with it.
    let mut child = started
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    std::thread::spawn(move || child.wait());
    Ok(program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_its_owners_alone_and_goes() {
        let file = RedirectFile::write("http://127.0.0.1:1/a/enter?b").unwrap();
        let path = file.path().to_owned();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("content=\"0;url=http://127.0.0.1:1/a/enter?b\""),
            "{text}"
        );
        drop(file);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_browser_that_is_not_there_is_named() {
        let why = start("/nonexistent/browser --new %s", Path::new("/x")).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
    }
}
