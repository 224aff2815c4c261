//! The trail's record of a period's calls, in bounded form: counted by path and piece of time and by tool, and one by
//! one only where a call was refused, failed or waited.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::time::{millis, text};
use crate::terminal;
use colibri_protocol::Code;
use colibri_text::brief;
use colibri_trail::{RecordFields, RecordFilter, RecordView, TrailEvent, show};

/// The most characters of a name.
pub(super) const NAME: usize = 120;
/// Pieces that the time is cut into, at most.
const MAX_BINS: u64 = 288;
/// The most paths of calls that are shown apart; the others are counted together.
const MAX_PATHS: usize = 200;
/// Clients that are told apart: they name themselves.
const MAX_CLIENTS: usize = 20;
/// Tools that are told apart, each by path; the others are counted together.
const MAX_TOOLS: usize = 1000;
/// Calls of each kind that are told one by one, the newest.
const MAX_MARKS: usize = 2000;
/// Reasons that are told apart.
const MAX_CODES: usize = 60;
/// Calls that are remembered until they end, and questions until they are answered.
const MAX_OPEN: usize = 100_000;
/// The name of those beyond a bound.
const OTHERS: &str = "all others";
/// Lengths of a piece of time that people can read off an axis, in seconds.
const STEPS: [u64; 19] = [
    1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800, 31_536_000,
];

/// From when to when, milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub since: u64,
    pub until: u64,
}

impl Span {
    /// The length of a piece of it, milliseconds.
    fn step(self) -> u64 {
        let length = self.until.saturating_sub(self.since);
        let fits = |step: &&u64| length.div_ceil(**step * 1000) <= MAX_BINS;
        STEPS.iter().find(fits).unwrap_or(&STEPS[STEPS.len() - 1]) * 1000
    }
}

/// The reason for which a call is listed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum CallMarkReason {
    /// Colibri did not let it pass.
    Refused,
    /// It went wrong.
    Failed,
    /// It waited: for a person, or for its next attempt.
    Waited,
}

/// A name: its place among [`Day::names`].
type Name = usize;

/// The facts of a period. Text in it has been made visible and is bounded.
#[derive(Debug, Default, Serialize)]
pub(super) struct ReportPeriod {
    since: u64,
    until: u64,
    /// The beginning of the first piece of time, and the length of each, milliseconds.
    first: u64,
    step: u64,
    names: Vec<String>,
    /// Caller, client or nothing, agent or nothing, server, the server's id as it is known elsewhere.
    paths: Vec<CallPath>,
    /// Path, piece of time, and the calls that went well, that failed, that were refused.
    cells: Vec<[u64; 5]>,
    tools: Vec<ToolFigures>,
    /// Reasons of calls that did not go well, most first.
    codes: Vec<(String, u64)>,
    /// Oldest first.
    marks: Vec<CallMark>,
    /// The number of each kind: refused, failed, waited.
    marked: [u64; 3],
    /// Calls that have no end in this time.
    open: u64,
    /// Calls and questions whose end, if it came, found nothing of them any more: there were too many before it.
    forgotten: u64,
    /// True if paths or tools were counted together.
    together: bool,
    /// The most calls that are listed one by one, of each kind.
    most_marks: usize,
}

/// The way that calls take.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct CallPath {
    caller: Name,
    /// The name that the client declares of itself.
    client: Option<Name>,
    agent: Option<Name>,
    server: Name,
}

/// The same before its names have their places.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PathKey {
    uid: Option<u32>,
    client: Option<String>,
    agent: Option<String>,
    server: String,
}

/// The figures of a tool's calls on one path.
#[derive(Debug, Default, Serialize)]
struct ToolFigures {
    path: usize,
    name: Name,
    calls: u64,
    failed: u64,
    refused: u64,
    /// Bytes of arguments.
    asked: u64,
    /// Bytes of answers.
    answered: u64,
    /// Milliseconds of all together.
    ms: f64,
}

/// A call that is told by itself.
#[derive(Debug, Serialize)]
struct CallMark {
    kind: CallMarkReason,
    /// Its beginning and its duration, milliseconds.
    at: u64,
    ms: u64,
    path: usize,
    tool: Name,
    why: Name,
    /// The number of the record that says so.
    n: u64,
}

