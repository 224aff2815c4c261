//! Input that a server requests from the client's side before it answers. A modern server sends an
//! `input_required` result, and the client retries (2026-07-28, basic/patterns/mrtr). A legacy
//! server sends requests of its own (client/*).
//!
//! These requests are hostile input: their number and size are limited, and only MCP's kinds of
//! input are accepted.

use std::borrow::Cow;

use super::answer::{META_SERVER, META_SERVER_INFO, server_info};
use super::elicitation_kind::ElicitationKind;
use super::error::{Code, Failure};
use super::members::{Change, rewrite};
use super::rpc_error::RpcError;
use super::version::Version;
use colibri_text::{brief, visible_lines};
use colibri_wire::json::{JsonKind, string};
use colibri_wire::{Edits, Json};

/// The most inputs that a server may request at once.
pub const REQUESTS_LIMIT: usize = 64;
/// The longest key of an input request, in bytes.
pub(crate) const KEY_LIMIT: usize = 256;
/// The longest `requestState` of a server, in bytes.
pub(crate) const STATE_LIMIT: usize = 256 * 1024;
/// The longest `requestState` of a retry, in bytes: a server's, wrapped.
pub(crate) const WRAPPED_LIMIT: usize = 512 * 1024;

/// One input that a server requests.
#[derive(Debug, Clone, Copy)]
pub struct InputRequest<'a> {
    /// The server's key for this input: a string as written. The keys of one result are distinct.
    pub key: Json<'a>,
    /// The kind of input.
    pub ask: ElicitationKind,
    /// The request's `params`, an object.
    pub params: Option<Json<'a>>,
}

/// An `input_required` result.
#[derive(Debug, Clone)]
pub struct InputRequired<'a> {
    /// The requested inputs, in the server's order. May be empty.
    pub requests: Vec<InputRequest<'a>>,
    /// The state that the retry must carry back to the server: a string, as written.
    pub state: Option<Json<'a>>,
}

