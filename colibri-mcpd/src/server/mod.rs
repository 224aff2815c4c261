//! The socket: listener, peer, one session a client.
