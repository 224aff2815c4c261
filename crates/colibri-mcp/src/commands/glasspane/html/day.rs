//! The trail's record of a period's calls, in bounded form: counted by path and piece of time and
//! by tool, and one by one only where a call was refused, failed or waited.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use super::fields::{CallFields, ClientName};
use super::lanes::{LaneKey, LaneReader, LaneSpan, SpanKind};
use super::model_costs::{ModelCall, ModelCosts};
use super::names::{NAME, NameTable};
use super::period::{CallMark, CallMarkReason, CallPath, ReportPeriod, ToolFigures};
use super::pieces::{CallPieces, SpanOutcome};
use super::reasons::reason;
use super::time::{millis, text};
use crate::terminal;
use colibri_protocol::Code;
use colibri_text::brief;
use colibri_trail::{RecordFields, RecordFilter, RecordReader, RecordView, TrailEvent};

/// The most paths of calls that are shown apart; the others are counted together.
const MAX_PATHS: usize = 200;
/// Tools that are told apart, each by path; the others are counted together.
const MAX_TOOLS: usize = 1000;
/// Calls of each kind that are told one by one, the newest.
const MAX_MARKS: usize = 2000;
/// Reasons that are told apart.
const MAX_CODES: usize = 60;
/// Calls that are remembered until they end, and questions until they are answered.
const MAX_OPEN: usize = 100_000;
/// The server of what Colibri answers itself.
const COLIBRI: &str = "colibri";
/// The method of those who watch.
const WATCH: &str = "colibri/watch";
/// The name of those beyond a bound.
const OTHERS: &str = "all others";
/// Connections whose client's name is remembered.
const MAX_CLIENTS: usize = 10_000;

/// From when to when, milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub since: u64,
    pub until: u64,
}

/// The same before its names have their places.
#[derive(Debug, Clone)]
struct RawCallMark {
    at: u64,
    ms: u64,
    path: usize,
    tool: String,
    why: String,
    code: String,
    n: u64,
}

/// A call that has not ended.
#[derive(Debug)]
struct OpenCall {
    at: u64,
    path: usize,
    lane: LaneKey,
    server: String,
    tool: String,
    task: Option<u64>,
    asked: u64,
    /// The time at which an attempt failed that another follows, and the reason.
    retry: Option<(u64, String)>,
}

/// A question to a person that has no answer yet.
#[derive(Debug)]
struct OpenQuestion {
    at: u64,
    path: usize,
    tool: String,
    method: String,
}

/// The news of a trail that was read on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrailNews {
    /// There are new records.
    pub has_records: bool,
    /// Some of them are not of calls of Colibri's own tools, such as those with which the page asks
    /// for news.
    pub has_others: bool,
}

/// Reads the calls of a time from the trail, and goes on as it grows.
pub(super) struct PeriodReader {
    records: RecordReader,
    calls: CallReader,
}

/// What was read of a period.
struct CallReader {
    span: Span,
    names: NameTable,
    /// The paths in the order in which they were first seen.
    seen: Vec<CallPath>,
    paths: HashMap<(Option<u32>, Option<String>, String), usize>,
    users: HashMap<u32, String>,
    clients: BTreeMap<u64, String>,
    pieces: CallPieces,
    figures: Vec<ToolFigures>,
    tools: HashMap<(usize, String), usize>,
    codes: BTreeMap<String, u64>,
    told: [VecDeque<RawCallMark>; 3],
    marked: [u64; 3],
    open: BTreeMap<u64, OpenCall>,
    questions: BTreeMap<(u64, u64), OpenQuestion>,
    lanes: LaneReader,
    forgotten: u64,
    together: bool,
}

impl PeriodReader {
    /// The reader of the trail in this directory, which counts into these costs.
    pub(super) fn new(dir: &Path, span: Span, costs: ModelCosts) -> PeriodReader {
        let filter = RecordFilter {
            since: Some(text(span.since)),
            until: Some(text(span.until)),
            ..RecordFilter::default()
        };
        PeriodReader {
            records: RecordReader::new(dir, filter),
            calls: CallReader::new(span, costs),
        }
    }

