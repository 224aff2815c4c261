//! The five kinds of things that servers list: tools, prompts, resources, templates and skills.

/// A kind of things that a server lists. Each kind has a list of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Tools.
    Tool,
    /// Prompts.
    Prompt,
    /// Resources.
    Resource,
    /// Templates of resources' URIs.
    Template,
    /// Skills, by the URI of their `SKILL.md` ([`super::skills`]).
    Skill,
}

impl Feature {
    /// The number of kinds.
    pub const COUNT: usize = 5;

    /// All kinds.
    pub const ALL: [Feature; Feature::COUNT] = [
        Feature::Tool,
        Feature::Prompt,
        Feature::Resource,
        Feature::Template,
        Feature::Skill,
    ];

    /// The index in [`Feature::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The member of a list's result that holds the entries.
    pub fn member(self) -> &'static str {
        match self {
            Feature::Tool => "tools",
            Feature::Prompt => "prompts",
            Feature::Resource => "resources",
            Feature::Template => "resourceTemplates",
            Feature::Skill => "skills",
        }
    }

    /// The member of an entry that identifies it.
    pub fn identifier(self) -> &'static str {
        match self {
            Feature::Tool | Feature::Prompt => "name",
            Feature::Resource | Feature::Skill => "uri",
            Feature::Template => "uriTemplate",
        }
    }

    /// The English word for one thing of this kind.
    pub fn noun(self) -> &'static str {
        match self {
            Feature::Tool => "tool",
            Feature::Prompt => "prompt",
            Feature::Resource => "resource",
            Feature::Template => "template",
            Feature::Skill => "skill",
        }
    }
}

/// A set of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u8);

impl Features {
    /// The empty set.
    pub const NONE: Features = Features(0);

    /// True if the set has this feature.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature.index()) != 0
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self == Features::NONE
    }

    /// The features of the set, in the order of [`Feature::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL
            .into_iter()
            .filter(move |feature| self.has(*feature))
    }
}

impl From<Feature> for Features {
    fn from(feature: Feature) -> Features {
        Features(1 << feature.index())
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Features {
        let all = features.into_iter().map(Features::from);
        all.fold(Features::NONE, |all, one| all | one)
    }
}

impl std::ops::BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for Features {
    fn bitor_assign(&mut self, other: Features) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Method, Route};

    #[test]
    fn features_know_their_lists() {
        for (feature, method, member, identifier) in [
            (Feature::Tool, "tools/list", "tools", "name"),
            (Feature::Prompt, "prompts/list", "prompts", "name"),
            (Feature::Resource, "resources/list", "resources", "uri"),
            (
                Feature::Template,
                "resources/templates/list",
                "resourceTemplates",
                "uriTemplate",
            ),
            (Feature::Skill, "skills/list", "skills", "uri"),
        ] {
            let list = Method::list_of(feature);
            assert_eq!(
                (list.as_str(), list.route()),
                (method, Route::List(feature))
            );
            assert_eq!(
                (feature.member(), feature.identifier()),
                (member, identifier)
            );
            assert_eq!(Feature::ALL[feature.index()], feature);
        }
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let some = Features::from(Feature::Tool) | Features::from(Feature::Template);
        assert_eq!(
            some.iter().collect::<Vec<_>>(),
            [Feature::Tool, Feature::Template]
        );
        assert_eq!(some.iter().collect::<Features>(), some);
        assert!(some.has(Feature::Tool) && !some.has(Feature::Prompt) && !some.is_empty());
        assert!(Features::NONE.is_empty());
    }
}
