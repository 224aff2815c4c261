//! Requests to a server process, and their answers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::elicitation::exclusive_slots::SlotHolder;
use super::elicitation::suspension::EXPIRED;
use super::forward;
use super::session::{
    CallFailure, MAX_UNREAD, OwnReply, PendingReply, ServerSession, ServerSessionState, SessionEnd,
    SessionEvent,
};
use super::tap::Direction;
use crate::relay::{Call, CallOutcome, CancelReason, ServerAnswer};
use colibri_protocol::extensions;
use colibri_protocol::input::read_input_requests;
use colibri_protocol::tasks::{self, UpstreamTask};
use colibri_protocol::{self as protocol, Code, Failure, FailureCause, Method, Route, upstream};
use colibri_wire::{Edits, Json};

/// The most calls that are over and unanswered that are remembered of a process; of more, the
/// latest.
const MAX_LEFT: usize = 1024;

impl ServerSession {
    /// Sends a call. It is given back if the process takes no more. What is about a task that it
    /// has it takes as long as it is there.
    ///
    /// # Errors
    /// The call, if the process takes none any more.
    pub fn send(self: &Arc<Self>, call: Box<Call>) -> Result<(), Box<Call>> {
        let is_about_task = call.method.map(Method::route) == Some(Route::Task);
        if let Some(resumed) = &call.entry.resumes
            && let Err(failure) = self.record_responses(&call, resumed)
        {
            self.spec
                .chain()
                .finish(vec![(call, CallOutcome::Failed(failure))]);
            return Ok(());
        }
        let mut state = self.state();
        if state.draining && !is_about_task || state.ending.is_some() {
            return Err(call);
        }
        let against = if self.outbox.queued() > MAX_UNREAD {
            Some("the server does not read its standard input")
        } else if !self.outbox.make_room(call.frame.len()) {
            Some(
                "the daemon has no room for the call: too much is queued for this server, or by its user",
            )
        } else {
            None
        };
        if let Some(against) = against {
            drop(state);
            let failure = Failure::new(Code::IntegrationUnavailable, against);
            self.spec.chain().finish(vec![(
                call,
                CallOutcome::Failed(failure.of_server(&*self.spec.id)),
            )]);
            return Ok(());
        }
        let Some(number) = state.pending.reserve() else {
            // It has answered too much, or too little: whoever asks for a process gets another one.
            state.draining = true;
            return Err(call);
        };
        if !call.client.sent(&call.id, self.clone(), number) {
            state.pending.give_back(number);
            drop(state);
            self.spec
                .chain()
                .finish(vec![(call, CallOutcome::Cancelled)]);
            return Ok(());
        }
        self.level_for(&mut state, &call);
        let name = call.target.description().own_name.as_deref();
        let edits = forward::request(&call, number, state.version, name, self.may_ask.in_answer);
        let now = Instant::now();
        // The lock is held while the frame is queued: a cancellation that finds the call pending
        // comes after it.
        let whole = || edits.apply(&call.frame).into();
        self.show(Direction::ToServer, whole, Some((number, &call)));
        let own = (self.spec.entry.ssh())
            .and_then(|_| self.spec.chain().recorder.reference(call.entry.number));
        let queued = match own {
            // The other host's record names ours.
            Some(own) => self
                .outbox
                .push(&own.put_in_request(&edits.apply(&call.frame))),
            None => self.outbox.push_edited(&call.frame, &edits),
        };
        if !queued {
            // Its writer has ended, so it takes nothing any more: whoever asks for a process gets
            // another one.
            state.draining = true;
            state.pending.give_back(number);
            call.client.unsent(&call.id);
            return Err(call);
        }
        let deadline = now + self.spec.limits.call;
        // The time of a call that is made again, for what its server asked, began with its first
        // time.
        let again = call
            .entry
            .resumes
            .as_ref()
            .is_some_and(|resumed| resumed.rounds > 0);
        let total = if again { call.entered } else { now } + self.spec.limits.total;
        state.pending.put(
            number,
            PendingReply::Call {
                call,
                deadline,
                total,
            },
        );
        Ok(())
    }