/// The same before its names have their places.
#[derive(Debug)]
struct RawCallMark {
    at: u64,
    ms: u64,
    path: usize,
    tool: String,
    why: String,
    n: u64,
}

/// The fields of records beyond those that people search for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct More {
    args: DigestLength,
    output: Option<DigestLength>,
    continues: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DigestLength {
    length: u64,
}

/// A call that has not ended.
#[derive(Debug)]
struct OpenCall {
    path: usize,
    tool: String,
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

#[derive(Default)]
struct PeriodReader {
    day: ReportPeriod,
    named: HashMap<String, Name>,
    paths: HashMap<PathKey, usize>,
    clients: BTreeSet<String>,
    users: HashMap<u32, String>,
    cells: BTreeMap<(usize, u64), [u64; 3]>,
    tools: HashMap<(usize, String), usize>,
    codes: BTreeMap<String, u64>,
    told: [VecDeque<RawCallMark>; 3],
    open: BTreeMap<u64, OpenCall>,
    questions: BTreeMap<(u64, u64), OpenQuestion>,
}

/// Reads the calls of a time from the trail in this directory.
///
/// # Errors
/// It cannot be read.
pub(super) fn read(dir: &Path, span: Span) -> io::Result<ReportPeriod> {
    let filter = RecordFilter {
        since: Some(text(span.since)),
        until: Some(text(span.until)),
        ..RecordFilter::default()
    };
    let step = span.step();
    let mut reading = PeriodReader {
        day: ReportPeriod {
            since: span.since,
            until: span.until,
            // So that the pieces begin when clocks strike.
            first: span.since - span.since % step,
            step,
            most_marks: MAX_MARKS,
            ..ReportPeriod::default()
        },
        ..PeriodReader::default()
    };
    show(dir, &filter, None, &mut |record| {
        reading.take(&record);
        ControlFlow::Continue(())
    })?;
    Ok(reading.finish())
}

impl PeriodReader {
    fn take(&mut self, record: &RecordView<'_>) {
        let Some(at) = millis(&record.fields.timestamp) else {
            return;
        };
        match record.kind.as_str() {
            "enter" => self.enter(record),
            "exit" => self.exit(record, at),
            "retry" => self.retry(record, at),
            "event" => self.event(record, at),
            _ => {}
        }
    }

    fn enter(&mut self, record: &RecordView<'_>) {
        let more: More = serde_json::from_str(record.rec).unwrap_or_default();
        if let Some(before) = more.continues {
            self.open.remove(&before);
        }
        let RecordFields {
            server, tool, method, ..
        } = &record.fields;
        let open = OpenCall {
            path: self.path(record, server),
            tool: if tool.is_empty() { method } else { tool }.clone(),
            asked: more.args.length,
            retry: None,
        };
        if self.open.len() == MAX_OPEN {
            self.open.pop_first();
            self.day.forgotten += 1;
        }
        self.open.insert(record.n, open);
    }

