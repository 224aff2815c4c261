//! The operator's methods, `colibri/…`: on the clients' socket, for whom the client policy calls an operator.

use std::sync::Arc;

use colibri_api::{
    ApprovalsResponse, BlockedServer, DecisionRequest, DecisionResponse, PinAcceptRequest, PinDiffRequest, PinDiffs,
    PinList, PinRow, PinSeen, PinSubject, PinsAccepted, PinsRequest, ReloadResponse, RestartRequest, RestartResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tracing::{error, info};

use super::reload::reload;
use crate::daemon::Daemon;
use crate::policy::{Pins, Rights};
use crate::relay::{Call, CallOutcome, Client};
use colibri_protocol::{Code, Failure, RpcError, Version};
use colibri_text::brief;
use colibri_trail::{Detail, EventName};
use colibri_wire::Json;

/// An operator's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperatorRequest {
    /// `colibri/approvals`: the calls that wait for a person.
    Approvals,
    /// `colibri/approve`.
    Approve(DecisionRequest),
    /// `colibri/deny`.
    Deny(DecisionRequest),
    /// `colibri/reload`: registry and client policy are read again.
    Reload,
    /// `colibri/restart`: a server's processes end, and its next call starts one.
    Restart(RestartRequest),
    /// `colibri/pins`: what is approved, and what waits to be.
    Pins(PinsRequest),
    /// `colibri/pin-diff`: what waits, against what is approved.
    PinDiff(PinDiffRequest),
    /// `colibri/pin-accept`: what waits and was seen is approved.
    PinAccept(PinAcceptRequest),
}

impl OperatorRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// -32601 for another method, -32602 for parameters that are not as they must be.
    pub(crate) fn read(method: &str, params: Option<Json<'_>>) -> Result<OperatorRequest, RpcError> {
        match method {
            "colibri/approvals" => Ok(OperatorRequest::Approvals),
            "colibri/reload" => Ok(OperatorRequest::Reload),
            "colibri/approve" => parameters(params).map(OperatorRequest::Approve),
            "colibri/deny" => parameters(params).map(OperatorRequest::Deny),
            "colibri/restart" => parameters(params).map(OperatorRequest::Restart),
            "colibri/pins" => parameters(params).map(OperatorRequest::Pins),
            "colibri/pin-diff" => parameters(params).map(OperatorRequest::PinDiff),
            "colibri/pin-accept" => match parameters(params)? {
                PinAcceptRequest { accept, .. } if accept.is_empty() => {
                    Err(RpcError::invalid_params("params: accept must name what was seen"))
                }
                asked => Ok(OperatorRequest::PinAccept(asked)),
            },
            _ => Err(RpcError::method_not_found(method, Version::LATEST)),
        }
    }
}

/// Reads an operator's parameters.
///
/// # Errors
/// -32602, with the first thing that is wrong.
pub(crate) fn parameters<T: DeserializeOwned>(params: Option<Json<'_>>) -> Result<T, RpcError> {
    serde_json::from_str(params.map_or("{}", |params| params.text()))
        .map_err(|error| RpcError::invalid_params(format!("params: {}", brief(&error.to_string(), 200))))
}

/// Reads parameters of which none is unknown, beside the `_meta` that every request of 2026-07-28 has.
///
/// # Errors
/// -32602, with the first thing that is wrong.
pub(crate) fn strict<T: DeserializeOwned>(params: Option<Json<'_>>) -> Result<T, RpcError> {
    let mut members: Map<String, Value> = parameters(params)?;
    members.remove("_meta");
    serde_json::from_value(Value::Object(members))
        .map_err(|error| RpcError::invalid_params(format!("params: {}", brief(&error.to_string(), 200))))
}

/// The operator's rights, if the caller is one.
///
/// # Errors
/// [`Code::PolicyDenied`], for everybody else.
pub(crate) fn check(daemon: &Daemon, client: &Client) -> Result<Arc<Rights>, Failure> {
    let rights = daemon.chain.rules.rights(client);
    if rights.operator {
        return Ok(rights);
    }
    let clients = daemon.config.clients.display();
    let why = format!("this method is for operators: root, and who has \"operator\": true in {clients}");
    Err(Failure::new(Code::PolicyDenied, why)
        .by_rule(format!("{clients}: operator"))
        .advising("ask an operator, or root, to do it"))
}

