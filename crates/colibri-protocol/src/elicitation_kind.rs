//! The kinds of input that a server may request from the client's side, and the client capability
//! that each needs.

use super::version::Version;
use colibri_wire::Json;

/// A kind of input that a server may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElicitationKind {
    /// `elicitation/create` with a form, since 2025-06-18.
    Form,
    /// `elicitation/create` that sends the person to a URL, since 2025-11-25.
    Url,
    /// `sampling/createMessage`
    Sampling,
    /// `sampling/createMessage` with `tools`, since 2025-11-25.
    SamplingTools,
    /// `roots/list`
    Roots,
}

impl ElicitationKind {
    /// All kinds.
    pub const ALL: [ElicitationKind; 5] = [
        ElicitationKind::Form,
        ElicitationKind::Url,
        ElicitationKind::Sampling,
        ElicitationKind::SamplingTools,
        ElicitationKind::Roots,
    ];

    /// The kind of input that a request is for. `None` if no client can be sent such a request.
    pub fn read(method: &str, params: Option<Json<'_>>) -> Option<ElicitationKind> {
        let member = |key| params.and_then(|params: Json<'_>| params.get(key));
        match method {
            "elicitation/create" => match member("mode") {
                None => Some(ElicitationKind::Form),
                Some(mode) if mode.is_string("form") => Some(ElicitationKind::Form),
                Some(mode) if mode.is_string("url") => Some(ElicitationKind::Url),
                Some(_) => None,
            },
            "sampling/createMessage"
                if member("tools").is_some() || member("toolChoice").is_some() =>
            {
                Some(ElicitationKind::SamplingTools)
            }
            "sampling/createMessage" => Some(ElicitationKind::Sampling),
            "roots/list" => Some(ElicitationKind::Roots),
            _ => None,
        }
    }

    /// The first version that has this kind.
    pub fn since(self) -> Version {
        match self {
            ElicitationKind::Form => Version::V2025_06_18,
            ElicitationKind::Url | ElicitationKind::SamplingTools => Version::V2025_11_25,
            ElicitationKind::Sampling | ElicitationKind::Roots => Version::V2024_11_05,
        }
    }

    /// The method of such a request.
    pub fn method(self) -> &'static str {
        match self {
            ElicitationKind::Form | ElicitationKind::Url => "elicitation/create",
            ElicitationKind::Sampling | ElicitationKind::SamplingTools => "sampling/createMessage",
            ElicitationKind::Roots => "roots/list",
        }
    }

    /// The name of this kind in `ClientCapabilities`, and in `may_ask` of a server's entry.
    pub fn capability(self) -> &'static str {
        match self {
            ElicitationKind::Form | ElicitationKind::Url => "elicitation",
            ElicitationKind::Sampling | ElicitationKind::SamplingTools => "sampling",
            ElicitationKind::Roots => "roots",
        }
    }

    /// The `ClientCapabilities` that a client must declare to be sent such a request.
    pub fn required(self) -> &'static str {
        match self {
            ElicitationKind::Form => r#"{"elicitation":{"form":{}}}"#,
            ElicitationKind::Url => r#"{"elicitation":{"url":{}}}"#,
            ElicitationKind::Sampling => r#"{"sampling":{}}"#,
            ElicitationKind::SamplingTools => r#"{"sampling":{"tools":{}}}"#,
            ElicitationKind::Roots => r#"{"roots":{}}"#,
        }
    }

    /// True if a client with these `ClientCapabilities` can be sent such a request. `elicitation`
    /// without a mode means forms (2025-11-25 and 2026-07-28, client/elicitation, "Capabilities").
    pub fn is_declared(self, capabilities: Json<'_>) -> bool {
        let Some(declared) = capabilities.get(self.capability()).filter(Json::is_object) else {
            return false;
        };
        let has = |key: &str| declared.get(key).is_some_and(|mode| mode.is_object());
        match self {
            ElicitationKind::Form => has("form") || !has("url"),
            ElicitationKind::Url => has("url"),
            ElicitationKind::SamplingTools => has("tools"),
            ElicitationKind::Sampling | ElicitationKind::Roots => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::json;

    #[test]
    fn what_is_asked_for_is_one_of_mcps_kinds() {
        for (method, params, expected) in [
            (
                "elicitation/create",
                r#"{"message":"m"}"#,
                Some(ElicitationKind::Form),
            ),
            (
                "elicitation/create",
                r#"{"mode":"form"}"#,
                Some(ElicitationKind::Form),
            ),
            (
                "elicitation/create",
                r#"{"mode":"url"}"#,
                Some(ElicitationKind::Url),
            ),
            ("elicitation/create", r#"{"mode":"other"}"#, None),
            ("elicitation/create", r#"{"mode":7}"#, None),
            (
                "sampling/createMessage",
                r#"{"messages":[]}"#,
                Some(ElicitationKind::Sampling),
            ),
            (
                "sampling/createMessage",
                r#"{"tools":[]}"#,
                Some(ElicitationKind::SamplingTools),
            ),
            ("roots/list", "{}", Some(ElicitationKind::Roots)),
            ("tools/call", "{}", None),
            ("", "{}", None),
        ] {
            assert_eq!(
                ElicitationKind::read(method, Some(json(params))),
                expected,
                "{method} {params}"
            );
        }
        assert_eq!(
            ElicitationKind::read("roots/list", None),
            Some(ElicitationKind::Roots)
        );
        for ask in ElicitationKind::ALL {
            assert!(ask.is_declared(json(ask.required())), "{ask:?}");
            assert!(!ask.is_declared(json("{}")), "{ask:?}");
            let nothing = format!("{{\"{}\":null}}", ask.capability());
            assert!(!ask.is_declared(json(&nothing)), "{ask:?}");
        }
        assert!(ElicitationKind::Form.is_declared(json(r#"{"elicitation":{}}"#)));
        assert!(!ElicitationKind::Url.is_declared(json(r#"{"elicitation":{}}"#)));
        assert!(!ElicitationKind::Form.is_declared(json(r#"{"elicitation":{"url":{}}}"#)));
        assert!(!ElicitationKind::SamplingTools.is_declared(json(r#"{"sampling":{}}"#)));
    }
}
