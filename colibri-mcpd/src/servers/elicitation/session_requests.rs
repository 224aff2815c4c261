//! The requests of a server to the person's side: whether each is allowed, whose it is, and how it
//! ends.
//!
//! A legacy server's request names no call. It is about a call of a client that is in flight in the
//! same process and can be asked; where several clients are, or several calls of a modern one, it
//! could be about either and nobody is asked. A process serves one user's calls, so it is never
//! about another user's. Where no such call is in flight there is nobody to ask, but for a process
//! that is one client's alone, and for roots, which no person has to be bothered for: those go to
//! the client that used the process last.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::debug;

use super::super::session::{
    MAX_UNREAD, PendingReply, ServerSession, ServerSessionState, SessionEvent,
};
use super::super::tap::Direction;
use super::exclusive_slots::SlotHolder;
use super::open_elicitations::{ElicitationEnd, NotTaken, failed};
use super::suspended_call::SuspendedElicitation;
use crate::relay::record::ClientRequestRecord as Record;
use crate::relay::{Client, ClientRequest, ClientResponse, PATIENCE};
use colibri_protocol::rpc_error::{INVALID_REQUEST, METHOD_NOT_FOUND};
use colibri_protocol::{
    self as protocol, AnswerBody, Askable, ClientReply, ElicitationKind, Failure, RpcError,
    upstream,
};
use colibri_wire::{Edits, Json, RequestId};

/// The client to which the request goes.
struct ElicitationTarget {
    client: Arc<Client>,
    /// The number of the call towards the server; 0 for none.
    number: u64,
    /// The number of the `enter` record of the call that it is about, and when that was read.
    call: Option<(u64, Instant)>,
    /// The end of its whole time.
    until: Instant,
    version: protocol::Version,
    can: Askable,
    is_held: bool,
}

impl ElicitationTarget {
    fn whose(&self) -> SlotHolder {
        match self.version.is_modern() {
            true => SlotHolder::Call,
            false => SlotHolder::Client(self.client.session.number),
        }
    }
}

/// The refusal for a server where the wrong person could be asked.
const AMBIGUOUS: &str = "nothing says which of several calls in flight this is about, so nobody is asked. Calls get \
                         processes of their own from now on, as many as limits.processes_per_user allows: those that wait for \
                         a person have to be answered first";

impl ServerSession {
    /// Takes a request of the server's, which is not answered yet.
    pub(in crate::servers) fn asks_for(
        self: &Arc<Self>,
        frame: &Bytes,
        (id, method, params): (Json<'_>, &str, Option<Json<'_>>),
    ) {
        let version = self.version();
        let ask = ElicitationKind::read(method, params)
            .filter(|ask| !version.is_modern() && self.may_ask.what.can(*ask));
        let Some(ask) = ask else {
            if method != "ping" {
                self.complain(&format!(
                    "asked for {}, which it may not: may_ask of its entry lacks it, several users share the process, or \
                     its version of MCP has no such request",
                    self.shown(method)
                ));
            }
            return self.push(&upstream::answer_server(id.text(), method, version));
        };
        // Before anybody is: who calls meanwhile has a process of its own.
        self.notify(SessionEvent::ElicitationRequest);
        if let Err(error) = self.ask_person(frame, (id, ask, params)) {
            self.complain(&format!(
                "asked for {method}, and was refused: {}",
                error.message
            ));
            self.push(&AnswerBody::Error(error).to_message(Some(id.text())));
        }
    }

