//! People and groups across hosts: the board has them by name and number, and each host by its own
//! uids and gids.

use std::collections::HashMap;

use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;

/// From here on numbers stand for people and groups that this host has no account for.
pub(super) const FOREIGN: u32 = 0xF000_0000;

/// True if a uid stands for a person who is none of this host.
pub(crate) fn is_foreign(uid: u32) -> bool {
    uid >= FOREIGN && uid != u32::MAX
}

/// A person or a group of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Account {
    User(u32),
    Group(u32),
}

/// The names and numbers of this host's people.
#[derive(Debug)]
pub(super) struct People {
    /// This host.
    host: String,
    /// The persons that the client policy names, by uid.
    mapped: Mutex<HashMap<u32, String>>,
    known: Mutex<HashMap<i64, String>>,
    numbers: Mutex<HashMap<Account, i64>>,
}

impl People {
    pub(super) fn of(host: &str) -> People {
        People {
            host: host.to_owned(),
            mapped: Mutex::default(),
            known: Mutex::default(),
            numbers: Mutex::default(),
        }
    }

    /// From now on these uids are these persons.
    pub(super) fn map(&self, persons: HashMap<u32, String>) {
        *self.mapped.lock() = persons;
        self.numbers.lock().clear();
    }

    /// The name that an account has on the board.
    pub(super) fn name(&self, account: Account) -> String {
        let host = &self.host;
        match account {
            Account::User(uid) => {
                if let Some(person) = self.mapped.lock().get(&uid) {
                    return person.clone();
                }
                let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
                format!(
                    "{}@{host}",
                    user.map_or_else(|| uid.to_string(), |user| user.name)
                )
            }
            Account::Group(gid) => {
                let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
                let name = group.map_or_else(|| gid.to_string(), |group| group.name);
                format!("group:{name}@{host}")
            }
        }
    }

    /// The number of an account on the board, if it is known already.
    pub(super) fn number(&self, account: Account) -> Option<i64> {
        let (Account::User(id) | Account::Group(id)) = account;
        let foreign = id.checked_sub(FOREIGN).map(i64::from);
        foreign.or_else(|| self.numbers.lock().get(&account).copied())
    }

    /// Notes the number of an account.
    pub(super) fn note(&self, account: Account, number: i64) {
        self.numbers.lock().insert(account, number);
    }

    /// The name of a number, if it is known already.
    pub(super) fn known(&self, number: i64) -> Option<String> {
        self.known.lock().get(&number).cloned()
    }

    /// Notes all names.
    pub(super) fn learn(&self, names: impl Iterator<Item = (i64, String)>) {
        self.known.lock().extend(names);
    }

    /// The uid of a person on this host, if they have one.
    pub(super) fn uid(&self, name: &str) -> Option<u32> {
        let mapped = self.mapped.lock();
        if let Some((uid, _)) = mapped.iter().find(|(_, person)| *person == name) {
            return Some(*uid);
        }
        let user = name.strip_suffix(&*self.host)?.strip_suffix('@')?;
        let found = User::from_name(user)
            .ok()
            .flatten()
            .map(|user| user.uid.as_raw());
        let uid = found.or_else(|| user.parse().ok())?;
        // Who is somebody else by the policy is not this one.
        (!mapped.contains_key(&uid)).then_some(uid)
    }

    /// The gid of a group on this host, if it has it.
    pub(super) fn gid(&self, name: &str) -> Option<u32> {
        let group = name.strip_prefix("group:")?;
        let group = group.strip_suffix(&*self.host)?.strip_suffix('@')?;
        let found = Group::from_name(group)
            .ok()
            .flatten()
            .map(|group| group.gid.as_raw());
        found.or_else(|| group.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_two_hosts_are_one_person_only_where_the_policy_says_so() {
        let (here, there) = (People::of("build1"), People::of("build2"));
        assert_eq!(here.name(Account::User(3_999_999)), "3999999@build1");
        assert_eq!(here.uid("3999999@build1"), Some(3_999_999));
        assert_eq!(there.uid("3999999@build1"), None);
        assert_eq!(here.uid("root@build1"), Some(0));
        here.map(HashMap::from([(3_999_999, "ann".to_owned())]));
        there.map(HashMap::from([(7, "ann".to_owned())]));
        assert_eq!(
            (here.uid("ann"), there.uid("ann")),
            (Some(3_999_999), Some(7))
        );
        assert_eq!(here.uid("3999999@build1"), None, "that is Ann now");
        assert_eq!(here.name(Account::Group(3_999_998)), "group:3999998@build1");
        assert_eq!(here.gid("group:3999998@build1"), Some(3_999_998));
        assert_eq!(
            (here.gid("root@build1"), there.gid("group:3999998@build1")),
            (None, None)
        );
        assert_eq!(here.number(Account::User(FOREIGN + 5)), Some(5));
    }
}
