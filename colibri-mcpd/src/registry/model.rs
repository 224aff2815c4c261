//! The key `model` of an agent: where its model is asked, with which key, and what a request may
//! have the provider do.

use std::collections::BTreeMap;

use hyper::Uri;

use colibri_json::{DocumentError, ValueCursor};
use colibri_model::{ModelAllow, ModelApi, ModelPermissions, RequestRules};
use colibri_registry::EntryValue;
use colibri_registry::value::{one_of, unique};

use super::http_keys;
use colibri_http::ConnectionRules;

/// An agent's model, as the relay asks it. No header of it is ever seen by the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// The prefix of the interface's own paths: `https://api.anthropic.com`.
    pub url: Uri,
    /// Headers of every request, by name: the key among them.
    pub headers: BTreeMap<String, EntryValue>,
    /// The rules for its connections.
    pub rules: ConnectionRules,
    /// What a request may be.
    pub requests: RequestRules,
}

impl ModelSpec {
    /// True if the value of a header must not be seen by who asks: a secret, or what stands where
    /// keys stand.
    pub fn is_hidden(&self, header: &str) -> bool {
        let name = header.to_ascii_lowercase();
        let is_keys = ["authorization", "key", "token", "cookie"]
            .iter()
            .any(|part| name.contains(part));
        is_keys || matches!(self.headers.get(header), Some(EntryValue::Secret(_)))
    }
}

const KEYS: &[&str] = &[
    "url",
    "api",
    "headers",
    "allow",
    "allow_addresses",
    "betas",
    "ca",
    "context_tokens",
    "max_tokens_default",
    "models",
    "proxy",
];

/// As much as the models of today write at most in one answer, where nobody says less.
const MAX_TOKENS_DEFAULT: u64 = 32_000;
/// As much as the models of today read at most.
const CONTEXT_TOKENS: u64 = 2_000_000;
/// More than any model writes in one answer.
const MOST_TOKENS: u64 = 10_000_000;

/// The most bytes of the name of a model or of a beta.
const MAX_NAME: usize = 128;

/// A name, which may end in a `*`.
fn pattern(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let text = cursor.text()?;
    let start = text.strip_suffix('*').unwrap_or(text);
    if text.is_empty() || text.len() > MAX_NAME || start.contains('*') {
        return Err(cursor.error("must be a name of at most 128 bytes, which may end in a \"*\""));
    }
    Ok(text.to_owned())
}

