//! The record of one instance: what was made, in the order it was made, one line a fact, so that it
//! can be undone by whoever comes after a helper that was killed.
//!
//! The file is appended to, never rewritten: a fact is on disk before the next step, and a torn
//! last line is a step that did not happen.

use crate::names::{JailName, ServerId};

/// One fact of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordFact {
    /// The server that the instance runs.
    Server(ServerId),
    /// The uid that asked for it.
    Caller(u32),
    /// The uid that the server runs as.
    Uid(u32),
    /// The process that supervises the instance, for as long as it holds the record's lock.
    Supervisor(i32),
    /// The instance has a jail of its own, called by the session's mark.
    Ephemeral,
    /// The instance entered this jail, which is not ours to remove.
    Persistent(JailName),
    /// The instance is an agent's in this persistent jail, in which there is room for one agent
    /// socket.
    Door(JailName),
    /// The jail's id.
    Jid(i32),
    /// A file system was mounted. Undone by id, never by path: paths can be mounted over.
    Mount {
        /// `f_fsid` of statfs(2).
        fsid: [i32; 2],
        /// The place, for the reader.
        at: String,
    },
    /// Resource rules exist under the session's mark.
    Rules,
}

impl RecordFact {
    /// The fact as its line, newline included.
    pub fn to_line(&self) -> String {
        match self {
            Self::Server(server) => format!("server {server}\n"),
            Self::Caller(uid) => format!("caller {uid}\n"),
            Self::Uid(uid) => format!("uid {uid}\n"),
            Self::Supervisor(pid) => format!("supervisor {pid}\n"),
            Self::Ephemeral => "ephemeral\n".to_owned(),
            Self::Persistent(name) => format!("persistent {name}\n"),
            Self::Door(name) => format!("door {name}\n"),
            Self::Jid(jid) => format!("jid {jid}\n"),
            Self::Mount { fsid: [a, b], at } => format!("mount {a} {b} {at}\n"),
            Self::Rules => "rules\n".to_owned(),
        }
    }

    fn from_line(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "server" => ServerId::parse(rest.as_bytes()).map(Self::Server),
            "caller" => rest.parse().ok().map(Self::Caller),
            "uid" => rest.parse().ok().map(Self::Uid),
            "supervisor" => rest
                .parse()
                .ok()
                .filter(|pid| *pid > 1)
                .map(Self::Supervisor),
            "ephemeral" => Some(Self::Ephemeral),
            "persistent" => JailName::parse(rest).map(Self::Persistent),
            "door" => JailName::parse(rest).map(Self::Door),
            "jid" => rest.parse().ok().map(Self::Jid),
            "mount" => {
                let mut parts = rest.splitn(3, ' ');
                let fsid = [parts.next()?.parse().ok()?, parts.next()?.parse().ok()?];
                Some(Self::Mount {
                    fsid,
                    at: parts.next()?.to_owned(),
                })
            }
            "rules" => Some(Self::Rules),
            _ => None,
        }
    }

    /// The facts of a record's bytes. Lines that are cut or say nothing known are left out: sweep
    /// has to work with whatever a killed helper left.
    pub fn read_all(bytes: &[u8]) -> Vec<Self> {
        let text = String::from_utf8_lossy(bytes);
        text.split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'))
            .filter_map(Self::from_line)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts() -> Vec<RecordFact> {
        vec![
            RecordFact::Server(ServerId::parse(b"docs").unwrap()),
            RecordFact::Caller(871),
            RecordFact::Uid(7871),
            RecordFact::Supervisor(4242),
            RecordFact::Ephemeral,
            RecordFact::Persistent(JailName::parse("build0").unwrap()),
            RecordFact::Door(JailName::parse("build0").unwrap()),
            RecordFact::Jid(7),
            RecordFact::Mount {
                fsid: [-3, 12],
                at: "/var/run/colibri-jail/x/root/a b".to_owned(),
            },
            RecordFact::Rules,
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        let text: String = facts().iter().map(RecordFact::to_line).collect();
        assert_eq!(RecordFact::read_all(text.as_bytes()), facts());
    }

    proptest! {
        #[test]
        fn a_record_cut_anywhere_loses_only_its_end(cut in 0usize..200) {
            let text: String = facts().iter().map(RecordFact::to_line).collect();
            let cut = cut.min(text.len());
            let read = RecordFact::read_all(&text.as_bytes()[..cut]);
            prop_assert_eq!(&facts()[..read.len()], &read[..]);
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RecordFact::read_all(&bytes);
        }
    }
}
