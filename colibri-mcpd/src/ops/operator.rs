//! The operator's methods, `colibri/…`: on the clients' socket, for whom the client policy calls an operator.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use colibri_api::{
    self as api, Approval, Approvals, BlockedServer, Decided, PinAccepted, PinDiffs, PinList, PinState, PinsAccepted,
    Reloaded,
};
use serde::Serialize;
use tracing::{error, info};

use super::reload::reload;
use crate::chain::{Call, Client, Outcome};
use crate::daemon::Daemon;
use crate::policy::{Pending, PinRow, Pins, Rights, Standing, Subject};
use colibri_protocol::{Answer, Code, Failure, RpcError, Version};
use colibri_text::{brief, visible};
use colibri_trail::Detail;
use colibri_wire::Json;

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// `colibri/approvals`: the calls that wait for a person.
    Approvals,
    /// `colibri/approve` and `colibri/deny`, with `{"id": …}`.
    Decide {
        /// The waiting call.
        id: String,
        /// Whether it may be made.
        approve: bool,
    },
    /// `colibri/reload`: registry and client policy are read again.
    Reload,
    /// `colibri/pins`, with `{"server": …}` for those of one: what is approved, and what waits to be.
    Pins {
        /// Of this server alone.
        server: Option<String>,
    },
    /// `colibri/pin-diff`, with `{"server": …}` and `"tool"` or `"instructions": true` for one: what waits, against
    /// what is approved.
    PinDiff {
        /// The server.
        server: String,
        /// Of this alone.
        subject: Option<Subject>,
    },
    /// `colibri/pin-accept`, with `{"server": …, "accept": [{"tool": …, "sha256": …}, …]}`: what waits and was seen is
    /// approved, all of it or nothing.
    PinAccept {
        /// The server.
        server: String,
        /// What was seen.
        seen: Vec<(Subject, String)>,
    },
}

impl Order {
    /// Reads a request.
    ///
    /// # Errors
    /// -32601 for another method, -32602 for parameters that are not as they must be.
    pub fn read(method: &str, params: Option<Json<'_>>) -> Result<Order, RpcError> {
        match method {
            "colibri/approvals" => Ok(Order::Approvals),
            "colibri/reload" => Ok(Order::Reload),
            "colibri/approve" | "colibri/deny" => {
                let id = params.and_then(|params| params.get("id")).and_then(|id| id.as_str());
                let id = id.ok_or_else(|| RpcError::invalid_params("params.id must be the id of a waiting call"))?;
                Ok(Order::Decide {
                    id: id.into_owned(),
                    approve: method == "colibri/approve",
                })
            }
            "colibri/pins" => Ok(Order::Pins {
                server: text(params, "server"),
            }),
            "colibri/pin-diff" => Ok(Order::PinDiff {
                server: server(params)?,
                subject: params.and_then(subject),
            }),
            "colibri/pin-accept" => {
                let list = params.and_then(|params| params.get("accept"));
                let seen = list.map(|list| {
                    list.elements()
                        .map(|one| Some((subject(one)?, text(Some(one), "sha256")?)))
                });
                let seen: Option<Vec<_>> = seen.and_then(Iterator::collect);
                Ok(Order::PinAccept {
                    server: server(params)?,
                    seen: seen.filter(|seen| !seen.is_empty()).ok_or_else(|| {
                        RpcError::invalid_params(
                            "params.accept must be a list of {\"tool\": NAME or \"instructions\": true, \
                             \"sha256\": HASH}",
                        )
                    })?,
                })
            }
            _ => Err(RpcError::method_not_found(method, Version::LATEST)),
        }
    }
}

fn text(params: Option<Json<'_>>, key: &str) -> Option<String> {
    Some(params?.get(key)?.as_str()?.into_owned())
}

fn server(params: Option<Json<'_>>) -> Result<String, RpcError> {
    text(params, "server").ok_or_else(|| RpcError::invalid_params("params.server must be the id of a server"))
}

/// What of a server is meant.
fn subject(params: Json<'_>) -> Option<Subject> {
    let instructions = params.get("instructions").and_then(|value| value.as_bool()) == Some(true);
    match text(Some(params), "tool") {
        Some(_) if instructions => None,
        None => instructions.then_some(Subject::Instructions),
        tool => tool.map(Subject::Tool),
    }
}

