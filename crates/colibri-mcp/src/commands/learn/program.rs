//! The program of a server: the directories that it consists of, as its command leads to them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::places;

/// The most of a file that is read for its first line, or for a setting.
const MAX_HEAD: u64 = 4096;

/// The directories outside the base system that a command's program consists of, with what each is.
pub(super) fn directories(command: &[String]) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let Some((program, arguments)) = command.split_first() else {
        return found;
    };
    program_directory(Path::new(program), "the program", &mut found);
    if let Some(script) = script(arguments) {
        program_directory(script, "the script", &mut found);
    }
    found
}

/// An interpreter's script: the first argument that is no flag, if it is a file.
pub(super) fn script(arguments: &[String]) -> Option<&Path> {
    let first = arguments
        .iter()
        .find(|word| !word.starts_with('-'))
        .map(Path::new);
    first.filter(|script| script.is_absolute() && script.is_file())
}

fn program_directory(path: &Path, what: &str, found: &mut BTreeMap<PathBuf, String>) {
    let Ok(real) = path.canonicalize() else {
        return;
    };
    if let Some(interpreter) = interpreter(&real)
        && interpreter != real
    {
        program_directory(&interpreter, "its interpreter", found);
    }
    // A virtual environment of Python stands where its link does, and names the Python that it is
    // of.
    for path in [path, &real] {
        let above = path
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("/"));
        if let Some(text) = head(&above.join("pyvenv.cfg")) {
            found.insert(above.to_owned(), format!("{what}: a virtual environment"));
            let home = text
                .lines()
                .find_map(|line| line.strip_prefix("home")?.trim().strip_prefix('='));
            if let Some(prefix) = home
                .map(str::trim)
                .and_then(|home| Path::new(home).parent())
            {
                take(prefix, "the Python of the virtual environment", found);
            }
        }
    }
    take(&package_directory(&real), what, found);
}

/// The directory that an installed file belongs to: above the outermost `node_modules` or
/// `lib/python*`, above `bin`, else its own.
fn package_directory(file: &Path) -> PathBuf {
    let own = file.parent().unwrap_or(Path::new("/"));
    let modules = file
        .ancestors()
        .filter(|above| above.file_name().is_some_and(|name| name == "node_modules"));
    if let Some(prefix) = modules.last().and_then(Path::parent) {
        return prefix.join("node_modules");
    }
    match own.file_name().is_some_and(|name| name == "bin") {
        true => own.parent().unwrap_or(own).to_owned(),
        false => own.to_owned(),
    }
}

fn take(directory: &Path, what: &str, found: &mut BTreeMap<PathBuf, String>) {
    let real = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_owned());
    let is_narrow = real.components().count() >= 3 && places::secret(&real).is_none();
    if is_narrow && places::system(&real).is_none() && !places::is_temporary(&real) {
        found.entry(real).or_insert_with(|| what.to_owned());
    }
}

/// The interpreter that the first line of a script names, behind all links.
pub(super) fn interpreter(script: &Path) -> Option<PathBuf> {
    let text = head(script)?;
    let line = text.lines().next()?.strip_prefix("#!")?.trim();
    let mut words = line.split_whitespace();
    let first = PathBuf::from(words.next()?);
    let named = match first.file_name()?.as_bytes() {
        b"env" => crate::install::find_program(words.find(|word| !word.starts_with('-'))?)?,
        _ => first,
    };
    named
        .is_absolute()
        .then(|| named.canonicalize().unwrap_or(named))
}

/// The beginning of a file, as far as it is text.
fn head(path: &Path) -> Option<String> {
    let facts = path.metadata().ok()?;
    if !facts.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(MAX_HEAD)
        .read_to_end(&mut bytes)
        .ok()?;
    if bytes.starts_with(b"\x7fELF") {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
