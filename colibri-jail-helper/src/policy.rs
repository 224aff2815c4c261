//! `jail-policy.json`: what root allows. The registry says what a server would like; only what
//! stands here as well is done.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::names::{self, JailName};
use colibri_json::{Document, DocumentError, ValueCursor};
use colibri_registry::value::{unique, user};
use colibri_registry::{self as registry, Abi, ProcessLimits};

/// The policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The user that may ask besides root: a name in the host's user database.
    pub caller: String,
    /// True if a start is refused when its audit line cannot be handed to syslogd(8).
    pub audit: Audit,
    /// Patterns (`*` alone is special) on the ids of the servers and agents that may be started.
    pub servers: Vec<String>,
    /// The most instances at a time.
    pub max: u64,
    /// The most instances of one server at a time.
    pub max_per_server: u64,
    /// The most starts in sixty seconds.
    pub starts_per_minute: u64,
    /// The roots that ephemeral jails may have.
    pub ephemeral: Vec<PathBuf>,
    /// The persistent jails that may be entered.
    pub persistent: Vec<JailName>,
    /// The users that servers may run as, by the name that entries use.
    pub users: BTreeMap<String, User>,
    /// The systems that programs in ephemeral jails may be made for.
    pub abi: Vec<Abi>,
    /// The networks that ephemeral jails may have.
    pub network: Networks,
    /// The directories of the host that may be shown.
    pub mounts: Vec<AllowedMount>,
    /// The `allow.*` parameters that may be set, without `allow.`.
    pub allow: Vec<String>,
    /// The most that a server gets of each resource.
    pub limits: ProcessLimits,
}

/// The treatment of a missing syslogd(8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audit {
    /// No audit line, no start.
    Require,
    /// Start in any case.
    BestEffort,
}

/// The user as whom a server runs. The jail's own user database is never read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// Numeric user ids; none is 0, none `nobody`'s.
    pub uids: Uids,
    /// Numeric group id, likewise.
    pub gid: u32,
}

/// The user ids of a server's instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uids {
    /// One that all instances share, and with it what the kernel counts for a uid, processes for
    /// one.
    Shared(u32),
    /// From the first to the last of these, each instance has one of its own.
    Each(u32, u32),
}

impl Uids {
    /// The first and the last.
    pub fn range(self) -> RangeInclusive<u32> {
        match self {
            Self::Shared(uid) => uid..=uid,
            Self::Each(first, last) => first..=last,
        }
    }

    fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.range(), other.range());
        a.start() <= b.end() && b.start() <= a.end()
    }

    /// The one for another instance, where `taken` are those of the instances that live.
    pub fn free(self, taken: &[u32]) -> Option<u32> {
        match self {
            Self::Shared(uid) => Some(uid),
            Self::Each(first, last) => (first..=last).find(|uid| !taken.contains(uid)),
        }
    }
}

/// The networks that may be given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks {
    /// The host's whole stack may be given ("host network").
    pub inherit: bool,
    /// A stack of the jail's own with a loopback interface alone may be given: to agents with a
    /// model.
    pub loopback: bool,
    /// These addresses may be given.
    pub addresses: Vec<IpAddr>,
}

/// A directory of the host that may be shown inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedMount {
    /// On the host.
    pub path: PathBuf,
    /// The uid that owns it, and may own the directories above it that root does not.
    pub owner: u32,
    /// In the jail.
    pub at: PathBuf,
    /// May be shown writable.
    pub write: bool,
    /// Must be the root of a file system of its own; `false`: the policy takes the risk of a
    /// directory that is not.
    pub bounded: bool,
}

/// `nobody` on FreeBSD and Linux: the uid of whatever has no other, and therefore no one server's.
const NOBODY: u64 = 65534;

/// Ids from here on are taken for "none" or for errors by some part of some system.
const MAX_ID: u64 = 0x7fff_ffff;

/// The most user ids of one user.
const MAX_UIDS: u32 = 1000;