/// What an operator may do, if the caller is one.
///
/// # Errors
/// [`Code::PolicyDenied`], for everybody else.
pub fn check(daemon: &Daemon, client: &Client) -> Result<Arc<Rights>, Failure> {
    let rights = daemon.chain().rules.rights(client);
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
pub fn answer(daemon: &Arc<Daemon>, call: &Call, order: &Order) -> Outcome {
    let rights = match check(daemon, &call.client) {
        Ok(rights) => rights,
        Err(failure) => return Outcome::Failed(failure),
    };
    let by = call.client.caller.uid;
    let result = match order {
        Order::Approvals => {
            let approvals = daemon.chain().approvals.list().iter().map(shown).collect();
            json(&Approvals { approvals })
        }
        Order::Decide { id, approve } => decide(daemon, id, *approve, by, rights.self_approve),
        Order::Reload => reload(daemon).and_then(|blocked| {
            let blocked = blocked
                .into_iter()
                .map(|(server, reason)| BlockedServer { server, reason })
                .collect();
            json(&Reloaded {
                reloaded: true,
                blocked,
            })
        }),
        Order::Pins { server } => list_pins(daemon, server.as_deref()),
        Order::PinDiff { server, subject } => diff_pins(daemon, server, subject.as_ref()),
        Order::PinAccept { server, seen } => accept_pins(daemon, server, seen, by),
    };
    match result {
        Ok(result) => Outcome::Own {
            answer: Answer::Result(result),
            failed: false,
        },
        Err(error) => Outcome::Own {
            answer: RpcError::invalid_params(error).into(),
            failed: true,
        },
    }
}

/// An answer as it is written.
fn json(answer: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(answer).map_err(|error| format!("the answer cannot be written: {error}"))
}

/// Decides about a waiting call.
fn decide(daemon: &Daemon, id: &str, approve: bool, by: u32, self_approve: bool) -> Result<Vec<u8>, String> {
    let decided = daemon.chain().approvals.decide(id, approve, by, self_approve);
    let pending = decided.map_err(|error| error.to_string())?;
    let details = [
        ("approval", Detail::Text(&pending.id)),
        ("by", Detail::Number(by.into())),
        ("uid", Detail::Number(pending.uid.into())),
        ("approved", Detail::Flag(approve)),
    ];
    if let Err(error) = daemon.chain().recorder.event("approval", &details) {
        error!("a decision was not recorded: {error}");
    }
    json(&Decided {
        decided: shown(&pending),
        approved: approve,
    })
}

/// The most bytes of differences in one answer, beyond the first; as JSON and escaped they are more.
const MOST_SHOWN: usize = 2 << 20;

/// What is approved and what waits to be, of all servers or of one.
fn list_pins(daemon: &Daemon, server: Option<&str>) -> Result<Vec<u8>, String> {
    let rows = rows_of(daemon, server)?;
    json(&PinList {
        pins: rows.iter().map(shown_pin).collect(),
        look_alikes: daemon.table().look_alikes.iter().map(ToString::to_string).collect(),
    })
}

/// What of a server waits, or one thing of it, against what is approved.
fn diff_pins(daemon: &Daemon, server: &str, subject: Option<&Subject>) -> Result<Vec<u8>, String> {
    let rows = rows_of(daemon, Some(server))?;
    let wanted = subject.map(|subject| meant(&rows, subject));
    let (mut diffs, mut left_out, mut bytes) = (Vec::new(), 0, 0);
    for row in &rows {
        if row.waiting.is_none() || wanted.as_ref().is_some_and(|wanted| *wanted != row.subject) {
            continue;
        }
        // By now something else may wait, or nothing: the hash is that of what is shown.
        let Some(difference) = pins(daemon)?.diff(server, &row.subject) else {
            continue;
        };
        bytes += difference.text.len();
        if bytes > MOST_SHOWN && !diffs.is_empty() {
            left_out += 1;
            continue;
        }
        diffs.push(api::PinRow {
            waiting: Some(difference.sha256),
            diff: Some(difference.text),
            ..shown_pin(row)
        });
    }
    json(&PinDiffs {
        server: server.to_owned(),
        diffs,
        left_out,
    })
}

/// Approves what waits of a server and was seen.
fn accept_pins(daemon: &Daemon, server: &str, seen: &[(Subject, String)], by: u32) -> Result<Vec<u8>, String> {
    let rows = rows_of(daemon, Some(server))?;
    let seen: Vec<_> = seen
        .iter()
        .map(|(what, hash)| (meant(&rows, what), hash.clone()))
        .collect();
    let accepted = pins(daemon)?.accept(server, &seen, by);
    accepted.map_err(|error| error.to_string())?;
    let mut accepted = Vec::new();
    for (subject, sha256) in &seen {
        info!(server, by, sha256, "accepted: {subject}");
        let what = subject.to_string();
        let details = [
            ("server", Detail::Text(server)),
            ("what", Detail::Text(&what)),
            ("sha256", Detail::Text(sha256)),
            ("by", Detail::Number(by.into())),
        ];
        if let Err(error) = daemon.chain().recorder.event("pin-accepted", &details) {
            error!("what was accepted was not recorded: {error}");
        }
        let (tool, instructions) = names(subject);
        accepted.push(PinAccepted {
            tool,
            instructions,
            sha256: sha256.clone(),
        });
    }
    if let Some(server) = daemon.host().servers().get(server) {
        server.judge_again();
    }
    json(&PinsAccepted {
        server: server.to_owned(),
        accepted,
    })
}

fn pins(daemon: &Daemon) -> Result<&Pins, String> {
    daemon.host().pins().ok_or_else(|| "this daemon has no pins".to_owned())
}

/// The pins of all servers, or of one that there is.
fn rows_of(daemon: &Daemon, server: Option<&str>) -> Result<Vec<PinRow>, String> {
    let mut rows = pins(daemon)?.list();
    if let Some(server) = server {
        rows.retain(|row| row.server == server);
        if rows.is_empty() && !daemon.host().servers().contains_key(server) {
            return Err(format!("there is no server {}", brief(server, 40)));
        }
    }
    Ok(rows)
}

/// What a person means who can write a name with hidden characters only as it is shown.
fn meant(rows: &[PinRow], subject: &Subject) -> Subject {
    let Subject::Tool(name) = subject else {
        return subject.clone();
    };
    let shown_so = |row: &&PinRow| matches!(&row.subject, Subject::Tool(tool) if visible(tool) == *name);
    let exact = rows.iter().find(|row| row.subject == *subject);
    let row = exact.or_else(|| rows.iter().find(shown_so));
    row.map_or_else(|| subject.clone(), |row| row.subject.clone())
}

/// The members by which a subject is named.
fn names(subject: &Subject) -> (Option<String>, bool) {
    match subject {
        Subject::Instructions => (None, true),
        Subject::Tool(name) => (Some(name.clone()), false),
    }
}

fn shown_pin(row: &PinRow) -> api::PinRow {
    let (tool, instructions) = names(&row.subject);
    api::PinRow {
        server: row.server.clone(),
        tool,
        instructions,
        state: match row.standing {
            Standing::Approved => PinState::Approved,
            Standing::New { .. } => PinState::New,
            Standing::Changed { .. } => PinState::Changed,
        },
        reason: row.standing.reason(),
        approved: row.approved.clone(),
        by: row.by.clone(),
        waiting: row.waiting.clone(),
        diff: None,
    }
}

/// A waiting call as operators are shown it.
pub fn shown(pending: &Pending) -> Approval {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Approval {
        id: pending.id.clone(),
        uid: pending.uid,
        server: pending.server.clone(),
        tool: pending.tool.clone(),
        rule: pending.rule.clone(),
        arguments: pending.arguments.clone(),
        asked: seconds(pending.asked),
        expires: seconds(pending.expires),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, params: &str) -> Result<Order, RpcError> {
        Order::read(method, Some(Json::parse(params.as_bytes()).unwrap()))
    }

    #[test]
    fn orders_about_pins_say_what_they_are_about() {
        assert_eq!(read("colibri/pins", "{}").unwrap(), Order::Pins { server: None });
        let diff = |subject| Order::PinDiff {
            server: "s".to_owned(),
            subject,
        };
        assert_eq!(read("colibri/pin-diff", r#"{"server":"s"}"#).unwrap(), diff(None));
        assert_eq!(
            read("colibri/pin-diff", r#"{"server":"s","instructions":true}"#).unwrap(),
            diff(Some(Subject::Instructions))
        );
        assert!(read("colibri/pin-diff", "{}").is_err());
        assert_eq!(
            read(
                "colibri/pin-accept",
                r#"{"server":"s","accept":[{"tool":"t","sha256":"ab"},{"instructions":true,"sha256":"cd"}]}"#
            )
            .unwrap(),
            Order::PinAccept {
                server: "s".to_owned(),
                seen: vec![
                    (Subject::Tool("t".to_owned()), "ab".to_owned()),
                    (Subject::Instructions, "cd".to_owned())
                ],
            }
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
