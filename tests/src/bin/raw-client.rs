//! Sends its standard input to a Unix socket, and prints what comes back until the other side ends:
//!
//! ```text
//! raw-client SOCKET
//! ```
//!
//! For tests that need a client of another user.

use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

fn main() -> io::Result<()> {
    let socket = std::env::args_os().nth(1).unwrap_or_default();
    let mut stream = UnixStream::connect(socket)?;
    io::copy(&mut io::stdin(), &mut stream)?;
    stream.flush()?;
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut stream, &mut io::stdout())?;
    Ok(())
}
