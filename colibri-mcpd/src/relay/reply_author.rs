//! The author of a client's reply to a request of the daemon for confirmation: a person, or the
//! client's program.
//!
//! MCP has no word for it: a program without a person declares elicitation and replies `cancel`,
//! `decline` or even `accept` by itself. Only a person's reply decides about a call.

use std::time::Duration;

use super::call::Call;
use colibri_wire::Json;

/// A reply that comes so soon is the program's: no person reads a request and replies to it in this
/// time.
const PROGRAM_REPLY: Duration = Duration::from_millis(150);

/// The author of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyAuthor {
    /// A person, as far as the daemon can know.
    Person,
    /// The program.
    Program,
}

/// A mode of a program in which no person is there, and the mark of its calls.
struct HeadlessMode {
    /// `clientInfo.name`.
    client: &'static str,
    /// The key of `_meta` in a call, and the member of its value, that say the mode.
    mark: [&'static str; 2],
    /// The text of that member.
    value: &'static str,
}

/// The modes without a person that show in a call. Programs that send the same in all of their
/// modes are not here: Claude Code does (2.1.197: `claude -p` as in its terminal). Their replies
/// are told by time alone.
const HEADLESS_MODES: [HeadlessMode; 1] = [
    // `codex exec` 0.169.0 replies `decline` within 1 ms, and `accept` with the sandbox
    // `danger-full-access`. In its terminal, where the person is asked, the value is "user".
    HeadlessMode {
        client: "codex-mcp-client",
        mark: ["x-codex-turn-metadata", "turn_trigger"],
        value: "exec",
    },
];

impl ReplyAuthor {
    /// The author of a reply to a request about a call. `took`: the time from the request's writing
    /// to the reply's reading.
    pub(super) fn new(is_headless: bool, took: Duration) -> ReplyAuthor {
        if is_headless || took <= PROGRAM_REPLY {
            ReplyAuthor::Program
        } else {
            ReplyAuthor::Person
        }
    }

    /// The word for it in a record.
    pub(super) fn name(self) -> &'static str {
        match self {
            ReplyAuthor::Person => "person",
            ReplyAuthor::Program => "program",
        }
    }
}

/// True if a call shows that its client runs without a person.
pub(super) fn is_headless(call: &Call) -> bool {
    let Some(info) = &call.client_info else {
        return false;
    };
    let params = call.parts.params.clone();
    let meta = params.and_then(|params| Json::part(&call.frame, params)?.get("_meta"));
    meta.is_some_and(|meta| shows_headless_mode(&info.name, meta))
}

fn shows_headless_mode(client: &str, meta: Json<'_>) -> bool {
    HEADLESS_MODES.iter().any(|mode| {
        let [key, member] = mode.mark;
        let value = meta.get(key).and_then(|value| value.get(member));
        client == mode.client && value.is_some_and(|value| value.is_string(mode.value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_within_150_ms_is_the_programs() {
        for (is_headless, took, author) in [
            (false, 0, ReplyAuthor::Program),
            (false, 150, ReplyAuthor::Program),
            (false, 151, ReplyAuthor::Person),
            (true, 151, ReplyAuthor::Program),
            (true, 600_000, ReplyAuthor::Program),
        ] {
            let took = Duration::from_millis(took);
            assert_eq!(
                ReplyAuthor::new(is_headless, took),
                author,
                "{is_headless} {took:?}"
            );
        }
    }

    #[test]
    fn a_mode_without_a_person_is_known_by_the_client_and_its_mark() {
        for (client, meta, is_headless) in [
            (
                "codex-mcp-client",
                r#"{"x-codex-turn-metadata":{"turn_trigger":"exec"}}"#,
                true,
            ),
            (
                "codex-mcp-client",
                r#"{"x-codex-turn-metadata":{"turn_trigger":"user"}}"#,
                false,
            ),
            (
                "codex-mcp-client",
                r#"{"x-codex-turn-metadata":{"turn_trigger":["exec"]}}"#,
                false,
            ),
            (
                "codex-mcp-client",
                r#"{"x-codex-turn-metadata":"exec"}"#,
                false,
            ),
            ("codex-mcp-client", "{}", false),
            (
                "codex",
                r#"{"x-codex-turn-metadata":{"turn_trigger":"exec"}}"#,
                false,
            ),
            (
                "claude-code",
                r#"{"claudecode/toolUseId":"toolu_0","progressToken":2}"#,
                false,
            ),
        ] {
            let meta = Json::parse(meta.as_bytes()).unwrap();
            assert_eq!(
                shows_headless_mode(client, meta),
                is_headless,
                "{client} {meta:?}"
            );
        }
    }
}
