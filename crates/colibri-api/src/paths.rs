//! Where FreeBSD keeps things; elsewhere the user's XDG directories.

use std::path::{Path, PathBuf};

fn home(variable: &str, fallback: &str) -> PathBuf {
    let set = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    set.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(fallback))
}

fn configuration(file: &str) -> PathBuf {
    if cfg!(target_os = "freebsd") {
        Path::new(colibri_registry::PATH).with_file_name(file)
    } else {
        home("XDG_CONFIG_HOME", ".config").join("colibri").join(file)
    }
}

/// The daemon's socket, as flag, environment and platform have it.
pub fn socket(flag: Option<PathBuf>) -> PathBuf {
    let from = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    flag.or_else(|| from("COLIBRI_MCP_SOCKET"))
        .or_else(|| from("COLIBRI_DAEMON_SOCKET"))
        .unwrap_or_else(|| {
            if cfg!(target_os = "freebsd") {
                PathBuf::from("/var/run/colibri/colibri.sock")
            } else {
                home("XDG_RUNTIME_DIR", ".cache").join("colibri/colibri.sock")
            }
        })
}

/// The registry.
pub fn registry() -> PathBuf {
    configuration("external-mcp.json")
}

/// The client policy.
pub fn clients() -> PathBuf {
    configuration("clients.json")
}

/// Store and trail.
pub fn state_dir() -> PathBuf {
    if cfg!(target_os = "freebsd") {
        PathBuf::from("/var/db/colibri")
    } else {
        home("XDG_STATE_HOME", ".local/state").join("colibri")
    }
}

/// The directories of skills: one, if it is there.
pub fn skills() -> Vec<PathBuf> {
    Some(configuration("skills"))
        .filter(|path| path.exists())
        .into_iter()
        .collect()
}
