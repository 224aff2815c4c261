//! `colibri/overview`: the state of everything at one time, for operators.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use colibri_api::{
    CallCounts, CostDay, Overview, OverviewRequest, OverviewServer, Spender, TrailFacts, TrailRow,
};

use serde_json::json;

use super::method::{DaemonMethod, MethodCall};
use super::status::milliseconds;
use super::sys;
use crate::daemon::Daemon;
use crate::relay::{COLIBRI, CallOutcome, CounterSnapshot, Recorder};
use crate::servers::Viewer;
use colibri_policy::{Caller, Gate};
use colibri_protocol::{Feature, RpcError};
use colibri_trail::{self as trail, RecordView};

/// The most people, and the most agents, that are told to have spent.
const MOST_SPENDERS: usize = 100;

/// The most records of the trail in an overview.
const MAX_TAIL: u64 = 200;
/// The records among which those of agents are looked for.
const LOOKED_THROUGH: usize = 1000;

/// `colibri/overview`.
pub(super) struct OverviewMethod;

impl DaemonMethod for OverviewMethod {
    const NAME: &'static str = "colibri/overview";
    const FOR_OPERATORS: bool = true;
    const IS_LOOK: bool = true;
    type Parameters = OverviewRequest;

    fn check(asked: &OverviewRequest) -> Result<(), RpcError> {
        match asked.tail {
            0..=MAX_TAIL => Ok(()),
            _ => Err(RpcError::invalid_params(format!(
                "params.tail must be 0 to {MAX_TAIL}"
            ))),
        }
    }

    fn start(asked: OverviewRequest, request: MethodCall) {
        request.finish_blocking(move |daemon, call| {
            let overview = json!(of(daemon, Some(call.client.caller.uid), asked.tail));
            CallOutcome::result(overview.to_string().into_bytes())
        });
    }
}

/// The overview for an operator, or for nobody in particular, with so many of the trail's last
/// records. Reads files: not for a thread that serves clients.
pub(super) fn of(daemon: &Daemon, operator: Option<u32>, tail: u64) -> Overview {
    let load = daemon.connections.load();
    let gates = **daemon.chain.rules.gates.load();
    let own = OverviewServer {
        id: COLIBRI.to_owned(),
        calls: counted(&daemon.chain.metrics.counted()),
        ..OverviewServer::default()
    };
    let mut servers = vec![own];
    for server in daemon.host.servers().values() {
        let (state, reason, since) = server.state(Viewer::Operator(operator));
        let sessions = server.sessions();
        let (catalogue, judgement) = server.offer.definitions();
        let (blocked, others_blocked) = judgement.blocked_counts();
        servers.push(OverviewServer {
            id: server.spec.id.to_string(),
            state: Some(state),
            reason,
            since: milliseconds(since),
            tools: catalogue.of(Feature::Tool).len() as u64,
            prompts: catalogue.of(Feature::Prompt).len() as u64,
            resources: catalogue.of(Feature::Resource).len() as u64,
            templates: catalogue.of(Feature::Template).len() as u64,
            blocked,
            others_blocked,
            instructions_blocked: !judgement.instructions.is_approved(),
            processes: sessions.len() as u64,
            in_flight: sessions
                .iter()
                .map(|(_, session)| session.in_flight() as u64)
                .sum(),
            queued: sessions
                .iter()
                .map(|(_, session)| session.queued() as u64)
                .sum(),
            calls: counted(&server.spec.metrics.counted()),
        });
    }
    Overview {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: milliseconds(SystemTime::now()),
        uptime_s: daemon.started.elapsed().as_secs(),
        write_gate: gates.is_open(Gate::Write),
        external_gate: gates.is_open(Gate::External),
        clients: load.clients as u64,
        in_flight: load.in_flight as u64,
        queued: load.queued as u64,
        resident: sys::resident_bytes().ok(),
        registry_error: daemon.registry_error(),
        state_dir: Some(daemon.config.state_dir.to_string_lossy().into_owned()),
        servers,
        approvals: daemon.chain.approvals.list(),
        spenders: spenders(daemon),
        trail: trail_of(daemon, tail),
    }
}

