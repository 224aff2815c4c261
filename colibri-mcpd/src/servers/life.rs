//! The life of a server process: it is read until it ends, and ended when its time has come.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info};

use super::remote::Faults;
use super::session::{Crash, ServerSession, SessionEnd, SessionEvent};
use super::ssh;
use super::stderr::Stderr;
use super::tap::Direction;
use crate::relay::{Call, CallOutcome};
use colibri_confine::{ServerExit, SpawnedServer};
use colibri_outbound::SendError;
use colibri_peer::{Frame, FrameReader, aside, together};
use colibri_protocol::upstream::{self, ServerNotification};
use colibri_protocol::{Code, Feature, Features, extensions};
use colibri_wire::{Envelope, EnvelopeKind, Json, Tape};

/// The time for which the output of an ended server is read to its end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The most such times for its standard error, each of which brought some more.
const MOST_WORDS: usize = 5;
/// The time in which a server's queued input must be written when it ends.
const FLUSH: Duration = Duration::from_secs(1);

impl ServerSession {
    /// Reads the server until it ends, and ends it when its time has come. Whatever happens, every
    /// call in flight is answered, the process is gone when this returns, and the server is
    /// notified.
    pub(super) async fn run(
        self: Arc<Self>,
        spawned: SpawnedServer,
        mut faults: Faults,
        max_frame: usize,
    ) {
        let SpawnedServer {
            stdin,
            stdout,
            stderr,
            mut process,
        } = spawned;
        let log = Stderr {
            server: self.spec.id.clone(),
            pid: self.pid,
            secrets: self.spec.context.parts.secrets.clone(),
            allowance: self.allowance.clone(),
            excerpt: self.excerpt.clone(),
        };
        let log = tokio::spawn(log.log(stderr));
        let outbox = self.outbox.clone();
        let mut writer = tokio::spawn(async move { outbox.drive(stdin).await });
        let mut writing = true;
        let mut reader = FrameReader::new(stdout, max_frame);
        let (mut status, mut kept) = (None, 0);
        let mut last = "its process ended";
        let mut tape = Tape::default();
        let mut gone = process.wait();
        let mut look = std::pin::pin!(sleep_until(self.next_look()));
        let end = loop {
            // Orders and limits come before what the server writes: one that never stops writing is
            // no exception.
            tokio::select! {
                biased;
                _ = &mut writer => {
                    writing = false;
                    last = match self.outbox.was_cut_off() {
                        true => "the daemon's room for messages is used up, and it held most of what its user holds",
                        false => "it closed its standard input",
                    };
                    break None;
                }
                () = self.attention.notified() => look.as_mut().reset(self.next_look()),
                () = &mut look => {
                    self.expire();
                    look.as_mut().reset(self.next_look());
                }
                ended = &mut gone => {
                    status = Some(ended);
                    break None;
                }
                more = reader.fill() => match more {
                    Ok(true) => {
                        self.read(&mut reader, &mut tape);
                        let now = reader.kept();
                        if now != kept && !self.outbox.keep(kept, now) {
                            let why = format!("it began a line of {now} bytes, for which the daemon has no room");
                            break Some(SessionEnd::Broken(why));
                        }
                        kept = now;
                    }
                    Ok(false) => break None,
                    Err(error) => break Some(SessionEnd::Broken(format!("reading its standard output failed: {error}"))),
                },
                // After what was read: progress comes before the end of its call.
                fault = next_fault(&mut faults) => self.fault(fault),
            }
            if let Some(end) = self.ending() {
                break Some(end);
            }
        };
        drop(gone);
        // No further calls from here on; what is in flight can still be answered by what was
        // written already.
        if end.is_none() {
            self.state().draining = true;
            let _ = timeout(LAST_WORDS, async {
                while reader.fill().await.unwrap_or(false) {
                    self.read(&mut reader, &mut tape);
                }
            })
            .await;
            self.read(&mut reader, &mut tape);
        }
        while let Some(Ok(fault)) = faults.as_mut().map(mpsc::UnboundedReceiver::try_recv) {
            self.fault(fault);
        }
        // Closing the input is the order to end; one that does not read it must not keep it open.
        self.outbox.close();
        if writing {
            // A server that waits for its output to be read does not read what it is still to be
            // told.
            let flushed = timeout(FLUSH, async {
                tokio::select! {
                    biased;
                    _ = &mut writer => return,
                    () = swallow(&mut reader) => {}
                }
                let _ = (&mut writer).await;
            });
            if flushed.await.is_err() {
                self.outbox.discard();
                let _ = writer.await;
            }
        }
        process.resume();
        let mut log = log;
        if end.is_none() {
            // A process that has ended says why: its callers are told too. One that only closed its
            // output may live on for a while.
            if status.is_none() {
                status = timeout(LAST_WORDS, process.wait()).await.ok();
            }
            // As long as there is more to read: a process that it left behind may write for ever.
            for _ in 0..status.map_or(0, |_| MOST_WORDS) {
                let read = self.excerpt.lines();
                let is_read = timeout(LAST_WORDS, &mut log).await.is_ok();
                if is_read || self.excerpt.lines() == read {
                    break;
                }
            }
        }
        let mut reason = match &end {
            Some(SessionEnd::Wanted(reason)) => (*reason).to_owned(),
            Some(SessionEnd::Broken(reason)) => reason.clone(),
            None => last.to_owned(),
        };
        let crashed = !matches!(end, Some(SessionEnd::Wanted(_)));
        let mut wrote = None;
        if crashed {
            if let Some(status) = &status {
                reason = format!("{reason}: {status}");
            }
            wrote = self.excerpt.get(&|text| self.redact(text));
        }
        let target = self.spec.entry.ssh().filter(|_| crashed);
        let advice = target
            .and_then(|target| ssh::advice(target, status, wrote.as_deref().unwrap_or_default()));
        let mut told = match &wrote {
            Some(words) => format!("{reason}; it wrote: {words}"),
            None => reason.clone(),
        };
        if let Some(advice) = &advice {
            told = format!("{told}; {}", advice.text);
        }
        // A command line that it does not understand (EX_USAGE) is one the next time too.
        let lost = match status {
            Some(ServerExit::Status(64)) => Code::ServerUnstartable,
            _ if advice.as_ref().is_some_and(|advice| advice.lasts) => Code::ServerUnstartable,
            _ => Code::ServerDied,
        };
        self.fail_all(&told, lost);
        if status.is_none() {
            tokio::select! {
                biased;
                _ = process.wait() => {}
                () = swallow(&mut reader) => drop(process.wait().await),
            }
        }
        if !log.is_finished() {
            let _ = log.await;
        }
        info!(
            server = &*self.spec.id,
            pid = self.pid,
            reason = told,
            "server ended"
        );
        self.notify(SessionEvent::Ended(
            crashed.then_some(Crash { reason, wrote }),
        ));
    }

