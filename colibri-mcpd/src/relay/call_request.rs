//! The request of a call, as a session has read it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::time::Instant;

use super::client::{BatchAnswers, Client};
use colibri_protocol::logging::Level;
use colibri_protocol::request::META_CLIENT_CAPABILITIES;
use colibri_protocol::{Askable, ClientInfo, MetaRecord, Method, Version};
use colibri_wire::{Json, RequestId};

/// A request as a session has read it.
pub struct CallRequest {
    /// The caller, to which the answer goes.
    pub client: Arc<Client>,
    /// The client's id, to find the call again.
    pub id: RequestId,
    /// The batch it came in.
    pub batch: Option<Arc<BatchAnswers>>,
    /// The name and version that the client declares of itself.
    pub client_info: Option<Arc<ClientInfo>>,
    /// The version that the client speaks in this request.
    pub version: Version,
    /// The method; `None` for one that no version of MCP has.
    pub method: Option<Method>,
    /// The request as it came.
    pub frame: Bytes,
    /// Bytes that it has of the daemon's budget while it is in flight.
    pub held: usize,
    /// The places in it that the relay changes.
    pub parts: RequestParts,
    /// Its W3C trace context.
    pub trace: Option<Box<Trace>>,
    /// The time at which it was read.
    pub entered: Instant,
    /// The same, by the clock on the wall.
    pub time: SystemTime,
}

/// A request's W3C trace context, as its `_meta` has it (<https://www.w3.org/TR/trace-context/>).
#[derive(Debug, Clone)]
pub struct Trace {
    /// `traceparent`.
    pub parent: Box<str>,
    /// `tracestate`.
    pub state: Option<Box<str>>,
}

/// Places in a request.
#[derive(Debug, Clone, Default)]
pub struct RequestParts {
    /// The value of `id`.
    pub id: Range<usize>,
    /// The value of `params`.
    pub params: Option<Range<usize>>,
    /// The name of the tool or prompt, or the URI, that is asked for, with its quotes.
    pub name: Option<Range<usize>>,
    /// The value of `progressToken` in `_meta`.
    pub progress_token: Option<Range<usize>>,
    /// The arguments of a tool call.
    pub arguments: CallArguments,
    /// True if a tool call is to become a task, whose result is asked for later.
    pub task: bool,
    /// The log messages that a modern request wants.
    pub log_level: Option<Level>,
    /// True if its client, a modern one, declares capabilities in it.
    pub declares: bool,
    /// The name that `colibri_call_tool` was given, if that is how it was called.
    pub called: Option<Box<str>>,
    /// The task for which its client, who has claimed it, says that it is made.
    pub for_task: Option<u64>,
    /// The record of another host's trail that its client, a daemon there, says it has.
    pub caller_record: Option<Box<MetaRecord>>,
}

/// The place of a tool call's arguments.
#[derive(Debug, Clone, Default)]
pub enum CallArguments {
    /// There are none.
    #[default]
    Missing,
    /// The place where the server reads them too.
    At(Range<usize>),
    /// In the arguments of `colibri_external_mcp_call_tool` or `colibri_call_tool`, which stand at
    /// `outer`.
    Within {
        /// The place that the server is to read instead of.
        outer: Range<usize>,
        /// The arguments, if there are any.
        inner: Option<Range<usize>>,
    },
}

impl Drop for CallRequest {
    fn drop(&mut self) {
        self.client.outbox.let_go(self.held);
    }
}

impl CallRequest {
    /// The id as the client wrote it.
    pub fn id_text(&self) -> &str {
        self.text(&self.parts.id)
    }

    /// The name or URI that the client used, as far as a record holds it.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        let name = Json::part(&self.frame, self.parts.name.clone()?)?.as_str()?;
        match name.char_indices().nth(200) {
            Some((end, _)) => Some(Cow::Owned(name[..end].to_owned())),
            None => Some(name),
        }
    }

    /// The task for which it is made: the one that its agent has claimed, or that its client, who
    /// has claimed it, names.
    pub fn task(&self) -> Option<u64> {
        match &self.client.door {
            Some(door) => door.task(),
            None => self.parts.for_task,
        }
    }

    /// The kinds of requests that its client accepts: as its handshake says, or as this request
    /// does. An agent has no person.
    pub fn askable(&self) -> Askable {
        if self.client.door.is_some() {
            return Askable::NOTHING;
        }
        if !self.version.is_modern() {
            return self.client.session.askable();
        }
        let params = self.parts.params.clone();
        let params = params.and_then(|params| Json::part(&self.frame, params));
        let declared = params.and_then(|params| params.get("_meta")?.get(META_CLIENT_CAPABILITIES));
        Askable::read(self.version, declared)
    }

    fn text(&self, span: &Range<usize>) -> &str {
        let bytes = self.frame.get(span.clone()).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The answer of a retry under a key.
    pub fn response(&self, key: &str) -> Option<Json<'_>> {
        let params = Json::part(&self.frame, self.parts.params.clone()?)?;
        params.get("inputResponses")?.get(key)
    }

    /// The least level of the log messages that its client wants of it; `None`: it did not say.
    pub fn log_level(&self) -> Option<Level> {
        match self.version.is_modern() {
            true => self.parts.log_level,
            false => self.client.session.log_level(),
        }
    }

    /// True if its client wants a log message of this level. A modern one that does not say so
    /// wants none, a legacy one any that the server sends (2026-07-28 and 2025-11-25,
    /// server/utilities/logging).
    pub(crate) fn wants_log(&self, level: Level) -> bool {
        let is_legacy = !self.version.is_modern();
        self.log_level().map_or(is_legacy, |least| level >= least)
    }

    /// The arguments of a tool call as the client wrote them.
    pub fn arguments(&self) -> &[u8] {
        let span = match &self.parts.arguments {
            CallArguments::At(span)
            | CallArguments::Within {
                inner: Some(span), ..
            } => Some(span.clone()),
            CallArguments::Missing | CallArguments::Within { inner: None, .. } => None,
        };
        span.and_then(|span| self.frame.get(span)).unwrap_or(b"{}")
    }
}