    /// Takes in what was recorded since the last time.
    ///
    /// # Errors
    /// The trail cannot be read.
    pub(super) fn read(&mut self) -> io::Result<TrailNews> {
        let mut news = TrailNews::default();
        let _ = self.records.read(&mut |record| {
            let RecordFields {
                server,
                integration_id,
                ..
            } = &record.fields;
            let of_colibri = [server, integration_id]
                .into_iter()
                .all(|name| own_name(name) == COLIBRI);
            news.has_records = true;
            news.has_others |= record.kind == "event" || !of_colibri;
            self.calls.take(&record);
            ControlFlow::Continue(())
        })?;
        Ok(news)
    }

    /// The period as far as it was read. It ends at `until`.
    pub(super) fn period(&mut self, until: u64) -> ReportPeriod {
        self.calls.period(until)
    }
}

impl CallReader {
    fn new(span: Span, costs: ModelCosts) -> CallReader {
        CallReader {
            span,
            names: NameTable::default(),
            seen: Vec::new(),
            paths: HashMap::new(),
            users: HashMap::new(),
            clients: BTreeMap::new(),
            pieces: CallPieces::default(),
            figures: Vec::new(),
            tools: HashMap::new(),
            codes: BTreeMap::new(),
            told: Default::default(),
            marked: [0; 3],
            open: BTreeMap::new(),
            questions: BTreeMap::new(),
            lanes: LaneReader::new(costs),
            forgotten: 0,
            together: false,
        }
    }

    fn take(&mut self, record: &RecordView<'_>) {
        let Some(at) = millis(&record.fields.timestamp) else {
            return;
        };
        match record.kind.as_str() {
            "enter" => self.enter(record, at),
            "exit" => self.exit(record, at),
            "retry" => self.retry(record, at),
            "event" => self.event(record, at),
            _ => {}
        }
    }

    fn enter(&mut self, record: &RecordView<'_>, at: u64) {
        let more: CallFields = serde_json::from_str(record.rec).unwrap_or_default();
        if let Some(ClientName { name }) = &more.client {
            if self.clients.len() == MAX_CLIENTS {
                self.clients.pop_first();
            }
            self.clients.insert(more.connection, brief(name, NAME));
        }
        let client = self.clients.get(&more.connection).cloned();
        if let Some(before) = more.continues {
            self.open.remove(&before);
        }
        let RecordFields {
            server,
            tool,
            method,
            ..
        } = &record.fields;
        let open = OpenCall {
            at,
            path: self.path(record, server, client.as_deref()),
            lane: match &record.through {
                Some(agent) => LaneKey::Instance(agent.session.clone()),
                None => LaneKey::Client(record.uid, client),
            },
            server: own_name(server).to_owned(),
            tool: brief(if tool.is_empty() { method } else { tool }, NAME),
            task: record.task,
            asked: more.args.length,
            retry: None,
        };
        if self.open.len() == MAX_OPEN {
            self.open.pop_first();
            self.forgotten += 1;
        }
        self.open.insert(record.n, open);
    }

