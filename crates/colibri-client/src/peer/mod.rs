//! The peer of a connection over loopback. TCP has no credentials, but the system's table of
//! connections says whose socket each end is: `/proc/net/tcp` on Linux (proc_net_tcp in the
//! kernel's documentation), the sysctl `net.inet.tcp.pcblist` on FreeBSD.
//!
//! What cannot be seen there is refused: a connection that is not in the table, one whose socket is
//! closed, one that came over IPv6.

mod end;
#[cfg(any(target_os = "freebsd", test))]
mod pcblist;
#[cfg(any(target_os = "linux", test))]
mod proc_net_tcp;

use std::fmt;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpStream};

use crate::sys;
use end::{SocketEnd, TcpState};

/// The number of look-ups of a connection: a table that others change while it is read may lack a
/// line.
pub const LOOKS: usize = 5;

/// The reason for which the peer is not dealt with.
#[derive(Debug)]
pub enum PeerError {
    /// The system's table cannot be read.
    Unreadable(io::Error),
    /// The other end is not in it.
    Unseen,
    /// Nobody has the other end open any more.
    Closed,
    /// It is another user's.
    Stranger(u32),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::Unreadable(source) => {
                write!(f, "whose the other end is cannot be found out: {source}")
            }
            PeerError::Unseen => f.write_str(
                "whose the other end is cannot be seen: it is not in the system's table",
            ),
            PeerError::Closed => f.write_str("the other end is closed"),
            PeerError::Stranger(uid) => write!(f, "the other end is uid {uid}'s"),
        }
    }
}

// The message has the cause already.
impl std::error::Error for PeerError {}

/// The system's table of connections, as it was read.
pub struct ConnectionTable(Vec<SocketEnd>);

impl ConnectionTable {
    /// Reads it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn read() -> Result<ConnectionTable, PeerError> {
        let mut ends = table().map_err(PeerError::Unreadable)?;
        ends.sort_unstable_by_key(|end| (end.local, end.remote));
        Ok(ConnectionTable(ends))
    }

    /// Holds the other end of a connection, accepted before the table was read, to be this user's:
    /// established, or half-closed with a live socket.
    ///
    /// # Errors
    /// It is another user's (root is one, too), or cannot be seen.
    pub fn check_caller(&self, accepted: &TcpStream) -> Result<(), PeerError> {
        let (own, caller) = both_ends(accepted)?;
        let from = self
            .0
            .partition_point(|end| (end.local, end.remote) < (caller, own));
        let to = self
            .0
            .partition_point(|end| (end.local, end.remote) <= (caller, own));
        is_caller(&self.0[from..to], own, caller, sys::uid())?;
        // Where that connection was gone, another from the same port may have been what the table
        // showed. As long as this end is connected there is no other.
        both_ends(accepted).map(drop)
    }

    /// The other ends of connections to a listener, accepted or not, each with its user; `None`: it
    /// is closed, and what it sent may still be read.
    pub fn callers(
        &self,
        listener: SocketAddrV4,
    ) -> impl Iterator<Item = (SocketAddrV4, Option<u32>)> {
        let is_there = |end: &&SocketEnd| end.is_live || end.state == TcpState::HalfClosed;
        let callers = self.0.iter().filter(move |end| end.remote == listener);
        callers
            .filter(is_there)
            .map(|end| (end.local, end.is_live.then_some(end.uid)))
    }
}

/// Holds the other end of an accepted connection to be this user's, in tables that are read for it.
///
/// # Errors
/// Those of [`ConnectionTable`].
pub fn check_caller(accepted: &TcpStream) -> Result<(), PeerError> {
    looked_up(|| ConnectionTable::read()?.check_caller(accepted))
}

/// The ends of a connection, as long as it is one.
fn both_ends(stream: &TcpStream) -> Result<(SocketAddrV4, SocketAddrV4), PeerError> {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(SocketAddr::V4(own)), Ok(SocketAddr::V4(other))) => Ok((own, other)),
        _ => Err(PeerError::Unseen),
    }
}

