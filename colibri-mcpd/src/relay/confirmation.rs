//! Calls that need a person's word: of the person behind the client, or of an operator.
//!
//! A reply of the client's program decides nothing: the call then waits for an operator, as a call
//! does whose client cannot be asked.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::agent_socket::AgentSocket;
use super::call::{Call, Chain, Waits};
use super::call_outcome::CallOutcome;
use super::client::Client;
use super::client_request::ClientRequest;
use super::client_requests::PATIENCE;
use super::pending_work::{PendingWork, TICKET, TooMany, WAIT};
use super::record::ClientRequestRecord;
use super::recorder::Recorder;
use super::reply_author::{ReplyAuthor, is_headless};
use super::request_state::RetryPurpose;
use super::suspended_call::SuspendedCall;
use colibri_policy::{SuspensionReasons, summary};
use colibri_protocol::{
    ClientReply, Code, ElicitationKind, Failure, Version, input, read_response,
};
use colibri_wire::{Edits, Json};

/// The key of our question among those that a client is asked.
const KEY: &str = "confirm";

/// A call that waits for its retry, which says what the person said.
struct Confirmation {
    server: Arc<str>,
    reasons: SuspensionReasons,
    /// What the person has allowed before.
    allowed: Option<Box<SuspensionReasons>>,
    /// The request to the person.
    params: String,
    record: ClientRequestRecord,
    recorder: Arc<Recorder>,
    /// The time at which the client was sent the request, once it was.
    sent: Mutex<Option<Instant>>,
}

impl Chain {
    /// True if the person behind a call is asked by its client in answer to it.
    pub(crate) fn asks_by_answer(&self, call: &Call) -> bool {
        call.version.is_modern() && call.askable().can(ElicitationKind::Form)
    }

    /// Requests confirmation of a call from the person behind a modern client, who gets to read its
    /// `arguments`. If the retry says so, it goes on.
    fn ask_to_confirm(
        self: &Arc<Chain>,
        call: Box<Call>,
        reasons: SuspensionReasons,
        arguments: &str,
    ) {
        let described = call.target.description();
        let rule = reasons.to_string();
        let params = input::confirmation(&described.server, &described.operation, &rule, arguments);
        let record = confirmation_record(&call, call.entry.number);
        if let Err(failure) = record.begins(&self.recorder, params.as_bytes()) {
            return self.finish(vec![(call, CallOutcome::Failed(failure))]);
        }
        let confirmation = Confirmation {
            server: record.server.clone(),
            reasons,
            allowed: call.entry.allowed.clone(),
            params,
            record,
            recorder: self.recorder.clone(),
            sent: Mutex::new(None),
        };
        Arc::new(confirmation).ask(self, call);
    }

    /// A ticket for the retry of a call that a person allowed: it is made once.
    ///
    /// # Errors
    /// Too much waits already.
    pub fn confirmed(&self, call: &Call) -> Result<[u8; TICKET], TooMany> {
        let reasons = call.entry.allowed.as_deref().cloned().unwrap_or_default();
        self.ticket(&call.client, Arc::new(AllowedTicket(reasons)))
    }

    /// A ticket for the retry of a client's call.
    ///
    /// # Errors
    /// Too much waits already.
    pub(crate) fn ticket(
        &self,
        client: &Client,
        waits: Arc<dyn Waits>,
    ) -> Result<[u8; TICKET], TooMany> {
        // A request over HTTP has no connection to keep.
        let stays = client.session.owner().is_none();
        self.tickets.issue(client.caller.uid, stays, waits)
    }
}

impl Confirmation {
    fn ask(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) {
        *self.sent.lock() = None;
        let outcome = match chain.ticket(&call.client, self.clone()) {
            Ok(ticket) => {
                let state = chain.seal(
                    RetryPurpose::Confirm,
                    &call,
                    &ticket,
                    SystemTime::now() + WAIT,
                );
                let question = input::InputQuestion {
                    key: KEY,
                    method: ElicitationKind::Form.method(),
                    params: Some(&self.params),
                };
                let result =
                    input::input_required_result(call.version, &self.server, &[question], &state);
                CallOutcome::result(result)
            }
            Err(why) => {
                self.over("not sent");
                let failure = Failure::new(
                    Code::ApprovalDenied,
                    format!("the person cannot be asked: {why}"),
                );
                CallOutcome::Failed(
                    failure
                        .of_server(&*self.server)
                        .by_rule(self.reasons.to_string()),
                )
            }
        };
        chain.finish(vec![(call, outcome)]);
        *self.sent.lock() = Some(Instant::now());
    }

