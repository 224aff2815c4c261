//! The daemon's errors: JSON-RPC's, MCP's, and Colibri's own codes. `docs/errors.md` lists all of
//! them.

use super::answer::{AnswerBody, META_SERVER_INFO, server_info};
use super::deferred::DeferredTask;
use super::method::Method;
use super::rpc_error::RpcError;
use super::version::Version;
use colibri_wire::json::string;

/// The key in the `_meta` of a tool's result that is sent only in part: its whole length, and its
/// handle in the result store.
pub const META_KEPT: &str = "org.colibri/kept";
/// The key in the `_meta` of a tool's result for the error of Colibri that it reports.
pub(crate) const META_ERROR: &str = "org.colibri/error";

/// The form in which a [`Code`] is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// A JSON-RPC error for each method.
    Error,
    /// A result with `isError: true` for `tools/call`, which a model gets to read. A JSON-RPC error
    /// for other methods.
    Result,
}

/// Colibri's own error codes. Names and numbers are an interface: codes are only added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// A line is over the limit.
    FrameTooLong,
    /// One client has too many calls in flight.
    LimitInFlight,
    /// One user is over the quota.
    LimitUser,
    /// Too many clients, or too many bytes in the whole daemon.
    DaemonBusy,
    /// The daemon got the signal to end.
    DaemonStopping,
    /// The bridge finds no daemon.
    DaemonUnreachable,
    /// The bridge lost the daemon with this request in flight.
    ConnectionLost,
    /// The record of the call cannot be written.
    TrailUnavailable,
    /// Colibri's own store cannot be read or written.
    StoreUnavailable,
    /// The request uses a part of the protocol that comes with a later release.
    NotSupportedYet,
    /// A fault of Colibri itself.
    Internal,
    /// A write gate or external-call gate is closed.
    GateClosed,
    /// A rule of clients.json or of the server's entry denies the call.
    PolicyDenied,
    /// The tool's `inputSchema` does not allow the arguments.
    SchemaInvalid,
    /// The operator's contract does not allow the arguments.
    ContractDenied,
    /// The definition is not the approved one.
    PinChanged,
    /// A person declined, or nobody answered.
    ApprovalDenied,
    /// The server requested input from the person and did not get it.
    AskFailed,
    /// An agent's instance has used up its budget of bytes.
    BudgetSpent,
    /// The result is over the limit of the server's entry or of the cost mode.
    ResultTooLarge,
    /// The operator's contract does not allow the result.
    ResultRefused,
    /// An argument names a server or tool that does not exist.
    NoSuchTool,
    /// The handle names no stored result of this caller.
    NoSuchResult,
    /// The server does not declare the requested capability.
    NotOffered,
    /// A script threw, or its process died.
    ScriptFailed,
    /// A script reached a limit.
    ScriptLimit,
    /// The task is not in the state that the call needs, or belongs to somebody else.
    TaskRefused,
    /// The server does not run and cannot be started now.
    IntegrationUnavailable,
    /// The server cannot be started until somebody changes something.
    ServerUnstartable,
    /// The server requires authentication, or does not authorize the daemon.
    ServerDenied,
    /// The server ended with the call in flight.
    ServerDied,
    /// The server's answer breaks the protocol.
    ServerAnswerInvalid,
    /// The server behind a URL failed to serve the request.
    ServerFailed,
    /// The server was not ready in time.
    TimeoutStart,
    /// The server sent neither an answer nor progress in time.
    TimeoutCall,
    /// The server sent progress, but no answer, for too long.
    TimeoutTotal,
}

/// The description of a [`Code`]: a row of `docs/errors.md`.
#[derive(Debug, Clone, Copy)]
pub struct ErrorRow {
    /// The code.
    pub code: Code,
    /// The code's name in `code` of `_meta["org.colibri/error"]` and of `data`.
    pub name: &'static str,
    /// The code's JSON-RPC number. It is positive, since -32768 to -32000 belong to JSON-RPC and
    /// MCP.
    pub number: i64,
    /// The form in which the code is sent.
    pub delivery: Delivery,
    /// The situation in which the code is sent.
    pub when: &'static str,
    /// The advice if the sender has no better one.
    pub advice: &'static str,
}

macro_rules! rows {
    ($($code:ident $name:literal $number:literal $delivery:ident $when:literal $advice:literal)*) => {
        impl Code {
            /// All codes, by number.
            pub const ALL: &'static [Code] = &[$(Code::$code),*];

            /// The code's description.
            pub fn row(self) -> ErrorRow {
                match self {
                    $(Code::$code => ErrorRow {
                        code: self,
                        name: $name,
                        number: $number,
                        delivery: Delivery::$delivery,
                        when: $when,
                        advice: $advice,
                    }),*
                }
            }
        }
    };
}

