//! The fifth stage: what entered and what leaves is recorded; what cannot be recorded does not
//! happen.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::call::Call;
use super::call_outcome::ServerAnswer;
use super::client::Client;
use super::exit::{ClientMessage, ExitAnswer};
use super::outcome_check::redacted;
use super::recorder::{Recorder, append_event};
use super::reply_author::ReplyAuthor;
use crate::results::StoredResult;
use colibri_policy::{FieldFact, ResultFacts};
use colibri_protocol::{AttemptFailure, Code, Era, Failure, FailureClass, MetaRecord};
use colibri_registry::sha256_hex;
use colibri_text::hex;
use colibri_trail::{
    Attempt, ContentDigest, DeclaredClient, Detail, Enter, EventRecord, ExitRecord,
    RecordReference, Through, Trail, TrailError, TrailEvent, TrailRecord,
};
use colibri_wire::Json;

fn unavailable(error: &TrailError) -> Failure {
    Failure::new(Code::TrailUnavailable, error.to_string())
}

/// Records that calls entered, before the first byte of any of them goes to a server. Each call
/// learns its number.
///
/// # Errors
/// [`Code::TrailUnavailable`]: none of them may go on.
pub fn entered(recorder: &Recorder, calls: &mut [Box<Call>]) -> Result<(), Failure> {
    let Recorder::Trail(trail) = recorder else {
        return Ok(());
    };
    if let [call] = calls {
        if begins_look(trail, call) {
            return Ok(());
        }
        // As most are: without lists.
        let (full, name) = (in_full(call, call.arguments()), call.name());
        let record = enter(call, full.as_deref(), name.as_deref());
        let appended = trail
            .append([record])
            .map_err(|error| unavailable(&error))?;
        drop(name);
        call.entry.number = appended.first;
        note_written(call, full.as_deref());
        return Ok(());
    }
    let texts: Vec<_> = calls
        .iter()
        .filter(|call| !begins_look(trail, call))
        .map(|call| (call, in_full(call, call.arguments()), call.name()))
        .collect();
    if texts.is_empty() {
        return Ok(());
    }
    let records: Vec<TrailRecord<'_>> = texts
        .iter()
        .map(|(call, full, name)| enter(call, full.as_deref(), name.as_deref()))
        .collect();
    let appended = trail
        .append(&records)
        .map_err(|error| unavailable(&error))?;
    drop(records);
    let full: Vec<_> = texts.into_iter().map(|(_, full, _)| full).collect();
    let recorded = calls
        .iter_mut()
        .filter(|call| !call.target.description().is_look);
    for ((number, call), full) in (appended.first..).zip(recorded).zip(&full) {
        call.entry.number = number;
        note_written(call, full.as_deref());
    }
    Ok(())
}

/// Records the first look of a connection at the daemon's own state. `false`: the call is no look.
fn begins_look(trail: &Trail, call: &Call) -> bool {
    let described = call.target.description();
    if described.is_look && call.client.session.begin_look() {
        note_written(call, None);
        let look = TrailEvent::Look {
            uid: call.client.caller.uid,
            connection: call.client.session.number,
            client: call.client_info.as_deref().map(|info| &*info.name),
            method: &described.operation,
        };
        // Where nothing can be recorded, looks say why.
        if let Err(error) = append_event(trail, look) {
            tracing::debug!("a look was not recorded: {error}");
        }
    }
    described.is_look
}

/// Records the end of a connection's looks, if there were any.
pub fn looked(recorder: &Recorder, client: &Client) {
    let (looks, failed) = client.session.looks();
    if looks == 0 {
        return;
    }
    if let Some(share) = client.share() {
        share.wrote_trail(RECORD);
    }
    let ended = recorder.event(TrailEvent::LookEnded {
        uid: client.caller.uid,
        connection: client.session.number,
        looks,
        failed,
    });
    if let Err(error) = ended {
        tracing::debug!("the end of looks was not recorded: {error}");
    }
}