    /// Reads and records the reply in a retry of the call.
    ///
    /// # Errors
    /// The reply cannot be recorded.
    fn read_reply(
        &self,
        retry: &Call,
        response: Json<'_>,
    ) -> Result<Option<(ClientReply, ReplyAuthor)>, Failure> {
        let Some(reply) = read_reply(response) else {
            self.record.ends(&self.recorder, "unreadable", None)?;
            return Ok(None);
        };
        // The retry may be read, by another thread, before the time of sending is noted.
        let sent = self.sent.lock().unwrap_or(retry.entered);
        let author = ReplyAuthor::new(
            is_headless(retry),
            retry.entered.saturating_duration_since(sent),
        );
        self.record.ends_by(
            &self.recorder,
            reply.name(),
            Some(author),
            Some(response.text().as_bytes()),
        )?;
        Ok(Some((reply, author)))
    }
}

impl PendingWork for Confirmation {
    /// The client was answered already.
    fn over(&self, _: &'static str) {
        // No answer depends on this record.
        let _ = self.record.ends(&self.recorder, "given up", None);
    }
}

impl Waits for Confirmation {
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, mut retry: Box<Call>) {
        retry.entry.allowed = self.allowed.clone();
        let Some(response) = retry.response(KEY) else {
            return self.ask(chain, retry);
        };
        let outcome = match self.read_reply(&retry, response) {
            Ok(Some((ClientReply::Accept, ReplyAuthor::Person))) => {
                return chain.release(retry, self.reasons.clone());
            }
            Ok(Some((_, ReplyAuthor::Person))) => {
                refused_by_person(&self.server, &self.reasons.to_string())
            }
            Ok(Some((reply, ReplyAuthor::Program))) => {
                return chain.hold_for_operator(retry, self.reasons.clone(), Some(reply));
            }
            // What cannot be read decides nothing.
            Ok(None) => return chain.hold_for_operator(retry, self.reasons.clone(), None),
            Err(failure) => failure,
        };
        chain.finish(vec![(retry, CallOutcome::Failed(outcome))]);
    }
}

/// A call that a person allowed and whose server asks something itself.
struct AllowedTicket(SuspensionReasons);

impl PendingWork for AllowedTicket {
    fn over(&self, _: &'static str) {}
}

impl Waits for AllowedTicket {
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, retry: Box<Call>) {
        chain.resume_sent(retry, self.0.clone());
    }
}

/// The reply to a request for confirmation; `None`: it is none.
fn read_reply(result: Json<'_>) -> Option<ClientReply> {
    let (reply, _) = read_response(ElicitationKind::Form, result, Version::LATEST).ok()?;
    Some(reply)
}

/// The record of a request for confirmation of a call.
fn confirmation_record(call: &Call, request: u64) -> ClientRequestRecord {
    ClientRequestRecord {
        server: call.target.description().server.clone(),
        method: ElicitationKind::Form.method(),
        client: call.client.clone(),
        call: call.entry.number,
        request,
    }
}

fn refused_by_person(server: &str, rule: &str) -> Failure {
    Failure::new(
        Code::ApprovalDenied,
        "the person who was asked by the client refused this call",
    )
    .of_server(server)
    .by_rule(rule)
}

impl Chain {
    /// Holds a call until a person has decided about it: the one behind the client, where that can
    /// be asked, or an operator. Once it is allowed it is released.
    pub(super) fn hold_for_person(self: &Arc<Chain>, call: Box<Call>, reasons: SuspensionReasons) {
        if self.asks_by_answer(&call) {
            let arguments = shown_arguments(&call);
            return self.ask_to_confirm(call, reasons, &arguments);
        }
        self.hold_for_operator(call, reasons, None);
    }

    /// Holds a call until an operator has decided about it, or the person behind a legacy client,
    /// which is asked meanwhile. `program_reply` is what the program of a modern client has replied
    /// to a request to the person.
    fn hold_for_operator(
        self: &Arc<Chain>,
        call: Box<Call>,
        reasons: SuspensionReasons,
        program_reply: Option<ClientReply>,
    ) {
        let rule = reasons.to_string();
        let described = call.target.description();
        let server = (*described.server).to_owned();
        let arguments = shown_arguments(&call);
        let asked = self.approvals.ask(
            &call.client.asker(),
            &described.server,
            &described.operation,
            &rule,
            arguments.clone(),
        );
        let mut waiting = match asked {
            Ok(waiting) => waiting,
            Err(failure) => return self.finish(vec![(call, CallOutcome::Failed(failure))]),
        };
        warn!(
            server = &*described.server,
            operation = &*described.operation,
            id = waiting.id,
            "a call waits for `colibri-mcp approvals approve`"
        );
        let token = call.parts.progress_token.clone();
        if let Some(token) = token.and_then(|span| str::from_utf8(call.frame.get(span)?).ok()) {
            call.client.outbox.push(waiting.notice(token).as_bytes());
        }
        let counted = call.client.door.as_ref().map(AgentSocket::waits);
        let mut person = self.ask_person(&call, &rule, &arguments);
        let held = SuspendedCall::hold(self, call);
        let chain = self.clone();
        tokio::spawn(async move {
            let person_decides = async {
                match &mut person {
                    Some(person) => person.allows().await,
                    None => std::future::pending().await,
                }
            };
            // Whoever decides first decides.
            let (decision, is_allowed) = tokio::select! {
                biased;
                () = held.over() => return,
                decision = waiting.decision() => (Some(decision), false),
                is_allowed = person_decides => (None, is_allowed),
            };
            // An operator who decided after the person is told that it was too late; one who did
            // before counts.
            let decision = waiting.withdraw().or(decision);
            let program_reply = person
                .as_ref()
                .and_then(|person| person.program_reply)
                .or(program_reply);
            drop((person, counted));
            let failure = match decision {
                Some(decision) => {
                    decision.failure(&server, &rule, program_reply.map(ClientReply::name))
                }
                None => (!is_allowed).then(|| refused_by_person(&server, &rule)),
            };
            let Some(call) = held.take() else { return };
            match failure {
                Some(failure) => chain.finish(vec![(call, CallOutcome::Failed(failure))]),
                None if call.client.unsent(&call.id) => chain.release(call, reasons),
                None => chain.finish(vec![(call, CallOutcome::Cancelled)]),
            }
        });
    }
}

