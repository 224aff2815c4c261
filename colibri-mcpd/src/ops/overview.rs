//! The state of everything at one time, for operators: what `colibri-mcp top` shows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::operator::shown;
use super::sys;
use crate::chain::Recorder;
use crate::chain::dispatch::COLIBRI;
use crate::chain::metrics::Counted;
use crate::daemon::Daemon;
use crate::policy::Gate;
use crate::servers::Viewer;
use colibri_trail::{self as trail, Shown};

/// The overview for an operator, with so many of the trail's last records. Reads files: not for a thread that serves clients.
pub fn of(daemon: &Daemon, operator: u32, tail: usize) -> Value {
    let load = daemon.connections().load();
    let gates = **daemon.chain().rules.gates.load();
    let approvals: Vec<Value> = daemon.chain().approvals.list().iter().map(shown).collect();
    let mut servers = vec![json!({ "id": COLIBRI, "calls": counted(&daemon.chain().metrics.counted()) })];
    for server in daemon.host().servers().values() {
        let (state, reason, since) = server.state(Viewer::Operator(Some(operator)));
        let sessions = server.sessions();
        let (catalogue, judgement) = server.definitions();
        servers.push(json!({
            "id": &*server.id,
            "state": state.name(),
            "reason": reason,
            "since": milliseconds(since),
            "tools": catalogue.tools.len(),
            "blocked": judgement.blocked().count(),
            "instructions_blocked": !judgement.instructions.is_approved(),
            "processes": sessions.len(),
            "in_flight": sessions.iter().map(|(_, session)| session.in_flight()).sum::<usize>(),
            "queued": sessions.iter().map(|(_, session)| session.queued()).sum::<usize>(),
            "calls": counted(&server.metrics.counted()),
        }));
    }
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "time": milliseconds(SystemTime::now()),
        "uptime_s": daemon.started.elapsed().as_secs(),
        "write_gate": gates.is_open(Gate::Write),
        "external_gate": gates.is_open(Gate::External),
        "clients": load.clients,
        "in_flight": load.in_flight,
        "queued": load.queued,
        "resident": sys::resident_bytes().ok(),
        "registry_error": daemon.registry_error(),
        "state_dir": daemon.config.state_dir.to_string_lossy(),
        "servers": servers,
        "approvals": approvals,
        "trail": trail_of(daemon, tail),
    })
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(Duration::ZERO, |since| since)
        .as_millis() as u64
}

/// Counters of calls. A bucket is its upper bound in seconds, `null` for the last one, and the calls in it alone.
fn counted(counted: &Counted) -> Value {
    let buckets: Vec<Value> = counted
        .buckets
        .iter()
        .map(|(bound, count)| json!([bound.is_finite().then_some(bound), count]))
        .collect();
    let errors: Vec<Value> = counted
        .errors
        .iter()
        .map(|(code, count)| json!([code, count]))
        .collect();
    json!({ "finished": counted.calls(), "seconds": counted.seconds, "buckets": buckets, "errors": errors })
}

fn trail_of(daemon: &Daemon, most: usize) -> Value {
    let Recorder::Trail(trail) = &daemon.chain().recorder else {
        return Value::Null;
    };
    let status = trail.status();
    let mut tail = Vec::new();
    if let Some(segment) = status.segment.as_deref().filter(|_| most > 0)
        && let Err(error) = trail::tail(segment, most, &mut |record| tail.push(record_of(&record)))
    {
        tracing::debug!("the end of the trail could not be read: {error}");
    }
    json!({
        "records": status.records,
        "synced": status.synced,
        "witnessed": status.witnessed,
        "failing": status.failing,
        "tail": tail,
    })
}

fn record_of(record: &Shown<'_>) -> Value {
    let fields = &record.fields;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let either = |a: &str, b: &str| text(a).or_else(|| text(b));
    json!({
        "n": record.n,
        "kind": record.kind,
        "timestamp": fields.timestamp,
        "uid": record.uid,
        "server": either(&fields.server, &fields.integration_id),
        "tool": either(&fields.tool, &fields.operation),
        "method": text(&fields.method),
        "result": text(&fields.result),
        "error_code": fields.error_code,
        "latency_ms": fields.latency_ms,
        "event": text(&fields.event),
        "details": fields.details,
    })
}
