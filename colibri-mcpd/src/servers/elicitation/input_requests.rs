//! Answers that ask for something: what a modern client is told of them, and what of its retry is
//! recorded.

use std::sync::Arc;
use std::time::SystemTime;

use super::super::session::ServerSession;
use crate::relay::Call;
use crate::relay::record::ClientRequestRecord as Record;
use crate::relay::request_state::{self, ResumedCall, RetryPurpose};
use colibri_protocol::input::{self, InputQuestion, InputRequest, REQUESTS_LIMIT};
use colibri_protocol::rpc_error::URL_ELICITATION_REQUIRED;
use colibri_protocol::{self as protocol, Code, ElicitationKind, Failure, Method};
use colibri_wire::{Edits, Json};

impl ServerSession {
    /// A modern server asks for input before it answers. The edits with which a modern client gets
    /// that: what the server wants to be told again is sealed for the retry.
    ///
    /// # Errors
    /// Why the client does not get it.
    pub(in crate::servers) fn asked_back(
        &self,
        call: &Call,
        result: Json<'_>,
    ) -> Result<Edits, Failure> {
        let required = input::read_input_required(result)?;
        if !call.method.is_some_and(Method::may_ask_back) {
            let message = "the server asks back where a server must not (input_required)";
            return Err(self.spec.failure(Code::ServerAnswerInvalid, message));
        }
        let questions = self.questions(call, &required.requests)?;
        let inner = required
            .state
            .map(|state| state.text())
            .unwrap_or_default()
            .as_bytes();
        let until = SystemTime::now() + request_state::TTL;
        let state = if call.entry.allowed.is_some() {
            // What a person allowed is one call, and not one for each time that its retry is sent.
            let ticket = self.spec.chain().confirmed(call);
            let ticket =
                ticket.map_err(|why| self.spec.failure(Code::LimitUser, why.to_string()))?;
            self.spec.chain().seal(
                RetryPurpose::Confirmed,
                call,
                &[&ticket, inner].concat(),
                until,
            )
        } else {
            self.spec
                .chain()
                .seal(RetryPurpose::Server, call, inner, until)
        };
        let mut edits = input::wrapped_state_edits(result, &state);
        edits.append_at(0, questions);
        Ok(edits)
    }

    /// The requests of a modern server in an answer, of a call or of a task: allowed, recorded, and
    /// named to the person.
    ///
    /// # Errors
    /// Why the client does not get it.
    pub(in crate::servers) fn questions(
        &self,
        call: &Call,
        requests: &[InputRequest<'_>],
    ) -> Result<Edits, Failure> {
        for request in requests {
            self.may_be_asked(call, request.ask)?;
        }
        for request in requests {
            let params = request
                .params
                .map(|params| params.text())
                .unwrap_or_default();
            let record = self.record_of_question(call, request.ask.method());
            self.begin_record(&record, params.as_bytes())?;
        }
        let (wording, mut edits) = (self.wording_of_answer(call), Edits::new());
        for request in requests {
            if let Some(params) = request.params {
                let named = wording.edits(request.ask, params.detached());
                let named = named
                    .map_err(|error| self.spec.failure(Code::ServerAnswerInvalid, error.message))?;
                edits.append_at(params.span().start, named);
            }
        }
        Ok(edits)
    }

    /// The name of the server for the person behind a modern client, in an answer.
    fn wording_of_answer(&self, call: &Call) -> protocol::Wording<'_> {
        protocol::Wording {
            server: &self.spec.id,
            client: call.version,
            can: call.askable(),
            number: 0,
            is_exposed: self.may_ask.is_exposed && call.client.session.only().is_none(),
        }
    }

    /// A legacy server wants the person to visit URLs before the call is made again (2025-11-25,
    /// client/elicitation, "URL Elicitation Required Error"): what a modern client is answered.
    /// `None`: it answered otherwise.
    pub(in crate::servers) fn url_required(
        &self,
        call: &Call,
        error: Json<'_>,
    ) -> Option<Result<Vec<u8>, Failure>> {
        let is_required = error.get("code")?.text() == URL_ELICITATION_REQUIRED.to_string();
        let is_asked = call.version.is_modern() && call.method.is_some_and(Method::may_ask_back);
        (is_required && is_asked).then(|| self.ask_for_urls(call, error))
    }

    /// A server wants the person behind a legacy client to visit URLs before the call is made
    /// again: the edits that name it to the person. Where a visit is over the client is told.
    ///
    /// # Errors
    /// The server may not ask for that.
    pub(in crate::servers) fn urls_named(
        &self,
        call: &Call,
        error: Json<'_>,
    ) -> Result<Edits, Failure> {
        let is_required = error
            .get("code")
            .is_some_and(|code| code.text() == URL_ELICITATION_REQUIRED.to_string());
        if !is_required || call.version.is_modern() {
            return Ok(Edits::new());
        }
        self.may_ask_for(call, ElicitationKind::Url)?;
        for elicitation in protocol::elicitations(error) {
            let record = self.record_of_question(call, ElicitationKind::Url.method());
            self.begin_record(&record, elicitation.text().as_bytes())?;
            if let Some(id) = elicitation.get("elicitationId").and_then(|id| id.as_str()) {
                self.state().asks.note_url(&id, &call.client);
            }
        }
        Ok(self.wording_of_answer(call).url_error_edits(error))
    }