fn enter<'a>(call: &'a Call, full: Option<&'a RawValue>, name: Option<&'a str>) -> TrailRecord<'a> {
    let to = call.target.description();
    TrailRecord::Enter(Enter {
        time: call.time,
        uid: call.client.peer.uid,
        gid: call.client.peer.gid,
        pid: call.client.peer.pid.and_then(|pid| pid.try_into().ok()),
        connection: call.client.session.number,
        continues: (call.entry.number > 0).then_some(call.entry.number),
        client: call.client_info.as_deref().map(|info| DeclaredClient {
            name: &info.name,
            version: &info.version,
        }),
        method: call.method.map_or(&*to.operation, |method| method.as_str()),
        server: (!to.is_ours()).then_some(&*to.server),
        tool: call.method.map(|_| &*to.operation),
        name,
        era: match call.version.era() {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        },
        version: call.version.as_str(),
        args: ContentDigest::of(call.arguments()),
        args_full: full,
        traceparent: call.trace.as_ref().map(|trace| &*trace.parent),
        tracestate: call.trace.as_ref().and_then(|trace| trace.state.as_deref()),
        validated: call.entry.validated,
        through: call.client.door.as_ref().map(|door| Through {
            agent: &door.agent,
            session: &door.session,
            for_uid: call.client.caller.uid,
        }),
        task: call.task(),
        within: call
            .client
            .outer
            .map(|outer| outer.record)
            .filter(|record| *record > 0),
        caller: call.parts.caller_record.as_deref().map(reference),
    })
}

/// Records how calls ended, before their answers leave. A call that was let pass without its
/// `enter` record has no other either.
///
/// # Errors
/// [`Code::TrailUnavailable`]: none of them may be sent.
pub fn left(recorder: &Recorder, calls: &[(Box<Call>, ExitAnswer)]) -> Result<(), Failure> {
    let Recorder::Trail(trail) = recorder else {
        return Ok(());
    };
    let time = SystemTime::now();
    let appended = if let [(call, answer)] = calls {
        if call.entry.number == 0 {
            return Ok(());
        }
        let full = answer_in_full(call, answer);
        note_written(call, full.as_deref());
        let exit = exit(call, answer, full.as_deref(), time);
        let facts = more_facts(call, answer);
        if facts.is_empty() {
            trail.append([exit])
        } else {
            let more: Vec<_> = facts.iter().map(|facts| told(call, facts, time)).collect();
            let more = more
                .iter()
                .map(|(name, details)| event(name, details, time));
            trail.append([exit].into_iter().chain(more).collect::<Vec<_>>())
        }
    } else {
        let calls: Vec<_> = calls
            .iter()
            .filter(|(call, _)| call.entry.number > 0)
            .map(|(call, answer)| (call, answer, answer_in_full(call, answer)))
            .collect();
        if calls.is_empty() {
            return Ok(());
        }
        let facts: Vec<_> = calls
            .iter()
            .map(|(call, answer, _)| (*call, more_facts(call, answer)))
            .collect();
        let more: Vec<_> = facts
            .iter()
            .flat_map(|(call, facts)| facts.iter().map(|facts| told(call, facts, time)))
            .collect();
        let exits = calls.iter().map(|(call, answer, full)| {
            note_written(call, full.as_deref());
            exit(call, answer, full.as_deref(), time)
        });
        let more = more
            .iter()
            .map(|(name, details)| event(name, details, time));
        trail.append(exits.chain(more).collect::<Vec<_>>())
    };
    appended.map_err(|error| {
        let failure = unavailable(&error);
        let message = format!(
            "the call was made, but its end cannot be recorded, so its answer is held back: {}",
            failure.message
        );
        Failure { message, ..failure }
    })?;
    Ok(())
}

/// Arguments or a result as they are recorded where the operator wants all of them: secrets
/// redacted. `None` where their digest alone is wanted.
fn in_full(call: &Call, json: &[u8]) -> Option<Box<RawValue>> {
    let description = call.target.description();
    let server = description
        .upstream()
        .filter(|_| description.is_recorded_in_full)?;
    let text = std::str::from_utf8(json).ok()?;
    RawValue::from_string(server.redact(text)).ok()
}

fn answer_in_full(call: &Call, answer: &ExitAnswer) -> Option<Box<RawValue>> {
    match &answer.message {
        ClientMessage::Edited(frame, _, span) => in_full(call, &frame[span.clone()]),
        ClientMessage::Own(_) | ClientMessage::Page(..) | ClientMessage::None => None,
    }
}

/// The facts that the contract of its server records of the result of a successful call.
pub(super) fn facts<'a>(call: &'a Call, relayed: &ServerAnswer) -> Option<ResultFacts<'a>> {
    let answers = call
        .target
        .description()
        .answers()
        .filter(|_| !relayed.says_error && !relayed.is_interim)?;
    let result = Json::part(&relayed.frame, relayed.outcome.clone().ok()?)?;
    answers.facts(result, &|text| redacted(call, text))
}

fn facts_of<'a>(call: &'a Call, answer: &ExitAnswer) -> Option<ResultFacts<'a>> {
    let answers = call
        .target
        .description()
        .answers()
        .filter(|_| answer.success && !answer.is_interim)?;
    match &answer.message {
        ClientMessage::Edited(frame, _, span) => answers
            .facts(Json::part(frame, span.clone())?, &|text| {
                redacted(call, text)
            }),
        ClientMessage::Own(_) | ClientMessage::Page(..) | ClientMessage::None => None,
    }
}

