//! The jail of an entry: what the entry asks for; the policy decides.

use std::net::IpAddr;
use std::path::PathBuf;

use colibri_json::{DocumentError, ValueCursor};

use crate::limits::{ProcessLimits, limits};
use crate::value::{one_of, path, unique, user};

/// The jail of a server, as the entry asks for it; the policy decides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Jail {
    /// A persistent jail to enter. Wins over `path`.
    pub name: Option<String>,
    /// Root of an ephemeral jail (absolute). `root_path` without `name` means the same.
    pub path: Option<PathBuf>,
    /// Beside `name`: must equal the path that the kernel reports for that jail.
    pub root_path: Option<PathBuf>,
    /// The server's user: a name in the policy's `users`.
    pub user: Option<String>,
    /// The system that the server's programs are made for.
    pub abi: Abi,
    /// IPv4: `disable` (default), `inherit`, or addresses.
    pub ip4: Network,
    /// IPv6: likewise.
    pub ip6: Network,
    /// Directories of the host shown inside.
    pub mounts: Vec<JailMount>,
    /// `allow.*` parameters asked for, without the `allow.` prefix.
    pub allow: Vec<String>,
    /// Resource limits asked for.
    pub limits: ProcessLimits,
    /// `true`: the entry has only a `root_path` (the old form), whose default isolation is `call`.
    pub only_root_path: bool,
}

/// The system that programs are made for: their application binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Abi {
    /// FreeBSD itself.
    #[default]
    FreeBsd,
    /// Linux, by linux(4); FreeBSD's own programs run beside them.
    Linux,
}

/// Reads one.
///
/// # Errors
/// Not text, or another word.
pub fn abi(cursor: &ValueCursor<'_>) -> Result<Abi, DocumentError> {
    one_of(cursor, &[("freebsd", Abi::FreeBsd), ("linux", Abi::Linux)])
}

/// A jail's addresses of one family.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Network {
    /// None at all.
    #[default]
    Disable,
    /// The whole host stack, loopback services included: "host network".
    Inherit,
    /// These addresses.
    Addresses(Vec<IpAddr>),
}

/// A directory of the host shown inside a jail.
#[derive(Debug, Clone, PartialEq)]
pub struct JailMount {
    /// On the host (absolute).
    pub path: PathBuf,
    /// In the jail (absolute).
    pub at: PathBuf,
    /// Writable inside.
    pub write: bool,
}

/// The keys that a jail may have.
pub(crate) const JAIL_KEYS: &[&str] = &[
    "name",
    "path",
    "root_path",
    "user",
    "abi",
    "ip4",
    "ip6",
    "mounts",
    "allow",
    "limits",
];

pub(crate) fn jail(cursor: &ValueCursor<'_>) -> Result<Jail, DocumentError> {
    let keys = cursor.object(JAIL_KEYS)?;
    let name = keys.read("name", jail_name)?;
    let path = keys.read("path", jail_path)?;
    let root_path = keys.read("root_path", jail_path)?;
    let only_root_path = root_path.is_some() && name.is_none() && path.is_none();
    let path = match (name.is_some(), path, &root_path) {
        (false, Some(_), Some(_)) => {
            return Err(cursor.error("without a name, root_path means path: keep path alone"));
        }
        (false, None, None) => {
            return Err(cursor.error(
                "a jail needs a name (persistent jail) or a path (root of an ephemeral one)",
            ));
        }
        (false, None, Some(root_path)) => Some(root_path.clone()),
        (_, path, _) => path,
    };
    let root_path = root_path.filter(|_| name.is_some());
    Ok(Jail {
        name,
        path,
        root_path,
        user: keys.read("user", user)?,
        abi: keys.read("abi", abi)?.unwrap_or_default(),
        ip4: keys
            .read("ip4", |v| network(v, IpAddr::is_ipv4))?
            .unwrap_or_default(),
        ip6: keys
            .read("ip6", |v| network(v, IpAddr::is_ipv6))?
            .unwrap_or_default(),
        mounts: keys.read("mounts", mounts)?.unwrap_or_default(),
        allow: keys
            .read("allow", |list| unique(list, allow))?
            .unwrap_or_default(),
        limits: keys.read("limits", limits)?.unwrap_or_default(),
        only_root_path,
    })
}

