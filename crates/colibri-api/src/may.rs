//! The tools that a task may have change something.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Tools that may change something: `SERVER/TOOL`, each part a pattern with `*`, or the same with
/// the values that arguments may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MayPattern {
    /// Any call of these tools.
    Tools(String),
    /// Calls of these tools with these arguments.
    Calls(MayCalls),
}

/// Calls of some tools with certain arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MayCalls {
    /// `SERVER/TOOL`, each part a pattern with `*`.
    pub tool: String,
    /// The values that arguments may have, by the arguments' names: strings with `*`, numbers,
    /// booleans. An empty list: the argument must be left out.
    #[serde(rename = "where")]
    pub arguments: BTreeMap<String, Vec<Value>>,
}

impl MayPattern {
    /// The pattern on server and tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        match self {
            MayPattern::Tools(tool) => tool,
            MayPattern::Calls(calls) => &calls.tool,
        }
    }

    /// The values that arguments may have.
    pub fn arguments(&self) -> impl Iterator<Item = (&String, &Vec<Value>)> {
        match self {
            MayPattern::Tools(_) => None,
            MayPattern::Calls(calls) => Some(&calls.arguments),
        }
        .into_iter()
        .flatten()
    }
}

/// As people read and write it: `SERVER/TOOL`, or JSON where there are arguments.
impl fmt::Display for MayPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MayPattern::Tools(tool) => f.write_str(tool),
            MayPattern::Calls(calls) => {
                f.write_str(&serde_json::to_string(calls).map_err(|_| fmt::Error)?)
            }
        }
    }
}

/// A pattern that somebody wrote: JSON if it begins as an object does, else `SERVER/TOOL`.
impl std::str::FromStr for MayPattern {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<MayPattern, serde_json::Error> {
        match text.trim().starts_with('{') {
            true => serde_json::from_str(text).map(MayPattern::Calls),
            false => Ok(MayPattern::Tools(text.trim().to_owned())),
        }
    }
}

/// The parameters of `colibri/propose-may`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposeMayRequest {
    /// The words of the task.
    pub text: String,
}

/// The answer of `colibri/propose-may`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposeMayResponse {
    /// The tools that change something and fit the words, the best first.
    pub tools: Vec<ProposedTool>,
    /// True if any tool that this person may call changes something.
    pub any_changes: bool,
}

/// A tool that a task may need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedTool {
    /// `SERVER/TOOL`.
    pub tool: String,
    /// Its server's description, in one sentence.
    pub description: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_written_as_it_is_read() {
        for text in [
            "mail/send_*",
            r#"{"tool":"mail/send_email","where":{"cc":[],"recipients":["a@example.org",7]}}"#,
        ] {
            let pattern: MayPattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), text);
            let json = serde_json::to_string(&pattern).unwrap();
            assert_eq!(serde_json::from_str::<MayPattern>(&json).unwrap(), pattern);
        }
        for wrong in ["{}", r#"{"tool":"a/b","were":{}}"#, r#"{"tool":"a/b"}"#] {
            assert!(wrong.parse::<MayPattern>().is_err(), "{wrong}");
        }
    }
}