    fn ask_person(
        self: &Arc<Self>,
        frame: &Bytes,
        (id, ask, params): (Json<'_>, ElicitationKind, Option<Json<'_>>),
    ) -> Result<(), RpcError> {
        let key = RequestId::of(id);
        let (whom, opened) = {
            let mut state = self.state();
            state.asks.takes(&key).map_err(|why| match why {
                NotTaken::SameId => RpcError::new(
                    INVALID_REQUEST,
                    "a request with this id waits for its answer already",
                ),
                NotTaken::TooMany(limit) => failed(format!(
                    "{limit} requests of this server wait for a person already"
                )),
            })?;
            let whom = self.whom(&state, ask)?;
            let of_call = whom.call.is_some() && !self.may_ask.one_client;
            let is_asked = !whom.version.is_modern();
            let session = whom.client.session.number;
            let opened = is_asked.then(|| state.asks.open(key.clone(), session, of_call));
            (whom, opened)
        };
        let allowed = self.policy_lets(&self.record_of(ask, &whom, 0), ask);
        if let Err(failure) = allowed {
            if let Some((count, _)) = opened {
                self.state().asks.close(&key, count);
            }
            self.complain(&failure.message);
            let message = format!(
                "the client that this is for cannot be asked for {}",
                ask.method()
            );
            return Err(RpcError::new(METHOD_NOT_FOUND, message));
        }
        let Some((count, over)) = opened else {
            return self.ask_in_answer_to(whom, (id, ask, params));
        };
        let sent = self.send_ask(frame, (id, ask, params), &whom);
        let asking = match sent {
            Ok(asking) => asking,
            Err(error) => {
                self.state().asks.close(&key, count);
                return Err(error);
            }
        };
        self.stop_clocks(whom.client.session.number);
        let record = self.record_of(ask, &whom, asking.number());
        let (session, id) = (self.clone(), id.text().to_owned());
        tokio::spawn(async move {
            session
                .wait((asking, over), whom, (ask, id), (key, count), record)
                .await;
        });
        Ok(())
    }

    /// The person whom a request is for.
    fn whom(
        &self,
        state: &ServerSessionState,
        ask: ElicitationKind,
    ) -> Result<ElicitationTarget, RpcError> {
        let calls = state
            .pending
            .iter()
            .filter_map(|(number, pending)| match pending {
                PendingReply::Call { call, total, .. } => Some(ElicitationTarget {
                    client: call.client.clone(),
                    number,
                    call: Some((call.entry.number, call.entered)),
                    // The call's own end comes first, and ends this.
                    until: *total + PATIENCE,
                    version: call.version,
                    can: call.askable(),
                    is_held: false,
                }),
                PendingReply::Held(held) => Some(ElicitationTarget {
                    client: held.client.clone(),
                    number,
                    call: Some(held.call),
                    until: held.until,
                    version: held.version,
                    can: held.can,
                    is_held: true,
                }),
                PendingReply::Internal { .. } => None,
            });
        // A call that is held is asked about already: if others are in flight, it is one of these.
        let rank = |whom: &ElicitationTarget| {
            (
                !whom.is_held,
                whom.can.can(ask),
                whom.call.map(|(_, entered)| entered),
            )
        };
        let mut calls: Vec<ElicitationTarget> = calls.collect();
        calls.sort_by_key(rank);
        if let Some(whom) = calls.pop() {
            let whose = whom.whose();
            let left = || {
                state
                    .left
                    .values()
                    .filter(|left| **left != SlotHolder::Nobody)
            };
            let is_others =
                |other: &ElicitationTarget| other.can.can(ask) && !other.whose().is_as(whose);
            if whom.can.can(ask)
                && (calls.iter().any(is_others) || left().any(|left| !left.is_as(whose)))
            {
                return Err(failed(AMBIGUOUS.to_owned()));
            }
            return Ok(whom);
        }
        let last =
            (self.may_ask.one_client || ask == ElicitationKind::Roots).then(|| state.asks.last());
        let Some(client) = last.flatten() else {
            return Err(failed(
                "no call is in flight that this could be about, so there is nobody to ask"
                    .to_owned(),
            ));
        };
        let protocol::SessionPhase::Legacy(version) = client.session.agreed() else {
            return Err(failed(
                "no call is in flight that this could be about, and the client cannot be asked without one".to_owned(),
            ));
        };
        Ok(ElicitationTarget {
            number: 0,
            call: None,
            until: Instant::now() + self.spec.limits.total,
            version,
            can: client.session.askable(),
            is_held: false,
            client,
        })
    }

