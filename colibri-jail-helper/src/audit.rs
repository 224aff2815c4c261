//! Audit lines: one line an event, `key=value` pairs, nothing in a value that could forge a line or
//! a key.

use colibri_text::ascii_bytes;

use crate::names::{EntryDigest, ServerId, SessionId};

/// The most bytes of one value, before escaping.
pub const MAX_VALUE: usize = 256;

/// The most bytes of one line; syslogd(8) takes 1,024 at least (RFC 3164).
pub const MAX_LINE: usize = 960;

/// An event of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditEvent {
    /// An instance is about to be made.
    Start,
    /// A request was refused.
    Refuse,
    /// An instance ended and was torn down.
    End,
    /// An instance was ended by `stop`.
    Stop,
    /// Something that nobody owned was torn down.
    Sweep,
}

impl AuditEvent {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Refuse => "refuse",
            Self::End => "end",
            Self::Stop => "stop",
            Self::Sweep => "sweep",
        }
    }
}

/// One audit line under construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine(String);

impl AuditLine {
    /// Begins a line.
    pub fn new(event: AuditEvent) -> Self {
        Self(format!("event={}", event.word()))
    }

    /// Appends `key=value`. The value is escaped and cut; a value that would not fit the line is
    /// left out, since a key without its value misleads.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: &str) -> Self {
        let value = quoted(value);
        if self.0.len() + key.len() + value.len() + 2 <= MAX_LINE {
            self.0.push(' ');
            self.0.push_str(key);
            self.0.push('=');
            self.0.push_str(&value);
        }
        self
    }

    /// Appends the facts that name a run: entry, digest, session and the uid that asked.
    #[must_use]
    pub fn run(
        self,
        server: &ServerId,
        digest: &EntryDigest,
        session: &SessionId,
        uid: u32,
    ) -> Self {
        self.with("entry", server.as_str())
            .with("digest", digest.as_str())
            .with("session", session.as_str())
            .with("uid", &uid.to_string())
    }

    /// The line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A value that stands for itself if it is a plain word, else in double quotes with everything
/// escaped that is not printable ASCII.
fn quoted(value: &str) -> String {
    let plain = !value.is_empty()
        && value.len() <= MAX_VALUE
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./:,+@".contains(&b));
    if plain {
        value.to_owned()
    } else {
        format!("\"{}\"", ascii_bytes(value.as_bytes(), MAX_VALUE))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_reads_as_pairs() {
        let line = AuditLine::new(AuditEvent::Start)
            .run(
                &ServerId::parse(b"docs").unwrap(),
                &EntryDigest::parse("a".repeat(64).as_bytes()).unwrap(),
                &SessionId::parse(b"0123456789abcdef").unwrap(),
                871,
            )
            .with("jid", "7");
        let expected = format!(
            "event=start entry=docs digest={} session=0123456789abcdef uid=871 jid=7",
            "a".repeat(64)
        );
        assert_eq!(line.as_str(), expected);
    }

    #[test]
    fn nothing_forges_a_line_or_a_key() {
        let line = AuditLine::new(AuditEvent::Refuse)
            .with("why", "x\nevent=start uid=0 \u{1b}[2J\u{202e}\" y=1");
        assert!(!line.as_str().contains('\n'));
        assert_eq!(
            line.as_str(),
            "event=refuse why=\"x\\x0aevent=start uid=0 \\x1b[2J\\xe2\\x80\\xae\\\" y=1\""
        );
    }

    proptest! {
        #[test]
        fn a_line_is_short_printable_ascii(value in ".*", other in ".{0,2000}") {
            let line = AuditLine::new(AuditEvent::End).with("a", &value).with("b", &other).with("c", &value);
            prop_assert!(line.as_str().len() <= MAX_LINE);
            prop_assert!(line.as_str().bytes().all(|b| (b' '..=b'~').contains(&b)));
        }
    }
}
