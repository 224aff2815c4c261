//! A model of a provider: what a call asks, one attempt at it, and how it failed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use colibri_http::{
    AllowedTarget, ConnectionRules, HttpClient, HttpError, HttpLimits, ResponseStream, UrlOrigin,
};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use serde_json::{Value, json};

use super::api::{Api, ModelQuestion};
use super::serve::ToolServer;
use super::tool_call_error::{ToolCallError, output_schema, result};
use crate::failure::CommandError;
use colibri_text::brief;

/// The variable with the key.
const KEY: &str = "MODEL_API_KEY";
/// The longest time for a whole call, and for one of a model that reasons.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_REASONING: Duration = Duration::from_secs(120);
/// The most bytes of an answer, and of one that says why there is none.
const MAX_ANSWER: usize = 1 << 20;
const MAX_REFUSAL: usize = 64 * 1024;
/// The most characters of a model's name, and of what is told in a word of its own.
const MAX_NAME: usize = 200;
const MAX_WORD: usize = 64;
/// The most characters that are told of why there is no answer.
const MAX_TOLD: usize = 300;
/// The fewest bytes of a key that is taken out of what a provider says: a shorter one could be any
/// word of a text.
const MIN_MASKED: usize = 16;
/// The keys of an entry in the HTTP client's errors, and the flags that are meant here.
const FLAGS: [(&str, &str); 2] = [
    ("\"allow_addresses\"", "--allow-address"),
    ("\"ca\"", "--ca"),
];

/// The model's address, and its interface.
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArguments {
    /// Its interface
    #[arg(long, value_name = "API", value_enum, requires = "url")]
    api: Option<Api>,
    /// Its address: https://HOST, with the prefix of /v1 in its paths
    #[arg(long, value_name = "URL", requires = "api")]
    url: Option<String>,
    /// A model that reasons, whose call may take 120 s instead of 60 s; may be repeated
    #[arg(long, value_name = "MODEL", requires = "url")]
    reasons: Vec<String>,
    /// An address that is not public and may be connected to: loopback, private, link-local, an
    /// address, or a network
    #[arg(long, value_name = "ADDRESS", requires = "url")]
    allow_address: Vec<String>,
    /// A file of certificate authorities (PEM) that are believed besides the system's
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// The proxy (http://HOST:PORT) that is asked for every connection
    #[arg(long, value_name = "URL", requires = "url")]
    proxy: Option<String>,
}

/// The model, as it is reached.
pub(super) struct ModelEndpoint {
    connected: Option<ModelConnection>,
}

struct ModelConnection {
    api: Api,
    /// Scheme, host, port and what stands before each path.
    url: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    has_key: bool,
    /// The value that is removed from the provider's texts.
    masked: Option<String>,
    reasons: Vec<String>,
    client: HttpClient,
}

impl ModelEndpoint {
    /// The model of a command line; its key comes from the environment.
    pub(super) fn new(arguments: ModelArguments) -> Result<ModelEndpoint, CommandError> {
        let (Some(api), Some(url)) = (arguments.api, arguments.url) else {
            return Ok(ModelEndpoint { connected: None });
        };
        let wrong =
            |what: &str, why: &str| CommandError::Usage(format!("integration model: {what} {why}"));
        colibri_api::check_url(&url).map_err(|why| wrong("--url", why))?;
        let url = url.trim_end_matches('/');
        let parsed: Uri = url
            .parse()
            .map_err(|_| wrong("--url", "is no URL that can be connected to"))?;
        UrlOrigin::of(&parsed).map_err(|error| wrong("--url:", &error.to_string()))?;
        if parsed.query().is_some() || url.ends_with("/v1") || url.ends_with("/v1beta") {
            return Err(wrong(
                "--url",
                "must have no query, and end before /v1, which is added to it",
            ));
        }
        let allowed = arguments.allow_address.iter().map(|text| {
            let why =
                "must be loopback, private, link-local, an address, or a network like 10.1.0.0/16";
            AllowedTarget::parse(text).ok_or_else(|| wrong("--allow-address", why))
        });
        let proxy = arguments.proxy.map(|proxy| {
            let why =
                "must be http://HOST:PORT, the proxy's own address, without a user and a path";
            ConnectionRules::proxy(&proxy).ok_or_else(|| wrong("--proxy", why))
        });
        let rules = ConnectionRules {
            allowed: allowed.collect::<Result<_, _>>()?,
            authorities: arguments.ca,
            proxy: proxy.transpose()?,
        };
        let key = std::env::var(KEY).ok().filter(|key| !key.is_empty());
        let mut fields = Vec::new();
        for (name, value) in api.fields(key.as_deref()) {
            let value = HeaderValue::from_str(&value);
            let mut value =
                value.map_err(|_| wrong(KEY, "holds what no header field can: a line end?"))?;
            value.set_sensitive(true);
            fields.push((HeaderName::from_static(name), value));
        }
        Ok(ModelEndpoint {
            connected: Some(ModelConnection {
                api,
                url: url.to_owned(),
                fields,
                has_key: key.is_some(),
                masked: key.filter(|key| key.len() >= MIN_MASKED),
                reasons: arguments.reasons,
                client: HttpClient::new(rules),
            }),
        })
    }