/// The arguments of a call as the person or an operator sees them.
fn shown_arguments(call: &Call) -> String {
    let arguments = summary(call.arguments());
    match call.target.description().upstream() {
        Some(upstream) => upstream.redact(&arguments),
        None => arguments,
    }
}

/// The person behind a legacy client, who is asked whether a call may be made while an operator may
/// decide too.
pub(crate) struct PersonElicitation {
    chain: Arc<Chain>,
    asking: ClientRequest,
    record: ClientRequestRecord,
    /// The time at which the client was sent the request.
    sent: Instant,
    /// True if the client runs without a person.
    is_headless: bool,
    /// The reply that its program gave by itself.
    program_reply: Option<ClientReply>,
    is_over: bool,
}

impl Chain {
    /// Requests confirmation of a call from the person behind a legacy client. `None`: it takes no
    /// requests.
    pub(crate) fn ask_person(
        self: &Arc<Self>,
        call: &Call,
        rule: &str,
        arguments: &str,
    ) -> Option<PersonElicitation> {
        if call.version.is_modern() || !call.askable().can(ElicitationKind::Form) {
            return None;
        }
        let described = call.target.description();
        let mut asking = ClientRequest::begin(&call.client).ok()?;
        let params = input::confirmation(&described.server, &described.operation, rule, arguments);
        let record = confirmation_record(call, asking.number());
        record.begins(&self.recorder, params.as_bytes()).ok()?;
        let message = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"{}\",\"params\":{params}}}",
            asking.number(),
            ElicitationKind::Form.method()
        );
        let is_sent = asking.send(&message.into(), &Edits::new(), None);
        let mut asked = PersonElicitation {
            chain: self.clone(),
            asking,
            record,
            sent: Instant::now(),
            is_headless: is_headless(call),
            program_reply: None,
            is_over: false,
        };
        if is_sent.is_err() {
            asked.ends("gone", None, None);
            return None;
        }
        Some(asked)
    }
}

impl PersonElicitation {
    /// Waits for the person's decision, for ever if no person decides: an operator still may.
    pub(crate) async fn allows(&mut self) -> bool {
        match self.reply().await {
            Some(reply) => reply == ClientReply::Accept,
            None => std::future::pending().await,
        }
    }

    /// Waits for the person's reply, and records it. `None`: there is none, or it does not count.
    async fn reply(&mut self) -> Option<ClientReply> {
        let until = Instant::now() + PATIENCE;
        let response = match self.asking.answer(PATIENCE, until).await {
            Ok(response) => response,
            Err(why) => {
                self.ends(why.word(), None, None);
                return None;
            }
        };
        let result = response.outcome.as_ref().ok();
        let result = result.and_then(|span| Json::part(&response.frame, span.clone()));
        let Some((reply, text)) =
            result.and_then(|result| Some((read_reply(result)?, result.text())))
        else {
            self.ends("unreadable", None, None);
            return None;
        };
        let took = response.read.saturating_duration_since(self.sent);
        let author = ReplyAuthor::new(self.is_headless, took);
        let is_recorded = self.ends(reply.name(), Some(author), Some(text.as_bytes()));
        if author == ReplyAuthor::Program {
            self.program_reply = Some(reply);
            return None;
        }
        (is_recorded || reply != ClientReply::Accept).then_some(reply)
    }

    /// Records how it ended.
    fn ends(&mut self, outcome: &str, author: Option<ReplyAuthor>, answer: Option<&[u8]>) -> bool {
        self.is_over = true;
        let recorded = self
            .record
            .ends_by(&self.chain.recorder, outcome, author, answer);
        recorded.is_ok()
    }
}

impl Drop for PersonElicitation {
    fn drop(&mut self) {
        if !self.is_over {
            self.asking.because("it is decided, or the call is over");
            self.ends("call over", None, None);
        }
    }
}
