//! The accesses of an observed server, as either system's tracer reports them.

use std::net::SocketAddr;
use std::path::PathBuf;

/// One access, or another fact that a tracer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObservedAccess {
    /// A file or directory was opened to be read. Its path is the kernel's, behind all links, where
    /// the tracer has it.
    Read { path: PathBuf, is_directory: bool },
    /// A file was opened to be written, or a name was made, changed or removed.
    Write { path: PathBuf },
    /// A program was executed.
    Execute { path: PathBuf },
    /// A file was not there, or was refused.
    Miss { path: PathBuf },
    /// An address was connected to, or sent to.
    Connect { address: SocketAddr },
    /// A Unix socket was connected to.
    ConnectLocal { path: PathBuf },
    /// An address was bound.
    Bind { address: SocketAddr },
    /// A name was looked up by DNS.
    #[cfg_attr(
        target_os = "freebsd",
        expect(dead_code, reason = "ktrace(1) reports no contents of messages")
    )]
    Lookup { name: String },
    /// The number of processes that live at the time, where it has grown.
    Processes { count: u64 },
    /// Something after which the tracer's reports prove nothing: the reason.
    Escape { why: String },
    /// Something that the tracer does not see: the reason.
    Unseen { why: String },
}

/// Joins a path to the directory that it is relative to, and takes out `.` and `..`. Links are not
/// looked at.
pub(super) fn absolute(directory: &std::path::Path, path: &std::path::Path) -> PathBuf {
    let mut joined = PathBuf::from("/");
    for part in directory.join(path).components() {
        match part {
            std::path::Component::Normal(name) => joined.push(name),
            std::path::Component::ParentDir => drop(joined.pop()),
            _ => {}
        }
    }
    joined
}
