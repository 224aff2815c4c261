//! Names of people on a board of many hosts, as the client policy has them.

use std::collections::BTreeMap;

use colibri_json::{DocumentError, ValueCursor};

/// The most bytes of a name.
const MAX_PERSON: usize = 64;

/// The name of a person: one with `@` or `:` would stand for an account or a group of some host.
pub(super) fn name(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let name = cursor.text()?;
    let is_name = (1..=MAX_PERSON).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    match is_name {
        true => Ok(name.to_owned()),
        false => Err(cursor.error("must be 1 to 64 letters, digits, dots, underscores or hyphens")),
    }
}

/// Looks whether users alone are persons, and each another one. Each entry is its person and its
/// place.
///
/// # Errors
/// One that is not so.
pub(super) fn check(
    root: &ValueCursor<'_>,
    users: impl Iterator<Item = (Option<String>, String)>,
    mut elsewhere: impl Iterator<Item = (Option<String>, String)>,
) -> Result<(), DocumentError> {
    if let Some((_, place)) = elsewhere.find(|(person, _)| person.is_some()) {
        return Err(root.error(format!("{place}: person is for an entry of users alone")));
    }
    let mut known = BTreeMap::new();
    for (person, place) in users {
        if let Some(person) = person
            && let Some(other) = known.insert(person.clone(), place.clone())
        {
            return Err(root.error(format!(
                "{place}: {person} is the person of {other} already"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Clients, SystemAccounts};

    fn read(text: &str) -> Result<usize, String> {
        let clients = Clients::parse(text.as_bytes(), "clients.json", Box::new(SystemAccounts));
        clients
            .map(|clients| clients.persons().len())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_person_is_one_user_of_a_host() {
        assert_eq!(read(r#"{"users":{"7":{"person":"ann"},"8":{}}}"#), Ok(1));
        let twice = read(r#"{"users":{"7":{"person":"ann"},"8":{"person":"ann"}}}"#).unwrap_err();
        assert!(
            twice.contains("users.8: ann is the person of users.7 already"),
            "{twice}"
        );
        let group = read(r#"{"groups":{"0":{"person":"ann"}}}"#).unwrap_err();
        assert!(
            group.contains("person is for an entry of users alone"),
            "{group}"
        );
        for name in ["ann@build1", "group:x", "", "a b"] {
            let refused =
                read(&format!(r#"{{"users":{{"7":{{"person":"{name}"}}}}}}"#)).unwrap_err();
            assert!(refused.contains("must be 1 to 64 letters"), "{refused}");
        }
    }
}
