//! The folders of the product, for the tests that read its sources.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of this repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Folders of the product's packages, of the repository at `root`.
pub(crate) fn packages(root: &Path) -> Vec<PathBuf> {
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let mut packages: Vec<PathBuf> = crates.map(|entry| entry.unwrap().path()).collect();
    packages.extend(["colibri-mcpd", "colibri-jail-helper"].map(|name| root.join(name)));
    packages.sort();
    packages
}

/// The Rust sources below a folder, without what was built there.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return files;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