/// Holds who listens at `address` to be this user's, and what accepted the connection of `own`
/// there, where it did.
///
/// # Errors
/// As above.
pub fn check_listener(address: SocketAddrV4, own: SocketAddrV4) -> Result<(), PeerError> {
    looked_up(|| is_listener(&ConnectionTable::read()?.0, address, own, sys::uid()))
}

fn looked_up(look: impl Fn() -> Result<(), PeerError>) -> Result<(), PeerError> {
    for _ in 1..LOOKS {
        match look() {
            Err(PeerError::Unseen) => {}
            other => return other,
        }
    }
    look()
}

fn is_caller(
    ends: &[SocketEnd],
    own: SocketAddrV4,
    caller: SocketAddrV4,
    uid: u32,
) -> Result<(), PeerError> {
    let callers = || {
        ends.iter()
            .filter(|end| (end.local, end.remote) == (caller, own))
    };
    let is_open = |end: &&SocketEnd| {
        end.is_live && matches!(end.state, TcpState::Established | TcpState::HalfClosed)
    };
    match all_of(callers().filter(is_open), uid) {
        // It is there, and no process has it: it will not come back.
        Err(PeerError::Unseen) if callers().any(|end| !end.is_live) => Err(PeerError::Closed),
        other => other,
    }
}

fn is_listener(
    ends: &[SocketEnd],
    address: SocketAddrV4,
    own: SocketAddrV4,
    uid: u32,
) -> Result<(), PeerError> {
    // Who listens at this very address comes before who listens at all of them.
    let listens =
        |end: &&SocketEnd| end.is_live && end.local == address && end.state == TcpState::Listen;
    all_of(ends.iter().filter(listens), uid)?;
    // The other end has no socket before it is accepted.
    let accepted = |end: &&SocketEnd| end.is_live && (end.local, end.remote) == (address, own);
    match all_of(ends.iter().filter(accepted), uid) {
        Err(PeerError::Unseen) => Ok(()),
        other => other,
    }
}

