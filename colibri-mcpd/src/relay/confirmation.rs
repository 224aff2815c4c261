//! Calls that need a person's word, where the person is asked through the client itself.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;
use tracing::warn;

use super::agent_socket::AgentSocket;
use super::call::{Call, CallOutcome, Chain, Waits};
use super::client::Client;
use super::client_request::ClientRequest;
use super::client_requests::{NoResponse, PATIENCE};
use super::pending_work::{PendingWork, TICKET, TooMany, WAIT};
use super::record::ClientRequestRecord;
use super::request_state::RetryPurpose;
use super::suspended_call::SuspendedCall;
use crate::policy::summary;
use colibri_protocol::{ClientReply, Code, ElicitationKind, Failure, Version, input, read_response};
use colibri_wire::{Edits, Json};

/// The key of our question among those that a client is asked.
const KEY: &str = "confirm";

/// A call that waits for its retry, which says what the person said.
struct Confirmation {
    server: Arc<str>,
    rule: String,
    /// The request to the person.
    params: String,
}

impl Chain {
    /// True if the person behind a call is asked by its client in answer to it.
    pub(crate) fn asks_by_answer(&self, call: &Call) -> bool {
        call.version.is_modern() && call.askable().can(ElicitationKind::Form)
    }

    /// Requests confirmation of a call from the person behind a modern client, who gets to read its `arguments`. If the
    /// retry says so, it goes to its target as confirmed.
    pub(crate) fn ask_to_confirm(self: &Arc<Chain>, call: Box<Call>, rule: &str, arguments: &str) {
        let described = call.target.description();
        let confirmation = Confirmation {
            server: (*described.server).into(),
            rule: rule.to_owned(),
            params: input::confirmation(&described.server, &described.operation, rule, arguments),
        };
        Arc::new(confirmation).ask(self, call);
    }

    /// A ticket for the retry of a call that a person allowed: it is made once.
    ///
    /// # Errors
    /// Too much waits already.
    pub fn confirmed(&self, call: &Call) -> Result<[u8; TICKET], TooMany> {
        self.ticket(&call.client, Arc::new(AllowedTicket))
    }

    /// A ticket for the retry of a client's call.
    ///
    /// # Errors
    /// Too much waits already.
    pub(crate) fn ticket(&self, client: &Client, waits: Arc<dyn Waits>) -> Result<[u8; TICKET], TooMany> {
        // A request over HTTP has no connection to keep.
        let stays = client.session.owner().is_none();
        self.tickets.issue(client.caller.uid, stays, waits)
    }
}

impl Confirmation {
    fn ask(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) {
        let outcome = match chain.ticket(&call.client, self.clone()) {
            Ok(ticket) => {
                let state = chain.seal(RetryPurpose::Confirm, &call, &ticket, SystemTime::now() + WAIT);
                let question = input::InputQuestion {
                    key: KEY,
                    method: ElicitationKind::Form.method(),
                    params: Some(&self.params),
                };
                let result = input::input_required_result(call.version, &self.server, &[question], &state);
                CallOutcome::result(result)
            }
            Err(why) => CallOutcome::Failed(self.failure(format!("the person cannot be asked: {why}"))),
        };
        chain.finish(vec![(call, outcome)]);
    }

    fn failure(&self, why: String) -> Failure {
        Failure::new(Code::ApprovalDenied, why)
            .of_server(&*self.server)
            .by_rule(self.rule.clone())
    }
}

impl PendingWork for Confirmation {
    /// The client was answered already.
    fn over(&self, _: &'static str) {}
}

impl Waits for Confirmation {
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, retry: Box<Call>) {
        let said = retry.response(KEY).map(|response| {
            response
                .get("action")
                .and_then(|action| action.as_str())
                .unwrap_or_default()
                .into_owned()
        });
        match said.as_deref() {
            Some("accept") => go(chain, retry),
            Some(_) => {
                let failure = self.failure("the person who was asked by the client refused this call".to_owned());
                chain.finish(vec![(retry, CallOutcome::Failed(failure))]);
            }
            None => self.ask(chain, retry),
        }
    }
}

/// A call that a person allowed and whose server asks something itself.
struct AllowedTicket;

impl PendingWork for AllowedTicket {
    fn over(&self, _: &'static str) {}
}

impl Waits for AllowedTicket {
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, retry: Box<Call>) {
        go(chain, retry);
    }
}

