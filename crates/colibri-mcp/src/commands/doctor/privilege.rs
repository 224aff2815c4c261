//! The privilege backend for jailed servers: the helper, its file system, and the ways to run it.

use std::path::Path;

use anyhow::anyhow;
use colibri_api::PrivMode;
use colibri_jail_helper::CONTRACT;
use nix::sys::statvfs::{FsFlags, statvfs};

use super::accounts::{DAEMON, DAEMON_PROGRAM, user};
use super::fact::{Amiss, CheckOutcome, ExaminedHost};
use super::ownership::{RequiredOwnership, is_as};
use super::release::parse_release;
use super::system::{kernel, run};

pub(super) fn helper_mode(host: &ExaminedHost) -> CheckOutcome {
    let bare = is_as(&host.helper, &wanted_helper(0o550));
    let setuid = is_as(&host.helper, &wanted_helper(0o4550));
    match (host.priv_mode, setuid, bare) {
        (_, Ok(seen), _) => Ok(seen),
        (PrivMode::Mdo | PrivMode::Sudo, _, Ok(seen)) => Ok(seen),
        (_, Err(wrong), _) => Err(wrong.into()),
    }
}

fn wanted_helper(mode: u32) -> RequiredOwnership {
    RequiredOwnership {
        uid: 0,
        group: Some(DAEMON),
        mode,
    }
}

pub(super) fn helper_mount(host: &ExaminedHost) -> CheckOutcome {
    let flags = match statvfs(&host.helper) {
        Ok(facts) => facts.flags(),
        Err(error) => {
            return Err(Amiss::Skipped(format!(
                "{}: {error}",
                host.helper.display()
            )));
        }
    };
    match (flags.contains(FsFlags::ST_NOSUID), host.priv_mode) {
        (false, _) => Ok("not mounted nosuid".to_owned()),
        (true, PrivMode::Helper) => Err(Amiss::Bad(
            "mounted nosuid: the set-user-ID bit does nothing".to_owned(),
        )),
        (true, mode) => Ok(format!(
            "mounted nosuid, which priv mode {mode} does not mind"
        )),
    }
}

pub(super) fn contract(host: &ExaminedHost) -> anyhow::Result<String> {
    let ran = run(&host.helper.to_string_lossy(), &["--version"])?;
    let number = ran
        .out
        .rsplit(' ')
        .next()
        .and_then(|word| word.parse::<u32>().ok());
    match number {
        Some(CONTRACT) => Ok(ran.out),
        _ => Err(anyhow!(
            "the helper says {:?}; contract {CONTRACT} is wanted",
            ran.out
        )),
    }
}

/// A real attempt, as the daemon's user, with the one request that does nothing. Where the helper
/// reaches root it says something about the policy at worst; where it does not, it says that.
pub(super) fn reaches_root(host: &ExaminedHost) -> CheckOutcome {
    let helper = host.helper.to_string_lossy();
    let before: &[&str] = match host.priv_mode {
        PrivMode::Helper => &[],
        PrivMode::Mdo => &["/usr/bin/mdo", "-i", "-u", "root", "--"],
        PrivMode::Sudo => &["/usr/local/bin/sudo", "-n", "--"],
    };
    // Never through su(1): what that runs keeps root's terminal.
    let words = [&["as", DAEMON, "--"], before, &[&*helper, "check"]].concat();
    let command = format!("colibri-mcpd {}", words.join(" "));
    match run(DAEMON_PROGRAM, &words) {
        // Root was reached, and found something wrong in the files (78), which is another fact; or
        // told the daemon's user that the report is root's alone (77). A helper that is not root
        // ends with 71, mdo(1) and sudo(8) with 1.
        Ok(ran) if matches!(ran.status, Some(0 | 77 | 78)) => Ok(command),
        Ok(ran) => Err(Amiss::Bad(format!(
            "{command} ended with {}: {}",
            ran.status
                .map_or("a signal".to_owned(), |status| status.to_string()),
            ran.err.lines().next().unwrap_or("no message")
        ))),
        Err(wrong) => Err(wrong.into()),
    }
}