/// True if `name` may name a persistent jail: parts of `[A-Za-z][A-Za-z0-9_-]*` joined by dots, 63
/// characters at most.
///
/// Narrower than the kernel, which takes spaces, `*` and newlines; and never anything that libjail
/// would take for a number (jail_getid(3)).
pub fn is_jail_name(name: &str) -> bool {
    name.len() <= 63
        && name.split('.').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        })
}

/// The name of a persistent jail.
///
/// # Errors
/// Not text, or not such a name.
pub fn jail_name(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let name = cursor.text()?;
    if !is_jail_name(name) {
        return Err(cursor.error(
            "a jail's name must be at most 63 letters, digits, _ and -, and begin with a letter (dots for child jails)",
        ));
    }
    let ephemeral = name.strip_prefix("colibri-").is_some_and(|session| {
        session.len() == 16
            && session
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    });
    if ephemeral {
        return Err(cursor.error("names like this one belong to the helper's ephemeral jails"));
    }
    Ok(name.to_owned())
}

fn network(
    cursor: &ValueCursor<'_>,
    family: fn(&IpAddr) -> bool,
) -> Result<Network, DocumentError> {
    if cursor.is_string() {
        return one_of(
            cursor,
            &[("disable", Network::Disable), ("inherit", Network::Inherit)],
        )
        .map_err(|_| cursor.error("must be \"disable\", \"inherit\" or a list of addresses"));
    }
    let addresses = unique(cursor, |item| {
        let address: IpAddr = item.text()?.parse().map_err(|_| {
            item.error("not an address; write it alone, without interface, prefix length or port")
        })?;
        if !family(&address) {
            return Err(
                item.error("an address of the other family: IPv4 goes into ip4, IPv6 into ip6")
            );
        }
        let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        if address.is_unspecified() || address.is_multicast() || mapped || broadcast {
            return Err(item.error("not an address of a single host"));
        }
        Ok(address)
    })?;
    if addresses.is_empty() {
        return Err(cursor.error("an empty list; write \"disable\" for no network"));
    }
    Ok(Network::Addresses(addresses))
}

fn mounts(cursor: &ValueCursor<'_>) -> Result<Vec<JailMount>, DocumentError> {
    let mut mounts: Vec<JailMount> = Vec::new();
    for item in cursor.array()? {
        let keys = item.object(&["path", "at", "write"])?;
        let at = keys.need("at")?;
        let mount = JailMount {
            path: jail_path(keys.need("path")?)?,
            at: jail_path(at)?,
            write: keys
                .read("write", ValueCursor::boolean)?
                .unwrap_or_default(),
        };
        if mount.at.starts_with("/dev") || mount.at.starts_with("/tmp") {
            return Err(at.error("/dev and /tmp are the helper's own mounts"));
        }
        if mounts.iter().any(|other| other.at == mount.at) {
            return Err(at.error("two mounts at the same place"));
        }
        mounts.push(mount);
    }
    Ok(mounts)
}

/// The name of an `allow.*` parameter, without `allow.`.
///
/// # Errors
/// Not text, or not such a name.
pub fn allow(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let name = cursor.text()?;
    let parts_legal = name.split('.').all(|part| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    });
    if name.len() > 64 || !parts_legal {
        return Err(cursor.error("not the name of an allow.* parameter (jail(8))"));
    }
    if name.starts_with("allow.") {
        return Err(cursor.error("write the parameter without \"allow.\""));
    }
    // `allow.mount.nodevfs` is how jail(8) writes the negation of `allow.mount.devfs`: what is not
    // asked for is denied.
    if name
        .rsplit('.')
        .next()
        .is_some_and(|last| last.starts_with("no"))
    {
        return Err(cursor.error("name only what is to be allowed; everything else is denied"));
    }
    Ok(name.to_owned())
}

/// A path that becomes part of a jail: without what a jail's parameter lists and rctl(8) rules use
/// as separators.
///
/// # Errors
/// As [`path`], or one of those characters.
pub fn jail_path(cursor: &ValueCursor<'_>) -> Result<PathBuf, DocumentError> {
    let path = path(cursor)?;
    if cursor.text()?.contains([',', '=']) {
        return Err(cursor.error("must not hold a comma or an equals sign"));
    }
    Ok(path)
}
