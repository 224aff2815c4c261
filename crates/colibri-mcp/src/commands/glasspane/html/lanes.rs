//! The trail's record of agents' instances and of clients: a lane each, with its calls and model
//! requests as spans; and the changes of tasks.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;

use super::model_costs::{CostOwner, DrawnCost, ModelCharge, ModelCost, ModelCosts};
use super::names::{NAME, Name, NameTable};
use super::pieces::{CallPieces, SpanOutcome};
use super::table::PageTable;
use super::time::utc;
use colibri_api::CostSum;
use colibri_text::brief;
use colibri_trail::TrailEvent;

/// The most lanes that are remembered. Those that were quiet longest make room.
const MAX_LANES: usize = 200;
/// The most spans that are drawn one by one, of all lanes; older ones are counted by pieces of
/// time.
const MAX_SPANS: usize = 10_000;
/// The most tasks, the newest, and changes of each.
const MAX_TASKS: usize = 300;
const MAX_CHANGES: usize = 40;
/// The most requests to models that are remembered until they are answered.
const MAX_REQUESTS: usize = 10_000;
/// The most tasks that a lane names.
const MAX_TASKS_OF_LANE: usize = 50;

/// The owner of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum LaneKey {
    /// An instance of an agent, by its session.
    Instance(String),
    /// A user's clients of this name.
    Client(Option<u32>, Option<String>),
}

/// The work that a span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SpanKind {
    /// A call of a tool, or another request.
    Call,
    /// A request to a model.
    Model,
}

/// A call or a model request of a lane.
#[derive(Debug, Clone)]
pub(super) struct LaneSpan {
    pub at: u64,
    pub ms: u64,
    pub kind: SpanKind,
    pub outcome: SpanOutcome,
    /// Server and tool, or the model's interface.
    pub server: String,
    pub tool: String,
    /// A sentence, and the code that it explains.
    pub why: String,
    pub code: String,
    pub task: Option<u64>,
    /// The number of its record.
    pub n: u64,
}

#[derive(Debug, Default)]
struct LaneState {
    number: u64,
    agent: String,
    person: Option<u32>,
    jail: Option<String>,
    started: Option<u64>,
    ended: Option<u64>,
    /// The state and the reason with which an instance ended.
    state: String,
    reason: String,
    /// The tasks that it had, each since when.
    tasks: Vec<(u64, u64)>,
    spans: VecDeque<LaneSpan>,
    cost: ModelCost,
    last: u64,
}

#[derive(Debug)]
struct TaskChangeState {
    at: u64,
    to: String,
    by: Option<u32>,
    session: Option<String>,
    reason: String,
}

/// A request to a model that has no answer yet.
#[derive(Debug)]
struct OpenModelRequest {
    at: u64,
    api: String,
    path: String,
    model: Option<String>,
}

/// Reads lanes and tasks out of records, in their order.
#[derive(Debug, Default)]
pub(super) struct LaneReader {
    lanes: HashMap<LaneKey, LaneState>,
    created: u64,
    forgotten: u64,
    /// The spans that are no longer remembered one by one.
    older: CallPieces,
    requests: BTreeMap<(String, u64), OpenModelRequest>,
    tasks: BTreeMap<u64, VecDeque<TaskChangeState>>,
    costs: ModelCosts,
}

/// A lane of the page.
#[derive(Debug, Serialize)]
pub(super) struct Lane {
    /// The instance; empty: a user's clients.
    id: String,
    /// The agent, or the client's name for itself; empty: it gave none.
    agent: Name,
    person: Name,
    jail: Option<Name>,
    started: Option<u64>,
    ended: Option<u64>,
    state: Name,
    reason: Name,
    /// Its tasks, each with the time since when.
    tasks: Vec<(u64, u64)>,
    spans: Vec<DrawnSpan>,
    /// Of what is older than the spans: the beginning of a piece of time, calls, and those that did
    /// not go well.
    older: Vec<[u64; 3]>,
    /// What models cost it.
    cost: Option<DrawnCost>,
    last: u64,
}

