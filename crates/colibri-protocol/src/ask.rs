//! The kinds of input that a server may request from the client's side, and the client capability that each needs.

use super::version::Version;
use colibri_wire::Json;

/// A kind of input that a server may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ask {
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

impl Ask {
    /// All kinds.
    pub const ALL: [Ask; 5] = [Ask::Form, Ask::Url, Ask::Sampling, Ask::SamplingTools, Ask::Roots];

    /// The kind of input that a request is for. `None` if no client can be sent such a request.
    pub fn read(method: &str, params: Option<Json<'_>>) -> Option<Ask> {
        let member = |key| params.and_then(|params: Json<'_>| params.get(key));
        match method {
            "elicitation/create" => match member("mode") {
                None => Some(Ask::Form),
                Some(mode) if mode.is_string("form") => Some(Ask::Form),
                Some(mode) if mode.is_string("url") => Some(Ask::Url),
                Some(_) => None,
            },
            "sampling/createMessage" if member("tools").is_some() || member("toolChoice").is_some() => {
                Some(Ask::SamplingTools)
            }
            "sampling/createMessage" => Some(Ask::Sampling),
            "roots/list" => Some(Ask::Roots),
            _ => None,
        }
    }

    /// The first version that has this kind.
    pub fn since(self) -> Version {
        match self {
            Ask::Form => Version::V2025_06_18,
            Ask::Url | Ask::SamplingTools => Version::V2025_11_25,
            Ask::Sampling | Ask::Roots => Version::V2024_11_05,
        }
    }

    /// The method of such a request.
    pub fn method(self) -> &'static str {
        match self {
            Ask::Form | Ask::Url => "elicitation/create",
            Ask::Sampling | Ask::SamplingTools => "sampling/createMessage",
            Ask::Roots => "roots/list",
        }
    }

    /// The name of this kind in `ClientCapabilities`, and in `may_ask` of a server's entry.
    pub fn capability(self) -> &'static str {
        match self {
            Ask::Form | Ask::Url => "elicitation",
            Ask::Sampling | Ask::SamplingTools => "sampling",
            Ask::Roots => "roots",
        }
    }

    /// The `ClientCapabilities` that a client must declare to be sent such a request.
    pub fn required(self) -> &'static str {
        match self {
            Ask::Form => r#"{"elicitation":{"form":{}}}"#,
            Ask::Url => r#"{"elicitation":{"url":{}}}"#,
            Ask::Sampling => r#"{"sampling":{}}"#,
            Ask::SamplingTools => r#"{"sampling":{"tools":{}}}"#,
            Ask::Roots => r#"{"roots":{}}"#,
        }
    }

    /// True if a client with these `ClientCapabilities` can be sent such a request. `elicitation` without a mode means
    /// forms (2025-11-25 and 2026-07-28, client/elicitation, "Capabilities").
    pub fn is_declared(self, capabilities: Json<'_>) -> bool {
        let Some(declared) = capabilities.get(self.capability()).filter(Json::is_object) else {
            return false;
        };
        let has = |key: &str| declared.get(key).is_some_and(|mode| mode.is_object());
        match self {
            Ask::Form => has("form") || !has("url"),
            Ask::Url => has("url"),
            Ask::SamplingTools => has("tools"),
            Ask::Sampling | Ask::Roots => true,
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
            ("elicitation/create", r#"{"message":"m"}"#, Some(Ask::Form)),
            ("elicitation/create", r#"{"mode":"form"}"#, Some(Ask::Form)),
            ("elicitation/create", r#"{"mode":"url"}"#, Some(Ask::Url)),
            ("elicitation/create", r#"{"mode":"other"}"#, None),
            ("elicitation/create", r#"{"mode":7}"#, None),
            ("sampling/createMessage", r#"{"messages":[]}"#, Some(Ask::Sampling)),
            ("sampling/createMessage", r#"{"tools":[]}"#, Some(Ask::SamplingTools)),
            ("roots/list", "{}", Some(Ask::Roots)),
            ("tools/call", "{}", None),
            ("", "{}", None),
        ] {
            assert_eq!(Ask::read(method, Some(json(params))), expected, "{method} {params}");
        }
        assert_eq!(Ask::read("roots/list", None), Some(Ask::Roots));
        for ask in Ask::ALL {
            assert!(ask.is_declared(json(ask.required())), "{ask:?}");
            assert!(!ask.is_declared(json("{}")), "{ask:?}");
            let nothing = format!("{{\"{}\":null}}", ask.capability());
            assert!(!ask.is_declared(json(&nothing)), "{ask:?}");
        }
        assert!(Ask::Form.is_declared(json(r#"{"elicitation":{}}"#)));
        assert!(!Ask::Url.is_declared(json(r#"{"elicitation":{}}"#)));
        assert!(!Ask::Form.is_declared(json(r#"{"elicitation":{"url":{}}}"#)));
        assert!(!Ask::SamplingTools.is_declared(json(r#"{"sampling":{}}"#)));
    }
}
