//! The host's user database, read for one purpose: the uid and gid of the policy's `caller`.
//!
//! passwd(5) is read as a file and not through getpwnam(3): nsswitch would load modules and talk to
//! daemons inside a program that runs as root, and a service account is always local.

/// The uid and primary gid of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswdEntry {
    /// Numeric user id.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
}

/// Finds a user by name in the bytes of passwd(5). The first line that has the name decides, as it
/// does for getpwnam(3); if its numbers cannot be read, there is no such user.
pub fn account(passwd: &[u8], name: &str) -> Option<PasswdEntry> {
    let line = passwd
        .split(|b| *b == b'\n')
        .find(|line| line.split(|b| *b == b':').next() == Some(name.as_bytes()))?;
    let mut fields = line.split(|b| *b == b':').skip(2).map(|field| {
        let text = std::str::from_utf8(field).ok()?;
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
    });
    Some(PasswdEntry {
        uid: fields.next()??,
        gid: fields.next()??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_the_name_decides() {
        let file = b"root:*:0:0:r:/root:/bin/sh\ncolibri:*:871:872::/nonexistent:/usr/sbin/nologin\ncolibri:*:0:0:::\n";
        assert_eq!(
            account(file, "colibri"),
            Some(PasswdEntry { uid: 871, gid: 872 })
        );
        assert_eq!(account(file, "root"), Some(PasswdEntry { uid: 0, gid: 0 }));
        assert_eq!(account(file, "colib"), None);
        assert_eq!(account(file, ""), None);
    }

    #[test]
    fn unreadable_numbers_are_no_user() {
        for line in [
            "colibri:*:-1:5:::",
            "colibri:*:+1:5:::",
            "colibri:*:871",
            "colibri",
            "colibri:*:99999999999:1:::",
        ] {
            assert_eq!(account(line.as_bytes(), "colibri"), None, "{line}");
        }
    }
}