/// Records what the contract of its server has recorded of a result that its client does not get
/// whole.
///
/// # Errors
/// [`Code::TrailUnavailable`]: its client may not be told of it.
pub(super) fn held_back(
    recorder: &Recorder,
    call: &Call,
    facts: &ResultFacts<'_>,
) -> Result<(), Failure> {
    let Recorder::Trail(trail) = recorder else {
        return Ok(());
    };
    let time = SystemTime::now();
    let (name, details) = told(call, facts, time);
    let appended = trail.append([event(name, &details, time)]);
    appended.map(drop).map_err(|error| unavailable(&error))
}

/// The recorded facts beside a call's end: those of its contract, of a refused call too, and the
/// task that it became.
fn more_facts<'a>(call: &'a Call, answer: &ExitAnswer) -> Vec<ResultFacts<'a>> {
    let Some(answers) = call.target.description().answers() else {
        return Vec::new();
    };
    let is_refused = answer.code() == Some(Code::ContractDenied.name());
    let refused = || answers.refused(call.arguments(), &|text| redacted(call, text));
    let facts = if is_refused {
        refused()
    } else {
        facts_of(call, answer)
    };
    let task = call.deferred.as_ref().and_then(|deferred| deferred.task);
    let deferred = task.map(|task| ResultFacts {
        event: colibri_trail::DEFERRED_EVENT,
        fields: vec![("task", FieldFact::Number(task))],
    });
    facts.into_iter().chain(deferred).collect()
}

/// The name of a record beside a call's end, and what it says.
fn told<'a>(
    call: &'a Call,
    facts: &'a ResultFacts<'_>,
    time: SystemTime,
) -> (&'a str, Vec<(&'a str, Detail<'a>)>) {
    (facts.event, details(call, facts, time))
}

fn details<'a>(
    call: &'a Call,
    facts: &'a ResultFacts<'_>,
    time: SystemTime,
) -> Vec<(&'a str, Detail<'a>)> {
    let described = call.target.description();
    let latency = time.duration_since(call.time).unwrap_or_default();
    let mut details = vec![
        ("call", Detail::Number(call.entry.number)),
        ("uid", Detail::Number(call.client.caller.uid.into())),
        ("server", Detail::Text(&described.server)),
        ("tool", Detail::Text(&described.operation)),
        (
            "latency_ms",
            Detail::Number(latency.as_millis().try_into().unwrap_or(u64::MAX)),
        ),
    ];
    if let Some(share) = call.client.share() {
        share.wrote_trail(RECORD);
    }
    details.extend(facts.fields.iter().map(|(name, fact)| {
        let detail = match fact {
            FieldFact::Text(text) => Detail::Text(text),
            FieldFact::Number(number) => Detail::Number(*number),
            FieldFact::Flag(flag) => Detail::Flag(*flag),
        };
        (*name, detail)
    }));
    details
}

fn event<'a>(
    event: &'a str,
    details: &'a [(&'a str, Detail<'a>)],
    time: SystemTime,
) -> TrailRecord<'a> {
    TrailRecord::Event(EventRecord {
        time,
        event,
        details,
    })
}

fn exit<'a>(
    call: &'a Call,
    answer: &'a ExitAnswer,
    full: Option<&'a RawValue>,
    time: SystemTime,
) -> TrailRecord<'a> {
    TrailRecord::Exit(ExitRecord {
        attempt: attempt(call, time, answer.failed.as_ref()),
        success: answer.success,
        output: match &answer.message {
            ClientMessage::Own(message) => Some(ContentDigest::of(message)),
            ClientMessage::Page(_, page) => Some(page.digest()),
            ClientMessage::Edited(frame, _, span) => Some(ContentDigest::of(&frame[span.clone()])),
            ClientMessage::None => None,
        },
        output_full: full,
        remote: answer.remote.as_ref().map(reference),
    })
}

fn reference(record: &MetaRecord) -> RecordReference<'_> {
    RecordReference {
        origin: &record.origin,
        n: record.n,
    }
}

/// The least size of a record in bytes, roughly: names and traces, which are bounded, make it
/// longer.
const RECORD: usize = 512;

/// Takes the bytes of a call's record from its user's share.
fn note_written(call: &Call, full: Option<&RawValue>) {
    if let Some(share) = call.client.share() {
        share.wrote_trail(RECORD + full.map_or(0, |full| full.get().len()));
    }
}

