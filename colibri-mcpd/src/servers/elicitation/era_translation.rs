//! A modern server asks a legacy client: what its answer asks for becomes requests to the client,
//! and the client's answers another call of the server, as often as it asks (2026-07-28,
//! basic/patterns/mrtr).

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::session::{ServerSession, SessionEvent};
use crate::relay::record::ClientRequestRecord;
use crate::relay::request_state::{ResumedCall, RetryPurpose};
use crate::relay::{
    Call, CallOutcome, ClientRequest, ClientResponse, NoResponse, PATIENCE, SuspendedCall,
};
use colibri_protocol::input::{self, InputRequired};
use colibri_protocol::{self as protocol, Code, ElicitationKind, Failure, Method, Version};
use colibri_wire::{Edits, Json};

/// The number of requests that a server may make before it answers.
const MAX_ROUNDS: u32 = 10;

/// One thing that the client is asked.
struct TranslatedRequest {
    /// The server's key of it, as it was written.
    key: String,
    ask: ElicitationKind,
    record: ClientRequestRecord,
    is_over: bool,
}

impl ServerSession {
    /// Sends the requests in a server's answer to the client of the call, and calls the server
    /// again with the client's answers.
    ///
    /// # Errors
    /// The call, and why the client cannot be asked.
    pub(in crate::servers) fn bridge(
        self: &Arc<Self>,
        call: Box<Call>,
        result: Json<'_>,
    ) -> Result<(), (Box<Call>, Failure)> {
        let asked = input::read_input_required(result)
            .and_then(|required| Ok((self.ask_legacy(&call, &required)?, required)));
        let (asked, required) = match asked {
            Ok(asked) => asked,
            Err(failure) => return Err((call, failure.of_server(&*self.spec.id))),
        };
        let state = required
            .state
            .map(|state| state.text().to_owned())
            .unwrap_or_default();
        let until = call.entered + self.spec.limits.total;
        let held = SuspendedCall::hold(self.spec.chain(), call);
        let session = self.clone();
        tokio::spawn(async move {
            let responses = session.answers(asked, &held, until).await;
            let Some(mut call) = held.take() else { return };
            let responses = match responses {
                Ok(responses) => responses,
                Err(failure) => {
                    let outcome = CallOutcome::Failed(failure.of_server(&*session.spec.id));
                    return session.spec.chain().finish(vec![(call, outcome)]);
                }
            };
            if !call.client.unsent(&call.id) {
                return session
                    .spec
                    .chain()
                    .finish(vec![(call, CallOutcome::Cancelled)]);
            }
            let rounds = call
                .entry
                .resumes
                .as_ref()
                .map_or(0, |resumed| resumed.rounds)
                + 1;
            call.entry.resumes = Some(Box::new(ResumedCall {
                kind: RetryPurpose::Server,
                record: call.entry.number,
                inner: state.into_bytes(),
                responses: Some(responses.into()),
                rounds,
            }));
            session.notify(SessionEvent::InputComplete(call));
        });
        Ok(())
    }