    fn exit(&mut self, record: &RecordView<'_>, at: u64) {
        let more: More = serde_json::from_str(record.rec).unwrap_or_default();
        let fields = &record.fields;
        let open = fields.enter.and_then(|enter| self.open.remove(&enter));
        let path = match &open {
            Some(open) => open.path,
            None => self.path(record, &fields.integration_id),
        };
        let took = if fields.latency_ms.is_finite() {
            fields.latency_ms.max(0.0)
        } else {
            0.0
        };
        let begun = at.saturating_sub(took as u64);
        let code = fields.error_code.as_deref().unwrap_or("");
        let kind = match fields.result.as_str() {
            "SUCCESS" => None,
            _ if is_refusal(code) => Some(CallMarkReason::Refused),
            _ => Some(CallMarkReason::Failed),
        };
        let bin = begun.saturating_sub(self.day.first) / self.day.step;
        let cell = self.cells.entry((path, bin)).or_default();
        cell[kind.map_or(0, |kind| if kind == CallMarkReason::Failed { 1 } else { 2 })] += 1;
        if let Some((since, why)) = open.as_ref().and_then(|open| open.retry.clone()) {
            let told = self.told(
                path,
                &fields.operation,
                &format!("tried again after {why}"),
                fields.enter,
            );
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
        let why = if code.is_empty() { "no reason" } else { code };
        let told = self.told(path, &fields.operation, why, Some(record.n));
        let why = told.why.clone();
        self.mark(kind, begun, at, told);
        let known = self.codes.len() < MAX_CODES || self.codes.contains_key(&why);
        let why = if known { why } else { OTHERS.to_owned() };
        *self.codes.entry(why).or_default() += 1;
    }

    /// An attempt failed: until the call's next record it waits, and is tried again.
    fn retry(&mut self, record: &RecordView<'_>, at: u64) {
        let fields = &record.fields;
        let why = brief(fields.error_code.as_deref().unwrap_or("an attempt failed"), NAME);
        let Some(open) = fields.enter.and_then(|enter| self.open.get_mut(&enter)) else {
            return;
        };
        // Of several attempts the wait is one, from the first that failed.
        open.retry.get_or_insert((at, why));
    }

    fn event(&mut self, record: &RecordView<'_>, at: u64) {
        match TrailEvent::read(&record.fields.event, &record.fields.details) {
            Some(TrailEvent::Asked {
                server,
                method,
                uid,
                connection,
                request,
                call,
                ..
            }) => {
                let (path, tool) = match call.and_then(|call| self.open.get(&call)) {
                    Some(call) => (call.path, call.tool.clone()),
                    None => (self.path_of(Some(uid), None, None, server), String::new()),
                };
                let question = OpenQuestion {
                    at,
                    path,
                    tool,
                    method: brief(method, NAME),
                };
                if self.questions.len() == MAX_OPEN {
                    self.questions.pop_first();
                    self.day.forgotten += 1;
                }
                self.questions.insert((connection, request), question);
            }
            Some(TrailEvent::Answered {
                connection,
                request,
                outcome,
                ..
            }) => {
                if let Some(question) = self.questions.remove(&(connection, request)) {
                    self.waited(&question, at, outcome, record.n);
                }
            }
            Some(TrailEvent::Approval {
                uid,
                by,
                approved,
                agent,
                ..
            }) => {
                let path = self.path_of(Some(uid), None, agent, "");
                let said = if approved { "approved" } else { "denied" };
                let why = format!("{said} by {}", terminal::user(by));
                let told = self.told(path, "", &why, Some(record.n));
                self.mark(CallMarkReason::Waited, at, at, told);
            }
            _ => {}
        }
    }

    fn waited(&mut self, question: &OpenQuestion, until: u64, outcome: &str, n: u64) {
        let why = format!("{}: {outcome}", question.method);
        let told = self.told(question.path, &question.tool, &why, Some(n));
        self.mark(CallMarkReason::Waited, question.at, until, told);
    }

    fn told(&self, path: usize, tool: &str, why: &str, n: Option<u64>) -> RawCallMark {
        RawCallMark {
            at: 0,
            ms: 0,
            path,
            tool: brief(tool, NAME),
            why: brief(why, NAME),
            n: n.unwrap_or(0),
        }
    }

    fn mark(&mut self, kind: CallMarkReason, at: u64, until: u64, told: RawCallMark) {
        let queue = &mut self.told[kind as usize];
        self.day.marked[kind as usize] += 1;
        if queue.len() == MAX_MARKS {
            queue.pop_front();
        }
        queue.push_back(RawCallMark {
            at,
            ms: until.saturating_sub(at),
            ..told
        });
    }

    fn name(&mut self, text: &str) -> Name {
        let names = &mut self.day.names;
        let text = brief(text, NAME);
        *self.named.entry(text).or_insert_with_key(|text| {
            names.push(text.clone());
            names.len() - 1
        })
    }

    fn path(&mut self, record: &RecordView<'_>, server: &str) -> usize {
        let client = record.client.as_ref().map(|client| client.name.as_str());
        match &record.through {
            Some(agent) => self.path_of(agent.for_uid.or(record.uid), client, Some(&agent.agent), server),
            None => self.path_of(record.uid, client, None, server),
        }
    }

    /// The client's name, as long as there are not too many.
    fn client(&mut self, name: &str) -> String {
        if self.clients.len() < MAX_CLIENTS {
            self.clients.insert(name.to_owned());
        }
        let is_known = self.clients.contains(name);
        self.day.together |= !is_known;
        if is_known { name } else { OTHERS }.to_owned()
    }

    fn path_of(&mut self, uid: Option<u32>, client: Option<&str>, agent: Option<&str>, server: &str) -> usize {
        // What Colibri answers itself names no server, or its own.
        let server = if server.is_empty() { "colibri" } else { server };
        let client = client.map(|name| self.client(name));
        let mut key = PathKey {
            uid,
            client,
            agent: agent.map(str::to_owned),
            server: server.to_owned(),
        };
        if let Some(path) = self.paths.get(&key) {
            return *path;
        }
        let others = self.paths.len() >= MAX_PATHS;
        if others {
            self.day.together = true;
            key = PathKey {
                uid: None,
                client: Some(OTHERS.to_owned()),
                agent: Some(OTHERS.to_owned()),
                server: OTHERS.to_owned(),
            };
            if let Some(path) = self.paths.get(&key) {
                return *path;
            }
        }
        let caller = match uid {
            _ if others => OTHERS.to_owned(),
            Some(uid) => self.users.entry(uid).or_insert_with(|| terminal::user(uid)).clone(),
            None => "not known".to_owned(),
        };
        let way = CallPath {
            caller: self.name(&caller),
            client: key.client.as_deref().map(|client| self.name(client)),
            agent: key.agent.as_deref().map(|agent| self.name(agent)),
            server: self.name(&key.server),
        };
        self.day.paths.push(way);
        self.paths.insert(key, self.day.paths.len() - 1);
        self.day.paths.len() - 1
    }

    fn tool(&mut self, path: usize, tool: &str) -> &mut ToolFigures {
        let mut key = (path, brief(tool, NAME));
        if !self.tools.contains_key(&key) && self.tools.len() >= MAX_TOOLS {
            self.day.together = true;
            key.1 = OTHERS.to_owned();
        }
        let at = match self.tools.get(&key) {
            Some(at) => *at,
            None => {
                let name = self.name(&key.1);
                self.day.tools.push(ToolFigures {
                    path,
                    name,
                    ..ToolFigures::default()
                });
                self.tools.insert(key, self.day.tools.len() - 1);
                self.day.tools.len() - 1
            }
        };
        &mut self.day.tools[at]
    }

    fn finish(mut self) -> ReportPeriod {
        for question in std::mem::take(&mut self.questions).into_values() {
            self.waited(&question, self.day.until, "no answer yet", 0);
        }
        self.day.cells = (self.cells.iter())
            .map(|((path, bin), [ok, failed, refused])| [*path as u64, *bin, *ok, *failed, *refused])
            .collect();
        let told = std::mem::take(&mut self.told);
        for (kind, told) in [CallMarkReason::Refused, CallMarkReason::Failed, CallMarkReason::Waited]
            .into_iter()
            .zip(told)
        {
            for one in told {
                let mark = CallMark {
                    kind,
                    at: one.at,
                    ms: one.ms,
                    path: one.path,
                    tool: self.name(&one.tool),
                    why: self.name(&one.why),
                    n: one.n,
                };
                self.day.marks.push(mark);
            }
        }
        self.day.marks.sort_by_key(|mark| (mark.at, mark.n));
        let mut codes: Vec<_> = self.codes.into_iter().collect();
        codes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        ReportPeriod {
            codes,
            open: self.open.len() as u64,
            ..self.day
        }
    }
}

/// True if a call that ended so was not let pass by Colibri: by a rule, a gate, a person, or a limit of who called.
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
        Attempt, ContentDigest, DeclaredClient, Detail, Enter, EventRecord, ExitRecord, SegmentLimits, Through, Trail,
        TrailHead, TrailOptions, TrailRecord, Witness, directory,
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

