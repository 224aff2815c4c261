//! The paths of the service stand in `colibri-paths` alone, so that no two parts of the product
//! look at two places. The set-user-ID helper's own are its contract, and agree with the service's
//! where they must.

use std::fs;
use std::path::{Path, PathBuf};

use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::plan::{DOOR, DOOR_SOCKET, PlannedAgent};
use colibri_paths::{DAEMON_USER, FREEBSD, LINUX, SERVICE};

/// The directories below which everything of the service's lies.
const OWN: [&str; 8] = [
    "/etc/colibri",
    "/var/db/colibri",
    "/var/lib/colibri",
    "/var/log/colibri",
    "/var/cache/colibri",
    "/run/colibri",
    "/libexec/colibri",
    "/share/colibri",
];

/// The sources with such a path of their own, and the reason.
const EXCEPTIONS: [(&str, &str); 5] = [
    ("crates/colibri-paths/src/", "it is their place"),
    (
        "colibri-jail-helper/src/",
        "its paths are the same on every system and no switch moves them; it links as little as can be",
    ),
    (
        "crates/colibri-registry/src/lib.rs",
        "the registry that the helper reads",
    ),
    (
        "crates/colibri-api/src/priv_mode.rs",
        "the helper's program, the same on every system",
    ),
    (
        "crates/colibri-mcp/src/commands/doctor/examine.rs",
        "a remedy: a directory within a jail's root",
    ),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs")
            && path.file_name().unwrap() != "tests.rs"
        {
            found.push(path);
        }
    }
}

/// The lines of code of a source, without comments and tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let product = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let lines = product.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn a_path_of_the_service_stands_in_one_place() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for room in ["crates", "colibri-mcpd/src", "colibri-jail-helper/src"] {
        sources(&repository.join(room), &mut files);
    }
    let (mut found, mut used) = (Vec::new(), [false; EXCEPTIONS.len()]);
    for file in files {
        let name = file
            .strip_prefix(repository)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let text = fs::read_to_string(&file).unwrap();
        for (at, line) in code(&text).filter(|(_, line)| OWN.iter().any(|own| line.contains(own))) {
            match EXCEPTIONS
                .iter()
                .position(|(exception, _)| name.starts_with(exception))
            {
                Some(exception) => used[exception] = true,
                None => found.push(format!("{name}:{at}: {}", line.trim())),
            }
        }
    }
    assert!(
        found.is_empty(),
        "take these from colibri-paths:\n{}",
        found.join("\n")
    );
    for ((exception, _), is_used) in EXCEPTIONS.iter().zip(used) {
        assert!(is_used, "{exception} needs no exception any more");
    }
}

#[test]
fn the_helper_looks_where_the_service_is() {
    let session = SessionId::parse(b"0123456789abcdef").unwrap();
    assert_eq!(
        PlannedAgent::door(&session),
        SERVICE.socket_directory().join("doors/0123456789abcdef")
    );
    assert_eq!(Path::new(DOOR_SOCKET).parent(), Some(Path::new(DOOR)));
    assert_eq!(FREEBSD.registry(), Path::new(colibri_registry::PATH));
    assert_eq!(
        FREEBSD.registry().parent(),
        Path::new(colibri_jail_helper::POLICY).parent()
    );
}

#[test]
fn the_packages_install_what_is_looked_for() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = |path: &str| fs::read_to_string(repository.join(path)).unwrap();
    let build = text("deb/build");
    for path in [LINUX.registry(), LINUX.skills()] {
        let path = path.display().to_string();
        assert!(
            build.contains(path.trim_start_matches('/')),
            "deb/build: {path}"
        );
    }
    assert!(build.contains("lib/systemd/system/colibri-mcpd.service"));
    let unit = text("deb/colibri-mcpd.service");
    let (_, state) = LINUX.state.rsplit_once('/').unwrap();
    for line in [
        format!("User={DAEMON_USER}\n"),
        format!("StateDirectory={state}\n"),
        format!("ReadWritePaths={}\n", LINUX.socket_directory().display()),
    ] {
        assert!(unit.contains(&line), "deb/colibri-mcpd.service: {line}");
    }
    let script = text("port/files/colibri_mcp.in");
    for value in [FREEBSD.socket, FREEBSD.state, DAEMON_USER] {
        assert!(
            script.contains(&format!("=\"{value}\"}}\n")),
            "rc script: {value}"
        );
    }
}