    fn exit(&mut self, record: &RecordView<'_>, at: u64) {
        let more: CallFields = serde_json::from_str(record.rec).unwrap_or_default();
        let fields = &record.fields;
        let open = fields.enter.and_then(|enter| self.open.remove(&enter));
        let path = match &open {
            Some(open) => open.path,
            None => self.path(record, &fields.integration_id, None),
        };
        let took = if fields.latency_ms.is_finite() {
            fields.latency_ms.max(0.0)
        } else {
            0.0
        };
        let begun = at.saturating_sub(took as u64).max(self.span.since);
        let code = fields.error_code.as_deref().unwrap_or("");
        let kind = match fields.result.as_str() {
            "SUCCESS" => None,
            _ if is_refusal(code) => Some(CallMarkReason::Refused),
            _ => Some(CallMarkReason::Failed),
        };
        let outcome = match kind {
            None => SpanOutcome::Ok,
            Some(CallMarkReason::Refused) => SpanOutcome::Refused,
            Some(_) => SpanOutcome::Failed,
        };
        self.pieces.add(begun, path as u64, outcome);
        let lane = match (&open, &record.through) {
            (Some(open), _) => open.lane.clone(),
            (None, Some(agent)) => LaneKey::Instance(agent.session.clone()),
            (None, None) => LaneKey::Client(record.uid, None),
        };
        let agent = record
            .through
            .as_ref()
            .map(|agent| (&*agent.agent, agent.for_uid));
        let span = LaneSpan {
            at: begun,
            ms: at.saturating_sub(begun),
            kind: SpanKind::Call,
            outcome,
            server: brief(own_name(&fields.integration_id), NAME),
            tool: brief(&fields.operation, NAME),
            why: kind.map_or_else(String::new, |_| reason(code).to_owned()),
            code: brief(code, NAME),
            task: record.task,
            n: record.n,
        };
        self.lanes.span(&lane, agent, span);
        if let Some((since, why)) = open.as_ref().and_then(|open| open.retry.clone()) {
            let said = format!("tried again after an attempt failed: {}", reason(&why));
            let told = self.told(path, &fields.operation, (&said, &why), fields.enter);
            self.mark(CallMarkReason::Waited, since, at, told);
        }
        let row = self.tool(path, &fields.operation);
        row.calls += 1;
        row.asked += open.map_or(0, |open| open.asked);
        row.answered += more.output.map_or(0, |output| output.length);
        row.ms += took;
        let Some(kind) = kind else { return };
        match kind {
            CallMarkReason::Refused => row.refused += 1,
            _ => row.failed += 1,
        }
        let told = self.told(
            path,
            &fields.operation,
            (reason(code), code),
            Some(record.n),
        );
        let why = told.code.clone();
        self.mark(kind, begun, at, told);
        let known = self.codes.len() < MAX_CODES || self.codes.contains_key(&why);
        let why = if known { why } else { OTHERS.to_owned() };
        *self.codes.entry(why).or_default() += 1;
    }

    /// An attempt failed: until the call's next record it waits, and is tried again.
    fn retry(&mut self, record: &RecordView<'_>, at: u64) {
        let fields = &record.fields;
        let why = brief(
            fields.error_code.as_deref().unwrap_or("an attempt failed"),
            NAME,
        );
        let Some(open) = fields.enter.and_then(|enter| self.open.get_mut(&enter)) else {
            return;
        };
        // Of several attempts the wait is one, from the first that failed.
        open.retry.get_or_insert((at, why));
    }

    fn event(&mut self, record: &RecordView<'_>, at: u64) {
        if let Some(called) = ModelCall::of(&record.fields)
            && let Some(call) = self.open.get(&called.call)
        {
            self.lanes.charge(&call.lane, at, &called.charge(call.task));
        }
        let Some(event) = TrailEvent::read(&record.fields.event, &record.fields.details) else {
            return;
        };
        self.lanes.event(&event, at, record.n);
        match event {
            // Connections are counted anew.
            TrailEvent::Start { .. } => self.clients.clear(),
            TrailEvent::Asked {
                server,
                method,
                uid,
                connection,
                request,
                call,
                ..
            } => {
                let (path, tool) = match call.and_then(|call| self.open.get(&call)) {
                    Some(call) => (call.path, call.tool.clone()),
                    None => (self.path_of(Some(uid), None, server), String::new()),
                };
                let question = OpenQuestion {
                    at,
                    path,
                    tool,
                    method: brief(method, NAME),
                };
                if self.questions.len() == MAX_OPEN {
                    self.questions.pop_first();
                    self.forgotten += 1;
                }
                self.questions.insert((connection, request), question);
            }
            TrailEvent::Answered {
                connection,
                request,
                outcome,
                answered_by,
                ..
            } => {
                if let Some(question) = self.questions.remove(&(connection, request)) {
                    let told =
                        self.question(&question, &reply_text(outcome, answered_by), record.n);
                    self.mark(CallMarkReason::Waited, question.at, at, told);
                }
            }
            TrailEvent::Approval {
                uid,
                by,
                approved,
                agent,
                ..
            } => {
                let path = self.path_of(Some(uid), agent, "");
                let said = if approved { "approved" } else { "denied" };
                let why = format!("{said} by {}", terminal::user(by));
                let told = self.told(path, "", (&why, ""), Some(record.n));
                self.mark(CallMarkReason::Waited, at, at, told);
            }
            _ => {}
        }
    }