    /// Sends the client of a call all requests at once.
    fn ask_legacy(
        self: &Arc<Self>,
        call: &Call,
        required: &InputRequired<'_>,
    ) -> Result<Vec<(TranslatedRequest, ClientRequest)>, Failure> {
        if !call.method.is_some_and(Method::may_ask_back) {
            let message = "the server asks back where a server must not (input_required)";
            return Err(self.spec.failure(Code::ServerAnswerInvalid, message));
        }
        if call
            .entry
            .resumes
            .as_ref()
            .is_some_and(|resumed| resumed.rounds >= MAX_ROUNDS)
        {
            let message = format!("the server asked back {MAX_ROUNDS} times, and again");
            return Err(self.spec.failure(Code::AskFailed, message));
        }
        let can = call.askable();
        let mut asked = Vec::new();
        for request in &required.requests {
            self.may_be_asked(call, request.ask)?;
            let asking = ClientRequest::begin(&call.client)
                .map_err(|why| self.spec.failure(Code::AskFailed, why.to_string()))?;
            let wording = protocol::Wording {
                server: &self.spec.id,
                client: call.version,
                can,
                number: asking.number(),
                is_exposed: self.may_ask.is_exposed && call.client.session.only().is_none(),
            };
            let params = request.params.map_or("{}", |params| params.text());
            let object = Json::part(params.as_bytes(), 0..params.len());
            let object = object.ok_or_else(|| {
                self.spec
                    .failure(Code::ServerAnswerInvalid, "a request without a value")
            })?;
            let edits = wording
                .edits(request.ask, object)
                .map_err(|error| self.spec.failure(Code::AskFailed, error.message))?;
            let message = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"{}\",\"params\":{}}}",
                asking.number(),
                request.ask.method(),
                String::from_utf8_lossy(&edits.apply(params.as_bytes()))
            );
            let record = ClientRequestRecord {
                server: self.spec.id.clone(),
                method: request.ask.method(),
                client: call.client.clone(),
                call: call.entry.number,
                request: asking.number(),
            };
            let question = TranslatedRequest {
                key: request.key.text().to_owned(),
                ask: request.ask,
                record,
                is_over: false,
            };
            asked.push((question, asking, Bytes::from(message), params));
        }
        for (question, _, _, params) in &asked {
            self.begin_record(&question.record, params.as_bytes())?;
        }
        let mut sent = Vec::new();
        for (question, mut asking, message, _) in asked {
            let is_sent = asking.send(&message, &Edits::new(), None);
            is_sent.map_err(|why| self.spec.failure(Code::AskFailed, why.to_string()))?;
            sent.push((question, asking));
        }
        Ok(sent)
    }

    /// Waits until everything is answered: `inputResponses`.
    async fn answers(
        &self,
        asked: Vec<(TranslatedRequest, ClientRequest)>,
        held: &SuspendedCall,
        until: Instant,
    ) -> Result<String, Failure> {
        let mut waiting = JoinSet::new();
        let mut questions = Vec::new();
        for (index, (question, mut asking)) in asked.into_iter().enumerate() {
            waiting.spawn(async move { (index, asking.answer(PATIENCE, until).await) });
            questions.push(question);
        }
        let mut answers: Vec<String> = Vec::new();
        let outcome = loop {
            let next = tokio::select! {
                biased;
                () = held.over() => break Err(self.spec.failure(Code::AskFailed, "the call is over")),
                next = waiting.join_next() => next,
            };
            let Some(Ok((index, answer))) = next else {
                break Ok(());
            };
            let question = &mut questions[index];
            match self.response(question, answer) {
                Ok(answer) => answers.push(answer),
                Err(failure) => break Err(failure),
            }
        };
        // What is not answered is taken back from the client.
        drop(waiting);
        for question in questions.iter().filter(|question| !question.is_over) {
            // The call ends with a failure anyway.
            let _ = question
                .record
                .ends(&self.spec.chain().recorder, "call over", None);
        }
        outcome.map(|()| format!("{{{}}}", answers.join(",")))
    }

    /// The member of `inputResponses` that a client's answer becomes.
    fn response(
        &self,
        question: &mut TranslatedRequest,
        answer: Result<ClientResponse, NoResponse>,
    ) -> Result<String, Failure> {
        question.is_over = true;
        let method = question.ask.method();
        let failed = |why: String| {
            self.spec
                .failure(Code::AskFailed, format!("{method}: {why}"))
        };
        let read = match &answer {
            Err(why) => Err((why.word(), failed(why.to_string()))),
            Ok(response) => match &response.outcome {
                Err(_) => Err((
                    "error",
                    failed("the client answered with an error".to_owned()),
                )),
                Ok(span) => match Json::part(&response.frame, span.clone()) {
                    None => Err((
                        "unreadable",
                        failed("the client's answer holds no value".to_owned()),
                    )),
                    Some(result) => {
                        match protocol::read_response(question.ask, result, Version::LATEST) {
                            Ok((said, _)) => Ok((said.name(), result.text())),
                            Err(why) => Err(("unreadable", failed(why))),
                        }
                    }
                },
            },
        };
        let (outcome, bytes) = match &read {
            Ok((outcome, text)) => (*outcome, Some(text.as_bytes())),
            Err((outcome, _)) => (*outcome, None),
        };
        question
            .record
            .ends(&self.spec.chain().recorder, outcome, bytes)?;
        match read {
            Ok((_, text)) => Ok(format!("{}:{text}", question.key)),
            Err((_, failure)) => Err(failure),
        }
    }
}