/// Holds all of these to be one user's, and at least one to be there.
fn all_of<'e>(mut ends: impl Iterator<Item = &'e SocketEnd>, uid: u32) -> Result<(), PeerError> {
    let first = ends.next().ok_or(PeerError::Unseen)?;
    match [first].into_iter().chain(ends).find(|end| end.uid != uid) {
        Some(stranger) => Err(PeerError::Stranger(stranger.uid)),
        None => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn table() -> io::Result<Vec<SocketEnd>> {
    tells_apart(
        sys::uid(),
        &std::fs::read_to_string("/proc/sys/kernel/overflowuid")?,
    )?;
    std::fs::read_to_string("/proc/net/tcp").map(|text| proc_net_tcp::read(&text))
}

/// In the table one uid stands for all users whom this user namespace does not know
/// (user_namespaces(7)).
#[cfg(target_os = "linux")]
fn tells_apart(uid: u32, overflow: &str) -> io::Result<()> {
    if overflow.trim().parse() == Ok(uid) {
        return Err(io::Error::other(format!(
            "uid {uid} stands for every user that this user namespace does not know: run as another user"
        )));
    }
    Ok(())
}

#[cfg(target_os = "freebsd")]
fn table() -> io::Result<Vec<SocketEnd>> {
    /// Some 300,000 connections.
    const MOST: usize = 256 << 20;
    pcblist::read(&sys::sysctl(c"net.inet.tcp.pcblist", MOST)?)
}

#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn table() -> io::Result<Vec<SocketEnd>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, Shutdown, TcpListener};

    const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4000);
    const CALLER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5000);
    const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

    fn end(
        local: SocketAddrV4,
        remote: SocketAddrV4,
        state: TcpState,
        uid: u32,
        is_live: bool,
    ) -> SocketEnd {
        SocketEnd {
            local,
            remote,
            state,
            uid,
            is_live,
        }
    }

    fn said(result: Result<(), PeerError>) -> String {
        result.map_or_else(|error| format!("{error:?}"), |()| "ours".to_owned())
    }

    #[test]
    fn a_caller_is_one_whose_open_socket_is_this_users() {
        use TcpState::{Established, HalfClosed, Listen, Other};
        for (ends, wanted) in [
            (vec![end(CALLER, SERVER, Established, 7, true)], "ours"),
            (vec![end(CALLER, SERVER, HalfClosed, 7, true)], "ours"),
            (vec![end(CALLER, SERVER, HalfClosed, 7, false)], "Closed"),
            (vec![end(CALLER, SERVER, Established, 7, false)], "Closed"),
            (vec![end(CALLER, SERVER, Other, 0, false)], "Closed"),
            (vec![end(CALLER, SERVER, Other, 7, true)], "Unseen"),
            (vec![end(CALLER, NOBODY, Listen, 7, true)], "Unseen"),
            // Our own end is not the other one.
            (vec![end(SERVER, CALLER, Established, 7, true)], "Unseen"),
            (vec![], "Unseen"),
            // Root is another user.
            (
                vec![end(CALLER, SERVER, Established, 0, true)],
                "Stranger(0)",
            ),
            (
                vec![
                    end(CALLER, SERVER, Established, 7, true),
                    end(CALLER, SERVER, HalfClosed, 8, true),
                ],
                "Stranger(8)",
            ),
        ] {
            assert_eq!(
                said(is_caller(&ends, SERVER, CALLER, 7)),
                wanted,
                "{ends:?}"
            );
        }
        assert_eq!(
            said(is_caller(
                &[end(CALLER, SERVER, Established, 7, true)],
                SERVER,
                CALLER,
                0
            )),
            "Stranger(7)"
        );
    }

    #[test]
    fn a_listener_is_one_at_this_very_address() {
        use TcpState::{Established, Listen};
        let ours = end(SERVER, NOBODY, Listen, 7, true);
        let everywhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 4000);
        for (ends, wanted) in [
            (vec![ours], "ours"),
            (
                vec![ours, end(SERVER, CALLER, Established, 0, false)],
                "ours",
            ),
            (
                vec![ours, end(SERVER, CALLER, Established, 8, true)],
                "Stranger(8)",
            ),
            (vec![end(everywhere, NOBODY, Listen, 7, true)], "Unseen"),
            (vec![end(SERVER, NOBODY, Listen, 8, true)], "Stranger(8)"),
            (vec![end(SERVER, NOBODY, Listen, 7, false)], "Unseen"),
            (vec![end(SERVER, CALLER, Established, 7, true)], "Unseen"),
        ] {
            assert_eq!(
                said(is_listener(&ends, SERVER, CALLER, 7)),
                wanted,
                "{ends:?}"
            );
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_uid_of_everybody_unknown_is_nobodys_own() {
        assert!(tells_apart(65534, "65534\n").is_err());
        assert!(tells_apart(65534, "4294967294\n").is_ok());
        assert!(tells_apart(1000, "65534\n").is_ok());
    }

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => panic!("{address}"),
        }
    }

    #[test]
    fn the_systems_table_shows_both_ends_of_ones_own_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = v4(listener.local_addr().unwrap());
        let mut caller = TcpStream::connect(server).unwrap();
        let own = v4(caller.local_addr().unwrap());
        // Before it is accepted, and after.
        check_listener(server, own).unwrap();
        let (mut accepted, from) = listener.accept().unwrap();
        assert_eq!(v4(from), own);
        check_listener(server, own).unwrap();
        check_caller(&accepted).unwrap();
        caller.write_all(b"x").unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        accepted.read_to_end(&mut Vec::new()).unwrap();
        check_caller(&accepted).unwrap();
        let callers = |table: ConnectionTable| table.callers(server).collect::<Vec<_>>();
        assert_eq!(
            callers(ConnectionTable::read().unwrap()),
            [(own, Some(sys::uid()))]
        );
        // Whoever is gone is nobody's.
        drop(caller);
        assert_eq!(said(check_caller(&accepted)), "Closed");
        assert_eq!(callers(ConnectionTable::read().unwrap()), [(own, None)]);
        drop(listener);
        assert_eq!(said(check_listener(server, own)), "Unseen");
    }
}