/// Directories that no mount may show, lie in, or hold: what the helper itself trusts, and what
/// holds the daemon's socket and state.
const NEVER_SHOWN: &[&str] = &[
    crate::CONFIG_DIR,
    "/var/run",
    "/run",
    "/var/db/colibri",
    "/dev",
    "/proc",
    "/etc",
    "/boot",
    "/root",
    "/sys",
];

impl Policy {
    /// Reads a policy; `file` is the name that errors give.
    ///
    /// Lists that are left out are empty, which allows nothing; numbers that are left out have the
    /// defaults of the manual page. `caller`, `servers` and `users` must be there.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, DocumentError> {
        let document = Document::parse(bytes, file)?;
        let root = document.root();
        let keys = root.object(&[
            "caller",
            "audit",
            "servers",
            "max",
            "max_per_server",
            "starts_per_minute",
            "ephemeral",
            "persistent",
            "users",
            "abi",
            "network",
            "mounts",
            "allow",
            "limits",
        ])?;
        let number =
            |key: &str, default| keys.get(key).map_or(Ok(default), |v| v.integer(1..=10_000));
        let network = keys.read("network", networks)?.unwrap_or_default();
        Ok(Self {
            caller: user(keys.need("caller")?)?,
            audit: keys.get("audit").map_or(Ok(Audit::Require), audit)?,
            servers: unique(keys.need("servers")?, server_pattern)?,
            max: number("max", 32)?,
            max_per_server: number("max_per_server", 8)?,
            starts_per_minute: number("starts_per_minute", 120)?,
            ephemeral: keys
                .get("ephemeral")
                .map_or(Ok(Vec::new()), |v| unique(v, root_path))?,
            persistent: keys
                .get("persistent")
                .map_or(Ok(Vec::new()), |v| unique(v, jail_name))?,
            users: users(keys.need("users")?)?,
            abi: keys
                .get("abi")
                .map_or(Ok(vec![Abi::FreeBsd]), |v| unique(v, registry::abi))?,
            network,
            mounts: keys
                .get("mounts")
                .map_or(Ok(Vec::new()), |v| unique(v, mount))?,
            allow: keys
                .get("allow")
                .map_or(Ok(Vec::new()), |v| unique(v, allow))?,
            limits: keys.read("limits", registry::limits)?.unwrap_or_default(),
        })
    }

    /// The most starts of one server in sixty seconds: what is left is for the others.
    pub fn starts_per_minute_of_one(&self) -> u64 {
        (self.starts_per_minute * 3).div_ceil(4)
    }

    /// True if this server may be started at all.
    pub fn lists_server(&self, id: &str) -> bool {
        self.servers.iter().any(|pattern| matches(pattern, id))
    }
}

/// True if `text` matches `pattern`, in which `*` stands for any number of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut rest = rest;
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

fn audit(cursor: &ValueCursor<'_>) -> Result<Audit, DocumentError> {
    match cursor.text()? {
        "require" => Ok(Audit::Require),
        "best-effort" => Ok(Audit::BestEffort),
        _ => Err(cursor.error("must be \"require\" or \"best-effort\"")),
    }
}

fn server_pattern(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let text = cursor.text()?;
    let legal = text
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'*');
    if text.is_empty() || text.len() > 32 || !legal {
        return Err(
            cursor.error("must be a server's id, in which * stands for any number of characters")
        );
    }
    Ok(text.to_owned())
}

/// A path as everything below the helper can carry it: into a mount table, a record and a jail
/// parameter.
fn plain_path(cursor: &ValueCursor<'_>) -> Result<PathBuf, DocumentError> {
    let path = registry::jail_path(cursor)?;
    if !path.to_str().is_some_and(names::is_plain_path) {
        return Err(
            cursor.error("must be absolute, without //, . or .., and have at most 800 bytes")
        );
    }
    Ok(path)
}

fn root_path(cursor: &ValueCursor<'_>) -> Result<PathBuf, DocumentError> {
    let path = plain_path(cursor)?;
    if overlaps(&path, Path::new(crate::CONFIG_DIR)) || overlaps(&path, Path::new(crate::STATE_DIR))
    {
        return Err(
            cursor.error("a jail's root must not be, hold or lie in the helper's own directories")
        );
    }
    Ok(path)
}