    /// The reason to end now, if there is one. From then on no call is taken.
    fn ending(&self) -> Option<SessionEnd> {
        let mut state = self.state();
        if !state.watching.uris.is_empty() && !state.draining {
            // Who is subscribed uses it.
            state.idle_since = Instant::now();
        }
        if state.ending.is_none()
            && state.pending.is_empty()
            && self.spec.context.tasks().open_until(self.number).is_none()
        {
            if state.draining {
                state.ending = Some(SessionEnd::Wanted("it is not needed any more"));
            } else if state.idle_since + self.spec.limits.idle <= Instant::now() {
                state.ending = Some(SessionEnd::Wanted("idle"));
            }
        }
        state.ending.clone()
    }

    /// The time of the next check if nothing happens until then. What is sent meanwhile, and how
    /// long the process is idle then, need not be looked at earlier.
    fn next_look(&self) -> Instant {
        const LEAST: Duration = Duration::from_millis(100);
        let state = self.state();
        let now = Instant::now();
        let limits = &self.spec.limits;
        let latest = now + limits.call.min(limits.total).min(limits.idle).max(LEAST);
        if state.pending.is_empty() {
            let rest = state.idle_since + limits.idle;
            return latest.min(
                self.spec
                    .context
                    .tasks()
                    .open_until(self.number)
                    .map_or(rest, |until| until.max(rest)),
            );
        }
        // Looking through many calls at every read would be costly, so it is done at most ten times
        // a second: a limit is kept to a tenth of a second.
        let earliest = if state.pending.len() > 16 {
            now
        } else {
            let deadlines = state.pending.iter().map(|(_, pending)| pending.deadline());
            deadlines.min().unwrap_or(now)
        };
        latest.min(earliest.max(now + LEAST))
    }

