//! The names under which other servers' tools and prompts are shown, and the URIs of their
//! resources; the way back.
//!
//! Many clients prefix names themselves, allow 64 characters in all, and some drop every tool when
//! one name is illegal. So a tool or a prompt is shown as `server__tool`, in at most 46 characters
//! of `[A-Za-z0-9_-]`; a longer or stranger one is cut and gets a hash of the original. The way
//! back is a look-up in the table built here, never a split of the name: what two parties split
//! differently is how one server's tool passes for another's. URIs are shown as [`uri`] says.

use colibri_text::{brief, hex};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use colibri_protocol::{Feature, uri};

/// The most characters of an exposed name.
pub const MAX_LENGTH: usize = 46;

/// Hexadecimal digits of the hash.
const HASH: usize = 8;

/// Names that begin so are Colibri's own.
const OWN_PREFIX: &str = "colibri_";

/// The items that one server advertises.
#[derive(Debug, Clone, Copy)]
pub struct ServerItems<'a> {
    /// The server's id.
    pub server: &'a str,
    /// True if its names are prefixed; `false`: shown as they are, without limits.
    pub prefix: bool,
    /// The server's own names, in its order.
    pub names: &'a [String],
}

/// An item of a server, by the server's own name or URI for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NameTarget {
    /// The server's id.
    server: String,
    /// The server's own name.
    name: String,
}

/// True if a name begins so, whatever the case of its letters: who reads it may not mind the case.
fn begins_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// An item that is not advertised: its name would stand for two things, or seem to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameConflict {
    /// The server that has it.
    pub server: Arc<str>,
    /// The kind of item, and the server's own name or URI of it; `None` for a method, whose name
    /// the operator wrote.
    pub what: Option<(Feature, String)>,
    /// The server that has the name; `None` for Colibri itself.
    pub holder: Option<String>,
    /// A sentence for people.
    pub text: String,
}

impl NameConflict {
    /// The item that would have been shown under a name or URI that has this holder.
    fn of(
        feature: Feature,
        exposed: &str,
        blocked: NameTarget,
        holder: Option<String>,
    ) -> NameConflict {
        let whose = match &holder {
            Some(server) => format!("server {server}"),
            None => "Colibri itself".to_owned(),
        };
        let (noun, name) = match feature {
            Feature::Tool => (String::new(), "name"),
            Feature::Prompt => ("prompt ".to_owned(), "name"),
            Feature::Resource | Feature::Template | Feature::Skill => {
                (format!("{} ", feature.noun()), "URI")
            }
        };
        let (exposed, server) = (brief(exposed, 100), &blocked.server);
        NameConflict {
            text: format!(
                "{noun}{exposed} of server {server} is not exposed: the {name} belongs to {whose}"
            ),
            server: Arc::from(&*blocked.server),
            what: Some((feature, blocked.name)),
            holder,
        }
    }
}

/// The table of exposed names.
#[derive(Debug, Clone, Default)]
pub struct ExposedNames {
    targets: BTreeMap<String, NameTarget>,
    exposed: BTreeMap<NameTarget, String>,
    collisions: Vec<NameConflict>,
}