    /// The mark of a question.
    fn question(&self, question: &OpenQuestion, why: &str, n: u64) -> RawCallMark {
        self.told(
            question.path,
            &question.tool,
            (why, &question.method),
            Some(n),
        )
    }

    fn told(
        &self,
        path: usize,
        tool: &str,
        (why, code): (&str, &str),
        n: Option<u64>,
    ) -> RawCallMark {
        RawCallMark {
            at: 0,
            ms: 0,
            path,
            tool: brief(tool, NAME),
            why: brief(why, 4 * NAME),
            code: brief(code, NAME),
            n: n.unwrap_or(0),
        }
    }

    fn mark(&mut self, kind: CallMarkReason, at: u64, until: u64, told: RawCallMark) {
        let queue = &mut self.told[kind as usize];
        self.marked[kind as usize] += 1;
        if queue.len() == MAX_MARKS {
            queue.pop_front();
        }
        queue.push_back(RawCallMark {
            at,
            ms: until.saturating_sub(at),
            ..told
        });
    }

    fn path(&mut self, record: &RecordView<'_>, server: &str, client: Option<&str>) -> usize {
        match &record.through {
            Some(agent) => self.path_of(agent.for_uid.or(record.uid), Some(&agent.agent), server),
            None => self.path_of(record.uid, client, server),
        }
    }

    fn path_of(&mut self, uid: Option<u32>, agent: Option<&str>, server: &str) -> usize {
        let mut key = (uid, agent.map(str::to_owned), own_name(server).to_owned());
        if let Some(path) = self.paths.get(&key) {
            return *path;
        }
        let others = self.paths.len() >= MAX_PATHS;
        if others {
            self.together = true;
            key = (None, Some(OTHERS.to_owned()), OTHERS.to_owned());
            if let Some(path) = self.paths.get(&key) {
                return *path;
            }
        }
        let caller = match uid {
            _ if others => OTHERS.to_owned(),
            Some(uid) => self
                .users
                .entry(uid)
                .or_insert_with(|| terminal::user(uid))
                .clone(),
            None => "not known".to_owned(),
        };
        let way = CallPath {
            caller: self.names.place(&caller),
            agent: key.1.as_deref().map(|agent| self.names.place(agent)),
            server: self.names.place(&key.2),
        };
        self.seen.push(way);
        self.paths.insert(key, self.seen.len() - 1);
        self.seen.len() - 1
    }

    fn tool(&mut self, path: usize, tool: &str) -> &mut ToolFigures {
        let mut key = (path, brief(tool, NAME));
        if !self.tools.contains_key(&key) && self.tools.len() >= MAX_TOOLS {
            self.together = true;
            key.1 = OTHERS.to_owned();
        }
        let at = match self.tools.get(&key) {
            Some(at) => *at,
            None => {
                let name = self.names.place(&key.1);
                self.figures.push(ToolFigures {
                    path,
                    name,
                    ..ToolFigures::default()
                });
                self.tools.insert(key, self.figures.len() - 1);
                self.figures.len() - 1
            }
        };
        &mut self.figures[at]
    }

