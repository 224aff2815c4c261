//! The client's open requests and session, stored so that they survive a restart of the daemon.

use std::collections::{BTreeMap, BTreeSet};

use super::own_answer::error_line;
use super::peek::{self, PeekedMessage, comparable};
use colibri_protocol::error::Code;

/// The open requests of either side, and the session.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    pending: BTreeMap<ComparableId, PendingRequest>,
    session: Option<LegacyHandshake>,
    /// Requests from the daemon that the client has not answered.
    asked: BTreeSet<ComparableId>,
    /// Those of a daemon that is gone.
    stale: BTreeSet<ComparableId>,
    /// Subscriptions that were sent again: the client already knows that they are acknowledged.
    resubscribed: BTreeSet<ComparableId>,
    /// Requests that were sent again: the client already has their answers.
    repeated: BTreeSet<ComparableId>,
}

/// A request that waits for its answer.
#[derive(Debug)]
enum PendingRequest {
    Call,
    /// The line is kept: it can be sent again.
    Initialize(OwnedLine),
    /// The line is kept: it can be sent again.
    Listen(OwnedLine),
}

/// A line with its newline.
type OwnedLine = Box<[u8]>;
/// A request's id, in the form that [`comparable`] gives it.
type ComparableId = Box<[u8]>;

/// A request that can be sent again.
#[derive(Debug, Clone)]
pub(super) struct ReplayableRequest {
    pub id: ComparableId,
    pub line: OwnedLine,
}

/// A legacy session, as the client opened it.
#[derive(Debug, Clone)]
pub(super) struct LegacyHandshake {
    pub initialize: ReplayableRequest,
    pub initialized: Option<OwnedLine>,
    pub set_level: Option<ReplayableRequest>,
    /// The subscriptions to resources, by the URIs as they are written.
    pub subscribed: BTreeMap<Box<[u8]>, ReplayableRequest>,
    pub version: String,
    pub lists_change: Vec<&'static str>,
}

impl InFlight {
    /// The session to open again.
    pub(super) fn session(&self) -> Option<LegacyHandshake> {
        self.session.clone()
    }

    /// The messages that a new daemon is sent again.
    pub(super) fn again(&mut self) -> Vec<u8> {
        let mut again = Vec::new();
        for (id, pending) in &self.pending {
            match pending {
                PendingRequest::Initialize(line) => again.extend_from_slice(line),
                PendingRequest::Listen(line) => {
                    self.resubscribed.insert(id.clone());
                    again.extend_from_slice(line);
                }
                PendingRequest::Call => {}
            }
        }
        for sent in self
            .session
            .iter()
            .flat_map(|session| session.subscribed.values())
        {
            self.repeated.insert(sent.id.clone());
            again.extend_from_slice(&sent.line);
        }
        again
    }

    /// Notes that a request has its answer. False if nobody waits for one.
    pub(super) fn is_answered(&mut self, id: &[u8]) -> bool {
        self.pending.remove(&comparable(id)).is_some()
    }

    /// Notes that the connection is gone; what the client is told of it. With `ended`, there will
    /// be no other.
    pub(super) fn lost(&mut self, ended: bool) -> Vec<u8> {
        let mut lines = Vec::new();
        self.pending.retain(|id, pending| {
            let keep = !ended && !matches!(pending, PendingRequest::Call);
            // A subscription that ends with the session needs no error.
            if !keep && !matches!(pending, PendingRequest::Listen(_)) {
                let text = "colibri-mcpd restarted, or was stopped, while this request was in flight: it may have run, \
                            or not";
                lines.extend(error_line(id, Code::ConnectionLost, text));
            }
            keep
        });
        let asked = std::mem::take(&mut self.asked);
        for id in &asked {
            lines.extend_from_slice(
                br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#,
            );
            lines.extend_from_slice(id);
            lines.extend_from_slice(b",\"reason\":\"colibri-mcpd restarted\"}}\n");
        }
        self.stale.extend(asked);
        self.resubscribed.clear();
        self.repeated.clear();
        lines
    }

