//! The package of an entry: what was asked for, and the lock that was agreed to.

use std::fmt;

use colibri_json::{DocumentError, Object};

/// The longest version: longer ones are nobody's, and the directory of the installed package has it
/// in its name.
const MAX_VERSION: usize = 64;
/// The number of digits of the lock's hash in the name of that directory.
const SHORT_HASH: usize = 12;

/// A package that `colibri-mcp` installed, or installs: what an entry has in place of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackagePin {
    /// The package.
    pub origin: PackageOrigin,
    /// SHA-256 of its lock, lower-case hex: of the file that names every package by its version and
    /// hashes.
    pub lock: String,
}

/// A package, by the registry that publishes it, in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageOrigin {
    /// `npm:NAME@VERSION`
    Npm {
        /// Its name, with a scope if it has one: `@scope/name`.
        name: String,
        /// Its version.
        version: String,
    },
    /// `pypi:NAME==VERSION`
    Pypi {
        /// Its name, with extras if it has some: `name[extra]`.
        name: String,
        /// Its version.
        version: String,
    },
    /// `mcpb:sha256:HEX`: an MCPB bundle, by the SHA-256 of its file.
    Bundle {
        /// The SHA-256, lower-case hex.
        sha256: String,
    },
}

impl PackageOrigin {
    /// The origin that a text names.
    #[must_use]
    pub fn parse(text: &str) -> Option<PackageOrigin> {
        let (kind, rest) = text.split_once(':')?;
        let owned = |name: &str, version: &str| {
            (is_package_name(name) && is_version(version))
                .then(|| (name.to_owned(), version.to_owned()))
        };
        match kind {
            "npm" => {
                let (name, version) = rest.rsplit_once('@')?;
                let (name, version) = owned(name, version)?;
                Some(PackageOrigin::Npm { name, version })
            }
            "pypi" => {
                let (name, version) = rest.split_once("==")?;
                let (name, version) = owned(name, version)?;
                Some(PackageOrigin::Pypi { name, version })
            }
            "mcpb" => {
                let sha256 = rest
                    .strip_prefix("sha256:")
                    .filter(|hash| is_sha256(hash))?;
                let sha256 = sha256.to_owned();
                Some(PackageOrigin::Bundle { sha256 })
            }
            _ => None,
        }
    }

    /// Its version; a bundle has none.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match self {
            PackageOrigin::Npm { version, .. } | PackageOrigin::Pypi { version, .. } => {
                Some(version)
            }
            PackageOrigin::Bundle { .. } => None,
        }
    }
}

impl fmt::Display for PackageOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackageOrigin::Npm { name, version } => write!(f, "npm:{name}@{version}"),
            PackageOrigin::Pypi { name, version } => write!(f, "pypi:{name}=={version}"),
            PackageOrigin::Bundle { sha256 } => write!(f, "mcpb:sha256:{sha256}"),
        }
    }
}

impl PackagePin {
    /// The name of the directory in which it is installed, below that of its server:
    /// `VERSION-HASH`.
    #[must_use]
    pub fn directory(&self) -> String {
        let hash = self.lock.get(..SHORT_HASH).unwrap_or_default();
        format!("{}-{hash}", self.origin.version().unwrap_or("bundle"))
    }
}

/// The package of an entry, if it has one.
pub(crate) fn package(keys: &Object<'_>) -> Result<Option<PackagePin>, DocumentError> {
    let Some(from) = keys.get("from") else {
        return match keys.get("lock") {
            Some(lock) => Err(lock.error("lock goes with from, which this entry does not have")),
            None => Ok(None),
        };
    };
    if let Some(key) = ["command", "url", "jail"]
        .into_iter()
        .find(|key| keys.get(key).is_some())
    {
        return Err(from.error(format!(
            "an entry with from has no {key}: what is installed for it says what is run, outside a jail"
        )));
    }
    let origin = PackageOrigin::parse(from.text()?).ok_or_else(|| {
        from.error("must be pypi:NAME==VERSION, npm:NAME@VERSION or mcpb:sha256:HEX, as colibri-mcp add writes it")
    })?;
    let lock = keys.need("lock")?;
    let hash = lock
        .text()?
        .strip_prefix("sha256:")
        .filter(|hash| is_sha256(hash));
    let hash = hash.ok_or_else(|| lock.error("must be sha256: and 64 digits of 0-9 and a-f"))?;
    Ok(Some(PackagePin {
        origin,
        lock: hash.to_owned(),
    }))
}

/// True if `text` is a SHA-256 in lower-case hex.
fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// True if a package can have this name: nothing that a package manager takes for an option, a path
/// or an address.
fn is_package_name(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._~-[],".contains(c))
    };
    name.len() <= 214
        && match name.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
            None => is_part(name),
        }
}

/// True if this is one version, and can be in the name of a directory: no range, no tag with a
/// slash.
fn is_version(version: &str) -> bool {
    version.len() <= MAX_VERSION
        && version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._+!-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_it_is_read() {
        let bundle = format!("mcpb:sha256:{}", "0a".repeat(32));
        for text in [
            "pypi:mcp-server-time==2026.10.1",
            "pypi:a[cli]==1!2.0+x",
            "npm:@scope/name@1.2.3",
            "npm:name@1.2.3-beta.1",
            &bundle,
        ] {
            assert_eq!(PackageOrigin::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "pypi",
            "pypi:x",
            "pypi:x==",
            "pypi:x>=1",
            "pypi:x==1 --index-url=y",
            "pypi:-x==1",
            "pypi:x==../1",
            "pypi:x@https://h/==1",
            "npm:x",
            "npm:@scope@1",
            "npm:x@latest/../y",
            "npm:../x@1",
            "npm:@1",
            "oci:x@1",
            "mcpb:sha256:00",
            "mcpb:0a",
        ] {
            assert_eq!(PackageOrigin::parse(text), None, "{text}");
        }
    }

    #[test]
    fn each_lock_has_a_directory_of_its_own() {
        let pin = |from: &str, lock: &str| PackagePin {
            origin: PackageOrigin::parse(from).unwrap(),
            lock: lock.repeat(32),
        };
        assert_eq!(
            pin("npm:@a/b@1.2.3", "0a").directory(),
            "1.2.3-0a0a0a0a0a0a"
        );
        assert_ne!(
            pin("pypi:x==1", "0a").directory(),
            pin("pypi:x==1", "0b").directory()
        );
        let bundle = format!("mcpb:sha256:{}", "0a".repeat(32));
        assert_eq!(pin(&bundle, "0b").directory(), "bundle-0b0b0b0b0b0b");
    }
}
