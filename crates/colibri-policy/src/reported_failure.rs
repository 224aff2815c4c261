//! Failures that integrations report in their results.

use std::time::Duration;

use colibri_protocol::{AttemptFailure, Code, FailureClass};
use colibri_wire::Json;

use super::terms;

/// A failure as the structured result of one of our integrations reports it:
/// `{"ok": false, "error": {"code", "message", "transient", "retry_after_s"}}`.
#[derive(Debug, PartialEq, Eq)]
pub struct ReportedFailure {
    /// A letter `A-Z`, then at most 39 characters of `A-Z`, `0-9` and `_`; of our own codes
    /// `INTEGRATION_UNAVAILABLE` alone, which is the one that integrations share with us.
    pub code: String,
    /// True if it may go away by itself; `None`: it does not say.
    pub transient: Option<bool>,
    /// The time for which the other side wants to be left alone.
    pub retry_after: Option<Duration>,
}

impl ReportedFailure {
    /// Reads it. `None`: the result reports none, or under a code that no integration has: what a
    /// server writes there is not taken for a failure of ours.
    pub fn read(result: Json<'_>) -> Option<ReportedFailure> {
        let error = result.get("structuredContent")?.get("error")?;
        let code = error
            .get("code")?
            .as_str()
            .filter(|code| terms::is_code(code))?;
        let is_ours = |ours: &Code| ours.name() == code && *ours != Code::IntegrationUnavailable;
        let of_calls = [AttemptFailure::TOOL_ERROR, AttemptFailure::CANCELLED];
        if Code::ALL.iter().any(is_ours) || of_calls.iter().any(|failed| failed.code == code) {
            return None;
        }
        Some(ReportedFailure {
            code: code.into_owned(),
            transient: error
                .get("transient")
                .and_then(|transient| transient.as_bool()),
            retry_after: error
                .get("retry_after_s")
                .and_then(|after| after.as_u64())
                .map(Duration::from_secs),
        })
    }

    /// The failed attempt, as a record has it.
    pub fn attempt(self) -> AttemptFailure {
        AttemptFailure {
            class: Some(match self.transient {
                Some(true) => FailureClass::Transient,
                Some(false) => FailureClass::Permanent,
                None => FailureClass::Unknown,
            }),
            code: self.code.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(error: &str) -> Option<ReportedFailure> {
        let result =
            format!(r#"{{"isError":true,"structuredContent":{{"ok":false,"error":{error}}}}}"#);
        ReportedFailure::read(Json::parse(result.as_bytes()).unwrap())
    }

    #[test]
    fn a_failure_has_a_code_and_says_whether_it_passes() {
        let whole =
            read(r#"{"code":"MODEL_BUSY","message":"m","transient":true,"retry_after_s":7}"#)
                .unwrap();
        assert_eq!(
            (whole.transient, whole.retry_after),
            (Some(true), Some(Duration::from_secs(7)))
        );
        for (error, class) in [
            (r#"{"code":"A","transient":true}"#, FailureClass::Transient),
            (r#"{"code":"A","transient":false}"#, FailureClass::Permanent),
            (r#"{"code":"A","transient":"no"}"#, FailureClass::Unknown),
            (r#"{"code":"A"}"#, FailureClass::Unknown),
        ] {
            let attempt = read(error).unwrap().attempt();
            assert_eq!(
                (&*attempt.code, attempt.class),
                ("A", Some(class)),
                "{error}"
            );
        }
    }

    #[test]
    fn nothing_but_a_code_of_an_integration_is_one() {
        let long = format!(r#"{{"code":"{}"}}"#, "A".repeat(41));
        for error in [
            "{}",
            r#"{"code":7}"#,
            r#"{"code":""}"#,
            r#"{"code":"429"}"#,
            r#"{"code":"model busy"}"#,
            r#"{"code":"A\u001b[2J"}"#,
            r#"{"code":"A\nB"}"#,
            &long,
            // A failure of ours that a server claims.
            r#"{"code":"SERVER_DIED"}"#,
            r#"{"code":"POLICY_DENIED"}"#,
            r#"{"code":"TOOL_ERROR"}"#,
            r#"{"code":"CANCELLED"}"#,
        ] {
            assert_eq!(read(error), None, "{error}");
        }
        assert!(read(r#"{"code":"INTEGRATION_UNAVAILABLE"}"#).is_some());
    }
}
