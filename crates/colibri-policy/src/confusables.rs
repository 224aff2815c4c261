//! Names that could be taken for others: a tool of one server that passes for a tool of another.

use std::collections::BTreeMap;
use std::fmt;

use unicode_normalization::UnicodeNormalization;

use colibri_text::{is_hidden, visible};
use colibri_wire::keys::fold;

/// The looks of a name: equal for two names that a person, or a model, could take for each other.
/// Folded, without hidden characters and separators, accents dropped, letters that look like
/// another replaced by it.
///
/// A small table instead of all of UTS 39: names of tools are short and nearly always ASCII; what
/// matters is `0` and `o`, `1` and `l`, `rn` and `m`, and the Cyrillic and Greek letters drawn like
/// Latin ones.
pub(crate) fn skeleton(name: &str) -> String {
    let folded = fold(&name.chars().filter(|c| !is_hidden(*c)).collect::<String>());
    let drawn: String = folded
        .nfd()
        .filter(|c| !unicode_normalization::char::is_combining_mark(*c))
        .filter(|c| {
            !matches!(
                c,
                '-' | '_' | '.' | ' ' | '‐' | '‑' | '–' | '—' | '−' | '/' | ':' | '·'
            )
        })
        .map(|c| match c {
            '0' | 'о' | 'ο' | 'օ' => 'o',
            '1' | 'i' | '|' | 'ı' | 'і' | 'ι' | 'ӏ' | 'ɩ' => 'l',
            '5' | 'ѕ' => 's',
            'а' | 'α' | 'ɑ' => 'a',
            'в' => 'b',
            'с' | 'ϲ' | 'ᴄ' => 'c',
            'ԁ' => 'd',
            'е' | 'ε' | 'є' => 'e',
            'ɡ' | 'ց' => 'g',
            'һ' | 'н' | 'հ' => 'h',
            'ј' => 'j',
            'к' | 'κ' => 'k',
            'м' => 'm',
            'ո' | 'η' => 'n',
            'р' | 'ρ' => 'p',
            'ԛ' => 'q',
            'г' => 'r',
            'т' | 'τ' => 't',
            'υ' | 'ս' | 'ц' => 'u',
            'ν' | 'ѵ' => 'v',
            'ԝ' | 'ω' => 'w',
            'х' | 'χ' => 'x',
            'у' | 'γ' => 'y',
            c => c,
        })
        .collect();
    drawn
        .replace("rn", "m")
        .replace("vv", "w")
        .replace("cl", "d")
}

/// Two names of which one could be taken for the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookAlike {
    /// Two servers.
    Servers(String, String),
    /// Two tools of one server.
    Tools {
        /// The server.
        server: String,
        /// The two names.
        tools: (String, String),
    },
    /// A tool whose name begins like another server's id, or like Colibri's own tools.
    Shadow {
        /// The server that offers it.
        server: String,
        /// The tool's own name.
        tool: String,
        /// The server whose tool it could be taken for.
        other: String,
    },
}

impl fmt::Display for LookAlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookAlike::Servers(a, b) => {
                write!(f, "servers {a} and {b} could be taken for each other")
            }
            LookAlike::Tools {
                server,
                tools: (a, b),
            } => {
                let (a, b) = (visible(a), visible(b));
                write!(
                    f,
                    "tools {a} and {b} of server {server} could be taken for each other"
                )
            }
            LookAlike::Shadow {
                server,
                tool,
                other,
            } => {
                let tool = visible(tool);
                write!(
                    f,
                    "tool {tool} of server {server} could be taken for one of {other}"
                )
            }
        }
    }
}

