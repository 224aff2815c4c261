//! Callers, and the two gates.

use anyhow::anyhow;
use colibri_protocol::{Code, Failure};

/// The peer of a socket, as the kernel says: never what the peer reports of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Effective user id at the time of connect(2).
    pub uid: u32,
    /// Effective group id at the time of connect(2).
    pub gid: u32,
    /// Process id, where the system gives it.
    pub pid: Option<i32>,
}

impl Caller {
    /// A person who is not connected.
    ///
    /// # Errors
    /// There is no such account.
    pub fn of_account(uid: u32) -> anyhow::Result<Caller> {
        match nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)) {
            Ok(Some(user)) => Ok(Caller {
                uid,
                gid: user.gid.as_raw(),
                pid: None,
            }),
            _ => Err(anyhow!("there is no user with the uid {uid} any more")),
        }
    }

    /// The daemon itself, for calls that nobody else asked for.
    pub fn of_daemon() -> Caller {
        Caller {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            pid: None,
        }
    }
}

/// The gate in front of a tool. The two gates are separate because they open different trust
/// surfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Nothing: reading is always allowed.
    None,
    /// Changing what the daemon keeps.
    Write,
    /// Calling an external server.
    External,
}

impl Gate {
    /// The gate as a set of one.
    pub fn bit(self) -> u8 {
        match self {
            Gate::None => 0,
            Gate::Write => 1,
            Gate::External => 2,
        }
    }
}

/// The state of a gate for one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateState {
    /// Calls pass.
    Open,
    /// The daemon was started without it.
    Closed,
    /// The one user of a private daemon has not opened it.
    NotAgreed,
    /// Open, but this connection was narrowed by its own hello (`colibri-mcp --read-only`).
    Narrowed,
    /// Open, but policy keeps it closed for this user: the file and rule that do.
    Refused {
        /// For example `/usr/local/etc/colibri/clients.json:3: users.alice.gates`.
        rule: String,
    },
}

/// Both gates, as they stand for one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerGates {
    /// Tools that change what Colibri keeps.
    pub write: GateState,
    /// Tools of external servers.
    pub external_call: GateState,
}

impl CallerGates {
    /// True if a call behind this gate passes.
    ///
    /// # Errors
    /// Why it does not, and what to set.
    pub fn check(&self, gate: Gate) -> Result<(), Failure> {
        match gate {
            Gate::None => Ok(()),
            Gate::Write => self.write.check(gate),
            Gate::External => self.external_call.check(gate),
        }
    }
}

impl GateState {
    /// True if a call behind this gate, whose state this is, passes.
    ///
    /// # Errors
    /// Why it does not, and what to set.
    pub(crate) fn check(&self, gate: Gate) -> Result<(), Failure> {
        let (name, flag, variable) = match gate {
            Gate::None => return Ok(()),
            Gate::Write => ("write", "--write", "COLIBRI_MCP_WRITE=1"),
            Gate::External => (
                "external-call",
                "--external-call",
                "COLIBRI_MCP_EXTERNAL_CALL=1",
            ),
        };
        let (why, rule, advice) = match self {
            GateState::Open => return Ok(()),
            GateState::Closed => (
                format!("the {name} gate of this daemon is closed"),
                format!("gate:{name}"),
                format!("start colibri-mcpd with {flag} or {variable}"),
            ),
            GateState::NotAgreed => (
                format!(
                    "the {name} gate of this daemon is closed: tasks and agents are off until its user turns them on"
                ),
                format!("gate:{name}"),
                "have the user run colibri-mcp tasks enable, at a terminal".to_owned(),
            ),
            GateState::Narrowed => (
                format!(
                    "the {name} gate is closed for this connection, by its own colibri-mcp --read-only"
                ),
                format!("narrow:{name}"),
                "start colibri-mcp without --read-only".to_owned(),
            ),
            GateState::Refused { rule } => (
                format!("policy keeps the {name} gate closed for this user, by {rule}"),
                rule.clone(),
                "ask the operator to open it in that file".to_owned(),
            ),
        };
        Err(Failure::new(Code::GateClosed, why)
            .by_rule(rule)
            .advising(advice))
    }
}

/// A set of open gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gates {
    open: u8,
    by_consent: bool,
}

impl Gates {
    /// The gates that are open.
    pub fn new(write: bool, external: bool) -> Gates {
        Gates {
            open: (u8::from(write) * Gate::Write.bit())
                | (u8::from(external) * Gate::External.bit()),
            by_consent: false,
        }
    }

    /// The same of a private daemon, whose one user opens them.
    pub fn by_consent(self) -> Gates {
        Gates {
            by_consent: true,
            ..self
        }
    }

    /// The state of a gate that is not open.
    pub fn closed(self) -> GateState {
        match self.by_consent {
            true => GateState::NotAgreed,
            false => GateState::Closed,
        }
    }

    /// True if lists leave out tools of our own that a client with these gates cannot call.
    pub fn hides(self, caller: &CallerGates) -> bool {
        self.by_consent && caller.write != GateState::Open
    }

    /// True if a gate is open.
    pub fn is_open(self, gate: Gate) -> bool {
        self.open & gate.bit() == gate.bit()
    }

    /// The gates that are left when these ([`Gate::bit`]) are closed.
    pub fn without(self, closed: u8) -> Gates {
        Gates {
            open: self.open & !closed,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_open_and_close_one_by_one() {
        let both = Gates::new(true, true);
        assert!(
            both.is_open(Gate::Write)
                && both.is_open(Gate::External)
                && Gates::default().is_open(Gate::None)
        );
        let narrowed = both.without(Gate::Write.bit());
        assert!(!narrowed.is_open(Gate::Write) && narrowed.is_open(Gate::External));
    }

    #[test]
    fn a_closed_gate_says_what_to_set() {
        for (state, wanted, rule) in [
            (
                GateState::Closed,
                "start colibri-mcpd with --write or COLIBRI_MCP_WRITE=1",
                "gate:write",
            ),
            (
                GateState::NotAgreed,
                "have the user run colibri-mcp tasks enable, at a terminal",
                "gate:write",
            ),
            (
                GateState::Narrowed,
                "start colibri-mcp without --read-only",
                "narrow:write",
            ),
            (
                GateState::Refused {
                    rule: "clients.json: users.eve".to_owned(),
                },
                "ask the operator to open it in that file",
                "clients.json: users.eve",
            ),
        ] {
            let gates = CallerGates {
                write: state,
                external_call: GateState::Open,
            };
            assert_eq!(gates.check(Gate::None), Ok(()));
            assert_eq!(gates.check(Gate::External), Ok(()));
            let failure = gates.check(Gate::Write).unwrap_err();
            assert_eq!(failure.code, Code::GateClosed);
            assert_eq!(
                (failure.rule.as_deref(), failure.advice.as_deref()),
                (Some(rule), Some(wanted))
            );
        }
    }
}
