//! What the running service shows: its socket and its state.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::unistd::geteuid;

use super::accounts::{DAEMON, PEOPLE, user};
use super::fact::{Amiss, Host, Outcome};
use super::ownership::{Wanted, is_as};
use super::system::is_on_tmpfs;

pub(super) fn daemon_answers(host: &Host) -> Result<String, String> {
    UnixStream::connect(&host.socket)
        .map(|_| host.socket.display().to_string())
        .map_err(|error| format!("{}: {error}", host.socket.display()))
}

pub(super) fn socket(host: &Host) -> Result<String, String> {
    let uid = user(DAEMON)?.uid.as_raw();
    let directory = host.socket.parent().unwrap_or(Path::new("/"));
    let wanted = |mode| Wanted {
        uid,
        group: Some(PEOPLE),
        mode,
    };
    let directory = is_as(directory, &wanted(0o750))?;
    let socket = is_as(&host.socket, &wanted(0o660))?;
    Ok(format!("{directory}; {socket}"))
}

pub(super) fn state_directory(host: &Host) -> Outcome {
    let path = &host.state_dir;
    let facts = match path.symlink_metadata() {
        Ok(facts) => facts,
        Err(error) => return Err(Amiss::Bad(format!("{}: {error}", path.display()))),
    };
    if host.private.is_some() || cfg!(target_os = "freebsd") {
        let uid = match host.private {
            Some(_) => geteuid(),
            None => user(DAEMON)?.uid,
        };
        if facts.uid() != uid.as_raw() || facts.mode() & 0o027 != 0 {
            return Err(Amiss::Bad(format!(
                "{}: uid {}, mode {:04o}; must be uid {uid}'s, 0750 or less",
                path.display(),
                facts.uid(),
                facts.mode() & 0o7777
            )));
        }
    }
    match is_on_tmpfs(path) {
        Ok(true) => Err(Amiss::Note(format!(
            "{} is on a tmpfs: trail, pins and tasks end with this boot",
            path.display()
        ))),
        Ok(false) => Ok(path.display().to_string()),
        Err(wrong) => Err(Amiss::Skipped(wrong)),
    }
}