fn jail_name(cursor: &ValueCursor<'_>) -> Result<JailName, DocumentError> {
    let name = registry::jail_name(cursor)?;
    JailName::parse(&name).ok_or_else(|| cursor.error("not a jail's name"))
}

fn users(cursor: &ValueCursor<'_>) -> Result<BTreeMap<String, User>, DocumentError> {
    let mut users = BTreeMap::new();
    let mut seen: Vec<Uids> = Vec::new();
    for member in cursor.members()? {
        if !registry::is_user_name(member.key) {
            return Err(
                member.key_error("a user's name must be 1 to 32 characters of a-z, 0-9, _ and -")
            );
        }
        let keys = member.value.object(&["uid", "uids", "gid"])?;
        let uids = match (keys.get("uid"), keys.get("uids")) {
            (Some(uid), None) => Uids::Shared(id(uid)?),
            (None, Some(uids)) => range(uids)?,
            _ => {
                return Err(member
                    .value
                    .error("must have either uid or uids: [first, last]"));
            }
        };
        if seen.iter().any(|other| other.overlaps(uids)) {
            return Err(member
                .value
                .error("this uid stands here twice: one uid per entry"));
        }
        seen.push(uids);
        let gid = id(keys.need("gid")?)?;
        users.insert(member.key.to_owned(), User { uids, gid });
    }
    Ok(users)
}

fn id(cursor: &ValueCursor<'_>) -> Result<u32, DocumentError> {
    match cursor.integer(1..=MAX_ID)? {
        NOBODY => Err(cursor.error(
            "65534 is nobody's, and shared by all sorts of things; give a number of its own",
        )),
        // In range by the line above.
        id => Ok(id as u32),
    }
}

fn range(cursor: &ValueCursor<'_>) -> Result<Uids, DocumentError> {
    let ids = cursor
        .array()?
        .iter()
        .map(id)
        .collect::<Result<Vec<_>, _>>()?;
    match ids[..] {
        [first, last]
            if first <= last
                && last - first < MAX_UIDS
                && !(first..=last).contains(&(NOBODY as u32)) =>
        {
            Ok(Uids::Each(first, last))
        }
        _ => Err(cursor
            .error("must be the first and the last of at most 1000 uids, nobody's not among them")),
    }
}

fn networks(cursor: &ValueCursor<'_>) -> Result<Networks, DocumentError> {
    let mut networks = Networks::default();
    for item in cursor.array()? {
        match item.text()? {
            // Always allowed; it may stand in the list so that a list can say that there is nothing
            // else.
            "disable" => {}
            "inherit" => networks.inherit = true,
            "loopback" => networks.loopback = true,
            text => {
                match text.parse::<IpAddr>() {
                    Ok(address) if !address.is_unspecified() && !address.is_multicast() => {
                        networks.addresses.push(address)
                    }
                    _ => {
                        return Err(item.error("must be \"disable\", \"loopback\", \"inherit\" or the address of one host"));
                    }
                }
            }
        }
    }
    Ok(networks)
}

fn mount(cursor: &ValueCursor<'_>) -> Result<AllowedMount, DocumentError> {
    let keys = cursor.object(&["path", "owner", "at", "write", "bounded"])?;
    let source = keys.need("path")?;
    let path = plain_path(source)?;
    if NEVER_SHOWN
        .iter()
        .any(|never| overlaps(&path, Path::new(never)))
    {
        return Err(source.error("this directory, or one in it, holds what a jail must never see"));
    }
    let place = keys.need("at")?;
    let at = plain_path(place)?;
    if at.starts_with("/dev") || at.starts_with("/tmp") {
        return Err(place.error("/dev and /tmp are the helper's own mounts"));
    }
    Ok(AllowedMount {
        path,
        owner: keys.need("owner")?.integer(0..=MAX_ID)? as u32,
        at,
        write: keys.get("write").map_or(Ok(false), ValueCursor::boolean)?,
        bounded: keys.get("bounded").map_or(Ok(true), ValueCursor::boolean)?,
    })
}

