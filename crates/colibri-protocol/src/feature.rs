//! The four kinds of things that servers offer in lists.

use super::method::Method;

/// A kind of things that a server offers, each with a list of its own.
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
}

impl Feature {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// All of them.
    pub const ALL: [Feature; Feature::COUNT] = [Feature::Tool, Feature::Prompt, Feature::Resource, Feature::Template];

    /// Its place in [`Feature::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The method that lists it.
    pub fn list_method(self) -> Method {
        match self {
            Feature::Tool => Method::ToolsList,
            Feature::Prompt => Method::PromptsList,
            Feature::Resource => Method::ResourcesList,
            Feature::Template => Method::ResourceTemplatesList,
        }
    }

    /// The feature that a method lists.
    pub fn listed_by(method: Method) -> Option<Feature> {
        Feature::ALL.into_iter().find(|feature| feature.list_method() == method)
    }

    /// The member of a list's result that holds the entries.
    pub fn member(self) -> &'static str {
        match self {
            Feature::Tool => "tools",
            Feature::Prompt => "prompts",
            Feature::Resource => "resources",
            Feature::Template => "resourceTemplates",
        }
    }

    /// The member of an entry that tells it from the others.
    pub fn identifier(self) -> &'static str {
        match self {
            Feature::Tool | Feature::Prompt => "name",
            Feature::Resource => "uri",
            Feature::Template => "uriTemplate",
        }
    }

    /// What one of it is called.
    pub fn noun(self) -> &'static str {
        match self {
            Feature::Tool => "tool",
            Feature::Prompt => "prompt",
            Feature::Resource => "resource",
            Feature::Template => "template",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(feature.list_method().as_str(), method);
            assert_eq!(Feature::listed_by(feature.list_method()), Some(feature));
            assert_eq!((feature.member(), feature.identifier()), (member, identifier));
            assert_eq!(Feature::ALL[feature.index()], feature);
        }
        assert_eq!(Feature::listed_by(Method::ResourcesRead), None);
    }
}