/// A span: its beginning, its milliseconds (`None`: it has not ended), its kind, its outcome,
/// server, tool, reason, code, task and record.
#[derive(Debug, Serialize)]
struct DrawnSpan(
    u64,
    Option<u64>,
    SpanKind,
    u8,
    Name,
    Name,
    Name,
    Name,
    Option<u64>,
    u64,
);

/// All lanes.
#[derive(Debug, Serialize)]
pub(super) struct Lanes {
    /// The last to be active first.
    list: Vec<Lane>,
    /// The lanes that made room for others.
    forgotten: u64,
    /// The length of a piece of time in `older`, milliseconds.
    older_step: u64,
}

/// A task, and what became of it.
#[derive(Debug, Serialize)]
pub(super) struct TaskHistory {
    id: u64,
    changes: Vec<RecordedTaskChange>,
}

/// A change of a task: an agent's instance, or a person, or the daemon itself made it.
#[derive(Debug, Serialize)]
struct RecordedTaskChange {
    at: u64,
    to: Name,
    by: Option<Name>,
    session: Option<Name>,
    reason: Name,
}

/// A call that has not ended: its lane, and the span so far.
pub(super) type RunningCall<'a> = (&'a LaneKey, LaneSpan);

impl LaneReader {
    /// A reader that counts money by these costs' prices.
    pub(super) fn new(costs: ModelCosts) -> LaneReader {
        LaneReader {
            costs,
            ..LaneReader::default()
        }
    }

    /// What models cost in the period.
    pub(super) fn costs(&self) -> &ModelCosts {
        &self.costs
    }

    /// Counts what a model's answer cost a lane.
    pub(super) fn charge(&mut self, key: &LaneKey, at: u64, charge: &ModelCharge<'_>) {
        self.lane(key, at);
        let Some(lane) = self.lanes.get_mut(key) else {
            return;
        };
        let owner = match key {
            LaneKey::Instance(_) => CostOwner::Agent(&lane.agent),
            LaneKey::Client(..) => CostOwner::Client(&lane.agent),
        };
        self.costs.charge(owner, &mut lane.cost, charge);
    }

    fn lane(&mut self, key: &LaneKey, at: u64) -> &mut LaneState {
        if !self.lanes.contains_key(key) {
            if self.lanes.len() >= MAX_LANES {
                let quiet = self.lanes.iter().min_by_key(|(_, lane)| lane.last);
                let quiet = quiet.map(|(key, lane)| (key.clone(), lane.number));
                if let Some((key, number)) = quiet {
                    self.lanes.remove(&key);
                    self.older.forget(number);
                    self.forgotten += 1;
                }
            }
            self.created += 1;
            let most = MAX_SPANS / (self.lanes.len() + 1);
            for lane in self.lanes.values_mut() {
                lane.shorten(most, &mut self.older);
            }
        }
        let number = self.created;
        let lane = self.lanes.entry(key.clone()).or_insert_with(|| LaneState {
            number,
            ..LaneState::default()
        });
        if let (LaneKey::Client(person, client), true) = (key, lane.last == 0) {
            lane.person = *person;
            lane.agent = client.clone().unwrap_or_default();
        }
        lane.last = lane.last.max(at);
        lane
    }