/// Reads an `input_required` result.
///
/// # Errors
/// [`Code::ServerAnswerInvalid`] with the reason for which it is invalid.
pub fn read_input_required(result: Json<'_>) -> Result<InputRequired<'_>, Failure> {
    if let Some(key) = result.ambiguous(&["resultType", "inputRequests", "requestState"]) {
        return Err(invalid(&format!(
            "two of its members can be read as \"{key}\""
        )));
    }
    let state = result.get("requestState");
    if let Some(state) = state {
        // A value that no `str` can hold could not be handed back unchanged.
        if state.as_str().is_none() {
            return Err(invalid("requestState is no string"));
        }
        if state.text().len() > STATE_LIMIT {
            let message = format!(
                "requestState has {} bytes, the limit is {STATE_LIMIT}",
                state.text().len()
            );
            return Err(invalid(&message));
        }
    }
    let requests = match result.get("inputRequests") {
        Some(requests) => read_input_requests(requests)?,
        None => Vec::new(),
    };
    if state.is_none() && result.get("inputRequests").is_none() {
        return Err(invalid("neither inputRequests nor requestState is there"));
    }
    Ok(InputRequired { requests, state })
}

/// Reads `inputRequests` of a result or of a task.
///
/// # Errors
/// [`Code::ServerAnswerInvalid`] with the reason for which they are invalid.
pub fn read_input_requests(requests: Json<'_>) -> Result<Vec<InputRequest<'_>>, Failure> {
    if !requests.is_object() {
        return Err(invalid("inputRequests is no object"));
    }
    let mut read: Vec<InputRequest<'_>> = Vec::new();
    for member in requests.members() {
        if read.len() >= REQUESTS_LIMIT {
            return Err(invalid(&format!(
                "inputRequests has over {REQUESTS_LIMIT} members"
            )));
        }
        let Some(key) = member.key.as_str().filter(|key| key.len() <= KEY_LIMIT) else {
            return Err(invalid(&format!(
                "a key of inputRequests is no text, or over {KEY_LIMIT} bytes long"
            )));
        };
        if read.iter().any(|request| request.key.is_string(&key)) {
            return Err(invalid("inputRequests has the same key twice"));
        }
        let request = member.value;
        let method = request.get("method").and_then(|method| method.as_str());
        let params = request.get("params");
        if params.is_some_and(|params| !params.is_object())
            || request.ambiguous(&["method", "params"]).is_some()
        {
            return Err(invalid("a member of inputRequests is no request"));
        }
        let ask = method.and_then(|method| ElicitationKind::read(&method, params));
        let Some(ask) = ask.filter(|ask| params.is_some() || *ask == ElicitationKind::Roots) else {
            return Err(invalid(
                "a member of inputRequests asks for something that MCP does not have",
            ));
        };
        read.push(InputRequest {
            key: member.key,
            ask,
            params,
        });
    }
    Ok(read)
}

fn invalid(what: &str) -> Failure {
    let message = format!("the server's answer says input_required, and {what}");
    Failure::new(Code::ServerAnswerInvalid, message)
}

/// One input that the daemon requests from a modern client.
#[derive(Debug, Clone, Copy)]
pub struct InputQuestion<'a> {
    /// The key in `inputRequests`.
    pub key: &'a str,
    /// The request's method.
    pub method: &'a str,
    /// The request's `params`, as JSON.
    pub params: Option<&'a str>,
}

/// A result of the daemon that requests input from a client of this modern version. `server` is the
/// server that needs the input, `state` the state that the retry must carry.
pub fn input_required_result(
    version: Version,
    server: &str,
    questions: &[InputQuestion<'_>],
    state: &str,
) -> Vec<u8> {
    let mut requests = String::new();
    for question in questions {
        let comma = if requests.is_empty() { "" } else { "," };
        let params = question
            .params
            .map(|params| format!(",\"params\":{params}"))
            .unwrap_or_default();
        requests.push_str(&format!(
            "{comma}{}:{{\"method\":{}{params}}}",
            string(question.key),
            string(question.method)
        ));
    }
    format!(
        "{{\"resultType\":\"input_required\",\"inputRequests\":{{{requests}}},\"requestState\":{},\
         \"_meta\":{{\"{META_SERVER}\":{},\"{META_SERVER_INFO}\":{}}}}}",
        string(state),
        string(server),
        server_info(version)
    )
    .into_bytes()
}

/// The `params` of the daemon's own `elicitation/create`: the person is to confirm the call of a
/// tool, for this reason. `arguments` is the text of the arguments that the person sees.
pub fn confirmation(server: &str, tool: &str, reason: &str, arguments: &str) -> String {
    let message = format!(
        "[{server}] Allow this call of {}?\nIt waits: {}\n{}",
        brief(tool, 200),
        brief(reason, 1000),
        visible_lines(arguments)
    );
    format!(
        "{{\"mode\":\"form\",\"message\":{},\"requestedSchema\":{{\"type\":\"object\",\"properties\":{{}}}},\
         \"_meta\":{{\"{META_SERVER}\":{}}}}}",
        string(&message),
        string(server)
    )
}

/// The edits to a server's `input_required` on its way to a modern client: `requestState` becomes
/// the daemon's. The input requests stay as written.
pub fn wrapped_state_edits(result: Json<'_>, state: &str) -> Edits {
    let mut edits = Edits::new();
    let insert = match result.get("requestState") {
        Some(_) => String::new(),
        None => format!("\"requestState\":{}", string(state)),
    };
    rewrite(&mut edits, result, &insert, |member, _| {
        if member.key.is_string("requestState") {
            Change::Replace(string(state))
        } else {
            Change::Keep
        }
    });
    edits
}

/// The members of a modern client's request that make it a retry.
#[derive(Debug, Clone)]
pub struct RetryInput<'a> {
    /// `requestState`
    pub state: Cow<'a, str>,
    /// `inputResponses`, an object of objects.
    pub responses: Option<Json<'a>>,
}

impl<'a> RetryInput<'a> {
    /// The client's response under a key.
    pub fn response(&self, key: &str) -> Option<Json<'a>> {
        self.responses?.get(key)
    }
}

