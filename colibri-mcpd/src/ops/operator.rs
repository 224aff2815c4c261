//! The operators' methods about waiting calls, the configuration and servers: for whom the client
//! policy calls an operator.

use std::sync::Arc;

use anyhow::Context as _;
use colibri_api::{
    ApprovalsResponse, BlockedServer, DecisionRequest, DecisionResponse, ReloadResponse,
    RestartRequest, RestartResponse,
};
use serde::Serialize;
use serde::de::IgnoredAny;
use tracing::{error, info};

use super::method::{DaemonMethod, MethodCall};
use super::reload::{ReloadOutcome, reload};
use crate::daemon::Daemon;
use crate::relay::CallOutcome;
use colibri_protocol::RpcError;
use colibri_text::brief;
use colibri_trail::TrailEvent;

/// `colibri/approvals`: the calls that wait for a person.
pub(super) struct Approvals;

impl DaemonMethod for Approvals {
    const NAME: &'static str = "colibri/approvals";
    const FOR_OPERATORS: bool = true;
    type Parameters = IgnoredAny;

    fn start(_: IgnoredAny, request: MethodCall) {
        answer_operator(request, move |daemon, _| {
            let approvals = daemon.chain.approvals.list();
            json(&ApprovalsResponse { approvals })
        });
    }
}

/// `colibri/approve` and `colibri/deny`: a waiting call is allowed, or refused.
pub(super) struct DecideMethod<const APPROVE: bool>;

impl<const APPROVE: bool> DaemonMethod for DecideMethod<APPROVE> {
    const NAME: &'static str = if APPROVE {
        "colibri/approve"
    } else {
        "colibri/deny"
    };
    const FOR_OPERATORS: bool = true;
    type Parameters = DecisionRequest;

    fn start(asked: DecisionRequest, request: MethodCall) {
        answer_operator(request, move |daemon, operator| {
            decide(daemon, &asked.id, APPROVE, operator)
        });
    }
}

/// `colibri/reload`: registry and client policy are read again.
pub(super) struct Reload;

impl DaemonMethod for Reload {
    const NAME: &'static str = "colibri/reload";
    const FOR_OPERATORS: bool = true;
    type Parameters = IgnoredAny;

    fn start(_: IgnoredAny, request: MethodCall) {
        answer_operator(request, move |daemon, _| {
            let ReloadOutcome {
                blocked,
                limits_wait,
            } = reload(daemon)?;
            let blocked = blocked.into_iter();
            json(&ReloadResponse {
                reloaded: true,
                blocked: blocked
                    .map(|(server, reason)| BlockedServer { server, reason })
                    .collect(),
                limits_wait,
            })
        });
    }
}

/// `colibri/restart`: a server's processes end, and its next call starts one.
pub(super) struct RestartMethod;

impl DaemonMethod for RestartMethod {
    const NAME: &'static str = "colibri/restart";
    const FOR_OPERATORS: bool = true;
    type Parameters = RestartRequest;

    fn start(asked: RestartRequest, request: MethodCall) {
        answer_operator(request, move |daemon, operator| {
            restart(daemon, &asked.server, operator.uid)
        });
    }
}

/// The operator who made a request.
pub(super) struct Operator {
    pub(super) uid: u32,
    /// True if their own calls may be approved by themselves.
    pub(super) self_approve: bool,
}

/// Answers an operator's request.
pub(super) fn answer_operator(
    request: MethodCall,
    answer: impl FnOnce(&Arc<Daemon>, &Operator) -> anyhow::Result<Vec<u8>> + Send + 'static,
) {
    request.finish_blocking(move |daemon, call| {
        let operator = Operator {
            uid: call.client.caller.uid,
            self_approve: daemon.chain.rules.rights(&call.client).self_approve,
        };
        match answer(daemon, &operator) {
            Ok(result) => CallOutcome::result(result),
            Err(error) => CallOutcome::error(RpcError::invalid_params(format!("{error:#}"))),
        }
    });
}

/// An answer as it is written.
pub(super) fn json(answer: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    serde_json::to_vec(answer).context("the answer cannot be written")
}

/// Decides about a waiting call.
fn decide(
    daemon: &Daemon,
    id: &str,
    approve: bool,
    operator: &Operator,
) -> anyhow::Result<Vec<u8>> {
    let by = operator.uid;
    let decided = daemon
        .chain
        .approvals
        .decide(id, approve, by, operator.self_approve);
    let pending = decided?;
    let event = TrailEvent::Approval {
        approval: &pending.id,
        by,
        uid: pending.uid,
        approved: approve,
        agent: pending.agent.as_deref(),
        session: pending.session.as_deref(),
    };
    if let Err(error) = daemon.chain.recorder.event(event) {
        error!("a decision was not recorded: {error}");
    }
    json(&DecisionResponse {
        decided: pending,
        approved: approve,
    })
}

/// Ends a server's processes. It may have been left alone after failures: that is forgotten too.
fn restart(daemon: &Daemon, server: &str, by: u32) -> anyhow::Result<Vec<u8>> {
    let servers = daemon.host.servers();
    let known = servers.get(server).with_context(|| no_server(server))?;
    let ended = known.restart() as u64;
    info!(server, by, ended, "restarted");
    if let Err(error) = daemon
        .chain
        .recorder
        .event(TrailEvent::Restarted { server, ended, by })
    {
        error!("a restart was not recorded: {error}");
    }
    json(&RestartResponse {
        server: server.to_owned(),
        ended,
    })
}

/// The refusal of a request about a server that there is not.
pub(super) fn no_server(server: &str) -> String {
    format!("there is no server {}", brief(server, 40))
}
