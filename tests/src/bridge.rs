//! A client behind the bridge, as an editor is.

use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus};

use crate::{Client, Era};

/// A running bridge and the client that speaks to it: a modern one, unless told otherwise.
pub struct Bridge {
    client: Client,
    child: Child,
}

impl Bridge {
    /// Starts the bridge; its input and output are one socket, which is what Node gives its
    /// children.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut command: Command) -> Bridge {
        let (ours, its) = UnixStream::pair().expect("a pair of sockets");
        let input = OwnedFd::from(its.try_clone().expect("a second handle"));
        let child = command.stdin(input).stdout(OwnedFd::from(its)).spawn();
        // Its copies of the bridge's end would keep the client from seeing that the bridge has
        // ended.
        drop(command);
        let mut client = Client::over(ours);
        client.era = Era::Modern;
        Bridge {
            client,
            child: child.expect("a bridge"),
        }
    }

    /// Ends its input, and waits until it has ended.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn end(mut self) -> ExitStatus {
        self.client.half_close();
        self.child.wait().expect("the bridge's status")
    }
}

impl Deref for Bridge {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Bridge {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // One that has ended already is no trouble.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