    /// Sends the server a request of our own.
    ///
    /// # Errors
    /// The process is gone, or does not answer in time.
    pub async fn ask(
        &self,
        message: impl FnOnce(u64) -> Vec<u8>,
        limit: Duration,
        code: Code,
    ) -> Result<OwnReply, Failure> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            if let Some(end) = &state.ending {
                return Err(self.unavailable(end));
            }
            let Some(number) = state.pending.reserve() else {
                return Err(self
                    .spec
                    .failure(Code::IntegrationUnavailable, "too much is in flight"));
            };
            self.push(&message(number));
            state.pending.put(
                number,
                PendingReply::Internal {
                    answer: sender,
                    deadline: Instant::now() + limit,
                },
            );
        }
        self.attention.notify_one();
        match receiver.await {
            Ok(Err(failure)) if failure.code == Code::TimeoutCall => Err(Failure {
                code,
                message: format!("no answer within {} ms", limit.as_millis()),
                ..failure
            }),
            Ok(outcome) => outcome,
            Err(_) => Err(self
                .spec
                .failure(Code::ServerDied, "the server's process ended")),
        }
    }

    /// Sends the server a request whose answer, if one comes, is ignored.
    pub(crate) fn ask_without_answer(&self, message: impl FnOnce(u64) -> Vec<u8>) {
        let mut state = self.state();
        if let Some(number) = state.pending.reserve() {
            self.push(&message(number));
            state.pending.give_back(number);
        }
    }

    /// Takes out a call whose answer is not waited for any more: its server may still be at it.
    pub(super) fn leave(
        &self,
        state: &mut ServerSessionState,
        number: u64,
    ) -> Option<PendingReply> {
        let pending = state.pending.remove(number)?;
        let whose = match &pending {
            PendingReply::Call { call, .. } => SlotHolder::of(call, self.may_ask.what),
            PendingReply::Held(_) => SlotHolder::Call,
            PendingReply::Internal { .. } => return Some(pending),
        };
        state.left.insert(number, whose);
        if state.left.len() > MAX_LEFT {
            state.left.pop_first();
        }
        Some(pending)
    }

    /// True if the server may still be at a call that is over, about which somebody else would be
    /// asked.
    pub(super) fn has_left(&self, whose: SlotHolder) -> bool {
        self.state().left.values().any(|left| !left.is_as(whose))
    }

    /// Answers the calls whose time is up.
    pub(super) fn expire(self: &Arc<Self>) {
        let now = Instant::now();
        let (mut over, mut given_up) = (Vec::new(), Vec::new());
        let mut state = self.state();
        let late: Vec<u64> = state
            .pending
            .iter()
            .filter(|(_, pending)| pending.deadline() <= now)
            .map(|(number, _)| number)
            .collect();
        if late.is_empty() {
            return;
        }
        for number in late {
            match self.leave(&mut state, number) {
                Some(PendingReply::Call {
                    call,
                    deadline,
                    total,
                }) => {
                    // A daemon that was stopped finds both passed: the one that came first ended
                    // the call.
                    let (code, limit, name) = if total <= deadline {
                        (
                            Code::TimeoutTotal,
                            self.spec.limits.total,
                            "total_timeout_ms",
                        )
                    } else {
                        (Code::TimeoutCall, self.spec.limits.call, "timeout_ms")
                    };
                    let message = format!("no answer within {} ms ({name})", limit.as_millis());
                    self.push(&upstream::cancelled(number, &message));
                    over.push((call, self.spec.failure(code, message)));
                }
                Some(PendingReply::Held(held)) => {
                    self.push(&upstream::cancelled(number, EXPIRED));
                    given_up.push(held);
                }
                Some(PendingReply::Internal { answer, .. }) => {
                    let _ = answer.send(Err(self
                        .spec
                        .failure(Code::TimeoutCall, "no answer in time")));
                }
                None => {}
            }
            // Only now: a process that has long been idle must not seem to have become so just now.
            self.rest(&mut state);
        }
        drop(state);
        let over = over.into_iter().filter_map(|(call, failure)| {
            let call = self.retry(call, FailureCause::Ours(failure.code)).err()?;
            Some((call, CallOutcome::Failed(failure)))
        });
        self.spec.chain().finish(over.collect());
        given_up
            .into_iter()
            .for_each(|held| self.end_held(*held, EXPIRED, None));
    }

    /// Answers everything in flight with the process's end; what we asked ourselves, with this
    /// code.
    pub(super) fn fail_all(self: &Arc<Self>, reason: &str, ours: Code) {
        let mut state = self.state();
        state
            .ending
            .get_or_insert(SessionEnd::Broken(reason.to_owned()));
        let pending = state.pending.take_all();
        state.asks.end();
        drop(state);
        for pending in pending {
            let failure = |message: String| self.spec.failure(Code::ServerDied, message);
            match pending {
                PendingReply::Call { call, .. } => {
                    if let Err(call) = self.retry(call, FailureCause::Ours(Code::ServerDied)) {
                        let failure = failure(format!("the call was lost: {reason}"));
                        self.spec
                            .chain()
                            .finish(vec![(call, CallOutcome::Failed(failure))]);
                    }
                }
                PendingReply::Held(held) => {
                    let lost = failure(format!(
                        "the call was lost while its client was asked: {reason}"
                    ));
                    self.end_held(*held, reason, Some(&lost));
                }
                PendingReply::Internal { answer, .. } => {
                    drop(answer.send(Err(self.spec.failure(ours, reason))))
                }
            }
        }
    }

    /// Handles an answer of the server. `is_late`: it came while its call was suspended, so no
    /// attempt follows.
    pub(super) fn answer(
        self: &Arc<Self>,
        frame: Bytes,
        number: Option<(Range<usize>, u64)>,
        outcome: Result<Json<'_>, Json<'_>>,
        is_late: bool,
        finished: &mut Vec<(Box<Call>, CallOutcome)>,
    ) {
        let Some((id, number)) = number else {
            self.spec.metrics.count_stray();
            self.complain("answered under an id that is not ours");
            return;
        };
        let mut state = self.state();
        if let Some(PendingReply::Held(held)) = state.pending.get_mut(number) {
            return self.keep_answer(held, frame);
        }
        let Some(pending) = state.pending.remove(number) else {
            if state.watching.is_over(number, outcome.err()) {
                drop(state);
                if !is_late {
                    self.notify(SessionEvent::SubscriptionEnded);
                }
                return;
            }
            // The answer to a call that was cancelled or timed out may well come late; only ids
            // never given are odd.
            let given = state.pending.was_given(number);
            state.left.remove(&number);
            drop(state);
            self.spec.metrics.count_stray();
            if !given {
                self.complain("answered under an id that was never asked");
            }
            return;
        };
        let version = state.version;
        self.rest(&mut state);
        drop(state);
        match pending {
            PendingReply::Call { mut call, .. } => {
                let inspect = |result| protocol::inspect_result(result, version);
                let mut inspected = outcome.map(inspect).unwrap_or_default();
                if let Ok(result) = outcome
                    && (inspected.is_task || call.method == Some(Method::TasksGet))
                {
                    match self.task_edits(&call, result, inspected.is_task) {
                        Ok(edits) => inspected.edits.append_at(0, edits),
                        Err(failure) => return finished.push((call, CallOutcome::Failed(failure))),
                    }
                }
                if let Err(error) = outcome
                    && let Some(asked) = self.url_required(&call, error)
                {
                    let outcome = match asked {
                        Ok(result) => CallOutcome::result(result),
                        Err(failure) => CallOutcome::Failed(failure),
                    };
                    return finished.push((call, outcome));
                }
                if let Err(error) = outcome
                    && !is_late
                    && let Some(code) = error.get("code").and_then(|code| code.text().parse().ok())
                {
                    match self.retry(call, FailureCause::Servers(code)) {
                        Ok(()) => return,
                        Err(back) => call = back,
                    }
                }
                if let Err(error) = outcome {
                    match self.urls_named(&call, error) {
                        Ok(edits) => inspected.edits.append_at(0, edits),
                        Err(failure) => return finished.push((call, CallOutcome::Failed(failure))),
                    }
                }
                if inspected.asks
                    && let Ok(result) = outcome
                {
                    if !call.version.is_modern() && !is_late {
                        if let Err((call, failure)) = self.bridge(call, result) {
                            finished.push((call, CallOutcome::Failed(failure)));
                        }
                        return;
                    }
                    match self.asked_back(&call, result) {
                        Ok(edits) => inspected.edits.append_at(0, edits),
                        Err(failure) => {
                            return finished.push((
                                call,
                                CallOutcome::Failed(failure.of_server(&*self.spec.id)),
                            ));
                        }
                    }
                }
                if inspected.says_error
                    && !is_late
                    && let Ok(result) = outcome
                    && let Some(reported) = call.reported_failure(result)
                {
                    let answers = call.target.description().answers();
                    let wait = answers
                        .and_then(|answers| answers.next_attempt(&reported, call.attempt.number));
                    match self.retry(
                        call,
                        CallFailure::Reported {
                            failed: reported.attempt(),
                            wait,
                        },
                    ) {
                        Ok(()) => return,
                        Err(back) => call = back,
                    }
                }
                let outcome = spans(outcome);
                let is_interim = inspected.asks || inspected.is_task;
                let edits = inspected.edits;
                finished.push((
                    call,
                    CallOutcome::Relayed(ServerAnswer {
                        frame,
                        id,
                        outcome,
                        says_error: inspected.says_error,
                        edits: (!edits.is_empty()).then(|| Box::new(edits)),
                        version,
                        is_interim,
                    }),
                ));
            }
            // Its answer is kept above.
            PendingReply::Held(_) => {}
            PendingReply::Internal { answer, .. } => {
                let outcome = spans(outcome);
                drop(answer.send(Ok(OwnReply { frame, outcome })));
            }
        }
    }

    /// The edits that put our id of a task in place of the server's.
    ///
    /// # Errors
    /// What is answered instead of the task.
    fn task_edits(
        self: &Arc<Self>,
        call: &Call,
        result: Json<'_>,
        is_new: bool,
    ) -> Result<Edits, Failure> {
        let invalid = |why: String| self.spec.failure(Code::ServerAnswerInvalid, why);
        let task = UpstreamTask::read(result).map_err(|error| invalid(error.to_string()))?;
        if is_new {
            let params = call.parts.params.clone();
            if call.method != Some(Method::ToolsCall)
                || !tasks::is_declared(params.and_then(|params| Json::part(&call.frame, params)))
            {
                self.ask_without_answer(|number| upstream::cancel_task(number, &task.id));
                let why = "the server answered with a task, which this request did not allow; it was told to cancel it";
                return Err(invalid(why.to_owned()));
            }
            if let Some(answers) = call
                .target
                .description()
                .answers()
                .filter(|answers| answers.checks_results())
            {
                self.ask_without_answer(|number| upstream::cancel_task(number, &task.id));
                return Err(answers.refuse_task().of_server(&*self.spec.id));
            }
        }
        let process = (self.clone() as Arc<_>, self.number, &self.spec.id);
        match self.spec.context.tasks().seen(
            process,
            call.client.caller.uid,
            &call.target.description().operation,
            &task,
        ) {
            Ok(ours) => {
                let mut edits = task.edits(&ours);
                if let Some(requests) = result.get("inputRequests") {
                    let requests = read_input_requests(requests)?;
                    edits.append_at(0, self.questions(call, &requests)?);
                }
                Ok(edits)
            }
            Err(most) => {
                self.ask_without_answer(|number| upstream::cancel_task(number, &task.id));
                let why = format!(
                    "{most} tasks of this user are open, which is the most; this one was cancelled"
                );
                Err(self.spec.failure(Code::LimitUser, why))
            }
        }
    }

    /// Answers a call whose answer cannot be relayed.
    pub(super) fn refuse_answer(
        self: &Arc<Self>,
        number: u64,
        failure: Failure,
        finished: &mut Vec<(Box<Call>, CallOutcome)>,
    ) {
        let mut state = self.state();
        let Some(pending) = state.pending.remove(number) else {
            return self.spec.metrics.count_stray();
        };
        self.rest(&mut state);
        drop(state);
        match pending {
            PendingReply::Call { call, .. } => {
                if let Err(call) = self.retry(call, FailureCause::Ours(failure.code)) {
                    finished.push((call, CallOutcome::Failed(failure)));
                }
            }
            PendingReply::Held(held) => self.end_held(*held, &failure.message, Some(&failure)),
            PendingReply::Internal { answer, .. } => drop(answer.send(Err(failure))),
        }
    }

    /// Passes a notification that MCP does not have on, as it is, to the clients that have a call
    /// in flight here and share an extension with the server that we do not know. `false`: there is
    /// none.
    pub(super) fn notify_of_extension(&self, frame: &Bytes) -> bool {
        let Some(capabilities) = self.says().capabilities else {
            return false;
        };
        let Ok(capabilities) = Json::parse(&capabilities) else {
            return false;
        };
        let state = self.state();
        let calls = state
            .pending
            .iter()
            .filter_map(|(_, pending)| match pending {
                PendingReply::Call { call, .. } => Some(call),
                PendingReply::Held(_) | PendingReply::Internal { .. } => None,
            });
        let calls: Vec<&Call> = calls.map(|call| &**call).collect();
        let mut uids = calls.iter().map(|call| call.client.caller.uid);
        let first = uids.next();
        if uids.any(|uid| Some(uid) != first) {
            // Nothing says which of these users it is for.
            return false;
        }
        let mut told: Vec<u64> = Vec::new();
        for call in calls {
            let params = call
                .parts
                .params
                .clone()
                .and_then(|at| Json::part(&call.frame, at));
            // One that does not read gets nothing more than answers.
            let may = call.client.outbox.over_since().is_none()
                && !told.contains(&call.client.connection);
            if may && extensions::share_unknown(params, capabilities) {
                call.client.outbox.push(frame);
                told.push(call.client.connection);
            }
        }
        !told.is_empty()
    }

    /// Passes progress on to the client whose call it is about, and restarts the call's clock.
    pub(super) fn progress(&self, frame: &Bytes, params: Option<Json<'_>>, number: u64) {
        let mut state = self.state();
        let (Some(params), Some(PendingReply::Call { call, deadline, .. })) =
            (params, state.pending.get_mut(number))
        else {
            return;
        };
        let Some(token) = call.parts.progress_token.clone() else {
            return;
        };
        // Where a person is asked meanwhile, it has more time than that.
        *deadline = (*deadline).max(Instant::now() + self.spec.limits.call);
        // Progress is worth nothing to a client that does not read; an answer would be.
        if call.client.outbox.over_since().is_some() {
            return;
        }
        let Some(token) = Json::part(&call.frame, token) else {
            return;
        };
        let edits = protocol::progress_edits(params, token.text());
        call.client.outbox.push_edited(frame, &edits);
    }
}