    async fn complete(&self, arguments: &Value) -> Result<Value, ToolCallError> {
        let asked = asked(arguments)
            .map_err(|why| ToolCallError::permanent("ARGUMENTS_INVALID", format!("{why:#}")))?;
        let Some(connected) = &self.connected else {
            return Err(ToolCallError::permanent(
                "INTEGRATION_UNAVAILABLE",
                unavailable("the entry's command names no --api and --url"),
            ));
        };
        let patience = connected.patience(asked.model);
        match tokio::time::timeout(patience, connected.ask(&asked, patience)).await {
            Ok(answered) => answered,
            Err(_) => Err(late(patience)),
        }
    }
}

impl ModelConnection {
    fn patience(&self, model: &str) -> Duration {
        match self.reasons.iter().any(|reasons| reasons == model) {
            true => PATIENCE_REASONING,
            false => PATIENCE,
        }
    }

    async fn ask(
        &self,
        asked: &ModelQuestion<'_>,
        patience: Duration,
    ) -> Result<Value, ToolCallError> {
        let (path, body) = self
            .api
            .request(asked)
            .map_err(|why| ToolCallError::permanent("ARGUMENTS_INVALID", format!("{why:#}")))?;
        let mut request = Request::new(Bytes::from(body.to_string()));
        *request.method_mut() = Method::POST;
        let url = format!("{}{path}", self.url);
        *request.uri_mut() = url.parse().map_err(|_| {
            ToolCallError::permanent("ARGUMENTS_INVALID", "the model's name is odd")
        })?;
        let fields = request.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.extend(self.fields.iter().cloned());
        let limits = HttpLimits::all(patience);
        let mut response = self
            .client
            .ask(request, limits)
            .await
            .map_err(|error| self.failed(error, patience))?;
        if response.status != StatusCode::OK {
            return Err(self.refused(&mut response).await);
        }
        let body = response
            .whole(MAX_ANSWER)
            .await
            .map_err(|error| self.failed(error, patience))?;
        let answer = serde_json::from_slice(&body).ok();
        let Some(said) = answer.as_ref().and_then(|answer| self.api.read(answer)) else {
            let why = format!(
                "the model's answer is none of {}, or does not say what it cost: does --api fit --url?",
                self.api.name()
            );
            return Err(ToolCallError::permanent("MODEL_ANSWER_INVALID", why));
        };
        let model = said.model.as_deref().unwrap_or(asked.model);
        Ok(json!({
            "tokens_in": said.tokens_in,
            "tokens_out": said.tokens_out,
            "tokens_cached": said.tokens_cached,
            "tokens_cache_write": said.tokens_cache_write,
            "model_used": brief(&self.masked(model), MAX_NAME),
            "stop_reason": brief(&self.masked(&said.stop_reason), MAX_WORD),
            "completion": self.masked(&said.completion),
        }))
    }

