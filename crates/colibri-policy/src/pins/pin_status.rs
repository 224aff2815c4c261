//! The pin status of definitions.

use std::collections::{BTreeMap, BTreeSet};

use colibri_api::PinState;
use colibri_protocol::{Code, Failure, Feature};
use colibri_text::brief;

/// The pin status of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinStatus {
    /// As approved.
    Approved,
    /// Never approved: why it was not trusted on first use.
    New {
        /// One sentence.
        why: String,
    },
    /// Not as approved.
    Changed {
        /// The members that differ, as JSON pointers.
        members: Vec<String>,
    },
}

/// The pin check of a server's definitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinCheck {
    /// Its instructions; [`PinStatus::Approved`] if it has none.
    pub instructions: PinStatus,
    /// The items of each feature, by [`Feature::index`] and the server's own names. Definitions of
    /// the same name that differ stand as the worse of them.
    pub definitions: [BTreeMap<String, PinStatus>; Feature::COUNT],
    /// The tools whose definition a person accepted, or who made the image: not those that were
    /// trusted on first use.
    pub by_hand: BTreeSet<String>,
}

impl PinCheck {
    /// The check of a server that lists nothing.
    pub const NOTHING: PinCheck = PinCheck {
        instructions: PinStatus::Approved,
        definitions: [const { BTreeMap::new() }; Feature::COUNT],
        by_hand: BTreeSet::new(),
    };

    /// The pin status of a definition; [`PinStatus::Approved`] for one that is not listed, which
    /// cannot mislead.
    pub fn of(&self, feature: Feature, name: &str) -> &PinStatus {
        let standing = self.definitions[feature.index()].get(name);
        standing.unwrap_or(&PinStatus::Approved)
    }

    /// True if all that it offers is as approved.
    pub fn is_clean(&self) -> bool {
        Feature::ALL
            .into_iter()
            .all(|feature| self.blocked(feature).next().is_none())
    }

    /// The names of those of a feature that are not as approved.
    pub fn blocked(&self, feature: Feature) -> impl Iterator<Item = &str> {
        let blocked = self.definitions[feature.index()]
            .iter()
            .filter(|(_, standing)| !standing.is_approved());
        blocked.map(|(name, _)| name.as_str())
    }

    /// The number of tools that are not as approved, and of all other items.
    pub fn blocked_counts(&self) -> (u64, u64) {
        let count = |feature| self.blocked(feature).count() as u64;
        let others = [
            Feature::Prompt,
            Feature::Resource,
            Feature::Template,
            Feature::Skill,
        ]
        .map(count);
        (count(Feature::Tool), others.iter().sum())
    }
}

/// The members of a definition whose names say nothing but what the specification says (2026-07-28,
/// schema.ts, `Tool`).
const MEMBERS: [&str; 10] = [
    "_meta",
    "annotations",
    "arguments",
    "description",
    "execution",
    "icons",
    "inputSchema",
    "name",
    "outputSchema",
    "title",
];

impl PinStatus {
    /// True if it is as approved.
    pub fn is_approved(&self) -> bool {
        *self == PinStatus::Approved
    }

    /// The status in a word.
    pub fn state(&self) -> PinState {
        match self {
            PinStatus::Approved => PinState::Approved,
            PinStatus::New { .. } => PinState::New,
            PinStatus::Changed { .. } => PinState::Changed,
        }
    }

    /// The reason for which it is not approved, in the daemon's words alone: its reader is to be
    /// kept from the server's. `None` if it is.
    pub fn reason(&self) -> Option<String> {
        match self {
            PinStatus::Approved => None,
            PinStatus::New { why } => Some(format!("it was never approved: {why}")),
            PinStatus::Changed { members } => {
                let known = |place: &str| MEMBERS.iter().find(|name| **name == place).copied();
                let mut named: Vec<&str> = members
                    .iter()
                    .map(|member| match member.strip_prefix('/') {
                        Some(place) => known(place.split('/').next().unwrap_or_default())
                            .unwrap_or("other places"),
                        None => member,
                    })
                    .collect();
                named.sort_unstable();
                named.dedup();
                let named = named.join(", ");
                Some(format!(
                    "it is not the one that was approved; it differs in {named}"
                ))
            }
        }
    }

    /// The answer to who asks for something whose definition stands so; `None` if it is approved.
    pub fn failure(&self, server: &str, feature: Feature, name: &str) -> Option<Failure> {
        let why = format!(
            "this {}'s definition is blocked: {}",
            feature.noun(),
            self.reason()?
        );
        let failure = Failure::new(Code::PinChanged, why)
            .of_server(server)
            .by_rule(format!("pin:{server}/{}", brief(name, 100)))
            .advising(format!(
                "do not repeat the call; the operator reads colibri-mcp pin diff {server} and accepts the definition, \
                 or does not"
            ));
        Some(failure)
    }
}