/// The places of an answer's parts.
fn spans(outcome: Result<Json<'_>, Json<'_>>) -> Result<Range<usize>, Range<usize>> {
    outcome
        .map(|result| result.span())
        .map_err(|error| error.span())
}

impl CancelReason for ServerSession {
    fn cancel(&self, number: u64, notification: Option<(&Bytes, Range<usize>)>) {
        let mut state = self.state();
        let Some(pending) = self.leave(&mut state, number) else {
            return;
        };
        match notification {
            Some((frame, span)) => {
                if let Some(params) = Json::part(frame, span.clone()) {
                    let mut edits = Edits::new();
                    edits.append_at(span.start, protocol::cancelled_edits(params, number));
                    self.show(Direction::ToServer, || edits.apply(frame).into(), None);
                    self.outbox.push_edited(frame, &edits);
                }
            }
            None => {
                self.push(&upstream::cancelled(number, "the client is gone"));
            }
        }
        self.rest(&mut state);
        drop(state);
        match pending {
            PendingReply::Call { call, .. } => self
                .spec
                .chain()
                .finish(vec![(call, CallOutcome::Cancelled)]),
            // Cancelled as it was about to be held.
            PendingReply::Held(held) => self.end_held(*held, "the call was cancelled", None),
            PendingReply::Internal { .. } => {}
        }
        self.attention.notify_one();
    }
}