/// The look-alikes among what all servers offer, by server id, each once. Equal tool names of
/// different servers are no look-alikes: the servers' prefixes tell them apart.
pub fn look_alikes(offers: &BTreeMap<String, Vec<String>>) -> Vec<LookAlike> {
    let mut found = Vec::new();
    let mut servers: BTreeMap<String, &String> = BTreeMap::new();
    for id in offers.keys() {
        match servers.entry(skeleton(id)) {
            std::collections::btree_map::Entry::Occupied(other) => {
                found.push(LookAlike::Servers((*other.get()).clone(), id.clone()));
            }
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(id);
            }
        }
    }
    let colibri = "colibri".to_owned();
    let own_tools = skeleton(&colibri);
    for (server, tools) in offers {
        let own = skeleton(server);
        let mut seen: BTreeMap<String, &String> = BTreeMap::new();
        for tool in tools.iter().take(MAX_TOOLS) {
            // A server may write a name without end; who reads it sees its beginning.
            let name: String = tool.chars().take(MAX_READ).collect();
            let drawn = skeleton(&name);
            if let Some(other) = seen.get(&drawn).filter(|other| **other != tool) {
                found.push(LookAlike::Tools {
                    server: server.clone(),
                    tools: ((*other).clone(), tool.clone()),
                });
            }
            let shadowed = beginnings(&name)
                .filter(|beginning| *beginning != own && beginning.len() > 2)
                .find_map(|beginning| {
                    let ours = (beginning == own_tools).then_some(&colibri);
                    servers.get(&beginning).copied().or(ours)
                });
            if let Some(other) = shadowed {
                found.push(LookAlike::Shadow {
                    server: server.clone(),
                    tool: tool.clone(),
                    other: other.clone(),
                });
            }
            seen.entry(drawn).or_insert(tool);
        }
    }
    found
}

/// The most tools of one server that are compared: all of this is done again whenever a list
/// changes.
const MAX_TOOLS: usize = 1_000;
/// The most characters of a name that are compared.
const MAX_READ: usize = 100;

/// The looks of a name up to each of its first separators.
fn beginnings(name: &str) -> impl Iterator<Item = String> {
    let separators = name
        .char_indices()
        .filter(|(_, c)| matches!(c, '_' | '-' | '.' | '/' | ':'));
    separators.take(8).map(|(at, _)| skeleton(&name[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offers(list: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        list.iter()
            .map(|(id, tools)| {
                (
                    (*id).to_owned(),
                    tools.iter().map(|tool| (*tool).to_owned()).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn names_drawn_alike_have_one_skeleton() {
        for (a, b) in [
            ("github", "g1thub"),
            ("github", "GitHub"),
            ("github", "gith\u{200b}ub"),
            ("github", "gіthub"),
            ("docs", "d0cs"),
            ("mail", "rnail"),
            ("create_issue", "create-issue"),
            ("create_issue", "createIssue"),
            ("read", "reаd"),
            ("read", "réad"),
            ("kelvin", "\u{212a}elvin"),
        ] {
            assert_eq!(skeleton(a), skeleton(b), "{a} {b}");
        }
        for (a, b) in [("github", "gitlab"), ("get", "set"), ("read", "write")] {
            assert_ne!(skeleton(a), skeleton(b));
        }
    }

    #[test]
    fn what_could_be_taken_for_something_else_is_named() {
        let found = look_alikes(&offers(&[
            ("github", &["create_issue", "github_search", "search"]),
            ("g1thub", &["search"]),
            (
                "notes",
                &[
                    "github__create_issue",
                    "colibri_status",
                    "read",
                    "reаd",
                    "docs.search",
                ],
            ),
            ("docs", &["search", "search"]),
        ]));
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "servers g1thub and github could be taken for each other",
                "tool github__create_issue of server notes could be taken for one of g1thub",
                "tool colibri_status of server notes could be taken for one of colibri",
                "tools read and reаd of server notes could be taken for each other",
                "tool docs.search of server notes could be taken for one of docs",
            ]
        );
        assert!(look_alikes(&offers(&[("a", &["x_y"]), ("x", &["search"])])).is_empty());
    }

    proptest! {
        #[test]
        fn never_panics_and_separators_do_not_count(name in any::<String>(), other in "[a-z]{1,8}") {
            let _ = look_alikes(&offers(&[("ab", &[&name]), ("cd", &[&other, &name])]));
            prop_assert_eq!(skeleton(&format!("{other}_{other}")), skeleton(&format!("{other}{other}")));
        }
    }
}
