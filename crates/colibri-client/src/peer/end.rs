//! An end of a connection, as a system's table shows it.

use std::net::SocketAddrV4;

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketEnd {
    pub local: SocketAddrV4,
    pub remote: SocketAddrV4,
    pub state: TcpState,
    /// The owner of the socket.
    pub uid: u32,
    /// A socket still belongs to it.
    pub is_live: bool,
}

/// The TCP states that matter here (RFC 9293, section 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpState {
    Listen,
    Established,
    /// It sends nothing more, and still reads: FIN-WAIT-1, FIN-WAIT-2.
    HalfClosed,
    Other,
}