/// A call that a person allowed goes on.
fn go(chain: &Arc<Chain>, mut call: Box<Call>) {
    chain.note_allowed(&call);
    call.confirmed = true;
    call.target.clone().send(chain, call);
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
    /// Holds a call until a person has decided about it: the one behind the client, where that can be asked, or an
    /// operator. Once it is allowed its target gets it as confirmed.
    pub(crate) fn hold_for_person(self: &Arc<Chain>, call: Box<Call>, rule: String) {
        let described = call.target.description();
        let server = (*described.server).to_owned();
        let arguments = summary(call.arguments());
        let arguments = match call.target.description().upstream() {
            Some(upstream) => upstream.redact(&arguments),
            None => arguments,
        };
        if self.asks_by_answer(&call) {
            return self.ask_to_confirm(call, &rule, &arguments);
        }
        let asked = self.approvals.ask(
            &call.client.asker(),
            &described.server,
            &described.operation,
            &rule,
            arguments.clone(),
        );
        let waiting = match asked {
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
            let said = async {
                match &mut person {
                    Some(person) => person.allows().await,
                    None => std::future::pending().await,
                }
            };
            // Whoever decides first decides.
            let against = tokio::select! {
                biased;
                () = held.over() => return,
                decision = waiting.decision() => decision.failure(&server, &rule),
                allowed = said => (!allowed).then(|| refused_by_person(&server, &rule)),
            };
            drop((person, counted));
            let Some(call) = held.take() else { return };
            match against {
                Some(failure) => chain.finish(vec![(call, CallOutcome::Failed(failure))]),
                None if call.client.unsent(&call.id) => go(&chain, call),
                None => chain.finish(vec![(call, CallOutcome::Cancelled)]),
            }
        });
    }
}

/// The person behind a legacy client, who is asked whether a call may be made while an operator may decide too.
pub(crate) struct PersonElicitation {
    chain: Arc<Chain>,
    asking: ClientRequest,
    record: ClientRequestRecord,
    is_over: bool,
}

impl Chain {
    /// Requests confirmation of a call from the person behind a legacy client. `None`: it takes no requests.
    pub(crate) fn ask_person(self: &Arc<Self>, call: &Call, rule: &str, arguments: &str) -> Option<PersonElicitation> {
        if call.version.is_modern() || !call.askable().can(ElicitationKind::Form) {
            return None;
        }
        let described = call.target.description();
        let mut asking = ClientRequest::begin(&call.client).ok()?;
        let params = input::confirmation(&described.server, &described.operation, rule, arguments);
        let record = ClientRequestRecord {
            server: (*described.server).into(),
            method: ElicitationKind::Form.method(),
            client: call.client.clone(),
            call: call.number,
            request: asking.number(),
        };
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
            is_over: false,
        };
        if is_sent.is_err() {
            asked.ends("gone", None);
            return None;
        }
        Some(asked)
    }
}

impl PersonElicitation {
    /// Waits for what the person says, for ever if that is nothing that can be read: an operator may still decide.
    pub(crate) async fn allows(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        let answer = self.asking.answer(PATIENCE, until).await;
        let said = match &answer {
            Ok(response) => response
                .outcome
                .as_ref()
                .ok()
                .and_then(|span| Json::part(&response.frame, span.clone()))
                .and_then(|result| {
                    Some((
                        read_response(ElicitationKind::Form, result, Version::LATEST).ok()?.0,
                        result.text(),
                    ))
                }),
            Err(_) => None,
        };
        let is_recorded = match said {
            Some((said, text)) => self.ends(said.name(), Some(text.as_bytes())),
            None => self.ends(answer.as_ref().err().map_or("unreadable", NoResponse::word), None),
        };
        match said {
            Some((said, _)) if is_recorded || said != ClientReply::Accept => said == ClientReply::Accept,
            _ => std::future::pending().await,
        }
    }

    /// Records how it ended.
    fn ends(&mut self, outcome: &str, answer: Option<&[u8]>) -> bool {
        self.is_over = true;
        self.record.ends(&self.chain.recorder, outcome, answer).is_ok()
    }
}

impl Drop for PersonElicitation {
    fn drop(&mut self) {
        if !self.is_over {
            self.asking.because("it is decided, or the call is over");
            self.ends("call over", None);
        }
    }
}
