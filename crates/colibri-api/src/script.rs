//! The messages between the daemon and `colibri-script`: a JSON value a line, each way over a pipe.
//!
//! The daemon sends one [`ScriptOrder`], then a [`ScriptReply`] for each [`ScriptCall`]. The
//! process sends [`ScriptMessage`]s; the last one is `done` or `failed`. The daemon trusts nothing
//! that it reads.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The tool that runs scripts.
pub const RUN_SCRIPT: &str = "colibri_run_script";
/// The longest script: its characters, and the bytes of a file that is read as one.
pub const MAX_SCRIPT: usize = 256 << 10;
/// The most seconds that a script may ask for.
pub const MAX_SECONDS: u32 = 3600;

/// The server name under which a script calls the daemon's own tools, without their prefix
/// `colibri_`.
pub const OWN_TOOLS: &str = "colibri";

/// The limits of one script. Each has the name by which a failure tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptLimits {
    /// Bytes of the interpreter's memory.
    pub memory: u64,
    /// Milliseconds from its start to its end, with all its calls.
    pub time_ms: u64,
    /// Milliseconds for which it computes.
    pub cpu_ms: u64,
    /// Calls in all.
    pub calls: u32,
    /// Calls at the same time; more of them wait.
    pub parallel: u32,
    /// Bytes that it returns, and bytes of one message.
    pub output: u64,
    /// Bytes that it prints.
    pub printed: u64,
    /// Bytes of the stack, which bounds the depth of recursion.
    pub stack: u64,
    /// Depth of the values that it passes on.
    pub depth: u32,
}

impl ScriptLimits {
    /// The limits of every script that does not ask for less time.
    pub const DEFAULT: ScriptLimits = ScriptLimits {
        memory: 64 << 20,
        time_ms: 60_000,
        cpu_ms: 10_000,
        calls: 1000,
        parallel: 16,
        output: 4 << 20,
        printed: 64 << 10,
        stack: 512 << 10,
        depth: 100,
    };
}

/// Milliseconds as seconds.
fn seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}

/// A limit that ended a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptLimit {
    /// The interpreter's memory.
    Memory,
    /// The time from start to end.
    Time,
    /// The time of computing.
    Cpu,
    /// The number of calls.
    Calls,
    /// The bytes that it returns or sends.
    Output,
    /// The depth of recursion or of a value.
    Depth,
}

impl ScriptLimit {
    /// The limit's name and value, for messages.
    #[must_use]
    pub fn describe(self, limits: &ScriptLimits) -> String {
        match self {
            ScriptLimit::Memory => format!("memory ({} MiB)", limits.memory >> 20),
            ScriptLimit::Time => format!("time ({} s)", seconds(limits.time_ms)),
            ScriptLimit::Cpu => format!("cpu ({} s of computing)", seconds(limits.cpu_ms)),
            ScriptLimit::Calls => format!("calls ({})", limits.calls),
            ScriptLimit::Output => format!("output ({} KiB)", limits.output >> 10),
            ScriptLimit::Depth => format!(
                "depth ({} KiB of stack, values of {} levels)",
                limits.stack >> 10,
                limits.depth
            ),
        }
    }
}

/// The first message to the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptOrder {
    /// The script's text.
    pub script: String,
    /// The known tools by their servers: what `Object.keys(tools)` shows.
    pub tools: BTreeMap<String, Vec<String>>,
    /// Its limits.
    pub limits: ScriptLimits,
}

/// A message of the process.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScriptMessage {
    /// It calls a tool.
    Call(ScriptCall),
    /// It printed this.
    Log(String),
    /// It ended, and returned this.
    Done(ScriptDone),
    /// It ended with an error.
    Failed(ScriptFailure),
}

/// A call that a script makes.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptCall {
    /// Its number: each script counts from 1.
    pub id: u32,
    /// The server, or [`OWN_TOOLS`].
    pub server: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// The JSON object of the arguments.
    pub arguments: Box<RawValue>,
}

/// The end of a script that did not fail.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptDone {
    /// The returned JSON value; `null` for `undefined`.
    pub value: Box<RawValue>,
    /// The number of calls that it did not wait for.
    pub unawaited: u32,
}

/// The end of a script that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptFailure {
    /// The error with its place.
    pub message: String,
    /// The line in the script, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column in the line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The limit that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ScriptLimit>,
    /// The advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// The answer to a [`ScriptCall`]. Exactly one of `result` and `error` is given.
#[derive(Debug, Deserialize, Serialize)]
pub struct ScriptReply {
    /// The call's number.
    pub id: u32,
    /// The tool's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// The JSON-RPC error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_form_and_nothing_else_is_read() {
        let call: ScriptMessage = serde_json::from_str(
            r#"{"call":{"id":1,"server":"s","tool":"t","arguments":{"a": 1}}}"#,
        )
        .unwrap();
        assert!(matches!(call, ScriptMessage::Call(call) if call.arguments.get() == r#"{"a": 1}"#));
        for wrong in [
            r#"{"call":{"id":-1,"server":"s","tool":"t","arguments":{}}}"#,
            r#"{"call":{"id":1,"server":"s","tool":"t","arguments":{},"confirmed":true}}"#,
            r#"{"log":1}"#,
            r#"{"log":"a","done":{}}"#,
            "[]",
            "",
        ] {
            assert!(
                serde_json::from_str::<ScriptMessage>(wrong).is_err(),
                "{wrong}"
            );
        }
    }
}
