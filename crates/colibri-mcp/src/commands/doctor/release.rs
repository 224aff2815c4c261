//! Releases of FreeBSD, and what is known to be wrong with them.

use super::fact::{Amiss, Outcome};

/// A security advisory that bears on jails as the helper makes or enters them, or on the ways to root and to agents.
struct Advisory {
    /// Its number, and in words what it is about.
    name: &'static str,
    /// The release, as major and minor number.
    release: (u32, u32),
    /// The patch level of that release that has the correction.
    patch: u32,
}

const fn advisory(name: &'static str, release: (u32, u32), patch: u32) -> Advisory {
    Advisory { name, release, patch }
}

const ADVISORIES: &[Advisory] = &[
    // Directories passed between jails that share a writable mount. FreeBSD 15 was never affected.
    advisory("CVE-2025-15576 (FreeBSD-SA-26:04.jail)", (14, 3), 9),
    advisory("CVE-2025-15547 (allow.mount.nullfs)", (14, 3), 9),
    advisory("FreeBSD-SA-26:38.jail (jail descriptors)", (15, 1), 1),
    advisory("FreeBSD-SA-26:39.execve", (15, 1), 1),
    advisory("FreeBSD-SA-26:51 to 55 (ktrace in jails, sysvsem, ELF)", (15, 1), 2),
    advisory("FreeBSD-SA-26:57.unix (a local user becomes root)", (15, 1), 3),
    advisory("FreeBSD-SA-26:59.mac_do (rules without a target group)", (15, 1), 3),
    advisory("FreeBSD-SA-26:62.tty", (15, 1), 3),
];

/// The day of the last advisory that was looked at, and the same in days since 1970.
const LIST_DATE: (&str, u64) = ("25 August 2026", 20_690);

/// The days after which the list is said to be old.
const MAX_LIST_AGE: u64 = 45;

/// The oldest release that the binaries run on.
const OLDEST: (u32, u32) = (14, 0);

/// Compares the release of the running kernel with the advisories on a day, which is given in days since 1970.
pub(super) fn advisories(release: &str, today: u64) -> Outcome {
    let Some((major, minor, patch)) = parse_release(release) else {
        return Err(Amiss::Note(format!("release {release:?} is not understood")));
    };
    if (major, minor) < OLDEST {
        return Err(Amiss::Bad(format!(
            "{release} is older than FreeBSD {}.{}",
            OLDEST.0, OLDEST.1
        )));
    }
    // A release before the one an advisory names got no correction at all.
    let open: Vec<_> = ADVISORIES
        .iter()
        .filter(|advisory| {
            let (in_major, in_minor) = advisory.release;
            let behind = patch.is_some_and(|patch| patch < advisory.patch);
            major == in_major && (minor < in_minor || (minor == in_minor && behind))
        })
        .collect();
    if let Some(needed) = open.iter().map(|advisory| (advisory.release, advisory.patch)).max() {
        let names: Vec<_> = open.iter().map(|advisory| advisory.name).collect();
        let ((major, minor), patch) = needed;
        return Err(Amiss::Bad(format!(
            "{release} is open to {}; {major}.{minor}-RELEASE-p{patch} or later is needed",
            names.join(", ")
        )));
    }
    let (date, day) = LIST_DATE;
    let known = format!(
        "{release}; this version knows advisories up to {date} alone: for later ones ask freebsd-version -ku and pkg audit"
    );
    match today.saturating_sub(day) {
        age if age > MAX_LIST_AGE => Err(Amiss::Note(format!("{known}; its list is {age} days old"))),
        _ => Ok(known),
    }
}

/// Today, in days since 1970.
pub(super) fn today() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / 86_400)
}

/// `15.1-RELEASE-p3` as (15, 1, Some(3)). A branch that is no release (`-STABLE`, `-CURRENT`) has no patch level.
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

    #[test]
    fn each_advisory_is_open_until_its_patch_level() {
        for Advisory { name, release, patch } in ADVISORIES {
            let (major, minor) = release;
            let seen = |release: String| match advisories(&release, SOON) {
                Err(Amiss::Bad(seen)) => seen,
                _ => String::new(),
            };
            assert!(
                !seen(format!("{major}.{minor}-RELEASE-p{patch}")).contains(name),
                "{name}"
            );
            let before = match patch {
                1 => format!("{major}.{minor}-RELEASE"),
                _ => format!("{major}.{minor}-RELEASE-p{}", patch - 1),
            };
            assert!(seen(before).contains(name), "{name}");
            assert!(
                seen(format!("{major}.{}-RELEASE-p99", minor - 1)).contains(name),
                "{name}"
            );
        }
    }

    #[test]
    fn releases_are_compared_with_the_advisories() {
        for (release, open) in [
            ("14.3-RELEASE-p8", true),
            ("14.3-RELEASE", true),
            ("14.2-RELEASE-p20", true),
            ("14.3-RELEASE-p9", false),
            ("14.4-RELEASE", false),
            ("15.1-RELEASE-p2", true),
            ("15.1-RELEASE-p3", false),
            ("15.1-STABLE", false),
            ("15.2-RELEASE", false),
        ] {
            assert_eq!(advisories(release, SOON).is_err(), open, "{release}");
        }
        let Err(Amiss::Bad(seen)) = advisories("15.1-RELEASE-p1", SOON) else {
            panic!("15.1-RELEASE-p1 is open to some");
        };
        assert!(seen.ends_with("15.1-RELEASE-p3 or later is needed"), "{seen}");
        assert!(!seen.contains("38.jail"), "{seen}");
        assert!(matches!(advisories("13.5-RELEASE-p10", SOON), Err(Amiss::Bad(_))));
        for odd in ["", "x", "15", "15.x-RELEASE", "15.1-RELEASE-q1", "6.1.0-13-amd64"] {
            assert!(advisories(odd, SOON).is_err(), "{odd}");
        }
    }

    #[test]
    fn an_old_list_says_its_age() {
        assert!(matches!(advisories("15.1-RELEASE-p3", SOON), Ok(seen) if seen.contains("25 August 2026")));
        let Err(Amiss::Note(seen)) = advisories("15.1-RELEASE-p3", SOON + 1) else {
            panic!("a list that is 46 days old is old");
        };
        for part in ["25 August 2026", "46 days", "freebsd-version -ku", "pkg audit"] {
            assert!(seen.contains(part), "{part}: {seen}");
        }
    }
}