    fn period(&mut self, until: u64) -> ReportPeriod {
        let mut names = self.names.clone();
        let step = self.pieces.step();
        let first = self.pieces.first().unwrap_or(self.span.since);
        let cell = |(begin, path, [ok, failed, refused]): (u64, u64, [u64; 3])| {
            [path, (begin - first) / step, ok, failed, refused]
        };
        let mut marked = self.marked;
        let mut marks = Vec::new();
        let unanswered = self.questions.values().map(|question| RawCallMark {
            at: question.at,
            ms: until.saturating_sub(question.at),
            ..self.question(question, &reply_text("no answer yet", None), 0)
        });
        let unanswered: Vec<_> = unanswered.take(MAX_MARKS).collect();
        marked[CallMarkReason::Waited as usize] += self.questions.len() as u64;
        for (kind, told) in [
            CallMarkReason::Refused,
            CallMarkReason::Failed,
            CallMarkReason::Waited,
        ]
        .into_iter()
        .zip(&self.told)
        {
            let open = if kind == CallMarkReason::Waited {
                &unanswered[..]
            } else {
                &[]
            };
            let beyond = (told.len() + open.len()).saturating_sub(MAX_MARKS);
            for one in told.iter().chain(open).skip(beyond) {
                marks.push(CallMark {
                    kind,
                    at: one.at,
                    ms: one.ms,
                    path: one.path,
                    tool: names.place(&one.tool),
                    why: names.sentence(&one.why),
                    code: names.place(&one.code),
                    n: one.n,
                });
            }
        }
        marks.sort_by_key(|mark| (mark.at, mark.n));
        let mut codes: Vec<_> = self
            .codes
            .iter()
            .map(|(code, count)| (code.clone(), *count))
            .collect();
        codes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        // A watch is no work, such as the page's own of tasks.
        let works = self.open.iter().filter(|(_, call)| call.tool != WATCH);
        let running = works.map(|(n, call)| {
            let span = LaneSpan {
                at: call.at,
                ms: 0,
                kind: SpanKind::Call,
                outcome: SpanOutcome::Ok,
                server: call.server.clone(),
                tool: call.tool.clone(),
                why: String::new(),
                code: String::new(),
                task: call.task,
                n: *n,
            };
            (&call.lane, span)
        });
        let users = &mut self.users;
        let user = |uid| {
            users
                .entry(uid)
                .or_insert_with(|| terminal::user(uid))
                .clone()
        };
        let (lanes, tasks) = self.lanes.shown(running, &mut names, user);
        ReportPeriod {
            since: self.span.since,
            until,
            first,
            step,
            lanes,
            tasks,
            model_costs: self.lanes.costs().table(&mut names),
            paths: self.seen.clone(),
            cells: self.pieces.cells().map(cell).collect(),
            tools: self.figures.clone(),
            codes,
            marks,
            marked,
            open: self.open.len() as u64,
            forgotten: self.forgotten,
            together: self.together,
            most_marks: MAX_MARKS,
            names: names.into_names(),
        }
    }
}

/// The server of a record: what Colibri answers itself names none, or its own.
/// The outcome of a question, which the daemon itself asked if it knows who replied.
fn reply_text(outcome: &str, answered_by: Option<&str>) -> String {
    match answered_by {
        Some("program") => format!("the client's program replied, and no person: {outcome}"),
        Some(_) => format!("the person was asked to confirm the call: {outcome}"),
        None => format!("the server asked the person: {outcome}"),
    }
}

fn own_name(server: &str) -> &str {
    if server.is_empty() { COLIBRI } else { server }
}