/// Answers an operator's request, if it is an operator's.
pub(crate) fn answer(daemon: &Arc<Daemon>, call: &Call, order: &OperatorRequest) -> CallOutcome {
    let rights = match check(daemon, &call.client) {
        Ok(rights) => rights,
        Err(failure) => return CallOutcome::Failed(failure),
    };
    let by = call.client.caller.uid;
    let result = match order {
        OperatorRequest::Approvals => {
            let approvals = daemon.chain.approvals.list();
            json(&ApprovalsResponse { approvals })
        }
        OperatorRequest::Approve(asked) => decide(daemon, &asked.id, true, by, rights.self_approve),
        OperatorRequest::Deny(asked) => decide(daemon, &asked.id, false, by, rights.self_approve),
        OperatorRequest::Reload => reload(daemon).and_then(|blocked| {
            let blocked = blocked
                .into_iter()
                .map(|(server, reason)| BlockedServer { server, reason })
                .collect();
            json(&ReloadResponse {
                reloaded: true,
                blocked,
            })
        }),
        OperatorRequest::Restart(asked) => restart(daemon, &asked.server, by),
        OperatorRequest::Pins(asked) => list_pins(daemon, asked.server.as_deref()),
        OperatorRequest::PinDiff(asked) => diff_pins(daemon, &asked.server, asked.subject.as_ref()),
        OperatorRequest::PinAccept(asked) => accept_pins(daemon, asked, by),
    };
    match result {
        Ok(result) => CallOutcome::result(result),
        Err(error) => CallOutcome::error(RpcError::invalid_params(error)),
    }
}

/// An answer as it is written.
fn json(answer: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(answer).map_err(|error| format!("the answer cannot be written: {error}"))
}

/// Decides about a waiting call.
fn decide(daemon: &Daemon, id: &str, approve: bool, by: u32, self_approve: bool) -> Result<Vec<u8>, String> {
    let decided = daemon.chain.approvals.decide(id, approve, by, self_approve);
    let pending = decided.map_err(|error| error.to_string())?;
    let mut details = vec![
        ("approval", Detail::Text(&pending.id)),
        ("by", Detail::Number(by.into())),
        ("uid", Detail::Number(pending.uid.into())),
        ("approved", Detail::Flag(approve)),
    ];
    if let (Some(agent), Some(session)) = (&pending.agent, &pending.session) {
        details.extend([("agent", Detail::Text(agent)), ("session", Detail::Text(session))]);
    }
    if let Err(error) = daemon.chain.recorder.event(EventName::Approval, &details) {
        error!("a decision was not recorded: {error}");
    }
    json(&DecisionResponse {
        decided: pending,
        approved: approve,
    })
}

/// Ends a server's processes. It may have been left alone after failures: that is forgotten too.
fn restart(daemon: &Daemon, server: &str, by: u32) -> Result<Vec<u8>, String> {
    let servers = daemon.host.servers();
    let known = servers.get(server).ok_or_else(|| no_server(server))?;
    let ended = known.restart() as u64;
    info!(server, by, ended, "restarted");
    let details = [
        ("server", Detail::Text(server)),
        ("ended", Detail::Number(ended)),
        ("by", Detail::Number(by.into())),
    ];
    if let Err(error) = daemon.chain.recorder.event(EventName::Restarted, &details) {
        error!("a restart was not recorded: {error}");
    }
    json(&RestartResponse {
        server: server.to_owned(),
        ended,
    })
}

fn no_server(server: &str) -> String {
    format!("there is no server {}", brief(server, 40))
}

/// The most bytes of differences in one answer, beyond the first; as JSON and escaped they are more.
const MAX_SHOWN: usize = 2 << 20;

/// Lists approved definitions and those that wait for approval, of all servers or of one.
fn list_pins(daemon: &Daemon, server: Option<&str>) -> Result<Vec<u8>, String> {
    json(&PinList {
        pins: rows_of(daemon, server)?,
        look_alikes: daemon
            .host
            .table()
            .look_alikes
            .iter()
            .map(ToString::to_string)
            .collect(),
    })
}

/// Shows the differences of a server's waiting definitions, or of one of them, from the approved ones.
fn diff_pins(daemon: &Daemon, server: &str, subject: Option<&PinSubject>) -> Result<Vec<u8>, String> {
    let rows = rows_of(daemon, Some(server))?;
    let wanted = subject.map(|subject| meant(&rows, subject));
    let (mut diffs, mut left_out, mut bytes) = (Vec::new(), 0, 0);
    for row in rows {
        if row.waiting.is_none() || wanted.as_ref().is_some_and(|wanted| *wanted != row.subject) {
            continue;
        }
        // By now something else may wait, or nothing: the hash is that of what is shown.
        let Some(difference) = pins(daemon)?.diff(server, &row.subject) else {
            continue;
        };
        bytes += difference.text.len();
        if bytes > MAX_SHOWN && !diffs.is_empty() {
            left_out += 1;
            continue;
        }
        diffs.push(PinRow {
            waiting: Some(difference.sha256),
            diff: Some(difference.text),
            ..row
        });
    }
    json(&PinDiffs {
        server: server.to_owned(),
        diffs,
        left_out,
    })
}

