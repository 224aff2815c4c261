//! Spans from records: of calls, model requests, agents' runs and tasks, as OpenTelemetry's
//! conventions for MCP and GenAI name them (open-telemetry/semantic-conventions-genai).
//!
//! Ids are made from the trail's name and the record's number, so that a span that is exported
//! twice is the same one. Attributes are names and numbers of the record alone: no arguments,
//! results, reasons, or texts of clients.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value as OtlpValue};
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use colibri_trail::{RecordView, Verifier};

/// Spans that are open at a time, of each kind. The oldest are given up.
const MAX_OPEN: usize = 100_000;

/// An attribute's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum AttributeValue {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(number.try_into().unwrap_or(i64::MAX))
    }
}

/// An attribute as OTLP has it.
pub(super) fn attribute(key: &str, value: impl Into<AttributeValue>) -> KeyValue {
    let value = match value.into() {
        AttributeValue::Number(number) => OtlpValue::IntValue(number),
        AttributeValue::Text(text) => OtlpValue::StringValue(text),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// The place of a span: its trace, and its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SpanPlace {
    trace: [u8; 16],
    span: [u8; 8],
}

impl SpanPlace {
    /// The place that a thing of the trail has in a trace of its own.
    fn of(trail: &str, kind: &str, key: &str) -> Self {
        let digest = Sha256::digest(format!("{trail}\n{kind}\n{key}"));
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&digest[..16]);
        span.copy_from_slice(&digest[16..24]);
        Self { trace, span }
    }

    /// The parent that a `traceparent` names (W3C Trace Context, version 00).
    fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-').skip(1);
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        let is_read = colibri_text::unhex_into(parts.next()?.as_bytes(), &mut trace)
            && colibri_text::unhex_into(parts.next()?.as_bytes(), &mut span);
        (is_read && trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span })
    }
}

/// A span that has begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OpenSpan {
    place: SpanPlace,
    parent: Option<[u8; 8]>,
    link: Option<SpanPlace>,
    name: String,
    kind: i32,
    /// Nanoseconds since 1970.
    start: u64,
    attributes: Vec<(String, AttributeValue)>,
    /// Failed attempts: when, and why.
    retries: Vec<(u64, String)>,
}

impl OpenSpan {
    fn add(&mut self, key: &str, value: impl Into<AttributeValue>) {
        self.attributes.push((key.to_owned(), value.into()));
    }

    /// Puts it below another one.
    fn below(&mut self, parent: &SpanPlace) {
        self.place.trace = parent.trace;
        self.parent = Some(parent.span);
    }

    fn end(self, end: u64, failed: Option<&str>) -> Span {
        let mut attributes: Vec<_> = self
            .attributes
            .into_iter()
            .map(|(key, value)| attribute(&key, value))
            .collect();
        attributes.extend(failed.map(|code| attribute("error.type", code)));
        let events = self.retries.into_iter().map(|(time, code)| Event {
            time_unix_nano: time,
            name: "colibri.retry".to_owned(),
            attributes: vec![attribute("error.type", code.as_str())],
            ..Event::default()
        });
        let links = self.link.map(|place| Link {
            trace_id: place.trace.to_vec(),
            span_id: place.span.to_vec(),
            ..Link::default()
        });
        Span {
            trace_id: self.place.trace.to_vec(),
            span_id: self.place.span.to_vec(),
            parent_span_id: self.parent.map(Vec::from).unwrap_or_default(),
            name: self.name,
            kind: self.kind,
            start_time_unix_nano: self.start,
            // Clocks are set: a span never ends before it begins.
            end_time_unix_nano: end.max(self.start),
            attributes,
            events: events.collect(),
            links: links.into_iter().collect(),
            status: Some(Status {
                code: match failed {
                    Some(_) => StatusCode::Error,
                    None => StatusCode::Unset,
                } as i32,
                message: String::new(),
            }),
            ..Span::default()
        }
    }
}

/// The fields of records that spans are made of.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EnterFields {
    continues: Option<u64>,
    method: String,
    server: Option<String>,
    tool: Option<String>,
    name: Option<String>,
    version: String,
    uid: Option<u64>,
    traceparent: Option<String>,
    session: Option<String>,
    task: Option<u64>,
    within: Option<u64>,
}

/// Makes spans of records, in their order.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpanTracker {
    /// The number of the next record.
    pub(super) next: u64,
    calls: BTreeMap<u64, OpenSpan>,
    /// Requests to models, by agent's session and number.
    models: BTreeMap<String, OpenSpan>,
    runs: BTreeMap<String, OpenSpan>,
    tasks: BTreeMap<u64, OpenSpan>,
}