rows! {
    FrameTooLong "FRAME_TOO_LONG" 100 Error
        "a message is longer than a frame may be (16 MiB)"
        "send less in one message, or raise the limit"
    LimitInFlight "LIMIT_IN_FLIGHT" 102 Error
        "the client has as many calls in flight as it may (256)"
        "wait for an answer, then send again"
    LimitUser "LIMIT_USER" 103 Error
        "one user has as many clients, processes of a server, starts or bytes of trail as one may"
        "wait a while, or ask the operator to raise the limit that the message names"
    DaemonBusy "DAEMON_BUSY" 104 Error
        "the daemon has as many clients, or holds as many bytes, as it may"
        "close a client or try again later"
    DaemonStopping "DAEMON_STOPPING" 105 Error
        "the daemon is ending: it takes no new calls, and gives up those that take over 5 s"
        "send again when it is back"
    DaemonUnreachable "DAEMON_UNREACHABLE" 106 Error
        "colibri-mcp finds no daemon behind the socket"
        "start it: service colibri_mcp start, or colibri-mcpd"
    ConnectionLost "CONNECTION_LOST" 107 Error
        "the daemon went away with this request in flight; whether it had an effect is not known"
        "look at what the call would have changed before sending it again"
    TrailUnavailable "TRAIL_UNAVAILABLE" 110 Error
        "the record of the call cannot be written, so the call is not made"
        "make the state directory writable; calls resume by themselves"
    StoreUnavailable "STORE_UNAVAILABLE" 111 Result
        "Colibri's own store of tasks and settings cannot be read or written"
        "ask the operator to look after the state directory, then call again"
    NotSupportedYet "NOT_SUPPORTED_YET" 120 Result
        "the server asks back (input_required, URL elicitation) and this client's version of MCP cannot be asked that way \
         yet, or the call is to run as a task"
        "call the tool from a client that speaks the server's version of MCP"
    Internal "INTERNAL" 190 Result
        "the fault is Colibri's own"
        "report it as a bug of Colibri"
    GateClosed "GATE_CLOSED" 200 Result
        "the tool is behind a gate that is closed"
        "ask the operator to open it: --write or --external-call at the daemon"
    PolicyDenied "POLICY_DENIED" 201 Result
        "a rule in clients.json or in the server's entry forbids the call"
        "do not repeat it; the rule is named in the error"
    SchemaInvalid "SCHEMA_INVALID" 202 Result
        "the arguments do not fit the tool's inputSchema"
        "correct the arguments as the message says and call again"
    ContractDenied "CONTRACT_DENIED" 203 Result
        "the arguments fit the tool but not the operator's contract for it"
        "stay within the contract; it is named in the error"
    PinChanged "PIN_CHANGED" 204 Result
        "the tool's definition is not the one that was approved"
        "ask the operator to read colibri-mcp pin diff and to accept or refuse it"
    ApprovalDenied "APPROVAL_DENIED" 206 Result
        "a person refused the call, or nobody answered in time"
        "do not repeat it unless the operator says so"
    AskFailed "ASK_FAILED" 207 Result
        "a server asks the person for something, and the client cannot be asked for it, or did not answer"
        "use a client that can be asked; may_ask of the server's entry says what the server may ask for"
    BudgetSpent "BUDGET_SPENT" 208 Result
        "an agent has had as many bytes of answers as its entry (session_bytes) or its cost mode allows, or a person as many today"
        "end your task with what you have: colibri_finish_task, or colibri_fail_task with what is missing"
    ResultTooLarge "RESULT_TOO_LARGE" 210 Result
        "the result is longer than the server's entry, or the cost mode, lets through at once; where the message has a handle, \
         all of it is kept for a day"
        "ask for less: a filter, a page, a range"
    ResultRefused "RESULT_REFUSED" 211 Result
        "the tool did run, and its result is not as the operator's contract for it says: what it has done is not known"
        "look at what the call would have changed before calling again; the message says what of the result was wrong"
    NoSuchTool "NO_SUCH_TOOL" 220 Result
        "an argument names a server or a tool that is not there"
        "call colibri_external_mcp_list_tools for the servers and tools there are"
    NotOffered "NOT_OFFERED" 221 Error
        "the server does not declare the capability that the request needs, so it is not asked"
        "do not ask this server for it"
    NoSuchResult "NO_SUCH_RESULT" 222 Result
        "nothing is kept under this handle for who asks: it never was, its day is over, or it made room for newer results"
        "call the tool again whose result it was"
    ScriptFailed "SCRIPT_FAILED" 223 Result
        "a script has a syntax error, threw, or its process died; what it called before was carried out"
        "correct the script as the message says; do not repeat calls that were carried out"
    ScriptLimit "SCRIPT_LIMIT" 224 Result
        "a script reached a limit: memory, time, cpu, calls, output or depth; what it called before was carried out"
        "let the script do less at once, for example a part of the items"
    TaskRefused "TASK_REFUSED" 230 Result
        "the task is not there, has ended, or is in other hands: the claim is over, or somebody else's"
        "read it with colibri_get_task; what is under an old claim is not taken: claim the task again, or another"
    IntegrationUnavailable "INTEGRATION_UNAVAILABLE" 300 Result
        "the server does not run and cannot be started now"
        "try again later; colibri-mcp status shows its state and why"
    ServerDied "SERVER_DIED" 301 Result
        "the server ended while the call was in flight; whether it had an effect is not known"
        "look at what the call would have changed before calling again"
    ServerAnswerInvalid "SERVER_ANSWER_INVALID" 302 Result
        "the server's answer breaks the protocol and cannot be relayed"
        "report it to the server's authors; other tools are not affected"
    ServerUnstartable "SERVER_UNSTARTABLE" 303 Result
        "the server cannot be started: its program, its jail or its entry is not as it must be"
        "ask the operator to look at colibri-mcp status; the reason is there"
    ServerDenied "SERVER_DENIED" 304 Result
        "the server behind a URL wants to know who asks, or does not allow it to them (401, 403)"
        "run colibri-mcp login for the server where the message says so; else ask the operator for headers with the right to it"
    ServerFailed "SERVER_FAILED" 305 Result
        "the server behind a URL, or a gateway before it, failed at the call (408, 500, 502, 504): whether it had an effect is not \
         known"
        "look at what the call would have changed before calling again"
    TimeoutStart "TIMEOUT_START" 310 Result
        "the server was not ready within its start limit"
        "try again, or raise the start limit of the entry"
    TimeoutCall "TIMEOUT_CALL" 311 Result
        "neither an answer nor progress came within the call limit"
        "ask for less, or raise timeout_ms of the entry"
    TimeoutTotal "TIMEOUT_TOTAL" 313 Result
        "progress came, but no answer within the total limit"
        "ask for less, or raise the total limit of the entry"
}

