//! The command line as a typed request. No other input reaches the helper.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::names::{EntryDigest, ServerId, SessionId};
use crate::refusal::{HelperExit, HelperRefusal};

/// A request to the helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelperRequest {
    /// Start the server and stay until it ends.
    Run {
        /// The new instance's id.
        session: SessionId,
        /// The entry's hash as the daemon loaded it.
        digest: EntryDigest,
        /// The server.
        server: ServerId,
    },
    /// Tear one instance down.
    Stop {
        /// The instance.
        session: SessionId,
    },
    /// End every instance and tear down what is left: root's alone.
    StopAll,
    /// Tear down what no live helper owns.
    Sweep,
    /// Print what `run` would do.
    Plan {
        /// The server.
        server: ServerId,
    },
    /// Say what is wrong with policy and registry.
    Check,
    /// Print the contract number.
    Version,
}

/// The forms of the command line, for the usage message.
pub const USAGE: &str = "run --session ID --digest SHA256 SERVER | stop --session ID | stop --all | sweep | plan SERVER | check | \
                         --version";

impl HelperRequest {
    /// Reads the arguments after the program's name. There are no abbreviations, no `--name=value`,
    /// no `--`, and nothing may be said twice: a line has one reading or none.
    ///
    /// # Errors
    /// [`HelperExit::Usage`], naming the position of the argument and never its value.
    pub fn parse<S: AsRef<OsStr>>(args: &[S]) -> Result<Self, HelperRefusal> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_ref().as_bytes()).collect();
        match args.as_slice() {
            [b"run", rest @ ..] => Self::run(rest),
            [b"stop", b"--session", session] => Ok(Self::Stop {
                session: session_id(session, 3)?,
            }),
            [b"stop", b"--all"] => Ok(Self::StopAll),
            [b"sweep"] => Ok(Self::Sweep),
            [b"plan", server] => Ok(Self::Plan {
                server: server_id(server, 2)?,
            }),
            [b"check"] => Ok(Self::Check),
            [b"--version"] => Ok(Self::Version),
            _ => Err(usage(format!("expected {USAGE}"))),
        }
    }

    fn run(rest: &[&[u8]]) -> Result<Self, HelperRefusal> {
        let (session, digest, server) = match rest {
            [b"--session", session, b"--digest", digest, server] => {
                ((session, 3), (digest, 5), server)
            }
            [b"--digest", digest, b"--session", session, server] => {
                ((session, 5), (digest, 3), server)
            }
            _ => {
                return Err(usage(
                    "expected run --session ID --digest SHA256 SERVER".to_owned(),
                ));
            }
        };
        Ok(Self::Run {
            session: session_id(session.0, session.1)?,
            digest: EntryDigest::parse(digest.0).ok_or_else(|| {
                usage(format!(
                    "argument {}: a digest is 64 lower-case hex digits",
                    digest.1
                ))
            })?,
            server: server_id(server, 6)?,
        })
    }

    /// True if it is a teardown: those read records alone, so that a bad policy is in nobody's way.
    pub fn is_teardown(&self) -> bool {
        matches!(self, Self::Stop { .. } | Self::StopAll | Self::Sweep)
    }

    /// True if root alone may ask for it.
    pub fn is_roots_alone(&self) -> bool {
        matches!(self, Self::StopAll | Self::Plan { .. } | Self::Check)
    }

    /// The request's first word, for logs.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Run { .. } => "run",
            Self::Stop { .. } => "stop",
            Self::StopAll => "stop --all",
            Self::Sweep => "sweep",
            Self::Plan { .. } => "plan",
            Self::Check => "check",
            Self::Version => "version",
        }
    }
}

fn session_id(bytes: &[u8], at: usize) -> Result<SessionId, HelperRefusal> {
    SessionId::parse(bytes).ok_or_else(|| {
        usage(format!(
            "argument {at}: a session is 16 lower-case hex digits"
        ))
    })
}

