//! The listeners of an agent's instance: its agent socket to the daemon, and its model's relay. Who
//! listens there knows agents; agents do not know who listens.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::registry::AgentEntry;
use crate::relay::AgentSocket;
use colibri_policy::Caller;

/// Something that is listened on. Dropping it ends that, and every connection to it.
pub trait ListenGuard: Send + Sync {}

/// Makes agent sockets.
pub trait Doors: Send + Sync {
    /// Makes the directory of a new instance, which goes with what is returned, and listens in it
    /// on `colibri.sock` for calls for this person. Returns the directory as well.
    ///
    /// # Errors
    /// What the system says.
    fn open(
        &self,
        door: Arc<AgentSocket>,
        person: Caller,
    ) -> io::Result<(Box<Path>, Box<dyn ListenGuard>)>;
}

/// Makes model relays.
pub trait Models: Send + Sync {
    /// Listens on this socket for requests to the model of this entry, which has one.
    ///
    /// # Errors
    /// What the system says, or why the model cannot be asked.
    fn open(
        &self,
        socket: &Path,
        entry: &Arc<AgentEntry>,
        door: Arc<AgentSocket>,
        person: Caller,
    ) -> io::Result<Box<dyn ListenGuard>>;
}