    /// The call, or the model request, of a lane has ended.
    pub(super) fn span(
        &mut self,
        key: &LaneKey,
        agent: Option<(&str, Option<u32>)>,
        span: LaneSpan,
    ) {
        let lane = self.lane(key, span.at + span.ms);
        if let Some((agent, person)) = agent {
            agent.clone_into(&mut lane.agent);
            lane.person = person.or(lane.person);
        }
        lane.spans.push_back(span);
        let most = MAX_SPANS / self.lanes.len().max(1);
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.shorten(most, &mut self.older);
        }
    }

    /// Takes in an event of an agent or of a task.
    pub(super) fn event(&mut self, event: &TrailEvent<'_>, at: u64, n: u64) {
        let instance = |session: &str| LaneKey::Instance(session.to_owned());
        match *event {
            TrailEvent::AgentStarted {
                agent,
                session,
                person,
                task,
                jail,
                ..
            } => {
                let lane = self.lane(&instance(session), at);
                agent.clone_into(&mut lane.agent);
                lane.person = Some(person);
                lane.jail = jail.map(str::to_owned);
                lane.started = Some(at);
                lane.tasks.extend(task.map(|task| (task, at)));
            }
            TrailEvent::AgentEnded {
                agent,
                session,
                person,
                state,
                reason,
                exit,
                ..
            } => {
                let lane = self.lane(&instance(session), at);
                agent.clone_into(&mut lane.agent);
                lane.person = Some(person);
                lane.ended = Some(at);
                state.clone_into(&mut lane.state);
                let reason = if reason.is_empty() { exit } else { reason };
                reason.clone_into(&mut lane.reason);
            }
            TrailEvent::ModelRequest {
                session,
                n,
                api,
                path,
                model,
                ..
            } => {
                self.lane(&instance(session), at);
                if self.requests.len() == MAX_REQUESTS {
                    self.requests.pop_first();
                }
                let request = OpenModelRequest {
                    at,
                    api: api.to_owned(),
                    path: path.to_owned(),
                    model: model.map(str::to_owned),
                };
                self.requests.insert((session.to_owned(), n), request);
            }
            TrailEvent::ModelAnswer {
                agent,
                session,
                person,
                n: request,
                status,
                tokens_in,
                tokens_out,
                tokens_cached,
                tokens_cache_write,
                ..
            } => {
                let Some(request) = self.requests.remove(&(session.to_owned(), request)) else {
                    return;
                };
                let well = (200..300).contains(&status);
                let span = LaneSpan {
                    at: request.at,
                    ms: at.saturating_sub(request.at),
                    kind: SpanKind::Model,
                    outcome: if well {
                        SpanOutcome::Ok
                    } else {
                        SpanOutcome::Failed
                    },
                    server: request.api,
                    tool: request.path,
                    why: match status {
                        _ if well => format!("{tokens_in} tokens in, {tokens_out} out"),
                        0 => "the model's server did not answer".to_owned(),
                        _ => "the model's server answered with an error".to_owned(),
                    },
                    code: if well {
                        String::new()
                    } else {
                        format!("HTTP {status}")
                    },
                    task: None,
                    n,
                };
                let key = instance(session);
                self.span(&key, Some((agent, Some(person))), span);
                let tasks = self.lanes.get(&key).map_or(&[][..], |lane| &lane.tasks);
                let tokens = CostSum {
                    model_requests: 1,
                    tokens_in,
                    tokens_out,
                    tokens_cached,
                    tokens_cache_write,
                    ..CostSum::default()
                };
                // The record does not say for which task: the one that the instance had then.
                let task = tasks.iter().rev().find(|(_, since)| *since <= request.at);
                let charge = ModelCharge {
                    model: request.model.as_deref(),
                    tokens: &tokens,
                    task: task.map(|(task, _)| *task),
                };
                // What cost nothing was no answer, and is counted nowhere.
                if (tokens_in, tokens_out) != (0, 0) {
                    self.charge(&key, at, &charge);
                }
            }
            TrailEvent::ModelRefused {
                agent,
                session,
                person,
                status,
                why,
            } => {
                let span = LaneSpan {
                    at,
                    ms: 0,
                    kind: SpanKind::Model,
                    outcome: SpanOutcome::Refused,
                    server: "model".to_owned(),
                    tool: String::new(),
                    why: why.to_owned(),
                    code: format!("HTTP {status}"),
                    task: None,
                    n,
                };
                self.span(&instance(session), Some((agent, Some(person))), span);
            }
            TrailEvent::Task {
                id,
                to,
                by,
                session,
                reason,
                ..
            } => {
                if let (Some(session), "claimed") = (session, to) {
                    let lane = self.lane(&instance(session), at);
                    if lane.tasks.last().is_none_or(|(task, _)| *task != id)
                        && lane.tasks.len() < MAX_TASKS_OF_LANE
                    {
                        lane.tasks.push((id, at));
                    }
                }
                let changes = self.tasks.entry(id).or_default();
                if changes.len() == MAX_CHANGES {
                    // The beginning stays.
                    changes.remove(1);
                }
                changes.push_back(TaskChangeState {
                    at,
                    to: to.to_owned(),
                    by,
                    session: session.map(str::to_owned),
                    reason: reason.unwrap_or_default().to_owned(),
                });
                if self.tasks.len() > MAX_TASKS {
                    self.tasks.pop_first();
                }
            }
            _ => {}
        }
    }

    /// The lanes and tasks so far; calls that have not ended are spans without an end.
    pub(super) fn shown<'a>(
        &'a self,
        running: impl Iterator<Item = RunningCall<'a>>,
        names: &mut NameTable,
        mut user: impl FnMut(u32) -> String,
    ) -> (Lanes, Vec<TaskHistory>) {
        let mut older: HashMap<u64, Vec<[u64; 3]>> = HashMap::new();
        for (begin, lane, [ok, failed, refused]) in self.older.cells() {
            let bad = failed + refused;
            older.entry(lane).or_default().push([begin, ok + bad, bad]);
        }
        let mut open: HashMap<&LaneKey, Vec<DrawnSpan>> = HashMap::new();
        for (key, span) in running.take(MAX_SPANS) {
            open.entry(key)
                .or_default()
                .push(DrawnSpan::of(&span, true, names));
        }
        for ((session, n), request) in &self.requests {
            let span = LaneSpan {
                at: request.at,
                ms: 0,
                kind: SpanKind::Model,
                outcome: SpanOutcome::Ok,
                server: request.api.clone(),
                tool: request.path.clone(),
                why: String::new(),
                code: String::new(),
                task: None,
                n: *n,
            };
            let lane = self
                .lanes
                .get_key_value(&LaneKey::Instance(session.clone()));
            if let Some((key, LaneState { ended: None, .. })) = lane {
                open.entry(key)
                    .or_default()
                    .push(DrawnSpan::of(&span, true, names));
            }
        }
        let mut lanes: Vec<_> = self.lanes.iter().collect();
        lanes.sort_by_key(|(_, lane)| std::cmp::Reverse((lane.last, lane.number)));
        let list = lanes.into_iter().map(|(key, lane)| Lane {
            id: match key {
                LaneKey::Instance(session) => brief(session, NAME),
                LaneKey::Client(..) => String::new(),
            },
            agent: names.place(&lane.agent),
            person: names.place(
                &lane
                    .person
                    .map_or_else(|| "not known".to_owned(), &mut user),
            ),
            jail: lane.jail.as_ref().map(|jail| names.place(jail)),
            started: lane.started,
            ended: lane.ended,
            state: names.place(&lane.state),
            reason: names.sentence(&lane.reason),
            tasks: lane.tasks.clone(),
            spans: (lane
                .spans
                .iter()
                .map(|span| DrawnSpan::of(span, false, names)))
            .chain(open.remove(key).unwrap_or_default())
            .collect(),
            older: older.remove(&lane.number).unwrap_or_default(),
            cost: lane.cost.drawn_if_any(),
            last: lane.last,
        });
        let list = list.collect();
        let mut change = |change: &TaskChangeState| RecordedTaskChange {
            at: change.at,
            to: names.place(&change.to),
            by: change.by.map(|by| names.place(&user(by))),
            session: change.session.as_ref().map(|session| names.place(session)),
            reason: names.sentence(&change.reason),
        };
        let tasks = self.tasks.iter().rev().map(|(id, changes)| TaskHistory {
            id: *id,
            changes: changes.iter().map(&mut change).collect(),
        });
        let tasks = tasks.collect();
        let lanes = Lanes {
            list,
            forgotten: self.forgotten,
            older_step: self.older.step(),
        };
        (lanes, tasks)
    }
}