    /// Handles everything that was read.
    fn read<R: AsyncRead + Unpin>(self: &Arc<Self>, reader: &mut FrameReader<R>, tape: &mut Tape) {
        let has_much = reader.has_much();
        let mut read = || together(|| self.read_together(reader, tape));
        if has_much { aside(read) } else { read() }
    }

    fn read_together<R: AsyncRead + Unpin>(
        self: &Arc<Self>,
        reader: &mut FrameReader<R>,
        tape: &mut Tape,
    ) {
        let mut finished = Vec::new();
        while let Some(frame) = reader.pop() {
            match frame {
                Frame::Line(line) => {
                    self.show(Direction::FromServer, || line.clone(), None);
                    self.line(line, tape, &mut finished);
                }
                Frame::TooLong {
                    length,
                    id,
                    request,
                } => {
                    self.see(Direction::FromServer, Bytes::new(), length, None);
                    self.complain(&format!(
                        "a line of {length} bytes is over the limit and was passed over"
                    ));
                    if !request && let Some(id) = id.and_then(|id| id.parse().ok()) {
                        let message =
                            format!("the server's answer has {length} bytes, over the frame limit");
                        self.refuse_answer(
                            id,
                            self.spec.failure(Code::FrameTooLong, message),
                            &mut finished,
                        );
                    }
                }
                Frame::Endless { length } => {
                    self.see(Direction::FromServer, Bytes::new(), length, None);
                    self.broken(format!(
                        "it wrote a line of over {length} bytes that does not end"
                    ));
                    break;
                }
            }
        }
        self.finish(&mut finished);
    }

    /// Lets the answers go that were read.
    fn finish(self: &Arc<Self>, finished: &mut Vec<(Box<Call>, CallOutcome)>) {
        if finished.is_empty() {
            return;
        }
        let mut relayed = finished
            .iter()
            .filter(|(_, outcome)| matches!(outcome, CallOutcome::Relayed(_)))
            .peekable();
        if relayed.peek().is_some() {
            let given_up = relayed.all(|(call, _)| call.attempt.given_up);
            self.notify(SessionEvent::Answered { given_up });
        }
        self.spec.chain().finish(std::mem::take(finished));
    }

    fn line(
        self: &Arc<Self>,
        line: Bytes,
        tape: &mut Tape,
        finished: &mut Vec<(Box<Call>, CallOutcome)>,
    ) {
        if line.first() == Some(&b'[') && self.version().has_batches() {
            match Json::parse(&line) {
                Ok(batch) => {
                    for element in batch.elements() {
                        let part = line.slice(element.span());
                        self.message(part, tape, finished);
                    }
                }
                Err(error) => self.complain(&format!("wrote a batch that is {error}")),
            }
            return;
        }
        self.message(line, tape, finished);
    }