pub(super) fn mdo_rule(host: &ExaminedHost) -> CheckOutcome {
    if host.priv_mode != PrivMode::Mdo {
        return Err(Amiss::Skipped(format!("priv mode is {}", host.priv_mode)));
    }
    let daemon = user(DAEMON)?;
    let (uid, gid) = (daemon.uid.as_raw(), daemon.gid.as_raw());
    if !Path::new("/usr/bin/mdo").exists() {
        return Err(Amiss::Bad(
            "there is no /usr/bin/mdo: FreeBSD 14.2 or later has it".to_owned(),
        ));
    }
    match (
        kernel("security.mac.do.enabled").as_deref(),
        kernel("security.mac.do.rules"),
    ) {
        (None, _) => Err(Amiss::Bad("the module mac_do is not loaded".to_owned())),
        (Some("0"), _) => Err(Amiss::Bad("security.mac.do.enabled is 0".to_owned())),
        (_, rules) => {
            let rules = rules.unwrap_or_default();
            let major = parse_release(&kernel("kern.osrelease").unwrap_or_default())
                .map_or(15, |release| release.0);
            let wanted = wanted_rule(uid, gid, major);
            match find_rule(&rules, uid, major) {
                Some(rule) if major >= 15 && !names_group(rule) => Err(Amiss::Note(format!(
                    "{rule:?} names no target group (FreeBSD-SA-26:59.mac_do); write {wanted}"
                ))),
                Some(_) => Ok(rules),
                None => Err(Amiss::Bad(format!(
                    "no rule for uid {uid} in {rules:?}; in this release's grammar it is {wanted}"
                ))),
            }
        }
    }
}

/// The rule of `etc/mdo-15.conf`, or of `mdo-14.conf`.
fn wanted_rule(uid: u32, gid: u32, major: u32) -> String {
    match major {
        15.. => format!("uid={uid}>uid=0,gid=0,gid={gid},+gid=0,+gid={gid}"),
        _ => format!("uid={uid}:0"),
    }
}

/// The mac_do(4) rule that lets `uid` become root with `mdo -i`: rules are separated by `;` and
/// their halves by `>` from 15 on, by `,` and `:` before.
fn find_rule(rules: &str, uid: u32, major: u32) -> Option<&str> {
    let (between, within) = if major >= 15 { (';', '>') } else { (',', ':') };
    rules.split(between).map(str::trim).find(|rule| {
        let Some((from, to)) = rule.split_once(within) else {
            return false;
        };
        let grants = |target: &str| match major {
            15.. => matches!(target, "any" | "uid=0" | "uid=*" | "uid=any"),
            _ => matches!(target, "any" | "*" | "0"),
        };
        from.trim() == format!("uid={uid}") && to.split(',').map(str::trim).any(grants)
    })
}

/// True if a rule in the grammar of FreeBSD 15 says which groups its target may have.
fn names_group(rule: &str) -> bool {
    let targets = rule.split_once('>').map_or("", |(_, to)| to);
    targets.split(',').map(str::trim).any(|target| {
        target == "any"
            || target
                .trim_start_matches(['+', '-', '!'])
                .starts_with("gid=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mdo_rules_are_read_in_both_grammars() {
        for (rules, major, granted) in [
            ("uid=748>uid=0", 15, true),
            ("gid=0>any; uid=748>gid=5,uid=0", 15, true),
            ("uid=748>any", 15, true),
            ("uid=748>uid=1001", 15, false),
            ("uid=7480>uid=0", 15, false),
            ("uid=748:0", 15, false),
            ("uid=748:0", 14, true),
            ("gid=0:any,uid=748:0", 14, true),
            ("uid=748:80", 14, false),
            ("uid=748>uid=0", 14, false),
            ("", 15, false),
        ] {
            assert_eq!(
                find_rule(rules, 748, major).is_some(),
                granted,
                "{rules} on {major}"
            );
        }
    }

    /// The line of an installed file, as an operator copies it.
    fn shipped_rule(file: &str) -> String {
        let line = file
            .lines()
            .find_map(|line| line.strip_prefix("security.mac.do.rules="));
        line.unwrap().replace("UID", "748").replace("GID", "749")
    }

    #[test]
    fn the_rules_that_ship_are_those_that_are_wanted() {
        let rules = shipped_rule(include_str!("../../../../../etc/mdo-15.conf"));
        assert_eq!(rules, wanted_rule(748, 749, 15));
        assert!(
            find_rule(&rules, 748, 15).is_some_and(names_group),
            "{rules}"
        );
        let rules = shipped_rule(include_str!("../../../../../etc/mdo-14.conf"));
        assert_eq!(rules, wanted_rule(748, 749, 14));
        assert!(find_rule(&rules, 748, 14).is_some(), "{rules}");
    }

    #[test]
    fn a_rule_without_a_target_group_is_told() {
        for (rule, named) in [
            ("uid=748>uid=0", false),
            ("gid=748>uid=0", false),
            ("uid=748>uid=0,gid=0,+gid=0", true),
            ("uid=748>uid=0, !gid=.", true),
            ("uid=748>any", true),
        ] {
            assert_eq!(names_group(rule), named, "{rule}");
        }
    }
}
