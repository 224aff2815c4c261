//! Releases of FreeBSD, and what is known to be wrong with them.

use super::fact::{Amiss, Outcome};

/// Advisories about jails: number, release, the patch level that has the correction. Only what bears on servers in
/// jails as the helper makes them, or enters them.
const ADVISORIES: &[(&str, u32, u32, u32)] = &[
    // Directories passed between jails that share a writable mount. FreeBSD 15 was never affected.
    ("CVE-2025-15576 (FreeBSD-SA-26:04.jail)", 14, 3, 9),
    ("CVE-2025-15547 (allow.mount.nullfs)", 14, 3, 9),
];

/// The oldest release that the binaries run on.
const OLDEST: (u32, u32) = (14, 0);

pub(super) fn advisories(release: &str) -> Outcome {
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
        .filter(|(_, in_major, in_minor, corrected)| {
            major == *in_major
                && (minor < *in_minor || (minor == *in_minor && patch.is_some_and(|patch| patch < *corrected)))
        })
        .map(|(name, ..)| *name)
        .collect();
    if open.is_empty() {
        Ok(format!("{release}; this version knows advisories up to February 2026"))
    } else {
        Err(Amiss::Bad(format!("{release} is open to {}", open.join(", "))))
    }
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

    #[test]
    fn releases_are_compared_with_the_advisories() {
        for (release, open) in [
            ("14.3-RELEASE-p8", true),
            ("14.3-RELEASE", true),
            ("14.2-RELEASE-p20", true),
            ("14.3-RELEASE-p9", false),
            ("14.4-RELEASE", false),
            ("15.1-RELEASE-p1", false),
            ("15.1-STABLE", false),
        ] {
            assert_eq!(matches!(advisories(release), Err(Amiss::Bad(_))), open, "{release}");
        }
        assert!(matches!(advisories("13.5-RELEASE-p10"), Err(Amiss::Bad(_))));
        for odd in ["", "x", "15", "15.x-RELEASE", "15.1-RELEASE-q1", "6.1.0-13-amd64"] {
            assert!(advisories(odd).is_err(), "{odd}");
        }
    }
}