    fn message(
        self: &Arc<Self>,
        frame: Bytes,
        tape: &mut Tape,
        finished: &mut Vec<(Box<Call>, CallOutcome)>,
    ) {
        let envelope = match Envelope::read(&frame, tape) {
            Ok(envelope) => envelope,
            Err(refusal) => {
                self.complain(&format!("wrote a line that is no message: {refusal}"));
                if refusal.answer
                    && let Some(number) = refusal.id.as_deref().and_then(|id| id.parse().ok())
                {
                    let message = format!("the server's answer cannot be relayed: {refusal}");
                    self.refuse_answer(
                        number,
                        self.spec.failure(Code::ServerAnswerInvalid, message),
                        finished,
                    );
                }
                return;
            }
        };
        match envelope.kind {
            EnvelopeKind::Answer { id, outcome } => {
                let number = id.and_then(|id| Some((id.span(), id.as_u64()?)));
                self.answer(frame.clone(), number, outcome, false, finished);
            }
            EnvelopeKind::Notification { method, params } => {
                let method = method.as_str().unwrap_or_default();
                let notification = upstream::read_notification(&method, params);
                // Nothing overtakes an answer that was written before it. Progress may, being
                // another call's.
                if !matches!(notification, Some(ServerNotification::Progress { .. })) {
                    self.finish(finished);
                }
                if self.told_of_asks(&frame, &method, params) {
                    return;
                }
                match notification {
                    Some(ServerNotification::Progress { token }) => {
                        self.progress(&frame, params, token)
                    }
                    Some(ServerNotification::ListChanged(feature)) => {
                        let mut changed = Features::from(feature);
                        if feature == Feature::Resource {
                            changed |= Features::from(Feature::Template) | Feature::Skill.into();
                        }
                        self.notify(SessionEvent::ListsChanged(changed));
                    }
                    Some(ServerNotification::Message(level)) => {
                        self.notify(SessionEvent::LogMessage {
                            frame: &frame,
                            level,
                        });
                        let text = params.map(|params| params.text()).unwrap_or_default();
                        debug!(
                            server = &*self.spec.id,
                            pid = self.pid,
                            "log message: {}",
                            self.shown(text)
                        );
                    }
                    Some(ServerNotification::ResourceUpdated(uri)) => {
                        if let (Some(params), Some(uri)) = (params, uri.as_str()) {
                            self.notify(SessionEvent::ResourceUpdated {
                                frame: &frame,
                                params,
                                uri: &uri,
                            });
                        }
                    }
                    Some(ServerNotification::Acknowledged(number, honoured)) => {
                        if !self.tasks_acknowledged(number, &honoured) {
                            self.acknowledged(number, honoured);
                        }
                    }
                    Some(ServerNotification::Task(number)) => {
                        if let Some(params) = params {
                            self.task_told(number, &frame, params);
                        }
                    }
                    None if method == extensions::CHANNEL => {
                        self.notify(SessionEvent::ChannelMessage(&frame))
                    }
                    None if self.notify_of_extension(&frame) => {}
                    None => debug!(
                        server = &*self.spec.id,
                        "notification not relayed: {}",
                        self.shown(&method)
                    ),
                }
            }
            EnvelopeKind::Request { id, method, params } => {
                let method = method.as_str().unwrap_or_default();
                self.finish(finished);
                self.asks_for(&frame, (id, &method, params));
            }
        }
    }
}