/// True if a call that ended so was not let pass by Colibri: by a rule, a gate, a person, or a
/// limit of who called.
fn is_refusal(code: &str) -> bool {
    let known = Code::ALL.iter().find(|known| known.name() == code);
    known.is_some_and(|code| matches!(code.row().number, 102..=104 | 200..210))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use colibri_trail::{
        Attempt, ContentDigest, Detail, Enter, EventRecord, ExitRecord, SegmentLimits, Through,
        Trail, TrailHead, TrailOptions, TrailRecord, Witness, directory,
    };

    const NOON: u64 = 1_795_262_400_000;

    struct Nobody;

    impl Witness for Nobody {
        fn witness(&self, _: &TrailHead) -> io::Result<()> {
            Ok(())
        }
    }

    struct Written {
        dir: tempfile::TempDir,
        trail: Trail,
    }

    impl Written {
        fn new() -> Written {
            let dir = tempfile::tempdir().unwrap();
            let trail = Trail::open(TrailOptions {
                state_dir: dir.path().into(),
                sync: false,
                witness: Arc::new(Nobody),
                notify: |_, _| (),
                limits: SegmentLimits::default(),
            });
            let trail = trail.unwrap();
            Written { dir, trail }
        }

        fn add(&self, record: TrailRecord<'_>) -> u64 {
            self.trail.append([record]).unwrap().first
        }

        fn enter(
            &self,
            at: u64,
            tool: &str,
            continues: Option<u64>,
            through: Option<Through<'_>>,
        ) -> u64 {
            self.add(TrailRecord::Enter(enter(at, tool, continues, through)))
        }

        fn exit(&self, at: u64, took: u64, enter: u64, tool: &str, code: Option<&str>) {
            self.add(TrailRecord::Exit(ExitRecord {
                attempt: attempt(at, took, enter, tool, code),
                success: code.is_none(),
                output: Some(ContentDigest::of(b"1234567")),
                output_full: None,
                remote: None,
            }));
        }

        fn read(self) -> ReportPeriod {
            self.trail.close().unwrap();
            let (since, until) = (NOON, NOON + 3_600_000);
            let mut reader = PeriodReader::new(
                &directory(self.dir.path()),
                Span { since, until },
                ModelCosts::default(),
            );
            reader.read().unwrap();
            reader.period(until)
        }
    }

    fn time(at: u64) -> std::time::SystemTime {
        UNIX_EPOCH + Duration::from_millis(NOON + at)
    }

    fn enter<'a>(
        at: u64,
        tool: &'a str,
        continues: Option<u64>,
        through: Option<Through<'a>>,
    ) -> Enter<'a> {
        Enter {
            time: time(at),
            uid: 4_000_000_001,
            gid: 1,
            pid: None,
            client: None,
            connection: 1,
            continues,
            method: "tools/call",
            server: Some("git"),
            tool: Some(tool),
            name: None,
            era: "modern",
            version: "2026-07-28",
            args: ContentDigest::of(b"12345"),
            args_full: None,
            traceparent: None,
            tracestate: None,
            validated: Default::default(),
            through,
            task: None,
            within: None,
            caller: None,
        }
    }

    fn attempt<'a>(
        at: u64,
        took: u64,
        enter: u64,
        tool: &'a str,
        code: Option<&'a str>,
    ) -> Attempt<'a> {
        Attempt {
            time: time(at),
            enter,
            integration_id: "git",
            operation: tool,
            attempt_number: 1,
            error_code: code,
            error_class: code.map(|_| "permanent"),
            latency: Duration::from_millis(took),
        }
    }

    #[test]
    fn calls_are_counted_where_they_began_and_told_where_they_did_not_go_well() {
        let written = Written::new();
        let coder = Through {
            agent: "coder",
            session: "0123456789abcdef",
            for_uid: 4_000_000_002,
        };
        // Named a server that nobody had looked at: one call, with two records of its beginning.
        let looked = written.enter(0, "push", None, None);
        let well = written.enter(10, "push", Some(looked), None);
        written.exit(20_000, 19_990, well, "push", None);
        let refused = written.enter(30_000, "push", None, Some(coder));
        written.exit(30_001, 1, refused, "push", Some("POLICY_DENIED"));
        let failed = written.enter(60_000, "pull", None, None);
        written.add(TrailRecord::Retry(attempt(
            61_000,
            1000,
            failed,
            "pull",
            Some("SERVER_DIED"),
        )));
        let question = [
            ("connection", Detail::Number(1)),
            ("request", Detail::Number(7)),
            ("method", Detail::Text("elicitation/create")),
            ("call", Detail::Number(failed)),
            ("outcome", Detail::Text("decline")),
        ];
        for (at, event) in [(62_000, "asked"), (65_000, "answered")] {
            let time = time(at);
            let details = &question;
            written.add(TrailRecord::Event(EventRecord {
                time,
                event,
                details,
            }));
        }
        for (at, event, author) in [
            (66_000, "asked", None),
            (66_001, "answered", Some("program")),
        ] {
            let details: Vec<_> = question
                .into_iter()
                .chain(author.map(|author| ("answered_by", Detail::Text(author))))
                .collect();
            let (time, details) = (time(at), &details[..]);
            written.add(TrailRecord::Event(EventRecord {
                time,
                event,
                details,
            }));
        }
        written.exit(70_000, 10_000, failed, "pull", Some("-32603"));
        written.enter(80_000, "pull", None, None);
        // Not of this time.
        let late = written.enter(3_600_000, "pull", None, None);
        written.exit(3_600_001, 1, late, "pull", None);
        let day = written.read();
        assert_eq!((day.first, day.step, day.open), (NOON, 1000, 1));
        let way = |path: usize| {
            let CallPath {
                caller,
                agent,
                server,
            } = &day.paths[path];
            let name = |name: usize| day.names[name].as_str();
            (name(*caller), agent.map(name), name(*server))
        };
        assert_eq!(way(0), ("4000000001", None, "git"));
        assert_eq!(way(1), ("4000000002", Some("coder"), "git"));
        // The first began in the first piece of time, though it ended later.
        assert_eq!(
            day.cells,
            [[0, 0, 1, 0, 0], [1, 30, 0, 0, 1], [0, 60, 0, 1, 0]]
        );
        let marks: Vec<_> = (day.marks.iter())
            .map(|mark| {
                (
                    mark.kind,
                    mark.at - NOON,
                    mark.ms,
                    mark.path,
                    day.names[mark.code].as_str(),
                )
            })
            .collect();
        assert_eq!(
            marks,
            [
                (CallMarkReason::Refused, 30_000, 1, 1, "POLICY_DENIED"),
                (CallMarkReason::Failed, 60_000, 10_000, 0, "-32603"),
                (CallMarkReason::Waited, 61_000, 9000, 0, "SERVER_DIED"),
                (
                    CallMarkReason::Waited,
                    62_000,
                    3000,
                    0,
                    "elicitation/create"
                ),
                (CallMarkReason::Waited, 66_000, 1, 0, "elicitation/create"),
            ]
        );
        let why = |mark: usize| day.names[day.marks[mark].why].as_str();
        assert_eq!(why(0), Code::PolicyDenied.row().when);
        assert!(
            why(2).starts_with("tried again after an attempt failed: the server ended"),
            "{}",
            why(2)
        );
        assert_eq!(why(3), "the server asked the person: decline");
        assert_eq!(
            why(4),
            "the client's program replied, and no person: decline"
        );
        assert_eq!(day.marked, [1, 1, 3]);
        let pull = day
            .tools
            .iter()
            .find(|tool| day.names[tool.name] == "pull")
            .unwrap();
        assert_eq!(
            (pull.calls, pull.failed, pull.asked, pull.answered),
            (1, 1, 5, 7)
        );
        assert!(!day.together);
    }

    #[test]
    fn what_anybody_can_make_many_of_is_bounded() {
        let written = Written::new();
        let long = "x".repeat(10_000);
        for call in 0..2500 {
            let (agent, tool) = (format!("a{call}\u{202e}"), format!("{call}{long}"));
            let through = Through {
                agent: &agent,
                session: "s",
                for_uid: 4_000_000_002,
            };
            let enter = written.enter(call, &tool, None, Some(through));
            written.exit(call, 0, enter, &tool, Some(&tool));
        }
        let begun = (0..=MAX_OPEN).map(|_| enter(2500, "push", None, None));
        written.trail.append(begun.map(TrailRecord::Enter)).unwrap();
        let day = written.read();
        assert_eq!((day.open, day.forgotten), (MAX_OPEN as u64, 1));
        assert!(day.paths.len() <= MAX_PATHS + 1 && day.tools.len() <= MAX_TOOLS + MAX_PATHS + 1);
        assert!(day.codes.len() <= MAX_CODES + 1 && day.together);
        assert_eq!((day.marks.len(), day.marked), (MAX_MARKS, [0, 2500, 0]));
        assert_eq!(day.marks[0].at, NOON + 500, "the newest are kept");
        assert_eq!(day.cells.iter().map(|cell| cell[3]).sum::<u64>(), 2500);
        assert!(
            day.names
                .iter()
                .all(|name| name.chars().count() <= 4 * NAME + 10 && !name.contains('\u{202e}'))
        );
    }
}
