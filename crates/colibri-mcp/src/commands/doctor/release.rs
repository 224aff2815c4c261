//! Releases of FreeBSD, and what is known to be wrong with them.

use super::fact::{Amiss, CheckOutcome};

/// A security advisory that bears on jails as the helper makes or enters them, or on the ways to
/// root and to agents.
struct Advisory {
    /// Its number, and in words what it is about.
    name: &'static str,
    /// The releases that it concerns, each with the patch level that has the correction.
    corrected: &'static [(Release, u32)],
}

/// Major and minor number.
type Release = (u32, u32);

const fn advisory(name: &'static str, corrected: &'static [(Release, u32)]) -> Advisory {
    Advisory { name, corrected }
}

/// Affected releases are those of the CVE records. Where there was none to be had (39, 53, 62),
/// they are those that have a patch level of the same day, which is the one that such a release
/// needs in any case.
const ADVISORIES: &[Advisory] = &[
    // Directories passed between jails that share a writable mount. FreeBSD 15 was never affected.
    advisory("CVE-2025-15576 (FreeBSD-SA-26:04.jail)", &[((14, 3), 9)]),
    advisory("CVE-2025-15547 (allow.mount.nullfs)", &[((14, 3), 9)]),
    advisory(
        "FreeBSD-SA-26:38.jail (jail descriptors)",
        &[((15, 1), 1), ((15, 0), 11)],
    ),
    advisory(
        "FreeBSD-SA-26:39.execve",
        &[((15, 1), 1), ((15, 0), 11), ((14, 4), 7), ((14, 3), 16)],
    ),
    advisory(
        "FreeBSD-SA-26:51 to 55 (ktrace in jails, sysvsem, ELF)",
        &[((15, 1), 2), ((15, 0), 12), ((14, 4), 8)],
    ),
    advisory(
        "FreeBSD-SA-26:57.unix (a local user becomes root)",
        &[((15, 1), 3), ((15, 0), 13)],
    ),
    advisory(
        "FreeBSD-SA-26:59.mac_do (rules without a target group)",
        &[((15, 1), 3), ((15, 0), 13)],
    ),
    advisory(
        "FreeBSD-SA-26:62.tty",
        &[((15, 1), 3), ((15, 0), 13), ((14, 4), 9)],
    ),
    advisory(
        "FreeBSD-SA-26:63.posixshm (a local user becomes root)",
        &[((15, 1), 3), ((15, 0), 13), ((14, 4), 9)],
    ),
    advisory(
        "FreeBSD-SA-26:66.jail (out of a jail by descriptors)",
        &[((15, 1), 4), ((15, 0), 14), ((14, 5), 1), ((14, 4), 10)],
    ),
];

/// The day of the last advisory that was looked at, and the same in days since 1970.
const LIST_DATE: (&str, u64) = ("29 September 2026", 20_725);

/// The days after which the list is said to be old.
const MAX_LIST_AGE: u64 = 45;

/// The oldest release that the binaries run on.
const OLDEST: (u32, u32) = (14, 0);

/// Compares the release of the running kernel with the advisories on a day, which is given in days
/// since 1970.
pub(super) fn advisories(release: &str, today: u64) -> CheckOutcome {
    let Some((major, minor, patch)) = parse_release(release) else {
        return Err(Amiss::Note(format!(
            "release {release:?} is not understood"
        )));
    };
    if (major, minor) < OLDEST {
        return Err(Amiss::Bad(format!(
            "{release} is older than FreeBSD {}.{}",
            OLDEST.0, OLDEST.1
        )));
    }
    let open: Vec<_> = ADVISORIES
        .iter()
        .filter_map(|advisory| Some((advisory.name, needed(advisory, (major, minor), patch)?)))
        .collect();
    if let Some(((major, minor), patch)) = open.iter().map(|(_, needed)| *needed).max() {
        let names: Vec<_> = open.iter().map(|(name, _)| *name).collect();
        return Err(Amiss::Bad(format!(
            "{release} is open to {}; {major}.{minor}-RELEASE-p{patch} or later is needed",
            names.join(", ")
        )));
    }
    if patch.is_none() {
        return Err(Amiss::Note(format!(
            "{release} is no release and has no patch level, so that its corrections cannot be told: compare its date with \
             https://security.freebsd.org/advisories"
        )));
    }
    let (date, day) = LIST_DATE;
    let known = format!(
        "{release}; this version knows advisories up to {date} alone: for later ones ask freebsd-version -ku and pkg audit"
    );
    match today.saturating_sub(day) {
        age if age > MAX_LIST_AGE => {
            Err(Amiss::Note(format!("{known}; its list is {age} days old")))
        }
        _ => Ok(known),
    }
}

/// The patch level that closes an advisory for a release that is open to it. A release that is not
/// named, and is older than one of its branch that is, got no correction at all.
fn needed(advisory: &Advisory, release: Release, patch: Option<u32>) -> Option<(Release, u32)> {
    let of_branch = advisory
        .corrected
        .iter()
        .filter(|((major, _), _)| *major == release.0);
    match of_branch.clone().find(|(named, _)| *named == release) {
        Some(exactly) => patch
            .is_some_and(|patch| patch < exactly.1)
            .then_some(*exactly),
        None => of_branch
            .filter(|(named, _)| *named > release)
            .min()
            .copied(),
    }
}

/// Today, in days since 1970.
pub(super) fn today() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / 86_400)
}