    fn ask_for_urls(&self, call: &Call, error: Json<'_>) -> Result<Vec<u8>, Failure> {
        self.may_be_asked(call, ElicitationKind::Url)?;
        let wording = self.wording_of_answer(call);
        let invalid = |why: String| {
            let message =
                format!("the server's error {URL_ELICITATION_REQUIRED} cannot be passed on: {why}");
            self.spec.failure(Code::ServerAnswerInvalid, message)
        };
        let elicitations = error.get("data").and_then(|data| data.get("elicitations"));
        let mut worded = Vec::new();
        for elicitation in elicitations.iter().flat_map(|all| all.elements()) {
            if worded.len() >= REQUESTS_LIMIT {
                return Err(invalid(format!("it names over {REQUESTS_LIMIT} URLs")));
            }
            let own = elicitation.detached();
            let edits = wording
                .edits(ElicitationKind::Url, own)
                .map_err(|error| invalid(error.message))?;
            let params = String::from_utf8_lossy(&edits.apply(own.text().as_bytes())).into_owned();
            worded.push(((worded.len() + 1).to_string(), own.text(), params));
        }
        if worded.is_empty() {
            return Err(invalid("it names no URL".to_owned()));
        }
        for (_, own, _) in &worded {
            let record = self.record_of_question(call, ElicitationKind::Url.method());
            self.begin_record(&record, own.as_bytes())?;
        }
        let questions: Vec<_> = worded
            .iter()
            .map(|(key, _, params)| InputQuestion {
                key,
                method: ElicitationKind::Url.method(),
                params: Some(params),
            })
            .collect();
        let until = SystemTime::now() + request_state::TTL;
        let state = self
            .spec
            .chain()
            .seal(RetryPurpose::Again, call, b"", until);
        Ok(input::input_required_result(
            call.version,
            &self.spec.id,
            &questions,
            &state,
        ))
    }

    fn may_ask_for(&self, call: &Call, ask: ElicitationKind) -> Result<(), Failure> {
        if self.may_ask.in_answer.can(ask) {
            let record = self.record_of_question(call, ask.method());
            return self.policy_lets(&record, ask);
        }
        let message = format!("the server may not ask for {}", ask.method());
        let rule = self.spec.entry.may_ask_place.to_string();
        Err(self.spec.failure(Code::PolicyDenied, message).by_rule(rule))
    }

    /// True if the client of a call may and can be asked for this.
    ///
    /// # Errors
    /// Why not.
    pub(in crate::servers) fn may_be_asked(
        &self,
        call: &Call,
        ask: ElicitationKind,
    ) -> Result<(), Failure> {
        self.may_ask_for(call, ask)?;
        if !call.askable().can(ask) {
            let message = format!(
                "the server asks for {}, which the client did not declare it can be asked for: {}",
                ask.method(),
                ask.required()
            );
            return Err(self.spec.failure(Code::AskFailed, message));
        }
        Ok(())
    }

    /// Records what the retry of a call says to its server, before it goes there.
    ///
    /// # Errors
    /// It may not go there.
    pub(in crate::servers) fn record_responses(
        &self,
        call: &Call,
        resumed: &ResumedCall,
    ) -> Result<(), Failure> {
        let is_answered = matches!(resumed.kind, RetryPurpose::Held | RetryPurpose::Confirm);
        if is_answered || !call.version.is_modern() {
            return Ok(());
        }
        let params = call.parts.params.clone();
        let params = params.and_then(|params| Json::part(&call.frame, params));
        let responses = params.and_then(|params| params.get("inputResponses"));
        for response in responses
            .into_iter()
            .flat_map(|responses| responses.members())
        {
            let action = response
                .value
                .get("action")
                .and_then(|action| action.as_str());
            let (method, outcome) = match action.as_deref() {
                Some(action @ ("accept" | "decline" | "cancel")) => (ElicitationKind::Form, action),
                Some(_) => (ElicitationKind::Form, "unreadable"),
                None if response.value.get("roots").is_some() => (ElicitationKind::Roots, "answer"),
                None => (ElicitationKind::Sampling, "answer"),
            };
            let record = self.record_of_question(call, method.method());
            record.ends(
                &self.spec.chain().recorder,
                outcome,
                Some(response.value.text().as_bytes()),
            )?;
        }
        Ok(())
    }

    fn record_of_question(&self, call: &Call, method: &'static str) -> Record {
        Record {
            server: Arc::clone(&self.spec.id),
            method,
            client: call.client.clone(),
            call: call.entry.number,
            request: 0,
        }
    }
}