fn allow(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let name = registry::allow(cursor)?;
    if name.split('.').next() == Some("mount")
        || matches!(name.as_str(), "suser" | "unprivileged_parent_tampering")
    {
        return Err(cursor.error(
            "never granted: a server is not root in its jail, and this would undo the jail",
        ));
    }
    Ok(name)
}

fn overlaps(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) const EXAMPLE: &str = r#"{ "caller": "colibri", "audit": "require",
  "servers": ["*"], "max": 32, "max_per_server": 8, "starts_per_minute": 120,
  "ephemeral": ["/usr/local/libexec/colibri/roots/mcp0"],
  "persistent": ["build0"],
  "users": { "mcp0": { "uid": 871, "gid": 871 } },
  "network": ["disable", "192.0.2.7"],
  "mounts": [ { "path": "/home/op/project", "owner": 1001, "at": "/work", "write": false } ],
  "allow": [],
  "limits": { "memory": "2G", "processes": 128, "open_files": 1024, "file_size": "1G", "tmp": "64M" } }"#;

    #[test]
    fn the_example_of_the_design_is_read() {
        let policy = Policy::parse(EXAMPLE.as_bytes(), "jail-policy.json").unwrap();
        assert_eq!(policy.caller, "colibri");
        let uids = Uids::Shared(871);
        assert_eq!(policy.users["mcp0"], User { uids, gid: 871 });
        assert_eq!(
            policy.limits.get(registry::RctlResource::Memory),
            Some(2 << 30)
        );
        assert!(!policy.network.inherit && !policy.network.loopback);
        assert_eq!(policy.mounts[0].at, Path::new("/work"));
        assert!(policy.mounts[0].bounded, "a risk is taken by name alone");
        let unbounded = EXAMPLE.replace("\"write\": false", "\"bounded\": false");
        let policy = Policy::parse(unbounded.as_bytes(), "jail-policy.json").unwrap();
        assert!(!policy.mounts[0].bounded);
    }

    #[test]
    fn each_of_these_is_refused() {
        for (from, to) in [
            ("\"caller\": \"colibri\"", "\"caller\": \"co:libri\""),
            ("\"caller\": \"colibri\",", ""),
            ("\"audit\": \"require\"", "\"audit\": \"maybe\""),
            ("\"servers\": [\"*\"]", "\"servers\": [\"../x\"]"),
            ("\"servers\"", "\"server\""),
            ("\"max\": 32", "\"max\": 0"),
            ("\"max\": 32", "\"max\": 32, \"max\": 32"),
            ("\"max\": 32", "\"max\": 1e9"),
            ("roots/mcp0\"]", "roots/../mcp0\"]"),
            ("roots/mcp0\"]", "roots/mcp0/\"]"),
            ("[\"/usr/local/libexec/colibri/roots/mcp0\"]", "[\"/\"]"),
            (
                "[\"/usr/local/libexec/colibri/roots/mcp0\"]",
                "[\"/usr/local/etc\"]",
            ),
            ("[\"build0\"]", "[\"1\"]"),
            ("[\"build0\"]", "[\"*\"]"),
            ("[\"build0\"]", "[\"colibri-0123456789abcdef\"]"),
            ("\"uid\": 871", "\"uid\": 0"),
            ("\"uid\": 871", "\"uid\": 65534"),
            ("\"gid\": 871", "\"gid\": 0"),
            ("\"uid\": 871", "\"uid\": 4294967295"),
            ("\"uid\": 871", "\"uid\": -1"),
            ("\"uid\": 871", "\"uids\": [871]"),
            ("\"uid\": 871", "\"uids\": [871, 872, 873]"),
            ("\"uid\": 871", "\"uids\": [872, 871]"),
            ("\"uid\": 871", "\"uids\": [0, 871]"),
            ("\"uid\": 871", "\"uids\": [65000, 65540]"),
            ("\"uid\": 871", "\"uids\": [1001, 2001]"),
            ("\"uid\": 871", "\"uid\": 871, \"uids\": [871, 872]"),
            ("\"uid\": 871, ", ""),
            (
                "{ \"mcp0\": { \"uid\": 871, \"gid\": 871 } }",
                "{\"a\":{\"uids\":[5,9],\"gid\":5},\"b\":{\"uids\":[9,12],\"gid\":6}}",
            ),
            (
                "{ \"mcp0\": { \"uid\": 871, \"gid\": 871 } }",
                "{\"a\":{\"uid\":5,\"gid\":5},\"b\":{\"uid\":5,\"gid\":6}}",
            ),
            ("\"192.0.2.7\"", "\"em0|192.0.2.7\""),
            ("\"192.0.2.7\"", "\"192.0.2.7/24\""),
            ("\"192.0.2.7\"", "\"0.0.0.0\""),
            ("/home/op/project", "/"),
            ("/home/op/project", "/usr/local/etc/colibri/secrets"),
            ("/home/op/project", "/usr/local"),
            ("/home/op/project", "/etc"),
            ("\"at\": \"/work\"", "\"at\": \"/dev\""),
            ("\"at\": \"/work\"", "\"at\": \"/tmp/x\""),
            ("\"allow\": []", "\"abi\": \"linux\""),
            ("\"allow\": []", "\"abi\": [\"linux\", \"linux\"]"),
            ("\"allow\": []", "\"abi\": [\"windows\"]"),
            ("\"allow\": []", "\"allow\": [\"mount.nullfs\"]"),
            ("\"allow\": []", "\"allow\": [\"nomount\"]"),
            ("\"allow\": []", "\"allow\": [\"suser\"]"),
            ("\"allow\": []", "\"allow\": [\"raw_sockets=1\"]"),
            ("\"2G\"", "\"2X\""),
            ("\"processes\": 128", "\"processes\": 0"),
        ] {
            let text = EXAMPLE.replacen(from, to, 1);
            assert_ne!(text, EXAMPLE, "{from}");
            assert!(
                Policy::parse(text.as_bytes(), "p").is_err(),
                "{from} -> {to}"
            );
        }
    }

    #[test]
    fn each_instance_has_a_uid_of_the_range() {
        let text = EXAMPLE.replace("\"uid\": 871", "\"uids\": [871, 873]");
        let uids = Policy::parse(text.as_bytes(), "p").unwrap().users["mcp0"].uids;
        assert_eq!(uids, Uids::Each(871, 873));
        assert_eq!(uids.free(&[]), Some(871));
        assert_eq!(uids.free(&[871, 873]), Some(872));
        assert_eq!(uids.free(&[873, 872, 871]), None);
        assert_eq!(Uids::Shared(5).free(&[5]), Some(5));
    }

    #[test]
    fn what_is_left_out_allows_nothing() {
        let policy =
            Policy::parse(br#"{"caller":"colibri","servers":[],"users":{}}"#, "p").unwrap();
        assert_eq!(policy.audit, Audit::Require);
        assert!(!policy.lists_server("docs"));
        assert!(
            policy.ephemeral.is_empty() && policy.persistent.is_empty() && policy.mounts.is_empty()
        );
        assert_eq!(policy.network, Networks::default());
        assert_eq!(policy.abi, [Abi::FreeBsd]);
        let linux = br#"{"caller":"colibri","servers":[],"users":{},"abi":["freebsd","linux"]}"#;
        assert_eq!(
            Policy::parse(linux, "p").unwrap().abi,
            [Abi::FreeBsd, Abi::Linux]
        );
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("*", "docs", true),
            ("docs", "docs", true),
            ("docs", "docs2", false),
            ("docs", "xdocs", false),
            ("d*s", "docs", true),
            ("d*s", "ds", true),
            ("d*s", "d", false),
            ("*-mcp", "a-mcp", true),
            ("*-mcp", "a-mcp-b", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*a*", "bab", true),
            ("*a*", "bb", false),
            ("aa*a", "aa", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Policy::parse(&bytes, "p");
        }

        #[test]
        fn matching_agrees_with_trying_everything(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            fn slow(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|n| slow(rest, &text[n..])),
                    Some((c, rest)) => text.split_first().is_some_and(|(t, tail)| t == c && slow(rest, tail)),
                }
            }
            prop_assert_eq!(matches(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
