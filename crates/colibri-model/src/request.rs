//! A request from inside, judged: what of it goes on.

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use super::api::{BETAS, ModelRequestKind, Parameter, REQUEST_FIELDS, fits, parameters, routes};
use super::body::judge;
use super::grammar::grammar;
use super::names::{judge_model, model_label};
use super::refusal::ModelRefusal;
use super::usage::TokenCounts;
use super::walk::BodyFacts;
use crate::rules::{ModelApi, ModelPermissions, RequestRules};

/// The most tokens that a provider adds of its own: its words about tools.
const ADDED_TOKENS: u64 = 4096;
/// The most bytes of a name in a path, or of a parameter.
const MAX_NAME: usize = 256;

/// A request that was read whole.
#[derive(Debug)]
pub struct ModelRequest {
    /// The method, as it was sent.
    pub method: String,
    /// Path and query, as they were sent.
    pub target: String,
    /// Header fields, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The whole body.
    pub body: Bytes,
}

impl ModelRequest {
    /// The value of the first field of this name, which is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A request that may go out.
#[derive(Debug)]
pub struct OutgoingRequest {
    /// The method.
    pub method: Method,
    /// The purpose.
    pub asks: ModelRequestKind,
    /// Path and query.
    pub target: String,
    /// The agent's fields that go on.
    pub headers: HeaderMap,
    /// The body, with what counts tokens added.
    pub body: Bytes,
    /// The model that is asked, as a label; empty: none is.
    pub model: String,
    /// The most that it may cost.
    pub cost: TokenCounts,
}

/// Reads the body of a request, as the relay does.
///
/// # Errors
/// Why it is refused.
pub fn read_body(
    api: ModelApi,
    asks: ModelRequestKind,
    permits: &ModelPermissions,
    body: &[u8],
) -> Result<BodyFacts, ModelRefusal> {
    judge(api, asks, permits, body)
}

/// Judges a request of an agent.
///
/// # Errors
/// Why it is refused.
pub fn judge_request(
    rules: &RequestRules,
    request: ModelRequest,
) -> Result<OutgoingRequest, ModelRefusal> {
    let host = request.field("host").unwrap_or_default();
    if !is_here(host) {
        return Err(forbidden(
            "the Host must be localhost or 127.0.0.1: this relay leads to one model and to nothing else",
        ));
    }
    let (path, query) = match request.target.split_once('?') {
        Some((path, query)) => (path, query),
        None => (request.target.as_str(), ""),
    };
    if !path.starts_with('/') {
        return Err(forbidden(
            "the target must be a path: this relay leads to one model and to no other host",
        ));
    }
    let (method, asks, name) = route(rules, &request.method, path)?;
    if let (ModelRequestKind::Generate | ModelRequestKind::Count, Some(name)) = (asks, name) {
        judge_model(name, &rules.permits).map_err(|why| forbidden(&why))?;
    }
    let query = passed_query(rules.api, query)?;
    let mut body = request.body.clone();
    let (mut cost, mut model_asked) = (TokenCounts::default(), name.map(model_label));
    if method == Method::POST {
        let kind = request.field("content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let why = "the body must be JSON: say Content-Type: application/json";
            return Err(ModelRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let facts = judge(rules.api, asks, &rules.permits, &body)?;
        if asks == ModelRequestKind::Generate {
            cost = TokenCounts {
                read: most_read(rules, &facts, body.len() as u64),
                written: most_written(rules, &facts),
                ..TokenCounts::default()
            };
        }
        model_asked = model_asked.or(facts.model.clone());
        body = spliced(&body, facts);
    } else if !body.is_empty() {
        return Err(ModelRefusal::new(
            StatusCode::BAD_REQUEST,
            "a GET has no body",
        ));
    }
    let headers = passed_headers(rules, &request);
    Ok(OutgoingRequest {
        method,
        asks,
        target: format!("{path}{query}"),
        headers,
        body,
        model: model_asked.unwrap_or_default(),
        cost,
    })
}

/// The most tokens that a body of so many bytes is to the model, which reads no more than its
/// context. No tokenizer makes more tokens of a text than it has bytes; pictures have a most of
/// their own; of a document a few bytes may be many pages.
fn most_read(rules: &RequestRules, facts: &BodyFacts, bytes: u64) -> u64 {
    if facts.has_documents {
        return rules.context_tokens;
    }
    let pictures = facts
        .pictures
        .saturating_mul(grammar(rules.api).picture_tokens);
    let text = bytes.saturating_sub(facts.inline);
    text.saturating_add(pictures)
        .saturating_add(ADDED_TOKENS)
        .min(rules.context_tokens)
}

/// The most tokens that the model writes in answer to a body.
fn most_written(rules: &RequestRules, facts: &BodyFacts) -> u64 {
    let one = facts.maximum.unwrap_or(rules.max_tokens_default);
    one.saturating_mul(facts.copies.max(1))
}

/// True if a `Host` names this machine: what the forwarder inside listens on.
fn is_here(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, "1"),
    };
    let is_name = ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|here| here.eq_ignore_ascii_case(name));
    is_name && !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit())
}