fn server_id(bytes: &[u8], at: usize) -> Result<ServerId, HelperRefusal> {
    ServerId::parse(bytes).ok_or_else(|| {
        usage(format!(
            "argument {at}: a server's id is [a-z][a-z0-9-]{{0,31}}"
        ))
    })
}

fn usage(detail: String) -> HelperRefusal {
    HelperRefusal::new(HelperExit::Usage, "usage", detail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SESSION: &str = "0123456789abcdef";
    const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn every_form_is_read() {
        let run = HelperRequest::parse(&["run", "--session", SESSION, "--digest", DIGEST, "docs"])
            .unwrap();
        assert_eq!(
            run,
            HelperRequest::parse(&["run", "--digest", DIGEST, "--session", SESSION, "docs"])
                .unwrap()
        );
        assert_eq!(run.verb(), "run");
        assert!(matches!(
            HelperRequest::parse(&["stop", "--session", SESSION]),
            Ok(HelperRequest::Stop { .. })
        ));
        assert_eq!(
            HelperRequest::parse(&["stop", "--all"]),
            Ok(HelperRequest::StopAll)
        );
        assert_eq!(HelperRequest::parse(&["sweep"]), Ok(HelperRequest::Sweep));
        assert!(matches!(
            HelperRequest::parse(&["plan", "docs"]),
            Ok(HelperRequest::Plan { .. })
        ));
        assert_eq!(HelperRequest::parse(&["check"]), Ok(HelperRequest::Check));
        assert_eq!(
            HelperRequest::parse(&["--version"]),
            Ok(HelperRequest::Version)
        );
    }

    #[test]
    fn everything_else_is_a_usage_error() {
        let bad: &[&[&str]] = &[
            &[],
            &[""],
            &["--"],
            &["run"],
            &["run", "docs"],
            &["run", "--", "docs"],
            &["run", "--session", SESSION, "docs"],
            &["run", "--session", SESSION, "--session", SESSION, "docs"],
            &[
                "run",
                "--session",
                SESSION,
                "--digest",
                DIGEST,
                "--digest",
                DIGEST,
                "docs",
            ],
            &[
                "run",
                "--session",
                SESSION,
                "--digest",
                DIGEST,
                "docs",
                "docs",
            ],
            &["run", "--session", SESSION, "--digest", DIGEST, "--version"],
            &["run", "--session", SESSION, "--digest", DIGEST, "--"],
            &["run", "docs", "--session", SESSION, "--digest", DIGEST],
            &[
                "run",
                "--session=0123456789abcdef",
                "--digest",
                DIGEST,
                "docs",
            ],
            &[
                "run",
                "--session",
                "0123456789ABCDEF",
                "--digest",
                DIGEST,
                "docs",
            ],
            &["run", "--session", SESSION, "--digest", "abc", "docs"],
            &["run", "--session", SESSION, "--digest", DIGEST, "../docs"],
            &["stop", SESSION],
            &["stop", "--all", "x"],
            &["stop", "--session", SESSION, "--all"],
            &["--all"],
            &["stop", "--session", "../../../../etc"],
            &["sweep", "x"],
            &["plan"],
            &["plan", "--version"],
            &["check", "x"],
            &["--version", "x"],
            &["--help"],
            &["RUN"],
        ];
        for args in bad {
            let refusal = HelperRequest::parse(args).expect_err(&format!("{args:?}"));
            assert_eq!(refusal.exit, HelperExit::Usage, "{args:?}");
        }
    }

    proptest! {
        #[test]
        fn no_argument_reaches_the_message(word in "[ -~]{6,40}") {
            if let Err(refusal) = HelperRequest::parse(&["plan", &word]) {
                prop_assert!(!refusal.line(true).contains(&word));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(args in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..20), 0..8)) {
            let args: Vec<&OsStr> = args.iter().map(|a| OsStr::from_bytes(a)).collect();
            if let Err(refusal) = HelperRequest::parse(&args) {
                prop_assert_eq!(refusal.exit, HelperExit::Usage);
            }
        }
    }
}