async fn next_fault(faults: &mut Faults) -> SendError {
    match faults {
        Some(told) => match told.recv().await {
            Some(fault) => fault,
            // The session with the server is over, which its output says too.
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Reads and forgets, so that a server is not held up while it ends.
async fn swallow<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>) {
    while reader.fill().await.unwrap_or(false) {
        while reader.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use arc_swap::ArcSwap;

    use super::super::elicitation::open_elicitations::ElicitationRights;
    use super::super::specification::ServerSpecification;
    use super::*;
    use crate::board::Board;
    use crate::registry::secrets::SecretStore;
    use crate::registry::{RegisteredServer, parse};
    use crate::relay::{CallMetrics, CallRules, Chain, Recorder};
    use crate::servers::{ServerContext, ServerDependencies};
    use colibri_api::PrivMode;
    use colibri_confine::{BoxFuture, ServerProcess, SystemSpawner};
    use colibri_outbound::oauth::TokenStore;
    use colibri_peer::{ByteBudget, Outbox};
    use colibri_policy::quota::UserQuota;
    use colibri_policy::{ApprovalQueue, Clients, DEFAULT_EXPIRY, Gates, UserQuotas};
    use colibri_store::Database;

    use colibri_protocol::{Askable, Version};

    struct Forever;

    impl ServerProcess for Forever {
        fn pid(&self) -> u32 {
            1
        }

        fn wait(&mut self) -> BoxFuture<'_, ServerExit> {
            Box::pin(std::future::pending())
        }
    }

    fn session() -> (Arc<ServerSession>, Arc<ServerSpecification>) {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Database::open(directory.path()).unwrap());
        let chain = Arc::new(Chain {
            recorder: Arc::new(Recorder::Off),
            rules: Arc::new(CallRules {
                gates: ArcSwap::from_pointee(Gates::new(false, false)),
                clients: ArcSwap::from_pointee(Clients::absent(PathBuf::new())),
            }),
            metrics: CallMetrics::default(),
            ledger: Default::default(),
            approvals: ApprovalQueue::new(DEFAULT_EXPIRY),
            states: crate::relay::request_state::RequestStates::of_this_process().unwrap(),
            tickets: Default::default(),
            results: Default::default(),
            board: Board::for_tests(store.clone(), directory.path()),
            flows: Arc::default(),
            catalog: Default::default(),
        });
        let context = ServerContext::new(
            ServerDependencies {
                spawner: Arc::new(SystemSpawner::new(PrivMode::Helper).unwrap()),
                store,
                chain,
                budget: Arc::default(),
                max_frame: 1 << 20,
                secrets: Arc::new(SecretStore::beside(&PathBuf::new())),
                tokens: Arc::new(TokenStore::below(directory.path())),
                call_timeout: Duration::from_secs(60),
                pins: None,
                shares: Arc::new(UserQuotas::new(UserQuota::NONE)),
            },
            Box::new(|_| ()),
        );
        let registry = parse(br#"{"servers":{"s":{"command":"/s"}}}"#, "test").unwrap();
        let entry = registry.servers.into_values().next().unwrap().into();
        let registered = RegisteredServer {
            entry,
            refusal: None,
        };
        let known = (None, Arc::default());
        let (spec, _) = ServerSpecification::new("s", &registered, String::new(), known, &context);
        let spec = Arc::new(spec);
        let may_ask = ElicitationRights {
            what: Askable::NOTHING,
            in_answer: Askable::NOTHING,
            one_client: false,
            is_exposed: true,
        };
        let session = ServerSession::new(
            spec.clone(),
            (1, Version::LATEST_LEGACY),
            (&Forever, false),
            Outbox::new(1 << 20, Arc::new(ByteBudget::default())),
            (Arc::default(), may_ask),
            Arc::new(|_, event| match event {
                SessionEvent::CallFailed(call, _) => Some(call),
                _ => None,
            }),
        );
        (session, spec)
    }

    /// Has a session ask, and tells under which id.
    fn ask(session: &Arc<ServerSession>) -> (u64, tokio::task::JoinHandle<bool>) {
        let before = session.state().pending.len();
        let (asking, number) = (session.clone(), Arc::new(std::sync::OnceLock::new()));
        let told = number.clone();
        let mut asked = Box::pin(async move {
            let message = |id: u64| {
                let _ = told.set(id);
                id.to_string().into_bytes()
            };
            asking
                .ask(message, Duration::from_secs(60), Code::TimeoutCall)
                .await
                .is_ok()
        });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(asked.as_mut().poll(&mut context).is_pending());
        assert_eq!(session.state().pending.len(), before + 1);
        (*number.get().unwrap(), tokio::spawn(asked))
    }

    fn answer(session: &Arc<ServerSession>, id: &str) {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}");
        session.message(line.into(), &mut Tape::default(), &mut Vec::new());
    }

    #[tokio::test]
    async fn only_the_integer_that_it_was_asked_under_answers_and_once() {
        let ((session, spec), (other, _)) = (session(), session());
        // Another process is asked under ids of its own, and has had more.
        let ids: Vec<u64> = (0..3).map(|_| ask(&other).0).collect();
        let (id, asked) = ask(&session);
        assert!(id < 1 << 53);
        let strange = [
            format!("\"{id}\""),
            format!("{id}.0"),
            format!("{id}e0"),
            format!("-{id}"),
            format!("{}", id + 1),
            format!("{}", u64::MAX),
            format!("1{}", "0".repeat(30)),
            "null".to_owned(),
            format!("{}", ids[2]),
        ];
        for (count, id) in strange.iter().enumerate() {
            answer(&session, id);
            assert_eq!(
                (session.state().pending.len(), spec.metrics.counted().strays),
                (1, count as u64 + 1),
                "{id}"
            );
        }
        answer(&session, &id.to_string());
        assert!(asked.await.unwrap());
        let strays = spec.metrics.counted().strays;
        // A second answer, and one that comes when its slot serves another question.
        answer(&session, &id.to_string());
        let (next, asked) = ask(&session);
        assert!(next != id);
        answer(&session, &id.to_string());
        assert_eq!(
            (session.state().pending.len(), spec.metrics.counted().strays),
            (1, strays + 2)
        );
        answer(&session, &next.to_string());
        assert!(asked.await.unwrap());
    }

    #[tokio::test]
    async fn a_late_answer_is_counted_and_dropped() {
        let (session, spec) = session();
        let (id, _) = ask(&session);
        drop(session.state().pending.remove(id));
        answer(&session, &id.to_string());
        assert_eq!(
            (session.state().pending.len(), spec.metrics.counted().strays),
            (0, 1)
        );
    }
}