/// The method and the kind of a request, and the name in its path.
fn route<'p>(
    rules: &RequestRules,
    method: &str,
    path: &'p str,
) -> Result<(Method, ModelRequestKind, Option<&'p str>), ModelRefusal> {
    let routes = routes(rules.api);
    let mut same_path = routes
        .iter()
        .filter_map(|(method, pattern, asks)| Some((method, asks, matched(pattern, path)?)))
        .peekable();
    let api = rules.api.name();
    if same_path.peek().is_none() {
        let why = format!("this path is none of those of {api} that are passed on");
        return Err(ModelRefusal::new(StatusCode::NOT_FOUND, why));
    }
    let Some((method, asks, name)) = same_path.find(|(is, _, _)| is.as_str() == method) else {
        let why = format!("this method is none of those of {api} that are passed on for this path");
        return Err(ModelRefusal::new(StatusCode::METHOD_NOT_ALLOWED, why));
    };
    Ok((method.clone(), *asks, name))
}

/// The name in a path that is the pattern, where that has one: `{}`. `None`: the path is another
/// one.
fn matched<'p>(pattern: &str, path: &'p str) -> Option<Option<&'p str>> {
    let Some((before, after)) = pattern.split_once("{}") else {
        return (pattern == path).then_some(None);
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (is_word(name, b"-._@") && !name.starts_with('.')).then_some(Some(name))
}

fn is_word(text: &str, more: &[u8]) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_part)
}

/// The query as it goes on, with its question mark.
fn passed_query(api: ModelApi, query: &str) -> Result<String, ModelRefusal> {
    let known = parameters(api);
    let (mut passed, mut seen) = (String::new(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some((known, takes)) = known.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let why = format!("the query has a parameter other than {}", names.join(", "));
            return Err(forbidden(&why));
        };
        let is_right = match takes {
            Parameter::LeftOut => continue,
            Parameter::OneOf(values) => values.contains(&value),
            Parameter::Word => is_word(value, b"-._~=%"),
        };
        if !is_right || seen.contains(known) {
            let why = format!(
                "the parameter {known} has a value that is not passed on, or is there twice"
            );
            return Err(forbidden(&why));
        }
        seen.push(*known);
        passed.push(if passed.is_empty() { '?' } else { '&' });
        passed.push_str(pair);
    }
    Ok(passed)
}

/// The header fields that go on.
fn passed_headers(rules: &RequestRules, request: &ModelRequest) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.fields {
        let value = match name.as_str() {
            "anthropic-beta" | "openai-beta" => allowed_betas(name, value, &rules.permits),
            _ => value.clone(),
        };
        if value.is_empty() || !REQUEST_FIELDS.contains(&name.as_str()) {
            continue;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    headers
}

/// The betas of a header field that go on.
fn allowed_betas(field: &str, value: &str, permits: &ModelPermissions) -> String {
    let is_allowed = |beta: &&str| {
        let mut known = BETAS.iter().filter(|(of, _, _)| *of == field);
        permits.betas.iter().any(|pattern| fits(pattern, beta))
            || known.any(|(_, patterns, needed)| {
                needed.is_none_or(|needed| permits.allow.contains(&needed))
                    && patterns.iter().any(|pattern| fits(pattern, beta))
            })
    };
    let betas: Vec<&str> = value.split(',').map(str::trim).filter(is_allowed).collect();
    betas.join(",")
}

fn spliced(body: &Bytes, facts: BodyFacts) -> Bytes {
    if facts.splices.is_empty() {
        return body.clone();
    }
    let mut splices = facts.splices;
    splices.sort_by_key(|(range, _)| range.start);
    let (mut out, mut done) = (Vec::with_capacity(body.len() + 64), 0);
    for (range, text) in splices {
        out.extend_from_slice(&body[done..range.start]);
        out.extend_from_slice(text.as_bytes());
        done = range.end;
    }
    out.extend_from_slice(&body[done..]);
    out.into()
}

fn forbidden(why: &str) -> ModelRefusal {
    ModelRefusal::new(StatusCode::FORBIDDEN, why)
}