/// The users who had most answers, most first, and no more than a person can look through.
fn spenders(daemon: &Daemon) -> Vec<Spender> {
    let (shares, clients) = (daemon.host.shares(), daemon.chain.rules.clients.load());
    let rule = |uid| {
        // Who has no account any more is in no group.
        let nobody = |_| Caller {
            uid,
            gid: u32::MAX,
            pid: None,
        };
        clients
            .rights(&Caller::of_account(uid).unwrap_or_else(nobody))
            .cost
    };
    let mut spenders = Vec::new();
    for (uid, spent) in shares
        .spent_on(CostDay::of(SystemTime::now()))
        .into_iter()
        .take(MOST_SPENDERS)
    {
        let terms = shares.of(uid).terms(rule(uid));
        let before = spent.before(&terms);
        spenders.push(Spender {
            uid,
            agent: None,
            session: None,
            mode: terms.in_force(spent.bytes - before),
            spent_bytes: spent.bytes,
            left_bytes: terms
                .most(before)
                .map(|most| most.saturating_sub(spent.bytes)),
        });
    }
    for instance in daemon.agents.running().iter().take(MOST_SPENDERS) {
        let (uid, door) = (instance.uid, &instance.door);
        let terms = shares.of(uid).terms_of_agent(rule(uid));
        let before = door.spent.before(&terms);
        let spent = door.spent.bytes.load(Ordering::Relaxed);
        let most = [door.max_bytes, terms.most(before)]
            .into_iter()
            .flatten()
            .min();
        spenders.push(Spender {
            uid,
            agent: Some(door.agent.to_string()),
            session: Some(door.session.to_string()),
            mode: terms.in_force(spent.saturating_sub(before)),
            spent_bytes: spent,
            left_bytes: most.map(|most| most.saturating_sub(spent)),
        });
    }
    spenders.sort_by_key(|spender| std::cmp::Reverse(spender.spent_bytes));
    spenders
}

fn counted(counted: &CounterSnapshot) -> CallCounts {
    let buckets = counted.buckets.iter();
    CallCounts {
        finished: counted.calls(),
        seconds: counted.seconds,
        buckets: buckets
            .map(|(bound, count)| (bound.is_finite().then_some(*bound), *count))
            .collect(),
        errors: counted
            .errors
            .iter()
            .map(|(code, count)| (code.to_string(), *count))
            .collect(),
        strays: counted.strays,
        asked: counted.asked,
    }
}

fn trail_of(daemon: &Daemon, most: u64) -> Option<TrailFacts> {
    let Recorder::Trail(trail) = &*daemon.chain.recorder else {
        return None;
    };
    let status = trail.status();
    let (mut tail, mut agents) = (VecDeque::new(), VecDeque::new());
    let mut take = |record: RecordView<'_>| {
        let row = row_of(&record);
        if record.through.is_some() || row.details.contains_key("session") {
            push_within(&mut agents, row.clone(), most);
        }
        push_within(&mut tail, row, most);
    };
    if let Some(segment) = status.segment.as_deref().filter(|_| most > 0)
        && let Err(error) = trail::tail(segment, LOOKED_THROUGH, &mut take)
    {
        tracing::debug!("the end of the trail could not be read: {error}");
    }
    Some(TrailFacts {
        records: status.records,
        synced: status.synced,
        witnessed: status.witnessed,
        failing: status.failing,
        tail: tail.into(),
        agents: agents.into(),
    })
}

fn push_within(rows: &mut VecDeque<TrailRow>, row: TrailRow, most: u64) {
    rows.push_back(row);
    if rows.len() as u64 > most {
        rows.pop_front();
    }
}

fn row_of(record: &RecordView<'_>) -> TrailRow {
    let fields = &record.fields;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let either = |a: &str, b: &str| text(a).or_else(|| text(b));
    TrailRow {
        n: record.n,
        kind: record.kind.to_string(),
        timestamp: fields.timestamp.to_string(),
        uid: record.uid,
        client: record.client.as_ref().map(|client| client.name.clone()),
        enter: fields.enter,
        agent: fields.agent.clone(),
        session: fields.session.clone(),
        for_uid: fields.for_uid,
        server: either(&fields.server, &fields.integration_id),
        tool: either(&fields.tool, &fields.operation),
        method: text(&fields.method),
        result: text(&fields.result),
        error_code: fields.error_code.clone(),
        latency_ms: fields.latency_ms,
        event: text(&fields.event),
        details: fields.details.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::method::read_parameters;
    use super::*;
    use colibri_wire::Json;

    #[test]
    fn parameters_are_read_strictly() {
        let read =
            |params: &str| read_parameters::<OverviewMethod>(Json::parse(params.as_bytes()).ok());
        assert_eq!(read("{}").unwrap(), OverviewRequest::default());
        assert_eq!(
            read(r#"{"tail":200}"#).unwrap(),
            OverviewRequest { tail: 200 }
        );
        for wrong in [r#"{"tail":201}"#, r#"{"tail":-1}"#, r#"{"tail":"1"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