impl Lanes {
    /// Their table.
    pub(super) fn table(&self, names: &[String]) -> PageTable {
        let row = |lane: &Lane| {
            let tasks: Vec<_> = lane
                .tasks
                .iter()
                .map(|(task, _)| format!("#{task}"))
                .collect();
            let calls =
                lane.spans.len() as u64 + lane.older.iter().map(|[_, calls, _]| calls).sum::<u64>();
            let well = |span: &&DrawnSpan| span.3 == SpanOutcome::Ok as u8;
            let bad = (lane.spans.len() - lane.spans.iter().filter(well).count()) as u64;
            let bad = bad + lane.older.iter().map(|[_, _, bad]| bad).sum::<u64>();
            let who = match names[lane.agent].as_str() {
                "" => "directly".to_owned(),
                agent => format!("{agent} {}", lane.id),
            };
            let person = names[lane.person].clone();
            vec![
                who,
                person,
                tasks.join(" "),
                calls.to_string(),
                bad.to_string(),
                utc(lane.last),
            ]
        };
        let headings = &[
            "Agent or client",
            "For",
            "Tasks",
            "Calls",
            "Not well",
            "Last (UTC)",
        ];
        PageTable::of("Who worked", headings, self.list.iter().map(row))
    }
}

impl LaneState {
    /// Counts the oldest spans by pieces of time, until no more than `most` are left.
    fn shorten(&mut self, most: usize, older: &mut CallPieces) {
        while self.spans.len() > most.max(1) {
            if let Some(span) = self.spans.pop_front() {
                older.add(span.at, self.number, span.outcome);
            }
        }
    }
}