/// Records that an attempt failed and that another follows.
pub fn retried(recorder: &Recorder, call: &Call, failed: &AttemptFailure) {
    if let Recorder::Trail(trail) = recorder {
        let latency = Instant::now().saturating_duration_since(call.attempt.began);
        let record = TrailRecord::Retry(Attempt {
            latency,
            ..attempt(call, SystemTime::now(), Some(failed))
        });
        if let Err(error) = trail.append([record]) {
            // The next attempt sends nothing that has no `enter` record, and its end is recorded or
            // held back.
            tracing::error!("a retry was not recorded: {error}");
        }
    }
}

/// Records that the result of a call is kept, which its client did not get.
///
/// # Errors
/// [`Code::TrailUnavailable`]: its client may not be told where it is.
pub(super) fn kept(recorder: &Recorder, call: &Call, kept: &StoredResult) -> Result<(), Failure> {
    let Recorder::Trail(trail) = recorder else {
        return Ok(());
    };
    let (to, time, digest) = (
        call.target.description(),
        SystemTime::now(),
        hex(&kept.sha256),
    );
    let event = TrailEvent::ResultKept {
        call: call.entry.number,
        server: &to.server,
        uid: call.client.caller.uid,
        sha256: &digest,
        length: kept.bytes,
    };
    let details = event.details();
    let of_kept = TrailRecord::Event(EventRecord {
        time,
        event: event.name(),
        details: &details,
    });
    note_written(call, None);
    trail
        .append([of_kept])
        .map(drop)
        .map_err(|error| unavailable(&error))
}

/// A request of a server, or of the daemon, towards a client.
pub struct ClientRequestRecord {
    /// The requesting user.
    pub server: Arc<str>,
    /// The request's method.
    pub method: &'static str,
    /// The client to which the request goes.
    pub client: Arc<Client>,
    /// The number of the `enter` record of the call that it is about; 0 for none.
    pub call: u64,
    /// The daemon's number of it.
    pub request: u64,
}

impl ClientRequestRecord {
    fn record(&self, recorder: &Recorder, event: TrailEvent<'_>) -> Result<(), Failure> {
        if matches!(recorder, Recorder::Off) {
            return Ok(());
        }
        if let Some(share) = self.client.share() {
            share.wrote_trail(RECORD);
        }
        recorder.event(event).map_err(|error| unavailable(&error))
    }

    /// The call that it is about.
    fn of_call(&self) -> Option<u64> {
        (self.call > 0).then_some(self.call)
    }

    /// Records it before it goes to the client. `params` is what is asked.
    ///
    /// # Errors
    /// [`Code::TrailUnavailable`]: it may not go there.
    pub fn begins(&self, recorder: &Recorder, params: &[u8]) -> Result<(), Failure> {
        let event = TrailEvent::Asked {
            server: &self.server,
            method: self.method,
            uid: self.client.caller.uid,
            connection: self.client.connection,
            request: self.request,
            call: self.of_call(),
            sha256: &sha256_hex(params),
            length: params.len() as u64,
        };
        self.record(recorder, event)
    }

    /// Records what became of it, before that goes to who asked. `answer` is what was answered.
    ///
    /// # Errors
    /// [`Code::TrailUnavailable`]: it may not go there.
    pub fn ends(
        &self,
        recorder: &Recorder,
        outcome: &str,
        answer: Option<&[u8]>,
    ) -> Result<(), Failure> {
        self.ends_by(recorder, outcome, None, answer)
    }

    /// Records what became of a request of ours, and who replied, if that is known.
    ///
    /// # Errors
    /// [`Code::TrailUnavailable`]: the reply may not count.
    pub(super) fn ends_by(
        &self,
        recorder: &Recorder,
        outcome: &str,
        author: Option<ReplyAuthor>,
        answer: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let sha256 = answer.map(sha256_hex);
        let event = TrailEvent::Answered {
            server: &self.server,
            method: self.method,
            uid: self.client.caller.uid,
            connection: self.client.connection,
            request: self.request,
            call: self.of_call(),
            outcome,
            answered_by: author.map(ReplyAuthor::name),
            sha256: sha256.as_deref(),
            length: answer.map(|answer| answer.len() as u64),
        };
        self.record(recorder, event)
    }
}

fn attempt<'a>(
    call: &'a Call,
    time: SystemTime,
    failed: Option<&'a AttemptFailure>,
) -> Attempt<'a> {
    let to = call.target.description();
    Attempt {
        time,
        enter: call.entry.number,
        integration_id: &to.server,
        operation: &to.operation,
        attempt_number: call.attempt.number,
        error_code: failed.map(|failed| &*failed.code),
        error_class: failed
            .and_then(|failed| failed.class)
            .map(FailureClass::name),
        latency: call.entered.elapsed(),
    }
}