impl Code {
    /// The code's name, as in `_meta["org.colibri/error"].code`.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

/// An error of Colibri on its way to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.name())]
pub struct Failure {
    /// The code.
    pub code: Code,
    /// One sentence for the model or the person who made the call: the fault and its place. Never a
    /// secret.
    pub message: String,
    /// The id of the server concerned.
    pub server: Option<String>,
    /// The rule that denied the call: file and key.
    pub rule: Option<String>,
    /// The advice; `None` for the advice of the code's description.
    pub advice: Option<String>,
    /// The alternative to the result, if there is one.
    pub instead: Option<Box<Instead>>,
}

/// The alternative to a result that is not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instead {
    /// The stored result: its handle, and its length in bytes.
    pub kept: Option<(String, u64)>,
    /// The deferred call.
    pub deferred: Option<DeferredTask>,
}

impl Instead {
    /// The alternatives as members of an object, each with a comma before it.
    fn members(&self) -> String {
        let kept = self.kept.as_ref().map(|(handle, bytes)| {
            format!(
                "\"kept\":{{\"handle\":{},\"bytes\":{bytes}}}",
                string(handle)
            )
        });
        let deferred = self.deferred.as_ref().and_then(DeferredTask::member);
        kept.into_iter()
            .chain(deferred)
            .map(|member| format!(",{member}"))
            .collect()
    }
}

