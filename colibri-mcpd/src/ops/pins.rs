//! The operators' methods about pins: approved definitions, and those that wait for approval.

use anyhow::{Context as _, bail};
use colibri_api::{
    PinAcceptRequest, PinDiffRequest, PinDiffs, PinList, PinRow, PinSeen, PinSubject, PinsAccepted,
    PinsRequest,
};
use tracing::{error, info};

use super::method::{DaemonMethod, MethodCall};
use super::operator::{answer_operator, json, no_server};
use crate::daemon::Daemon;
use colibri_policy::Pins;
use colibri_protocol::RpcError;
use colibri_trail::TrailEvent;

/// `colibri/pins`: the approved definitions, and those that wait for approval.
pub(super) struct ListPins;

impl DaemonMethod for ListPins {
    const NAME: &'static str = "colibri/pins";
    const FOR_OPERATORS: bool = true;
    type Parameters = PinsRequest;

    fn start(asked: PinsRequest, request: MethodCall) {
        answer_operator(request, move |daemon, _| {
            list_pins(daemon, asked.server.as_deref())
        });
    }
}

/// `colibri/pin-diff`: the differences of waiting definitions from the approved ones.
pub(super) struct DiffPins;

impl DaemonMethod for DiffPins {
    const NAME: &'static str = "colibri/pin-diff";
    const FOR_OPERATORS: bool = true;
    type Parameters = PinDiffRequest;

    fn start(asked: PinDiffRequest, request: MethodCall) {
        answer_operator(request, move |daemon, _| {
            diff_pins(daemon, &asked.server, asked.subject.as_ref())
        });
    }
}

/// `colibri/pin-accept`: waiting definitions that were seen are approved.
pub(super) struct AcceptPins;

impl DaemonMethod for AcceptPins {
    const NAME: &'static str = "colibri/pin-accept";
    const FOR_OPERATORS: bool = true;
    type Parameters = PinAcceptRequest;

    fn check(asked: &PinAcceptRequest) -> Result<(), RpcError> {
        if asked.accept.is_empty() {
            return Err(RpcError::invalid_params(
                "params: accept must name what was seen",
            ));
        }
        Ok(())
    }

    fn start(asked: PinAcceptRequest, request: MethodCall) {
        answer_operator(request, move |daemon, operator| {
            accept_pins(daemon, &asked, operator.uid)
        });
    }
}

/// The most bytes of differences in one answer, beyond the first; as JSON and escaped they are
/// more.
const MAX_SHOWN: usize = 2 << 20;

/// Lists approved definitions and those that wait for approval, of all servers or of one.
fn list_pins(daemon: &Daemon, server: Option<&str>) -> anyhow::Result<Vec<u8>> {
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

/// Shows the differences of a server's waiting definitions, or of one of them, from the approved
/// ones.
fn diff_pins(
    daemon: &Daemon,
    server: &str,
    subject: Option<&PinSubject>,
) -> anyhow::Result<Vec<u8>> {
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
fn accept_pins(daemon: &Daemon, asked: &PinAcceptRequest, by: u32) -> anyhow::Result<Vec<u8>> {
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
    pins(daemon)?.accept(server, &accepted, by)?;
    for PinSeen { subject, sha256 } in &accepted {
        info!(server, by, sha256, "accepted: {subject}");
        let what = subject.to_string();
        if let Err(error) = daemon.chain.recorder.event(TrailEvent::PinAccepted {
            server,
            what: &what,
            sha256,
            by,
        }) {
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

fn pins(daemon: &Daemon) -> anyhow::Result<&Pins> {
    daemon.host.pins().context("this daemon has no pins")
}

/// The pins of all servers, or of one that there is.
fn rows_of(daemon: &Daemon, server: Option<&str>) -> anyhow::Result<Vec<PinRow>> {
    let mut rows = pins(daemon)?.list();
    if let Some(server) = server {
        rows.retain(|row| row.server == server);
        if rows.is_empty() && !daemon.host.servers().contains_key(server) {
            bail!(no_server(server));
        }
    }
    Ok(rows)
}

/// Resolves the subject that a person wrote who can write a name with hidden characters only as it
/// is shown.
fn meant(rows: &[PinRow], subject: &PinSubject) -> PinSubject {
    let shown_so = |row: &&PinRow| row.subject.is_shown_as(subject);
    let exact = rows.iter().find(|row| row.subject == *subject);
    let row = exact.or_else(|| rows.iter().find(shown_so));
    row.map_or_else(|| subject.clone(), |row| row.subject.clone())
}

#[cfg(test)]
mod tests {
    use super::super::method::read_parameters;
    use super::*;
    use colibri_wire::Json;

    fn read<M: DaemonMethod>(params: &str) -> Result<M::Parameters, RpcError> {
        read_parameters::<M>(Some(Json::parse(params.as_bytes()).unwrap()))
    }

    #[test]
    fn orders_about_pins_say_what_they_are_about() {
        let none = PinsRequest { server: None };
        assert_eq!(read::<ListPins>("{}").unwrap(), none);
        let diff = |subject| PinDiffRequest {
            server: "s".to_owned(),
            subject,
        };
        assert_eq!(read::<DiffPins>(r#"{"server":"s"}"#).unwrap(), diff(None));
        assert_eq!(
            read::<DiffPins>(r#"{"server":"s","instructions":true}"#).unwrap(),
            diff(Some(PinSubject::Instructions))
        );
        assert!(read::<DiffPins>("{}").is_err());
        assert_eq!(
            read::<AcceptPins>(
                r#"{"server":"s","accept":[{"tool":"t","sha256":"ab"},{"instructions":true,"sha256":"cd"}]}"#
            )
            .unwrap(),
            PinAcceptRequest {
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
            assert!(read::<AcceptPins>(bad).is_err(), "{bad}");
        }
    }
}
