//! What a client agreed on and can do.

use std::sync::OnceLock;

use colibri_protocol::{Askable, Session as Agreed, Version};

/// What a client agreed on and can do: for as long as its connection lives, where it writes lines; over HTTP for a legacy
/// session, whose requests are a [`super::Client`] each, or for one modern request.
pub struct ClientSession {
    /// The number of the connection or of the HTTP session, never used twice by one daemon.
    pub number: u64,
    agreed: OnceLock<(Version, Askable)>,
}

impl ClientSession {
    /// A session that has not agreed on anything.
    pub fn new(number: u64) -> ClientSession {
        ClientSession {
            number,
            agreed: OnceLock::new(),
        }
    }

    /// What it agreed on so far.
    pub fn agreed(&self) -> Agreed {
        self.agreed
            .get()
            .map_or(Agreed::Fresh, |(version, _)| Agreed::Legacy(*version))
    }

    /// Its handshake agreed on this version, and said what it can be asked, for good: there is one handshake.
    pub fn agree(&self, version: Version, askable: Askable) {
        let _ = self.agreed.set((version, askable));
    }

    /// What it can be asked, as its handshake says.
    pub fn askable(&self) -> Askable {
        self.agreed.get().map_or(Askable::NOTHING, |(_, askable)| *askable)
    }
}