impl ExposedNames {
    /// Builds the table of one feature; `own` are the names that Colibri itself uses.
    ///
    /// Where two want one name, the first in this order has it, whatever order they are given in:
    /// Colibri's own, servers with a prefix by id, servers without by id; within a server, names
    /// that stand as they are before names with a hash, and then the server's order. A server
    /// without a prefix gets no name that begins like Colibri's own or like another server's.
    pub fn build(feature: Feature, own: &[&str], offers: &[ServerItems<'_>]) -> Self {
        let mut table = Self::default();
        let mut order: Vec<&ServerItems<'_>> = offers.iter().collect();
        order.sort_by_key(|offer| (!offer.prefix, offer.server));
        let prefixed_servers: BTreeSet<&str> = offers
            .iter()
            .filter(|offer| offer.prefix)
            .map(|offer| offer.server)
            .collect();
        for offer in order {
            let mut wanted: Vec<(&String, NameForm)> = offer
                .names
                .iter()
                .map(|name| (name, NameForm::of(feature, offer, name)))
                .collect();
            wanted.sort_by_key(|(_, form)| matches!(form, NameForm::Hashed(_)));
            for (name, NameForm::Plain(exposed) | NameForm::Hashed(exposed)) in wanted {
                let target = NameTarget {
                    server: offer.server.to_owned(),
                    name: name.clone(),
                };
                let holder = if own.contains(&exposed.as_str()) || begins_with(&exposed, OWN_PREFIX)
                {
                    Some(None)
                } else if !offer.prefix
                    && let Some(other) = look_alike(feature, &exposed, &prefixed_servers)
                {
                    Some(Some(other.to_owned()))
                } else {
                    table
                        .targets
                        .get(&exposed)
                        .map(|holder| Some(holder.server.clone()))
                };
                match holder {
                    Some(holder) => table
                        .collisions
                        .push(NameConflict::of(feature, &exposed, target, holder)),
                    None => {
                        table.exposed.insert(target.clone(), exposed.clone());
                        table.targets.insert(exposed, target);
                    }
                }
            }
        }
        table
    }

    /// The exposed name for a server's own name; `None` if it is not exposed or not known.
    pub fn exposed(&self, server: &str, name: &str) -> Option<&str> {
        let target = NameTarget {
            server: server.to_owned(),
            name: name.to_owned(),
        };
        self.exposed.get(&target).map(String::as_str)
    }

    /// The names that are not exposed.
    pub fn collisions(&self) -> &[NameConflict] {
        &self.collisions
    }
}

/// An exposed name.
enum NameForm {
    /// With the server's own name in it as it is.
    Plain(String),
    /// With a hash.
    Hashed(String),
}

impl NameForm {
    /// The exposed form of a server's own name, URI or template.
    fn of(feature: Feature, offer: &ServerItems<'_>, name: &str) -> NameForm {
        if !offer.prefix {
            return NameForm::Plain(name.to_owned());
        }
        match feature {
            Feature::Tool | Feature::Prompt => prefixed(offer.server, name),
            Feature::Resource | Feature::Template | Feature::Skill => {
                NameForm::Plain(uri::exposed(offer.server, name))
            }
        }
    }
}

/// The server that an exposed name or URI would seem to belong to, of the servers whose ids prefix
/// their names, in any letter case: a reader may not mind the case.
fn look_alike<'s>(feature: Feature, exposed: &str, servers: &BTreeSet<&'s str>) -> Option<&'s str> {
    let id = match feature {
        Feature::Tool | Feature::Prompt => exposed.split_once("__")?.0.to_ascii_lowercase(),
        Feature::Resource | Feature::Template | Feature::Skill => uri::seems_of(exposed)?,
    };
    servers.get(&*id).copied()
}