    /// Notes a line that is about to go to the daemon. False if it must not.
    pub(super) fn note_sent(&mut self, line: &[u8]) -> bool {
        if peek::is_batch(line) {
            // Nothing in a batch opens a session or a subscription (MCP 2025-03-26, basic:
            // lifecycle).
            for message in peek::messages(line) {
                if let PeekedMessage::Request { id, .. } = peek::message(message) {
                    self.pending.insert(comparable(id), PendingRequest::Call);
                }
            }
            return true;
        }
        match peek::message(line) {
            PeekedMessage::Request { id, method } => {
                let id = comparable(id);
                let pending = match method {
                    b"initialize" => PendingRequest::Initialize(line.into()),
                    b"subscriptions/listen" => PendingRequest::Listen(line.into()),
                    b"logging/setLevel" => {
                        if let Some(session) = &mut self.session {
                            session.set_level = Some(ReplayableRequest {
                                id: id.clone(),
                                line: line.into(),
                            });
                        }
                        PendingRequest::Call
                    }
                    b"resources/subscribe" | b"resources/unsubscribe" => {
                        self.note_subscription(method == b"resources/subscribe", &id, line);
                        PendingRequest::Call
                    }
                    _ => PendingRequest::Call,
                };
                self.pending.insert(id, pending);
            }
            PeekedMessage::Notification {
                method: b"notifications/initialized",
            } => {
                if let Some(session) = &mut self.session {
                    session.initialized = Some(line.into());
                }
            }
            PeekedMessage::Notification {
                method: b"notifications/cancelled",
            } => {
                if let Some(id) = peek::cancelled_request(line) {
                    self.pending.remove(&id);
                }
            }
            PeekedMessage::Answer { id } if !(self.stale.is_empty() && self.asked.is_empty()) => {
                let id = comparable(id);
                if self.stale.remove(&id) {
                    return false;
                }
                self.asked.remove(&id);
            }
            _ => {}
        }
        true
    }

    /// Notes that the client subscribes to a resource, or does not want to any more.
    fn note_subscription(&mut self, subscribes: bool, id: &ComparableId, line: &[u8]) {
        let (Some(session), Some(uri)) = (&mut self.session, peek::at(line, &["params", "uri"]))
        else {
            return;
        };
        let uri = comparable(uri);
        if subscribes {
            let (id, line) = (id.clone(), line.into());
            session
                .subscribed
                .insert(uri, ReplayableRequest { id, line });
        } else {
            session.subscribed.remove(&uri);
        }
    }

    /// Notes a line from the daemon. False if the client must not see it.
    pub(super) fn note_received(&mut self, line: &[u8]) -> bool {
        if peek::is_batch(line) {
            for message in peek::messages(line) {
                if let PeekedMessage::Answer { id } = peek::message(message) {
                    self.pending.remove(&comparable(id));
                }
            }
            return true;
        }
        match peek::message(line) {
            PeekedMessage::Answer { id } => {
                let id = comparable(id);
                if self.repeated.remove(&id) {
                    return false;
                }
                if let Some(PendingRequest::Initialize(request)) = self.pending.remove(&id)
                    && let Ok(opened) = InitializeResult::read(line)
                {
                    self.session = Some(LegacyHandshake {
                        initialize: ReplayableRequest { id, line: request },
                        initialized: None,
                        set_level: None,
                        subscribed: BTreeMap::new(),
                        version: opened.version,
                        lists_change: opened.lists_change,
                    });
                }
            }
            PeekedMessage::Request { id, .. } => {
                self.asked.insert(comparable(id));
            }
            PeekedMessage::Notification {
                method: b"notifications/cancelled",
            } if !self.asked.is_empty() => {
                if let Some(id) = peek::cancelled_request(line) {
                    self.asked.remove(&id);
                }
            }
            PeekedMessage::Notification {
                method: b"notifications/subscriptions/acknowledged",
            } if !self.resubscribed.is_empty() => {
                return !peek::acknowledged_subscription(line)
                    .is_some_and(|id| self.resubscribed.remove(&id));
            }
            _ => {}
        }
        true
    }

    /// True if requests wait for answers; a subscription's answer is its end, and not waited for.
    pub(super) fn has_calls(&self) -> bool {
        self.pending
            .values()
            .any(|pending| !matches!(pending, PendingRequest::Listen(_)))
    }
}

/// The session facts in an answer to `initialize`.
pub(super) struct InitializeResult {
    pub version: String,
    /// The lists of which the daemon says that it tells when they change.
    pub lists_change: Vec<&'static str>,
}

impl InitializeResult {
    pub(super) fn read(line: &[u8]) -> Result<InitializeResult, String> {
        let Some(version) = peek::at(line, &["result", "protocolVersion"]) else {
            let why = peek::at(line, &["error", "message"])
                .and_then(|text| serde_json::from_slice(text).ok());
            return Err(why.unwrap_or_else(|| "no result".to_owned()));
        };
        let changes = |list: &&str| {
            peek::at(line, &["result", "capabilities", list, "listChanged"])
                .is_some_and(|changes| changes == b"true")
        };
        Ok(InitializeResult {
            version: String::from_utf8_lossy(version)
                .trim_matches('"')
                .to_owned(),
            lists_change: ["tools", "prompts", "resources"]
                .into_iter()
                .filter(changes)
                .collect(),
        })
    }
}
