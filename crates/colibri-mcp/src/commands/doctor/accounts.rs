//! The users and groups of the service.

use anyhow::{anyhow, bail};
use nix::unistd::{Group, User};

use super::fact::{Amiss, CheckOutcome};

/// The daemon's user and group.
pub(super) const DAEMON: &str = colibri_api::paths::DAEMON_USER;
/// The daemon's program, which runs others as its user.
pub(super) const DAEMON_PROGRAM: &str = "/usr/local/sbin/colibri-mcpd";
/// The group of those who may open the socket.
pub(super) const PEOPLE: &str = "mcpusers";

pub(super) fn user(name: &str) -> anyhow::Result<User> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(anyhow!("there is no user {name}")),
        Err(error) => Err(anyhow!("looking up {name}: {error}")),
    }
}

fn group(name: &str) -> anyhow::Result<Group> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group),
        Ok(None) => Err(anyhow!("there is no group {name}")),
        Err(error) => Err(anyhow!("looking up {name}: {error}")),
    }
}

pub(super) fn daemon_user() -> anyhow::Result<String> {
    let user = user(DAEMON)?;
    let group = group(DAEMON)?;
    if user.uid.is_root() {
        bail!("{DAEMON} is another name of root");
    }
    if user.gid != group.gid {
        bail!(
            "the primary group of {DAEMON} is gid {}, not {DAEMON}",
            user.gid
        );
    }
    Ok(format!("uid {}, gid {}", user.uid, user.gid))
}

/// Everybody in a group: its members, and those whose primary group it is.
fn members(group: &Group) -> Vec<String> {
    let mut members = group.mem.clone();
    // The file is what the helper trusts; users of a directory service are seen only as members.
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    for line in passwd.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<_> = line.split(':').collect();
        if let [name, _, _, gid, ..] = fields.as_slice()
            && gid.parse() == Ok(group.gid.as_raw())
            && !members.iter().any(|member| member == name)
        {
            members.push((*name).to_owned());
        }
    }
    members
}

pub(super) fn daemon_group() -> anyhow::Result<String> {
    let others: Vec<_> = members(&group(DAEMON)?)
        .into_iter()
        .filter(|name| name != DAEMON)
        .collect();
    if others.is_empty() {
        return Ok("the daemon alone".to_owned());
    }
    Err(anyhow!("members besides the daemon: {}", others.join(", ")))
}

pub(super) fn people() -> CheckOutcome {
    let group = group(PEOPLE)?;
    let members = members(&group);
    if members.iter().any(|name| name == DAEMON) {
        return Err(Amiss::Bad(format!(
            "{DAEMON} is in {PEOPLE}: hosted servers could open the socket"
        )));
    }
    if members.is_empty() {
        return Err(Amiss::Note(
            "nobody is in it: only root can use the daemon".to_owned(),
        ));
    }
    Ok(members.join(", "))
}
