//! Classes of failures: the one table that says if another attempt can help. `docs/errors.md` has
//! the same table.

use std::borrow::Cow;

use super::error::Code;
use super::rpc_error::{
    HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY, PARSE_ERROR, RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION, URL_ELICITATION_REQUIRED,
};

/// The class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// The failure may go away by itself.
    Transient,
    /// The failure stays until somebody changes something.
    Permanent,
    /// Not known. The first time it counts as transient; a repeated failure counts as permanent.
    Unknown,
}

impl FailureClass {
    /// The class's name, as in records.
    pub fn name(self) -> &'static str {
        match self {
            FailureClass::Transient => "transient",
            FailureClass::Permanent => "permanent",
            FailureClass::Unknown => "unknown",
        }
    }
}

/// The code and the class of a failed attempt, as in records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// A code of Colibri, the number of a server's error, or an integration's own code.
    pub code: Cow<'static, str>,
    /// `None` if another attempt makes no sense, for example after the client cancelled the call.
    pub class: Option<FailureClass>,
}

impl AttemptFailure {
    /// A failure that the tool itself reports.
    pub const TOOL_ERROR: AttemptFailure = AttemptFailure {
        code: Cow::Borrowed("TOOL_ERROR"),
        class: Some(FailureClass::Unknown),
    };
    /// A call that its client cancelled.
    pub const CANCELLED: AttemptFailure = AttemptFailure {
        code: Cow::Borrowed("CANCELLED"),
        class: None,
    };
}

/// The cause of a failed attempt or a failed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// A code of Colibri.
    Ours(Code),
    /// The code of a server's JSON-RPC error.
    Servers(i64),
}

impl FailureCause {
    /// The class of failures with this cause. The class does not decide alone if a call may be
    /// repeated: the server must not have processed it, or it must be safe to process it twice.
    pub fn class(self) -> FailureClass {
        match self {
            FailureCause::Ours(
                Code::IntegrationUnavailable | Code::ServerDied | Code::ServerFailed | Code::TimeoutCall
                // Others use the slot, the quota or the disk at the moment. These failures end by
                // themselves and are not retried.
                | Code::LimitInFlight | Code::LimitUser | Code::DaemonBusy | Code::DaemonStopping
                | Code::TrailUnavailable | Code::StoreUnavailable,
            ) => FailureClass::Transient,
            FailureCause::Ours(Code::TimeoutStart | Code::ServerAnswerInvalid) => FailureClass::Unknown,
            FailureCause::Ours(_) => FailureClass::Permanent,
            FailureCause::Servers(INTERNAL_ERROR) => FailureClass::Transient,
            FailureCause::Servers(
                PARSE_ERROR
                | INVALID_REQUEST
                | METHOD_NOT_FOUND
                | INVALID_PARAMS
                | RESOURCE_NOT_FOUND
                | HEADER_MISMATCH
                | MISSING_REQUIRED_CLIENT_CAPABILITY
                | UNSUPPORTED_PROTOCOL_VERSION
                | URL_ELICITATION_REQUIRED,
            ) => FailureClass::Permanent,
            FailureCause::Servers(_) => FailureClass::Unknown,
        }
    }

    /// A failed attempt of this cause.
    pub fn attempt(self) -> AttemptFailure {
        AttemptFailure {
            code: self.code(),
            class: Some(self.class()),
        }
    }

    /// The code of this cause, as in records.
    pub fn code(self) -> Cow<'static, str> {
        match self {
            FailureCause::Ours(code) => Cow::Borrowed(code.name()),
            FailureCause::Servers(code) => Cow::Owned(code.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/errors.md has the class of each code.
    #[test]
    fn the_manual_has_the_class_of_every_failure() {
        let doc = include_str!("../../../docs/errors.md");
        let rows: std::collections::BTreeMap<&str, &str> = doc
            .lines()
            .skip_while(|line| *line != "| failure | class |")
            .skip(2)
            .map_while(|line| {
                line.strip_prefix("| ")?
                    .strip_suffix(" |")?
                    .split_once(" | ")
            })
            .flat_map(|(codes, class)| {
                codes
                    .split(", ")
                    .map(move |code| (code.trim_matches('`'), class))
            })
            .collect();
        let servers = [
            PARSE_ERROR,
            INVALID_REQUEST,
            METHOD_NOT_FOUND,
            INVALID_PARAMS,
            INTERNAL_ERROR,
            RESOURCE_NOT_FOUND,
            HEADER_MISMATCH,
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            UNSUPPORTED_PROTOCOL_VERSION,
            URL_ELICITATION_REQUIRED,
        ]
        .map(FailureCause::Servers);
        let named: Vec<FailureCause> = servers
            .into_iter()
            .chain(Code::ALL.iter().copied().map(FailureCause::Ours))
            .filter(|cause| {
                rows.contains_key(&*cause.code()) || cause.class() != FailureClass::Permanent
            })
            .collect();
        for cause in &named {
            assert_eq!(
                rows.get(&*cause.code()),
                Some(&cause.class().name()),
                "{cause:?}"
            );
        }
        assert_eq!(rows["every other code of ours"], "permanent");
        assert_eq!(
            (
                rows["every other code of a server"],
                FailureCause::Servers(7).class().name()
            ),
            ("unknown", "unknown")
        );
        // Failures without a cause of Colibri: those that a tool or an integration reports itself.
        let own = [
            "`isError` without a code (`TOOL_ERROR`)",
            "a code of an integration of ours",
        ];
        assert_eq!(
            own.map(|row| rows[row.trim_matches('`')]),
            ["unknown", "as its `transient` says"]
        );
        assert_eq!(
            rows.len(),
            named.len() + 2 + own.len(),
            "a row for nothing: {rows:?}"
        );
    }
}