impl DrawnSpan {
    fn of(span: &LaneSpan, runs: bool, names: &mut NameTable) -> DrawnSpan {
        DrawnSpan(
            span.at,
            (!runs).then_some(span.ms),
            span.kind,
            span.outcome as u8,
            names.place(&span.server),
            names.place(&span.tool),
            names.sentence(&span.why),
            names.place(&span.code),
            span.task,
            span.n,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn span(at: u64, tool: &str) -> LaneSpan {
        LaneSpan {
            at,
            ms: 5,
            kind: SpanKind::Call,
            outcome: SpanOutcome::Ok,
            server: "git".to_owned(),
            tool: tool.to_owned(),
            why: String::new(),
            code: String::new(),
            task: Some(7),
            n: at,
        }
    }

    fn shown(lanes: &LaneReader, running: Vec<RunningCall<'_>>) -> (Value, Value, Vec<String>) {
        let mut names = NameTable::default();
        let (lanes, tasks) =
            lanes.shown(running.into_iter(), &mut names, |uid| format!("user {uid}"));
        (json!(lanes), json!(tasks), names.into_names())
    }

    fn model<'a>(n: u64, answer: Option<u64>) -> TrailEvent<'a> {
        let (agent, session, person) = ("coder", "00000000000000aa", 1001);
        match answer {
            None => TrailEvent::ModelRequest {
                agent,
                session,
                person,
                n,
                api: "anthropic",
                method: "POST",
                path: "/v1/messages",
                model: None,
                sha256: "",
                length: 1,
                reserved: 0,
            },
            Some(status) => TrailEvent::ModelAnswer {
                agent,
                session,
                person,
                n,
                status,
                length: 1,
                tokens_in: 10,
                tokens_out: 2,
                tokens_cached: 0,
                tokens_cache_write: 0,
                count: "reported",
            },
        }
    }

    #[test]
    fn each_instance_has_a_lane_with_its_calls_model_requests_and_task() {
        let mut lanes = LaneReader::default();
        let session = "00000000000000aa";
        let started = TrailEvent::AgentStarted {
            agent: "coder",
            session,
            person: 1001,
            by: colibri_trail::Detail::Text("daemon"),
            task: Some(7),
            jail: None,
        };
        let change = |to, session: Option<_>, reason| TrailEvent::Task {
            id: 7,
            to,
            claim: 1,
            from: None,
            share: None,
            by: session.is_none().then_some(1001),
            session,
            reason,
        };
        lanes.event(&change("queued", None, None), 900, 1);
        lanes.event(&started, 1000, 2);
        lanes.event(&change("claimed", Some(session), None), 1001, 3);
        lanes.event(&model(1, None), 1010, 4);
        lanes.event(&model(1, Some(200)), 1110, 5);
        lanes.event(&model(2, None), 1200, 6);
        lanes.event(&model(2, Some(529)), 1250, 7);
        // An answer to nothing that was asked.
        lanes.event(&model(9, Some(200)), 1260, 8);
        lanes.event(&model(3, None), 1300, 9);
        let (key, client) = (
            LaneKey::Instance(session.to_owned()),
            LaneKey::Client(Some(1), None),
        );
        lanes.span(&key, Some(("coder", Some(1001))), span(1020, "push"));
        lanes.span(&client, None, span(1400, "pull"));
        let (shown, tasks, names) = shown(&lanes, vec![(&key, span(1310, "wait"))]);
        let list = shown["list"].as_array().unwrap();
        let name = |at: &Value| names[at.as_u64().unwrap() as usize].as_str();
        assert_eq!(
            (list.len(), list[0]["id"].as_str()),
            (2, Some("")),
            "the last to be active first"
        );
        let lane = &list[1];
        assert_eq!(
            (name(&lane["agent"]), name(&lane["person"])),
            ("coder", "user 1001")
        );
        assert_eq!(
            (&lane["id"], &lane["tasks"]),
            (&json!(session), &json!([[7, 1000]]))
        );
        let spans = lane["spans"].as_array().unwrap();
        let told: Vec<_> = spans
            .iter()
            .map(|span| (&span[0], &span[1], &span[2], name(&span[7])))
            .collect();
        let is = |at: u64, ms: Value, kind: &str, code| (json!(at), ms, json!(kind), code);
        let wanted = [
            is(1010, json!(100), "model", ""),
            is(1200, json!(50), "model", "HTTP 529"),
            is(1020, json!(5), "call", ""),
            is(1310, Value::Null, "call", ""),
            is(1300, Value::Null, "model", ""),
        ];
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(at, ms, kind, code)| (at, ms, kind, *code))
            .collect();
        assert_eq!(told, wanted);
        assert_eq!(name(&spans[0][6]), "10 tokens in, 2 out");
        let changes = tasks[0]["changes"].as_array().unwrap();
        assert_eq!(
            (
                changes.len(),
                name(&changes[0]["by"]),
                name(&changes[1]["to"])
            ),
            (2, "user 1001", "claimed")
        );
        assert_eq!(name(&changes[1]["session"]), session);
    }

    #[test]
    fn lanes_spans_tasks_and_requests_are_bounded() {
        let mut lanes = LaneReader::default();
        for number in 0..1000_u64 {
            let key = LaneKey::Instance(format!("{number:016x}"));
            for at in 0..100 {
                lanes.span(
                    &key,
                    Some(("coder", None)),
                    span(1_795_262_400_000 + number * 1000 + at, "push"),
                );
            }
            let change = TrailEvent::Task {
                id: number,
                to: "queued",
                claim: 0,
                from: None,
                share: None,
                by: None,
                session: None,
                reason: None,
            };
            for _ in 0..100 {
                lanes.event(&change, number, number);
            }
            for n in 0..20 {
                lanes.event(&model(number * 20 + n, None), number, number);
            }
        }
        assert!(lanes.requests.len() <= MAX_REQUESTS && lanes.lanes.len() <= MAX_LANES);
        let spans: usize = lanes.lanes.values().map(|lane| lane.spans.len()).sum();
        assert!(spans <= MAX_SPANS + MAX_LANES, "{spans}");
        let older = |lane: &LaneState| {
            let cells = lanes.older.cells().filter(|(_, of, _)| *of == lane.number);
            cells
                .map(|(_, _, [ok, failed, refused])| ok + failed + refused)
                .sum::<u64>()
        };
        let all = lanes
            .lanes
            .values()
            .filter(|lane| !lane.agent.is_empty() && !lane.spans.is_empty());
        for lane in all {
            assert_eq!(
                lane.spans.len() as u64 + older(lane),
                100,
                "no call is lost"
            );
        }
        let (shown, tasks, _) = shown(&lanes, Vec::new());
        assert!(
            shown["forgotten"].as_u64().unwrap() > 700,
            "{}",
            shown["forgotten"]
        );
        let tasks = tasks.as_array().unwrap();
        assert_eq!(
            (tasks.len(), &tasks[0]["id"]),
            (MAX_TASKS, &json!(999)),
            "the newest"
        );
        assert_eq!(tasks[0]["changes"].as_array().unwrap().len(), MAX_CHANGES);
    }
}