/// Approves what waits of a server and was seen.
fn accept_pins(daemon: &Daemon, asked: &PinAcceptRequest, by: u32) -> Result<Vec<u8>, String> {
    let server = &asked.server;
    let rows = rows_of(daemon, Some(server))?;
    let accepted: Vec<PinSeen> = asked
        .accept
        .iter()
        .map(|seen| PinSeen {
            subject: meant(&rows, &seen.subject),
            sha256: seen.sha256.clone(),
        })
        .collect();
    pins(daemon)?
        .accept(server, &accepted, by)
        .map_err(|error| error.to_string())?;
    for PinSeen { subject, sha256 } in &accepted {
        info!(server, by, sha256, "accepted: {subject}");
        let what = subject.to_string();
        let details = [
            ("server", Detail::Text(server)),
            ("what", Detail::Text(&what)),
            ("sha256", Detail::Text(sha256)),
            ("by", Detail::Number(by.into())),
        ];
        if let Err(error) = daemon.chain.recorder.event(EventName::PinAccepted, &details) {
            error!("what was accepted was not recorded: {error}");
        }
    }
    if let Some(server) = daemon.host.servers().get(server) {
        server.judge_again();
    }
    daemon.summaries.try_again();
    json(&PinsAccepted {
        server: server.clone(),
        accepted,
    })
}

fn pins(daemon: &Daemon) -> Result<&Pins, String> {
    daemon.host.pins().ok_or_else(|| "this daemon has no pins".to_owned())
}

/// The pins of all servers, or of one that there is.
fn rows_of(daemon: &Daemon, server: Option<&str>) -> Result<Vec<PinRow>, String> {
    let mut rows = pins(daemon)?.list();
    if let Some(server) = server {
        rows.retain(|row| row.server == server);
        if rows.is_empty() && !daemon.host.servers().contains_key(server) {
            return Err(no_server(server));
        }
    }
    Ok(rows)
}

/// Resolves the subject that a person wrote who can write a name with hidden characters only as it is shown.
fn meant(rows: &[PinRow], subject: &PinSubject) -> PinSubject {
    let shown_so = |row: &&PinRow| row.subject.is_shown_as(subject);
    let exact = rows.iter().find(|row| row.subject == *subject);
    let row = exact.or_else(|| rows.iter().find(shown_so));
    row.map_or_else(|| subject.clone(), |row| row.subject.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, params: &str) -> Result<OperatorRequest, RpcError> {
        OperatorRequest::read(method, Some(Json::parse(params.as_bytes()).unwrap()))
    }

    #[test]
    fn orders_about_pins_say_what_they_are_about() {
        let none = PinsRequest { server: None };
        assert_eq!(read("colibri/pins", "{}").unwrap(), OperatorRequest::Pins(none));
        let diff = |subject| {
            OperatorRequest::PinDiff(PinDiffRequest {
                server: "s".to_owned(),
                subject,
            })
        };
        assert_eq!(read("colibri/pin-diff", r#"{"server":"s"}"#).unwrap(), diff(None));
        assert_eq!(
            read("colibri/pin-diff", r#"{"server":"s","instructions":true}"#).unwrap(),
            diff(Some(PinSubject::Instructions))
        );
        assert!(read("colibri/pin-diff", "{}").is_err());
        assert_eq!(
            read(
                "colibri/pin-accept",
                r#"{"server":"s","accept":[{"tool":"t","sha256":"ab"},{"instructions":true,"sha256":"cd"}]}"#
            )
            .unwrap(),
            OperatorRequest::PinAccept(PinAcceptRequest {
                server: "s".to_owned(),
                accept: [
                    (PinSubject::Tool("t".to_owned()), "ab"),
                    (PinSubject::Instructions, "cd")
                ]
                .map(|(subject, sha256)| PinSeen {
                    subject,
                    sha256: sha256.to_owned()
                })
                .into(),
            })
        );
        for bad in [
            r#"{"server":"s"}"#,
            r#"{"server":"s","accept":[]}"#,
            r#"{"server":"s","accept":[{"tool":"t"}]}"#,
            r#"{"server":"s","accept":[{"sha256":"ab"}]}"#,
            r#"{"server":"s","accept":[{"tool":"t","instructions":true,"sha256":"ab"}]}"#,
            r#"{"server":"s","accept":[{"tool":"t","sha256":"ab"},{"tool":"u"}]}"#,
            r#"{"accept":[{"tool":"t","sha256":"ab"}]}"#,
        ] {
            assert!(read("colibri/pin-accept", bad).is_err(), "{bad}");
        }
    }
}
