//! Names of servers as others write them, and the ids that they have here.

use std::collections::BTreeSet;

use colibri_registry::is_server_id;

/// The most characters of an id.
const MAX: usize = 32;

/// A name and its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedId {
    /// As its source has it.
    pub name: String,
    /// `[a-z][a-z0-9-]{0,31}`, of no other.
    pub id: String,
}

/// An id for each name, in order; none stands twice.
pub fn map_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<NamedId> {
    let names: Vec<&str> = names.into_iter().collect();
    let mut used = BTreeSet::new();
    // Who has a name that may stay has it before others become alike.
    let mut ids: Vec<Option<String>> = names
        .iter()
        .map(|name| {
            (is_server_id(name) && used.insert((*name).to_owned())).then(|| (*name).to_owned())
        })
        .collect();
    for (id, name) in ids.iter_mut().zip(&names).filter(|(id, _)| id.is_none()) {
        let base = base(name);
        let mut wanted = base.clone();
        let mut number = 2;
        while !used.insert(wanted.clone()) {
            let suffix = format!("-{number}");
            wanted = format!("{}{suffix}", &base[..base.len().min(MAX - suffix.len())]);
            number += 1;
        }
        *id = Some(wanted);
    }
    names
        .iter()
        .zip(ids)
        .filter_map(|(name, id)| {
            Some(NamedId {
                name: (*name).to_owned(),
                id: id?,
            })
        })
        .collect()
}

/// The part of a name that an id may hold. Of a registry's name (`io.github.owner/server`) and of a
/// package's (`@scope/server`) the last part says what it is.
fn base(name: &str) -> String {
    let last = name
        .rsplit('/')
        .find(|part| part.contains(|c: char| c.is_ascii_alphabetic()));
    let mut id = String::new();
    for c in last.unwrap_or(name).chars() {
        if c.is_ascii_alphanumeric() {
            id.push(c.to_ascii_lowercase());
        } else if !id.ends_with('-') {
            id.push('-');
        }
    }
    let mut id = id.trim_matches('-').to_owned();
    if !id.starts_with(|c: char| c.is_ascii_lowercase()) {
        id.insert_str(0, if id.is_empty() { "server" } else { "s-" });
    }
    id.truncate(MAX);
    id.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(names: &[&str]) -> Vec<String> {
        map_names(names.iter().copied())
            .into_iter()
            .map(|mapped| mapped.id)
            .collect()
    }

    #[test]
    fn names_become_ids() {
        assert_eq!(
            ids(&[
                "git",
                "My Server",
                "io.github.owner/Weather_API",
                "@scope/pkg",
                "42",
                "",
                "ü"
            ]),
            [
                "git",
                "my-server",
                "weather-api",
                "pkg",
                "s-42",
                "server",
                "server-2"
            ]
        );
        assert_eq!(ids(&["a_b", "a-b", "A.B"]), ["a-b-2", "a-b", "a-b-3"]);
        assert_eq!(ids(&["git", "git"]), ["git", "git-2"]);
    }

    proptest! {
        #[test]
        fn every_name_has_an_id_of_its_own(names in proptest::collection::vec("[ -~]{0,60}", 0..20)) {
            let mapped = map_names(names.iter().map(String::as_str));
            prop_assert_eq!(mapped.len(), names.len());
            let ids: BTreeSet<_> = mapped.iter().map(|mapped| mapped.id.as_str()).collect();
            prop_assert_eq!(ids.len(), names.len());
            prop_assert!(ids.iter().all(|id| is_server_id(id)));
        }
    }
}
