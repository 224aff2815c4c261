//! `mcp-bridge.lock`: which bridge runs for a home, and where it listens.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{SocketAddrV4, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::sys;

/// The lock's file, in the home.
pub const FILE: &str = "mcp-bridge.lock";
/// The interval at which a bridge renews its timestamp, in seconds.
pub const HEARTBEAT_SECS: u64 = 30;
/// From which age on, in seconds, a timestamp is one of a bridge that is gone.
const STALE_SECS: u64 = 45;
/// The longest time for an answer of a bridge, in seconds, if its lock names none.
pub const ANSWER_SECS: u64 = 27;
/// The longest time for a connection to a bridge whose lock has no timestamp.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// No lock is longer.
const MAX_BYTES: u64 = 4096;

/// The content of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockFile {
    /// The bridge's process.
    pub pid: u32,
    /// The address of its listener: on loopback.
    pub address: SocketAddrV4,
    /// The time of its start, in seconds since 1970-01-01 UTC.
    pub started: u64,
    /// The time of its last sign of life, in the same unit. `None`: it never says so, as other
    /// programs of the bridge's name do not.
    pub timestamp: Option<u64>,
    /// The longest time for its answers, in seconds.
    pub answer_secs: u64,
}

/// Seconds since 1970-01-01 UTC.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl LockFile {
    /// Reads the lock of a home.
    ///
    /// # Errors
    /// It is not there ([`io::ErrorKind::NotFound`]), cannot be read, or says something else
    /// ([`io::ErrorKind::InvalidData`]).
    pub fn read(home: &Path) -> io::Result<LockFile> {
        // Whatever stands there, opening it must neither follow it elsewhere nor wait for it.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options()
            .read(true)
            .custom_flags(flags)
            .open(home.join(FILE))?;
        if !file.metadata()?.is_file() {
            return Err(invalid("it is no regular file"));
        }
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text)?;
        LockFile::parse(&text)
    }

    fn parse(text: &str) -> io::Result<LockFile> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| invalid(&error.to_string()))?;
        let number = |key: &str| {
            value[key]
                .as_u64()
                .ok_or_else(|| invalid(&format!("it has no {key}")))
        };
        let address = value["address"]
            .as_str()
            .and_then(|address| address.parse().ok());
        Ok(LockFile {
            pid: u32::try_from(number("pid")?).map_err(|_| invalid("its pid is none"))?,
            address: address
                .filter(|address: &SocketAddrV4| address.ip().is_loopback() && address.port() != 0)
                .ok_or_else(|| invalid("its address is none of loopback"))?,
            started: number("started")?,
            timestamp: value
                .get("timestamp")
                .map(|_| number("timestamp"))
                .transpose()?,
            answer_secs: value["answer_secs"].as_u64().unwrap_or(ANSWER_SECS),
        })
    }

    /// As it stands in the file.
    pub fn text(&self) -> String {
        json!({
            "pid": self.pid,
            "address": self.address.to_string(),
            "started": self.started,
            "heartbeat_secs": HEARTBEAT_SECS,
            "timestamp": self.timestamp,
            "answer_secs": self.answer_secs,
        })
        .to_string()
    }

    /// True if its bridge runs: its process is there, and its timestamp under 45 s old; where it
    /// has none, somebody listens at its address. `now` as by [`now`].
    pub fn is_alive(&self, now: u64) -> bool {
        sys::is_process(self.pid)
            && match self.timestamp {
                Some(timestamp) => now.abs_diff(timestamp) < STALE_SECS,
                None => TcpStream::connect_timeout(&self.address.into(), CONNECT_LIMIT).is_ok(),
            }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(timestamp: u64) -> LockFile {
        LockFile {
            pid: std::process::id(),
            address: "127.0.0.1:4711".parse().unwrap(),
            started: 7,
            timestamp: Some(timestamp),
            answer_secs: 120,
        }
    }

    #[test]
    fn a_lock_says_what_was_written() {
        let lock = own(12);
        let text = lock.text();
        for part in [
            "\"address\":\"127.0.0.1:4711\"",
            "\"heartbeat_secs\":30",
            "\"started\":7",
            "\"timestamp\":12",
            "\"answer_secs\":120",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(LockFile::parse(&text).unwrap(), lock);
    }

    #[test]
    fn only_a_lock_that_is_renewed_by_a_process_that_is_there_is_alive() {
        let now = now();
        assert!(own(now).is_alive(now));
        assert!(own(now - 44).is_alive(now));
        assert!(!own(now - 45).is_alive(now));
        // A clock that was set back makes no bridge immortal.
        assert!(!own(now + 3600).is_alive(now));
        for pid in [0, u32::MAX, 1 << 31] {
            assert!(!LockFile { pid, ..own(now) }.is_alive(now), "{pid}");
        }
    }

    #[test]
    fn a_lock_without_a_timestamp_is_of_a_bridge_that_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pid = std::process::id();
        let text =
            format!(r#"{{"pid":{pid},"address":"{address}","started":7,"heartbeat_secs":30}}"#);
        let lock = LockFile::parse(&text).unwrap();
        assert_eq!((lock.timestamp, lock.answer_secs), (None, ANSWER_SECS));
        assert!(lock.is_alive(now()));
        drop(listener);
        assert!(!lock.is_alive(now()));
    }

    #[test]
    fn what_is_no_lock_is_an_error() {
        let good = own(1).text();
        for (from, to) in [
            ("127.0.0.1:4711", "192.0.2.1:4711"),
            ("127.0.0.1:4711", "127.0.0.1:0"),
            ("127.0.0.1:4711", "[::1]:4711"),
            ("\"pid\":", "\"pid\":-"),
            ("\"timestamp\":", "\"timestamp\":-"),
            ("}", ""),
        ] {
            assert!(LockFile::parse(&good.replace(from, to)).is_err(), "{to}");
        }
    }
}