    /// The reason for which an answer is no success.
    async fn refused(&self, response: &mut ResponseStream) -> ToolCallError {
        let status = response.status;
        let body = response.whole(MAX_REFUSAL).await.unwrap_or_default();
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let told = json
            .pointer("/error/message")
            .and_then(Value::as_str)
            .unwrap_or(text.trim());
        let reason = status.canonical_reason().unwrap_or("no known status");
        let mut message = format!("the model answered {} ({reason})", status.as_u16());
        if !told.is_empty() {
            message += &format!(": {}", brief(&self.masked(told), MAX_TOLD));
        }
        if status.is_redirection() {
            let place = response.header("location").unwrap_or("nowhere");
            let place = brief(&self.masked(place), MAX_TOLD);
            message += &format!(
                "; it leads to {place}, which is not followed: write that into --url if it is meant"
            );
        }
        if status == StatusCode::UNAUTHORIZED && !self.has_key {
            message += &format!("; no key was sent, since {KEY} is empty");
        }
        match status {
            StatusCode::TOO_MANY_REQUESTS => {
                let after = response.retry_after();
                if let Some(after) = after {
                    message += &format!("; it asks to be left alone for {} s", after.as_secs());
                }
                ToolCallError {
                    after,
                    ..ToolCallError::transient("MODEL_BUSY", message)
                }
            }
            status if status.is_server_error() => ToolCallError::transient("MODEL_FAILED", message),
            StatusCode::UNAUTHORIZED | StatusCode::PAYMENT_REQUIRED | StatusCode::FORBIDDEN => {
                ToolCallError::permanent("MODEL_DENIED", message)
            }
            _ => ToolCallError::permanent("MODEL_REFUSED", message),
        }
    }

    fn failed(&self, error: HttpError, patience: Duration) -> ToolCallError {
        let message = FLAGS
            .iter()
            .fold(self.masked(&error.to_string()), |message, (key, flag)| {
                message.replace(key, flag)
            });
        match error {
            HttpError::Silent { .. } => late(patience),
            // The provider ends connections as it fails, or was not asked at all over one that had
            // been kept too long.
            HttpError::Lost { .. } | HttpError::Unsent { .. } => {
                ToolCallError::transient("MODEL_FAILED", message)
            }
            HttpError::TooLong { .. } => ToolCallError::permanent("MODEL_ANSWER_INVALID", message),
            HttpError::Connect { .. } => {
                ToolCallError::transient("INTEGRATION_UNAVAILABLE", unavailable(&message))
            }
            HttpError::Settings(_) => ToolCallError::permanent(
                "INTEGRATION_UNAVAILABLE",
                unavailable(&format!("--ca: {message}")),
            ),
            HttpError::Address { .. } | HttpError::Url(_) | HttpError::Certificate { .. } => {
                ToolCallError::permanent("INTEGRATION_UNAVAILABLE", unavailable(&message))
            }
        }
    }

    /// A text of the provider's without the key, which it knows.
    fn masked(&self, text: &str) -> String {
        match &self.masked {
            Some(key) => text.replace(key.as_str(), "[key]"),
            None => text.to_owned(),
        }
    }
}

fn unavailable(why: &str) -> String {
    format!("{why}; model not connected")
}

fn late(patience: Duration) -> ToolCallError {
    let why = format!(
        "the model gave no whole answer within {} s",
        patience.as_secs()
    );
    ToolCallError::transient("MODEL_TIMEOUT", why)
}

/// Reads the arguments of a call: these five, and nothing else.
fn asked(arguments: &Value) -> anyhow::Result<ModelQuestion<'_>> {
    const KEYS: [&str; 5] = ["task_id", "context", "max_tokens", "temperature", "model"];
    let members = arguments
        .as_object()
        .context("the arguments must be an object")?;
    if let Some(odd) = members.keys().find(|key| !KEYS.contains(&key.as_str())) {
        bail!(
            "{} is no argument: there are {}",
            brief(odd, MAX_WORD),
            KEYS.join(", ")
        );
    }
    let text = |key: &str, most: usize| {
        let text = members
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty());
        let text = text.filter(|text| text.chars().nth(most).is_none());
        text.with_context(|| format!("{key} must be a string of 1 to {most} characters"))
    };
    text("task_id", MAX_NAME)?;
    let max_tokens = members
        .get("max_tokens")
        .and_then(Value::as_u64)
        .filter(|most| *most > 0);
    let temperature = members.get("temperature").and_then(Value::as_f64);
    Ok(ModelQuestion {
        model: text("model", MAX_NAME)?,
        context: text("context", 1_000_000)?,
        max_tokens: max_tokens.context("max_tokens must be a whole number from 1")?,
        temperature: temperature
            .filter(|degree| (0.0..=2.0).contains(degree))
            .context("temperature must be a number from 0 to 2")?,
    })
}

impl ToolServer for ModelEndpoint {
    const NAME: &'static str = "colibri-model";

