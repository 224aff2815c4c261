//! The requirements on the kernel and its services.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::{anyhow, bail};
use colibri_jail_helper::STATE_DIR;
use nix::unistd::getuid;

use super::fact::{Amiss, CheckOutcome, DoctorCheck, Sight};
use super::system::{kernel, mount_points, run};
use crate::sandbox;

/// The system on which this runs.
pub(super) const SYSTEM: DoctorCheck = DoctorCheck {
    name: "the system is FreeBSD",
    sight: Sight::Everywhere,
    check: |_| match cfg!(target_os = "freebsd") {
        true => Ok(kernel("kern.version")
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or_default()
            .into()),
        false => Err(Amiss::Note(
            "jails need FreeBSD; elsewhere servers run on the host".to_owned(),
        )),
    },
    remedy: "install Colibri on a FreeBSD host to run servers in jails",
};

/// True if this command may reach the daemon at all.
pub(super) const SANDBOX: DoctorCheck = DoctorCheck {
    name: "no agent's sandbox is around this command",
    sight: Sight::Everywhere,
    check: |_| match sandbox::around_this() {
        None => Ok(String::new()),
        Some(which) => Err(Amiss::Note(which.to_owned())),
    },
    remedy: "run it in a terminal of your own; or change the agent's setting, if every command is to have that",
};

pub(super) fn modules() -> anyhow::Result<String> {
    let missing: Vec<_> = ["nullfs", "tmpfs"]
        .into_iter()
        .filter(|name| {
            !run("/sbin/kldstat", &["-q", "-m", name]).is_ok_and(|ran| ran.status == Some(0))
        })
        .collect();
    let level: i32 = kernel("kern.securelevel")
        .and_then(|level| level.parse().ok())
        .unwrap_or(-1);
    if missing.is_empty() {
        return Ok(format!("nullfs, tmpfs; securelevel {level}"));
    }
    if level > 0 {
        bail!(
            "not loaded: {}; securelevel {level} forbids loading",
            missing.join(", ")
        );
    }
    Ok(format!(
        "not loaded yet: {}; the service loads them",
        missing.join(", ")
    ))
}

pub(super) fn can_make_jails() -> CheckOutcome {
    let number = |name: &str| {
        kernel(name)
            .and_then(|value| value.parse::<i64>().ok())
            .unwrap_or(0)
    };
    if number("security.jail.jailed") == 0 {
        return Ok("this is no jail itself".to_owned());
    }
    let (most, now) = (
        number("security.jail.children.max"),
        number("security.jail.children.cur"),
    );
    if now >= most {
        return Err(Amiss::Bad(format!(
            "this is a jail with {now} children of at most {most}"
        )));
    }
    Err(Amiss::Note(format!(
        "this is a jail, with {} more children at most",
        most - now
    )))
}

pub(super) fn audit() -> CheckOutcome {
    let path = if cfg!(target_os = "freebsd") {
        "/var/run/log"
    } else {
        "/dev/log"
    };
    match Path::new(path).metadata() {
        Ok(facts) if facts.file_type().is_socket() => Ok(path.to_owned()),
        Ok(_) => Err(Amiss::Bad(format!("{path} is no socket"))),
        Err(error) if cfg!(target_os = "freebsd") => Err(Amiss::Bad(format!("{path}: {error}"))),
        Err(error) => Err(Amiss::Note(format!("{path}: {error}"))),
    }
}

/// Staged directories and jails whose helper does not live.
pub(super) fn leftovers() -> anyhow::Result<String> {
    if !getuid().is_root() {
        bail!("only root can see them");
    }
    let alive = run("/bin/ps", &["-axww", "-o", "command"])?.out;
    let jails = run("/usr/sbin/jls", &["name"])?.out;
    let staged = mount_points()?;
    let staged = staged
        .iter()
        .filter_map(|point| point.strip_prefix(STATE_DIR).ok()?.iter().next()?.to_str());
    let names = jails
        .lines()
        .filter_map(|name| name.strip_prefix("colibri-"));
    let mut left: Vec<_> = staged
        .chain(names)
        .filter(|session| !alive.contains(&format!("run --session {session} ")))
        .map(str::to_owned)
        .collect();
    left.sort_unstable();
    left.dedup();
    if left.is_empty() {
        return Ok("no jail, no mount".to_owned());
    }
    Err(anyhow!("left of sessions {}", left.join(", ")))
}
