//! Sends its standard input to a Unix socket, and prints what comes back as it comes, until the
//! other side ends:
//!
//! ```text
//! raw-client SOCKET
//! ```
//!
//! For tests that need a client of another user.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread;

fn main() -> io::Result<()> {
    let socket = std::env::args_os().nth(1).unwrap_or_default();
    let mut stream = UnixStream::connect(socket)?;
    let mut to = stream.try_clone()?;
    thread::spawn(move || {
        // Whatever ends it, the other side is told.
        let _ = io::copy(&mut io::stdin(), &mut to);
        to.shutdown(Shutdown::Write)
    });
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    io::copy(&mut stream, &mut output).map(drop)
}