impl Failure {
    /// A failure without a server and without a rule.
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            server: None,
            rule: None,
            advice: None,
            instead: None,
        }
    }

    /// Adds the handle of the result that is stored instead of being sent.
    pub fn keeping(mut self, handle: String, bytes: u64) -> Failure {
        self.instead.get_or_insert_default().kept = Some((handle, bytes));
        self
    }

    /// Adds the deferred call.
    pub fn deferring(mut self, deferred: DeferredTask) -> Failure {
        self.instead.get_or_insert_default().deferred = Some(deferred);
        self
    }

    /// Adds the server concerned.
    pub fn of_server(self, server: impl Into<String>) -> Failure {
        Failure {
            server: Some(server.into()),
            ..self
        }
    }

    /// Adds the rule that denied the call.
    pub fn by_rule(self, rule: impl Into<String>) -> Failure {
        Failure {
            rule: Some(rule.into()),
            ..self
        }
    }

    /// Adds advice that is better than the one of the code's description.
    pub fn advising(self, advice: impl Into<String>) -> Failure {
        Failure {
            advice: Some(advice.into()),
            ..self
        }
    }

    fn advice(&self) -> &str {
        self.advice.as_deref().unwrap_or(self.code.row().advice)
    }

    /// `{code, server, rule, do, kept, deferred}`, without the keys that have no value.
    pub fn data(&self) -> String {
        let mut data = format!("{{\"code\":{}", string(self.code.name()));
        for (key, value) in [("server", &self.server), ("rule", &self.rule)] {
            if let Some(value) = value {
                data.push_str(&format!(",\"{key}\":{}", string(value)));
            }
        }
        data.push_str(&format!(",\"do\":{}", string(self.advice())));
        if let Some(instead) = &self.instead {
            data.push_str(&instead.members());
        }
        data.push('}');
        data
    }

    /// The answer to a request of this method from a client of this version.
    pub fn answer(&self, method: Option<Method>, version: Version) -> AnswerBody {
        if self.code.row().delivery == Delivery::Error || method != Some(Method::ToolsCall) {
            return AnswerBody::Error(RpcError {
                code: self.code.row().number,
                message: self.to_string(),
                data: Some(self.data()),
            });
        }
        let deferred = self
            .instead
            .as_ref()
            .and_then(|instead| instead.deferred.as_ref());
        let deferred = deferred
            .map(|deferred| format!("\n{}", deferred.told))
            .unwrap_or_default();
        let text = string(&format!("{self}{deferred}\nWhat to do: {}", self.advice()));
        let (kind, info) = if version.is_modern() {
            (
                "\"resultType\":\"complete\",",
                format!(",\"{META_SERVER_INFO}\":{}", server_info(version)),
            )
        } else {
            ("", String::new())
        };
        AnswerBody::Result(
            format!(
                "{{{kind}\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"isError\":true,\
                 \"_meta\":{{\"{META_ERROR}\":{}{info}}}}}",
                self.data()
            )
            .into_bytes(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::rpc_error::{
        HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND,
        MISSING_REQUIRED_CLIENT_CAPABILITY, PARSE_ERROR, RESOURCE_NOT_FOUND,
        UNSUPPORTED_PROTOCOL_VERSION, URL_ELICITATION_REQUIRED,
    };
    use super::*;
    use colibri_wire::Json;
    use serde_json::{Value, json};

    const DOC: &str = include_str!("../../../docs/errors.md");

    #[test]
    fn nothing_of_a_name_that_hides_stands_in_an_error() {
        let hidden: Vec<char> = ('\0'..=char::MAX)
            .filter(|c| colibri_text::is_hidden(*c))
            .collect();
        for some in hidden.chunks(100) {
            let name: String = some.iter().flat_map(|c| ['a', *c]).collect();
            for error in [
                RpcError::unknown("tool", &name, None),
                RpcError::unknown("prompt", &name, None),
                RpcError::unknown_resource(&name, None, Version::LATEST),
                RpcError::unsupported_version(&name),
                RpcError::method_not_found(&name, Version::LATEST_LEGACY),
            ] {
                assert!(
                    !error.message.contains(colibri_text::is_hidden),
                    "{:?}",
                    error.message
                );
            }
        }
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    /// The rows of the document's table whose first cell is a code in backquotes.
    fn doc_rows(header: &str) -> Vec<Vec<String>> {
        DOC.lines()
            .skip_while(|line| *line != header)
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(|line| {
                line.trim_matches('|')
                    .split('|')
                    .map(|cell| cell.trim().to_owned())
                    .collect()
            })
            .collect()
    }

    #[test]
    fn doc_and_enum_agree_row_by_row() {
        let expected: Vec<Vec<String>> = Code::ALL
            .iter()
            .map(|code| {
                let row = code.row();
                let delivery = match row.delivery {
                    Delivery::Error => "error",
                    Delivery::Result => "result",
                };
                [
                    &format!("`{}`", row.name),
                    &row.number.to_string(),
                    delivery,
                    row.when,
                    row.advice,
                ]
                .map(str::to_owned)
                .to_vec()
            })
            .collect();
        let wanted: Vec<String> = expected
            .iter()
            .map(|row| format!("| {} |", row.join(" | ")))
            .collect();
        let found = doc_rows("| code | number | sent as | when | what to do |");
        assert_eq!(
            found,
            expected,
            "docs/errors.md should have these rows:\n{}",
            wanted.join("\n")
        );
    }

    #[test]
    fn doc_lists_every_number_of_json_rpc_and_mcp() {
        let listed: Vec<i64> = doc_rows("| number | name | sent when | received from a server |")
            .iter()
            .map(|row| row[0].trim_matches('`').parse().unwrap())
            .collect();
        assert_eq!(
            listed,
            [
                PARSE_ERROR,
                INVALID_REQUEST,
                METHOD_NOT_FOUND,
                INVALID_PARAMS,
                INTERNAL_ERROR,
                RESOURCE_NOT_FOUND,
                HEADER_MISMATCH,
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                UNSUPPORTED_PROTOCOL_VERSION,
                URL_ELICITATION_REQUIRED
            ]
        );
    }

    #[test]
    fn own_numbers_are_positive_and_unique() {
        let numbers: Vec<i64> = Code::ALL.iter().map(|code| code.row().number).collect();
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "by number, each once: {numbers:?}"
        );
        assert!(numbers[0] > 0);
        let names: std::collections::BTreeSet<_> =
            Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            let row = code.row();
            assert!(
                !row.when.contains('|') && !row.advice.contains('|'),
                "would break the table: {}",
                row.name
            );
            assert_eq!(row.code, *code);
        }
    }

    #[test]
    fn a_failed_tool_call_is_a_result_a_model_can_read() {
        let failure = Failure::new(Code::GateClosed, "create_task is behind the write gate")
            .of_server("git\"hub")
            .by_rule("clients.json:12: users.op.gates")
            .advising("set COLIBRI_MCP_WRITE=1");
        for version in Version::ALL {
            let AnswerBody::Result(result) = failure.answer(Some(Method::ToolsCall), version)
            else {
                panic!("{version}")
            };
            let result = value(std::str::from_utf8(&result).unwrap());
            assert_eq!(result["isError"], true);
            assert_eq!(
                result["content"][0]["text"],
                "GATE_CLOSED: create_task is behind the write gate\nWhat to do: set COLIBRI_MCP_WRITE=1"
            );
            assert_eq!(
                result["_meta"][META_ERROR],
                json!({"code": "GATE_CLOSED", "server": "git\"hub", "rule": "clients.json:12: users.op.gates",
                       "do": "set COLIBRI_MCP_WRITE=1"})
            );
            assert_eq!(
                result.get("resultType"),
                version.is_modern().then_some(&json!("complete"))
            );
            assert_eq!(
                result["_meta"].get(META_SERVER_INFO).is_some(),
                version.is_modern()
            );
        }
    }

    #[test]
    fn elsewhere_a_failure_is_an_error_with_a_positive_number() {
        for (code, method) in [
            (Code::GateClosed, Some(Method::ResourcesRead)),
            (Code::IntegrationUnavailable, None),
            (Code::LimitInFlight, Some(Method::ToolsCall)),
            (Code::TrailUnavailable, Some(Method::ToolsCall)),
        ] {
            let AnswerBody::Error(error) = Failure::new(code, "no").answer(method, Version::LATEST)
            else {
                panic!()
            };
            assert_eq!(error.code, code.row().number);
            let data = value(error.data.as_deref().unwrap());
            assert_eq!(data, json!({"code": code.name(), "do": code.row().advice}));
            assert_eq!(
                value(&error.to_json())["message"],
                format!("{}: no", code.name())
            );
        }
    }

    #[test]
    fn unsupported_version_carries_supported_and_requested() {
        let error = value(&RpcError::unsupported_version("1900-01-01\"").to_json());
        assert_eq!(error["code"], -32022);
        assert_eq!(
            error["data"],
            json!({"supported": ["2026-07-28"], "requested": "1900-01-01\""})
        );
    }

    #[test]
    fn what_a_peer_sent_is_repeated_short() {
        let long = "é".repeat(10_000);
        for error in [
            RpcError::unsupported_version(&long),
            RpcError::method_not_found(&long, Version::LATEST),
            RpcError::unknown("tool", &long, None),
        ] {
            let text = error.to_json();
            assert!(text.len() < 1_500, "{}", text.len());
            assert!(Json::parse(text.as_bytes()).is_ok());
        }
    }
}
