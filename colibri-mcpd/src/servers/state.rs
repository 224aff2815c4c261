//! The state of a server, and the assignment of its processes.

use crate::registry::Isolation;
pub use colibri_api::ServerState as State;

/// The callers of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessKey {
    /// Everybody's.
    All,
    /// Those of one user.
    Uid(u32),
    /// Those of one user's connection, or session over HTTP.
    Connection(u32, u64),
    /// Those of one user, or of one user's connection, while others of them may be asked about in
    /// the processes before.
    Beside(u32, Option<u64>, usize),
    /// One call of a user.
    Call(u32, u64),
}

impl ProcessKey {
    /// The one for a user's call in a session, if it is in one; `number` is the call's, where each
    /// has its own.
    pub fn of(
        isolation: Isolation,
        uid: u32,
        session: Option<u64>,
        number: impl FnOnce() -> u64,
    ) -> ProcessKey {
        match isolation {
            Isolation::Shared => ProcessKey::All,
            Isolation::User => ProcessKey::Uid(uid),
            Isolation::Client => session.map_or(ProcessKey::Uid(uid), |session| {
                ProcessKey::Connection(uid, session)
            }),
            Isolation::Call => ProcessKey::Call(uid, number()),
        }
    }

    /// The user whose failures count for calls of this one; `None`: everybody's do.
    pub fn holder(isolation: Isolation, uid: u32) -> Option<u32> {
        (isolation != Isolation::Shared).then_some(uid)
    }

    /// The user whose it is alone.
    pub fn uid(self) -> Option<u32> {
        match self {
            ProcessKey::All => None,
            ProcessKey::Uid(uid)
            | ProcessKey::Connection(uid, _)
            | ProcessKey::Beside(uid, ..)
            | ProcessKey::Call(uid, _) => Some(uid),
        }
    }

    /// The connection whose it is alone.
    pub fn connection(self) -> Option<u64> {
        match self {
            ProcessKey::Connection(_, connection) | ProcessKey::Beside(_, Some(connection), _) => {
                Some(connection)
            }
            ProcessKey::All
            | ProcessKey::Uid(_)
            | ProcessKey::Beside(_, None, _)
            | ProcessKey::Call(..) => None,
        }
    }

    /// True if it is for the same calls as this one, which is the first of them.
    pub(crate) fn is_beside(self, first: ProcessKey) -> bool {
        let of = match self {
            ProcessKey::Beside(uid, None, _) => ProcessKey::Uid(uid),
            ProcessKey::Beside(uid, Some(connection), _) => ProcessKey::Connection(uid, connection),
            key => key,
        };
        of == first
    }

    /// Of the processes for the same calls, the one of this number; the first is number 0.
    pub fn beside(self, number: usize) -> ProcessKey {
        match self {
            ProcessKey::Uid(uid) if number > 0 => ProcessKey::Beside(uid, None, number),
            ProcessKey::Connection(uid, connection) if number > 0 => {
                ProcessKey::Beside(uid, Some(connection), number)
            }
            key => key,
        }
    }
}

/// The viewer of a server's state. What became of other users' processes is not everybody's to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewer {
    /// An operator: sees that a process of anybody failed, and why. What it wrote is for its own
    /// user (and in the log).
    Operator(Option<u32>),
    /// A user: sees what became of the processes that get that user's calls.
    User(u32),
}
