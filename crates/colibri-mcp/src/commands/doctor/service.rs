//! The facts of the running service: its socket and its state.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Context as _;
use nix::unistd::geteuid;

use super::accounts::{DAEMON, PEOPLE, user};
use super::fact::{Amiss, CheckOutcome, DoctorCheck, ExaminedHost, Sight};
use super::ownership::{RequiredOwnership, is_as};
use super::system::is_on_tmpfs;
use crate::terminal::bytes;
use colibri_trail::directory;
use colibri_trail::reserve::{Reserve, Space, Use};

/// Every daemon's, a service or a user's own.
pub(super) const ROOM: DoctorCheck = DoctorCheck {
    name: "the trail has room to be written",
    sight: Sight::Everywhere,
    check: room,
    remedy: "free space on that file system: results/ and agents/ in the state directory may be deleted, and old segments \
             of the trail dropped: colibri-mcp trail drop --keep-days N, as the daemon's user",
};

pub(super) fn daemon_answers(host: &ExaminedHost) -> anyhow::Result<String> {
    UnixStream::connect(&host.socket)
        .map(|_| host.socket.display().to_string())
        .with_context(|| host.socket.display().to_string())
}

pub(super) fn socket(host: &ExaminedHost) -> anyhow::Result<String> {
    let uid = user(DAEMON)?.uid.as_raw();
    let directory = host.socket.parent().unwrap_or(Path::new("/"));
    let wanted = |mode| RequiredOwnership {
        uid,
        group: Some(PEOPLE),
        mode,
    };
    let directory = is_as(directory, &wanted(0o750))?;
    let socket = is_as(&host.socket, &wanted(0o660))?;
    Ok(format!("{directory}; {socket}"))
}

pub(super) fn state_directory(host: &ExaminedHost) -> CheckOutcome {
    let path = host.state_dir()?;
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
        Err(wrong) => Err(Amiss::Skipped(format!("{wrong:#}"))),
    }
}

fn room(host: &ExaminedHost) -> CheckOutcome {
    let state_dir = host.state_dir()?;
    let mut seen = Err(Amiss::Skipped(format!(
        "{} cannot be looked at",
        state_dir.display()
    )));
    // The trail may have a file system of its own.
    for place in [state_dir.to_owned(), directory(state_dir)] {
        if let Ok(space) = Reserve::of(&place).space() {
            seen = Ok(room_at(&place, &space)?);
        }
    }
    seen
}

fn room_at(place: &Path, space: &Space) -> CheckOutcome {
    let (free, reserved) = (bytes(space.free), bytes(space.reserved));
    let text = format!(
        "{}: {free} free, {reserved} reserved for the trail",
        place.display()
    );
    if space.free < space.kept_from(Use::Stored) {
        Err(Amiss::Bad(format!(
            "{text}: results, new tasks and agents' events are not stored, and once nothing is free every call is refused"
        )))
    } else if space.free < space.kept_from(Use::Cached) {
        Err(Amiss::Note(format!(
            "{text}: results over their limit are not stored"
        )))
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fills_up_is_noted_before_calls_are_refused() {
        let reserved = 3 << 20;
        let at = |free| room_at(Path::new("/s"), &Space { free, reserved });
        let whole = "/s: 6,291,456 bytes free, 3,145,728 bytes reserved for the trail";
        assert_eq!(at(2 * reserved), Ok(whole.to_owned()));
        assert!(matches!(at(2 * reserved - 1), Err(Amiss::Note(seen)) if seen.contains("results")));
        assert!(matches!(at(reserved), Err(Amiss::Note(_))));
        for free in [reserved - 1, 0] {
            assert!(
                matches!(at(free), Err(Amiss::Bad(seen)) if seen.contains("every call is refused"))
            );
        }
    }
}