impl SpanTracker {
    /// Takes the next record, and adds the spans that it ends. Returns how many records before it
    /// are missing.
    pub(super) fn take(
        &mut self,
        trail: &Verifier,
        record: &RecordView<'_>,
        ended: &mut Vec<Span>,
    ) -> u64 {
        let missing = match self.next {
            0 => 0,
            next => record.n - next,
        };
        self.next = record.n + 1;
        let time = nanoseconds(&record.fields.timestamp);
        match record.kind.as_str() {
            "enter" => self.enter(trail.name(), record, time),
            "retry" => {
                let call = record
                    .fields
                    .enter
                    .and_then(|enter| self.calls.get_mut(&enter));
                if let (Some(call), Some(code)) = (call, &record.fields.error_code) {
                    call.retries.push((time, code.clone()));
                }
            }
            "exit" => {
                if let Some(mut call) = record
                    .fields
                    .enter
                    .and_then(|enter| self.calls.remove(&enter))
                {
                    let code = record.fields.error_code.as_deref();
                    if let Some(number) = code.filter(|code| code.parse::<i64>().is_ok()) {
                        call.add("rpc.response.status_code", number);
                    }
                    // The conventions' word for a result that says so itself.
                    let code = code.map(|code| {
                        if code == "TOOL_ERROR" {
                            "tool_error"
                        } else {
                            code
                        }
                    });
                    ended.push(call.end(time, code));
                }
            }
            "event" => self.event(trail.name(), record, time, ended),
            _ => {}
        }
        missing
    }

    fn enter(&mut self, trail: &str, record: &RecordView<'_>, time: u64) {
        let Ok(fields) = serde_json::from_str::<EnterFields>(record.rec) else {
            return;
        };
        let before = fields
            .continues
            .and_then(|before| self.calls.remove(&before));
        let target = fields.tool.as_deref().filter(|tool| *tool != fields.method);
        let is_tool = fields.method == "tools/call";
        let is_prompt = fields.method == "prompts/get";
        let mut span = OpenSpan {
            place: SpanPlace::of(trail, "call", &record.n.to_string()),
            parent: None,
            link: None,
            name: match target.filter(|_| is_tool || is_prompt) {
                Some(target) => format!("{} {target}", fields.method),
                None => fields.method.clone(),
            },
            kind: SpanKind::Server as i32,
            start: before.map_or(time, |before| before.start),
            attributes: Vec::new(),
            retries: Vec::new(),
        };
        span.add("mcp.method.name", fields.method.as_str());
        span.add("mcp.protocol.version", fields.version.as_str());
        span.add("network.transport", "pipe");
        if is_tool {
            span.add("gen_ai.operation.name", "execute_tool");
        }
        if let Some(target) = target.filter(|_| is_tool) {
            span.add("gen_ai.tool.name", target);
        }
        if let Some(name) = fields.name.as_deref().filter(|_| is_prompt) {
            span.add("gen_ai.prompt.name", name);
        }
        if let Some(server) = &fields.server {
            span.add("colibri.server", server.as_str());
        }
        if let Some(uid) = fields.uid {
            span.add("user.id", uid.to_string().as_str());
        }
        if let Some(task) = fields.task {
            span.add("colibri.task", task);
        }
        span.add("colibri.trail.record", record.n);
        let remote = fields.traceparent.as_deref().and_then(SpanPlace::parse);
        let script = fields.within.and_then(|outer| self.calls.get(&outer));
        match (script, &fields.session, remote, fields.task) {
            (Some(script), ..) => span.below(&script.place),
            (None, Some(session), remote, _) => {
                span.below(&self.run(trail, session));
                span.link = remote;
            }
            (None, None, Some(remote), _) => span.below(&remote),
            (None, None, None, Some(task)) => {
                span.below(&SpanPlace::of(trail, "task", &task.to_string()))
            }
            (None, None, None, None) => {}
        }
        insert(&mut self.calls, record.n, span);
    }

    /// The place of an agent's run, of which the beginning may not have been seen.
    fn run(&self, trail: &str, session: &str) -> SpanPlace {
        match self.runs.get(session) {
            Some(run) => run.place.clone(),
            None => SpanPlace::of(trail, "run", session),
        }
    }

