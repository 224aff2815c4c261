//! Who is on the other end of a socket.

use tokio::net::UnixStream;

use crate::policy::Caller;

/// The peer's credentials, from the kernel (SO_PEERCRED, LOCAL_PEERCRED).
pub fn caller(stream: &UnixStream) -> std::io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    Ok(Caller {
        uid: credentials.uid(),
        gid: credentials.gid(),
        pid: credentials.pid(),
    })
}