        fn enter(&self, at: u64, tool: &str, continues: Option<u64>, through: Option<Through<'_>>) -> u64 {
            self.add(TrailRecord::Enter(enter(at, tool, continues, through)))
        }

        fn exit(&self, at: u64, took: u64, enter: u64, tool: &str, code: Option<&str>) {
            self.add(TrailRecord::Exit(ExitRecord {
                attempt: attempt(at, took, enter, tool, code),
                success: code.is_none(),
                output: Some(ContentDigest::of(b"1234567")),
                output_full: None,
            }));
        }

        fn read(self) -> ReportPeriod {
            self.trail.close().unwrap();
            let span = Span {
                since: NOON,
                until: NOON + 3_600_000,
            };
            read(&directory(self.dir.path()), span).unwrap()
        }
    }

    fn time(at: u64) -> std::time::SystemTime {
        UNIX_EPOCH + Duration::from_millis(NOON + at)
    }

    fn enter<'a>(at: u64, tool: &'a str, continues: Option<u64>, through: Option<Through<'a>>) -> Enter<'a> {
        Enter {
            time: time(at),
            uid: 4_000_000_001,
            gid: 1,
            pid: None,
            connection: 1,
            continues,
            client: None,
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
        }
    }

    fn attempt<'a>(at: u64, took: u64, enter: u64, tool: &'a str, code: Option<&'a str>) -> Attempt<'a> {
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
            written.add(TrailRecord::Event(EventRecord { time, event, details }));
        }
        written.exit(70_000, 10_000, failed, "pull", Some("-32603"));
        written.enter(80_000, "pull", None, None);
        // Not of this time.
        let late = written.enter(3_600_000, "pull", None, None);
        written.exit(3_600_001, 1, late, "pull", None);
        let day = written.read();
        assert_eq!((day.first, day.step, day.open), (NOON, 15_000, 1));
        let way = |path: usize| {
            let CallPath {
                caller, agent, server, ..
            } = &day.paths[path];
            let name = |name: usize| day.names[name].as_str();
            (name(*caller), agent.map(name), name(*server))
        };
        assert_eq!(way(0), ("4000000001", None, "git"));
        assert_eq!(way(1), ("4000000002", Some("coder"), "git"));
        // The first began in the first piece of time, though it ended in the second.
        assert_eq!(day.cells, [[0, 0, 1, 0, 0], [0, 4, 0, 1, 0], [1, 2, 0, 0, 1]]);
        let marks: Vec<_> = (day.marks.iter())
            .map(|mark| {
                (
                    mark.kind,
                    mark.at - NOON,
                    mark.ms,
                    mark.path,
                    day.names[mark.why].as_str(),
                )
            })
            .collect();
        assert_eq!(
            marks,
            [
                (CallMarkReason::Refused, 30_000, 1, 1, "POLICY_DENIED"),
                (CallMarkReason::Failed, 60_000, 10_000, 0, "-32603"),
                (CallMarkReason::Waited, 61_000, 9000, 0, "tried again after SERVER_DIED"),
                (CallMarkReason::Waited, 62_000, 3000, 0, "elicitation/create: decline"),
            ]
        );
        assert_eq!(day.marked, [1, 1, 2]);
        let pull = day.tools.iter().find(|tool| day.names[tool.name] == "pull").unwrap();
        assert_eq!((pull.calls, pull.failed, pull.asked, pull.answered), (1, 1, 5, 7));
        assert!(!day.together);
    }

    #[test]
    fn calls_are_told_apart_by_client_as_long_as_there_are_few() {
        let written = Written::new();
        for call in 0..3 * MAX_CLIENTS as u64 {
            let name = format!("client {call}");
            let client = Some(DeclaredClient {
                name: &name,
                version: "1",
            });
            let enter = written.add(TrailRecord::Enter(Enter {
                client,
                ..enter(call, "push", None, None)
            }));
            written.exit(call, 0, enter, "push", None);
        }
        written.enter(99, "push", None, None);
        let day = written.read();
        let clients: Vec<_> = (day.paths.iter())
            .map(|path| path.client.map(|client| day.names[client].as_str()))
            .collect();
        assert_eq!(clients.len(), MAX_CLIENTS + 2);
        assert_eq!(
            (clients[0], clients[MAX_CLIENTS], clients[MAX_CLIENTS + 1]),
            (Some("client 0"), Some(OTHERS), None)
        );
        assert!(day.together);
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
                .all(|name| name.chars().count() <= NAME + 10 && !name.contains('\u{202e}'))
        );
        let length = |until| Span { since: 0, until }.step();
        assert_eq!((length(1), length(86_400_000)), (1000, 300_000));
        assert!(86_400_000 * 365 * 50 / length(86_400_000 * 365 * 50) <= MAX_BINS);
    }
}