    fn event(&mut self, trail: &str, record: &RecordView<'_>, time: u64, ended: &mut Vec<Span>) {
        let details = &record.fields.details;
        let text = |key: &str| details.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| details.get(key).and_then(Value::as_u64).unwrap_or_default();
        let open = |place, name: String, kind: SpanKind| OpenSpan {
            place,
            parent: None,
            link: None,
            name,
            kind: kind as i32,
            start: time,
            attributes: vec![("colibri.trail.record".to_owned(), record.n.into())],
            retries: Vec::new(),
        };
        let session = text("session");
        match record.fields.event.as_str() {
            // The daemon that answered these calls is gone.
            "start" => {
                let lost = std::mem::take(&mut self.calls).into_values();
                let lost = lost.chain(std::mem::take(&mut self.models).into_values());
                ended.extend(lost.map(|span| span.end(time, Some("daemon_ended"))));
            }
            "agent-started" => {
                let mut span = open(
                    SpanPlace::of(trail, "run", session),
                    format!("invoke_agent {}", text("agent")),
                    SpanKind::Internal,
                );
                span.add("gen_ai.operation.name", "invoke_agent");
                span.add("gen_ai.agent.name", text("agent"));
                span.add("gen_ai.agent.id", session);
                span.add("user.id", number("for").to_string().as_str());
                if details.contains_key("task") {
                    span.add("colibri.task", number("task"));
                    span.below(&SpanPlace::of(trail, "task", &number("task").to_string()));
                }
                insert(&mut self.runs, session.to_owned(), span);
            }
            "agent-ended" => {
                if let Some(mut span) = self.runs.remove(session) {
                    span.add("gen_ai.usage.input_tokens", number("tokens_in"));
                    span.add("gen_ai.usage.output_tokens", number("tokens_out"));
                    let state = text("state");
                    ended.push(span.end(time, (state != "done").then_some(state)));
                }
            }
            "model-request" => {
                let key = format!("{session}:{}", number("n"));
                let model = text("model");
                let mut span = open(
                    SpanPlace::of(trail, "model", &key),
                    format!("chat {model}").trim_end().to_owned(),
                    SpanKind::Client,
                );
                span.add("gen_ai.operation.name", "chat");
                span.add("gen_ai.provider.name", text("api"));
                span.add("gen_ai.request.model", model);
                span.below(&self.run(trail, session));
                insert(&mut self.models, key, span);
            }
            "model-answer" => {
                if let Some(mut span) = self.models.remove(&format!("{session}:{}", number("n"))) {
                    span.add("gen_ai.usage.input_tokens", number("tokens_in"));
                    span.add("gen_ai.usage.output_tokens", number("tokens_out"));
                    span.add(
                        "gen_ai.usage.cache_read.input_tokens",
                        number("tokens_cached"),
                    );
                    span.add(
                        "gen_ai.usage.cache_creation.input_tokens",
                        number("tokens_cache_write"),
                    );
                    span.add("http.response.status_code", number("status"));
                    let status = number("status").to_string();
                    ended.push(span.end(time, (number("status") >= 400).then_some(&status)));
                }
            }
            "task" => {
                let (id, to) = (number("id"), text("to"));
                if details.contains_key("from") {
                    if let Some(mut span) = self.tasks.remove(&id) {
                        match to {
                            "done" | "failed" | "cancelled" => {
                                span.add("colibri.task.status", to);
                                ended.push(span.end(time, (to != "done").then_some(to)));
                            }
                            _ => insert(&mut self.tasks, id, span),
                        }
                    }
                } else {
                    let place = SpanPlace::of(trail, "task", &id.to_string());
                    let mut span = open(place, "task".to_owned(), SpanKind::Internal);
                    span.add("colibri.task", id);
                    insert(&mut self.tasks, id, span);
                }
            }
            _ => {}
        }
    }
}

/// Adds an open span, in the place of the oldest where there are too many.
fn insert<K: Ord>(open: &mut BTreeMap<K, OpenSpan>, key: K, span: OpenSpan) {
    if open.len() >= MAX_OPEN {
        open.pop_first();
    }
    open.insert(key, span);
}

