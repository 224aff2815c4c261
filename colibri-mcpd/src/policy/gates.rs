//! Callers, and the two gates.

/// Who is on the other end of a socket, as the kernel says: never what the peer says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Effective user id at the time of connect(2).
    pub uid: u32,
    /// Effective group id at the time of connect(2).
    pub gid: u32,
    /// Process id, where the system gives it.
    pub pid: Option<i32>,
}

/// What stands in front of a tool. The two gates are separate because they open different trust surfaces.
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

    /// How an operator opens it.
    pub fn how_to_open(self) -> &'static str {
        match self {
            Gate::None => "",
            Gate::Write => "start colibri-mcpd with --write or COLIBRI_MCP_WRITE=1",
            Gate::External => "start colibri-mcpd with --external-call or COLIBRI_MCP_EXTERNAL_CALL=1",
        }
    }
}

/// A set of open gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gates {
    open: u8,
}

impl Gates {
    /// The gates that are open.
    pub fn new(write: bool, external: bool) -> Gates {
        Gates {
            open: u8::from(write) * Gate::Write.bit() | u8::from(external) * Gate::External.bit(),
        }
    }

    /// Whether a gate is open.
    pub fn is_open(self, gate: Gate) -> bool {
        self.open & gate.bit() == gate.bit()
    }

    /// What is open in both.
    pub fn and(self, other: Gates) -> Gates {
        Gates {
            open: self.open & other.open,
        }
    }

    /// What is left when these ([`Gate::bit`]) are closed.
    pub fn without(self, closed: u8) -> Gates {
        Gates {
            open: self.open & !closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_open_and_close_one_by_one() {
        let both = Gates::new(true, true);
        assert!(both.is_open(Gate::Write) && both.is_open(Gate::External) && Gates::default().is_open(Gate::None));
        let narrowed = both.without(Gate::Write.bit());
        assert!(!narrowed.is_open(Gate::Write) && narrowed.is_open(Gate::External));
        assert_eq!(narrowed.and(Gates::new(true, false)), Gates::default());
    }
}