/// `15.1-RELEASE-p3` as (15, 1, Some(3)). A branch that is no release (`-STABLE`, `-CURRENT`) has
/// no patch level.
pub(super) fn parse_release(release: &str) -> Option<(u32, u32, Option<u32>)> {
    let mut parts = release.split('-');
    let (major, minor) = parts.next()?.split_once('.')?;
    let kind = parts.next()?;
    let patch = match parts.next() {
        Some(level) => Some(level.strip_prefix('p')?.parse().ok()?),
        None => (kind == "RELEASE").then_some(0),
    };
    Some((major.parse().ok()?, minor.parse().ok()?, patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: u64 = LIST_DATE.1 + MAX_LIST_AGE;

    /// The fault of a release, or the note on it.
    fn seen(release: &str) -> String {
        match advisories(release, SOON) {
            Err(Amiss::Bad(seen)) => seen,
            Err(Amiss::Note(seen)) => format!("note: {seen}"),
            _ => String::new(),
        }
    }

    #[test]
    fn each_advisory_is_open_until_its_patch_level() {
        // As the advisories say; not taken from the table.
        for (name, open, closed) in [
            ("CVE-2025-15576", "14.3-RELEASE-p8", "14.3-RELEASE-p9"),
            ("CVE-2025-15547", "14.3-RELEASE-p8", "14.3-RELEASE-p9"),
            ("CVE-2025-15547", "14.2-RELEASE-p20", "14.4-RELEASE"),
            ("26:38.jail", "15.1-RELEASE", "15.1-RELEASE-p1"),
            ("26:38.jail", "15.0-RELEASE-p10", "15.0-RELEASE-p11"),
            ("26:38.jail", "15.0-RELEASE", "14.4-RELEASE"),
            ("26:39.execve", "15.1-RELEASE", "15.1-RELEASE-p1"),
            ("26:51 to 55", "15.1-RELEASE-p1", "15.1-RELEASE-p2"),
            ("26:51 to 55", "14.4-RELEASE-p7", "14.4-RELEASE-p8"),
            ("26:57.unix", "15.1-RELEASE-p2", "15.1-RELEASE-p3"),
            ("26:57.unix", "15.0-RELEASE-p12", "15.0-RELEASE-p13"),
            // Neither is in FreeBSD 14.
            ("26:57.unix", "15.0-RELEASE", "14.4-RELEASE"),
            ("26:59.mac_do", "15.0-RELEASE", "14.4-RELEASE"),
            ("26:59.mac_do", "15.1-RELEASE-p2", "15.1-RELEASE-p3"),
            ("26:62.tty", "15.1-RELEASE-p2", "15.1-RELEASE-p3"),
            ("26:63.posixshm", "15.1-RELEASE-p2", "15.1-RELEASE-p3"),
            ("26:63.posixshm", "14.4-RELEASE-p8", "14.4-RELEASE-p9"),
            ("26:66.jail", "15.1-RELEASE-p3", "15.1-RELEASE-p4"),
            ("26:66.jail", "15.0-RELEASE-p13", "15.0-RELEASE-p14"),
            ("26:66.jail", "14.5-RELEASE", "14.5-RELEASE-p1"),
            ("26:66.jail", "14.4-RELEASE-p9", "14.4-RELEASE-p10"),
            ("26:66.jail", "14.3-RELEASE-p16", "15.2-RELEASE"),
        ] {
            assert!(seen(open).contains(name), "{open}: {}", seen(open));
            assert!(!seen(closed).contains(name), "{closed}: {}", seen(closed));
        }
    }

    #[test]
    fn releases_are_compared_with_the_advisories() {
        for good in [
            "14.4-RELEASE-p10",
            "14.5-RELEASE-p1",
            "15.0-RELEASE-p14",
            "15.1-RELEASE-p4",
            "15.2-RELEASE",
        ] {
            assert_eq!(seen(good), "", "{good}");
        }
        for (open, needed) in [
            ("14.2-RELEASE-p20", "14.4-RELEASE-p10"),
            ("14.3-RELEASE-p16", "14.4-RELEASE-p10"),
            ("14.4-RELEASE", "14.4-RELEASE-p10"),
            ("15.0-RELEASE-p13", "15.0-RELEASE-p14"),
            ("15.1-RELEASE-p1", "15.1-RELEASE-p4"),
        ] {
            let seen = seen(open);
            assert!(
                seen.ends_with(&format!("; {needed} or later is needed")),
                "{open}: {seen}"
            );
        }
        assert!(!seen("15.1-RELEASE-p1").contains("38.jail"));
        // A branch has no patch level, so that nothing can be told.
        for branch in ["14.5-STABLE", "15.1-STABLE", "16.0-CURRENT"] {
            assert!(
                seen(branch).starts_with("note: "),
                "{branch}: {}",
                seen(branch)
            );
        }
        assert!(matches!(
            advisories("13.5-RELEASE-p10", SOON),
            Err(Amiss::Bad(_))
        ));
        for odd in [
            "",
            "x",
            "15",
            "15.x-RELEASE",
            "15.1-RELEASE-q1",
            "6.1.0-13-amd64",
        ] {
            assert!(advisories(odd, SOON).is_err(), "{odd}");
        }
    }

    #[test]
    fn an_old_list_says_its_age() {
        assert!(
            matches!(advisories("15.1-RELEASE-p4", SOON), Ok(seen) if seen.contains("29 September 2026"))
        );
        let Err(Amiss::Note(seen)) = advisories("15.1-RELEASE-p4", SOON + 1) else {
            panic!("a list that is 46 days old is old");
        };
        for part in [
            "29 September 2026",
            "46 days",
            "freebsd-version -ku",
            "pkg audit",
        ] {
            assert!(seen.contains(part), "{part}: {seen}");
        }
    }
}