/// The exposed name of `name`, a tool or a prompt of `server`, whose id is at most 32 characters of
/// `[a-z0-9-]`: without an underscore, so that `__` after it always ends the id.
fn prefixed(server: &str, name: &str) -> NameForm {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(legal) && server.len() + 2 + name.len() <= MAX_LENGTH {
        return NameForm::Plain(format!("{server}__{name}"));
    }
    let room = MAX_LENGTH.saturating_sub(server.len() + 2 + 1 + HASH);
    let readable: String = name
        .chars()
        .map(|c| if legal(c) { c } else { '_' })
        .take(room)
        .collect();
    let hash = hex(&Sha256::digest(name)[..HASH / 2]);
    NameForm::Hashed(format!("{server}__{readable}_{hash}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl ExposedNames {
        /// The item that an exposed name stands for.
        fn resolve(&self, exposed: &str) -> Option<&NameTarget> {
            self.targets.get(exposed)
        }

        /// Every exposed name with what it stands for, in the order of the names.
        fn iter(&self) -> impl Iterator<Item = (&str, &NameTarget)> {
            self.targets
                .iter()
                .map(|(exposed, target)| (exposed.as_str(), target))
        }
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn target(server: &str, name: &str) -> NameTarget {
        NameTarget {
            server: server.into(),
            name: name.into(),
        }
    }

    #[test]
    fn ordinary_names_are_joined() {
        let tools = names(&["read_file", "a__b", "x"]);
        let table = ExposedNames::build(
            Feature::Tool,
            &[],
            &[ServerItems {
                server: "fs",
                prefix: true,
                names: &tools,
            }],
        );
        assert_eq!(
            table.resolve("fs__read_file"),
            Some(&target("fs", "read_file"))
        );
        assert_eq!(table.resolve("fs__a__b"), Some(&target("fs", "a__b")));
        assert_eq!(table.exposed("fs", "x"), Some("fs__x"));
        assert_eq!(table.resolve("read_file"), None);
        assert_eq!(table.iter().count(), 3);
    }

    fn hashed(server: &str, name: &str) -> String {
        match prefixed(server, name) {
            NameForm::Hashed(exposed) => exposed,
            NameForm::Plain(exposed) => panic!("plain: {exposed}"),
        }
    }

    #[test]
    fn long_and_strange_names_get_a_stable_hash() {
        assert_eq!(hashed("s", "lire.fichier"), "s__lire_fichier_60488aac");
        assert_eq!(hashed("s", ""), "s___e3b0c442");
        let long = "n".repeat(200);
        assert_eq!(hashed("s", &long).len(), MAX_LENGTH);
        let longest = "a".repeat(32);
        let exposed = hashed(&longest, &long);
        assert_eq!(exposed.len(), MAX_LENGTH);
        assert!(
            exposed.starts_with(&format!("{longest}__nnn_")),
            "{exposed}"
        );
        assert_ne!(hashed("s", "a.b"), hashed("s", "a b"));
    }

    #[test]
    fn a_name_with_a_hash_never_takes_a_plain_one() {
        // The first is made to look like the second with its hash.
        let plain = "lire_fichier_60488aac";
        for list in [[plain, "lire.fichier"], ["lire.fichier", plain]] {
            let tools = names(&list);
            let table = ExposedNames::build(
                Feature::Tool,
                &[],
                &[ServerItems {
                    server: "s",
                    prefix: true,
                    names: &tools,
                }],
            );
            assert_eq!(
                table.resolve("s__lire_fichier_60488aac"),
                Some(&target("s", plain))
            );
            assert_eq!(
                table.collisions()[0].what,
                Some((Feature::Tool, "lire.fichier".to_owned()))
            );
            assert_eq!(table.exposed("s", "lire.fichier"), None);
        }
    }

    #[test]
    fn own_names_win_and_collisions_are_named() {
        let (a, b) = (
            names(&["search", "colibri_status", "colibri_other"]),
            names(&["search", "read"]),
        );
        let offers = [
            ServerItems {
                server: "b",
                prefix: false,
                names: &b,
            },
            ServerItems {
                server: "a",
                prefix: false,
                names: &a,
            },
        ];
        for offers in [[offers[0], offers[1]], [offers[1], offers[0]]] {
            let table = ExposedNames::build(Feature::Tool, &["colibri_status"], &offers);
            assert_eq!(table.resolve("search"), Some(&target("a", "search")));
            assert_eq!(table.resolve("read"), Some(&target("b", "read")));
            assert_eq!(table.resolve("colibri_status"), None);
            let told: Vec<String> = table
                .collisions()
                .iter()
                .map(|taken| taken.text.clone())
                .collect();
            assert_eq!(
                told,
                [
                    "colibri_status of server a is not exposed: the name belongs to Colibri itself",
                    "colibri_other of server a is not exposed: the name belongs to Colibri itself",
                    "search of server b is not exposed: the name belongs to server a",
                ]
            );
        }
    }

    #[test]
    fn no_server_passes_for_another() {
        let (git, evil) = (
            names(&["push"]),
            names(&["git__push", "Git__pull", "github__x", "Colibri_x"]),
        );
        let table = ExposedNames::build(
            Feature::Tool,
            &[],
            &[
                ServerItems {
                    server: "evil",
                    prefix: false,
                    names: &evil,
                },
                ServerItems {
                    server: "git",
                    prefix: true,
                    names: &git,
                },
            ],
        );
        assert_eq!(table.resolve("git__push"), Some(&target("git", "push")));
        assert_eq!(table.resolve("Git__pull"), None);
        assert_eq!(table.resolve("Colibri_x"), None);
        assert_eq!(
            table.resolve("github__x"),
            Some(&target("evil", "github__x"))
        );
        let holders: Vec<_> = table
            .collisions()
            .iter()
            .map(|collision| collision.holder.as_deref())
            .collect();
        assert_eq!(holders, [Some("git"), Some("git"), None]);
    }

    #[test]
    fn no_uri_passes_for_another_servers() {
        let evil = names(&[
            "git+UI://x",
            "Git+UI://x",
            "UI://Git/x",
            "git+file:///x",
            "file:///x",
        ]);
        let offer = |server, prefix, names| ServerItems {
            server,
            prefix,
            names,
        };
        let offers = [offer("evil", false, &evil[..]), offer("git", true, &[])];
        let table = ExposedNames::build(Feature::Resource, &[], &offers);
        assert_eq!(
            table.iter().map(|(exposed, _)| exposed).collect::<Vec<_>>(),
            ["file:///x"]
        );
    }

    #[test]
    fn one_name_twice_is_a_collision_with_itself() {
        let twice = names(&["x", "x"]);
        let table = ExposedNames::build(
            Feature::Tool,
            &[],
            &[ServerItems {
                server: "s",
                prefix: true,
                names: &twice,
            }],
        );
        assert_eq!((table.iter().count(), table.collisions().len()), (1, 1));
    }

    #[test]
    fn hostile_names_are_escaped_in_reports() {
        let evil = names(&["colibri_\u{1b}[2J\n"]);
        let table = ExposedNames::build(
            Feature::Tool,
            &[],
            &[ServerItems {
                server: "s",
                prefix: false,
                names: &evil,
            }],
        );
        assert!(!table.collisions()[0].text.contains(char::is_control));
    }

    proptest! {
        #[test]
        fn every_prefixed_name_is_legal_and_leads_back(
            servers in prop::collection::btree_map("[a-z][a-z0-9-]{0,31}", prop::collection::btree_set(any::<String>(), 0..6), 0..5),
        ) {
            let lists: Vec<(String, Vec<String>)> =
                servers.into_iter().map(|(id, names)| (id, names.into_iter().collect())).collect();
            let offers: Vec<ServerItems<'_>> =
                lists.iter().map(|(id, names)| ServerItems { server: id, prefix: true, names }).collect();
            let table = ExposedNames::build(Feature::Tool, &[], &offers);
            for (exposed, target) in table.iter() {
                prop_assert!(exposed.len() <= MAX_LENGTH);
                prop_assert!(exposed.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                prop_assert_eq!(exposed.split_once("__").unwrap().0, &target.server);
                prop_assert_eq!(table.exposed(&target.server, &target.name), Some(exposed));
            }
            let all: usize = lists.iter().map(|(_, names)| names.len()).sum();
            prop_assert_eq!(table.iter().count() + table.collisions().len(), all);
        }

        /// Tools, prompts, resources and templates, of servers with a prefix and without: what is
        /// shown stands for one thing of one server, and leads back to it.
        #[test]
        fn what_is_exposed_stands_for_one_thing_of_one_server(
            lists in prop::collection::btree_map(
                "[a-c]{1,2}",
                (any::<bool>(), prop::collection::btree_set("(ui://|UI://|[a-cA-C]{1,2}([+]|__|/)){0,2}[a-c+/_]{0,3}|\\PC{0,3}", 0..6)),
                0..5,
            ),
        ) {
            let lists: Vec<(String, bool, Vec<String>)> =
                lists.into_iter().map(|(id, (prefix, names))| (id, prefix, names.into_iter().collect())).collect();
            let offers: Vec<ServerItems<'_>> =
                lists.iter().map(|(server, prefix, names)| ServerItems { server, prefix: *prefix, names }).collect();
            let prefixed = |id: &str| lists.iter().any(|(server, prefix, _)| server == id && *prefix);
            for feature in Feature::ALL {
                let table = ExposedNames::build(feature, &[], &offers);
                let targets: BTreeSet<&NameTarget> = table.iter().map(|(_, target)| target).collect();
                prop_assert_eq!(targets.len(), table.iter().count(), "two names for one thing");
                let is_uri = matches!(feature, Feature::Resource | Feature::Template | Feature::Skill);
                for (exposed, target) in table.iter() {
                    prop_assert_eq!(table.exposed(&target.server, &target.name), Some(exposed));
                    // Whose it is by the form of the name alone, whatever the table says.
                    let read = match is_uri {
                        true => uri::original(exposed).map(|(id, own)| (id.to_owned(), own.into_owned())),
                        false => exposed.split_once("__").map(|(id, own)| (id.to_owned(), own.to_owned())),
                    };
                    let read = read.filter(|(id, _)| prefixed(id));
                    prop_assert_eq!(read.as_ref().map(|(id, _)| id), prefixed(&target.server).then_some(&target.server));
                    if let Some((_, own)) = read.filter(|_| is_uri) {
                        prop_assert_eq!(own, target.name.clone(), "a URI leads back without a table");
                    }
                }
                let all: usize = lists.iter().map(|(_, _, names)| names.len()).sum();
                prop_assert_eq!(table.iter().count() + table.collisions().len(), all, "none is lost without a word");
            }
        }

        #[test]
        fn the_order_of_servers_does_not_matter(
            mut lists in prop::collection::vec(("[ab][a-b]?", any::<bool>(), prop::collection::vec("[ab_]{0,3}", 0..4)), 0..5),
        ) {
            lists.sort_by(|a, b| a.0.cmp(&b.0));
            lists.dedup_by(|a, b| a.0 == b.0);
            let build = |lists: &[(String, bool, Vec<String>)]| {
                let offers: Vec<ServerItems<'_>> =
                    lists.iter().map(|(server, prefix, names)| ServerItems { server, prefix: *prefix, names }).collect();
                let table = ExposedNames::build(Feature::Tool, &["a"], &offers);
                (table.targets, table.collisions)
            };
            let forward = build(&lists);
            lists.reverse();
            prop_assert_eq!(forward, build(&lists));
        }
    }
}