    fn list(&self) -> Value {
        let text = |most: usize, about: &str| json!({ "type": "string", "minLength": 1, "maxLength": most, "description": about });
        let number = |about: &str| json!({ "type": "integer", "minimum": 0, "description": about });
        json!([{
            "name": "complete",
            "title": "Ask the model",
            "description": "Sends one text to a language model and returns its answer, with the tokens that it cost.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "task_id": text(MAX_NAME, "What it is for: a task of the board, or any other name"),
                    "context": text(1_000_000, "All that the model is told"),
                    "max_tokens": { "type": "integer", "minimum": 1, "description": "Tokens that it may write at most" },
                    "temperature": { "type": "number", "minimum": 0, "maximum": 2 },
                    "model": text(MAX_NAME, "The model's name, as its provider has it"),
                },
                "required": ["task_id", "context", "max_tokens", "temperature", "model"],
                "additionalProperties": false,
            },
            "outputSchema": output_schema(
                json!({
                    "tokens_in": number("Tokens that the model read"),
                    "tokens_out": number("Tokens that it wrote, thoughts among them"),
                    "tokens_cached": number("Those of tokens_in that came from the provider's cache"),
                    "tokens_cache_write": number("Those of tokens_in that went to the provider's cache"),
                    "model_used": { "type": "string" },
                    "stop_reason": { "type": "string", "description": "Why it stopped, in the provider's word" },
                    "completion": { "type": "string", "description": "What it answered" },
                }),
                &[
                    "tokens_in",
                    "tokens_out",
                    "tokens_cached",
                    "tokens_cache_write",
                    "model_used",
                    "stop_reason",
                    "completion",
                ],
            ),
            "annotations": { "readOnlyHint": true, "destructiveHint": false, "idempotentHint": false, "openWorldHint": true },
        }])
    }

    async fn call(&self, name: &str, arguments: &Value) -> Option<Value> {
        if name != "complete" {
            return None;
        }
        let completion = |said: &Value| said["completion"].as_str().unwrap_or_default().to_owned();
        Some(result(self.complete(arguments).await, completion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_http::{BoxFuture, Dial, Io};
    use tokio::io::{DuplexStream, duplex};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::time::Instant;

    /// Connections to somebody who never says a word.
    struct Mute(UnboundedSender<DuplexStream>);

    impl Dial for Mute {
        fn dial<'a>(&'a self, _: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
            let (ours, theirs) = duplex(1 << 16);
            let _ = self.0.send(theirs);
            Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
        }
    }

    fn connected(client: HttpClient) -> ModelConnection {
        ModelConnection {
            api: Api::Chat,
            url: "http://h".to_owned(),
            fields: Vec::new(),
            has_key: false,
            masked: None,
            reasons: vec!["slow".to_owned()],
            client,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_says_nothing_is_given_up_in_its_time_and_may_be_asked_again() {
        let (sender, _open) = unbounded_channel();
        let model = ModelEndpoint {
            connected: Some(connected(HttpClient::over(Mute(sender)))),
        };
        for (name, seconds) in [("m", 60), ("slow", 120)] {
            let began = Instant::now();
            let asked = json!({ "task_id": "7", "context": "x", "max_tokens": 9, "temperature": 0, "model": name });
            let failed = model.complete(&asked).await.unwrap_err();
            assert_eq!(
                (failed.code, failed.transient),
                ("MODEL_TIMEOUT", true),
                "{}",
                failed.message
            );
            assert!(
                failed.message.contains(&format!("{seconds} s")),
                "{}",
                failed.message
            );
            assert_eq!(began.elapsed().as_secs(), seconds);
        }
    }

    #[test]
    fn what_was_never_sent_is_sent_again_and_a_model_that_is_not_there_is_not_connected() {
        let connected = connected(HttpClient::new(ConnectionRules::default()));
        let host = || "h".to_owned();
        let unsent = connected.failed(HttpError::Unsent { host: host() }, PATIENCE);
        assert_eq!((unsent.code, unsent.transient), ("MODEL_FAILED", true));
        let why = "refused".to_owned();
        let none = connected.failed(HttpError::Connect { host: host(), why }, PATIENCE);
        assert_eq!(
            (none.code, none.transient),
            ("INTEGRATION_UNAVAILABLE", true)
        );
        assert!(
            none.message.ends_with("; model not connected"),
            "{}",
            none.message
        );
    }
}