/// Reads `requestState` and `inputResponses` of a request's `params`, whose keys are not ambiguous.
/// `None` if the request has no state and so is no retry.
///
/// # Errors
/// -32602 if one of them has a wrong type or length.
pub fn read_retry<'a>(
    state: Option<Json<'a>>,
    responses: Option<Json<'a>>,
) -> Result<Option<RetryInput<'a>>, RpcError> {
    if let Some(responses) = responses {
        if !responses.is_object() {
            return Err(RpcError::invalid_params(
                "params.inputResponses must be an object",
            ));
        }
        let mut keys: Vec<Cow<'_, str>> = Vec::new();
        for member in responses.members() {
            if keys.len() >= REQUESTS_LIMIT {
                let message =
                    format!("params.inputResponses must have at most {REQUESTS_LIMIT} members");
                return Err(RpcError::invalid_params(message));
            }
            let key = member.key.as_str().filter(|key| !keys.contains(key));
            match key {
                Some(key) if member.value.is_object() => keys.push(key),
                _ => {
                    let message = "params.inputResponses must hold an object under each key, and no key twice";
                    return Err(RpcError::invalid_params(message));
                }
            }
        }
    }
    let Some(state) = state.filter(|state| state.kind() != JsonKind::Null) else {
        return Ok(None);
    };
    match state.as_str() {
        Some(_) if state.text().len() > WRAPPED_LIMIT => Err(RpcError::invalid_params(format!(
            "params.requestState must have at most {WRAPPED_LIMIT} bytes"
        ))),
        Some(state) => Ok(Some(RetryInput { state, responses })),
        None => Err(RpcError::invalid_params(
            "params.requestState must be a string",
        )),
    }
}

/// The members of a retry on its way to a server: JSON as it is written there. Empty if the request
/// is no retry.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetryWith<'a> {
    /// `requestState`
    pub state: Option<&'a str>,
    /// `inputResponses`
    pub responses: Option<&'a str>,
}

/// The edits to the `params` of a request that make it a retry, or that remove the members of a
/// retry. They are applied together with those of [`super::params_edits`], which touch other
/// places. `params` also has the name of the called tool.
pub fn retry_edits(params: Json<'_>, with: RetryWith<'_>) -> Edits {
    let mut edits = Edits::new();
    let wanted = [
        ("requestState", with.state),
        ("inputResponses", with.responses),
    ];
    let mut insert = Vec::new();
    for (key, value) in wanted {
        if let Some(value) = value.filter(|_| params.get(key).is_none()) {
            insert.push(format!("\"{key}\":{value}"));
        }
    }
    rewrite(
        &mut edits,
        params,
        &insert.join(","),
        |member, _| match wanted.iter().find(|(key, _)| member.key.is_string(key)) {
            Some((_, Some(value))) if member.value.text() == *value => Change::Keep,
            Some((_, Some(value))) => Change::Replace((*value).to_owned()),
            Some((_, None)) => Change::Remove,
            None => Change::Keep,
        },
    );
    edits
}

#[cfg(test)]
mod tests {
    use super::super::rewrites::is_input_required;
    use super::super::rpc_error::INVALID_PARAMS;
    use super::*;
    use crate::read_in_tests::{apply, json};
    use proptest::prelude::*;

