//! The user database: names and groups of users.

use std::ffi::CString;

/// The user database, as far as policy needs it.
pub trait UserDatabase: Send + Sync {
    /// The uid of a user name.
    fn uid(&self, name: &str) -> Option<u32>;
    /// The gid of a group name.
    fn gid(&self, name: &str) -> Option<u32>;
    /// The groups of a uid. Credentials of a socket carry only sixteen, so they are not asked.
    fn groups(&self, uid: u32) -> Vec<u32>;
}

/// The system's user database (passwd(5), group(5), nsswitch.conf(5)).
#[derive(Debug, Clone, Copy)]
pub struct SystemAccounts;

impl UserDatabase for SystemAccounts {
    fn uid(&self, name: &str) -> Option<u32> {
        let user = nix::unistd::User::from_name(name).ok().flatten()?;
        Some(user.uid.as_raw())
    }

    fn gid(&self, name: &str) -> Option<u32> {
        let group = nix::unistd::Group::from_name(name).ok().flatten()?;
        Some(group.gid.as_raw())
    }

    fn groups(&self, uid: u32) -> Vec<u32> {
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
        let Some(user) = user.ok().flatten() else {
            return Vec::new();
        };
        let Ok(name) = CString::new(user.name) else {
            return Vec::new();
        };
        nix::unistd::getgrouplist(&name, user.gid)
            .map(|groups| groups.into_iter().map(nix::unistd::Gid::as_raw).collect())
            .unwrap_or_default()
    }
}