    /// Sends a modern client an input request in answer to its call, which is suspended until the
    /// retry.
    fn ask_in_answer_to(
        self: &Arc<Self>,
        whom: ElicitationTarget,
        (id, ask, params): (Json<'_>, ElicitationKind, Option<Json<'_>>),
    ) -> Result<(), RpcError> {
        let how = self.wording(&whom, whom.number);
        let text = params.map_or("{}", |params| params.text());
        let edits = how.edits(
            ask,
            Json::parse(text.as_bytes()).map_err(|error| failed(error.to_string()))?,
        )?;
        let params = String::from_utf8_lossy(&edits.apply(text.as_bytes())).into_owned();
        self.may_hold(whom.number, &whom.client)?;
        let record = self.record_of(ask, &whom, whom.number);
        self.begin_record(&record, text.as_bytes())
            .map_err(|failure| failed(failure.message))?;
        let asked = SuspendedElicitation {
            id: id.text().into(),
            ask,
            params: params.into(),
            record,
        };
        self.hold(whom.number, asked).inspect_err(|_| {
            // What could not be recorded then goes nowhere either.
            let _ = self.record_of(ask, &whom, whom.number).ends(
                &self.spec.chain().recorder,
                "not asked",
                None,
            );
        })
    }

    /// The wording of a request for the person, under this number.
    fn wording(&self, whom: &ElicitationTarget, number: u64) -> protocol::Wording<'_> {
        protocol::Wording {
            server: &self.spec.id,
            client: whom.version,
            can: whom.can,
            number,
            is_exposed: self.may_ask.is_exposed && whom.client.session.only().is_none(),
        }
    }

    fn record_of(&self, ask: ElicitationKind, whom: &ElicitationTarget, request: u64) -> Record {
        Record {
            server: self.spec.id.clone(),
            method: ask.method(),
            client: whom.client.clone(),
            call: whom.call.map_or(0, |(number, _)| number),
            request,
        }
    }

    /// Makes the request fit for the client, records it and sends it.
    fn send_ask(
        self: &Arc<Self>,
        frame: &Bytes,
        (id, ask, params): (Json<'_>, ElicitationKind, Option<Json<'_>>),
        whom: &ElicitationTarget,
    ) -> Result<ClientRequest, RpcError> {
        let mut asking =
            ClientRequest::begin(&whom.client).map_err(|why| failed(why.to_string()))?;
        let number = asking.number();
        let how = self.wording(whom, number);
        let mut edits = Edits::new();
        edits.replace(id.span(), number);
        let mut token = None;
        match params {
            Some(params) => {
                edits.append_at(params.span().start, how.edits(ask, params.detached())?);
                token = params
                    .get("_meta")
                    .and_then(|meta| meta.get("progressToken"));
            }
            None => {
                how.edits(
                    ask,
                    Json::parse(b"{}").map_err(|error| failed(error.to_string()))?,
                )?;
                edits.insert(id.span().end, format!(",\"params\":{}", how.params()));
            }
        }
        let asked_for = params.map_or("", |params| params.text());
        self.begin_record(&self.record_of(ask, whom, number), asked_for.as_bytes())
            .map_err(|failure| failed(failure.message))?;
        let progress = token.map(|token| {
            let (session, token): (_, Box<str>) = (Arc::downgrade(self), token.text().into());
            let forward = move |frame: &Bytes, params: std::ops::Range<usize>| {
                if let Some(session) = session.upgrade() {
                    session.progress_of_client(frame, params, &token);
                }
            };
            Box::new(forward) as crate::relay::ClientProgress
        });
        if ask == ElicitationKind::Url
            && let Some(id) = params.and_then(|params| params.get("elicitationId")?.as_str())
        {
            self.state().asks.note_url(&id, &whom.client);
        }
        asking
            .send(frame, &edits, progress)
            .map_err(|why| failed(why.to_string()))?;
        Ok(asking)
    }

    /// True if `clients.json` lets servers ask the client of this record for something; what it
    /// does not is recorded.
    ///
    /// # Errors
    /// The rule that says no.
    pub(in crate::servers) fn policy_lets(
        &self,
        record: &Record,
        ask: ElicitationKind,
    ) -> Result<(), Failure> {
        let rights = self.spec.chain().rules.rights(&record.client);
        let allowed = rights.may_be_asked(&self.spec.id, ask);
        if allowed.is_err() {
            record.ends(&self.spec.chain().recorder, "denied", None)?;
        }
        allowed
    }

    /// Records and counts that a client is asked, before it is.
    ///
    /// # Errors
    /// It may not be.
    pub(in crate::servers) fn begin_record(
        &self,
        record: &Record,
        params: &[u8],
    ) -> Result<(), Failure> {
        record.begins(&self.spec.chain().recorder, params)?;
        self.spec.metrics.count_asked();
        Ok(())
    }

    /// Waits until a request is answered or over, and tells the server.
    async fn wait(
        self: Arc<Self>,
        (mut asking, over): (ClientRequest, oneshot::Receiver<ElicitationEnd>),
        whom: ElicitationTarget,
        (ask, id): (ElicitationKind, String),
        (key, count): (RequestId, u64),
        record: Record,
    ) {
        let answer = tokio::select! {
            biased;
            over = over => Err(over.ok()),
            answer = asking.answer(PATIENCE, whom.until) => Ok(answer),
        };
        let (outcome, answered) = match &answer {
            Ok(Ok(response)) => self.read_answer(ask, response, &id),
            Ok(Err(why)) => (why.word(), Err(failed(why.to_string()))),
            Err(Some(ElicitationEnd::TakenBack)) => {
                asking.because("the server does not want it any more");
                ("taken back", Err(failed(String::new())))
            }
            Err(Some(ElicitationEnd::CallOver)) => {
                asking.because("the call that it was about is over");
                (
                    "call over",
                    Err(failed("the call that this was about is over".to_owned())),
                )
            }
            Err(None) => {
                asking.because("the server's process ended");
                ("server gone", Err(failed(String::new())))
            }
        };
        drop(asking);
        let bytes = match (&answer, &answered) {
            (Ok(Ok(response)), Ok(_)) => response
                .outcome
                .as_ref()
                .ok()
                .map(|span| &response.frame[span.clone()]),
            _ => None,
        };
        let recorded = record.ends(&self.spec.chain().recorder, outcome, bytes);
        {
            let mut state = self.state();
            state.asks.close(&key, count);
            self.start_clocks(&mut state, whom.client.session.number);
        }
        self.attention.notify_one();
        if matches!(answer, Err(None | Some(ElicitationEnd::TakenBack))) {
            return;
        }
        let answered = match recorded {
            Ok(()) => answered,
            Err(failure) => Err(failed(failure.message)),
        };
        match (&answer, answered) {
            (Ok(Ok(response)), Ok(edits)) if self.has_room(response.frame.len()) => {
                self.show(
                    Direction::ToServer,
                    || edits.apply(&response.frame).into(),
                    None,
                );
                self.outbox.push_edited(&response.frame, &edits);
            }
            (_, Ok(_)) => {
                let error = failed("the server does not read its standard input".to_owned());
                self.push(&AnswerBody::Error(error).to_message(Some(&id)));
            }
            (_, Err(error)) => {
                debug!(
                    server = &*self.spec.id,
                    pid = self.pid,
                    "{}: {}",
                    ask.method(),
                    error.message
                );
                self.push(&AnswerBody::Error(error).to_message(Some(&id)));
            }
        }
    }

    /// The outcome of a request by the client's answer, and the edits that the answer needs for the
    /// server.
    fn read_answer(
        &self,
        ask: ElicitationKind,
        response: &ClientResponse,
        id: &str,
    ) -> (&'static str, Result<Edits, RpcError>) {
        let mut edits = Edits::new();
        edits.replace(response.id.clone(), id.as_bytes());
        let result = match &response.outcome {
            Ok(span) => {
                Json::part(&response.frame, span.clone()).map(|result| (result, span.start))
            }
            Err(_) => return ("error", Ok(edits)),
        };
        let Some((result, at)) = result else {
            return (
                "unreadable",
                Err(failed("the client's answer holds no value".to_owned())),
            );
        };
        match protocol::read_response(ask, result, self.version()) {
            Ok((said, more)) => {
                edits.append_at(at, more);
                (ClientReply::name(said), Ok(edits))
            }
            Err(why) => ("unreadable", Err(failed(why))),
        }
    }

    fn has_room(&self, length: usize) -> bool {
        self.outbox.queued() <= MAX_UNREAD && self.outbox.make_room(length)
    }

    /// While a person is asked, no time runs for the calls of the client that it is about, but for
    /// all that they have.
    fn stop_clocks(&self, session: u64) {
        for pending in self.state().pending.values_mut() {
            if let PendingReply::Call {
                call,
                deadline,
                total,
            } = pending
                && call.client.session.number == session
            {
                *deadline = *total;
            }
        }
    }

    /// The client was asked: time runs again, unless it is asked something else.
    fn start_clocks(&self, state: &mut ServerSessionState, session: u64) {
        if state.asks.waits_for(session) {
            return;
        }
        let again = Instant::now() + self.spec.limits.call;
        for pending in state.pending.values_mut() {
            if let PendingReply::Call { call, deadline, .. } = pending
                && call.client.session.number == session
            {
                *deadline = again;
            }
        }
    }

    /// A call is over: so is what was asked about it, unless the same client has another one here.
    pub(in crate::servers) fn settle_asks(&self, state: &mut ServerSessionState) {
        if state.asks.is_empty() {
            return;
        }
        let sessions: Vec<u64> = state
            .pending
            .iter()
            .filter_map(|(_, pending)| match pending {
                PendingReply::Call { call, .. } => Some(call.client.session.number),
                PendingReply::Held(_) | PendingReply::Internal { .. } => None,
            })
            .collect();
        state.asks.settle(|session| sessions.contains(&session));
    }

    /// Takes a notification that is about what the server asked. `false`: it is about something
    /// else.
    pub(in crate::servers) fn told_of_asks(
        &self,
        frame: &Bytes,
        method: &str,
        params: Option<Json<'_>>,
    ) -> bool {
        match method {
            "notifications/cancelled" => {
                let ours = params.filter(|params| params.ambiguous(&["requestId"]).is_none());
                if let Some(id) = ours.and_then(|params| params.get("requestId"))
                    && !self.takes_back(id)
                {
                    self.state().asks.take_back(&RequestId::of(id));
                }
                true
            }
            "notifications/elicitation/complete" => {
                let ours = params.filter(|params| params.ambiguous(&["elicitationId"]).is_none());
                if let Some(id) = ours.and_then(|params| params.get("elicitationId")?.as_str()) {
                    self.complete_url(frame, &id);
                }
                true
            }
            _ => false,
        }
    }

    fn complete_url(&self, frame: &Bytes, id: &str) {
        let client = self.state().asks.complete_url(id);
        // A client that does not read is told nothing that it can do without.
        if let Some(client) = client.filter(|client| client.outbox.over_since().is_none()) {
            client.outbox.push(frame);
        }
    }

    /// Passes a client's progress on to the server, whose `token` it was.
    fn progress_of_client(&self, frame: &Bytes, params: std::ops::Range<usize>, token: &str) {
        if let Some(object) = Json::part(frame, params.clone())
            && self.has_room(frame.len())
        {
            let mut edits = Edits::new();
            edits.append_at(params.start, protocol::progress_edits(object, token));
            self.show(Direction::ToServer, || edits.apply(frame).into(), None);
            self.outbox.push_edited(frame, &edits);
        }
    }

    /// This client uses the process: it is the one to ask where no call is in flight.
    pub(in crate::servers) fn used_by(&self, client: &Arc<Client>) {
        if self.may_ask.what != Askable::NOTHING {
            self.state().asks.used_by(client);
        }
    }

    /// Passes on that a client's roots are others now, if the server was told that it may ask for
    /// them.
    pub(in crate::servers) fn roots_changed(&self, client: &Arc<Client>, frame: &Bytes) {
        if self.may_ask.what.tells_roots()
            && !self.version().is_modern()
            && self.has_room(frame.len())
        {
            self.used_by(client);
            self.show(Direction::ToServer, || frame.clone(), None);
            self.outbox.push(frame);
        }
    }
}