/// A time of the trail in nanoseconds since 1970; 0 for what is none.
fn nanoseconds(timestamp: &str) -> u64 {
    let time = timestamp.parse::<jiff::Timestamp>();
    time.map_or(0, |time| time.as_nanosecond().try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";

    /// Takes records, one a second, and returns the spans that ended.
    fn take(tracker: &mut SpanTracker, records: &[&str]) -> Vec<Span> {
        let (key, mut ended) = (KEY.parse().unwrap(), Vec::new());
        for (at, text) in records.iter().enumerate() {
            let n = tracker.next;
            let rec =
                format!(r#"{{"n":{n},"timestamp":"2026-11-21T22:30:{at:02}.000000Z",{text}}}"#);
            let kind: Value = serde_json::from_str(&rec).unwrap();
            let record = RecordView {
                n,
                kind: kind["kind"].as_str().unwrap().to_owned(),
                rec: &rec,
                fields: serde_json::from_str(&rec).unwrap(),
                uid: None,
                through: None,
                task: None,
                client: None,
            };
            assert_eq!(tracker.take(&key, &record, &mut ended), 0);
        }
        ended
    }

    fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
        spans.iter().find(|span| span.name == name).unwrap()
    }

    fn has(span: &Span, key: &str, value: impl Into<AttributeValue>) -> bool {
        span.attributes.contains(&attribute(key, value))
    }

    #[test]
    fn an_agents_run_is_below_its_task_and_its_calls_below_it() {
        let first = [
            r#""kind":"event","event":"task","details":{"id":12,"to":"queued","reason":"a secret"}"#,
            r#""kind":"event","event":"agent-started","details":{"agent":"coder","session":"s1","for":1001,"task":12}"#,
            r#""kind":"event","event":"task","details":{"id":12,"from":"queued","to":"started","session":"s1"}"#,
            r#""kind":"event","event":"model-request","details":{"session":"s1","n":1,"api":"anthropic","model":"claude-x"}"#,
        ];
        let second = [
            r#""kind":"event","event":"model-answer","details":{"session":"s1","n":1,"status":200,"tokens_in":5,"tokens_out":7}"#,
            r#""kind":"enter","method":"tools/call","server":"git","tool":"push","version":"2025-11-25","session":"s1","args_full":{"a":"a secret"},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01""#,
            r#""kind":"enter","method":"tools/call","server":"git","tool":"log","version":"2025-11-25","session":"s1","within":5"#,
            r#""kind":"exit","enter":6,"error_code":null"#,
            r#""kind":"retry","enter":5,"error_code":"TIMEOUT""#,
            r#""kind":"exit","enter":5,"error_code":"TOOL_ERROR""#,
            r#""kind":"event","event":"agent-ended","details":{"session":"s1","state":"done","tokens_in":5,"tokens_out":7,"reason":"a secret"}"#,
            r#""kind":"event","event":"task","details":{"id":12,"from":"started","to":"done","reason":"a secret"}"#,
        ];
        let mut tracker = SpanTracker::default();
        assert!(take(&mut tracker, &first).is_empty());
        // As it is after another start of the exporter.
        let stored = serde_json::to_string(&tracker).unwrap();
        let mut tracker: SpanTracker = serde_json::from_str(&stored).unwrap();
        let spans = take(&mut tracker, &second);
        assert_eq!(spans.len(), 5, "{spans:#?}");
        let (task, run) = (named(&spans, "task"), named(&spans, "invoke_agent coder"));
        let (model, call) = (
            named(&spans, "chat claude-x"),
            named(&spans, "tools/call push"),
        );
        assert!(task.parent_span_id.is_empty() && run.parent_span_id == task.span_id);
        for span in [model, call] {
            assert_eq!(span.parent_span_id, run.span_id);
        }
        // What a script called is below the call that ran it.
        assert_eq!(named(&spans, "tools/call log").parent_span_id, call.span_id);
        assert!(
            spans
                .iter()
                .all(|span| span.trace_id == task.trace_id && span.end_time_unix_nano > 0)
        );
        assert_eq!(
            colibri_text::hex(&call.links[0].span_id),
            "b7ad6b7169203331"
        );
        assert!(
            has(call, "error.type", "tool_error")
                && call.events[0].attributes == [attribute("error.type", "TIMEOUT")]
        );
        assert!(
            has(model, "gen_ai.usage.output_tokens", 7_u64)
                && has(run, "gen_ai.agent.name", "coder")
        );
        assert!(!format!("{spans:?}").contains("a secret"));
    }

    #[test]
    fn what_a_daemon_left_open_ends_when_the_next_one_starts() {
        let mut tracker = SpanTracker::default();
        let spans = take(
            &mut tracker,
            &[
                r#""kind":"enter","method":"tools/call","tool":"a","version":"v","task":7"#,
                r#""kind":"enter","method":"tools/call","tool":"a","version":"v","continues":0,"server":"s","task":7"#,
                r#""kind":"exit","enter":0,"error_code":null"#,
                r#""kind":"exit","enter":99,"error_code":null"#,
                r#""kind":"event","event":"start","details":{}"#,
            ],
        );
        assert_eq!(spans.len(), 1);
        assert!(
            has(&spans[0], "error.type", "daemon_ended") && has(&spans[0], "colibri.server", "s")
        );
        assert_eq!(
            spans[0].end_time_unix_nano - spans[0].start_time_unix_nano,
            4_000_000_000
        );
        assert!(!spans[0].parent_span_id.is_empty());
    }

    #[test]
    fn only_a_whole_traceparent_is_a_parent() {
        assert!(
            SpanPlace::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").is_some()
        );
        for bad in [
            "",
            "00",
            "00-0-0-0",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-é-b7ad6b7169203331-01",
        ] {
            assert_eq!(SpanPlace::parse(bad), None, "{bad}");
        }
    }
}
