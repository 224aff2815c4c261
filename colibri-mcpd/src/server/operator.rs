//! The operator's methods, `colibri/…`: on the clients' socket, for whom the client policy calls an operator.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::daemon::Daemon;
use crate::chain::{Call, Client, Outcome};
use crate::policy::{Pending, Rights};
use crate::protocol::{Answer, Code, Failure, RpcError, Version};
use crate::trail::Detail;
use crate::wire::Json;

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
            _ => Err(RpcError::method_not_found(method, Version::LATEST)),
        }
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
    Err(Failure::new(Code::PolicyDenied, "this method is for operators")
        .by_rule(format!("{}: operator", daemon.config.clients.display()))
        .advising("ask an operator, or root, to do it"))
}

/// Answers an operator's request, if it is an operator's.
pub fn answer(daemon: &Arc<Daemon>, call: &Call, order: &Order) -> Outcome {
    let rights = match check(daemon, &call.client) {
        Ok(rights) => rights,
        Err(failure) => return Outcome::Failed(failure),
    };
    let result = match order {
        Order::Approvals => {
            let waiting: Vec<Value> = daemon.chain().approvals.list().iter().map(shown).collect();
            json!({ "approvals": waiting })
        }
        Order::Decide { id, approve } => {
            let by = call.client.caller.uid;
            match daemon.chain().approvals.decide(id, *approve, by, rights.self_approve) {
                Ok(pending) => {
                    let details = [
                        ("approval", Detail::Text(&pending.id)),
                        ("by", Detail::Number(by.into())),
                        ("uid", Detail::Number(pending.uid.into())),
                        ("approved", Detail::Flag(*approve)),
                    ];
                    if let Err(error) = daemon.chain().recorder.event("approval", &details) {
                        tracing::error!("a decision was not recorded: {error}");
                    }
                    json!({ "decided": shown(&pending), "approved": approve })
                }
                Err(error) => return error_of(&error.to_string()),
            }
        }
        Order::Reload => match super::reload(daemon) {
            Ok(()) => json!({ "reloaded": true }),
            Err(errors) => return error_of(&errors),
        },
    };
    Outcome::Own {
        answer: Answer::Result(result.to_string().into_bytes()),
        failed: false,
    }
}

fn error_of(message: &str) -> Outcome {
    Outcome::Own {
        answer: RpcError::invalid_params(message).into(),
        failed: true,
    }
}

/// A waiting call as operators are shown it.
pub fn shown(pending: &Pending) -> Value {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    json!({
        "id": pending.id,
        "uid": pending.uid,
        "server": pending.server,
        "tool": pending.tool,
        "rule": pending.rule,
        "arguments": pending.arguments,
        "asked": seconds(pending.asked),
        "expires": seconds(pending.expires),
    })
}