    #[test]
    fn what_a_server_asks_for_is_read_in_its_order() {
        let text = r#"{"resultType":"input_required","inputRequests":{"b":{"method":"roots/list"},
            "\u0061":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{}}}},"requestState":"s\n"}"#;
        let read = read_input_required(json(text)).unwrap();
        let asked: Vec<_> = read
            .requests
            .iter()
            .map(|request| (request.key.as_str().unwrap().into_owned(), request.ask))
            .collect();
        assert_eq!(
            asked,
            [
                ("b".to_owned(), ElicitationKind::Roots),
                ("a".to_owned(), ElicitationKind::Form)
            ]
        );
        assert_eq!(read.state.unwrap().text(), r#""s\n""#);
        let only_state = read_input_required(json(r#"{"requestState":"s"}"#)).unwrap();
        assert!(only_state.requests.is_empty());
        assert!(
            is_input_required(json(text))
                && !is_input_required(json(r#"{"resultType":"complete"}"#))
        );
    }

    #[test]
    fn hostile_input_requests_are_refused() {
        let one = r#"{"method":"roots/list"}"#;
        let many = |count: usize| {
            let members: Vec<_> = (0..count)
                .map(|index| format!("\"{index}\":{one}"))
                .collect();
            format!(r#"{{"inputRequests":{{{}}}}}"#, members.join(","))
        };
        assert!(read_input_required(json(&many(REQUESTS_LIMIT))).is_ok());
        let long = "x".repeat(STATE_LIMIT);
        for text in [
            "{}".to_owned(),
            r#"{"inputRequests":null}"#.to_owned(),
            r#"{"inputRequests":[]}"#.to_owned(),
            r#"{"requestState":7}"#.to_owned(),
            r#"{"requestState":"\ud800"}"#.to_owned(),
            format!(r#"{{"requestState":"{long}"}}"#),
            r#"{"requestState":"a","requestState":"b"}"#.to_owned(),
            r#"{"requestState":"a","REQUESTSTATE":"b"}"#.to_owned(),
            r#"{"inputRequests":{"a":{}}}"#.to_owned(),
            r#"{"inputRequests":{"a":"roots/list"}}"#.to_owned(),
            r#"{"inputRequests":{"a":{"method":"tools/call","params":{}}}}"#.to_owned(),
            r#"{"inputRequests":{"a":{"method":"elicitation/create"}}}"#.to_owned(),
            r#"{"inputRequests":{"a":{"method":"roots/list","params":[]}}}"#.to_owned(),
            r#"{"inputRequests":{"a":{"method":"roots/list","METHOD":"x"}}}"#.to_owned(),
            format!(r#"{{"inputRequests":{{"a":{one},"\u0061":{one}}}}}"#),
            format!(r#"{{"inputRequests":{{"\ud800":{one}}}}}"#),
            format!(
                r#"{{"inputRequests":{{"{}":{one}}}}}"#,
                "k".repeat(KEY_LIMIT + 1)
            ),
            many(REQUESTS_LIMIT + 1),
        ] {
            let refused = read_input_required(json(&text)).unwrap_err();
            assert_eq!(refused.code, Code::ServerAnswerInvalid, "{text}");
        }
    }

    #[test]
    fn a_question_of_ours_reads_back() {
        let questions = [
            InputQuestion {
                key: "a\"",
                method: "elicitation/create",
                params: Some(r#"{"message":"m" ,"requestedSchema":{}}"#),
            },
            InputQuestion {
                key: "b",
                method: "roots/list",
                params: None,
            },
        ];
        let result = input_required_result(Version::LATEST, "s", &questions, "state");
        let result = String::from_utf8(result).unwrap();
        let read = read_input_required(json(&result)).unwrap();
        assert!(is_input_required(json(&result)));
        assert_eq!(read.state.unwrap().as_str().unwrap(), "state");
        assert_eq!(
            read.requests[0].params.unwrap().text(),
            questions[0].params.unwrap()
        );
        assert_eq!(read.requests[1].ask, ElicitationKind::Roots);
        assert!(read.requests[0].key.is_string("a\""));
    }

    #[test]
    fn request_state_towards_modern_clients_is_ours() {
        for (text, expected) in [
            (
                r#"{"requestState": "x" ,"inputRequests":{"a" : {"method":"roots/list"}}}"#,
                r#"{"requestState": "ours" ,"inputRequests":{"a" : {"method":"roots/list"}}}"#,
            ),
            (
                r#"{ "inputRequests":{"requestState":1}}"#,
                r#"{"requestState":"ours", "inputRequests":{"requestState":1}}"#,
            ),
        ] {
            assert_eq!(
                apply(text, &wrapped_state_edits(json(text), "ours")),
                expected
            );
        }
    }

    #[test]
    fn a_retry_says_its_state_and_what_was_answered() {
        let read = |text: &str| {
            let params = Json::parse(text.as_bytes()).unwrap();
            read_retry(params.get("requestState"), params.get("inputResponses"))
                .map(|retry| {
                    retry.map(|retry| (retry.state.into_owned(), retry.responses.is_some()))
                })
                .map_err(|error| error.code)
        };
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"inputResponses":{"a":{}}}"#), Ok(None));
        assert_eq!(read(r#"{"requestState":null}"#), Ok(None));
        assert_eq!(
            read(r#"{"requestState":"\u0061"}"#),
            Ok(Some(("a".to_owned(), false)))
        );
        assert_eq!(
            read(r#"{"requestState":"a","inputResponses":{"k":{"action":"accept"}}}"#),
            Ok(Some(("a".to_owned(), true)))
        );
        let many: Vec<_> = (0..=REQUESTS_LIMIT)
            .map(|index| format!("\"{index}\":{{}}"))
            .collect();
        let long = "x".repeat(WRAPPED_LIMIT);
        for text in [
            r#"{"requestState":7}"#.to_owned(),
            r#"{"requestState":"\ud800"}"#.to_owned(),
            format!(r#"{{"requestState":"{long}"}}"#),
            r#"{"requestState":"a","inputResponses":[]}"#.to_owned(),
            r#"{"requestState":"a","inputResponses":{"k":"accept"}}"#.to_owned(),
            r#"{"requestState":"a","inputResponses":{"k":{},"\u006b":{}}}"#.to_owned(),
            format!(
                r#"{{"requestState":"a","inputResponses":{{{}}}}}"#,
                many.join(",")
            ),
        ] {
            assert_eq!(read(&text), Err(INVALID_PARAMS), "{text}");
        }
    }

    #[test]
    fn a_retry_carries_what_its_server_wrote_and_what_was_answered() {
        let with = RetryWith {
            state: Some(r#""s\n""#),
            responses: Some(r#"{"a":{}}"#),
        };
        for (text, with, expected) in [
            (
                r#"{"name":"n"}"#,
                with,
                r#"{"requestState":"s\n","inputResponses":{"a":{}},"name":"n"}"#,
            ),
            (
                r#"{"name":"n","requestState":"ours" ,"inputResponses":{"a":{}}}"#,
                with,
                r#"{"name":"n","requestState":"s\n" ,"inputResponses":{"a":{}}}"#,
            ),
            (
                r#"{"requestState":"ours", "name":"n","inputResponses":{"a":{}}}"#,
                RetryWith::default(),
                r#"{"name":"n"}"#,
            ),
            (
                r#"{"name":"n","requestState":"ours","inputResponses":{"a":{}}}"#,
                RetryWith {
                    state: None,
                    responses: Some(r#"{"a":{}}"#),
                },
                r#"{"name":"n","inputResponses":{"a":{}}}"#,
            ),
        ] {
            assert_eq!(apply(text, &retry_edits(json(text), with)), expected);
        }
    }

    proptest! {
        #[test]
        fn whatever_a_server_answers_is_read_or_refused(
            keys in proptest::collection::vec(".{0,3}", 0..6),
            values in proptest::collection::vec(proptest::sample::select(vec![
                "{}", "7", r#"{"method":"roots/list"}"#, r#"{"method":"elicitation/create","params":{"mode":"url"}}"#,
            ]), 0..6),
            state in proptest::option::of(".{0,8}"),
        ) {
            let members: Vec<_> = keys.iter().zip(&values).map(|(key, value)| format!("{}:{value}", string(key))).collect();
            let state = state.map(|state| format!(",\"requestState\":{}", string(&state))).unwrap_or_default();
            let text = format!("{{\"inputRequests\":{{{}}}{state}}}", members.join(","));
            if let Ok(read) = read_input_required(json(&text)) {
                prop_assert_eq!(read.requests.len(), members.len());
                let wrapped = apply(&text, &wrapped_state_edits(json(&text), "ours"));
                let again = read_input_required(json(&wrapped)).unwrap();
                prop_assert_eq!(again.state.unwrap().text(), "\"ours\"");
                for (one, other) in read.requests.iter().zip(&again.requests) {
                    prop_assert_eq!(one.key.text(), other.key.text());
                    prop_assert_eq!(one.params.map(|params| params.text()), other.params.map(|params| params.text()));
                }
            }
        }
    }
}