/// Reads the key `model` of an agent.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub(super) fn read(cursor: &ValueCursor<'_>) -> Result<ModelSpec, DocumentError> {
    let keys = cursor.object(KEYS)?;
    let at = keys.need("url")?;
    let unusable =
        "must be the address that the interface's own paths are added to, without a query";
    let url: Uri = http_keys::url(at)?
        .parse()
        .map_err(|_| at.error(unusable))?;
    let is_odd = |part: &str| matches!(part, "." | "..") || part.contains('%');
    if url.query().is_some() || url.path().split('/').any(is_odd) {
        return Err(at.error(unusable));
    }
    let apis = ModelApi::ALL.map(|api| (api.name(), api));
    let allows = ModelAllow::ALL.map(|allow| (allow.name(), allow));
    Ok(ModelSpec {
        url,
        headers: keys
            .read("headers", http_keys::headers)?
            .unwrap_or_default(),
        rules: http_keys::rules(&keys)?,
        requests: RequestRules {
            api: one_of(keys.need("api")?, &apis)?,
            permits: ModelPermissions {
                allow: keys
                    .read("allow", |list| unique(list, |item| one_of(item, &allows)))?
                    .unwrap_or_default(),
                models: keys
                    .read("models", |list| unique(list, pattern))?
                    .unwrap_or_default(),
                betas: keys
                    .read("betas", |list| unique(list, pattern))?
                    .unwrap_or_default(),
            },
            context_tokens: keys
                .read("context_tokens", |v| v.integer(1..=MOST_TOKENS))?
                .unwrap_or(CONTEXT_TOKENS),
            max_tokens_default: keys
                .read("max_tokens_default", |v| v.integer(1..=MOST_TOKENS))?
                .unwrap_or(MAX_TOKENS_DEFAULT),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::parse;

    fn one(model: &str) -> Result<ModelSpec, String> {
        let text = format!(r#"{{"agents":{{"a":{{"command":"/bin/a","model":{model}}}}}}}"#);
        let mut registry = parse(text.as_bytes(), "r").map_err(|error| error.to_string())?;
        Ok(*registry.agents.remove("a").unwrap().model.unwrap())
    }

    #[test]
    fn a_model_is_read_whole() {
        let model = one(
            r#"{"url":"https://x.example/api","api":"openai-chat","headers":{"authorization":{"secret":"key"}},
                "allow":["web-search","urls"],"allow_addresses":["loopback"],"proxy":"http://p:1","ca":"/c",
                "max_tokens_default":500,"context_tokens":9000,"models":["gpt-5*"],"betas":["new-2027-01-01"]}"#,
        )
        .unwrap();
        assert_eq!(
            (model.url.path(), model.requests.api),
            ("/api", ModelApi::OpenAiChat)
        );
        assert_eq!(
            model.headers["authorization"],
            EntryValue::Secret("key".to_owned())
        );
        let permits = ModelPermissions {
            allow: vec![ModelAllow::WebSearch, ModelAllow::Urls],
            models: vec!["gpt-5*".to_owned()],
            betas: vec!["new-2027-01-01".to_owned()],
        };
        assert_eq!(model.requests.permits, permits);
        assert_eq!(
            (model.rules.allowed.len(), model.requests.max_tokens_default),
            (1, 500)
        );
        assert_eq!(model.requests.context_tokens, 9000);
        assert!(model.rules.proxy.is_some() && model.rules.authorities.is_some());
    }

    #[test]
    fn a_model_that_says_little_allows_nothing() {
        for api in ModelApi::ALL {
            let model = one(&format!(
                r#"{{"url":"https://x.example","api":"{}"}}"#,
                api.name()
            ))
            .unwrap();
            assert_eq!(
                (model.requests.api, model.requests.max_tokens_default),
                (api, MAX_TOKENS_DEFAULT)
            );
            assert_eq!(
                (&model.requests.permits, model.requests.context_tokens),
                (&ModelPermissions::default(), CONTEXT_TOKENS)
            );
            assert!(model.headers.is_empty() && model.rules.allowed.is_empty());
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (model, wanted) in [
            (r#"{"api":"gemini"}"#, "\"url\" is missing"),
            (r#"{"url":"https://x.example"}"#, "\"api\" is missing"),
            (r#"{"url":"https://x.example","api":"openai"}"#, "api"),
            (
                r#"{"url":"https://x.example?key=1","api":"gemini"}"#,
                "without a query",
            ),
            (
                r#"{"url":"https://x.example/a/../b","api":"gemini"}"#,
                "without a query",
            ),
            (r#"{"url":"https://u:p@x.example","api":"gemini"}"#, "user"),
            (
                r#"{"url":"https://x.example","api":"gemini","allow":["all"]}"#,
                "allow",
            ),
            (
                r#"{"url":"https://x.example","api":"gemini","header":{}}"#,
                "headers",
            ),
            (
                r#"{"url":"https://x.example","api":"gemini","headers":{"Host":"x"}}"#,
                "Host",
            ),
            (
                r#"{"url":"https://x.example","api":"gemini","models":["a*b"]}"#,
                "models",
            ),
            (
                r#"{"url":"https://x.example","api":"gemini","betas":[""]}"#,
                "betas",
            ),
            (
                r#"{"url":"https://x.example","api":"gemini","max_tokens_default":0}"#,
                "max_tokens_default",
            ),
        ] {
            let error = one(model).unwrap_err();
            assert!(error.contains(wanted), "{model}: {error}");
        }
    }
}
